//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"time"
)

// parallel is how many invocations are sent at a time: as many as the host sends with its own defaults on one processor. With
// more, rates would measure the scheduler of a machine that floor and handler share with their load.
const parallel = 24

// rateRounds is how many times as many rounds rates have as the rest.
const rateRounds = 3

// small and large are the messages that are measured: a typical one and the largest.
var small, large = message{kib: 1, mode: binary}, message{kib: 48, mode: binary}

// measureRates compares the handler's rate with the floor's, for calls that the target answers with 200.
func (b *bench) measureRates(ctx context.Context, r *report) error {
	return b.withHandler(ctx, b.azurite.ConnectionString, func(handler *process) error {
		floor, err := start(ctx, filepath.Join(b.work, "floor"), nil, "TARGET="+b.target.url())
		if err != nil {
			return err
		}
		return errors.Join(b.compareRates(ctx, r, floor, handler), floor.stop())
	})
}

func (b *bench) compareRates(ctx context.Context, r *report, floor, handler *process) error {
	b.target.answer(http.StatusOK)
	for _, m := range []struct {
		message
		limit float64
	}{{small, 0.60}, {large, 0.55}, {message{kib: 48, mode: text}, 0.40}} {
		b.say("rate: %v", m.message)
		var floorRates, handlerRates []float64
		round := func(p *process, rates *[]float64) func() error {
			return func() error {
				end := sync.OnceValue(func() time.Time { return time.Now().Add(b.time) }) // from when all connections are open
				n, took, err := b.load(p, m.message, parallel).run(ctx, func() bool { return time.Now().Before(end()) })
				*rates = append(*rates, float64(n)/took.Seconds())
				return err
			}
		}
		if err := alternate(rateRounds*b.rounds, round(floor, &floorRates), round(handler, &handlerRates)); err != nil {
			return err
		}
		r.add(fmt.Sprintf("rate of the floor, 1/s: %v", m.message), noBound, 0, floorRates...)
		r.add(fmt.Sprintf("rate of the handler, 1/s: %v", m.message), noBound, 0, handlerRates...)
		r.add(fmt.Sprintf("rate of the handler to the floor's: %v", m.message), atLeast, m.limit, ratios(handlerRates, floorRates)...)
	}
	return nil
}

// alternate runs both in turn, each first in every second round, until one fails.
func alternate(rounds int, one, other func() error) error {
	for range rounds {
		if err := one(); err != nil {
			return err
		}
		if err := other(); err != nil {
			return err
		}
		one, other = other, one
	}
	return nil
}
