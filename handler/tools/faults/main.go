//go:build unix

// Faults checks that no message is lost. It runs the real executable under the local host against Azurite, with proxies
// between them, kills and breaks parts at every step of the message flow, and judges what happened to each message.
// docs/reliability.md describes the method and the results. `make faults` and `make faults-long` run it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"asynccaller/handler/tools/testbed"
)

// options are the flags.
type options struct {
	seed       uint64
	schedules  int
	time       time.Duration
	systems    int
	outage     bool
	later      bool
	long       int
	executable string
	localHost  string // the stand-in for the Functions host
	// tables are the states of the table service, spread over the systems.
	tables []tableState
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 0, "seed of the plan; 0 draws one")
	flag.IntVar(&o.schedules, "schedules", 250, "number of schedules to run")
	flag.DurationVar(&o.time, "time", 10*time.Minute, "start no schedule after this time")
	flag.IntVar(&o.systems, "systems", 12, "number of systems that run in parallel")
	flag.BoolVar(&o.outage, "outage", true,
		"in one schedule, storage is down for longer than the handler retries a settle write")
	flag.BoolVar(&o.later, "later", true,
		"in one schedule of six, messages wait 30 s, so that they are recorded in the table")
	flag.IntVar(&o.long, "long", 0,
		"instead of schedules: send this many messages through one system and kill its processes every few seconds")
	flag.StringVar(&o.executable, "executable", "", "async-caller to test; empty builds it")
	o.tables = tableStates
	flag.Func("table", `table service: healthy, stopped, slow, refusing or all, spread over the systems `+
		`(default "all")`, func(text string) (err error) {
		o.tables, err = parseTable(text)
		return err
	})
	flag.Parse()
	if o.seed == 0 {
		o.seed = uint64(rand.Uint32())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out, messages io.Writer) (err error) {
	work, err := os.MkdirTemp("", "async-caller-faults-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\nlogs and events are in %s", err, work)
			return
		}
		err = os.RemoveAll(work)
	}()
	o.executable, err = executable(ctx, o.executable, work)
	if err != nil {
		return err
	}
	o.localHost, err = testbed.BuildHost(ctx, work)
	if err != nil {
		return err
	}
	begin := time.Now()
	r := &result{messages: messages, begin: begin, shown: begin}
	if o.long > 0 {
		runLong(ctx, o, work, r)
	} else {
		runSchedules(ctx, o, work, r)
	}
	fmt.Fprintf(out, "seed        %d\nschedules   %d in %v\n", o.seed, r.schedules, time.Since(begin).
		Round(time.Second))
	r.print(out)
	switch {
	case !r.verdict.OK():
		return errors.New("messages were lost, or something happened that no fault explains")
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case o.later && o.long == 0:
		r.fail(r.checkTables())
	}
	return errors.Join(r.errs...)
}

// executable builds async-caller, unless one is given.
func executable(ctx context.Context, given, work string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	path, err := testbed.Build(ctx, work)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path) // /proc shows a path without links
}
