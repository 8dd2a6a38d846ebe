// Faults shows that nothing is lost: it runs the real executable under the local host against Azurite,
// with proxies between them, cuts the power at every step of a message's way, and judges what became of
// each message. docs/reliability.md says how and with what results. It is a tool of the Makefile's
// (make faults, make faults-long) and no part of the product.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/term"

	"asynccaller/handler/tools/azurite"
)

// options are the flags.
type options struct {
	seed       uint64
	schedules  int
	time       time.Duration
	lanes      int
	outage     bool
	long       int
	calm       bool
	json       bool
	executable string
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 0, "plan of the run; 0 draws one")
	flag.IntVar(&o.schedules, "schedules", 250, "schedules to run")
	flag.DurationVar(&o.time, "time", 10*time.Minute, "begin no schedule after this time")
	flag.IntVar(&o.lanes, "lanes", 10, "systems that run side by side")
	flag.BoolVar(&o.outage, "outage", true, "one of the schedules has storage away for longer than a settle write is tried")
	flag.IntVar(&o.long, "long", 0, "instead of schedules: so many messages through one system, killed every few seconds")
	flag.BoolVar(&o.calm, "calm", false, "with -long: kill nothing, to see the memory of one handler over all messages")
	flag.BoolVar(&o.json, "json", false, "report as JSON")
	flag.StringVar(&o.executable, "executable", "", "async-caller to try; empty builds it")
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

// errFound says that the product, and not the run, has failed.
var errFound = errors.New("messages were lost, or something happened that no fault explains")

func run(ctx context.Context, o options, out, talk io.Writer) (err error) {
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
	if o.executable, err = executable(ctx, o.executable, work, talk); err != nil {
		return err
	}
	if err := azurite.Install(ctx, talk); err != nil {
		return err
	}
	goroutines := countGoroutines()
	begin := time.Now()
	p := newProgress(talk)
	var r result
	if o.long > 0 {
		r = runLong(ctx, o, work, p)
	} else {
		r = runSchedules(ctx, o, work, p)
	}
	r.Took = time.Since(begin).Round(time.Second).String()
	p.end()
	r.trouble(goroutines.back(ctx))
	if o.json {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(r); err != nil {
			return err
		}
	} else {
		r.print(out)
	}
	switch {
	case !r.Verdict.OK():
		return errFound
	case len(r.Troubles) > 0:
		return errors.New("the run itself is in trouble")
	case ctx.Err() != nil:
		return errors.New("interrupted")
	}
	return nil
}

// executable builds async-caller as `make build` does, unless there is one to try.
func executable(ctx context.Context, given, work string, talk io.Writer) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	path := filepath.Join(work, "async-caller")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path, "./handler")
	build.Stdout, build.Stderr = talk, talk
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("building async-caller: %w", err)
	}
	// Links are resolved so that it compares equal to what the system says a process runs.
	return filepath.EvalSymlinks(path)
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
