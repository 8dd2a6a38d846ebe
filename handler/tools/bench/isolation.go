//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"asynccaller/handler/tools/testbed"
)

const (
	// arrivals is how many calls arrive in a second while targets hang; one in healthyShare is for the healthy target.
	arrivals, healthyShare = 40, 10
	// healthyTakes and slowTakes are the times that a healthy target and a slow one take for a call.
	healthyTakes, slowTakes = 20 * time.Millisecond, 2 * time.Second
	// callTimeout is the default of ASYNC_CALLER_CALL_TIMEOUT, which full runs have.
	callTimeout = 120 * time.Second
)

// measureIsolation measures how targets that hang slow down a healthy one, and how many slow calls one instance makes.
func (b *bench) measureIsolation(ctx context.Context, r *report) error {
	counts := []int{1, 5, 20}
	if b.short {
		counts = []int{5}
	}
	b.say("isolation: %v hanging targets, for %v", counts, b.trouble)
	if err := b.measureTrouble(ctx, r, counts); err != nil {
		return fmt.Errorf("hanging targets: %w", err)
	}
	return b.measureSlow(ctx, r)
}

// scene is an app whose targets hang for a time, all but the first.
type scene struct {
	*app
	name string
	// others is the number of targets that hang, unless the scene is calm.
	others int
	calm   bool
	// warm is how long all targets answer before, and begin is when that ends.
	warm  time.Duration
	begin time.Time
	spent costs
}

// measureTrouble measures a healthy target next to some that hang from the start, and next to some that begin to hang, and
// compares it with targets none of which hangs. All that runs at once, so what disturbs the machine disturbs all of it. The
// load is the same without trouble, because the host polls a quiet queue less often.
func (b *bench) measureTrouble(ctx context.Context, r *report, counts []int) (err error) {
	calm := &scene{name: "undisturbed", others: 5, calm: true, warm: b.trouble / 5}
	scenes := []*scene{calm}
	for _, n := range counts {
		scenes = append(scenes, &scene{name: fmt.Sprintf("%d hanging from the start", n), others: n},
			&scene{name: fmt.Sprintf("%d beginning to hang", n), others: n, warm: b.trouble / 5})
	}
	defer func() {
		err = errors.Join(err, together(scenes, func(s *scene) error {
			if s.app == nil {
				return nil
			}
			return s.stop()
		}))
	}()
	for _, s := range scenes {
		s.app, err = b.newApp(ctx, 1+s.others, healthyTakes)
		if err == nil {
			// A shorter trouble has shorter calls, so that some of them time out.
			err = b.startHost(ctx, s.app, "ASYNC_CALLER_CALL_TIMEOUT="+min(callTimeout, b.trouble*2/5).String())
		}
		if err == nil {
			err = errors.Join(s.send(ctx, 0), s.awaitCalls(ctx, 1, readyLimit))
		}
		if err != nil {
			return err
		}
	}
	if err := together(scenes, func(s *scene) error { return s.run(ctx, b.trouble) }); err != nil {
		return err
	}
	limit := 0.5
	for _, s := range scenes {
		seconds, share := s.latencies(s.begin, s.begin.Add(b.trouble))
		p99 := percentile99(seconds)
		if s == calm {
			limit = max(limit, math.Round(200*p99)/100)
			r.add("p99 from due to delivered, s: "+s.name, noBound, 0, p99)
		} else {
			r.add("p99 from due to delivered, s: "+s.name, atMost, limit, p99)
			r.add("share delivered: "+s.name, atLeast, 0.8, share)
		}
		r.add("from due to delivered, s: "+s.name, noBound, 0, seconds...)
		s.spent.add(r, s.name)
	}
	return nil
}

// together calls do for all items at once.
func together[T any](items []T, do func(T) error) error {
	errs := make([]error, len(items))
	share(len(items), func(n int) { errs[n] = do(items[n]) })
	return errors.Join(errs...)
}

// readyLimit is how long host and handler may take to make the first call.
const readyLimit = 20 * time.Second

// run sends calls while targets answer, and then while they hang.
func (s *scene) run(ctx context.Context, trouble time.Duration) error {
	s.begin = time.Now().Add(s.warm)
	end := s.begin.Add(trouble)
	if !s.calm {
		defer time.AfterFunc(s.warm, s.hang).Stop()
	}
	err := s.sendEvery(ctx, arrivals, end, mostly(len(s.targets)-1))
	if err == nil && !testbed.Pause(ctx, time.Until(end.Add(lastCalls))) {
		err = context.Cause(ctx)
	}
	s.spent = s.costs(len(s.calls))
	return err
}

// mostly returns a function that returns 0 one time in healthyShare, and otherwise 1 up to others in turn.
func mostly(others int) func() int {
	n, other := 0, 0
	return func() int {
		if n++; n%healthyShare == 0 {
			return 0
		}
		other = other%others + 1
		return other
	}
}

// lastCalls is how long the calls that were sent last may take to be delivered.
const lastCalls = time.Second

