package demo

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"asynccaller/handler/internal/program/demo/target"
	"asynccaller/handler/internal/storage"
)

// lines keeps what is written. It is safe for concurrent use.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func openSystem(t *testing.T, o Options) *system {
	t.Helper()
	o.Environ, o.Stdout, o.Stderr = os.Environ(), io.Discard, io.Discard
	s, err := open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := s.close()
		if err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(s.folder); !os.IsNotExist(err) {
			t.Errorf("the folder is left: %v", err)
		}
	})
	return s
}

// TestLoopback: of the addresses of this machine, a demo calls its target alone, and what the user allows.
func TestLoopback(t *testing.T) {
	for allow, want := range map[string]string{"": "target_refused", "127.0.0.1": "delivered"} {
		t.Run("allow_"+allow, func(t *testing.T) {
			s := openSystem(t, Options{Allow: allow})
			other, err := target.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			var log lines
			err = s.start(t.Context(), &log)
			if err != nil {
				t.Fatal(err)
			}
			for id, url := range map[string]string{
				"own": s.target.URL("200"), "other": other.URL("200"), "storage": s.emulator.QueueEndpoint,
				"named": strings.Replace(other.URL("200"), "127.0.0.1", "localhost", 1),
			} {
				content := fmt.Appendf(nil, `{"asyncCaller":1,"requestId":%q,"call":{"url":%q}}`, id, url)
				_, err := s.store.Put(t.Context(), mainQueue, storage.Item{Text: storage.Base64.Encode(content)})
				if err != nil {
					t.Fatal(err)
				}
			}
			check := &Check{Ended: s.ended}
			err = check.await(t.Context(), func() bool {
				return strings.Count(log.String(), `"message":"settled"`) == 4
			})
			if err != nil {
				t.Fatal(err)
			}
			for id, wanted := range map[string]string{
				"own": "delivered", "other": want, "named": want, "storage": want,
			} {
				if id == "storage" && allow != "" {
					continue // its answer is 403
				}
				if !settledAs(log.String(), id, wanted) {
					t.Errorf("%s is not settled as %s:\n%s", id, wanted, &log)
				}
			}
		})
	}
}

// settledAs reports whether a log has the line of a message that was settled for a reason.
func settledAs(log, id, reason string) bool {
	for line := range strings.Lines(log) {
		if strings.Contains(line, `"message":"settled"`) && strings.Contains(line, `"request_id":"`+id+`"`) {
			return strings.Contains(line, `"reason":"`+reason+`"`)
		}
	}
	return false
}

// TestApp: the user's app runs with its settings and files, on the storage of the demo, and its folder stays as it is.
func TestApp(t *testing.T) {
	folder := t.TempDir()
	err := WriteApp(folder)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"targets.json": `{"127.0.0.1": {"statuses": {"reject": [503]}, "headers": {"X-Key": "$DEMO_KEY"}}}`,
		"local.settings.json": `{"Values": {"AzureWebJobsStorage__accountName": "prod", "DEMO_KEY": "secret",
			"azurewebjobsstorage": "UseDevelopmentStorage=true", "ASYNC_CALLER_TARGETS_ALLOW": "127.0.0.0/8",
			"AzureWebJobs.AC-priority01.Disabled": "true"}}`,
	} {
		err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	s := openSystem(t, Options{App: folder})
	environ := strings.Join(s.environ(), "\n")
	if strings.Contains(environ, "prod") || strings.Contains(environ, "UseDevelopmentStorage") {
		t.Errorf("the environment names the storage of the folder:\n%s", environ)
	}
	var log lines
	err = s.start(t.Context(), &log)
	if err != nil {
		t.Fatal(err)
	}
	content := fmt.Appendf(nil, `{"asyncCaller":1,"requestId":"own","call":{"url":%q}}`, s.target.URL("503"))
	_, err = s.store.Put(t.Context(), mainQueue, storage.Item{Text: storage.Base64.Encode(content)})
	if err != nil {
		t.Fatal(err)
	}
	err = (&Check{Ended: s.ended}).await(t.Context(), func() bool {
		return strings.Contains(log.String(), `"message":"settled"`)
	})
	if err != nil || !settledAs(log.String(), "own", "rejected") {
		t.Errorf("error %v, not rejected as targets.json says:\n%s", err, &log)
	}
	calls := s.target.Calls("own")
	if len(calls) != 1 || calls[0].Header.Get("X-Key") != "secret" {
		t.Errorf("calls %+v, want one with the header of targets.json", calls)
	}
	names, err := s.store.Names(t.Context(), "async-caller")
	if err != nil || len(names) != 11 || slices.Contains(names, "async-caller-1") { // with the poison queue
		t.Errorf("queues %v, error %v, want those of the functions that run", names, err)
	}
	_, err = os.Stat(filepath.Join(folder, "local.settings.json"))
	if err != nil {
		t.Error(err)
	}
}

// TestPortInUse: the error says what to do, and nothing is left.
func TestPortInUse(t *testing.T) {
	other, err := target.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	port := int(other.AddrPort().Port())
	for _, first := range []int{port, port - 1, port - 2} {
		_, err := open(t.Context(), Options{Port: first})
		if err == nil || !strings.Contains(err.Error(), "address already in use") ||
			!strings.Contains(err.Error(), fmt.Sprintf("give --port another number than %d", first)) {
			t.Errorf("port %d of three from %d is used: error %v", port, first, err)
		}
	}
}

// TestInvitation: each platform has its own form to set a variable.
func TestInvitation(t *testing.T) {
	s := openSystem(t, Options{Name: "./async-caller"})
	for platform, want := range map[string]string{
		"linux":   "\n  export AzureWebJobsStorage='" + s.emulator.ConnectionString + "'\n",
		"windows": "\n  $env:AzureWebJobsStorage='" + s.emulator.ConnectionString + "'\n",
	} {
		if text := s.invitation(platform); !strings.Contains(text, want) {
			t.Errorf("%s: want %s in %s", platform, want, text)
		}
	}
}

// TestReport: a message that does not end as expected is shown, and counted.
func TestReport(t *testing.T) {
	expected := scenario{name: "rejected", answers: "400", outcome: "dead letter: rejected"}
	rows := []row{
		{scenario: expected, attempts: 1, gotAnswers: "400", gotOutcome: "dead letter: rejected"},
		{scenario: expected, attempts: 1, gotAnswers: "400", gotOutcome: "waiting"},
		{scenario: expected, attempts: 2, gotAnswers: "400 400", gotOutcome: "dead letter: rejected"},
	}
	var printed strings.Builder
	unexpected := report(&printed, rows)
	if unexpected != 2 || strings.Count(printed.String(), " no\n") != 2 ||
		strings.Count(printed.String(), "\n  expected ") != 2 {
		t.Errorf("%d unexpected in\n%s", unexpected, &printed)
	}
}
