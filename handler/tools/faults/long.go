//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/tools/faults/schedule"
)

const (
	// backlog is how many messages wait at most: Azurite gets slow with many more.
	backlog = 600
	// senders is how many messages are sent in parallel.
	senders = 8
	// longIdleLimit is how long the rest may take when all messages are sent.
	longIdleLimit = 5 * time.Minute
)

// runLong sends many messages through one system. Its processes are killed every few seconds.
func runLong(ctx context.Context, o options, dir string, r *result) {
	c := setup{
		executable: o.executable, localHost: o.localHost, setting: "ASYNC_CALLER_LOG_LEVEL=warn",
		history: historyOff, profile: unlimited, table: o.tables[0],
	}
	r.fail(withSystem(ctx, filepath.Join(dir, "long"), c, r, func(s *system) error {
		s.script.reset()
		messages := planLong(o.seed, o.long)
		killing, stop := context.WithCancel(ctx)
		var running sync.WaitGroup
		running.Go(func() { s.killAtRandom(killing, o.seed) })
		err := s.feed(ctx, messages)
		s.awaitIdle(ctx, longIdleLimit)
		stop()
		running.Wait()
		if err != nil {
			return err
		}
		return s.conclude(ctx, messages)
	}))
}

// planLong plans messages of which 10 % fail once and 1 % are rejected.
func planLong(seed uint64, n int) []schedule.Message {
	r := rand.New(rand.NewPCG(seed, 0))
	messages := make([]schedule.Message, n)
	for i := range messages {
		m := schedule.Message{
			ID: fmt.Sprintf("m%d", i), Nexus: r.IntN(2) == 0, Priority: i%2 == 1, Outcome: schedule.Delivered,
			Answers: []string{"200"},
		}
		switch draw := r.IntN(100); {
		case draw < 10:
			m.Answers = []string{"503", "200"}
		case draw == 10:
			m.Outcome, m.Answers = schedule.Rejected, []string{"400"}
		}
		messages[i] = m
	}
	return messages
}

// feed sends messages as fast as they are delivered.
func (s *system) feed(ctx context.Context, messages []schedule.Message) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var sending sync.WaitGroup
	for range senders {
		sending.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(messages)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if i%100 == 0 {
					for s.left(ctx) > backlog && storage.Sleep(ctx, 100*time.Millisecond) {
					}
				}
				if err := s.send(ctx, messages[i], 0); err != nil {
					cancel(err)
				}
			}
		})
	}
	sending.Wait()
	return context.Cause(ctx)
}

// The time between two kills: long enough for leases to end now and then.
const minKillPause, maxKillPause = 2 * time.Second, 9 * time.Second

// killAtRandom kills the handler, the host or both until ctx ends.
func (s *system) killAtRandom(ctx context.Context, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	actions := []schedule.Action{
		schedule.KillHandler, schedule.KillHandler, schedule.KillHandler, schedule.KillHost, schedule.KillBoth,
		schedule.InterruptHost,
	}
	for storage.Sleep(ctx, minKillPause+time.Duration(r.Int64N(int64(maxKillPause-minKillPause)))) {
		s.inject(&schedule.Fault{Action: actions[r.IntN(len(actions))]})
	}
}
