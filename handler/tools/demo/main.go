// Demo is make run, the demo closer to Azure: it starts Azurite, the local host with the handler and a flaky target,
// and checks that messages end as expected. With -stay, it then starts the same parts with the project's files. It is
// not part of the product.
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
	"slices"
	"syscall"
	"time"

	"asynccaller/handler/internal/program/demo"
	"asynccaller/handler/internal/program/demo/target"
	"asynccaller/handler/internal/program/logview"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/testbed"
)

// The demo runs in the project's folder, where `make build` has staged the app.
const (
	dist       = "dist"
	executable = "dist/async-caller"
	// stopGrace is longer than the 10 s that the host gives messages in flight.
	stopGrace = 20 * time.Second
	// patience is how long the handler may take to start.
	patience = 50 * time.Second
)

func main() {
	stay := flag.Bool("stay", false, "keep running after the demo until Ctrl-C, for your own envelopes")
	empty := flag.Bool("empty", false, "send no messages")
	localHost := flag.String("host", "", "the stand-in for the Functions host; empty builds it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *localHost, *stay, *empty)
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
	// stay means the system that keeps running: it has the project's app and the standard ports. The system that shows
	// the demo's messages has an app, a storage account and settings of its own, so that the user's can neither fail it
	// nor change what it shows.
	stay bool
	// state is a folder for the journals of commands, app the app folder, and executable a path from anywhere.
	state, app, executable string
	// environ is the environment of host and commands.
	environ []string
	// localHost is the executable of the stand-in for the Functions host.
	localHost string
}

// run shows the demo's messages, unless there shall be none, and then keeps the project's app running if it shall stay.
func run(ctx context.Context, localHost string, stay, empty bool) error {
	if localHost == "" {
		folder, err := os.MkdirTemp("", "async-caller-host-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(folder) }()
		localHost, err = testbed.BuildHost(ctx, folder)
		if err != nil {
			return err
		}
	}
	if !empty {
		err := system{environ: demo.WithoutSettings(os.Environ()), localHost: localHost}.run(ctx)
		if err != nil {
			return err
		}
	}
	if !stay {
		return nil
	}
	return system{stay: true, environ: os.Environ(), localHost: localHost}.run(ctx)
}

func (s system) run(ctx context.Context) (err error) {
	stopping := func(stop func() error) { err = errors.Join(err, stop()) }
	s.state, err = os.MkdirTemp("", "async-caller-demo-")
	if err != nil {
		return err
	}
	defer stopping(func() error { return os.RemoveAll(s.state) })
	s.app = filepath.Join(s.state, "app")
	s.executable, err = filepath.Abs(executable)
	if err != nil {
		return err
	}
	var storagePorts azurite.Options // any that are free
	targetPort := 0
	if s.stay {
		storagePorts, targetPort = azurite.StandardPorts(), demo.TargetPort
	}
	fmt.Fprintln(os.Stderr, "Starting Azurite, the target and the local Functions host ...")
	var portInUse int
	s.azurite, portInUse, err = startAzurite(ctx, storagePorts)
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
		err := s.store.Create(ctx, envelope.QueueFor(priority))
		if err != nil {
			return err
		}
	}
	s.target, err = target.StartAt(ctx, targetPort)
	if err != nil { // another program uses the port
		s.target, err = target.Start(ctx)
	}
	if err != nil {
		return err
	}
	defer s.target.Close()
	if err := s.stage(ctx); err != nil {
		return err
	}
	var log io.Writer
	args := []string{"-http", "127.0.0.1:0"}
	if s.stay {
		log, args = logview.NewWriter(os.Stderr), nil
	}
	s.host, err = testbed.StartHost(ctx, testbed.HostOptions{
		Executable: s.localHost, AppDir: s.app, ConnectionString: s.azurite.ConnectionString, Environ: s.environ,
		Out: log, Args: args,
	})
	if err != nil {
		return err
	}
	defer stopping(func() error {
		fmt.Fprintln(os.Stderr, "Stopping everything ...")
		return s.host.Stop(stopGrace)
	})
	if err := s.ready(ctx); err != nil {
		return err
	}
	if !s.stay {
		check := s.newCheck()
		check.Ended = s.host.Done()
		err := errors.Join(check.Run(ctx), s.post(ctx))
		if err != nil {
			return errors.Join(err, s.saveLog())
		}
		return nil
	}
	fmt.Fprint(os.Stdout, invitation(s.azurite.ConnectionString, portInUse, s.target.URL))
	select {
	case <-ctx.Done():
		return nil
	case <-s.host.Done():
		return demo.ErrEnded
	}
}

// ready waits until the handler serves. A handler that ends instead is not awaited again: it would end for the same
// reason.
func (s system) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the handler was not ready within %v", patience))
	defer cancel()
	failed := func() bool { return s.host.Ended() || len(s.host.Lines("handler failed")) > 0 }
	err := testbed.Await(ctx, func() bool { return failed() || s.host.HandlerPID() != 0 })
	if err != nil || !failed() {
		return err
	}
	if !s.stay { // otherwise it has been shown
		_, _ = io.WriteString(logview.NewWriter(os.Stderr), s.host.Output())
	}
	return errors.New("the app in " + dist + " does not start; its error is above")
}

