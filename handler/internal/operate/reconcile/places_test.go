package reconcile

import (
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/decision"
)

// TestSettle: which places are one call, and that two calls of an id never hide each other.
func TestSettle(t *testing.T) {
	t0 := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return t0.Add(time.Duration(minutes) * time.Minute) }
	end := func(state string, action decision.Action, minutes int, call, trace string) Place {
		return Place{
			State: state, At: at(minutes), ID: "m", Queue: "q", Reason: "rejected", createdAt: t0,
			toPoison: action == decision.DeadLetter, call: call, trace: trace,
		}
	}
	delivered := end(Delivered, decision.Finish, 5, "c1", "t1")
	dead := end(Ended, decision.DeadLetter, 3, "c1", "t1")
	rejected := end(Ended, decision.Callback, 3, "c1", "t1")
	poison := Place{State: Poison, At: at(3), Reason: "rejected", ID: "p", Queue: "q-poison"}
	waits := Place{State: Scheduled, At: at(9), ID: "w", Queue: "q", createdAt: at(4)}
	same := Place{State: Scheduled, At: at(4), ID: "m", Queue: "q", createdAt: t0}
	late := Place{State: Scheduled, At: at(4), ID: "w", Queue: "q", createdAt: t0, Doubt: "d"}
	other := late
	other.createdAt = at(1)
	for name, test := range map[string]struct {
		found []Place
		want  string
	}{
		"nothing":             {nil, "unknown:"},
		"delivered":           {[]Place{delivered}, "delivered: delivered"},
		"read_before_its_end": {[]Place{same, delivered}, "delivered: delivered"},
		"row_left_behind":     {[]Place{late, delivered}, "delivered: delivered"},
		"row_of_another_call": {[]Place{other, delivered}, "several: scheduled? delivered"},
		"waits_beside_an_end": {[]Place{waits, delivered}, "several: scheduled delivered"},
		"not_seen":            {[]Place{late}, "unknown: scheduled?"},
		"two_ends":            {[]Place{rejected, delivered}, "several: ended delivered"},
		"dead_letter":         {[]Place{poison, dead}, "poison: poison"},
		"dead_letter_gone":    {[]Place{dead}, "unknown: ended?"},
		"dead_letter_again":   {[]Place{waits, dead}, "scheduled: scheduled"},
		"older_than_the_end":  {[]Place{{State: Scheduled, createdAt: t0}, dead}, "several: scheduled ended?"},
		"retried":             {[]Place{dead, delivered}, "delivered: delivered"},
		"edited": {
			[]Place{dead, end(Delivered, decision.Finish, 5, "c2", "t1")}, "delivered: delivered",
		},
		"another_call_delivered": {
			[]Place{dead, end(Delivered, decision.Finish, 5, "c2", "")}, "several: ended? delivered",
		},
		"another_dead_letter": {
			[]Place{{State: Poison, At: at(30), Reason: "rejected"}, dead}, "several: poison ended?",
		},
		"delivered_before": {
			[]Place{end(Delivered, decision.Finish, 1, "c1", "t1"), dead}, "several: delivered ended?",
		},
	} {
		t.Run(name, func(t *testing.T) {
			state, places := settle(test.found)
			got := state + ":"
			for _, p := range places {
				got += " " + p.State + strings.Repeat("?", min(len(p.Doubt), 1))
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
