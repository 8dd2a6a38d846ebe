// Bench measures what the handler itself costs, beside a floor: the least that a custom handler can do,
// which is to hand on what it gets (handler/bench/floor). Both run as the Functions host starts them and
// take the same invocations, in turn, so that what disturbs one disturbs the other. Ratios inside a run
// mean something; rates of two machines do not compare.
//
// Measured are invocations a second, latency and CPU time, for small and large messages, both data types,
// and targets that take or refuse; the time to the first answer; memory when idle and with calls in flight;
// transactions and connections to storage.
//
// Target and storage are part of this process and answer at once. So what shows is only the handler's own
// cost: not the network's, not TLS, not Queue Storage's time, and not the Functions host's, which all cost
// more. The handler logs as shipped, to the null device. Load, target and storage use the same processors
// as what is measured, which keeps ratios nearer to 1 than they are for a processor of its own; CPU time
// is of the program alone.
//
// It is a tool of the Makefile's (make bench, make bench-short) and no part of the product.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	short  bool
	rounds int
	time   time.Duration
	json   bool
}

func main() {
	var o options
	flag.BoolVar(&o.short, "short", false, "only 24 invocations at a time, in less than two minutes")
	flag.IntVar(&o.rounds, "rounds", 0, "rounds of each cell; 0 is 5, or 3 with -short")
	flag.DurationVar(&o.time, "time", 0, "time of each program in a round; 0 is 2s, or 700ms with -short")
	flag.BoolVar(&o.json, "json", false, "report as JSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, ".", o.complete(), os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// complete fills in what no flag says.
func (o options) complete() options {
	rounds, length := 5, 2*time.Second
	if o.short {
		rounds, length = 3, 700*time.Millisecond
	}
	o.rounds, o.time = cmp.Or(max(o.rounds, 0), rounds), cmp.Or(max(o.time, 0), length)
	return o
}

// run measures all in the project's folder and reports when nothing went wrong.
func run(ctx context.Context, project string, o options, out, talk io.Writer) (err error) {
	work, err := os.MkdirTemp("", "async-caller-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	p := progress{talk, time.Now()}
	p.say("building")
	b, err := newBed(ctx, project, work, talk)
	if err != nil {
		return err
	}
	r, err := measureAll(ctx, b, o, p)
	if err := errors.Join(err, b.close()); err != nil {
		return err
	}
	if !o.json {
		r.print(out)
		return nil
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

func measureAll(ctx context.Context, b *bed, o options, p progress) (r report, err error) {
	r = report{
		System: fmt.Sprintf("%s/%s, %d processors, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version()),
		Rounds: o.rounds, Time: o.time.String(),
	}
	p.say("start to first answer")
	if r.Start, r.Idle, err = b.starting(ctx); err != nil {
		return r, err
	}
	if r.Held, err = b.allHeld(ctx, o, p); err != nil {
		return r, err
	}
	if err := b.start(ctx); err != nil {
		return r, err
	}
	for _, c := range cells(o.short) {
		p.say(c.String())
		m, err := b.measure(ctx, c, o.rounds, o.time)
		if err != nil {
			return r, err
		}
		r.Cells = append(r.Cells, m)
	}
	p.say("connections to storage")
	if r.Connections, err = b.storm(ctx, o.time); err != nil {
		return r, err
	}
	var floorErr, productErr error
	r.FloorBytes, floorErr = fileBytes(b.floorProgram.executable)
	r.ProductBytes, productErr = fileBytes(b.productProgram.executable)
	return r, errors.Join(floorErr, productErr)
}

// allHeld measures the memory of calls in flight; nothing where the system does not tell.
func (b *bed) allHeld(ctx context.Context, o options, p progress) (all []held, err error) {
	if most() == 0 {
		return nil, nil
	}
	calls := []int{1000, 10000}
	if o.short {
		calls = calls[:1]
	}
	for _, n := range calls {
		for _, kib := range []int{1, 48} {
			p.say(fmt.Sprintf("%d calls of %d KiB in flight", n, kib))
			h, err := b.holding(ctx, n, kib)
			if err != nil {
				return nil, err
			}
			all = append(all, h)
		}
	}
	return all, nil
}

// progress tells what is being measured.
type progress struct {
	out   io.Writer
	begin time.Time
}

func (p progress) say(what string) {
	fmt.Fprintf(p.out, "%6s  %s\n", time.Since(p.begin).Round(time.Second), what)
}
