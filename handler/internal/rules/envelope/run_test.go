package envelope_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"asynccaller/handler/internal/rules/envelope"
)

// TestRun checks what the member run of each format means: a token survives rescheduling, and a member of another form
// has no effect and is kept as it came.
func TestRun(t *testing.T) {
	for name, c := range map[string]struct{ value, want string }{
		"token":        {`"T0KEN-1"`, "T0KEN-1"},
		"longest":      {`"` + strings.Repeat("x", 64) + `"`, strings.Repeat("x", 64)},
		"too_long":     {`"` + strings.Repeat("x", 65) + `"`, ""},
		"empty":        {`""`, ""},
		"space":        {`"a b"`, ""},
		"not_ascii":    {`"å"`, ""},
		"line_break":   {`"a\nb"`, ""},
		"number":       {`17`, ""},
		"object":       {`{"a":[1, 2]}`, ""},
		"escaped_text": {`"\u0041"`, "A"},
		"null":         {`null`, ""},
	} {
		for format, content := range map[string]string{
			"native": `{"asyncCaller":1,"requestId":"r1","run":` + c.value + `,"call":{"url":"http://a"}}`,
			"nexus":  nexusWith(`,"Run":`+c.value, ""),
		} {
			t.Run(name+"/"+format, func(t *testing.T) {
				e := accept(t, content)
				if e.Run != c.want {
					t.Errorf("run %q, want %q", e.Run, c.want)
				}
				written := mustContent(t)(e.Successor(limit))
				if again := accept(t, written); again.Run != c.want || !strings.Contains(written, c.value) {
					t.Errorf("run %q in %s", again.Run, written)
				}
				dead := mustContent(t)(e.DeadLettered(envelope.DeadLetter{Reason: "rejected"}, limit))
				if moved := accept(t, dead); moved.Run != "" { // the run is over
					t.Errorf("run %q after it was moved back by hand", moved.Run)
				}
			})
		}
	}
}

// TestRunIsChanged checks that a command can give a message another run, or none, and changes nothing else.
func TestRunIsChanged(t *testing.T) {
	for format, message := range map[string]func(string) string{
		"native": func(run string) string {
			return `{"asyncCaller":1,"requestId":"r1"` + run + `,"call":{"url":"http://a"}}`
		},
		"nexus": func(run string) string { return nexusWith(strings.ReplaceAll(run, "run", "Run"), "") },
	} {
		plain := mustContent(t)(accept(t, message("")).Successor(limit))
		for _, came := range []string{"", `,"run":"old"`, `,"run":[1]`} {
			e := accept(t, message(came))
			e.Run = "new"
			written := mustContent(t)(e.Successor(limit))
			again := accept(t, written)
			if again.Run != "new" || strings.Count(strings.ToLower(written), `"run"`) != 1 {
				t.Errorf("%s %s: %s", format, came, written)
			}
			e = accept(t, written)
			e.Run = ""
			if got := mustContent(t)(e.Successor(limit)); got != plain {
				t.Errorf("%s %s: without the run %s, want %s", format, came, got, plain)
			}
		}
	}
}

// TestRunWithoutRoom checks that the run is left out before anything of the sender's.
func TestRunWithoutRoom(t *testing.T) {
	const native = `{"asyncCaller":1,"requestId":"r1","run":"T0KEN","mine":"%s","context":"c",` +
		`"call":{"url":"http://a"}}`
	for format, message := range map[string]func(int) string{
		"native": func(n int) string { return fmt.Sprintf(native, strings.Repeat("x", n)) },
		"nexus":  func(n int) string { return nexusWith(`,"Run":"T0KEN","Mine":"m"`, padding(n)) },
	} {
		without := 0
		for spare := range 400 {
			content := message(0)
			content = message(limit - len(content) - spare)
			e, err := envelope.Parse([]byte(content))
			if err != nil {
				t.Fatal(err)
			}
			if e.Accept(arrival, "message-1", limit) != nil {
				continue
			}
			state := e.State
			state.Attempts = 3
			state.LatestAttemptAt, state.NextAttemptAt = arrival, arrival
			state.Latest = &envelope.Answer{Status: 503, Header: http.Header{"Content-Type": {"text/plain"}}}
			got := mustContent(t)(e.WithState(state).Successor(limit))
			again := accept(t, got)
			hasOwn := strings.Contains(strings.ToLower(got), `"mine"`)
			if again.Run != "" && !hasOwn {
				t.Errorf("%s: with %d bytes to spare the run stays and a member of the sender does not", format, spare)
			}
			if again.Run == "" {
				without++
			}
		}
		if without == 0 {
			t.Errorf("%s: the run was never left out", format)
		}
	}
}

// TestRunTwice checks that no spelling of the member makes a Nexus message malformed.
func TestRunTwice(t *testing.T) {
	e := accept(t, nexusWith(`,"Run":"one","run":"two"`, ""))
	if written := mustContent(t)(e.Successor(limit)); e.Run != "one" || !strings.Contains(written, `"run":"two"`) {
		t.Errorf("run %q in %s", e.Run, written)
	}
}

// nexusWith returns a Nexus message with further members of the envelope, and of its RawRequest.
func nexusWith(members, raw string) string {
	return strings.TrimSuffix(nexusMessage(plainCall, raw), "}") + members + "}"
}

// mustContent returns the text of a content.
func mustContent(t *testing.T) func(envelope.Content, error) string {
	t.Helper()
	return func(c envelope.Content, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return string(c.Bytes)
	}
}
