package envelope_test

import (
	"strings"
	"testing"

	"asynccaller/handler/internal/rules/envelope"
)

// TestTicket: a place in the line of a limit survives rescheduling in both formats, and ends with a call or when the
// message starts again. No value makes a message malformed.
func TestTicket(t *testing.T) {
	for name, c := range map[string]struct {
		value string
		want  int64
	}{
		"ticket":    {`281474976710656`, 281474976710656},
		"largest":   {`9007199254740991`, envelope.MaxTicket},
		"too_large": {`9007199254740992`, 0},
		"overflow":  {`99999999999999999999`, 0},
		"zero":      {`0`, 0},
		"negative":  {`-17`, 0},
		"fraction":  {`1.5`, 0},
		"exponent":  {`1e3`, 0},
		"text":      {`"17"`, 0},
		"promise":   {`"1769860000000.7.1769860060000.c2VhbA"`, 0},
		"object":    {`{"at":[1, 2]}`, 0},
		"null":      {`null`, 0},
	} {
		for format, content := range map[string]string{
			"native": `{"asyncCaller":1,"requestId":"r1","reserved":` + c.value + `,"call":{"url":"http://a"}}`,
			"nexus":  nexusWith(`,"Reserved":`+c.value, ""),
		} {
			t.Run(name+"/"+format, func(t *testing.T) {
				e := accept(t, content)
				if e.Ticket != c.want {
					t.Fatalf("ticket %d, want %d", e.Ticket, c.want)
				}
				again := accept(t, mustContent(t)(e.Successor(limit)))
				if again.Ticket != c.want {
					t.Errorf("ticket %d after a reschedule", again.Ticket)
				}
				state := e.State
				state.Ticket = 7
				again = accept(t, mustContent(t)(e.WithState(state).Successor(limit)))
				if again.Ticket != 7 {
					t.Errorf("ticket %d, want the new one", again.Ticket)
				}
				state.Ticket = 0
				written := mustContent(t)(again.WithState(state).Successor(limit))
				dead := mustContent(t)(again.DeadLettered(envelope.DeadLetter{Reason: "rejected"}, limit))
				for _, content := range []string{written, dead} {
					if strings.Contains(strings.ToLower(content), `"reserved"`) {
						t.Errorf("a ticket that has ended stays: %s", content)
					}
				}
			})
		}
	}
}

// TestRoomForTicket: every envelope that is accepted can carry a ticket.
func TestRoomForTicket(t *testing.T) {
	for format, content := range map[string]func(int) string{
		"native": func(n int) string {
			return `{"asyncCaller":1,"requestId":"r1","deadline":"2026-01-31T12:00:00Z","call":{"url":"http://a/` +
				strings.Repeat("x", n) + `"}}`
		},
		"nexus": func(n int) string { return nexusWith("", `,"Title":"`+strings.Repeat("x", n)+`"`) },
	} {
		t.Run(format, func(t *testing.T) {
			accepted := 0
			for n := limit - 1200; n < limit; n++ {
				e, err := envelope.Parse([]byte(content(n)))
				if err != nil {
					t.Fatal(err)
				}
				if e.Accept(arrival, "m1", limit) != nil {
					continue
				}
				state := e.State
				state.Ticket, state.Attempts = envelope.MaxTicket, envelope.MaxAttempts
				written := mustContent(t)(e.WithState(state).Successor(limit))
				accepted++
				if again := accept(t, written); again.Ticket != envelope.MaxTicket {
					t.Fatalf("%d bytes: ticket %d after a reschedule", len(content(n)), again.Ticket)
				}
			}
			if accepted == 0 || accepted == 1200 {
				t.Errorf("%d accepted", accepted)
			}
		})
	}
}
