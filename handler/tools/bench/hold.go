package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"asynccaller/handler/tools/testbed"
)

// held is the memory of one call in flight, in bytes, while so many hang.
type held struct {
	// Calls is how many hung: fewer than Wanted where the limit of open files allows no more.
	Calls   int    `json:"calls"`
	Wanted  int    `json:"wanted_calls"`
	KiB     int    `json:"kib"`
	Floor   spread `json:"floor_bytes"`
	Product spread `json:"product_bytes"`
}

// String says what is held: how many calls, of what size.
func (h held) String() string {
	if h.Calls < h.Wanted {
		return fmt.Sprintf("%d of %d calls, %d KiB", h.Calls, h.Wanted, h.KiB)
	}
	return fmt.Sprintf("%d calls, %d KiB", h.Calls, h.KiB)
}

// newHeld is so many calls, or as many as can be.
func newHeld(calls, kib int) held { return held{Calls: min(calls, most()), Wanted: calls, KiB: kib} }

// How many calls are held. The short run holds only few.
const (
	fewCalls  = 1000
	manyCalls = 10000
)

// inFlight is what a short or a long run holds.
func inFlight(short bool) []held {
	all := []held{newHeld(fewCalls, 1), newHeld(fewCalls, 48)}
	if short {
		return all
	}
	return append(all, newHeld(manyCalls, 1), newHeld(manyCalls, 48))
}

// most is how many calls can hang at a time: each needs two open files of this process and two of the
// other, and both need a few for themselves. It is 0 where the system does not tell.
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

// fresh is how often at most memory is measured, as each time takes fresh processes; but for
// [bed.answering], whose limit is near.
const fresh = 5

// holding measures the memory of one call in flight for both programs.
func (b *bed) holding(ctx context.Context, h held, rounds int) (held, error) {
	var floor, product []float64
	for range min(rounds, fresh) {
		f, err := b.hold(ctx, b.floorProgram, h, manner{hang: true})
		if err != nil {
			return h, err
		}
		p, err := b.hold(ctx, b.productProgram, h, manner{hang: true})
		if err != nil {
			return h, err
		}
		floor, product = append(floor, f), append(product, p)
	}
	h.Floor, h.Product = newSpread(floor), newSpread(product)
	return h, nil
}

// answering is what the body of an answer of 1 GiB adds to the memory of one call in flight of the product's,
// in bytes.
type answering struct {
	Calls int `json:"calls"`
	// Framing is how the target sends it: with its length, or in chunks.
	Framing string `json:"framing"`
	Added   spread `json:"added_bytes"`
}

const (
	gib = 1 << 30
	// answeredBytes has come of the answer when the target stalls: nearly as much as the handler keeps. If
	// it were more, the handler would be done after a moment.
	answeredBytes = 63 << 10
)

// The ways to send an answer.
const (
	withLength = "length"
	inChunks   = "chunks"
)

// answering compares calls whose target stalls within its answer with calls whose target stalls before its body.
// It does so in every round.
func (b *bed) answering(ctx context.Context, framing string, rounds int) (answering, error) {
	h := newHeld(fewCalls, 1)
	begun := manner{status: http.StatusOK, hang: true}
	if framing == withLength {
		begun.announced = gib
	}
	stalled := begun
	stalled.sent = answeredBytes
	var with, without []float64
	for range rounds {
		bodiless, err := b.hold(ctx, b.productProgram, h, begun)
		if err != nil {
			return answering{}, err
		}
		answered, err := b.hold(ctx, b.productProgram, h, stalled)
		if err != nil {
			return answering{}, err
		}
		with, without = append(with, answered), append(without, bodiless)
	}
	return answering{Calls: h.Calls, Framing: framing, Added: differences(with, without)}, nil
}

// holdLimit is how long it may take until all calls hang: well below the product's call timeout of 120 s.
const holdLimit = 90 * time.Second

// hold is the memory of one call while so many hang, in bytes: the most of a fresh process by then, less
// what it has when idle.
func (b *bed) hold(ctx context.Context, p program, h held, m manner) (perCall float64, err error) {
	r, err := p.start(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	idle, _, err := memory(r.id())
	if err != nil {
		return 0, err
	}
	b.target.behave(m)
	ctx, cancel := context.WithTimeout(ctx, holdLimit)
	defer cancel()
	var posting sync.WaitGroup
	var posted error
	posting.Go(func() {
		defer cancel()
		c := cell{KiB: h.KiB, Mode: modeBinary, Parallel: h.Calls}
		posted = b.load(r, c, b.callSizes(c)).once(ctx)
	})
	waited := testbed.Await(ctx, func() bool { return b.target.hanging.Load() == int64(h.Calls) && b.allRead(r) })
	_, peak, memoryErr := memory(r.id())
	b.target.release()
	posting.Wait()
	if err := errors.Join(posted, waited, memoryErr); err != nil {
		return 0, fmt.Errorf("%s, %v in flight: %w", p.name, h, err)
	}
	return float64(peak-idle) / float64(h.Calls), nil
}

// allRead says whether a process has read all that the target has sent so far. What waits in a socket's
// buffer is not in its memory yet.
func (b *bed) allRead(r *process) bool {
	sockets, err := readProc(r.id(), "net/tcp")
	if err != nil {
		return false
	}
	waiting, err := parseWaiting(sockets, b.target.port())
	return err == nil && waiting == 0
}
