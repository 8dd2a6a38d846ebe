package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"asynccaller/handler/tools/faults/schedule"
)

const (
	// backlog is how many messages wait at most: Azurite gets slow with many more.
	backlog = 600
	// senders put messages at the same time.
	senders = 8
	// longPatience is for what is left when all is sent.
	longPatience = 5 * time.Minute
)

// runLong sends many messages through one system while its processes are killed every few seconds, unless
// the run is to be calm.
func runLong(ctx context.Context, o options, dir string, p *progress) (r result) {
	r = newResult(o.seed)
	l, err := openLane(ctx, "long run", filepath.Join(dir, "long"), o.executable, []string{"ASYNC_CALLER_LOG_LEVEL=warn"})
	if err == nil {
		stopWatching := watchForStalls(ctx, l)
		var done partial
		done, r.Memory, err = l.runLong(ctx, o, p)
		r.add(done)
		stopWatching()
	}
	r.trouble(errors.Join(err, l.close(ctx)))
	return r
}

func (l *lane) runLong(ctx context.Context, o options, p *progress) (partial, []sample, error) {
	l.script.forget()
	messages := planLong(o.seed, o.long)
	around, stop := context.WithCancel(ctx)
	defer stop()
	var beside sync.WaitGroup
	var memory []sample
	if !o.calm {
		beside.Go(func() { l.killAtRandom(around, o.seed) })
	}
	beside.Go(func() { memory = l.watchMemory(around) })

	err := l.feed(ctx, messages, p)
	l.awaitQuiet(ctx, longPatience)
	stop()
	beside.Wait()
	if err != nil {
		return partial{}, memory, err
	}
	done, err := l.conclude(ctx, messages)
	return done, memory, err
}

// planLong plans messages of which 10 % fail once and 1 % for good.
func planLong(seed uint64, n int) []schedule.Message {
	r := rand.New(rand.NewPCG(seed, 0))
	messages := make([]schedule.Message, n)
	for i := range messages {
		m := schedule.Message{ID: fmt.Sprintf("m%d", i), Format: schedule.Native, Priority: i%2 == 1, Outcome: schedule.Delivered, Answers: []schedule.Word{"200"}}
		if r.IntN(2) == 0 {
			m.Format = schedule.Nexus
		}
		switch draw := r.IntN(100); {
		case draw < 10:
			m.Answers = []schedule.Word{"503", "200"}
		case draw == 10:
			m.Outcome, m.Answers = schedule.Rejected, []schedule.Word{"400"}
		}
		messages[i] = m
	}
	return messages
}

// feed sends messages as fast as they are delivered.
func (l *lane) feed(ctx context.Context, messages []schedule.Message, p *progress) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	waiting := make(chan schedule.Message)
	var sending sync.WaitGroup
	for range senders {
		sending.Go(func() {
			for m := range waiting {
				if err := l.send(ctx, m, 0); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i, m := range messages {
		if i%100 == 0 {
			p.line(fmt.Sprintf("%d of %d messages sent", i, len(messages)))
			for l.left(ctx) > backlog && pause(ctx, 100*time.Millisecond) {
			}
		}
		select {
		case waiting <- m:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(waiting)
	sending.Wait()
	return context.Cause(ctx)
}

// The pause between two kills: long enough for memory to show, and for a lease to end now and then.
const minKillPause, maxKillPause = 2 * time.Second, 9 * time.Second

// killAtRandom kills the handler, the host or both, until ctx ends.
func (l *lane) killAtRandom(ctx context.Context, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for pause(ctx, minKillPause+time.Duration(r.Int64N(int64(maxKillPause-minKillPause)))) {
		actions := []schedule.Action{
			schedule.KillHandler, schedule.KillHandler, schedule.KillHandler,
			schedule.KillHost, schedule.KillBoth, schedule.InterruptHost,
		}
		l.strike(&schedule.Fault{Action: actions[r.IntN(len(actions))]}) //nolint:contextcheck // what strikes belongs to the life of the lane
	}
}

// sample is the memory of a handler.
type sample struct {
	// At is the time since the run began, Age since this handler was first seen.
	At  time.Duration `json:"at"`
	Age time.Duration `json:"age"`
	// Resident is its resident memory in bytes.
	Resident int64 `json:"resident"`
}

// watchMemory samples the handler's memory every second, until ctx ends.
func (l *lane) watchMemory(ctx context.Context) (samples []sample) {
	begin, seen, latest := time.Now(), time.Now(), 0
	for pause(ctx, time.Second) {
		id, alive := l.processes.current()
		if !alive {
			continue
		}
		if id != latest {
			latest, seen = id, time.Now()
		}
		if bytes, ok := residentBytes(id); ok {
			samples = append(samples, sample{time.Since(begin), time.Since(seen), bytes})
		}
	}
	return samples
}

// printMemory prints the median and the highest sample of each minute.
func printMemory(out io.Writer, samples []sample) {
	minutes := map[int][]int64{}
	last := 0
	for _, s := range samples {
		last = int(s.At / time.Minute)
		minutes[last] = append(minutes[last], s.Resident)
	}
	fmt.Fprintf(out, "memory      of the handler in MiB, median and highest by minute:")
	for m := range last + 1 {
		if values := minutes[m]; len(values) > 0 {
			slices.Sort(values)
			fmt.Fprintf(out, " %.0f/%.0f", mib(values[len(values)/2]), mib(values[len(values)-1]))
		}
	}
	fmt.Fprintln(out)
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
