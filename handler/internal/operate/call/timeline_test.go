package call

import (
	"testing"

	"asynccaller/handler/internal/observers/history"
)

func TestAttemptEvents(t *testing.T) {
	for want, a := range map[string]history.Attempt{
		"answered 503, took 12ms": {Status: 503, TookMs: 12}, "dns, took 0s": {Error: "dns"},
		"answered 200, body_cut, took 0s": {Status: 200, Error: "body_cut"}, "no answer, took 0s": {},
	} {
		events := attemptEvents([]history.Attempt{a})
		if len(events) != 1 || events[0].Text != want || !events[0].At.IsZero() {
			t.Errorf("%+v, want %q", events, want)
		}
	}
}