// newCheck returns the check of the app.
func (s system) newCheck() *demo.Check {
	return &demo.Check{
		Store: s.store, Target: s.target, App: s.app, Executable: s.executable, Name: executable,
		Environ: append(slices.Clip(s.environ), storage.ConnectionName+"="+s.azurite.ConnectionString,
			testbed.LoopbackAllowed, "XDG_STATE_HOME="+s.state),
		Deadline: "4s", Stdout: os.Stdout, Stderr: os.Stderr,
	}
}

// startAzurite starts Azurite on the given ports. If another program uses one of them, it starts Azurite on other ports
// only, and returns the one that is in use.
func startAzurite(ctx context.Context, o azurite.Options) (server *azurite.Server, inUse int, err error) {
	o.AnyVersion = true // senders may use a newer SDK
	inUse, _ = o.PortInUse(ctx)
	if inUse == 0 {
		server, err = azurite.Start(ctx, o)
		if err == nil {
			return server, 0, nil
		}
		inUse, _ = o.PortInUse(ctx) // a second `make run` was faster
		if inUse == 0 {
			return nil, 0, err
		}
	}
	server, err = azurite.Start(ctx, azurite.Options{AnyVersion: true})
	return server, inUse, err
}

// saveLog writes the log of host and handler to a file, and returns an error that names it.
func (s system) saveLog() error {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("async-caller-demo-%d.log", os.Getpid()))
	if err := os.WriteFile(path, []byte(s.host.Output()), 0o600); err != nil {
		return err
	}
	return fmt.Errorf("the log of host and handler is in %s", path)
}

// invitation says how to use what runs. The commands use the account of local.settings.json, which is the one on the
// standard ports, unless the environment names another.
func invitation(connectionString string, portInUse int, target func(script string) string) string {
	export, account := "", "No export is necessary: local.settings.json names this account. "+
		"If AzureWebJobsStorage is set, unset it."
	if portInUse != 0 {
		export = fmt.Sprintf("  export AzureWebJobsStorage='%s'\n", connectionString)
		account = fmt.Sprintf("The export is necessary, because another program uses port %d.", portInUse)
	}
	return fmt.Sprintf(`
Everything keeps running until Ctrl-C. In another terminal, in this folder:

%s  dist/async-caller send --url %s --body hello
  dist/async-caller send --url %s --retry 2s,10m
  dist/async-caller calls retry --state scheduled --all    # its third attempt, which is due in ten minutes
  dist/async-caller calls list --state poison

%s

Each delivery of a message prints one line here. The path of the URL is the target's answer: a status, or a list
like 503,503,200 with one for each call.
`, export, target("200"), target("503,503,200"), account)
}
