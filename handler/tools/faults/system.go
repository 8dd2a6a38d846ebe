//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/program/demo/target"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/faults/judge"
	"asynccaller/handler/tools/storageproxy"
	"asynccaller/handler/tools/testbed"
)

const (
	mainQueue     = "async-caller"
	priorityQueue = "async-caller-1"
	// lease is how long a message is invisible after its host was killed. The host renews it halfway.
	lease = 6 * time.Second
	// maxDequeueCount is that of the project's host.json.
	maxDequeueCount = 5
	// stopGrace is longer than the host waits for messages in flight and for its requests to storage.
	stopGrace = 40 * time.Second
	// leakLimit is how long connections and goroutines may outlive their processes.
	leakLimit = 10 * time.Second
)

// queues are the main queues.
var queues = [...]string{mainQueue, priorityQueue}

// settings make every wait short: retries after a second, calls of at most two. In Production a wrong setting does not
// end the handler.
var settings = [...]string{
	"AZURE_FUNCTIONS_ENVIRONMENT=Production",
	"ASYNC_CALLER_RETRY=fast",
	"ASYNC_CALLER_CALL_TIMEOUT=2s",
	"AzureFunctionsJobHost__extensions__queues__visibilityTimeout=00:00:01",
	"AzureFunctionsJobHost__extensions__queues__maxPollingInterval=00:00:00.2500000",
}

// The profile of all targets: limits so tight that they refuse many calls, or none for a long run and while the table
// does not answer, because limits would leave almost no calls then. The waits are as short as the others.
const (
	limits    = `"concurrency": 4, "rate": {"limit": "200/s", "burst": 8}, `
	limited   = `{"*": {` + limits + breaker + `}}`
	unlimited = `{"*": {` + breaker + `}}`
	breaker   = `"breaker": {"failures": 2, "minDelay": "1s", "maxDelay": "3s"}`
)

// setup is what differs between systems.
type setup struct {
	// executable is async-caller, and localHost the stand-in for the Functions host.
	executable, localHost string
	// setting and history are settings of the handler, profile is that of all targets.
	setting, history, profile string
	table                     tableState
}

// system is a whole system: Azurite, the local host with the handler, and a target, with proxies between them.
type system struct {
	setup

	dir     string
	started time.Time
	// ctx ends the faults that take time.
	ctx context.Context //nolint:containedctx // faults belong to the life of the system
	// stops has what stop does, in reverse order.
	stops []func(context.Context) error

	store                   *azure.Queues
	hostProxy, handlerProxy *storageproxy.Proxy // between host or handler and storage
	tableProxy              *storageproxy.Proxy // between handler and table service
	target                  *target.Server
	log                     *os.File
	processes               *processes

	// storageMu is held while Azurite restarts.
	storageMu sync.Mutex
	storage   *azurite.Server

	hostMu   sync.Mutex
	host     *testbed.Host
	stopping bool
	tending  sync.WaitGroup

	// deploying is held during a bad deploy.
	deploying sync.Mutex
	// injecting are faults that take time.
	injecting sync.WaitGroup
	script    script
	unsettled unsettled
	held      held
	outage    outage
	recorders recorders
	result    *result

	eventsMu sync.Mutex
	events   []judge.Event
}

// startSystem starts a system. Even after an error the caller stops the result.
func startSystem(ctx context.Context, dir string, c setup, r *result) (*system, error) {
	s := &system{setup: c, dir: dir, started: time.Now(), ctx: ctx, result: r}
	for _, start := range []func() error{s.startStorage, s.startProxies, s.stage, s.startHost} {
		if err := start(); err != nil {
			return s, err
		}
	}
	s.tending.Go(s.tend)
	s.stops = append(s.stops, s.stopHost)
	return s, nil
}

// stop stops all parts of the system. The error says which processes and connections were left.
func (s *system) stop(ctx context.Context) (err error) {
	ctx = context.WithoutCancel(ctx)
	s.injecting.Wait()
	for i := range s.stops {
		err = errors.Join(err, s.stops[len(s.stops)-1-i](ctx))
	}
	return err
}

