package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// maxDequeueCount is that of our host.json.
const maxDequeueCount = 5

// inUpdateMode makes the bench put messages back in place, on the given store.
func (b *bench) inUpdateMode(store settle.Store) *bench {
	b.Settler = settle.New(store, storage.Base64).WithReschedule(settle.RescheduleUpdate, maxDequeueCount)
	return b
}

// recovering is a target that fails so many calls and then answers 200.
func recovering(failures int) *target {
	t := &target{}
	t.answer = func(context.Context, *envelope.Envelope) decision.Outcome {
		if len(t.calls) <= failures {
			return decision.Outcome{Status: 503}
		}
		return decision.Outcome{Status: 200}
	}
	return t
}

// TestTwelveFailuresInUpdateMode: the dequeue count never gets to where the host takes the message away.
func TestTwelveFailuresInUpdateMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, recovering(12))
		b.inUpdateMode(b.store).send(t, fmt.Sprintf(plain, ""))

		highest := b.runHost(t)

		if len(b.target.calls) != 13 || highest != maxDequeueCount-1 {
			t.Errorf("%d calls, dequeue count up to %d", len(b.target.calls), highest)
		}
		b.wantQueue(t, poisonQueue, "", 0)
		var modes []any
		for _, line := range b.linesWith(t, "settled") {
			modes = append(modes, line["reschedule"])
		}
		if got := fmt.Sprint(modes); got != "[update update update enqueue update update update enqueue update "+
			"update update enqueue <nil>]" {
			t.Errorf("reschedule by %s", got)
		}
	})
}

// TestEveryRescheduleUpdates: for whatever reason a message is rescheduled, it is done in place.
func TestEveryRescheduleUpdates(t *testing.T) {
	rows := map[string]struct {
		content string
		outcome decision.Outcome
		reason  decision.Reason
	}{
		"temporary": {fmt.Sprintf(plain, ""), decision.Outcome{Status: 503}, decision.Status},
		"not_due":   {fmt.Sprintf(plain, `,"notBefore":"2000-01-30T00:00:00Z"`), decision.Outcome{}, decision.NotDue},
		"interrupted": {
			fmt.Sprintf(plain, ""),
			decision.Outcome{Failure: decision.FailureInterrupted},
			decision.Interrupted,
		},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, answers(row.outcome))
				b.inUpdateMode(b.store).send(t, row.content)
				m := b.receive(t)
				held := leaseOf(m)

				result := b.Deliver(b.ctx, delivery.Message{
					Message: decision.Message{Queue: mainQueue, ID: m.ID},
					Content: []byte(row.content),
					Lease:   held,
				})

				if result.Err != nil || result.Reason != row.reason || result.Reschedule != settle.RescheduleUpdate {
					t.Errorf("%s for %s, reschedule by %q, error %v", result.Action, result.Reason, result.Reschedule,
						result.Err)
				}
				if err := b.store.Delete(t.Context(), mainQueue, m.ID, m.PopReceipt); !errors.Is(err,
					storage.ErrStale) {
					t.Errorf("the host's delete: %v, want it to be refused", err)
				}
				if all := b.store.All(mainQueue); len(all) != 1 || all[0].ID != m.ID {
					t.Errorf("the queue holds %v, want the same message", all)
				}
				if line := b.linesWith(t, "settled")[0]; line["reschedule"] != "update" {
					t.Errorf("log line %v", line)
				}
			})
		})
	}
}

// TestStopInUpdateMode: a stop during a call leaves the same message, as it was.
func TestStopInUpdateMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, interruptible())
		content := fmt.Sprintf(plain, seen503)
		b.inUpdateMode(b.store).send(t, content)
		time.AfterFunc(time.Minute, b.stop)
		m := b.receive(t)

		result := b.Deliver(b.ctx, delivery.Message{
			Message: decision.Message{Queue: mainQueue, ID: m.ID},
			Content: []byte(content),
			Lease:   leaseOf(m),
		})

		if result.Reschedule != settle.RescheduleUpdate {
			t.Errorf("reschedule by %q", result.Reschedule)
		}
		b.wantQueue(t, mainQueue, content, handedBack)
	})
}

// TestLostAcknowledgementInUpdateMode: where mode new would leave two messages, there is one. The host
// hears of a failure and cannot do anything about it.
func TestLostAcknowledgementInUpdateMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, recovering(1))
		b.inUpdateMode(&forgetful{Queues: b.store}).send(t, fmt.Sprintf(plain, ""))

		b.runHost(t)

		if len(b.target.calls) != 2 || b.target.calls[1].attempt != 2 {
			t.Errorf("calls %+v, want attempts 1 and 2", b.target.calls)
		}
		if wait := b.target.calls[1].at.Sub(b.target.calls[0].at); wait < 5*time.Second ||
			wait > 5*time.Second+pollingInterval {
			t.Errorf("the second came after %v, want as our schedule says", wait)
		}
		b.wantOneEndEach(t, 1, 1)
	})
}

// forgetful does not acknowledge its first update.
type forgetful struct {
	*memory.Queues
	done bool
}

func (f *forgetful) Update(ctx context.Context, name, id, receipt, text string, delay time.Duration) (string, error) {
	newest, err := f.Queues.Update(ctx, name, id, receipt, text, delay)
	if err == nil && !f.done {
		f.done = true
		return "", errDown
	}
	return newest, err
}

