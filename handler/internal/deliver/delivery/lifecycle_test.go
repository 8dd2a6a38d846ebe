package delivery_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/storage"
)

// pollingInterval is host.json's maxPollingInterval: how late the host may notice a visible message.
const pollingInterval = 2 * time.Second

// runHost takes messages from the queues as the Functions host does, the main queue unless others are named, each as
// late as the bench says, until none is left there. It returns the highest dequeue count that it saw.
func (b *bench) runHost(t *testing.T, queues ...string) (highest int64) {
	t.Helper()
	const lease, visibilityTimeout = 10 * time.Minute, 30 * time.Second
	if queues == nil {
		queues = []string{mainQueue}
	}
	for {
		name, due := "", time.Time{}
		for _, queue := range queues {
			waiting := b.store.All(queue)
			if len(waiting) > 0 && (name == "" || waiting[0].NextVisibleAt.Before(due)) {
				name, due = queue, waiting[0].NextVisibleAt
			}
		}
		if name == "" {
			return highest
		}
		<-time.After(time.Until(due) + b.late)
		received, err := b.store.Receive(t.Context(), name, 1, lease)
		if err != nil || len(received) != 1 {
			t.Fatalf("received %d messages: %v", len(received), err)
		}
		m := received[0]
		highest = max(highest, m.DequeueCount)
		content, err := storage.Base64.Decode(m.Text)
		if err != nil {
			t.Fatal(err)
		}
		result := b.Deliver(b.ctx, delivery.Message{
			Message:  decision.Message{Queue: name, ID: m.ID, DequeueCount: m.DequeueCount},
			Content:  content,
			Lease:    leaseOf(m),
			IsRouted: name == routedQueue,
		})
		switch {
		case result.MayDelete():
			err = b.store.Delete(t.Context(), name, m.ID, m.PopReceipt)
		case m.DequeueCount >= maxDequeueCount:
			_, err = b.store.Put(t.Context(), name+storage.PoisonSuffix, storage.Item{Text: m.Text})
			err = errors.Join(err, b.store.Delete(t.Context(), name, m.ID, m.PopReceipt))
		default:
			_, err = b.store.Update(t.Context(), name, m.ID, m.PopReceipt, m.Text, visibilityTimeout)
		}
		if result.Reschedule == settle.RescheduleUpdate && errors.Is(err, storage.ErrStale) {
			continue // the host does not mind
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// send puts an envelope on the main queue.
func (b *bench) send(t *testing.T, content string) {
	t.Helper()
	if _, err := b.store.Put(t.Context(), mainQueue,
		storage.Item{Text: storage.Base64.Encode([]byte(content))}); err != nil {
		t.Fatal(err)
	}
}

// mustDeadLetter returns the one message on the poison queue.
func (b *bench) mustDeadLetter(t *testing.T) *envelope.Envelope {
	t.Helper()
	items := b.items(t, poisonQueue)
	if len(items) != 1 {
		t.Fatalf("%d dead letters, want 1: %v", len(items), items)
	}
	e, err := envelope.Parse([]byte(items[0].content))
	if err != nil {
		t.Fatal(err)
	}
	if e.DeadLetter == nil {
		t.Fatalf("no dead letter: %s", items[0].content)
	}
	return e
}

// TestTargetThatAlwaysFails drives one envelope through the default policy for its seven days.
func TestTargetThatAlwaysFails(t *testing.T) {
	const took, expiration = 3 * time.Second, 7 * 24 * time.Hour
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed_%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, answers(decision.Outcome{Status: 500, Took: took}))
				b.Jitter = rand.New(rand.NewPCG(seed, 0)).Float64
				b.send(t, fmt.Sprintf(plain, ""))

				highest := b.runHost(t)

				if highest != 1 {
					t.Errorf("the host saw dequeue count %d", highest)
				}
				calls, nominal := b.target.calls, 5*time.Second
				for i, made := range calls {
					if made.attempt != i+1 {
						t.Fatalf("call %d says that it is attempt %d", i+1, made.attempt)
					}
					if i == 0 || i == len(calls)-1 {
						continue // the first is due at once, the last one when the deadline says
					}
					wait := made.at.Sub(calls[i-1].at) - took
					shortest, longest := nominal*8/10, min(nominal*12/10, 6*time.Hour)+time.Second+pollingInterval
					if wait < shortest || wait > longest {
						t.Errorf("attempt %d came %v after the one before, want %v to %v", i+1, wait, shortest, longest)
					}
					nominal = min(2*nominal, 6*time.Hour)
				}
				deadline, last := midnight.Add(expiration), calls[len(calls)-1].at
				if !last.Before(deadline) || deadline.Sub(last) > 10*time.Second {
					t.Errorf("the last attempt came at %v, want just before %v", last, deadline)
				}
				// 5 s doubling to 6 h, then one every 4.8 to 6 h.
				if len(calls) < 38 || len(calls) > 48 {
					t.Errorf("%d attempts in seven days", len(calls))
				}
				letter := b.mustDeadLetter(t)
				if letter.DeadLetter.Reason != "expired" || letter.DeadLetter.Attempts != len(calls) ||
					letter.Attempts != len(calls) {
					t.Errorf("dead letter %+v after %d calls", *letter.DeadLetter, len(calls))
				}
				if gaveUp := b.linesWith(t, "Giving up on envelope r1"); len(gaveUp) != 1 ||
					gaveUp[0]["level"] != "error" {
					t.Errorf("given up %d times: %v", len(gaveUp), gaveUp)
				}
				if settled := b.linesWith(t, "settled"); len(settled) != len(calls) {
					t.Errorf("%d settled lines for %d messages", len(settled), len(calls))
				}
			})
		})
	}
}

