//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/tools/storageproxy"
	"asynccaller/handler/tools/storageserver"
	"asynccaller/handler/tools/tail"
	"asynccaller/handler/tools/target"
	"asynccaller/handler/tools/testbed"
)

// appQueue and appFunction are the only queue and function of an app.
const appQueue, appFunction = "async-caller", "AC-standard"

// app is the product at work: the local host with the handler, a storage account of its own, and targets.
type app struct {
	folder  string
	storage *storageserver.Server
	// proxy is between storage and its clients: the sender's store, the host and the handler.
	proxy   *storageproxy.Proxy
	store   *azure.Queues
	host    *testbed.Host
	output  tail.Writer
	targets []*slowTarget

	mu    sync.Mutex
	calls []sentCall
	// transactions are all requests to storage; refused and failed are the reschedules without and after a call.
	transactions, refused, failed int
}

// sentCall is a call that was sent, and what has become of it. Its number in the app is its request id.
type sentCall struct {
	target int
	sent   time.Time
	// arrived is when the target received it for the first time.
	arrived time.Time
	// attempts is the number in the latest message; refused is how often it was rescheduled without a call.
	attempts, refused int
}

// slowTarget answers calls with 200 after a time, or never. The app's mutex guards it.
type slowTarget struct {
	*target.Server
	app   *app
	takes time.Duration
	hangs bool
	// calls is the number of calls in progress, and peak the largest so far.
	calls, peak int
}

// storageTakes is the time that storage takes for a request, about that of the service.
const storageTakes = 10 * time.Millisecond

// newApp starts storage and targets, which take the given time for a call. Even after an error the caller stops the result.
func (b *bench) newApp(ctx context.Context, targets int, takes time.Duration) (a *app, err error) {
	a = new(app)
	if a.folder, err = os.MkdirTemp(b.work, "app-"); err != nil {
		return a, err
	}
	if a.storage, err = storageserver.Start(ctx, storageTakes); err != nil {
		return a, err
	}
	if a.proxy, err = storageproxy.Open(ctx, a.storage.Endpoint, a); err != nil {
		return a, err
	}
	if a.store, err = testbed.OpenStore(a.connectionString()); err != nil {
		return a, err
	}
	for range targets {
		t := &slowTarget{app: a, takes: takes}
		if t.Server, err = target.Serve(ctx, t); err != nil {
			return a, err
		}
		a.targets = append(a.targets, t)
	}
	return a, a.store.Create(ctx, appQueue)
}

func (a *app) connectionString() string { return a.proxy.Through(a.storage.ConnectionString) }

// startHost stages the project's own host.json and one function, and starts the host.
func (b *bench) startHost(ctx context.Context, a *app, env ...string) (err error) {
	function := filepath.Join(a.folder, appFunction)
	err = errors.Join(os.Mkdir(function, 0o700), os.Symlink(filepath.Join(b.work, "handler"), filepath.Join(a.folder, "async-caller")))
	for from, to := range map[string]string{
		"host.json": a.folder, filepath.Join("functions", appFunction, "function.json"): function,
	} {
		content, readErr := os.ReadFile(filepath.Join(b.project, from))
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(to, filepath.Base(from)), content, 0o600))
	}
	if err != nil {
		return err
	}
	a.host, err = testbed.StartHost(ctx, testbed.HostOptions{
		Executable: filepath.Join(b.work, "handler"), AppDir: a.folder, ConnectionString: a.connectionString(),
		Env: env, Out: &a.output, Forget: true,
	})
	return err
}

// stopGrace is longer than the 10 s that the host gives messages in flight.
const stopGrace = 20 * time.Second

// stop stops everything. An app whose host has ended by itself is an error.
func (a *app) stop() (err error) {
	if a.host != nil {
		if a.host.Ended() {
			err = fmt.Errorf("the host ended: %s", a.output.String())
		} else {
			err = a.host.Stop(stopGrace)
		}
	}
	for _, t := range a.targets {
		t.Close()
	}
	if a.store != nil {
		a.store.Close()
	}
	if a.proxy != nil {
		a.proxy.Close()
	}
	if a.storage != nil {
		a.storage.Close()
	}
	return err
}

