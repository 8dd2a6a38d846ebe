//go:build unix

// Bench measures the handler's own cost and judges the limits in docs/performance.md. It compares the handler's rate
// with that of the floor (handler/tools/bench/floor), the simplest possible custom handler, and measures memory per call
// in flight, the time from start to first answer, storage transactions and connections, and rescheduling into Azurite
// compared with the storage SDK alone.
//
// Floor and handler run as the Functions host starts them. They take the same invocations in turn and send the same bytes
// to the same target, which is part of this process. A run in which a call is missing or has other bytes ends with
// an error. Only ratios within a run are comparable, not rates of two machines or two days.
//
// `make bench` and `make bench-short` run it. Memory is measured on Linux only.
package main

import (
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
}

func main() {
	var o options
	flag.BoolVar(&o.short, "short", false, "fewer rounds: less than two minutes")
	flag.BoolVar(&o.json, "json", false, "report as JSON")
	flag.BoolVar(&o.strict, "strict", false, "exit with 1 if a limit is not met")
	flag.Parse()
	o.rounds, o.time = 15, 500*time.Millisecond
	if o.short {
		o.rounds = 5
	}
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
	b := &bench{options: o, messages: messages, begin: time.Now()}
	r := report{System: fmt.Sprintf("%s/%s, %d processors, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())}
	b.say("building")
	err = b.setUp(ctx, project)
	for _, measure := range []func(context.Context, *report) error{b.measureRates, b.measureMemory, b.measureStorage, b.measureStart} {
		if err == nil {
			err = measure(ctx, &r)
		}
	}
	if err := errors.Join(err, b.tearDown()); err != nil {
		return err
	}
	b.say("done")
	if err := r.write(out, o.json); err != nil || !o.strict {
		return err
	}
	return r.missed()
}

// say prints what is being measured.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.messages, "%6s  %s\n", time.Since(b.begin).Round(time.Second), fmt.Sprintf(format, args...))
}
