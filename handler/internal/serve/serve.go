// Package serve is the life of the handler's process: it binds its port, answers the host, and when it
// is told to stop puts back what it interrupts.
package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/settle"
)

// Timeouts of the handler's HTTP server. There is no write timeout: an answer may take as long as the
// call and its settling, and the host has a limit of its own. There is no idle timeout: the host closes its
// idle connections itself, so it never sends an invocation on one that we are closing.
const (
	readHeaderTimeout = 30 * time.Second
	maxHeaderBytes    = 64 << 10
	// stopGrace is how long a stop waits for interrupted calls to be rescheduled: a settle write's time
	// and a little more. The host has killed us long before, unless storage is away.
	stopGrace = settle.Timeout + 5*time.Second
)

// ErrStopped is what Run returns after a stop in good order. It is an error because a handler must
// never exit with code 0: the host would not start it again.
var ErrStopped = errors.New("stopped")

// Server answers the host.
type Server struct {
	listener net.Listener
	http     http.Server
	log      zerolog.Logger
	// parent is the id of the parent process; nil when it does not matter.
	parent func() int
}

// Listen binds 127.0.0.1 and the port, so that the host can connect from then on; [Server.Run] answers.
func Listen(ctx context.Context, port string, handler http.Handler, log zerolog.Logger) (*Server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return nil, fmt.Errorf("listening for the Functions host: %w", err)
	}
	return &Server{
		listener: listener,
		http: http.Server{
			Handler:           handler,
			ReadHeaderTimeout: readHeaderTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
		},
		log: log,
	}, nil
}

// Addr is the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// EndWith makes Run end when the process that started this one does, of which parent tells the id: a host
// that crashes or is killed does not stop its handler, and nobody would delete the messages that an
// orphaned handler goes on to settle. The host that comes next gets them, and would start every retry
// beside a successor.
func (s *Server) EndWith(parent func() int) { s.parent = parent }

// Run answers until ctx ends, then waits until every invocation under way is answered; who interrupts
// their calls is the caller. It returns [ErrStopped], or an error when it had to end earlier: [ErrHostGone]
// at once, with nothing more settled.
func (s *Server) Run(ctx context.Context) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	var gone <-chan struct{} // nil: never
	if s.parent != nil {
		gone = parentGone(watching, s.parent)
	}
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(s.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("answering the Functions host: %w", err)
	case <-gone:
		_ = s.http.Close() // whatever is in hand is not ours any more
		return errors.Join(ErrHostGone, ended(<-served))
	case <-ctx.Done():
	}
	s.log.Info().Msg("stopping: calls under way are interrupted and rescheduled; a second signal ends at once")
	grace, endGrace := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer endGrace()
	if err := errors.Join(s.http.Shutdown(grace), ended(<-served)); err != nil {
		return fmt.Errorf("stopping: invocations under way were not settled within %v, the host delivers them again: %w", stopGrace, err)
	}
	return ErrStopped
}

// ended is what went wrong with a server that was told to end.
func ended(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
