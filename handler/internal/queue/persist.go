package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// The waits between two tries.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
)

// Persist tries an operation until storage acknowledges it, answers with one of the final errors, or ctx
// ends. Each try may take as long as the limit says, so that one that hangs is tried again. It returns the
// last error of the operation. A try that got no answer may have been carried out all the same.
func Persist(ctx context.Context, limit time.Duration, try func(context.Context) error, final ...error) error {
	pause := firstPause
	for {
		err := tryOnce(ctx, limit, try)
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

func tryOnce(ctx context.Context, limit time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return try(ctx)
}

func isOneOf(err error, targets []error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
