package delivery_test

import (
	"context"
	"errors"
	"fmt"
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
)

// TestHostGone: when the host has ended, nobody deletes a message. It stays as it was, and the next host can have it
// soon, unless the handler's receipt is not the latest.
func TestHostGone(t *testing.T) {
	const lease = 10 * time.Minute
	for name, row := range map[string]struct {
		answer  decision.Outcome
		lease   func(settle.Lease) settle.Lease
		delay   time.Duration
		members string // of the envelope
	}{
		"interrupted": {decision.Outcome{Failure: decision.FailureInterrupted}, leaseUnchanged, handedBack, ""},
		"delivered":   {decision.Outcome{Status: 200}, leaseUnchanged, handedBack, ""},
		"failed":      {decision.Outcome{Status: 503}, leaseUnchanged, handedBack, ""},
		"rejected":    {decision.Outcome{Status: 400}, leaseUnchanged, handedBack, ""},
		"text_mode": {
			decision.Outcome{Failure: decision.FailureInterrupted},
			func(settle.Lease) settle.Lease { return settle.Lease{} }, lease - time.Minute, "",
		},
		"stale": {decision.Outcome{Failure: decision.FailureInterrupted}, func(l settle.Lease) settle.Lease {
			l.PopReceipt = "of another receive"
			return l
		}, lease - time.Minute, ""},
		"last_dequeue": {decision.Outcome{Failure: decision.FailureInterrupted}, func(l settle.Lease) settle.Lease {
			l.DequeueCount = maxDequeueCount
			return l
		}, handedBack, ""},
		"before_deadline": {
			decision.Outcome{Failure: decision.FailureInterrupted},
			leaseUnchanged, 6 * time.Second,
			`,"deadline":"2000-01-01T00:01:08Z"`,
		},
	} {
		for _, mode := range []settle.RescheduleMode{settle.RescheduleEnqueue, settle.RescheduleUpdate} {
			t.Run(name+"_"+string(mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := setup(t, &target{answer: func(ctx context.Context, _ *envelope.Envelope) decision.Outcome {
						<-ctx.Done()
						return row.answer
					}})
					b.Settler = b.Settler.WithReschedule(mode, maxDequeueCount)
					content := fmt.Sprintf(plain, seen503+row.members)
					b.send(t, content)
					received, err := b.store.Receive(t.Context(), mainQueue, 1, lease)
					if err != nil || len(received) != 1 {
						t.Fatalf("received %v, %v", received, err)
					}
					m := received[0]
					time.AfterFunc(time.Minute, b.hostGone)

					result := b.Deliver(b.ctx, delivery.Message{
						Message: decision.Message{Queue: mainQueue, ID: m.ID},
						Content: []byte(content),
						Lease:   row.lease(leaseOf(m)),
					})

					if result.MayDelete() || result.Err != nil || result.Action != decision.Release ||
						result.Reason != decision.HostGone {
						t.Errorf("%s for %s, may delete %v, error %v", result.Action, result.Reason, result.MayDelete(),
							result.Err)
					}
					b.wantQueue(t, mainQueue, content, row.delay)
					b.wantQueue(t, poisonQueue, "", 0)
				})
			})
		}
	}
}

func leaseUnchanged(l settle.Lease) settle.Lease { return l }

