package record_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// TestObservers: what the tables have after a message was decided and settled, or was not: the row of a scheduled
// message comes when storage has its successor, that of the message that came back goes in any case, a target that
// fails is kept whether its message is settled or not, and so is a success.
func TestObservers(t *testing.T) {
	failed := &decision.Verdict{Outcome: &decision.Outcome{Status: 503, Body: []byte("down  for now\r\nsecret")}}
	delivered := &decision.Verdict{Outcome: &decision.Outcome{Status: 200}}
	interrupted := &decision.Verdict{Outcome: &decision.Outcome{Failure: decision.FailureInterrupted}}
	noAnswer := errors.New("no answer")
	finished := decision.Decision{Action: decision.Finish, Reason: decision.Delivered, Judged: decision.Delivered}
	released := decision.Decision{Action: decision.Release, Reason: decision.HostGone, Judged: decision.Delivered}
	waits := func(delay time.Duration) decision.Decision {
		d := decision.Decision{Action: decision.Reschedule, Reason: decision.Status, Judged: decision.Status}
		d.Delay = delay
		d.State.Attempts, d.State.NextAttemptAt = 2, time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC)
		d.State.Latest = failed.Outcome.Answer()
		return d
	}
	const row, gone = "new 503 \"down for now\" 2", "none"
	for name, test := range map[string]struct {
		decision decision.Decision
		verdict  *decision.Verdict
		inPlace  bool
		err      error
		// scheduled is the row of the successor, failing are the targets, and outcome is that of the message's run.
		scheduled, failing, outcome string
	}{
		"waits":       {waits(time.Minute), failed, false, nil, row, "t.example 503", "reschedule called"},
		"not_settled": {waits(time.Minute), failed, false, noAnswer, gone, "t.example 503", ""},
		"soon":        {waits(29 * time.Second), failed, false, nil, gone, "t.example 503", "reschedule called"},
		"in_place":    {waits(time.Minute), failed, true, nil, gone, "t.example 503", "reschedule called"},
		"delivered":   {finished, delivered, false, nil, gone, "", "finish called"},
		"host_gone":   {released, delivered, false, nil, gone, "", ""},
		"not_called": {
			decision.Decision{Action: decision.Finish, Reason: decision.Duplicate},
			&decision.Verdict{Delivered: time.Now()}, false, nil, gone, "other failure", "finish refused",
		},
		"busy": {
			decision.Decision{Action: decision.Hold, Reason: decision.Busy, Detail: "limit 5/s"},
			&decision.Verdict{Refusal: &decision.Refusal{}}, false, nil, gone, "other failure",
			"hold refused limit 5/s",
		},
		"interrupted": {
			decision.Decision{Action: decision.Reschedule, Reason: decision.Interrupted, Delay: 10 * time.Second},
			interrupted, false, nil, gone, "other failure", "reschedule refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var scheduled, outcomes memory.Table
				before := record.Row{Key: storage.Key{Partition: "main", ID: "old"}, RequestID: "r1"}
				if err := rows.Put(t.Context(), &scheduled, before); err != nil {
					t.Fatal(err)
				}
				writer := record.NewWriter(&scheduled, 1<<20, zerolog.Nop())
				ofRuns := record.NewOutcomeWriter(&outcomes, 1<<20, zerolog.Nop())
				observers := []delivery.Observer{
					record.Observer{
						Writer: writer, Why: func(string) (cause, answer string) { return "failure", "" },
					},
					record.OutcomeObserver{Writer: ofRuns},
				}
				<-time.After(time.Minute)

				e := &envelope.Envelope{RequestID: "r1", Run: "T0KEN"}
				e.NextAttemptAt = time.Now()
				e.Call.Target = &url.URL{Scheme: "https", Host: "t.example", Path: "/orders/4711"}
				message := decision.Message{Queue: "main", ID: "old"}
				report := &delivery.Report{
					Result: delivery.Result{Decision: test.decision, Message: message},
					Lease:  settle.Lease{ID: "old", InsertedAt: time.Now().Add(-time.Minute)},
					Intake: &decision.Intake{Envelope: e, Received: e}, Verdict: test.verdict,
					Write: decision.Write{Queue: "main", InPlace: test.inPlace},
					World: decision.World{Arrived: time.Now(), Now: time.Now()},
				}
				if test.verdict.Outcome != nil {
					report.Attempt = 1
				}
				result := &delivery.Result{Decision: test.decision, Err: test.err, Settled: settle.Settled{ID: "new"}}
				for _, observer := range observers {
					if then := observer.Observe(report); then != nil {
						then(t.Context(), result)
					}
				}
				writer.Close(time.Second)
				ofRuns.Close(time.Second)

				got := gone
				for _, row := range all[record.Row](t, &scheduled) {
					got = fmt.Sprintf("%s %s %q %d", row.ID, row.Cause, row.Answer, row.Attempts)
				}
				if got != test.scheduled {
					t.Errorf("scheduled %s, want %s", got, test.scheduled)
				}
				got = ""
				for _, outcome := range all[record.Outcome](t, &outcomes) {
					called := map[bool]string{true: "called", false: "refused"}[outcome.Called]
					got = strings.TrimSuffix(outcome.Action+" "+called+" "+outcome.Cause, " ")
				}
				if got != test.outcome {
					t.Errorf("outcome %q, want %q", got, test.outcome)
				}
			})
		})
	}
}

// all returns the rows of a table.
func all[T any](t *testing.T, table storage.Table) (found []T) {
	t.Helper()
	err := rows.List(t.Context(), table, storage.Query{}, func(row T) error {
		found = append(found, row)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestRowOfEachWait: a message that is received has no row afterwards, although its write was slow or the clocks of
// storage and of the handler differ.
func TestRowOfEachWait(t *testing.T) {
	const delay = 40 * time.Second
	for name, test := range map[string]struct{ slow, ahead time.Duration }{
		"slow":   {slow: 35 * time.Second},
		"ahead":  {ahead: time.Hour},
		"behind": {ahead: -time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := &skewed{ahead: test.ahead}
				o := record.Observer{Writer: record.NewWriter(table, 1<<20, zerolog.Nop())}
				e := &envelope.Envelope{RequestID: "r1"}
				e.Call.Target = &url.URL{Scheme: "https", Host: "t.example"}
				e.NextAttemptAt = time.Now().Add(delay)
				then := o.Observe(&delivery.Report{
					Result: delivery.Result{
						Decision: decision.Decision{
							Action: decision.Reschedule, Delay: delay,
							State: envelope.State{NextAttemptAt: e.NextAttemptAt},
						},
						Message: decision.Message{Queue: "main", ID: "old"},
					},
					Intake: &decision.Intake{Envelope: e, Received: e},
					Write:  decision.Write{Queue: "main"},
				})
				<-time.After(test.slow)
				inserted := table.Now()
				then(t.Context(), &delivery.Result{Settled: settle.Settled{ID: "new"}})
				<-time.After(delay)
				o.Observe(&delivery.Report{
					Result: delivery.Result{Message: decision.Message{Queue: "main", ID: "new"}},
					Lease:  settle.Lease{ID: "new", InsertedAt: inserted},
					Intake: &decision.Intake{Envelope: e, Received: e},
				})
				o.Close(time.Second)
				if left := all[record.Row](t, table); len(left) > 0 {
					t.Errorf("left: %+v", left)
				}
			})
		})
	}
}

// skewed is a table whose clock differs from that of this machine.
type skewed struct {
	memory.Table
	ahead time.Duration
}

func (s *skewed) Now() time.Time { return time.Now().Add(s.ahead) }
