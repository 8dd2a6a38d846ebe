package main

import (
	"context"
	"fmt"
	"runtime"
)

// measureAll measures what the options want. What a machine may not have comes first.
func measureAll(ctx context.Context, b *bed, o options, p progress) (r *report, err error) {
	r = &report{
		System: fmt.Sprintf("%s/%s, %d processors, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version()),
		Rounds: o.rounds, Time: o.time.String(),
	}
	for _, measure := range []func(context.Context, *bed, options, progress) error{
		r.measureAzurite, r.measureProcesses, r.measureCells,
	} {
		if err := measure(ctx, b, o, p); err != nil {
			return r, err
		}
	}
	r.Limits = r.limits()
	return r, nil
}

// measureAzurite measures what needs Azurite, unless that is left out.
func (r *report) measureAzurite(ctx context.Context, b *bed, o options, p progress) error {
	if !o.azurite {
		return nil
	}
	if err := b.start(ctx); err != nil {
		return err
	}
	all, err := processors()
	if err != nil {
		return err
	}
	for _, apart := range []bool{false, true} {
		if apart && len(all) < 2 {
			continue
		}
		p.say("putting back into Azurite, " + reschedules{Apart: apart}.where())
		measured, err := b.intoAzurite(ctx, o.rounds, apart, p.out)
		if err != nil {
			return err
		}
		r.Reschedule = append(r.Reschedule, measured)
	}
	p.say("storage transactions, at a proxy before Azurite")
	if r.Counted, err = b.counting(ctx, p.out); err != nil {
		return err
	}
	return b.stop()
}

// measureProcesses measures what needs fresh processes; of memory nothing where the system does not tell.
func (r *report) measureProcesses(ctx context.Context, b *bed, o options, p progress) (err error) {
	if r.FloorBytes, err = fileBytes(b.floorProgram.executable); err != nil {
		return err
	}
	if r.ProductBytes, err = fileBytes(b.productProgram.executable); err != nil {
		return err
	}
	p.say("start to first answer")
	if r.Start, r.Idle, err = b.starting(ctx); err != nil || most() == 0 {
		return err
	}
	for _, h := range inFlight(o.short) {
		p.say("in flight: " + h.String())
		if h, err = b.holding(ctx, h, o.rounds); err != nil {
			return err
		}
		r.Held = append(r.Held, h)
	}
	for _, framing := range []string{withLength, inChunks} {
		p.say("in flight, within a body of 1 GiB: " + framing)
		a, err := b.answering(ctx, framing, o.rounds)
		if err != nil {
			return err
		}
		r.Answering = append(r.Answering, a)
	}
	for _, k := range []peak{{KiB: 1}, {KiB: 48}, {KiB: 1, Answer: gib}} {
		p.say("peak memory: " + k.String())
		if k, err = b.peaking(ctx, k, o.rounds, o.time); err != nil {
			return err
		}
		r.Peaks = append(r.Peaks, k)
	}
	return nil
}

// measureCells measures what one process of each program does.
func (r *report) measureCells(ctx context.Context, b *bed, o options, p progress) (err error) {
	if err := b.start(ctx); err != nil {
		return err
	}
	for _, c := range cells(o.short) {
		p.say(c.String())
		m, err := b.measure(ctx, c, o.roundsOf(c), o.time)
		if err != nil {
			return err
		}
		r.Cells = append(r.Cells, m)
	}
	p.say("dead letters")
	if r.DeadLetter, err = b.deadLetters(ctx, o.time); err != nil {
		return err
	}
	p.say("connections to storage")
	r.Connections, err = b.storm(ctx, o.time)
	return err
}
