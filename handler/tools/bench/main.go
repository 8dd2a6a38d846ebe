// Bench measures what the handler itself costs, beside a floor: the least that a custom handler can do,
// which is to hand on as many bytes as the handler would (handler/tools/bench/floor). Both run as the Functions
// host starts them and take the same invocations, in turn, so that what disturbs one disturbs the other.
// Ratios inside a run mean something; rates of two machines do not compare.
//
// Measured are invocations a second, latency and CPU time, for small and large messages, both data types,
// and targets that take or refuse; the time to the first answer; memory when idle, with calls in flight and
// at most; transactions and connections to storage. Every run ends with a table of the limits that the
// handler is to keep.
//
// Both programs move the same bytes. The headers of an invocation tell the floor how long the product's
// call is and, where the target answers 503, how long its Put Message is: the floor then makes one more
// POST of as many bytes to a storage account of its own, which is counted apart. A run in which a program
// moves other bytes, or makes other calls, ends with an error.
//
// Target and storage are part of this process and answer at once. So what shows is only the handler's own
// cost: not the network's, not TLS, not Queue Storage's time, and not the Functions host's, which all cost
// more. The handler logs as shipped, to the null device. Load, target and storage use the same processors
// as what is measured, which keeps ratios nearer to 1 than they are for a processor of its own; CPU time
// is of the program alone. Two parts have a real storage account, Azurite's. There the rate of putting back
// stands beside that of the SDK's EnqueueMessage alone, with the same message; on Linux it is measured once
// more with Azurite apart, on a processor of its own. And a proxy before Azurite counts the transactions
// that a message takes, as the stub does.
//
// Flags: -short measures only 24 invocations at a time, in less than three minutes; the whole takes less
// than fifteen. -rounds and -time say how often and how long, -azurite=false leaves out what needs Node.js,
// -json reports as JSON, and -strict ends with 1 when a limit is not met.
//
// It is a tool of the Makefile's (make bench, make bench-short) and no part of the product.
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
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	short   bool
	rounds  int
	time    time.Duration
	azurite bool
	json    bool
	strict  bool
}

func main() {
	var o options
	flag.BoolVar(&o.short, "short", false, "only 24 invocations at a time, in less than three minutes")
	flag.IntVar(&o.rounds, "rounds", 0, "rounds of each cell, three times as many of those with a limit; 0 is 15, or 5 with -short")
	flag.DurationVar(&o.time, "time", 0, "time of each program in a round; 0 is 500ms")
	flag.BoolVar(&o.azurite, "azurite", true, "measure with Azurite too, which needs Node.js")
	flag.BoolVar(&o.json, "json", false, "report as JSON")
	flag.BoolVar(&o.strict, "strict", false, "end with 1 when a limit is not met")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, ".", o.complete(), os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// complete fills in what no flag says. Rounds are many and brief, because a machine has its moods, and what is
// compared should have been measured in the same one.
func (o options) complete() options {
	rounds := 15
	if o.short {
		rounds = 5
	}
	o.rounds, o.time = cmp.Or(max(o.rounds, 0), rounds), cmp.Or(max(o.time, 0), 500*time.Millisecond)
	return o
}

// judgedTimes is how many times as often a judged cell is measured, so that what its median owes to chance is not
// what decides.
const judgedTimes = 3

// roundsOf is how often a cell is measured.
func (o options) roundsOf(c cell) int {
	if c.judged() {
		return judgedTimes * o.rounds
	}
	return o.rounds
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
	p.say("done")
	if err := r.write(out, o.json); err != nil {
		return err
	}
	if o.strict {
		return missed(r.Limits)
	}
	return nil
}

// progress tells what is being measured.
type progress struct {
	out   io.Writer
	begin time.Time
}

func (p progress) say(what string) {
	fmt.Fprintf(p.out, "%6s  %s\n", time.Since(p.begin).Round(time.Second), what)
}
