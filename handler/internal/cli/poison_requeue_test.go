package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/edit"
	"asynccaller/handler/internal/poison/journal"
)

func TestRateFlag(t *testing.T) {
	for text, want := range map[string]float64{"": 0, "50": 50, "50/s": 50, "0.5/s": 0.5, "1e3": 1000} {
		if got, err := rateFlag(text); got != want || err != nil {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"0", "-1", "fast", "50/m", "NaN", "Inf", "1e9", "/s", " 5"} {
		if got, err := rateFlag(text); err == nil || !strings.Contains(err.Error(), "--rate") {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// TestPace: the flags reach the library, each as what it means.
func TestPace(t *testing.T) {
	var r requeueOptions
	command := &cobra.Command{}
	r.addTo(command)
	if err := command.ParseFlags([]string{
		"--canary", "5", "--rate", "50/s", "--stop-at-failure-ratio", "0.1", "--delay", "1m", "--spread", "1h", "--to", "other", "--all",
		"--keep-state", "--fix-encoding", "--set", "priority=1", "--delete-header", "X-A", "--set-header", "X-B: 1", "--jq", ".", "--replace-host", "a=b",
	}); err != nil {
		t.Fatal(err)
	}
	_, request, err := r.read(nil, atNoon)
	if err != nil {
		t.Fatal(err)
	}
	want := journal.Pace{Canary: 5, CanaryWait: 3 * time.Minute, Rate: 50, StopAt: 0.1, Delay: time.Minute, Spread: time.Hour}
	if request.Pace != want {
		t.Errorf("%+v, want %+v", request.Pace, want)
	}
	edits := request.Edit.Edits
	if request.To != "other" || !request.Edit.KeepState || !request.Edit.FixEncoding ||
		len(edits.Set) != 1 || len(edits.Headers) != 2 || len(edits.JQ) != 1 || len(edits.ReplaceHosts) != 1 {
		t.Errorf("%+v", request)
	}
}

// TestRehearse: a dry run takes and changes nothing, and ends well although something would be refused.
func TestRehearse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDesk(t, append(dead(1), "no envelope")...)
		set, err := edit.ParseSet("call.headers.Authorization=CANARY")
		if err != nil {
			t.Fatal(err)
		}
		request := poison.Requeue{Edit: edit.Options{Edits: edit.Edits{Set: []edit.Setting{set}}}}
		if err := d.rehearse(t.Context(), poison.Source{}, request, false); err != nil {
			t.Fatal(err)
		}
		out := d.out.String()
		if !strings.Contains(out, "async-caller-poison to async-caller\n--- ") || !strings.Contains(out, " would be refused\n  ") {
			t.Error(out)
		}
		if strings.Contains(out, "CANARY") {
			t.Errorf("shows a secret: %s", out)
		}
		if got, want := d.err.String(), "1 message would be requeued, 1 refused; nothing was changed\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := d.store.All("async-caller-poison"); len(got) != 2 || got[0].DequeueCount != 0 {
			t.Errorf("%+v", got)
		}
		if got := codeOf(d.rehearse(t.Context(), poison.Source{IDs: []string{"nobody"}}, request, false)); got != exitNothing {
			t.Errorf("exit code %d for nothing", got)
		}
	})
}

// TestTeller: what is said stands on a line of its own, whatever counts meanwhile.
func TestTeller(t *testing.T) {
	var out bytes.Buffer
	tell := &teller{err: &out}
	tell.Scanned("a-poison", 1, 10)
	tell.line.out, tell.line.started = &out, time.Now().Add(-time.Minute) // a terminal, after a while
	tell.Scanned("a-poison", 2, 10)
	if got := out.String(); !strings.HasPrefix(got, "looked at 2 of about 10, 0/s, ") {
		t.Fatalf("%q", got)
	}
	tell.Note("100% sure")
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\r")
	if got := lines[len(lines)-1]; got != "100% sure" {
		t.Errorf("%q", out.String())
	}
	before := tell.line
	tell.Scanned("b-poison", 1, 10)
	if tell.line == before {
		t.Error("another queue goes on with the count of the one before")
	}
}

// TestReadEdited: an editor cannot make us read without end.
func TestReadEdited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(path, bytes.Repeat([]byte(" "), 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readEdited(path); err == nil || !strings.Contains(err.Error(), "larger than any message") {
		t.Errorf("%v", err)
	}
}

// TestTempFile: what is edited may hold secrets.
func TestTempFile(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	path, err := tempFile([]byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(path); string(content) != "text" || err != nil {
		t.Errorf("%q, %v", content, err)
	}
	if runtime.GOOS == "windows" {
		return // has no such modes
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
