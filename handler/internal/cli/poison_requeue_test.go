package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run/journal"
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]float64{"50": 50, "50/s": 50, "0.5/s": 0.5, "1e3": 1000} {
		if got, err := parseRate(text); got != want || err != nil {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "-1", "fast", "50/m", "NaN", "Inf", "1e9", "/s", " 5"} {
		if got, err := parseRate(text); err == nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// TestRequeueFlags checks that each flag sets its option.
func TestRequeueFlags(t *testing.T) {
	var o requeueOptions
	command := &cobra.Command{}
	flags := flagsOf(command)
	o.addTo(flags, &sharedFlags{})
	if err := command.ParseFlags([]string{
		"--canary", "5", "--rate", "50/s", "--stop-at-failure-ratio", "0.1", "--delay", "1m", "--spread", "1h",
		"--to", "other",
		"--keep-state", "--fix-encoding", "--set", "priority=1", "--delete-header", "X-A", "--set-header", "X-B: 1",
		"--jq", ".", "--replace-host", "a=b",
	}); err != nil {
		t.Fatal(err)
	}
	o.check(flags, nil)
	if err := flags.err(); err != nil {
		t.Fatal(err)
	}
	want := journal.Pace{
		Canary: 5, CanaryWait: 3 * time.Minute, Rate: 50, StopAt: 0.1, Delay: time.Minute,
		Spread: time.Hour,
	}
	if o.Pace != want {
		t.Errorf("%+v, want %+v", o.Pace, want)
	}
	if o.To != "other" || !o.Edit.KeepState || !o.Edit.FixEncoding ||
		len(o.Edit.Edits) != 5 {
		t.Errorf("%+v", o)
	}
}

// TestDryRun checks that a dry run changes nothing, and succeeds although a message would be refused.
func TestDryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestSession(t, append(dead(1), "no envelope")...)
		set, err := edit.ParseSet("call.headers.Authorization=CANARY")
		if err != nil {
			t.Fatal(err)
		}
		request := operation.Requeue{Edit: edit.Options{Edits: edit.Edits{set}}}
		if err := d.dryRun(t.Context(), account.Source{}, request, false); err != nil {
			t.Fatal(err)
		}
		out := d.stdout.String()
		if !strings.Contains(out, "async-caller-poison to async-caller\n--- ") ||
			!strings.Contains(out, " would be refused\n  ") {
			t.Error(out)
		}
		if strings.Contains(out, "CANARY") {
			t.Errorf("shows a secret: %s", out)
		}
		if got, want := d.err.String(),
			"would requeue 1 message in test and refuse 1; nothing was changed\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := d.store.All("async-caller-poison"); len(got) != 2 || got[0].DequeueCount != 0 {
			t.Errorf("%+v", got)
		}
		if got := codeOf(d.dryRun(t.Context(), account.Source{IDs: []string{"nobody"}}, request,
			false)); got != exitNothing {
			t.Errorf("exit code %d for nothing", got)
		}
	})
}

// TestWarningsAreLimited: an edit that gives each message another member does not flood the terminal.
func TestWarningsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestSession(t, dead(30)...)
		jq, err := edit.ParseJQ(`.["x" + .requestId] = 1`)
		if err != nil {
			t.Fatal(err)
		}
		request := operation.Requeue{Edit: edit.Options{Edits: edit.Edits{jq}}}
		if err := d.dryRun(t.Context(), account.Source{}, request, false); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(d.err.String(), "warning: "); n != 20 {
			t.Errorf("%d warnings, want 20:\n%s", n, &d.err)
		}
	})
}

// TestReadFile checks that a file is read only up to a limit.
func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(path, bytes.Repeat([]byte(" "), 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readFile(Env{}, path); err == nil || !strings.Contains(err.Error(), "larger than any message") {
		t.Errorf("%v", err)
	}
}
