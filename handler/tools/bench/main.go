//go:build unix

// Bench measures the handler's own cost and judges the limits in docs/performance.md. It compares the handler's rate
// with that of the floor (handler/tools/bench/floor), the simplest possible custom handler, and measures memory per call
// in flight, the time from start to first answer, storage transactions and connections, and rescheduling into Azurite
// compared with the storage SDK alone, and what a table service in trouble changes. It measures with the local host how
// targets that hang slow down others.
//
// Floor and handler run as the Functions host starts them. They take the same invocations in turn and send the same bytes
// to the same target, which is part of this process. A run in which a call is missing or has other bytes ends with
// an error. Only ratios within a run are comparable, not rates of two machines or two days.
//
// `make bench` and `make bench-short` run it. Memory is measured on Linux only.
package main

import (
	"cmp"
	"context"
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
	short, json, strict bool
	// rounds is the number of rounds of each measurement. Rates have rateRounds times as many, in which floor and handler
	// take time each.
	rounds int
	time   time.Duration
	// trouble is how long targets hang; window is how long calls that take long are counted.
	trouble, window time.Duration
	// only is the measurement to make; all if it is empty.
	only string
}

func main() {
	var o options
	flag.BoolVar(&o.short, "short", false, "fewer rounds, and targets that hang for less time: five minutes")
	flag.BoolVar(&o.json, "json", false, "report as JSON")
	flag.BoolVar(&o.strict, "strict", false, "exit with 1 if a limit is not met")
	flag.StringVar(&o.only, "only", "", "measure only rates, memory, storage, table or isolation")
	flag.DurationVar(&o.trouble, "trouble", 0, "how long targets hang (default 5m, 25s if short)")
	flag.Parse()
	trouble := 5 * time.Minute
	o.rounds, o.time, o.window = 15, 500*time.Millisecond, 30*time.Second
	if o.short {
		o.rounds, o.window, trouble = 5, 9*time.Second, 25*time.Second
	}
	o.trouble = cmp.Or(o.trouble, trouble)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, ".", o, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures in the project's folder and writes the report. Rounds are short and many because the speed of a machine
// changes, and floor and handler should meet the same speed.
func run(ctx context.Context, project string, o options, out, messages io.Writer) (err error) {
	b := &bench{options: o, project: project, messages: messages, begin: time.Now()}
	r := report{System: fmt.Sprintf("%s/%s, %d processors, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())}
	measures, err := b.measures()
	if err != nil {
		return err
	}
	b.say("building")
	err = b.setUp(ctx)
	for _, measure := range measures {
		if err == nil {
			err = measure(ctx, &r)
		}
	}
	err = errors.Join(err, b.tearDown())
	b.say("done")
	if err := errors.Join(err, r.write(out, o.json)); err != nil || !o.strict { // a run takes long: show what was measured
		return err
	}
	return r.missed()
}

// measures returns the measurements to make.
func (b *bench) measures() ([]func(context.Context, *report) error, error) {
	switch b.only {
	case "":
		return []func(context.Context, *report) error{b.measureRates, b.measureMemory, b.measureIsolation, b.measureStorage, b.measureTable, b.measureStart}, nil
	case "rates":
		return []func(context.Context, *report) error{b.measureRates}, nil
	case "memory":
		return []func(context.Context, *report) error{b.measureMemory}, nil
	case "storage":
		return []func(context.Context, *report) error{b.measureStorage}, nil
	case "table":
		return []func(context.Context, *report) error{b.measureTable}, nil
	case "isolation":
		return []func(context.Context, *report) error{b.measureIsolation}, nil
	}
	return nil, fmt.Errorf("-only %s: it is none of rates, memory, storage, table and isolation", b.only)
}

// say prints what is being measured.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.messages, "%6s  %s\n", time.Since(b.begin).Round(time.Second), fmt.Sprintf(format, args...))
}