// stage makes the app folder: the project's own files for two queues, a fast retry policy, and a script in the
// handler's place. The script records its process id and gives the handler proxies of its own, and a wrong setting
// during a bad deploy. The handler takes over the script's process by exec, so the host is its parent as always.
func (s *system) stage() error {
	s.processes = &processes{file: filepath.Join(s.dir, "handlers"), executable: s.executable}
	storage := strings.Replace(s.handlerProxy.Through(s.storage.ConnectionString), s.storage.TableEndpoint,
		s.tableEndpoint(), 1)
	script := fmt.Sprintf("#!/bin/sh\necho $$ >>'%s'\nexport AzureWebJobsStorage='%s'\n[ -e '%s' ] && "+
		"export %s\nexec '%s' \"$@\"\n",
		s.processes.file, storage, s.invalidDeploymentFile(), misspelt, s.executable)
	err := errors.Join(
		os.MkdirAll(filepath.Join(s.app(), "AC-standard"), 0o700),
		os.MkdirAll(filepath.Join(s.app(), "AC-priority01"), 0o700),
		os.WriteFile(filepath.Join(s.app(), "retry.json"), []byte(`{"fast":{"schedule":["1s"]}}`), 0o600),
		os.WriteFile(filepath.Join(s.app(), config.TargetsFile), []byte(s.profile), 0o600),
		os.WriteFile(filepath.Join(s.app(), "async-caller"), []byte(script), 0o700),
	)
	for from, to := range map[string]string{
		"host.json":                             "host.json",
		"functions/AC-standard/function.json":   "AC-standard/function.json",
		"functions/AC-priority01/function.json": "AC-priority01/function.json",
	} {
		content, readErr := os.ReadFile(from)
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(s.app(), to), content, 0o600))
	}
	if err != nil {
		return fmt.Errorf("staging the app, which works in the project's folder only: %w", err)
	}
	s.log, err = os.Create(filepath.Join(s.dir, "host.log"))
	s.stops = append(s.stops, func(context.Context) error {
		lines, err := os.ReadFile(s.log.Name())
		s.result.refused(bytes.Count(lines, []byte(`"reason":"busy"`)),
			bytes.Count(lines, []byte(`"reason":"target_down"`)))
		s.result.useTable(s.table, tableUse{lost: lostChanges(lines)})
		return errors.Join(err, s.log.Close())
	})
	return err
}

func (s *system) app() string { return filepath.Join(s.dir, "app") }

func (s *system) startStorage() (err error) {
	s.storage, err = azurite.Start(s.ctx, azurite.Options{Data: filepath.Join(s.dir, "azurite")})
	if err != nil {
		return err
	}
	s.stops = append(s.stops, func(context.Context) error { return s.storage.Stop() })
	s.store, err = testbed.OpenStore(s.storage.ConnectionString)
	if err != nil {
		return err
	}
	s.stops = append(s.stops, func(context.Context) error { s.store.Close(); return nil })
	for _, name := range queues {
		err = errors.Join(err, s.store.Create(s.ctx, name))
	}
	return errors.Join(err, s.createHistory())
}

// createHistory creates the table of the history. Otherwise the first rows are refused, in an answer that looks like
// that to rows that are written.
func (s *system) createHistory() error {
	conn, err := azure.ParseConnection([]string{storage.ConnectionName + "=" + s.storage.ConnectionString},
		storage.ConnectionName)
	if err != nil {
		return err
	}
	table, err := azure.OpenTable(conn, history.TablePrefix+time.Now().UTC().Format("200601"))
	if err != nil {
		return err
	}
	defer table.Close()
	return table.Put(s.ctx, []storage.Entity{{Key: storage.Key{Partition: "faults", ID: "created"}}})
}

