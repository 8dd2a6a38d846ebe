package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// cell is one combination that is measured.
type cell struct {
	KiB      int  `json:"kib"`
	Mode     mode `json:"mode"`
	Parallel int  `json:"parallel"`
	// Status is what the target answers: 200 is delivered, 503 is rescheduled.
	Status int `json:"status"`
}

// String is the cell as the head of the report's first column says: message, parallel, answer.
func (c cell) String() string {
	return fmt.Sprintf("%d KiB %s, %d, %d", c.KiB, c.Mode, c.Parallel, c.Status)
}

// shortParallel is how many invocations the host sends at a time with host.json as shipped.
const shortParallel = 24

// cells are the combinations of a short or a long run, in the order of the report.
func cells(short bool) (all []cell) {
	parallels := []int{1, shortParallel, 64, 256}
	if short {
		parallels = []int{shortParallel}
	}
	for _, status := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		for _, kib := range []int{1, 48} {
			for _, m := range []mode{modeBinary, modeText} {
				for _, parallel := range parallels {
					all = append(all, cell{kib, m, parallel, status})
				}
			}
		}
	}
	return all
}

// judged says that a limit is about this very cell.
func (c cell) judged() bool { return c.Parallel == shortParallel && c.Status == http.StatusOK }

// contentBytes is the size of the envelope: one of 48 KiB leaves 3 KiB of the message, where a reschedule
// adds its trail.
func contentBytes(kib int) int {
	const leave = 3
	if kib > leave {
		kib -= leave
	}
	return kib << 10
}

// side is what one of the two programs has shown in a cell. Latencies are in milliseconds, CPU is
// microseconds an invocation, and of no rounds where the system does not tell.
type side struct {
	Rate spread `json:"rate"`
	P50  spread `json:"p50_ms"`
	P99  spread `json:"p99_ms"`
	CPU  spread `json:"cpu_us"`
}

// series is what a side has shown, round by round, and how many invocations were answered in all.
type series struct {
	rate, p50, p99, cpu []float64
	answered            int
}

func (s *series) side() side {
	return side{newSpread(s.rate), newSpread(s.p50), newSpread(s.p99), newSpread(s.cpu)}
}

// measured is a cell's result. Ratios are product to floor: a rate below 1 and a CPU above 1 are what the
// product costs.
type measured struct {
	cell
	Rounds    int    `json:"rounds"`
	Floor     side   `json:"floor"`
	Product   side   `json:"product"`
	RateRatio spread `json:"rate_ratio"`
	CPURatio  spread `json:"cpu_ratio"`
	// P99Added is by how many milliseconds the product's p99 exceeds the floor's.
	P99Added spread `json:"p99_added_ms"`
	// FloorStorage and Storage are the storage transactions of one invocation: the floor's and the product's.
	FloorStorage float64 `json:"floor_storage_transactions"`
	Storage      float64 `json:"storage_transactions"`
}

// warmUp is how long both programs run before they are measured.
const warmUp = 500 * time.Millisecond

// measure runs a cell: floor and product in turn, each first in every second round, after a run that warms
// both up.
func (b *bed) measure(ctx context.Context, c cell, rounds int, length time.Duration) (measured, error) {
	b.target.answer(c.Status)
	s, err := b.sizes(ctx, c)
	if err != nil {
		return measured{}, err
	}
	var floor, product series
	run := func(p *process, length time.Duration, to *series) error { return b.round(ctx, p, c, s, length, to) }
	for _, p := range []*process{b.floor, b.product} {
		if err := run(p, min(length, warmUp), &series{}); err != nil {
			return measured{}, err
		}
	}
	floorBefore, before := b.floorStorage.transactions.Load(), b.storage.transactions.Load()
	err = alternate(
		rounds,
		func() error { return run(b.floor, length, &floor) },
		func() error { return run(b.product, length, &product) },
	)
	if err != nil {
		return measured{}, err
	}
	return measured{
		cell: c, Rounds: rounds, Floor: floor.side(), Product: product.side(),
		RateRatio: ratios(product.rate, floor.rate), CPURatio: ratios(product.cpu, floor.cpu),
		P99Added:     differences(product.p99, floor.p99),
		FloorStorage: float64(b.floorStorage.transactions.Load()-floorBefore) / float64(max(floor.answered, 1)),
		Storage:      float64(b.storage.transactions.Load()-before) / float64(max(product.answered, 1)),
	}, nil
}

// alternate runs both in turn, each first in every second round, until one fails.
func alternate(rounds int, a, b func() error) error {
	for range rounds {
		if err := a(); err != nil {
			return err
		}
		if err := b(); err != nil {
			return err
		}
		a, b = b, a
	}
	return nil
}

// sizes are how many bytes the product sends for a message of a cell. What it writes to storage is not for
// us to know, so it settles one message and storage tells.
func (b *bed) sizes(ctx context.Context, c cell) (sizes, error) {
	s := b.callSizes(c)
	if c.Status == http.StatusOK {
		return s, nil
	}
	p, err := b.written(ctx, c)
	s.put = p.bytes
	return s, err
}

// callSizes are those of a cell in which nothing is written to storage.
func (b *bed) callSizes(c cell) sizes {
	return sizes{call: len(newBody(b.target.url(), contentBytes(c.KiB)))}
}

// written is what the product writes for a message of a cell whose target does not take it.
func (b *bed) written(ctx context.Context, c cell) (put, error) {
	b.target.answer(c.Status)
	next := b.storage.next()
	c.Parallel = 1
	if err := b.load(b.product, c, sizes{}).once(ctx); err != nil {
		return put{}, fmt.Errorf("one message, %v: %w", c, err)
	}
	select {
	case p := <-next:
		return p, nil
	default:
		return put{}, fmt.Errorf("one message, %v: it was answered and not written to storage", c)
	}
}

// round is one program's run of a cell.
func (b *bed) round(ctx context.Context, p *process, c cell, s sizes, length time.Duration, to *series) error {
	before, cpuErr := cpuTime(p.id())
	earlier := b.traffic(p)
	got, err := b.load(p, c, s).run(ctx, length)
	if err == nil {
		err = b.traffic(p).since(earlier).check(got.answered, s)
	}
	if err != nil {
		return fmt.Errorf("%s, %v: %w", p.name, c, err)
	}
	to.rate, to.p50, to.p99 = append(to.rate, got.rate), append(to.p50, got.p50), append(to.p99, got.p99)
	to.answered += got.answered
	if errors.Is(cpuErr, errNoProc) {
		return nil
	}
	after, err := cpuTime(p.id())
	if err := errors.Join(cpuErr, err); err != nil {
		return fmt.Errorf("%s, %v: %w", p.name, c, err)
	}
	to.cpu = append(to.cpu, float64((after-before).Microseconds())/float64(got.answered))
	return nil
}

// load is the cell's invocations for a program.
func (b *bed) load(p *process, c cell, s sizes) load {
	request, id := request(c.Mode, invocation(b.target.url(), contentBytes(c.KiB), c.Mode, time.Now()), s)
	return load{address: p.address, request: request, idAt: id, parallel: c.Parallel}
}
