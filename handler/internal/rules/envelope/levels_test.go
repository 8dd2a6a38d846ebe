package envelope_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/envelope"
)

// TestLevels checks in which order parts are left out as the call leaves less and less room, and that each part is
// there until its turn.
func TestLevels(t *testing.T) {
	const native = `{"asyncCaller":1,"requestId":"r1","createdAt":"2026-01-30T00:00:00Z","run":"T0KEN","priority":3,` +
		`"mine":"%s","context":"%s","retry":{"maxAttempts":9},"call":{"url":"http://a","body":"%s"}}`
	for format, c := range map[envelope.Format]struct {
		message func(padding string) string
		// levels are the texts of the levels that leave something out, and parts what they leave out; the last parts
		// are never left out.
		levels []string
		parts  [][]string
	}{
		envelope.FormatNative: {
			func(padding string) string {
				return fmt.Sprintf(native, strings.Repeat("m", 5), strings.Repeat("c", 500), padding)
			},
			[]string{
				"trail", "trail, trace, run and latestAttemptAt",
				"trail, trace, run, latestAttemptAt, priority and unknown members",
				"trail, trace, run, latestAttemptAt, priority, unknown members and context",
			},
			[][]string{
				{"trail.1"},
				{"trail.0", "trace", "run", "latestAttemptAt"},
				{"priority", "mine"},
				{"context"},
				{"call", "retry", "createdAt", "attempts", "nextAttemptAt", "reserved"},
			},
		},
		envelope.FormatNexus: {
			func(text string) string {
				return nexusWith(`,"Run":"T0KEN","Mine":"`+strings.Repeat("m", 500)+`"`, `,"Title":"`+text+`"`)
			},
			[]string{
				"the end of the latest response", "the end and headers of the latest response, trail and run",
				"the latest response, trail, run and unknown members",
			},
			[][]string{
				{},
				{"Trail.1", "Trail.0", "Run"},
				{"LatestResponse", "Mine"},
				{"RawRequest", "CreatedAt", "Attempts", "DeadlineAt", "NextAttemptAt", "LatestAttemptAt", "Reserved"},
			},
		},
	} {
		t.Run(string(format), func(t *testing.T) {
			var levels []string
			least := len(c.message(""))
			for size := limit - (5 << 10); size <= limit; size += 13 {
				e, err := envelope.Parse([]byte(c.message(strings.Repeat("x", size-least))))
				if err != nil {
					t.Fatal(err)
				}
				if e.Accept(arrival, "message-1", limit) != nil {
					break
				}
				e = e.WithState(triedTwice(e))
				successor := written(t)(e.Successor(limit))
				at := slices.Index(c.levels, successor.LeftOut) // -1 if nothing is left out
				if len(levels) == 0 || levels[len(levels)-1] != successor.LeftOut {
					levels = append(levels, successor.LeftOut)
				}
				for i, parts := range c.parts {
					for _, part := range parts {
						value := strictjson.ExactNames.Get(successor.Bytes, strings.Split(part, ".")...)
						if kept := value != nil && !strictjson.IsNull(value); kept != (i > at) {
							t.Fatalf("%d bytes, left out %q: has %s: %v", size, successor.LeftOut, part, kept)
						}
					}
				}
				why := envelope.DeadLetter{At: arrival, Reason: "expired", Detail: "answered 503", Queue: "q"}
				checkLetter(t, written(t)(e.DeadLettered(why, limit)), c.levels[len(c.levels)-1])
			}
			if diff := cmp.Diff(append([]string{""}, c.levels...), levels); diff != "" {
				t.Errorf("levels (-want +got):\n%s", diff)
			}
		})
	}
}

// triedTwice returns the state of an envelope after two calls, with all that a state can have.
func triedTwice(e *envelope.Envelope) envelope.State {
	state := e.State
	state.Attempts, state.LatestAttemptAt, state.NextAttemptAt = 2, arrival, arrival.Add(time.Minute)
	state.Expires, state.Ticket = arrival.Add(time.Hour), envelope.MaxTicket
	for range 2 {
		state.Trail = envelope.AppendAttempt(state.Trail, envelope.Attempt{At: arrival, Status: 503, Took: time.Second})
	}
	state.Latest = &envelope.Answer{
		Status: 503, Header: http.Header{"Content-Type": {"text/plain"}, "X-Long": {strings.Repeat("h", 1000)}},
		Body: []byte(strings.Repeat("b", 1000)),
	}
	return state
}

// checkLetter checks that a dead letter has no promise of a limit, and states more than its reason before the last
// level.
func checkLetter(t *testing.T, dead envelope.Content, last string) {
	t.Helper()
	letter := strictjson.FoldNames.Get(dead.Bytes, "deadLetter")
	var says map[string]any
	if err := json.Unmarshal(letter, &says); err != nil {
		t.Fatalf("%v: %s", err, letter)
	}
	isLast := strings.HasSuffix(dead.LeftOut, last)
	if strictjson.FoldNames.Get(dead.Bytes, "reserved") != nil || (len(says) == 1) != isLast {
		t.Fatalf("left out %q: %s", dead.LeftOut, letter)
	}
}

// written returns a content.
func written(t *testing.T) func(envelope.Content, error) envelope.Content {
	t.Helper()
	return func(c envelope.Content, err error) envelope.Content {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}
