package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// load is invocations that are posted in parallel, each connection the next one when the last is answered.
type load struct {
	address string
	// request is the bytes of one, with the invocation's id at idAt.
	request []byte
	idAt    int
	// parallel is the number of connections.
	parallel int
}

// sample is what one run of a load has shown. Latencies are in milliseconds.
type sample struct {
	answered       int
	rate, p50, p99 float64
}

// run posts for the given time. Any answer but 200 ends it with an error: the numbers would be of something
// else than what is measured.
func (l load) run(ctx context.Context, length time.Duration) (sample, error) {
	begin := time.Now()
	end := begin.Add(length)
	took := make([][]float64, l.parallel)
	err := l.connect(ctx, func(n int, c *caller) error {
		for time.Now().Before(end) {
			sent := time.Now()
			if err := c.post(); err != nil {
				return err
			}
			took[n] = append(took[n], milliseconds(time.Since(sent)))
		}
		return nil
	})
	if err != nil {
		return sample{}, err
	}
	elapsed := time.Since(begin)
	all := slices.Sorted(slices.Values(slices.Concat(took...)))
	if len(all) == 0 {
		return sample{}, errors.New("nothing was answered in the time: give more with -time")
	}
	return sample{
		answered: len(all),
		rate:     float64(len(all)) / elapsed.Seconds(),
		p50:      percentile(all, 50),
		p99:      percentile(all, 99),
	}, nil
}

// once posts one invocation on each connection and waits until all are answered.
func (l load) once(ctx context.Context) error {
	return l.connect(ctx, func(_ int, c *caller) error { return c.post() })
}

// all posts so many invocations, each connection the next one, and tells how long it took from when all were
// connected until all were answered.
func (l load) all(ctx context.Context, invocations int) (took time.Duration, err error) {
	callers := make([]*caller, l.parallel)
	for n := range callers {
		if callers[n], err = l.dial(ctx); err != nil {
			return 0, err
		}
		defer callers[n].close()
	}
	begin := time.Now()
	err = share(invocations, l.parallel, func(n int) error { return callers[n].post() })
	return time.Since(begin), err
}

// share does something so many times, in parallel by so many, each of whom does it again as soon as he can: so
// none waits at the end for one that was slow. It returns the first error of each.
func share(times, workers int, do func(worker int) error) error {
	var taken atomic.Int64
	var working sync.WaitGroup
	failed := make([]error, workers)
	for n := range workers {
		working.Go(func() {
			for failed[n] == nil && taken.Add(1) <= int64(times) {
				failed[n] = do(n)
			}
		})
	}
	working.Wait()
	return errors.Join(failed...)
}

// dialing bounds how many connections are made at a time, to what any system's backlog takes.
const dialing = 100

// connect calls do with each connection, all in parallel, and waits for all. It returns the first error,
// which ends the others.
func (l load) connect(ctx context.Context, do func(n int, c *caller) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	turn := make(chan struct{}, dialing)
	var callers sync.WaitGroup
	for n := range l.parallel {
		callers.Go(func() {
			turn <- struct{}{}
			c, err := l.dial(ctx)
			<-turn
			if err == nil {
				err = do(n, c)
				c.close()
			}
			if err != nil {
				cancel(err) // only the first is kept
			}
		})
	}
	callers.Wait()
	return context.Cause(ctx)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// caller is one connection of the host's. It speaks HTTP by hand: the generator must not be what is slow.
type caller struct {
	load
	conn   net.Conn
	reader *bufio.Reader
	close  func()
}

func (l load) dial(ctx context.Context) (*caller, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp4", l.address)
	if err != nil {
		return nil, fmt.Errorf("connecting for invocations: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	return &caller{load: l, conn: conn, reader: bufio.NewReader(conn), close: func() { stop(); _ = conn.Close() }}, nil
}

// post sends one invocation and reads its answer.
func (c *caller) post() error {
	parts := net.Buffers{c.request[:c.idAt], []byte(uuid.NewString()), c.request[c.idAt+idLength:]}
	if _, err := parts.WriteTo(c.conn); err != nil {
		return fmt.Errorf("sending an invocation: %w", err)
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("an invocation was answered %d, want 200", response.StatusCode)
	}
	return nil
}