// TestHostileDelays: whatever a sender says, its target is called at most once a second, or ten times in a row by
// policy cycles, and not after the latest deadline that the operator allows.
func TestHostileDelays(t *testing.T) {
	const (
		end    = `,"deadline":"9999-12-31T23:59:59Z"`
		cycles = `,"retry":{"policy":"cycles","receiveRetryCount":999,"maxRetryCycles":99,"retryCycleDelay":"1ns"}`
	)
	for name, c := range map[string]struct {
		members string
		// burst is how many calls come without a wait; 0 if there is no call at all.
		burst int
		// full says that the call leaves only the room in the message that the state needs.
		full bool
	}{
		"schedule_zero":     {end + `,"retry":{"schedule":["0s"]}`, 1, false},
		"schedule_fraction": {end + `,"retry":{"schedule":[0.0001]}`, 1, false},
		"exponential":       {end + `,"retry":{"baseDelay":1e-9,"factor":1,"maxDelay":1e-9}`, 1, false},
		"fixed":             {end + `,"retry":{"policy":"fixed","baseDelay":"1ns"}`, 1, false},
		"named":             {end + `,"retry":"fast"`, 1, false},
		"cycles":            {end + cycles, 10, false},
		"full":              {end + `,"retry":{"schedule":["0s"]}`, 1, true},
		"full_cycles":       {end + cycles, 10, true},
		"forged_state": {end +
			`,"retry":{"schedule":["0s"]},"attempts":2147483647,"nextAttemptAt":"1990-01-01T00:00:00Z"`, 1, false},
		"created_in_future":  {`,"createdAt":"9999-01-01T00:00:00Z"`, 1, false},
		"due_in_future":      {end + `,"nextAttemptAt":"9999-01-01T00:00:00Z"`, 0, false},
		"not_before":         {`,"notBefore":"9999-01-01T00:00:00Z"`, 0, false},
		"not_before_and_end": {end + `,"notBefore":"9999-01-01T00:00:00Z"`, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, answers(decision.Outcome{Status: 500}))
				own, err := retry.ParsePolicies([]byte(`{"fast":{"schedule":["0s"]}}`))
				if err != nil {
					t.Fatal(err)
				}
				b.late, b.Rules.Policies, b.Rules.Limits = 0, own, retry.Limits{MinDelay: time.Second}
				b.Rules.Expiration, b.Rules.MaxDeadline = time.Minute, time.Minute
				const form = `{"asyncCaller":1,"requestId":"r1","call":{"url":"https://target.example/","body":"%s"}%s}`
				body := ""
				if c.full {
					room := storage.Base64.MaxContentBytes() - 250
					body = strings.Repeat("x", room-len(fmt.Sprintf(form, "", c.members)))
				}
				b.send(t, fmt.Sprintf(form, body, c.members))

				b.runHost(t)

				calls := b.target.calls
				for i := c.burst; i < len(calls); i++ {
					if wait := calls[i].at.Sub(calls[i-c.burst].at); wait < time.Second {
						t.Fatalf("call %d comes %v after call %d", i+1, wait, i-c.burst+1)
					}
				}
				if (len(calls) == 0) != (c.burst == 0) || time.Since(midnight) > time.Minute {
					t.Errorf("%d calls, the last message at %v", len(calls), time.Now())
				}
				if reason := b.mustDeadLetter(t).DeadLetter.Reason; reason == "malformed" {
					t.Errorf("the dead letter is %s", reason)
				}
				settled := b.linesWith(t, "settled")
				if limited := settled[0]["deadline_limited"]; strings.Contains(c.members, end) && limited == nil {
					t.Errorf("the log does not say that the deadline was limited: %v", settled[0])
				}
			})
		})
	}
}

