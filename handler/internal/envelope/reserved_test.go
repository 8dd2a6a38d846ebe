package envelope_test

import (
	"strings"
	"testing"

	"asynccaller/handler/internal/envelope"
)

// TestReserved: what a limit has promised to a message survives rescheduling in both formats, and ends with a call or
// when the message starts again. No value makes a message malformed.
func TestReserved(t *testing.T) {
	for name, c := range map[string]struct{ value, want string }{
		"promise":    {`"1769860000000.7.1769860060000.c2VhbA"`, "1769860000000.7.1769860060000.c2VhbA"},
		"longest":    {`"` + strings.Repeat("x", 128) + `"`, strings.Repeat("x", 128)},
		"too_long":   {`"` + strings.Repeat("x", 129) + `"`, ""},
		"escaped":    {`"` + strings.Repeat(`\u0078`, 128) + `"`, strings.Repeat("x", 128)},
		"controls":   {`"` + strings.Repeat(`\u0001`, 128) + `"`, ""}, // would need 768 bytes
		"number":     {`17`, ""},
		"object":     {`{"at":[1, 2]}`, ""},
		"null":       {`null`, ""},
		"line_break": {`"a\nb"`, "a\nb"},
	} {
		for format, content := range map[string]string{
			"native": `{"asyncCaller":1,"requestId":"r1","reserved":` + c.value + `,"call":{"url":"http://a"}}`,
			"nexus":  nexusWith(`,"Reserved":`+c.value, ""),
		} {
			t.Run(name+"/"+format, func(t *testing.T) {
				e := accept(t, content)
				if e.Reserved != c.want {
					t.Fatalf("reserved %q, want %q", e.Reserved, c.want)
				}
				again := accept(t, mustContent(t)(e.Successor(limit)))
				if again.Reserved != c.want {
					t.Errorf("reserved %q after a reschedule", again.Reserved)
				}
				state := e.State
				state.Reserved = "other"
				again = accept(t, mustContent(t)(e.WithState(state).Successor(limit)))
				if again.Reserved != "other" {
					t.Errorf("reserved %q, want the new promise", again.Reserved)
				}
				state.Reserved = ""
				written := mustContent(t)(again.WithState(state).Successor(limit))
				if strings.Contains(strings.ToLower(written), `"reserved"`) {
					t.Errorf("a promise that has ended stays: %s", written)
				}
				dead := mustContent(t)(e.DeadLettered(envelope.DeadLetter{Reason: "rejected"}, limit))
				if moved := accept(t, dead); moved.Reserved != "" {
					t.Errorf("reserved %q after it was moved back by hand", moved.Reserved)
				}
			})
		}
	}
}