func (s *system) startProxies() (err error) {
	s.hostProxy, err = storageproxy.Open(s.ctx, s.storage.Endpoint, hostWatcher{s})
	if err != nil {
		return err
	}
	s.stopServer("the host's storage proxy", s.hostProxy)
	s.handlerProxy, err = storageproxy.Open(s.ctx, s.storage.Endpoint, handlerWatcher{s})
	if err != nil {
		return err
	}
	s.stopServer("the handler's storage proxy", s.handlerProxy)
	s.tableProxy, err = storageproxy.Open(s.ctx, s.storage.TableEndpoint, tableWatcher{s})
	if err != nil {
		return err
	}
	s.stopServer("the handler's table proxy", s.tableProxy)
	s.target, err = target.Serve(s.ctx, s.targetHandler())
	if err != nil {
		return err
	}
	s.stopServer("the target", s.target)
	return nil
}

// stopServer makes stop check that a server has no connections left, and close it.
func (s *system) stopServer(name string, server interface {
	Connections() int
	Close()
},
) {
	s.stops = append(s.stops, func(ctx context.Context) error {
		defer server.Close()
		ctx, cancel := context.WithTimeout(ctx, leakLimit)
		defer cancel()
		if testbed.Await(ctx, func() bool { return server.Connections() == 0 }) != nil {
			return fmt.Errorf("%d connections are left at %s", server.Connections(), name)
		}
		return nil
	})
}

func (s *system) startHost() (err error) {
	s.hostMu.Lock()
	defer s.hostMu.Unlock()
	if s.stopping {
		return nil
	}
	host, err := testbed.StartHost(context.WithoutCancel(s.ctx), testbed.HostOptions{
		Executable: s.localHost, AppDir: s.app(), ConnectionString: s.hostProxy.Through(s.storage.ConnectionString),
		Env: append(settings[:], s.setting, s.history), Out: s.log, Forget: true,
		Args: []string{"--lease", lease.String(), "--max-handler-errors", "-1"},
	})
	if err == nil {
		s.host = host
	}
	return err
}

// tend starts the host again whenever it has ended, until the system is stopped.
func (s *system) tend() {
	for {
		host, stopping := s.currentHost()
		if stopping {
			return
		}
		<-host.Done()
		if err := s.startHost(); err != nil {
			s.result.fail(fmt.Errorf("starting the host again: %w", err))
			return
		}
	}
}

// currentHost returns the host that runs or has just ended, and whether the system is being stopped.
func (s *system) currentHost() (host *testbed.Host, stopping bool) {
	s.hostMu.Lock()
	defer s.hostMu.Unlock()
	return s.host, s.stopping
}

// stopHost stops the host and waits until no handler is left.
func (s *system) stopHost(ctx context.Context) error {
	s.hostMu.Lock()
	host := s.host
	s.stopping = true
	s.hostMu.Unlock()
	var err error
	select {
	case <-host.Done(): // ended by a fault and not started again
	default:
		err = host.Stop(stopGrace)
	}
	s.tending.Wait()
	return errors.Join(err, s.processes.awaitEnd(ctx))
}

// now returns the time for an event.
func (s *system) now() time.Duration { return time.Since(s.started) }

// note records an event at this time.
func (s *system) note(e judge.Event) {
	e.At = s.now()
	s.record(e)
}

// disturbed records a fault that began at a moment and has ended now.
func (s *system) disturbed(cause judge.Cause, began time.Duration) {
	s.record(judge.Event{Kind: judge.Disturbed, At: began, Until: s.now(), Cause: cause})
}

func (s *system) record(e judge.Event) {
	s.eventsMu.Lock()
	defer s.eventsMu.Unlock()
	s.events = append(s.events, e)
}

// takeEvents returns the events since the last call.
func (s *system) takeEvents() (events []judge.Event) {
	s.eventsMu.Lock()
	defer s.eventsMu.Unlock()
	events, s.events = s.events, nil
	return events
}

// outage is a time during which storage works for no client.
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

// active returns what to do with a request during an outage.
func (o *outage) active() (storageproxy.Order, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.order, time.Now().Before(o.until)
}