// send puts a call to a target on the queue.
func (a *app) send(ctx context.Context, target int) error {
	a.mu.Lock()
	id := len(a.calls)
	a.calls = append(a.calls, sentCall{target: target, sent: time.Now()})
	a.mu.Unlock()
	content := fmt.Appendf(nil, `{"asyncCaller":1,"requestId":"%d","call":{"url":"http://%s/orders/%d","json":{"order":%d}}}`,
		id, a.targets[target].Addr, id, id)
	_, err := a.store.Put(ctx, appQueue, storage.Item{Text: storage.Base64.Encode(content)})
	return err
}

// sendEvery sends calls to the targets that next returns, at random times, until a moment. The sender waits for no call before.
func (a *app) sendEvery(ctx context.Context, rate float64, until time.Time, next func() int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var sending sync.WaitGroup
	due := time.Now()
	for {
		due = due.Add(time.Duration(rand.ExpFloat64() / rate * float64(time.Second)))
		if !due.Before(until) || !testbed.Pause(ctx, time.Until(due)) {
			break
		}
		target := next()
		sending.Go(func() {
			if err := a.send(ctx, target); err != nil {
				cancel(err) // the first error counts
			}
		})
	}
	sending.Wait()
	return context.Cause(ctx)
}

// sendAll sends calls to the first target as fast as storage takes them.
func (a *app) sendAll(ctx context.Context, n int) error {
	more := times(int64(n))
	errs := make([]error, parallel)
	share(parallel, func(n int) {
		for errs[n] == nil && more() {
			errs[n] = a.send(ctx, 0)
		}
	})
	return errors.Join(errs...)
}

// awaitCalls waits until targets have received so many of the calls that were sent.
func (a *app) awaitCalls(ctx context.Context, n int, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return testbed.Await(ctx, func() bool { return a.delivered(time.Time{}, time.Now()) >= n })
}

// delivered returns how many calls targets received for the first time between two moments.
func (a *app) delivered(from, to time.Time) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.calls {
		if c.arrived.After(from) && c.arrived.Before(to) {
			n++
		}
	}
	return n
}

// hang makes all targets but the first hang, for the calls that they receive from now on.
func (a *app) hang() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.targets[1:] {
		t.hangs = true
	}
}

func (t *slowTarget) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return // the caller has left
	}
	id, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/orders/"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	t.app.mu.Lock()
	if c := &t.app.calls[id]; c.arrived.IsZero() {
		c.arrived = time.Now()
	}
	t.calls++
	t.peak = max(t.peak, t.calls)
	hangs := t.hangs
	t.app.mu.Unlock()
	defer func() {
		t.app.mu.Lock()
		t.calls--
		t.app.mu.Unlock()
	}()
	if hangs {
		<-r.Context().Done()
		return
	}
	testbed.Pause(r.Context(), t.takes)
}

// Before implements [storageproxy.Watcher].
func (a *app) Before(storageproxy.Request) storageproxy.Order {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.transactions++
	return storageproxy.Order{}
}

// After implements [storageproxy.Watcher]. It recognizes reschedules: what the sender puts on the queue has no delay.
func (a *app) After(r storageproxy.Request, answer storageproxy.Answer) storageproxy.Order {
	if r.Operation != storageproxy.Put || r.Queue != appQueue || r.Delay == 0 || !answer.Done() {
		return storageproxy.Order{}
	}
	var envelope struct {
		RequestID int `json:"requestId,string"`
		Attempts  int
	}
	content, err := storage.Base64.Decode(r.Text)
	if err != nil || json.Unmarshal(content, &envelope) != nil {
		return storageproxy.Order{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c := &a.calls[envelope.RequestID]
	if envelope.Attempts == c.attempts {
		a.refused++
		c.refused++
	} else {
		a.failed++
	}
	c.attempts = envelope.Attempts
	return storageproxy.Order{}
}
