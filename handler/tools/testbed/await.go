// Package testbed runs the product on one machine for the demo and for end-to-end tests: the local host as a
// process, which starts the handler as another, and storage.
package testbed

import (
	"context"
	"time"
)

// pollInterval is the time between two checks of Await.
const pollInterval = 50 * time.Millisecond

// Await polls until the condition holds. If ctx ends first, it returns the cause.
func Await(ctx context.Context, condition func() bool) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
	return nil
}