// TestNotBeforeBeyondVisibility: a wait that is longer than a message can be invisible is made of
// several, and costs no attempt.
func TestNotBeforeBeyondVisibility(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, answers(decision.Outcome{Status: 200}))
		due := midnight.Add(30 * 24 * time.Hour)
		b.send(t, fmt.Sprintf(plain, `,"notBefore":"`+due.Format(time.RFC3339)+`"`))

		highest := b.runHost(t)

		if len(b.target.calls) != 1 || b.target.calls[0].attempt != 1 {
			t.Fatalf("calls %+v, want attempt 1 alone", b.target.calls)
		}
		if late := b.target.calls[0].at.Sub(due); late < 0 || late > pollingInterval {
			t.Errorf("the call came %v after it was due", late)
		}
		if settled := b.linesWith(t, "settled"); len(settled) != 6 { // five waits of at most 7 days
			t.Errorf("%d messages, want 6", len(settled))
		}
		if highest != 1 {
			t.Errorf("the host saw dequeue count %d", highest)
		}
		b.wantQueue(t, poisonQueue, "", 0)
	})
}

// TestNotBeforeStillHasItsExpiration: an envelope without a deadline is tried for as long as any other,
// counted from notBefore.
func TestNotBeforeStillHasItsExpiration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, answers(decision.Outcome{Status: 500}))
		due := midnight.Add(30 * 24 * time.Hour)
		b.send(t, fmt.Sprintf(plain, `,"notBefore":"`+due.Format(time.RFC3339)+`"`))

		b.runHost(t)

		last := b.target.calls[len(b.target.calls)-1].at
		if tried := last.Sub(due); tried < 7*24*time.Hour-10*time.Second || tried >= 7*24*time.Hour {
			t.Errorf("it was tried for %v", tried)
		}
	})
}

// TestRequestIDFromFirstMessage: the id of the first message names the call over every retry.
func TestRequestIDFromFirstMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempt := 0
		b := setup(t, &target{answer: func(context.Context, *envelope.Envelope) decision.Outcome {
			attempt++
			return decision.Outcome{Status: map[bool]int{true: 200, false: 503}[attempt == 3]}
		}})
		b.send(t, `{"asyncCaller":1,"call":{"url":"https://target.example/"}}`)
		first := b.store.All(mainQueue)[0].ID

		b.runHost(t)

		var ids []string
		for _, made := range b.target.calls {
			ids = append(ids, made.requestID)
		}
		if !slices.Equal(ids, []string{first, first, first}) {
			t.Errorf("the calls were named %q, want %q three times", ids, first)
		}
	})
}

