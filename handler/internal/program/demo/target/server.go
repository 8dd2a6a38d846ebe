// Package target provides HTTP servers for the demo, for tests and for measurements: targets that answer as a script
// says, well or badly, and record their calls; and the server under them, which can also reset and refuse connections.
package target

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"asynccaller/handler/internal/storage"
)

// Server is an HTTP server on 127.0.0.1 that counts its connections and can reset and refuse them. It is safe
// for concurrent use.
type Server struct {
	// Addr is the address that it listens on: 127.0.0.1 and a port.
	Addr string

	server  *http.Server
	serving sync.WaitGroup
	// refusing serializes Refuse.
	refusing sync.Mutex

	mu       sync.Mutex
	listener net.Listener
	open     map[net.Conn]http.ConnState
}

// Serve starts a server on a free port. The caller closes it.
func Serve(ctx context.Context, handler http.Handler) (*Server, error) {
	return serveAt(ctx, 0, handler)
}

func serveAt(ctx context.Context, port int, handler http.Handler) (*Server, error) {
	listener, err := listen(ctx, fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: listener.Addr().String(), open: map[net.Conn]http.ConnState{}}
	s.server = &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, ConnState: s.track}
	s.serve(listener)
	return s, nil
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", addr)
	if err != nil {
		return nil, fmt.Errorf("starting a server on %s: %w", addr, err)
	}
	return listener, nil
}

func (s *Server) serve(listener net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener = listener
	s.serving.Go(func() { _ = s.server.Serve(listener) }) // returns when the listener is closed
}

func (s *Server) track(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew, http.StateActive, http.StateIdle:
		s.open[conn] = state
	case http.StateClosed, http.StateHijacked: // the hijacker of a connection closes it
		delete(s.open, conn)
	}
}

// Connections returns the number of open connections.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// Busy returns the number of connections on which a request is being answered.
func (s *Server) Busy() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, state := range s.open {
		if state == http.StateActive {
			n++
		}
	}
	return n
}

// Close closes all connections and waits until the server has stopped.
func (s *Server) Close() {
	_ = s.server.Close() // only the listener can fail, which may be closed already
	s.serving.Wait()
}

// The limit and the pause of the attempts to listen on the same port again: another process may be using it
// for an outgoing connection.
const relistenLimit, relistenPause = 10 * time.Second, 50 * time.Millisecond

// Refuse resets every connection and refuses new ones for the given time, or until ctx ends. A second call
// waits for the first. Close must not be called meanwhile.
func (s *Server) Refuse(ctx context.Context, length time.Duration) error {
	s.refusing.Lock()
	defer s.refusing.Unlock()
	s.mu.Lock()
	_ = s.listener.Close()
	for conn := range s.open {
		reset(conn)
	}
	s.mu.Unlock()
	storage.Sleep(ctx, length)
	ctx = context.WithoutCancel(ctx)
	for deadline := time.Now().Add(relistenLimit); ; storage.Sleep(ctx, relistenPause) {
		listener, err := listen(ctx, s.Addr)
		if err == nil {
			s.serve(listener)
			return nil
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

// ResetConnection resets the connection of a request that is being answered.
func ResetConnection(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		reset(conn)
	}
}

// reset closes a connection with RST instead of FIN.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it may be closed already
	}
	_ = conn.Close()
}