// TestHold: in hold mode a message occupies its slot for a minute and goes back as it came, uncalled.
func TestHold(t *testing.T) {
	for name, row := range map[string]struct {
		content string
		// end is called after 20 s.
		end   func(*bench)
		waits time.Duration
		delay time.Duration
	}{
		"due":       {fmt.Sprintf(plain, seen503), nil, time.Minute, 5 * time.Minute},
		"not_due":   {fmt.Sprintf(plain, `,"notBefore":"2000-01-01T01:01:00Z"`), nil, time.Minute, time.Hour},
		"expired":   {fmt.Sprintf(plain, `,"deadline":"1999-01-01T00:00:00Z"`), nil, time.Minute, 5 * time.Minute},
		"malformed": {`{"asyncCaller":1}`, nil, time.Minute, 5 * time.Minute},
		"stopped":   {fmt.Sprintf(plain, ""), func(b *bench) { b.stop() }, 20 * time.Second, 5 * time.Minute},
		"host_gone": {fmt.Sprintf(plain, ""), func(b *bench) { b.hostGone() }, 20 * time.Second, handedBack},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, answers(decision.Outcome{Status: 200}))
				b.Hold = time.Minute
				b.send(t, row.content)
				m := b.receive(t)
				began := time.Now()
				if row.end != nil {
					time.AfterFunc(20*time.Second, func() { row.end(b) })
				}

				result := b.Deliver(b.ctx, delivery.Message{
					Message: decision.Message{Queue: mainQueue, ID: m.ID},
					Content: []byte(row.content),
					Lease:   leaseOf(m),
				})

				if result.Err != nil || len(b.target.calls) > 0 {
					t.Errorf("%d calls, error %v", len(b.target.calls), result.Err)
				}
				if waited := time.Since(began); waited != row.waits {
					t.Errorf("it took %v, want %v", waited, row.waits)
				}
				if result.MayDelete() {
					if err := b.store.Delete(t.Context(), mainQueue, m.ID, m.PopReceipt); err != nil {
						t.Fatal(err)
					}
				}
				b.wantQueue(t, mainQueue, row.content, row.delay)
				b.wantQueue(t, poisonQueue, "", 0)
				if row.end == nil {
					line := b.linesWith(t, "settled")[0]
					if line["action"] != "hold" || line["reason"] != "bad_setting" ||
						line["delay"] != float64(row.delay.Milliseconds()) {
						t.Errorf("log line %v", line)
					}
				}
			})
		})
	}
}

// TestHoldForgeable: if invocations can be forged, hold mode only postpones the message whose receipt the invocation
// has. It writes nothing for any other one, and no row is removed.
func TestHoldForgeable(t *testing.T) {
	content := fmt.Sprintf(plain, `,"nextAttemptAt":"2000-01-02T00:00:00Z"`)
	for name, row := range map[string]struct {
		lease   func(settle.Lease) settle.Lease
		changed bool
	}{
		"genuine": {leaseUnchanged, true},
		"last_dequeue": {func(l settle.Lease) settle.Lease {
			l.DequeueCount = maxDequeueCount
			return l
		}, true},
		"no_lease": {func(settle.Lease) settle.Lease { return settle.Lease{} }, false},
		"stale": {func(l settle.Lease) settle.Lease {
			l.PopReceipt = "of another receive"
			return l
		}, false},
		"other_id": {func(l settle.Lease) settle.Lease {
			l.ID = messageID
			return l
		}, false},
		"expires_soon": {func(l settle.Lease) settle.Lease {
			l.ExpiresAt = midnight.Add(48 * time.Hour)
			return l
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, answers(decision.Outcome{Status: 200}))
				rows := &observed{b: b, t: t}
				b.Record = record.NewWriter(rows, 1<<20, zerolog.Nop())
				b.Hold, b.Forgeable = time.Minute, true
				b.send(t, content)
				m := b.receive(t)
				began := time.Now()

				result := b.Deliver(b.ctx, delivery.Message{
					Message: decision.Message{Queue: mainQueue, ID: m.ID},
					Content: []byte(content),
					Lease:   row.lease(leaseOf(m)),
				})

				if result.MayDelete() != row.changed || len(b.target.calls) > 0 {
					t.Errorf("may delete %v, error %v, %d calls", result.MayDelete(), result.Err, len(b.target.calls))
				}
				if waited := time.Since(began); waited != time.Minute {
					t.Errorf("it took %v, want a minute", waited)
				}
				err := b.store.Delete(t.Context(), mainQueue, m.ID, m.PopReceipt)
				if errors.Is(err, storage.ErrStale) != row.changed {
					t.Errorf("the host's receipt: %v", err)
				}
				b.Record.Close(time.Second)
				if rows.removed > 0 {
					t.Errorf("%d rows removed", rows.removed)
				}
				if !row.changed {
					b.wantQueue(t, mainQueue, "", 0)
				} else {
					b.wantQueue(t, mainQueue, content, 24*time.Hour-time.Minute)
				}
				b.wantQueue(t, poisonQueue, "", 0)
			})
		})
	}
}