// TestCallbackIsACallOfItsOwn: what the sender gets, that it is retried like any call, and that there
// is no callback about a callback.
func TestCallbackIsACallOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		statuses := []int{202, 503, 200} // the call, then the callback twice
		b := setup(t, &target{})
		b.target.answer = func(context.Context, *envelope.Envelope) decision.Outcome {
			return decision.Outcome{
				Status: statuses[len(b.target.calls)-1], Body: []byte(`{"ok":true}`),
				Header: http.Header{"Content-Type": {"application/json"}},
			}
		}
		b.send(t, fmt.Sprintf(plain, callback))

		b.runHost(t)

		if len(b.target.calls) != 3 {
			t.Fatalf("%d calls, want 3: %+v", len(b.target.calls), b.target.calls)
		}
		want := `{"Id":"r1","Context":{"order":[42]},"StatusCode":202,"Payload":"{\"ok\":true}",` +
			`"PayloadMediaType":"application/json","Attempts":1,"Reason":` +
			`"delivered","PayloadTruncated":false}`
		for i, made := range b.target.calls[1:] {
			if made.url != "https://sender.example/done" || made.requestID != "r1.callback" || made.attempt != i+1 {
				t.Errorf("call %+v, want attempt %d of r1.callback to the sender", made, i+1)
			}
			if made.body != want {
				t.Errorf("body %s\nwant %s", made.body, want)
			}
		}
		b.wantQueue(t, poisonQueue, "", 0)
	})
}

// TestCallbackThatFails: where the sender cannot be told, a person is.
func TestCallbackThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, answers(decision.Outcome{Status: 400}))
		b.send(t, fmt.Sprintf(plain, callback))

		b.runHost(t)

		if letter := b.mustDeadLetter(t); letter.RequestID != "r1.callback" || letter.DeadLetter.Reason != "rejected" {
			t.Errorf("dead letter %s: %+v", letter.RequestID, *letter.DeadLetter)
		}
	})
}

// TestMovedBackByHand: a dead letter that any tool moves to the main queue is tried again from the
// start, with as much time as a new envelope.
func TestMovedBackByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := true
		b := setup(t, &target{answer: func(context.Context, *envelope.Envelope) decision.Outcome {
			if down {
				return decision.Outcome{Status: 400}
			}
			return decision.Outcome{Status: 200}
		}})
		b.send(t, fmt.Sprintf(plain, `,"deadline":"2000-01-01T06:00:00Z","retry":{"maxAttempts":2}`))
		b.runHost(t)
		b.mustDeadLetter(t)
		<-time.After(30 * 24 * time.Hour)

		down = false
		b.send(t, b.items(t, poisonQueue)[0].content)
		b.runHost(t)

		if n := len(b.target.calls); n != 2 {
			t.Fatalf("%d calls, want one before and one after", n)
		}
		before, after := b.target.calls[0], b.target.calls[1]
		before.at, after.at = time.Time{}, time.Time{}
		if before != after {
			t.Errorf("moved back the call is %+v, it was %+v", after, before)
		}
	})
}

// interruptible makes calls last until they are interrupted.
func interruptible() *target {
	return &target{answer: func(ctx context.Context, _ *envelope.Envelope) decision.Outcome {
		<-ctx.Done()
		return decision.Outcome{Failure: decision.FailureInterrupted}
	}}
}

// handedBack is how long a message that the handler hands back stays invisible, in whole seconds.
const handedBack = 13 * time.Second

// TestStopDuringCall: a stop costs no attempt, and the message is back when the host that stops receives no more.
func TestStopDuringCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, interruptible())
		content := fmt.Sprintf(plain, seen503)
		results := make(chan *delivery.Result)
		go func() { results <- b.deliver(content) }()
		<-time.After(time.Minute)

		b.stop()

		if result := <-results; result.Err != nil || result.Reason != decision.Interrupted {
			t.Fatalf("%v for %v, error %v", result.Action, result.Reason, result.Err)
		}
		if waited := time.Since(midnight); waited != time.Minute {
			t.Errorf("it took %v, want at once when the stop comes", waited)
		}
		b.wantQueue(t, mainQueue, content, handedBack)
		b.wantGaveUp(t, "")
		if line := b.linesWith(t, "settled")[0]; line["delay"] != 12500.0 || line["next_attempt_at"] != nil {
			t.Errorf("log line %v, want the delay and no time of a next attempt, which was before", line)
		}
	})
}

