package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"asynccaller/handler/internal/queue/azure"
	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/faults/judge"
	"asynccaller/handler/tools/faults/schedule"
	"asynccaller/handler/tools/faults/storageproxy"
	"asynccaller/handler/tools/faults/target"
	"asynccaller/handler/tools/testbed"
)

const (
	mainQueue     = "async-caller"
	priorityQueue = "async-caller-1"
	// lease is how long a message of a host that was killed stays out of reach. The host renews it
	// halfway.
	lease = 6 * time.Second
	// maxDequeueCount is that of the project's host.json.
	maxDequeueCount = 5
	// stopGrace is above what the host gives messages in flight and its own requests to storage.
	stopGrace = 40 * time.Second
)

// settings make every wait short: retries after a second, calls of at most two.
var settings = []string{
	"ASYNC_CALLER_RETRY=fast",
	"ASYNC_CALLER_CALL_TIMEOUT=2s",
	"AzureFunctionsJobHost__extensions__queues__visibilityTimeout=00:00:01",
	"AzureFunctionsJobHost__extensions__queues__maxPollingInterval=00:00:00.2500000",
}

// lane is one system: Azurite, the local host with the handler, and a target, with proxies between.
type lane struct {
	name    string
	dir     string
	env     []string
	started time.Time

	store     *azure.Store
	hostSide  *storageproxy.Proxy // between the host and storage
	ourSide   *storageproxy.Proxy // between the handler and storage
	target    *target.Target
	log       *os.File
	processes *processes

	// storage is Azurite; its methods must not be called at the same time.
	storageMu sync.Mutex
	storage   *azurite.Server

	hostMu  sync.Mutex
	host    *testbed.Host
	closing bool
	tending sync.WaitGroup

	// strikes are faults that take their time.
	strikes sync.WaitGroup
	ctx     context.Context //nolint:containedctx // the life of the lane, which strikes belong to

	script    script
	unsettled unsettled
	record    record
	outage    outage
}

// openLane starts a system. What runs when it fails is in the result, to be closed.
func openLane(ctx context.Context, name, dir, executable string, env []string) (*lane, error) {
	l := &lane{name: name, dir: dir, env: append(settings, env...), started: time.Now(), ctx: ctx}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return l, err
	}
	var err error
	if l.log, err = os.Create(filepath.Join(dir, "host.log")); err != nil {
		return l, err
	}
	if l.storage, err = azurite.Start(ctx, azurite.Options{Data: filepath.Join(dir, "azurite")}); err != nil {
		return l, err
	}
	if l.store, err = testbed.OpenStore(l.storage.ConnectionString); err != nil {
		return l, err
	}
	for _, name := range []string{mainQueue, priorityQueue} {
		if err := l.store.Create(ctx, name); err != nil {
			return l, err
		}
	}
	if l.hostSide, err = storageproxy.Open(ctx, l.storage.Endpoint, hostWatch{l}); err != nil {
		return l, err
	}
	if l.ourSide, err = storageproxy.Open(ctx, l.storage.Endpoint, handlerWatch{l}); err != nil {
		return l, err
	}
	if l.target, err = target.Open(ctx, partner{l}); err != nil {
		return l, err
	}
	if err := l.stage(executable); err != nil {
		return l, err
	}
	if err := l.startHost(ctx); err != nil {
		return l, err
	}
	l.tending.Go(l.tend)
	return l, nil
}

// stage makes the app folder: the project's own files for two queues, a fast retry policy, and a script
// in the handler's place that notes its process id and gives it a way of its own to storage. By exec the
// handler takes the script's process over, so the host is its parent as always.
func (l *lane) stage(executable string) error {
	app := l.app()
	l.processes = &processes{file: filepath.Join(l.dir, "handlers"), executable: executable}
	for _, function := range []string{"AC-standard", "AC-priority01"} {
		if err := copyFile(filepath.Join("functions", function, "function.json"), filepath.Join(app, function, "function.json")); err != nil {
			return err
		}
	}
	if err := copyFile("host.json", filepath.Join(app, "host.json")); err != nil {
		return err
	}
	wrapper := fmt.Sprintf("#!/bin/sh\necho $$ >>'%s'\nexport AzureWebJobsStorage='%s'\nexec '%s' \"$@\"\n",
		l.processes.file, l.ourSide.Through(l.storage.ConnectionString), executable)
	return errors.Join(
		os.WriteFile(filepath.Join(app, "retry.json"), []byte(`{"fast":{"schedule":["1s"]}}`), 0o600),
		os.WriteFile(filepath.Join(app, "async-caller"), []byte(wrapper), 0o700),
	)
}

