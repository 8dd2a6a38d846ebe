package serve

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/deliver/settle"
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
// an older host would not start it again (docs/host.md, "Exits of the handler").
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
	errorLines := log.With().Str(zerolog.LevelFieldName, zerolog.LevelErrorValue).Logger()
	return &Server{
		listener: listener,
		http: http.Server{
			Handler:           handler,
			ReadHeaderTimeout: readHeaderTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          stdlog.New(errorLines, "", 0),
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
	s.log.Info().Str(logs.Detail, ended.Error()).
		Msg("stopping: interrupting the calls in progress; a second signal ends at once")
	grace, endGrace := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer endGrace()
	err := s.http.Shutdown(grace)
	result := <-served
	if !errors.Is(result, http.ErrServerClosed) {
		err = errors.Join(err, result)
	}
	if err != nil {
		return fmt.Errorf("stop: some invocations in progress were not settled within %v, "+
			"the host delivers them again: %w", stopGrace, err)
	}
	return ended
}