// wantOneEndEach checks how many messages the log calls settled and not settled.
func (b *bench) wantOneEndEach(t *testing.T, settled, not int) {
	t.Helper()
	if len(b.linesWith(t, "settled")) != settled || len(b.linesWith(t, "not settled")) != not {
		t.Errorf("want %d settled and %d not in\n%s", settled, not, b.log)
	}
}

func (b *bench) receive(t *testing.T) storage.Message {
	t.Helper()
	received, err := b.store.Receive(t.Context(), mainQueue, 1, 10*time.Minute)
	if err != nil || len(received) != 1 {
		t.Fatalf("received %d messages: %v", len(received), err)
	}
	return received[0]
}

func leaseOf(m storage.Message) settle.Lease {
	return settle.Lease{
		ID: m.ID, PopReceipt: m.PopReceipt, DequeueCount: m.DequeueCount, InsertedAt: m.InsertedAt,
		ExpiresAt: m.ExpiresAt,
	}
}

// TestRandomFaultsInUpdateMode drives messages to their end through updates that are not done, done
// without an answer, or done late, while the host renews its lease at any moment. After every delivery
// there is exactly one message; after the last there is none.
func TestRandomFaultsInUpdateMode(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprintf("seed_%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, recovering(12))
				h := &hostile{Queues: b.store, random: rand.New(rand.NewPCG(seed, 0))}
				b.inUpdateMode(h).send(t, fmt.Sprintf(plain, ""))
				for range 200 {
					waiting := b.store.All(mainQueue)
					if len(waiting) == 0 {
						break
					}
					<-time.After(max(time.Until(waiting[0].NextVisibleAt), 0))
					h.held = b.receive(t)
					if h.held.DequeueCount > maxDequeueCount {
						t.Fatalf("delivered %d times: the host takes it away", h.held.DequeueCount)
					}
					content, err := storage.Base64.Decode(h.held.Text)
					if err != nil {
						t.Fatal(err)
					}
					result := b.Deliver(b.ctx, delivery.Message{
						Message: decision.Message{Queue: mainQueue, ID: h.held.ID},
						Content: content,
						Lease:   leaseOf(h.held),
					})
					h.complete(t, result)
					if n := len(b.store.All(mainQueue)); n != 1 && result.Action != decision.Finish {
						t.Fatalf("after %s (%s), reschedule by %q, error %v, the queue holds %d messages",
							result.Action, result.Reason, result.Reschedule, result.Err, n)
					}
					h.arrive()
				}
				b.wantQueue(t, mainQueue, "", 0)
				b.wantQueue(t, poisonQueue, "", 0)
				if last := b.target.calls[len(b.target.calls)-1]; len(b.target.calls) < 13 || last.attempt > 13 {
					t.Errorf("%d calls, the last one is attempt %d", len(b.target.calls), last.attempt)
				}
			})
		})
	}
}

// hostile is storage, and the host that renews its lease, as bad as they can be in mode update.
type hostile struct {
	*memory.Queues
	random *rand.Rand
	// held is the message that is being delivered, with the host's newest receipt.
	held storage.Message
	// late are requests that have not arrived yet.
	late []func()
}

func (h *hostile) Put(ctx context.Context, name string, item storage.Item) (storage.Message, error) {
	if h.random.IntN(4) == 0 {
		return storage.Message{}, errDown
	}
	return h.Queues.Put(ctx, name, item)
}

func (h *hostile) Update(ctx context.Context, name, id, receipt, text string, delay time.Duration) (string, error) {
	update := func() (string, error) {
		return h.Queues.Update(context.WithoutCancel(ctx), name, id, receipt, text, delay)
	}
	if h.random.IntN(4) == 0 { // the host renews its lease
		if newest, err := h.Queues.Update(ctx, name, h.held.ID, h.held.PopReceipt, h.held.Text,
			10*time.Minute); err == nil {
			h.held.PopReceipt = newest
		}
	}
	switch h.random.IntN(6) {
	case 0: // not done
		return "", errDown
	case 1: // done, not acknowledged
		_, _ = update()
		return "", errDown
	case 2:
		_, _ = update()
		<-ctx.Done()
		return "", ctx.Err()
	case 3: // done later, if it can be done then
		h.late = append(h.late, func() { _, _ = update() })
		<-ctx.Done()
		return "", ctx.Err()
	}
	newest, err := update()
	if h.random.IntN(2) == 0 {
		h.arrive()
	}
	return newest, err
}

// arrive lets the late requests arrive.
func (h *hostile) arrive() {
	for _, arrives := range h.late {
		arrives()
	}
	h.late = nil
}

// complete is what the host does on the handler's answer.
func (h *hostile) complete(t *testing.T, result *delivery.Result) {
	t.Helper()
	if h.random.IntN(4) == 0 {
		h.arrive() // before the host does
	}
	var err error
	switch {
	case result.Err == nil:
		err = h.Delete(t.Context(), mainQueue, h.held.ID, h.held.PopReceipt)
	case h.held.DequeueCount >= maxDequeueCount:
		t.Fatalf("the host moves the message to the poison queue")
	default:
		_, err = h.Queues.Update(t.Context(), mainQueue, h.held.ID, h.held.PopReceipt, h.held.Text, 30*time.Second)
	}
	if err != nil && !errors.Is(err, storage.ErrStale) {
		t.Fatal(err)
	}
}
