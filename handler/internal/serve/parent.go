package serve

import (
	"context"
	"errors"
	"time"
)

// ErrHostGone is what Run returns when the Functions host has ended without stopping the handler.
var ErrHostGone = errors.New("the Functions host has ended: the messages in hand are left to the host that comes next")

// parentPoll is how often the parent process is looked at; to ask costs next to nothing.
const parentPoll = time.Second

// parentGone returns a channel that is closed when the process that started this one has ended: its
// children then get another parent (on Unix; elsewhere it is never closed). It watches until ctx ends.
func parentGone(ctx context.Context, parent func() int) <-chan struct{} {
	gone := make(chan struct{})
	first := parent()
	go func() {
		tick := time.NewTicker(parentPoll)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if parent() != first {
				close(gone)
				return
			}
		}
	}()
	return gone
}
