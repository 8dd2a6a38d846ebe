//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// load posts the invocations of one message on parallel connections.
type load struct {
	target  *callTarget
	address string
	// request is the bytes of an invocation, with its id at idAt.
	request  []byte
	idAt     int
	parallel int
	// callBytes is the size of the call's body.
	callBytes int64
	// seen, unless nil, is called with the duration of each invocation.
	seen func(time.Duration)
}

func (b *bench) load(p *process, m message, parallel int) load {
	return b.loadTo(p, m, parallel, b.target.url())
}

// loadTo is load with a URL of the target's.
func (b *bench) loadTo(p *process, m message, parallel int, url string) load {
	l := load{target: b.target, address: p.address, parallel: parallel}
	l.request, l.idAt = m.request(p.address, url, time.Now())
	_, body := m.call(url)
	l.callBytes = int64(len(body))
	return l
}

// times returns a function that returns true n times.
func times(n int64) func() bool {
	var taken atomic.Int64
	return func() bool { return taken.Add(1) <= n }
}

// run posts invocations as long as more returns true. It returns how many were answered, and how long that took from when
// all connections were open. It is an error if an answer is not 200, or if the target has not received exactly one whole
// call for each: the handler answers 200 for a malformed message too.
func (l load) run(ctx context.Context, more func() bool) (answered int64, took time.Duration, err error) {
	conns := make([]net.Conn, 0, l.parallel)
	closeAll := func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}
	defer closeAll()
	for range l.parallel {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp4", l.address)
		if err != nil {
			return 0, 0, fmt.Errorf("connecting for invocations: %w", err)
		}
		conns = append(conns, conn)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, closeAll)()
	var count atomic.Int64
	calls, bytes := l.target.calls.Load(), l.target.bytes.Load()
	begin := time.Now()
	share(l.parallel, func(n int) {
		reader := bufio.NewReader(conns[n])
		for ctx.Err() == nil && more() {
			begin := time.Now()
			if err := l.post(conns[n], reader); err != nil {
				cancel(err) // the first error counts
				return
			}
			if l.seen != nil {
				l.seen(time.Since(begin))
			}
			count.Add(1)
		}
	})
	took = time.Since(begin)
	answered = count.Load()
	calls, bytes = l.target.calls.Load()-calls, l.target.bytes.Load()-bytes
	switch err := context.Cause(ctx); {
	case err != nil:
		return 0, 0, err
	case calls != answered || bytes != answered*l.callBytes:
		return 0, 0, fmt.Errorf("%d invocations led to %d calls of %d bytes in all, want one of %d bytes each", answered, calls, bytes, l.callBytes)
	}
	return answered, took, nil
}

// share calls do in parallel and waits for all.
func share(parallel int, do func(n int)) {
	var working sync.WaitGroup
	for n := range parallel {
		working.Go(func() { do(n) })
	}
	working.Wait()
}

// post sends one invocation and reads its answer. It writes HTTP by hand, because http.Client would cost more than what
// is measured.
func (l load) post(conn net.Conn, reader *bufio.Reader) error {
	parts := net.Buffers{l.request[:l.idAt], []byte(uuid.NewString()), l.request[l.idAt+idLength:]}
	if _, err := parts.WriteTo(conn); err != nil {
		return fmt.Errorf("sending an invocation: %w", err)
	}
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("an invocation was answered %d, want 200: %.300s", response.StatusCode, answer)
	}
	return nil
}
