package serve_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/program/serve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answering is a handler that answers like the real one.
var answering = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"path":%q,"bytes":%d}`, r.URL.Path, len(body))
})

// newTransport returns a transport whose idle connections end with the test.
func newTransport(tb testing.TB) *http.Transport {
	tb.Helper()
	transport := &http.Transport{}
	tb.Cleanup(transport.CloseIdleConnections)
	return transport
}

// post sends an invocation and returns the status and the text of the answer.
func post(ctx context.Context, transport http.RoundTripper, url, body string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(response.Body)
	return fmt.Sprint(response.StatusCode, " ", string(text)), errors.Join(err, response.Body.Close())
}

func TestPortInUse(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, err = serve.Listen(t.Context(), port, answering, zerolog.Nop())
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Functions host", "127.0.0.1:" + port} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestNoPort(t *testing.T) {
	for _, port := range []string{"99999", "-1", "no-such-service", "80 80"} {
		if server, err := serve.Listen(t.Context(), port, answering, zerolog.Nop()); err == nil ||
			!strings.Contains(err.Error(), port) {
			t.Errorf("%q: got %v, %v", port, server, err)
		}
	}
}

// TestRun uses a real port of 127.0.0.1: Listen binds it, Run serves it and releases it.
func TestRun(t *testing.T) {
	server, err := serve.Listen(t.Context(), "0", answering, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	host, _, err := net.SplitHostPort(server.Addr().String())
	if err != nil || host != "127.0.0.1" {
		t.Errorf("got address %v, want 127.0.0.1 only (%v)", server.Addr(), err)
	}
	// The Functions host may connect before Run; its request must not be lost.
	early, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Addr().String())
	if err != nil {
		t.Fatalf("the port is not bound before Run: %v", err)
	}
	defer func() { _ = early.Close() }()
	if _, err := io.WriteString(early, "GET /early HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	if answer, err := io.ReadAll(early); err != nil || !strings.Contains(string(answer), `"/early"`) {
		t.Errorf("got %q, %v", answer, err)
	}
	transport := newTransport(t)
	for _, size := range []int{0, 1, 1 << 20} {
		answer, err := post(t.Context(), transport, "http://"+server.Addr().String()+"/AC-standard",
			strings.Repeat("x", size))
		if want := fmt.Sprintf(`200 {"path":"/AC-standard","bytes":%d}`, size); err != nil || answer != want {
			t.Errorf("got %q, %v, want %q", answer, err, want)
		}
	}
	stop()
	if err := <-ended; !errors.Is(err, serve.ErrStopped) {
		t.Errorf("got %v, want %v", err, serve.ErrStopped)
	}
	again, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", server.Addr().String())
	if err != nil {
		t.Fatalf("the port was not released: %v", err)
	}
	_ = again.Close()
}

func TestStopBeforeRun(t *testing.T) {
	server, err := serve.Listen(t.Context(), "0", answering, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := server.Run(ctx); !errors.Is(err, serve.ErrStopped) {
		t.Errorf("got %v, want %v", err, serve.ErrStopped)
	}
}

// pipes is a listener whose connections are pipes, so that they work in a synctest bubble.
type pipes struct {
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
}

func newPipes() *pipes { return &pipes{connections: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.connections:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.connections <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, syscall.ECONNREFUSED
	}
}

// running is a server that runs in a synctest bubble.
type running struct {
	*pipes
	transport *http.Transport
	stop      func()
	ended     chan error
	log       *bytes.Buffer
}

// start starts a server in the current synctest bubble, and stops it at the end of the test.
func start(t *testing.T, handler http.Handler) *running {
	t.Helper()
	return startIn(t.Context(), t, handler)
}

// startIn starts a server that runs in ctx.
func startIn(ctx context.Context, t *testing.T, handler http.Handler) *running {
	t.Helper()
	s := &running{pipes: newPipes(), ended: make(chan error, 1), log: &bytes.Buffer{}}
	server, err := serve.Listen(ctx, "0", handler, zerolog.New(s.log))
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Replace(s.pipes); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(ctx)
	s.stop = stop
	over := make(chan struct{})
	t.Cleanup(func() {
		stop()
		<-over // the bubble's clock stops when the test returns
	})
	s.transport = newTransport(t)
	s.transport.DialContext = s.dial
	go func() {
		s.ended <- server.Run(ctx)
		close(over)
	}()
	return s
}

// advance advances the clock of the synctest bubble.
func advance(d time.Duration) {
	passed := make(chan struct{})
	time.AfterFunc(d, func() { close(passed) })
	<-passed
}

// wantRunning checks that the server still runs when all goroutines are blocked.
func (s *running) wantRunning(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-s.ended:
		t.Fatalf("the server ended early: %v", err)
	default:
	}
}

func TestStopWaitsForInvocations(t *testing.T) {
	var release chan struct{}
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-release
		if r.Context().Err() != nil {
			t.Error("the stop cancelled the invocation")
		}
		_, _ = io.WriteString(w, "reschedule")
	})
	synctest.Test(t, func(t *testing.T) {
		s := start(t, slow)
		release = make(chan struct{})
		answer := make(chan string, 1)
		go func() {
			text, err := post(t.Context(), s.transport, "http://handler/AC-standard", "x")
			answer <- fmt.Sprint(text, " ", err)
		}()
		s.wantRunning(t)
		s.stop()
		advance(settle.Timeout) // the longest time of a settle write
		s.wantRunning(t)
		if _, err := post(t.Context(), s.transport, "http://handler/AC-standard", "x"); !errors.Is(err,
			syscall.ECONNREFUSED) {
			t.Errorf("an invocation during the stop: got %v, want a refused connection", err)
		}
		close(release)
		if err := <-s.ended; !errors.Is(err, serve.ErrStopped) {
			t.Errorf("got %v, want %v", err, serve.ErrStopped)
		}
		if got := <-answer; got != "200 reschedule <nil>" {
			t.Errorf("the host got %q", got)
		}
		if !strings.Contains(s.log.String(), "stopping") {
			t.Errorf("the log does not explain the wait: %s", s.log)
		}
	})
}

// An invocation that never ends does not keep the process alive. The error explains the consequence.
func TestStopHasALimit(t *testing.T) {
	var release chan struct{}
	synctest.Test(t, func(t *testing.T) {
		s := start(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
		release = make(chan struct{})
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = post(t.Context(), s.transport, "http://handler/AC-standard", "x")
		}()
		s.wantRunning(t)
		s.stop()
		stopped := time.Now()
		err := <-s.ended
		if err == nil || errors.Is(err, serve.ErrStopped) || !strings.Contains(err.Error(), "invocations in progress") {
			t.Errorf("got %v, want an error about unsettled invocations", err)
		}
		if took := time.Since(stopped); took <= settle.Timeout || took > 2*settle.Timeout {
			t.Errorf("it waited %v, want a little more than settling takes (%v)", took, settle.Timeout)
		}
		close(release)
		<-gone
		s.transport.CloseIdleConnections()
	})
}

// Idle connections do not delay a stop.
func TestStopWithIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, answering)
		if _, err := post(t.Context(), s.transport, "http://handler/AC-standard", "x"); err != nil {
			t.Fatal(err)
		}
		silent, err := s.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = silent.Close() })
		s.wantRunning(t)
		s.stop()
		stopped := time.Now()
		if err := <-s.ended; !errors.Is(err, serve.ErrStopped) {
			t.Errorf("got %v, want %v", err, serve.ErrStopped)
		}
		if took := time.Since(stopped); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// The server has no limit for an answer: a call may take two minutes, and settling another one.
func TestLongInvocation(t *testing.T) {
	slow := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		advance(4 * time.Minute)
		_, _ = io.WriteString(w, "at last")
	})
	synctest.Test(t, func(t *testing.T) {
		s := start(t, slow)
		if answer, err := post(t.Context(), s.transport, "http://handler/AC-standard", "x"); err != nil ||
			answer != "200 at last" {
			t.Errorf("got %q, %v", answer, err)
		}
	})
}

// The server does not close idle connections; the host does.
func TestConnectionsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, answering)
		connections := 0
		s.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			connections++
			return s.dial(ctx, network, address)
		}
		for range 3 {
			if _, err := post(t.Context(), s.transport, "http://handler/AC-standard", "x"); err != nil {
				t.Error(err)
			}
			advance(2 * time.Minute)
		}
		if connections != 1 {
			t.Errorf("3 invocations took %d connections", connections)
		}
	})
}

// The server closes the connection of a client that does not complete its headers.
func TestSlowHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, answering)
		c, err := s.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		started := time.Now()
		if _, err := io.WriteString(c, "POST /AC-standard HTTP/1.1\r\nHost: x\r\n"); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, c)
		if took := time.Since(started); took > time.Minute {
			t.Errorf("the connection stayed open for %v", took)
		}
	})
}

// A server that fails returns an error other than that of an orderly stop.
func TestBrokenListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, answering)
		_ = s.Close()
		err := <-s.ended
		if err == nil || errors.Is(err, serve.ErrStopped) || !strings.Contains(err.Error(), "Functions host") {
			t.Errorf("got %v", err)
		}
	})
}
