package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"asynccaller/handler/tools/faults/judge"
	"asynccaller/handler/tools/faults/schedule"
)

// patience is how long one schedule may take to come to rest; what it needs is mostly leases that end.
const patience = 3 * time.Minute

// modes are the ways to reschedule, spread over the lanes.
var modes = [...]string{"enqueue", "enqueue", "update"}

// runSchedules runs schedules on several lanes at once and returns what all of them have proved.
func runSchedules(ctx context.Context, o options, dir string, progress *progress) (result result) {
	result = newResult(o.seed)
	deadline := time.Now().Add(o.time)
	var next atomic.Int64
	var mu sync.Mutex
	var lanes sync.WaitGroup
	for i := range min(o.lanes, o.schedules) {
		lanes.Go(func() {
			name := fmt.Sprintf("lane %d (reschedule: %s)", i, modes[i%len(modes)])
			l, err := openLane(ctx, name, filepath.Join(dir, fmt.Sprintf("lane%d", i)), o.executable, []string{"ASYNC_CALLER_RESCHEDULE=" + modes[i%len(modes)]})
			stopWatching := watchForStalls(ctx, l)
			for err == nil && ctx.Err() == nil && time.Now().Before(deadline) {
				number := int(next.Add(1)) - 1
				if number >= o.schedules {
					break
				}
				s := schedule.New(o.seed, number)
				if number == 0 && o.outage {
					s = schedule.Outage(o.seed, number)
				}
				var done partial
				done, err = l.run(ctx, s)
				mu.Lock()
				result.add(done)
				progress.show(result)
				mu.Unlock()
			}
			stopWatching()
			err = errors.Join(err, l.close(ctx))
			mu.Lock()
			defer mu.Unlock()
			result.trouble(err)
		})
	}
	lanes.Wait()
	return result
}

// headStart is how long messages stay invisible so that all are sent, and all faults armed, before the
// first one is delivered.
const headStart = time.Second

// partial is what one schedule has proved.
type partial struct {
	verdict judge.Verdict
	struck  map[schedule.Action]int
}

// run runs one schedule and judges it.
func (l *lane) run(ctx context.Context, s schedule.Schedule) (partial, error) {
	l.script.forget()
	for _, m := range s.Messages {
		if err := l.send(ctx, m, headStart); err != nil {
			return partial{}, err
		}
	}
	l.script.arm(s.Faults)
	return l.conclude(ctx, s.Messages)
}

// conclude waits until all is quiet and judges what was recorded since the last time.
func (l *lane) conclude(ctx context.Context, messages []schedule.Message) (partial, error) {
	left := l.awaitQuiet(ctx, patience)
	l.script.disarm()
	l.strikes.Wait()
	if left == 0 { // a request that was held may have been repeated meanwhile
		left = l.awaitQuiet(ctx, patience)
	}
	if ctx.Err() != nil {
		return partial{}, context.Cause(ctx)
	}
	letters, err := l.letters(ctx)
	if err != nil {
		return partial{}, fmt.Errorf("reading dead letters: %w", err)
	}
	events, struck, err := l.record.take()
	if err != nil {
		return partial{}, err
	}
	record := judge.Record{Events: events, Letters: letters, Left: max(left, 0), MaxDequeueCount: maxDequeueCount}
	p := partial{judge.Judge(messages, record), struck}
	if !p.verdict.OK() {
		err = l.keep(p.verdict, events)
	}
	if left != 0 { // the next schedule would meet them
		err = errors.Join(err, fmt.Errorf("not at rest after %v: %d messages on the queues", patience, left))
	}
	return p, err
}

// keep writes the events of the messages that a verdict is about beside the log of host and handler.
func (l *lane) keep(v judge.Verdict, events []judge.Event) error {
	about := map[string]bool{"": true}
	file, err := os.OpenFile(filepath.Join(l.dir, "violations.txt"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	for _, f := range append(v.Lost, v.Violations...) {
		about[f.ID], about[f.ID+schedule.CallbackSuffix] = true, true
		fmt.Fprintf(file, "%s: %s\n", f.ID, f.What)
	}
	for _, e := range events {
		if about[e.ID] {
			fmt.Fprintf(file, "%v\n", e)
		}
	}
	return nil
}

const (
	stallTick = 200 * time.Millisecond
	// stallLimit is well below the part of a lease that is left when it is renewed.
	stallLimit = 1500 * time.Millisecond
)

// watchForStalls notes when this machine stands still for so long that leases may end.
func watchForStalls(ctx context.Context, l *lane) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for before := l.now(); pause(ctx, stallTick); before = l.now() {
			if l.now()-before > stallLimit {
				l.disturbed(judge.Stalled, before)
			}
		}
	})
	return func() {
		cancel()
		watching.Wait()
	}
}
