//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"asynccaller/handler/tools/target"
	"asynccaller/handler/tools/testbed"
)

// freshProcesses is how often a measurement that has no close limit starts a process, at most.
const freshProcesses = 5

// measureStart reports the time from start to first answer of all handlers that were started, and the size of the executable.
func (b *bench) measureStart(_ context.Context, r *report) error {
	file, err := os.Stat(filepath.Join(b.work, "handler"))
	if err != nil {
		return err
	}
	r.add("start to first answer, ms", atMost, 25, b.starts...)
	r.add("executable, MB", atMost, 25, float64(file.Size())/1e6)
	r.add("memory when idle, MiB", noBound, 0, b.idle...)
	return nil
}

const (
	// mostCalls is how many calls the handler makes at a time (package admission). Each needs two open files in this process,
	// which needs ownFiles for itself.
	mostCalls, ownFiles = 512, 300
)

// callsInFlight returns how many calls can be in flight.
func callsInFlight() (int, error) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return 0, fmt.Errorf("reading the limit of open files: %w", err)
	}
	return max(min(mostCalls, (int(min(files.Cur, 1<<20))-ownFiles)/2), 1), nil
}

// measureMemory measures the memory of a call in flight, and what the body of an answer of 1 GiB adds.
func (b *bench) measureMemory(ctx context.Context, r *report) error {
	if runtime.GOOS != "linux" {
		return nil
	}
	calls, err := callsInFlight()
	if err != nil {
		return err
	}
	for _, m := range []message{small, large} {
		b.say("memory: %d calls in flight, %v", calls, m)
		var values []float64
		for range min(b.rounds, freshProcesses) {
			kib, err := b.hold(ctx, calls, m, behavior{hang: true})
			if err != nil {
				return err
			}
			values = append(values, kib)
		}
		r.add(fmt.Sprintf("memory of a call, KiB: %d in flight, %v", calls, m), atMost, map[message]float64{small: 80, large: 200}[m], values...)
	}
	if err := b.measureAnswers(ctx, r, calls); err != nil {
		return err
	}
	return b.measureSlots(ctx, r, calls)
}

const (
	// answerKiB is how much of an answer the handler keeps; noiseKiB is the difference between two runs.
	answerKiB, noiseKiB = 64, 3
	// sentBytes is how much of an answer of 1 GiB is sent: if it were more than the handler keeps, the call would end.
	sentBytes = 63 << 10
)

// measureAnswers compares calls whose target stalls within a body of 1 GiB with calls whose target stalls before it.
func (b *bench) measureAnswers(ctx context.Context, r *report, calls int) error {
	for _, framing := range []string{"length", "chunks"} {
		b.say("memory: a body of 1 GiB by %s", framing)
		// Not 200: nobody needs the body of that, because the call has no callback.
		begun := behavior{Answer: target.Answer{Status: http.StatusServiceUnavailable}, hang: true}
		if framing == "length" {
			begun.Length = target.Huge
		}
		stalled := begun
		stalled.Sent = sentBytes
		var added []float64
		for range b.rounds {
			without, err := b.hold(ctx, calls, small, begun)
			if err != nil {
				return err
			}
			with, err := b.hold(ctx, calls, small, stalled)
			if err != nil {
				return err
			}
			added = append(added, with-without)
		}
		r.add("memory that an answer of 1 GiB adds, KiB: "+framing, atMost, answerKiB+noiseKiB, added...)
	}
	return nil
}

// holdLimit is how long it may take until all calls hang: well below the handler's call timeout of 120 s.
const holdLimit = 90 * time.Second

// hold returns the memory of one call in KiB while so many hang: the peak of a fresh process until then, less its memory
// when idle.
func (b *bench) hold(ctx context.Context, calls int, m message, how behavior) (perCall float64, err error) {
	b.target.behave(how)
	ctx, cancel := context.WithTimeout(ctx, holdLimit)
	defer cancel()
	posted := make(chan struct{})
	err = b.withHandler(ctx, b.azurite.ConnectionString, func(p *process) error {
		idle, err := memory(p.pid(), "VmRSS")
		if err != nil {
			return err
		}
		b.idle = append(b.idle, idle/(1<<20))
		load := b.load(p, m, calls)
		go func() {
			defer close(posted)
			defer cancel() // calls that do not hang end the wait
			_, _, _ = load.run(ctx, times(int64(calls)))
		}()
		waited := testbed.Await(ctx, func() bool { return b.target.hanging.Load() == int64(calls) && allRead(b.target.Addr) })
		peak, err := memory(p.pid(), "VmHWM")
		perCall = (peak - idle) / float64(calls) / (1 << 10)
		return errors.Join(waited, err)
	})
	if err != nil {
		cancel()
		return 0, fmt.Errorf("%d calls in flight, %v: %w", calls, m, err)
	}
	<-posted // the calls ended with the handler
	return perCall, testbed.Await(context.WithoutCancel(ctx), func() bool { return b.target.hanging.Load() == 0 })
}

// allRead reports whether the callers of a server have read all that it has sent so far. What is in a socket's buffer is
// not in their memory yet.
func allRead(address string) bool {
	_, port, _ := net.SplitHostPort(address)
	n, err := unread(port)
	return err == nil && n == 0
}
