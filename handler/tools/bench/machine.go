package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"
)

// pair is the same quantity of both programs.
type pair struct {
	Floor   spread `json:"floor"`
	Product spread `json:"product"`
}

// starts is how often each program is started for its start time.
const starts = 5

// starting measures the time to the first answer, in milliseconds, and the memory then, in bytes. Memory is
// of no numbers where the system does not tell.
func (b *bed) starting(ctx context.Context) (first, idle pair, err error) {
	if first.Floor, idle.Floor, err = startTimes(ctx, b.floorProgram); err != nil {
		return first, idle, err
	}
	first.Product, idle.Product, err = startTimes(ctx, b.productProgram)
	return first, idle, err
}

func startTimes(ctx context.Context, p program) (first, idle spread, err error) {
	var took, resident []float64
	for range starts {
		r, err := p.start(ctx)
		if err != nil {
			return first, idle, err
		}
		took = append(took, milliseconds(r.started))
		now, _, err := memory(r.id())
		if err == nil {
			resident = append(resident, float64(now))
		} else if errors.Is(err, errNoProc) {
			err = nil
		}
		if err := errors.Join(err, r.stop()); err != nil {
			return first, idle, err
		}
	}
	return newSpread(took), newSpread(resident), nil
}

// stormParallel is far more than the host sends: as if all the functions' queues were full.
const stormParallel = 1000

// storm is the most connections to storage while a thousand messages are rescheduled at a time.
func (b *bed) storm(ctx context.Context, length time.Duration) (int, error) {
	b.storage.connections.peak()
	c := cell{KiB: 1, Mode: modeBinary, Parallel: stormParallel, Status: http.StatusServiceUnavailable}
	if _, err := b.settled(ctx, c, length); err != nil {
		return 0, err
	}
	return b.storage.connections.peak(), nil
}

// deadLetters is the storage transactions of the product for a message that its target rejects.
func (b *bed) deadLetters(ctx context.Context, length time.Duration) (float64, error) {
	return b.settled(ctx, cell{KiB: 1, Mode: modeBinary, Parallel: shortParallel, Status: http.StatusBadRequest}, length)
}

// settled runs a cell with the product alone and returns the storage transactions of a message.
func (b *bed) settled(ctx context.Context, c cell, length time.Duration) (transactions float64, err error) {
	s, err := b.sizes(ctx, c)
	if err != nil {
		return 0, err
	}
	before := b.storage.transactions.Load()
	var product series
	if err := b.round(ctx, b.product, c, s, length, &product); err != nil {
		return 0, err
	}
	return float64(b.storage.transactions.Load()-before) / float64(product.answered), nil
}

// fileBytes is the size of an executable.
func fileBytes(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
