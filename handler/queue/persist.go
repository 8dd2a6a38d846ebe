package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// How an operation is repeated.
const (
	// TryTimeout is how long one try may take, so that one that hangs is tried again.
	TryTimeout = 10 * time.Second
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
)

// Persist tries an operation until storage acknowledges it, answers with one of the final errors, or ctx
// ends. It returns the last error of the operation. A try that got no answer may have been carried out all
// the same.
func Persist(ctx context.Context, try func(context.Context) error, final ...error) error {
	pause := firstPause
	for {
		err := tryOnce(ctx, try)
		if err == nil || isOneOf(err, final) {
			return err
		}
		select {
		case <-ctx.Done():
			return err // the last real error says more than the end of our time
		case <-time.After(pause + rand.N(pause)): //nolint:gosec // spreads load, keeps no secret
		}
		pause = min(2*pause, maxPause)
	}
}

func tryOnce(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, TryTimeout)
	defer cancel()
	return try(ctx)
}

func isOneOf(err error, targets []error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
