package e2e_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// failing returns how the target fails, as the status shows it.
func (f *fixture) failing() (causes []string) {
	f.t.Helper()
	command, stdout, stderr := f.operate("status", "--json")
	if err := command.Run(); err != nil {
		f.t.Fatalf("status: %v\n%s", err, stderr)
	}
	var status struct {
		Targets []struct {
			Failing []struct{ Cause, Answer string }
		}
	}
	f.must(json.Unmarshal(stdout.Bytes(), &status))
	for _, t := range status.Targets {
		for _, failing := range t.Failing {
			causes = append(causes, failing.Cause+" "+failing.Answer)
		}
	}
	return causes
}

// TestFailingTarget: the status shows that a target fails, until another instance of the app has seen that it is up.
func TestFailingTarget(t *testing.T) {
	f := newFixture(t, options{tables: true})
	f.start(nil)
	f.put("first", "503,200", `,"retry":{"schedule":["2h"]}`)
	f.await("the failure to be shown", func() bool {
		causes := f.failing()
		return len(causes) == 1 && causes[0] == `503 {"status":503}`
	})
	f.must(f.host.Stop(hostGrace))
	if causes := f.failing(); len(causes) != 1 {
		t.Errorf("after the end of the instance: %q", causes)
	}
	f.start(nil)
	f.put("second", "200", "")
	f.await("the success to be seen", func() bool { return len(f.failing()) == 0 })
}

// TestTargetProfile checks that the headers of targets.json are in real calls to their target, and in no others, and
// that no answer brings them to the sender or into a dead letter.
func TestTargetProfile(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	keyed, reports := make(chan string, 2), make(chan string, 1)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/callback" {
			body, _ := io.ReadAll(r.Body)
			reports <- string(body)
			return
		}
		keyed <- r.Header.Get("X-Key")
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(http.StatusUnprocessableEntity)
		zipped := gzip.NewWriter(w)
		_, _ = fmt.Fprintf(zipped, `{"key":"%s","asked":"%s"}`,
			strings.ReplaceAll(r.Header.Get("X-Key"), "/", `\/`), r.Header.Get("Accept-Encoding"))
		_ = zipped.Close()
	}))
	t.Cleanup(target.Close)
	profiles := fmt.Sprintf(`{%q: {"headers": {"X-Key": "$TARGET_KEY"}}}`, strings.TrimPrefix(target.URL, "http://"))
	f.must(os.WriteFile(filepath.Join(f.app, "targets.json"), []byte(profiles), 0o600))
	f.putContent([]byte(envelopeTo(target.URL)))
	f.putContent(fmt.Appendf(nil, `{"asyncCaller":1,"requestId":"r1","call":{"url":%q,"headers":{"accept-encoding":"gzip"}},
		"callback":{"url":%q}}`, target.URL, target.URL+"/callback"))
	f.put("r0", "200", "")
	f.start([]string{"TARGET_KEY=C4/nary"})
	f.awaitEmpty()
	for range 2 {
		if key := <-keyed; key != "C4/nary" {
			t.Errorf("header %q", key)
		}
	}
	const want = `{"key":"***","asked":"identity"}`
	var report struct{ Payload string }
	f.must(json.Unmarshal([]byte(<-reports), &report))
	letters := f.deadLetters()
	if report.Payload != want || len(letters) != 1 || !strings.Contains(fmt.Sprint(letters[0]["deadLetter"]), want) {
		t.Errorf("callback with %s, dead letters %v", report.Payload, letters)
	}
	if calls := f.target.Calls("r0"); len(calls) != 1 || calls[0].Header.Get("X-Key") != "" {
		t.Errorf("calls %+v", calls)
	}
}
