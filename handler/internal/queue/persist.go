package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// The pauses between two tries.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
)

// Persist repeats an operation until storage acknowledges it, the operation returns one of the final errors,
// or ctx ends. The limit is the time for one try, so that a try that hangs is repeated. Persist returns the last
// error of the operation. Storage may have carried out a try that got no answer.
func Persist(ctx context.Context, limit time.Duration, try func(context.Context) error, final ...error) error {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := tryOnce(ctx, limit, try)
		if err == nil || slices.ContainsFunc(final, func(target error) bool { return errors.Is(err, target) }) {
			return err
		}
		select {
		case <-ctx.Done():
			return err // the last real error explains more than the end of ctx
		case <-time.After(pause + rand.N(pause)): //nolint:gosec // spreads load, keeps no secret
		}
	}
}

func tryOnce(ctx context.Context, limit time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return try(ctx)
}
