//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/tools/faults/judge"
	"asynccaller/handler/tools/faults/schedule"
)

// idleLimit is how long a schedule may take until nothing is left to do; mostly it waits for leases to end. It is
// longer than a held message waits: if storage stops before it acknowledges the write, nobody has the receipt to bring
// it forward.
const idleLimit = 7 * time.Minute

// modes are the values of ASYNC_CALLER_RESCHEDULE, spread over the systems.
var modes = [...]string{"enqueue", "enqueue", "update"}

// runSchedules runs schedules on several systems in parallel. The first one of each system has the system's number.
func runSchedules(ctx context.Context, o options, dir string, r *result) {
	var next atomic.Int64
	systems := min(o.systems, o.schedules)
	next.Store(int64(systems))
	var running sync.WaitGroup
	for i := range systems {
		running.Go(func() {
			mode, table := modes[i%len(modes)], o.tables[i%len(o.tables)]
			profile := limited
			if table == stopped || table == slow {
				profile = unlimited
			}
			c := setup{
				executable: o.executable, localHost: o.localHost, setting: "ASYNC_CALLER_RESCHEDULE=" + mode,
				profile: profile, table: table, history: historyOff,
			}
			name := fmt.Sprintf("system%d-%s-%s", i, mode, table)
			if table == healthy || i%checkEvery == 2 {
				c.history = historyCheck
				name += "-check"
			}
			r.fail(withSystem(ctx, filepath.Join(dir, name), c, r, func(s *system) error {
				deadline := time.Now().Add(o.time)
				for number := i; number < o.schedules && ctx.Err() == nil && time.Now().
					Before(deadline); number = int(next.Add(1)) - 1 {
					if err := s.runSchedule(ctx, o.plan(number)); err != nil {
						return err
					}
				}
				return nil
			}))
		})
	}
	running.Wait()
}

// The settings of the history.
const (
	historyOff   = "ASYNC_CALLER_HISTORY=off"
	historyCheck = "ASYNC_CALLER_HISTORY=check"
)

// checkEvery is the share of systems whose handlers check the history although the table is not healthy, one in so
// many. With four states of the table, a third of all systems check it.
const checkEvery = 12

// laterEvery is the share of schedules whose messages wait 30 s, one in so many.
const laterEvery = 6

// plan returns the schedule with a number.
func (o options) plan(number int) schedule.Schedule {
	plan := schedule.New(o.seed, number)
	if number == 0 && o.outage {
		plan = schedule.Outage(o.seed, number)
	}
	if o.later && number%laterEvery == 0 {
		plan = schedule.Later(plan)
	}
	return plan
}

// withSystem starts a system, runs do, and stops the system. The error says which processes and connections were left.
func withSystem(ctx context.Context, dir string, c setup, r *result, do func(*system) error) error {
	s, err := startSystem(ctx, dir, c, r)
	if err == nil {
		stop := s.watchForStalls(ctx)
		err = do(s)
		stop()
	}
	err = errors.Join(err, s.stop(ctx))
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(dir), err)
	}
	return nil
}

// headStart is how long messages stay invisible, so that all messages and faults are in place before the first
// delivery.
const headStart = time.Second

// runSchedule runs a schedule and judges it.
func (s *system) runSchedule(ctx context.Context, plan schedule.Schedule) error {
	s.script.reset()
	for _, m := range plan.Messages {
		if err := s.send(ctx, m, headStart); err != nil {
			return err
		}
	}
	s.script.arm(plan.Faults)
	return s.conclude(ctx, plan.Messages)
}

// conclude waits until the system is idle and judges what was recorded.
func (s *system) conclude(ctx context.Context, messages []schedule.Message) error {
	left := s.awaitIdle(ctx, idleLimit)
	s.script.arm(nil)
	s.injecting.Wait()
	if left == 0 { // a request that was held may have been repeated meanwhile
		left = s.awaitIdle(ctx, idleLimit)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	deadLetters, err := s.takeDeadLetters(ctx)
	if err != nil {
		return fmt.Errorf("reading dead letters: %w", err)
	}
	events := s.takeEvents()
	v := judge.Judge(messages, judge.Record{
		Events: events, DeadLetters: deadLetters, Left: max(left, 0),
		MaxDequeueCount: maxDequeueCount,
	})
	s.result.add(s.table, v)
	if !v.OK() {
		err = s.keepEvents(v, events)
	}
	if left != 0 { // they would disturb the next schedule
		err = errors.Join(err, fmt.Errorf("not idle after %v: %d messages are on the queues", idleLimit, left))
	}
	return err
}

// keepEvents writes the findings and all events of a schedule next to the log.
func (s *system) keepEvents(v judge.Verdict, events []judge.Event) error {
	var text bytes.Buffer
	for _, f := range append(v.Lost, v.Unexplained...) {
		fmt.Fprintf(&text, "%s: %s\n", f.ID, f.Text)
	}
	for _, e := range events {
		fmt.Fprintf(&text, "%v\n", e)
	}
	return os.WriteFile(filepath.Join(s.dir, fmt.Sprintf("findings%d.txt", s.now().Milliseconds())), text.Bytes(),
		0o600)
}

// stallLimit is well below the time that is left of a lease when it is renewed.
const stallTick, stallLimit = 200 * time.Millisecond, 1500 * time.Millisecond

// watchForStalls records when this machine stalls for so long that leases may end.
func (s *system) watchForStalls(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for before := s.now(); storage.Sleep(ctx, stallTick); before = s.now() {
			if s.now()-before > stallLimit {
				s.disturbed(judge.Stalled, before)
			}
		}
	})
	return func() {
		cancel()
		watching.Wait()
	}
}
