package testbed

import (
	"context"
	"time"
)

// pollEvery is how often Await looks: often enough not to be noticed, seldom enough not to be in the way.
const pollEvery = 50 * time.Millisecond

// Await looks until it sees what it waits for, or returns the context's error when that ends first.
func Await(ctx context.Context, seen func() bool) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for !seen() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
	return nil
}
