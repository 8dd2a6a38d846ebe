//go:build unix

package main

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// parallel is how many invocations the host sends at a time with host.json as shipped.
const parallel = 24

// rateRounds is how many times as many rounds rates have as the rest.
const rateRounds = 3

// small and large are the messages that are measured: a typical one and the largest.
var small, large = message{1, binary}, message{48, binary}

// measureRates compares the handler's rate with the floor's, for calls that the target answers with 200.
func (b *bench) measureRates(ctx context.Context, r *report) (err error) {
	floor, err := b.startFloor(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, floor.stop()) }()
	handler, err := b.startHandler(ctx, b.azurite.ConnectionString)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, handler.stop()) }()
	b.target.answer(http.StatusOK)
	for _, m := range []struct {
		message
		limit float64
	}{{small, 0.60}, {large, 0.55}, {message{48, text}, 0.40}} {
		b.say("rate: %v", m.message)
		var floorRounds, handlerRounds rounds
		err := alternate(
			rateRounds*b.rounds,
			func() error { return floorRounds.add(ctx, floor, b.load(floor, m.message, parallel), b.time) },
			func() error { return handlerRounds.add(ctx, handler, b.load(handler, m.message, parallel), b.time) },
		)
		if err != nil {
			return err
		}
		name := ": " + m.String()
		r.add("rate of the floor, 1/s"+name, noBound, 0, floorRounds.rates...)
		r.add("rate of the handler, 1/s"+name, noBound, 0, handlerRounds.rates...)
		r.add("CPU time of the floor, µs"+name, noBound, 0, floorRounds.cpu...)
		r.add("CPU time of the handler, µs"+name, noBound, 0, handlerRounds.cpu...)
		r.add("rate of the handler to the floor's"+name, atLeast, m.limit, ratios(handlerRounds.rates, floorRounds.rates)...)
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

// rounds are invocations a second and CPU time of an invocation in microseconds, by round.
type rounds struct{ rates, cpu []float64 }

// add runs a load on a process for the time of a round.
func (r *rounds) add(ctx context.Context, p *process, l load, length time.Duration) error {
	before, err := cpuTime(p.cmd.Process.Pid)
	if err != nil {
		return err
	}
	end := time.Now().Add(length)
	n, took, err := l.run(ctx, func() bool { return time.Now().Before(end) })
	if err != nil {
		return err
	}
	after, err := cpuTime(p.cmd.Process.Pid)
	r.rates = append(r.rates, float64(n)/took.Seconds())
	r.cpu = append(r.cpu, float64((after-before).Microseconds())/float64(n))
	return err
}
