// Package serve runs the handler's process: it binds the port, serves the Functions host, and stops.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/delivery"
	"asynccaller/handler/internal/logs"
	"asynccaller/handler/internal/settle"
)

// Timeouts of the handler's HTTP server. There is no write timeout: an answer may take as long as the call and its
// settling, and the host has its own limit. There is no idle timeout: the host closes its idle connections, so it
// never sends an invocation on one that the handler is closing.
const (
	readHeaderTimeout = 30 * time.Second
	maxHeaderBytes    = 64 << 10
	// stopGrace is how long a stop waits until interrupted calls are rescheduled: the time of a settle write and a
	// margin. The host kills the handler much earlier, but settling takes that long only in an outage of storage.
	stopGrace = settle.Timeout + 5*time.Second
)

// ErrStopped is the result of Run after an orderly stop. It is an error because a handler must never exit with code 0:
// the host would not start it again.
var ErrStopped = errors.New("stopped")

// Server serves the host.
type Server struct {
	listener net.Listener
	http     http.Server
	log      zerolog.Logger
}

// Listen binds the port of 127.0.0.1, so that the host can connect from then on. [Server.Run] serves the handler.
func Listen(ctx context.Context, port string, handler http.Handler, log zerolog.Logger) (*Server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return nil, fmt.Errorf("listen for the Functions host: %w", err)
	}
	return &Server{
		listener: listener,
		http: http.Server{
			Handler:           handler,
			ReadHeaderTimeout: readHeaderTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          stdlog.New(log.With().Str(zerolog.LevelFieldName, zerolog.LevelErrorValue).Logger(), "", 0),
		},
		log: log,
	}, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run serves until ctx ends, then waits until every invocation in progress is answered; the caller interrupts their
// calls. It returns [ErrStopped], [delivery.ErrHostGone] if that is the cause, or the error that ended it earlier.
func (s *Server) Run(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(s.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve the Functions host: %w", err)
	case <-ctx.Done():
	}
	ended := ErrStopped
	if errors.Is(context.Cause(ctx), delivery.ErrHostGone) {
		ended = delivery.ErrHostGone
	}
	s.log.Info().Str(logs.Detail, ended.Error()).Msg("stopping: interrupting the calls in progress; a second signal ends at once")
	grace, endGrace := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer endGrace()
	err := s.http.Shutdown(grace)
	if result := <-served; !errors.Is(result, http.ErrServerClosed) {
		err = errors.Join(err, result)
	}
	if err != nil {
		return fmt.Errorf("stop: some invocations in progress were not settled within %v, the host delivers them again: %w", stopGrace, err)
	}
	return ended
}

// parentPoll is the interval between two checks of the parent process.
const parentPoll = time.Second

// WatchHost returns a context that ends with the cause [delivery.ErrHostGone] when the Functions host has ended. A host that
// stops with calls in progress, crashes or is killed does not stop its handler. There are two signs: this process has
// another parent (on Unix), whose id parent returns, or a write to the returned writer, the host's pipe, fails because
// nobody can read it. The second one finds a host that ended before WatchHost.
func WatchHost(ctx context.Context, parent func() int, pipe io.Writer) (context.Context, io.Writer) {
	watched, end := context.WithCancelCause(ctx)
	first := parent()
	go func() {
		tick := time.NewTicker(parentPoll)
		defer tick.Stop()
		for parent() == first {
			select {
			case <-watched.Done():
				return
			case <-tick.C:
			}
		}
		end(delivery.ErrHostGone)
	}()
	return watched, hostPipe{pipe, end}
}

// hostPipe is the pipe to the host.
type hostPipe struct {
	io.Writer
	end context.CancelCauseFunc
}

func (p hostPipe) Write(lines []byte) (int, error) {
	n, err := p.Writer.Write(lines)
	if errors.Is(err, syscall.EPIPE) {
		p.end(delivery.ErrHostGone)
	}
	return n, err
}

const (
	// memoryShare is the share of the memory of the container or machine above which the garbage collector works
	// as hard as needed. The Functions host, in the same container, has the rest.
	memoryShare = 0.5
	// gcPercent lets the heap grow to seven times the live data before a collection. The live data is small, because
	// messages are small and short-lived, and the memory limit bounds the heap. With 200, calls of 48 KiB do not reach
	// 0.55 of a bare forwarder's rate (docs/performance.md).
	gcPercent = 600
)

// TuneMemory makes the garbage collector use free memory to save time. It respects the operator's GOGC and GOMEMLIMIT.
// It returns the memory limit that it set, in bytes; 0 if it set none, because the operator did or the size of the
// memory is unknown, and then it changes nothing else.
func TuneMemory(getenv func(string) string) (limit int64) {
	if getenv("GOMEMLIMIT") != "" {
		return 0
	}
	limit, err := memlimit.Set(memlimit.WithRatio(memoryShare), memlimit.WithProvider(memory))
	if err != nil || limit <= 0 {
		return 0
	}
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	return limit
}

// memory returns the memory of the container or, if that is unlimited or larger, of the machine, in bytes.
func memory() (uint64, error) {
	container, err := memlimit.FromCgroup()
	if err != nil {
		return memlimit.FromSystem()
	}
	if machine, err := memlimit.FromSystem(); err == nil {
		container = min(container, machine)
	}
	return container, nil
}
