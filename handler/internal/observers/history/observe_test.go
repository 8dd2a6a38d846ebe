package history_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage/memory"
)

// TestDeliveries: the history keeps how a call ended that is not made again and was settled, and the gate stops a call
// that it has as delivered. A call that must not be repeated has its row before the host is answered.
func TestDeliveries(t *testing.T) {
	const callback = `,"callback":{"url":"https://sender.example/"}}`
	finished := decision.Decision{Action: decision.Finish, Reason: decision.Delivered, Judged: decision.Delivered}
	released := decision.Decision{Action: decision.Release, Reason: decision.HostGone, Judged: decision.Delivered}
	interrupted := decision.Decision{
		Action: decision.Release, Reason: decision.HostGone, Judged: decision.Interrupted,
	}
	for name, test := range map[string]struct {
		decision decision.Decision
		members  string
		err      error
		want     string
	}{
		"delivered": {decision: finished, want: "delivered"},
		"with_callback": {
			decision.Decision{Action: decision.Callback, Reason: decision.Delivered}, callback, nil, "delivered",
		},
		"not_settled": {decision: finished, err: errors.New("no answer")},
		"dead_letter": {decision: decision.Decision{Action: decision.DeadLetter, Reason: "rejected"}, want: "rejected"},
		"dropped":     {decision: decision.Decision{Action: decision.Drop, Reason: "expired"}, want: "expired"},
		"fault":       {decision: decision.Decision{Action: decision.Fault, Reason: "rejected"}},
		"waits":       {decision: decision.Decision{Action: decision.Reschedule, Reason: decision.Busy}},
		"duplicate":   {decision: decision.Decision{Action: decision.Finish, Reason: decision.Duplicate}},
		// Nobody deletes the message of a host that has ended: the next one would call again.
		"host_gone":               {decision: released, err: errors.New("no answer"), want: "delivered"},
		"host_gone_with_callback": {decision: released, members: callback},
		"host_gone_interrupted":   {decision: interrupted},
	} {
		for _, keep := range []targets.History{targets.HistoryCheck, targets.HistoryOutcomes, targets.HistoryOff} {
			t.Run(fmt.Sprint(name, "/", keep), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var tables memory.Tables
					h := open(&tables, &bytes.Buffer{})
					d := history.Deliveries{History: h, Keep: keep, Now: time.Now}
					content := fmt.Sprintf(native, "id", "1999-12-31T00:00:00Z", "x")
					if test.members != "" {
						content = content[:len(content)-1] + test.members
					}
					in := &decision.Intake{Envelope: parse(t, content)}
					report := &delivery.Report{Intake: in, World: decision.World{Now: time.Now()}}
					report.Decision = test.decision
					then := d.Observe(report)
					if then != nil {
						then(t.Context(), &delivery.Result{Decision: test.decision, Err: test.err})
					}
					isChecked := keep == targets.HistoryCheck && test.want == string(decision.Delivered)
					_, verdict := d.Enter(t.Context(), &decision.Due{Intake: in})
					if (verdict != nil) != isChecked {
						t.Errorf("the gate says %+v at once", verdict)
					}
					_, verdict = d.Enter(t.Context(), &decision.Due{Intake: in, First: true})
					if verdict != nil {
						t.Errorf("a call that cannot have been made is stopped: %+v", verdict)
					}
					h.Close(time.Minute)
					want := test.want
					if keep == targets.HistoryOff {
						want = ""
					}
					got := find(t, &tables, envelope.Tenant{}, "id")
					if text := fmt.Sprint(got); text != "["+want+"]" {
						t.Errorf("kept %s, want %q", text, want)
					}
				})
			})
		}
	}
}
