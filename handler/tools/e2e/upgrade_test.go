package e2e_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestUpgrade: an account that version 0.1.0 leaves is taken over: attempts, deadlines, bytes and traces of calls that
// wait go on, its exports are imported, its dead letters retried, and its journals listed. testdata/upgrade has what
// the executable of 0.1.0 wrote, for a target on port 8080.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	const day, deadline = "2026-11-30", "2026-12-07" // of the messages
	f := newFixture(t, options{tables: true})
	f.must(os.WriteFile(filepath.Join(f.app, "targets.json"), []byte(`{"*":{"breaker":"off"},"127.0.0.1:8080":{"to":"`+
		strings.TrimSuffix(f.target.URL(""), "/answer/")+`"}}`), 0o600))
	f.must(f.store.Create(t.Context(), poisonQueue))
	read := func(name string) []byte {
		content, err := os.ReadFile(filepath.Join("testdata", "upgrade", name))
		f.must(err)
		return content
	}
	yesterday := time.Now().UTC().AddDate(0, 0, -1)
	moved := strings.NewReplacer(day, yesterday.Format(time.DateOnly), deadline, yesterday.AddDate(0, 0, 7).
		Format(time.DateOnly)).Replace(string(read("queue.jsonl")))
	for line := range strings.Lines(moved) {
		f.putContent([]byte(strings.TrimSuffix(line, "\n")))
	}
	f.must(os.WriteFile(filepath.Join(f.app, "export.jsonl"), read("export.jsonl"), 0o600))
	f.mustOperate("calls", "import", "export.jsonl", "--yes")
	for _, args := range [][]string{
		{"rejected", "past-deadline", "given-up-by-the-host"},
		{"misspelt", "--jq", ".call.url = .call.ulr | del(.call.ulr)"},
		{"not-base64", "--fix-encoding"},
	} {
		f.mustOperate(append(append([]string{"calls", "retry"}, args...), "--yes")...)
	}
	f.start(nil)
	f.awaitEmpty()

	for id, want := range map[string]struct{ call, trace string }{
		"fresh":            {`POST 1 {"n":4}`, "b1d4d1ddace0e01fa4b65a5c74033936"},
		"several-attempts": {"PUT 4 line 1\r\nline 2: å", "872b40413f2924ac7857ed4123a626d3"},
		"last-attempt":     {"POST 3 \x00\x01\x02\xff", "2e4bb80f6b34d20f924af023dd758b23"},
		"nexus-several":    {`POST 3 {"n":1}`, "f89553366dc9bbfd7e92648cc52aacca"},
		"rejected-callback.callback": {
			`POST 1 {"Id":"rejected-callback","Context":null,"StatusCode":422,` +
				`"Payload":"{\"status\": 422, \"path\": \"/answer/200\", \"error\": \"answer 422\"}",` +
				`"PayloadMediaType":"application/json","Attempts":1,"Reason":"rejected","PayloadTruncated":false}`,
			"3c7ff3059655e5c9ec825e9e57afee16",
		},
		"rejected":             {`POST 1 {"n": 2}`, ""},
		"past-deadline":        {`POST 1 {"n": 1.0}`, ""},
		"given-up-by-the-host": {`POST 1 {"n": 3}`, ""},
		"misspelt":             {"GET 1 ", ""},
		"not-base64":           {"GET 1 ", ""},
	} {
		calls := f.target.Calls(id)
		if len(calls) != 1 {
			t.Errorf("%s: %d calls", id, len(calls))
			continue
		}
		c := calls[0]
		if got := c.Method + " " + c.Attempt + " " + string(c.Body); got != want.call {
			t.Errorf("%s: call %q, want %q", id, got, want.call)
		}
		if got := c.Header.Get("Traceparent"); want.trace != "" && !strings.HasPrefix(got, "00-"+want.trace+"-") {
			t.Errorf("%s: traceparent %s, want the trace %s", id, got, want.trace)
		}
	}
	told := f.target.Calls("several-attempts.callback")
	if len(told) != 1 || !bytes.Contains(told[0].Body, []byte(`"Context":{"order":1e2}`)) ||
		!bytes.Contains(told[0].Body, []byte(`"Attempts":4`)) {
		t.Errorf("callbacks of several-attempts: %+v", told)
	}
	letters := bytes.Join(f.drain(poisonQueue), nil)
	if bytes.Count(letters, []byte(`"deadLetter"`)) != 1 || !bytes.Contains(letters, []byte(`"reason":"exhausted"`)) {
		t.Errorf("dead letters: %s", letters)
	}

	const run = "20261130-085144-move-gxtp"
	f.must(os.WriteFile(filepath.Join(f.app, "state", "async-caller", "runs", run+".jsonl"), read(run+".jsonl"), 0o600))
	for _, listed := range f.mustOperate("runs", "list") {
		if isOld := listed["run"] == run; isOld != (listed["state"] == "unreadable") {
			t.Errorf("runs list: %v", listed)
		}
	}
}
