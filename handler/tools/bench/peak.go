package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// peak is the most memory that fresh processes have had after a load of 24 in parallel, in bytes.
type peak struct {
	KiB int `json:"kib"`
	// Answer is the size of the target's answers, in bytes.
	Answer int64 `json:"answer_bytes"`
	// Floor is of nothing where only the product is measured.
	Floor   spread `json:"floor_bytes"`
	Product spread `json:"product_bytes"`
}

// String says what came: messages of what size, and what answers.
func (p peak) String() string {
	if p.Answer == 0 {
		return fmt.Sprintf("%d in parallel, %d KiB", shortParallel, p.KiB)
	}
	return fmt.Sprintf("%d in parallel, %d KiB, answers of %d GiB", shortParallel, p.KiB, p.Answer/gib)
}

// peaking measures peak memory for messages of the size. Answers of 1 GiB are for the product alone: the
// floor reads on until it has all of it.
func (b *bed) peaking(ctx context.Context, p peak, rounds int, length time.Duration) (peak, error) {
	var floor, product []float64
	for range min(rounds, fresh) {
		if p.Answer == 0 {
			bytes, err := b.peakOf(ctx, b.floorProgram, p, length)
			if err != nil {
				return p, err
			}
			floor = append(floor, bytes)
		}
		bytes, err := b.peakOf(ctx, b.productProgram, p, length)
		if err != nil {
			return p, err
		}
		product = append(product, bytes)
	}
	p.Floor, p.Product = newSpread(floor), newSpread(product)
	return p, nil
}

func (b *bed) peakOf(ctx context.Context, p program, of peak, length time.Duration) (bytes float64, err error) {
	r, err := p.start(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	b.target.behave(manner{status: http.StatusOK, announced: of.Answer, sent: of.Answer})
	defer b.target.answer(http.StatusOK)
	c := cell{KiB: of.KiB, Mode: modeBinary, Parallel: shortParallel, Status: http.StatusOK}
	if err := b.round(ctx, r, c, b.callSizes(c), length, &series{}); err != nil {
		return 0, fmt.Errorf("peak memory: %w", err)
	}
	_, most, err := memory(r.id())
	return float64(most), err
}
