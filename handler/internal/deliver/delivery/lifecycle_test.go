package delivery_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/storage"
)

// TestTargetThatAlwaysFails drives one envelope through the default policy for its seven days.
func TestTargetThatAlwaysFails(t *testing.T) {
	const took, expiration = 3 * time.Second, 7 * 24 * time.Hour
	for seed := range uint64(5) {
		t.Run(fmt.Sprintf("seed_%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, answers(decision.Outcome{Status: 500, Took: took}))
				b.Jitter = rand.New(rand.NewPCG(seed, 0)).Float64
				b.send(t, mainQueue, plain)

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
		lasts  = 15 * time.Second
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
				b.Rules.Expiration, b.Rules.MaxDeadline = lasts, lasts
				const form = `{"asyncCaller":1,"requestId":"r1","call":{"url":"https://target.example/","body":"%s"}%s}`
				body := ""
				if c.full {
					room := storage.Base64.MaxContentBytes() - 250
					body = strings.Repeat("x", room-len(fmt.Sprintf(form, "", c.members)))
				}
				b.send(t, mainQueue, fmt.Sprintf(form, body, c.members))

				b.runHost(t)

				calls := b.target.calls
				for i := c.burst; i < len(calls); i++ {
					if wait := calls[i].at.Sub(calls[i-c.burst].at); wait < time.Second {
						t.Fatalf("call %d comes %v after call %d", i+1, wait, i-c.burst+1)
					}
				}
				if (len(calls) == 0) != (c.burst == 0) || time.Since(midnight) > lasts {
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

// TestLargestEnvelopeSurvives: an envelope as large as a message can hold goes through twelve reschedules,
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
			if len(b.target.calls) > 12 {
				return decision.Outcome{Status: 200}
			}
			return decision.Outcome{Failure: decision.FailureConnect, Detail: "connection refused"}
		}
		limit := storage.Base64.MaxContentBytes()
		size := (limit - len(largest(0))) / (len(largest(1)) - len(largest(0)))
		if room := limit - len(largest(size)); room < 0 || room > 8 {
			t.Fatalf("%d bytes of the message are free", room)
		}
		b.send(t, mainQueue, largest(size))

		highest := b.runHost(t)

		want := strings.Repeat(`é\`, size)
		for i, made := range b.target.calls {
			if made.body != want || made.attempt != i+1 {
				t.Fatalf("call %d is attempt %d, or sent another body", i+1, made.attempt)
			}
		}
		if n := len(b.target.calls); n != 13 || highest != 1 {
			t.Errorf("%d calls, dequeue count up to %d", n, highest)
		}
		b.wantEmpty(t, poisonQueue)
		if lines := b.linesWith(t, "settled"); lines[0]["left_out"] == nil {
			t.Errorf("the log does not say what had no room: %v", lines[0])
		}
	})
}
