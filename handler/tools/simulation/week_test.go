package simulation

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/decision"
)

// policies are the retry policies of the simulated envelopes, and how many calls an envelope makes within a week if
// every call fails. Jitter makes the number vary.
var policies = map[string]struct {
	members      string
	fewest, most int
	envelopes    int
	// mayShrink is true of nexus and cycles; jitterOverlaps of policies that reach their longest delay, where
	// jitter can make a wait shorter than the one before.
	mayShrink, jitterOverlaps bool
}{
	"default":      {``, 43, 45, 1000, false, true},
	"exponential":  {`,"retry":{"baseDelay":"1m","factor":3,"maxDelay":"24h"}`, 15, 16, 1000, false, true},
	"max_attempts": {`,"retry":{"maxAttempts":10}`, 10, 10, 500, false, false},
	"nexus":        {`,"retry":"nexus"`, 19, 20, 500, true, false},
	"io":           {`,"retry":"io"`, 22, 22, 500, false, false},
	"io_no_hurry":  {`,"retry":"io","deadline":"2026-02-28T12:00:00Z"`, 22, 22, 500, false, false},
	"fixed":        {`,"retry":{"policy":"fixed","baseDelay":"2h"}`, 84, 84, 200, false, false},
	"list":         {`,"retry":{"schedule":["5s","1m","1h","6h"]}`, 32, 32, 500, false, false},
	"cycles":       {`,"retry":"cycles"`, 18, 18, 500, true, false},
	"near":         {`,"deadline":"2026-01-31T13:00:00Z"`, 11, 11, 500, false, false},
}

// TestWeekOfRetries follows thousands of envelopes of each policy whose target stays down.
func TestWeekOfRetries(t *testing.T) {
	for name, policy := range policies {
		t.Run(name, func(t *testing.T) {
			t.Run("random", func(t *testing.T) {
				w := down(rand.New(rand.NewPCG(3, 4)).Float64)
				follow(t, w, name, policy.envelopes/divisor, policy.mayShrink || policy.jitterOverlaps)
			})
			t.Run("constant", func(t *testing.T) {
				follow(t, down(func() float64 { return 0.5 }), name, policy.envelopes/divisor, policy.mayShrink)
			})
		})
	}
}

// down returns a world whose target answers every call with 503.
func down(jitter func() float64) *world {
	return newWorld(jitter, func(time.Time) int { return 503 })
}

// life is the history of one envelope.
type life struct {
	calls    int
	lastCall time.Time
	lastWait time.Duration
	due      time.Time
	ended    bool
}

func follow(t *testing.T, w *world, name string, envelopes int, mayShrink bool) {
	t.Helper()
	want := policies[name]
	lives := map[string]*life{}
	w.observe = func(d *step) { lives[d.envelope.RequestID].check(t, d, mayShrink) }
	for i := range envelopes {
		id := fmt.Sprintf("r%d", i)
		lives[id] = &life{}
		w.send(id, begin.Add(time.Duration(i)*time.Millisecond), want.members)
	}
	w.run(t)
	fewest, most := lives["r0"].calls, 0
	for id, l := range lives {
		if !l.ended {
			t.Errorf("%s never ended", id)
		}
		fewest, most = min(fewest, l.calls), max(most, l.calls)
	}
	t.Logf("%d envelopes, %d to %d calls", envelopes, fewest, most)
	if fewest < want.fewest || most > want.most {
		t.Errorf("%d to %d calls an envelope, want %d to %d", fewest, most, want.fewest, want.most)
	}
}

// check compares one delivery with docs/retry.md.
func (l *life) check(t *testing.T, d *step, mayShrink bool) {
	t.Helper()
	id, deadline := d.envelope.RequestID, d.envelope.GiveUpAt(week)
	if !d.called {
		t.Errorf("%s: %s (%s) without a call at %v", id, d.Action, d.Reason, d.now)
		return
	}
	l.calls++
	l.lastCall = d.now
	switch {
	case d.State.Attempts != l.calls:
		t.Errorf("%s: call %d counts as attempt %d", id, l.calls, d.State.Attempts)
	case d.now.Before(l.due) || d.now.Sub(l.due) >= time.Second && l.calls > 1:
		t.Errorf("%s: call %d at %v, due at %v", id, l.calls, d.now, l.due)
	case !d.now.Before(deadline):
		t.Errorf("%s: call %d at %v, not before the deadline %v", id, l.calls, d.now, deadline)
	}
	if d.Action != decision.Reschedule {
		l.end(t, d, deadline)
		return
	}
	l.due = d.State.NextAttemptAt
	wait := l.due.Sub(d.now)
	shortest, longest := d.policy.Bounds(l.calls)
	last := l.due.Equal(deadline.Add(-lastAttemptLead))
	switch {
	case wait > longest || wait < shortest && !last:
		t.Errorf("%s: a wait of %v after attempt %d, want %v to %v", id, wait, l.calls, shortest, longest)
	case wait < l.lastWait && !last && !mayShrink:
		t.Errorf("%s: a wait of %v after attempt %d, shorter than %v before it", id, wait, l.calls, l.lastWait)
	}
	l.lastWait = wait
}

// end checks why an envelope was given up.
func (l *life) end(t *testing.T, d *step, deadline time.Time) {
	t.Helper()
	l.ended = true
	first, _ := d.policy.Bounds(1)
	left := deadline.Sub(d.now)
	switch {
	case d.Action != decision.DeadLetter:
		t.Errorf("%s ended with %s", d.envelope.RequestID, d.Action)
	case d.policy.Exhausted(l.calls):
		if d.Reason != decision.Exhausted {
			t.Errorf("%s: %s after all %d attempts", d.envelope.RequestID, d.Reason, l.calls)
		}
	case d.Reason != decision.Expired || left > lastAttemptLead+first:
		t.Errorf("%s: %s %v before the deadline, after %d attempts", d.envelope.RequestID, d.Reason, left, l.calls)
	}
}
