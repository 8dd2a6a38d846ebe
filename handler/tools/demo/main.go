// Demo shows the product at work on this machine: it starts Azurite, the local host with the handler and a
// flaky target, sends envelopes with the command line, and prints what happened to each. It serves the
// Makefile (make demo, make run) and is not part of the product.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"asynccaller/handler/internal/logview"
	"asynccaller/handler/internal/send"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/target"
	"asynccaller/handler/tools/testbed"
)

// The demo runs in the project's folder, where `make build` has staged the app.
const (
	appDir     = "dist"
	executable = "dist/async-caller"
	// stopGrace is longer than the 10 s that the host gives messages in flight.
	stopGrace = 20 * time.Second
)

func main() {
	stay := flag.Bool("stay", false, "keep running after the demo until Ctrl-C, for your own envelopes")
	empty := flag.Bool("empty", false, "send no messages")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *stay, *empty)
	interrupted := ctx.Err() != nil
	stop()
	if *stay && interrupted {
		return // Ctrl-C is how to end it
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// system has all parts that run during the demo.
type system struct {
	azurite *azurite.Server
	store   *azure.Queues
	target  *target.Target
	host    *testbed.Host
	// state is a folder for the journals of commands.
	state string
}

func run(ctx context.Context, stay, empty bool) (err error) {
	var s system
	stopping := func(stop func() error) { err = errors.Join(err, stop()) }
	s.state, err = os.MkdirTemp("", "async-caller-demo-")
	if err != nil {
		return err
	}
	defer stopping(func() error { return os.RemoveAll(s.state) })
	var queuePort, targetPort int // any that is free
	if stay {
		queuePort, targetPort = free(ctx, queuePortIfFree), free(ctx, targetPortIfFree)
	}
	fmt.Fprintln(os.Stderr, "Starting Azurite, the target and the local Functions host ...")
	// Senders of make run may use a newer SDK.
	s.azurite, err = azurite.Start(ctx, azurite.Options{Port: queuePort, AnyVersion: true})
	if err != nil {
		return err
	}
	defer stopping(s.azurite.Stop)
	s.store, err = testbed.OpenStore(s.azurite.ConnectionString)
	if err != nil {
		return err
	}
	defer s.store.Close()
	for priority := range 11 { // the host warns of each queue that does not exist
		if err := s.store.Create(ctx, send.QueueFor(priority)); err != nil {
			return err
		}
	}
	s.target, err = target.StartAt(ctx, targetPort)
	if err != nil {
		return err
	}
	defer s.target.Close()
	var log io.Writer
	if stay {
		log = logview.NewWriter(os.Stderr)
	}
	s.host, err = testbed.StartHost(ctx, testbed.HostOptions{
		Executable: executable, AppDir: appDir, ConnectionString: s.azurite.ConnectionString, Out: log,
	})
	if err != nil {
		return err
	}
	defer stopping(func() error {
		fmt.Fprintln(os.Stderr, "Stopping everything ...")
		return s.host.Stop(stopGrace)
	})

	if !empty {
		if err := s.show(ctx); err != nil {
			return errors.Join(err, s.saveLog())
		}
	}
	if stay {
		fmt.Fprintf(os.Stdout, invitation, s.azurite.ConnectionString, s.target.URL("200"), s.target.URL("503,503,200"))
		<-ctx.Done()
	}
	return nil
}

// show sends the messages and prints what happened to each.
func (s system) show(ctx context.Context) error {
	played := step("Sending six messages that end in different ways, which takes about six seconds")
	rows, err := s.play(ctx)
	played()
	if err != nil {
		return err
	}
	if unexpected := report(os.Stdout, rows); unexpected > 0 {
		return fmt.Errorf("%d of %d messages did not end as expected", unexpected, len(rows))
	}
	defer step("Sending a message that waits ten minutes, and running it now, which takes about three seconds")()
	return s.runEarly(ctx, os.Stdout)
}

// The ports of `make run`: those of Azurite and of a target, so that commands in a shell's history work the next time.
const (
	queuePortIfFree  = 10001
	targetPortIfFree = 8099
)

// free returns the port, or 0 if another program uses it.
func free(ctx context.Context, port int) int {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return 0
	}
	_ = listener.Close()
	return port
}

// stepEvery is how often a step that takes long says so.
const stepEvery = 5 * time.Second

// step says what the demo does, and how long it has been at it, until the returned function is called.
func step(text string) (done func()) {
	fmt.Fprintln(os.Stderr, text, "...")
	ended := make(chan struct{})
	began := time.Now()
	go func() {
		tick := time.NewTicker(stepEvery)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				fmt.Fprintf(os.Stderr, "  ... %.0f s\n", time.Since(began).Seconds())
			}
		}
	}()
	return func() { close(ended) }
}

// saveLog writes the log of host and handler to a file, and returns an error that names it.
func (s system) saveLog() error {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("async-caller-demo-%d.log", os.Getpid()))
	if err := os.WriteFile(path, []byte(s.host.Output()), 0o600); err != nil {
		return err
	}
	return fmt.Errorf("the log of host and handler is in %s", path)
}

const invitation = `
Everything keeps running until Ctrl-C. In another terminal, in this folder:

  export AzureWebJobsStorage='%s'
  dist/async-caller send --url %s --body hello
  dist/async-caller send --url %s --retry 2s,10m
  dist/async-caller scheduled expedite --all    # its third attempt, which is due in ten minutes
  dist/async-caller poison list

Each delivery of a message prints one line here. The path of the URL is the target's answer: a status, or a list
like 503,503,200 with one for each call.
`
