// Package door is an HTTP server on 127.0.0.1 that can misbehave on the level of connections: reset one
// under a request, or refuse all for a while. It knows how many are open.
package door

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Door is a running server. It is safe for concurrent use.
type Door struct {
	// Addr is where it listens: 127.0.0.1 and a port.
	Addr string

	server *http.Server
	serves sync.WaitGroup

	// refusing is held while connections are refused: a second time waits for the first to end.
	refusing sync.Mutex

	mu       sync.Mutex
	listener net.Listener
	open     map[net.Conn]http.ConnState
	closed   bool
}

// Open starts a server on a free port.
func Open(ctx context.Context, handler http.Handler) (*Door, error) {
	listener, err := listen(ctx, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &Door{Addr: listener.Addr().String(), open: map[net.Conn]http.ConnState{}}
	d.server = &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, ConnState: d.note}
	d.serve(listener)
	return d, nil
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", addr)
	if err != nil {
		return nil, fmt.Errorf("opening a door at %s: %w", addr, err)
	}
	return listener, nil
}

// serve begins to answer. Once the door is closed it closes the listener instead.
func (d *Door) serve(listener net.Listener) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = listener.Close()
		return
	}
	d.listener = listener
	d.serves.Go(func() { _ = d.server.Serve(listener) }) // ends with its listener
}

func (d *Door) note(conn net.Conn, state http.ConnState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch state {
	case http.StateNew, http.StateActive, http.StateIdle:
		d.open[conn] = state
	case http.StateClosed, http.StateHijacked: // Cut closes what it hijacks
		delete(d.open, conn)
	}
}

// Connections is the number of open connections.
func (d *Door) Connections() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.open)
}

// Busy is the number of connections on which a request is being answered.
func (d *Door) Busy() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, state := range d.open {
		if state == http.StateActive {
			n++
		}
	}
	return n
}

// How long it is tried to listen on the same port again: somebody may have it for a connection of his own.
const againLimit, againPause = 10 * time.Second, 50 * time.Millisecond

// Refuse resets every connection and refuses new ones for the given time, or until ctx ends.
func (d *Door) Refuse(ctx context.Context, length time.Duration) error {
	d.refusing.Lock()
	defer d.refusing.Unlock()
	d.mu.Lock()
	_ = d.listener.Close()
	for conn := range d.open {
		reset(conn)
	}
	d.mu.Unlock()
	wait(ctx, length)
	ctx = context.WithoutCancel(ctx)
	for deadline := time.Now().Add(againLimit); ; wait(ctx, againPause) {
		listener, err := listen(ctx, d.Addr)
		if err == nil {
			d.serve(listener)
			return nil
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

func wait(ctx context.Context, length time.Duration) {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Close cuts all connections and waits until nothing is served any more.
func (d *Door) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	err := d.server.Close()
	d.serves.Wait()
	if errors.Is(err, net.ErrClosed) { // the listener was closed to refuse
		return nil
	}
	return err
}

// Cut resets the connection of a request that is being answered.
func Cut(w http.ResponseWriter) {
	if conn, ok := Take(w); ok {
		reset(conn)
	}
}

// Take takes the connection of a request that is being answered away from the server: the caller writes
// what it wants and closes it.
func Take(w http.ResponseWriter) (net.Conn, bool) {
	conn, _, err := http.NewResponseController(w).Hijack()
	return conn, err == nil
}

// reset closes a connection with RST rather than FIN.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it may be closed already
	}
	_ = conn.Close()
}
