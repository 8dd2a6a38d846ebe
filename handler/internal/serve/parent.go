package serve

import (
	"context"
	"errors"
	"time"
)

// ErrHostGone is the result of Run after the Functions host has ended without stopping the handler.
var ErrHostGone = errors.New("the Functions host has ended: the next host handles the messages in progress")

// parentPoll is the interval between two checks of the parent process.
const parentPoll = time.Second

// parentGone returns a channel that is closed when the process that started this one has ended: this process then has
// another parent (on Unix; elsewhere the channel is never closed). It watches until ctx ends.
func parentGone(ctx context.Context, parent func() int) <-chan struct{} {
	gone := make(chan struct{})
	first := parent()
	go func() {
		tick := time.NewTicker(parentPoll)
		defer tick.Stop()
		for parent() == first {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
		close(gone)
	}()
	return gone
}
