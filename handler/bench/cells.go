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
	// Status is what the target answers: 200 is delivered, 503 is put back.
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

// contentBytes is the size of the envelope: one of 48 KiB leaves 3 KiB of the message, where a put back
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

// series is what a side has shown, round by round.
type series struct{ rate, p50, p99, cpu []float64 }

func (s *series) side() side {
	return side{newSpread(s.rate), newSpread(s.p50), newSpread(s.p99), newSpread(s.cpu)}
}

// measured is a cell's result. Ratios are product to floor: a rate below 1 and a CPU above 1 are what the
// product costs.
type measured struct {
	cell
	Floor     side   `json:"floor"`
	Product   side   `json:"product"`
	RateRatio spread `json:"rate_ratio"`
	CPURatio  spread `json:"cpu_ratio"`
	// Storage is the transactions of one invocation of the product's.
	Storage float64 `json:"storage_transactions"`
}

// measure runs a cell: floor and product in turn, each first in every second round, after a run that warms
// both up.
func (b *bed) measure(ctx context.Context, c cell, rounds int, length time.Duration) (measured, error) {
	b.target.status.Store(int64(c.Status))
	var floor, product series
	for _, p := range []*process{b.floor, b.product} {
		if err := b.round(ctx, p, c, length/2, &series{}); err != nil {
			return measured{}, err
		}
	}
	before, answered := b.storage.transactions.Load(), b.answered
	for n := range rounds {
		order := []func() error{
			func() error { return b.round(ctx, b.floor, c, length, &floor) },
			func() error { return b.round(ctx, b.product, c, length, &product) },
		}
		for i := range order {
			if err := order[(i+n)%len(order)](); err != nil {
				return measured{}, err
			}
		}
	}
	return measured{
		cell: c, Floor: floor.side(), Product: product.side(),
		RateRatio: ratios(product.rate, floor.rate), CPURatio: ratios(product.cpu, floor.cpu),
		Storage: float64(b.storage.transactions.Load()-before) / float64(max(b.answered-answered, 1)),
	}, nil
}

// round is one program's run of a cell.
func (b *bed) round(ctx context.Context, p *process, c cell, length time.Duration, s *series) error {
	before, cpuErr := cpuTime(p.id())
	calls := b.target.calls.Load()
	got, err := b.load(p, c).run(ctx, length)
	if err != nil {
		return fmt.Errorf("%s, %v: %w", p.name, c, err)
	}
	// An answer of 200 alone does not tell: a message that is refused gets one too.
	if calls = b.target.calls.Load() - calls; calls != int64(got.answered) {
		return fmt.Errorf("%s, %v: %d calls of %d messages, want one each", p.name, c, calls, got.answered)
	}
	s.rate, s.p50, s.p99 = append(s.rate, got.rate), append(s.p50, got.p50), append(s.p99, got.p99)
	if p == b.product {
		b.answered += got.answered
	}
	if errors.Is(cpuErr, errNoProc) {
		return nil
	}
	after, err := cpuTime(p.id())
	if err := errors.Join(cpuErr, err); err != nil {
		return fmt.Errorf("%s, %v: %w", p.name, c, err)
	}
	s.cpu = append(s.cpu, float64((after-before).Microseconds())/float64(got.answered))
	return nil
}

// load is the cell's invocations for a program.
func (b *bed) load(p *process, c cell) load {
	request, id := request(c.Mode, invocation(b.target.url(), contentBytes(c.KiB), c.Mode, time.Now()))
	return load{address: p.address, request: request, idAt: id, parallel: c.Parallel}
}
