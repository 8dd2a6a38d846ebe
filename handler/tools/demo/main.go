// Demo shows the whole product at work on this machine: it starts Azurite, the local host with the
// handler, and a flaky target; sends envelopes with the command line, and reports what became of each.
// It is a tool of the Makefile's (make demo, make run) and no part of the product.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/term"

	"asynccaller/handler/internal/logs"
	"asynccaller/handler/internal/queue/azure"
	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/testbed"
)

// The demo runs in the project's folder, where `make build` has staged the app.
const (
	appDir     = "dist"
	executable = "dist/async-caller"
	// patience is how long all scenarios together may take; the slowest takes about 6 s.
	patience = 50 * time.Second
	// stopGrace is above the 10 s that the host gives messages in flight.
	stopGrace = 20 * time.Second
)

func main() {
	stay := flag.Bool("stay", false, "stay up after the demo until Ctrl-C, for envelopes of your own")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := 0
	if err := run(ctx, os.Stdout, os.Stderr, *stay); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		code = 1
	}
	stop()
	os.Exit(code)
}

// parts is everything that runs during the demo.
type parts struct {
	azurite *azurite.Server
	store   *azure.Store
	target  *testbed.Target
	host    *testbed.Host
}

func run(ctx context.Context, out, talk io.Writer, stay bool) (err error) {
	work, err := os.MkdirTemp("", "async-caller-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()

	p, err := start(ctx, talk, filepath.Join(work, "azurite"), stay)
	defer func() { err = errors.Join(err, p.stop(talk)) }()
	if err != nil {
		return err
	}
	fmt.Fprintln(talk, "Sending six messages, each with another fate ...")
	rows, err := play(ctx, p)
	if err != nil {
		return errors.Join(err, p.explain())
	}
	report(out, rows, colourful(out))
	if failed := count(rows, func(r row) bool { return !r.ok }); failed > 0 {
		return errors.Join(fmt.Errorf("%d of %d messages ended otherwise than they should", failed, len(rows)), p.explain())
	}
	if stay {
		invite(out, p)
		<-ctx.Done()
	}
	return nil
}

// start starts the parts one after the other. What runs when it fails is in the result, to be stopped.
func start(ctx context.Context, talk io.Writer, data string, stay bool) (p parts, err error) {
	fmt.Fprintln(talk, "Installing Azurite if needed (npm, the first time about half a minute) ...")
	if err := azurite.Install(ctx, talk); err != nil {
		return p, err
	}
	fmt.Fprintln(talk, "Starting Azurite, the target and the local Functions host ...")
	if p.azurite, err = azurite.Start(ctx, azurite.Options{Data: data}); err != nil {
		return p, err
	}
	if p.store, err = testbed.OpenStore(p.azurite.ConnectionString); err != nil {
		return p, err
	}
	if p.target, err = testbed.NewTarget(ctx); err != nil {
		return p, err
	}
	var log io.Writer
	if stay {
		log = logs.Readable(talk)
	}
	p.host, err = testbed.StartHost(ctx, testbed.HostOptions{
		Executable: executable, AppDir: appDir, ConnectionString: p.azurite.ConnectionString, Out: log,
	})
	return p, err
}

func (p parts) stop(talk io.Writer) error {
	fmt.Fprintln(talk, "Stopping everything ...")
	var errs []error
	if p.host != nil {
		errs = append(errs, p.host.Stop(stopGrace))
	}
	if p.target != nil {
		p.target.Close()
	}
	if p.store != nil {
		p.store.Close()
	}
	if p.azurite != nil {
		errs = append(errs, p.azurite.Stop())
	}
	return errors.Join(errs...)
}

// explain keeps what host and handler logged where a person can read it.
func (p parts) explain() error {
	file, err := os.CreateTemp("", "async-caller-demo-*.log")
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.WriteString(p.host.Output()); err != nil {
		return err
	}
	return fmt.Errorf("the log of host and handler is in %s", file.Name())
}

func invite(out io.Writer, p parts) {
	fmt.Fprintf(out, `
Everything stays up until Ctrl-C. In another terminal, in this folder:

  export AzureWebJobsStorage='%s'
  dist/async-caller send --url %s --body hello
  dist/async-caller send --url %s --retry 2s,5s

The number in the URL is what the target answers; a list such as 503,503,200 is answered call by call.
`, p.azurite.ConnectionString, p.target.URL("200"), p.target.URL("503,503,200"))
}

func colourful(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) && os.Getenv("NO_COLOR") == ""
}
