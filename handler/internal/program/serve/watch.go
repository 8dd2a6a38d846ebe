package serve

import (
	"context"
	"io"
	"time"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/plain/socket"
	"asynccaller/handler/internal/storage"
)

// parentPoll is the interval between two checks of the parent process.
const parentPoll = time.Second

// WatchHost returns a context that ends with the cause [delivery.ErrHostGone] when the Functions host has ended. A host
// that stops with calls in progress, crashes or is killed does not stop its handler (docs/host.md, "Stop of the host").
// There are two signs: this process has another parent (on Unix), whose id parent returns, or a write to the returned
// writer, the host's pipe, fails because nobody can read it. The second one finds a host that ended before WatchHost.
func WatchHost(ctx context.Context, parent func() int, pipe io.Writer) (context.Context, io.Writer) {
	watched, end := context.WithCancelCause(ctx)
	first := parent()
	go func() {
		for parent() == first {
			if !storage.Sleep(watched, parentPoll) {
				return
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
	if socket.IsClosedPipe(err) {
		p.end(delivery.ErrHostGone)
	}
	return n, err
}