func (l *lane) app() string { return filepath.Join(l.dir, "app") }

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("run this in the project's folder: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o600)
}

func (l *lane) startHost(ctx context.Context) error {
	l.hostMu.Lock()
	defer l.hostMu.Unlock()
	if l.closing {
		return nil
	}
	host, err := testbed.StartHost(context.WithoutCancel(ctx), testbed.HostOptions{
		Executable: l.processes.executable, AppDir: l.app(), ConnectionString: l.hostSide.Through(l.storage.ConnectionString),
		Env: l.env, Args: []string{"--lease", lease.String(), "--max-handler-errors", "-1"},
		Out: l.log, Forget: true,
	})
	if err != nil {
		return err
	}
	l.host = host
	return nil
}

// tend starts the host again whenever it has ended, until the lane is closed.
func (l *lane) tend() {
	for {
		l.hostMu.Lock()
		host, closing := l.host, l.closing
		l.hostMu.Unlock()
		if closing {
			return
		}
		<-host.Done()
		if err := l.startHost(l.ctx); err != nil {
			l.record.trouble(fmt.Errorf("starting the host again: %w", err))
			return
		}
	}
}

// currentHost is the host that runs, or has just ended.
func (l *lane) currentHost() *testbed.Host {
	l.hostMu.Lock()
	defer l.hostMu.Unlock()
	return l.host
}

// now is the time of an event.
func (l *lane) now() time.Duration { return time.Since(l.started) }

func (l *lane) note(e judge.Event) {
	e.At = l.now()
	l.record.add(e)
}

// stop stops the host in good order, for the last time.
func (l *lane) stop() error {
	l.hostMu.Lock()
	host := l.host
	l.closing = true
	l.hostMu.Unlock()
	if host == nil {
		return nil
	}
	select {
	case <-host.Done(): // by a fault, and not started again
		l.tending.Wait()
		return nil
	default:
	}
	err := host.Stop(stopGrace)
	l.tending.Wait()
	return err
}

// close stops what runs. Its error says what was left: processes and connections.
func (l *lane) close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	l.strikes.Wait()
	errs := []error{l.stop()}
	if l.processes != nil {
		errs = append(errs, l.processes.awaitEnd(ctx))
	}
	if l.store != nil {
		l.store.Close()
	}
	for _, d := range []struct {
		what string
		door interface {
			Connections() int
			Close() error
		}
		open bool
	}{
		{"the host's storage proxy", l.hostSide, l.hostSide != nil},
		{"the handler's storage proxy", l.ourSide, l.ourSide != nil},
		{"the target", l.target, l.target != nil},
	} {
		if d.open {
			errs = append(errs, awaitNone(ctx, d.what, d.door.Connections), d.door.Close())
		}
	}
	if l.storage != nil {
		errs = append(errs, l.storage.Stop())
	}
	if l.log != nil {
		errs = append(errs, l.log.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	return nil
}

// leakLimit is how long the connections of processes that have ended may stay open.
const leakLimit = 10 * time.Second

func awaitNone(ctx context.Context, what string, count func() int) error {
	ctx, cancel := context.WithTimeout(ctx, leakLimit)
	defer cancel()
	if testbed.Await(ctx, func() bool { return count() == 0 }) != nil {
		return fmt.Errorf("%d connections are left at %s", count(), what)
	}
	return nil
}

// record is what was seen on a lane since it was last taken.
type record struct {
	mu       sync.Mutex
	events   []judge.Event
	struck   map[schedule.Action]int
	troubles []error
}

func (r *record) add(e judge.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// strike counts a fault that was injected.
func (r *record) strike(a schedule.Action) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.struck == nil {
		r.struck = map[schedule.Action]int{}
	}
	r.struck[a]++
}

// trouble keeps an error of the harness's own.
func (r *record) trouble(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.troubles = append(r.troubles, err)
}

func (r *record) take() (events []judge.Event, struck map[schedule.Action]int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	events, struck, err = r.events, r.struck, errors.Join(r.troubles...)
	r.events, r.struck, r.troubles = nil, nil, nil
	return events, struck, err
}

// outage is a time during which storage answers nobody.
type outage struct {
	mu    sync.Mutex
	until time.Time
	order storageproxy.Order
}

func (o *outage) begin(length time.Duration, order storageproxy.Order) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.until, o.order = time.Now().Add(length), order
}

func (o *outage) now() (storageproxy.Order, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.order, time.Now().Before(o.until)
}
