package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"asynccaller/handler/testbed"
)

// pair is the same quantity of both programs.
type pair struct {
	Floor   spread `json:"floor"`
	Product spread `json:"product"`
}

// held is the memory of one call in flight, in bytes, while so many hang.
type held struct {
	Calls   int     `json:"calls"`
	KiB     int     `json:"kib"`
	Floor   float64 `json:"floor_bytes"`
	Product float64 `json:"product_bytes"`
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

// holding measures the memory of so many calls in flight, with a fresh process of each program.
func (b *bed) holding(ctx context.Context, calls, kib int) (held, error) {
	h := held{Calls: min(calls, most()), KiB: kib}
	var err error
	if h.Floor, err = b.hold(ctx, b.floorProgram, h); err != nil {
		return h, err
	}
	h.Product, err = b.hold(ctx, b.productProgram, h)
	return h, err
}

// most is how many calls can hang at a time: each needs two open files of this process and two of the
// other, and both need a few for themselves.
func most() int {
	const own = 300
	limits, err := readProc("self", "limits")
	if err != nil {
		return 0
	}
	files, err := parseFiles(limits)
	if err != nil {
		return 0
	}
	return max((files-own)/2, 0)
}

// holdLimit is how long it may take until all calls hang: well below the product's call timeout of 120 s.
const holdLimit = 90 * time.Second

func (b *bed) hold(ctx context.Context, p program, h held) (perCall float64, err error) {
	r, err := p.start(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	idle, _, err := memory(r.id())
	if err != nil {
		return 0, err
	}
	b.target.status.Store(0)
	ctx, cancel := context.WithTimeout(ctx, holdLimit)
	defer cancel()
	var posting sync.WaitGroup
	var posted error
	posting.Go(func() {
		defer cancel()
		posted = b.load(r, cell{KiB: h.KiB, Mode: modeBinary, Parallel: h.Calls}).once(ctx)
	})
	waited := testbed.Await(ctx, func() bool { return b.target.hanging.Load() == int64(h.Calls) })
	_, peak, memoryErr := memory(r.id())
	b.target.release()
	posting.Wait()
	if err := errors.Join(posted, waited, memoryErr); err != nil {
		return 0, fmt.Errorf("%s, %d calls of %d KiB in flight: %w", p.name, h.Calls, h.KiB, err)
	}
	return float64(peak-idle) / float64(h.Calls), nil
}

// stormParallel is far more than the host sends: as if all the functions' queues were full.
const stormParallel = 1000

// storm is the most connections to storage while a thousand messages are put back at a time.
func (b *bed) storm(ctx context.Context, length time.Duration) (int, error) {
	b.target.status.Store(http.StatusServiceUnavailable)
	b.storage.connections.peak()
	c := cell{KiB: 1, Mode: modeBinary, Parallel: stormParallel, Status: http.StatusServiceUnavailable}
	if err := b.round(ctx, b.product, c, length, &series{}); err != nil {
		return 0, err
	}
	return b.storage.connections.peak(), nil
}

// fileBytes is the size of an executable.
func fileBytes(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