// latencies returns the times from due to delivered of the healthy target's calls that were sent between two moments, in
// seconds, and the share that was delivered. A call that is not delivered soon after the second moment counts with its time
// until then.
func (a *app) latencies(from, to time.Time) (seconds []float64, delivered float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	end := to.Add(lastCalls)
	for _, c := range a.calls {
		if c.target != 0 || c.sent.Before(from) || c.sent.After(to) {
			continue
		}
		until := end
		if !c.arrived.IsZero() && c.arrived.Before(end) {
			until = c.arrived
			delivered++
		}
		seconds = append(seconds, until.Sub(c.sent).Seconds())
	}
	return seconds, delivered / float64(len(seconds))
}

// percentile99 returns the smallest of the numbers that is not less than a share of them.
func percentile99(numbers []float64) float64 {
	if len(numbers) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(numbers))[max(int(math.Ceil(0.99*float64(len(numbers))))-1, 0)]
}

// costs are the reschedules and the storage transactions of some calls, those of the sender included.
type costs struct {
	calls, transactions, refused, failed int
	// waits has the reschedules without a call of each message that had any.
	waits []float64
}

// costs returns what has been spent so far on a number of calls.
func (a *app) costs(calls int) costs {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := costs{calls: calls, transactions: a.transactions, refused: a.refused, failed: a.failed}
	for _, call := range a.calls {
		if call.refused > 0 {
			c.waits = append(c.waits, float64(call.refused))
		}
	}
	return c
}

// add adds the costs to a report.
func (c costs) add(r *report, name string) {
	r.add("reschedules after a call: "+name, noBound, 0, float64(c.failed))
	r.add("reschedules without a call: "+name, noBound, 0, float64(c.refused))
	if c.waits != nil {
		r.add("reschedules without a call, of a message that had any: "+name, noBound, 0, c.waits...)
	}
	r.add("storage transactions of a million calls, millions: "+name, noBound, 0, float64(c.transactions)/float64(c.calls))
}

// slowCase is an app whose only target takes 2 s for a call. More calls arrive than it can take.
type slowCase struct {
	*app
	name string
	// concurrency is that of targets.json; 0 for no such file.
	concurrency, arrivals int
	// backlog is whether the calls wait when the host starts. Otherwise they arrive at a steady rate.
	backlog bool
	limit   float64
	// rate is the result in calls a second, drained the time until all calls were delivered; 0 if they were not.
	rate    float64
	drained time.Duration
}

// measureSlow measures how many calls of 2 s one instance makes in a second.
func (b *bench) measureSlow(ctx context.Context, r *report) error {
	for _, c := range []slowCase{
		{name: "default settings", arrivals: 40, limit: 25},
		{name: "concurrency 224", concurrency: 224, arrivals: 130, limit: 80},
	} {
		b.say("isolation: calls of 2 s, %s", c.name)
		steady, backlog := c, c
		steady.name += ", steady arrivals"
		backlog.name += ", backlog"
		backlog.backlog = true
		cases := []*slowCase{&steady, &backlog}
		if err := together(cases, func(c *slowCase) error { return b.runSlow(ctx, c) }); err != nil {
			return fmt.Errorf("calls of 2 s, %s: %w", c.name, err)
		}
		for _, c := range cases {
			r.add("calls of 2 s in a second: "+c.name, atLeast, c.limit, c.rate)
			r.add("calls of 2 s at a time: "+c.name, noBound, 0, float64(c.targets[0].peak))
			if c.drained > 0 {
				r.add("time until all were delivered, s: "+c.name, noBound, 0, c.drained.Seconds())
			}
			c.costs(c.delivered(time.Time{}, time.Now())).add(r, c.name)
		}
	}
	return nil
}

// runSlow measures the calls a second in a window, after a third of its length. Then it waits until all calls are delivered,
// but not for ever.
func (b *bench) runSlow(ctx context.Context, c *slowCase) (err error) {
	c.app, err = b.newApp(ctx, 1, slowTakes)
	defer func() { err = errors.Join(err, c.stop()) }()
	if err != nil {
		return err
	}
	if c.concurrency > 0 {
		content := fmt.Appendf(nil, `{%q:{"concurrency":%d}}`, c.targets[0].Addr, c.concurrency)
		if err := os.WriteFile(filepath.Join(c.folder, "targets.json"), content, 0o600); err != nil {
			return err
		}
	}
	length := b.window * 4 / 3
	first := 1 // it shows that host and handler are ready
	if c.backlog {
		first = int(float64(c.arrivals) * length.Seconds())
	}
	if err := errors.Join(c.sendAll(ctx, first), b.startHost(ctx, c.app)); err != nil {
		return err
	}
	if err := c.awaitCalls(ctx, 1, readyLimit); err != nil {
		return err
	}
	begin := time.Now()
	end := begin.Add(length)
	if !c.backlog {
		if err := c.sendEvery(ctx, float64(c.arrivals), end, func() int { return 0 }); err != nil {
			return err
		}
	}
	if !testbed.Pause(ctx, time.Until(end)) {
		return context.Cause(ctx)
	}
	c.rate = float64(c.delivered(end.Add(-b.window), end)) / b.window.Seconds()
	if c.awaitCalls(ctx, len(c.calls), 2*b.window) == nil {
		c.drained = time.Since(begin)
	}
	return ctx.Err()
}