// TestStoppedHandlerTakesNoAttempt: a message that arrives during the stop is rescheduled too.
func TestStoppedHandlerTakesNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, interruptible())
		b.stop()

		if result := b.deliver(fmt.Sprintf(plain, "")); result.Err != nil {
			t.Fatal(result.Err)
		}
		b.wantQueue(t, mainQueue, fmt.Sprintf(plain, ""), handedBack)
	})
}

// TestBreakerLines: the log says when a target is down and when it is up again.
func TestBreakerLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outcome := decision.Outcome{Status: 503, Took: 40*time.Millisecond + 300*time.Microsecond}
		b := setup(t, &target{})
		b.target.answer = func(context.Context, *envelope.Envelope) decision.Outcome {
			<-time.After(outcome.Took)
			return outcome
		}
		for range 5 {
			b.deliver(fmt.Sprintf(plain, ""))
		}
		<-time.After(time.Minute)
		outcome.Status = 200
		b.deliver(fmt.Sprintf(plain, ""))

		opened, closed := b.linesWith(t, "circuit breaker opened"), b.linesWith(t, "circuit breaker closed")
		if len(opened) != 1 || len(closed) != 1 || opened[0]["failures"] != 5.0 || closed[0]["down"] != 60_242.0 {
			t.Errorf("opened %v, closed %v", opened, closed)
		}
	})
}

// TestLargestEnvelopeSurvives: an envelope as large as a message can hold goes through fifty reschedules,
// its call unchanged byte for byte, and every message fits the queue.
func TestLargestEnvelopeSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		largest := func(size int) string {
			const shape = `{"asyncCaller":1,"requestId":"r1","createdAt":"2000-01-01T00:00:00Z","x":"%s",` +
				`"retry":{"schedule":["1s"]},"call":{"url":"https://tar` +
				`get.example/","body":"%s"}}`
			// as the sender wrote it: escaped
			return fmt.Sprintf(shape, strings.Repeat("x", 250), strings.Repeat(`\u00e9\\`, size))
		}
		b := setup(t, &target{})
		b.target.answer = func(context.Context, *envelope.Envelope) decision.Outcome {
			if len(b.target.calls) > 50 {
				return decision.Outcome{Status: 200}
			}
			return decision.Outcome{Failure: decision.FailureConnect, Detail: "connection refused"}
		}
		limit := storage.Base64.MaxContentBytes()
		size := (limit - len(largest(0))) / (len(largest(1)) - len(largest(0)))
		if room := limit - len(largest(size)); room < 0 || room > 8 {
			t.Fatalf("%d bytes of the message are free", room)
		}
		b.send(t, largest(size))

		highest := b.runHost(t)

		want := strings.Repeat(`é\`, size)
		for i, made := range b.target.calls {
			if made.body != want || made.attempt != i+1 {
				t.Fatalf("call %d is attempt %d, or sent another body", i+1, made.attempt)
			}
		}
		if n := len(b.target.calls); n != 51 || highest != 1 {
			t.Errorf("%d calls, dequeue count up to %d", n, highest)
		}
		b.wantQueue(t, poisonQueue, "", 0)
		if lines := b.linesWith(t, "settled"); lines[0]["left_out"] == nil {
			t.Errorf("the log does not say what had no room: %v", lines[0])
		}
	})
}

// TestDeadLetterKeepsTheCall: what a person finds has the call byte for byte, also where JSON could be
// written in other ways.
func TestDeadLetterKeepsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const odd = `{ "url" : "https:\/\/target.example/","json":{"b":1.0e+2 ,"a":"\u00e9","b2":[ ]} }`
		b := setup(t, answers(decision.Outcome{Status: 400}))

		if result := b.deliver(`{"asyncCaller":1,"call":` + odd + `}`); result.Err != nil {
			t.Fatal(result.Err)
		}

		var letter struct{ Call json.RawMessage }
		content := b.items(t, poisonQueue)[0].content
		if err := json.Unmarshal([]byte(content), &letter); err != nil || string(letter.Call) != odd {
			t.Errorf("%v: call %s\nwant %s", err, letter.Call, odd)
		}
		if body := b.target.calls[0].body; body != `{"b":1.0e+2 ,"a":"\u00e9","b2":[ ]}` {
			t.Errorf("the target got %s", body)
		}
	})
}
