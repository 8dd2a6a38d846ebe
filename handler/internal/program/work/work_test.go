package work

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/app/listener"
	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/gates/credential"
	"asynccaller/handler/internal/gates/limit"
	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// slow is an account whose answers take as long as a worker waits for them: those of the first receive, of settling and
// of the delete.
type slow struct {
	storage.Queues
	begun time.Time
	// settled and deleted are when the first put and the first delete began.
	settled, deleted time.Time
}

var errBusy = errors.New("503")

func (s *slow) Receive(ctx context.Context, name string, n int, lease time.Duration) ([]storage.Message, error) {
	messages, err := s.Queues.Receive(ctx, name, n, lease)
	if s.begun.IsZero() && len(messages) > 0 {
		s.begun = time.Now()
		storage.Sleep(ctx, listener.RequestTimeout-time.Millisecond)
	}
	return messages, err
}

func (s *slow) Put(ctx context.Context, name string, item storage.Item) (storage.Message, error) {
	if s.settled.IsZero() {
		s.settled = time.Now()
	}
	if time.Since(s.settled) < settle.Timeout-15*time.Second { // the last pauses are up to 10 s
		return storage.Message{}, errBusy
	}
	return s.Queues.Put(ctx, name, item)
}

func (s *slow) Delete(ctx context.Context, name, id, receipt string) error {
	if s.deleted.IsZero() {
		s.deleted = time.Now()
	}
	if time.Since(s.deleted) < listener.CompletionTimeout-15*time.Second {
		return errBusy
	}
	return s.Queues.Delete(ctx, name, id, receipt)
}

// TestLongestCall: a message whose call, and each request to storage, take as long as they may is called once.
func TestLongestCall(t *testing.T) {
	if LongestCall < 2*time.Minute {
		t.Fatalf("a worker allows calls of %v", LongestCall)
	}
	dir := app(t)
	synctest.Test(t, func(t *testing.T) {
		memory := memory.New()
		store, g := &slow{Queues: memory}, newTarget(LongestCall)
		g.answer = func(ctx context.Context, _ string) int {
			storage.Sleep(ctx, LongestCall)
			return http.StatusBadRequest
		}
		put(t, memory, "r0", "")
		r := start(t, readConfig(t, dir), store, g)
		<-time.After(10 * time.Minute)
		r.stop(t)
		if g.count("r0") != 1 || len(memory.All(queue)) != 0 || waiting(t, memory, poison)["r0"] != 1 {
			t.Errorf("%d calls, queue %v, poison queue %v", g.count("r0"), waiting(t, memory, queue),
				waiting(t, memory, poison))
		}
		seen := store.deleted.Add(listener.CompletionTimeout).Sub(store.begun)
		longest := seen + credential.Timeout + 2*history.AnswerTime + limit.LongestWait // beside what the test delays
		if longest > Lease {
			t.Errorf("the delete may end %v after the receive, and the lease is %v", longest, Lease)
		}
	})
}

// TestTooLongCall: a call that a lease is too short for is a wrong setting, and holds the app.
func TestTooLongCall(t *testing.T) {
	c, err := ReadConfig(app(t), append(environ, "ASYNC_CALLER_CALL_TIMEOUT=270s"), nil)
	if err != nil || c.App.SettingsErr == nil || !strings.Contains(c.App.SettingsErr.Error(), LongestCall.String()) {
		t.Errorf("%v, %v", err, c.App.SettingsErr)
	}
}

// TestAppFolder: a worker needs neither the bundle nor the handler of host.json, and serves the queues that it is told.
func TestAppFolder(t *testing.T) {
	dir := app(t)
	must(t, os.WriteFile(filepath.Join(dir, "host.json"), []byte(`{"version":"2.0"}`), 0o600))
	readConfig(t, dir)
	if _, err := ReadConfig(dir, environ, []string{"other"}); err == nil || !strings.Contains(err.Error(), queue) {
		t.Errorf("an unknown queue: %v", err)
	}
}

// TestHoldMode: with a wrong setting no message is touched, and the worker is not ready.
func TestHoldMode(t *testing.T) {
	c, err := ReadConfig(app(t), append(environ, "ASYNC_CALLER_RETRY=never"), nil)
	must(t, err)
	synctest.Test(t, func(t *testing.T) {
		store, g := memory.New(), newTarget(0)
		put(t, store, "r0", "")
		r := start(t, c, store, g)
		<-time.After(time.Hour)
		if all := store.All(queue); len(all) != 1 || all[0].DequeueCount != 0 || r.health.problem() != "settings" {
			t.Errorf("queue %+v, health %q", all, r.health.problem())
		}
		r.stop(t)
	})
}

// TestKilledWorker: the message of a worker that was killed is called again within the lease and 10 s.
func TestKilledWorker(t *testing.T) {
	c := readConfig(t, app(t))
	synctest.Test(t, func(t *testing.T) {
		store, g := memory.New(), newTarget(0)
		put(t, store, "r0", "")
		_, err := store.Receive(t.Context(), queue, 1, Lease) // by the one that was killed
		must(t, err)
		r := start(t, c, store, g)
		<-time.After(Lease + 10*time.Second)
		r.stop(t)
		if g.count("r0") != 1 {
			t.Error("not called")
		}
	})
}

// TestStop stops a worker under 256 calls of 60 s. Each message is delivered or on its queue once, and with a grace
// that is long enough, no call is interrupted.
func TestStop(t *testing.T) {
	dir := app(t)
	profile := []byte(`{"t.example":{"concurrency":300}}`) // not its share of the slots
	must(t, os.WriteFile(filepath.Join(dir, "targets.json"), profile, 0o600))
	c := readConfig(t, dir)
	for _, grace := range []time.Duration{5 * time.Second, 90 * time.Second} {
		t.Run(grace.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const messages = 256
				store, g := memory.New(), newTarget(0)
				g.answer = func(ctx context.Context, id string) int {
					if id != "first" && !storage.Sleep(ctx, time.Minute) {
						return 0
					}
					return http.StatusOK
				}
				c.Grace = grace
				r := start(t, c, store, g)
				put(t, store, "first", "") // it is answered, and so the target trusted
				<-time.After(2 * time.Second)
				for n := range messages {
					put(t, store, fmt.Sprintf("r%d", n), "")
				}
				<-time.After(2 * time.Second)
				inFlight := 0
				for n := range messages {
					inFlight += g.count(fmt.Sprintf("r%d", n))
				}
				if inFlight != messages {
					t.Errorf("%d calls in flight", inFlight)
				}
				r.stop(t)
				left := waiting(t, store, queue)
				for n := range messages {
					id := fmt.Sprintf("r%d", n)
					isDelivered := grace > time.Minute && g.count(id) == 1
					if isDelivered && left[id] != 0 || !isDelivered && left[id] != 1 {
						t.Errorf("%s: %d calls, %d messages", id, g.count(id), left[id])
					}
				}
				for _, m := range store.All(queue) {
					if wait := time.Until(m.NextVisibleAt); wait > 15*time.Second {
						t.Errorf("a message is visible after %v", wait)
					}
				}
			})
		})
	}
}

// TestHealth: the worker is ready when storage has answered, and not when it was away for a minute.
func TestHealth(t *testing.T) {
	c := readConfig(t, app(t))
	synctest.Test(t, func(t *testing.T) {
		store := &failing{Queues: memory.New()}
		must(t, store.Create(t.Context(), queue))
		store.set(errBusy)
		r := start(t, c, store, newTarget(0))
		want := func(want string) {
			t.Helper()
			<-time.After(50 * time.Second)
			if got := r.health.problem(); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		want("starting")
		want("storage")
		store.set(nil)
		want("")
		store.set(errBusy)
		want("")
		want("storage")
		store.set(storage.ErrNoQueue)
		want("")
		r.stop(t)
	})
}

// failing fails each poll with an error, unless it is nil.
type failing struct {
	storage.Queues
	mu  sync.Mutex
	err error
}

func (f *failing) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *failing) fault() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *failing) Receive(ctx context.Context, name string, n int, lease time.Duration) ([]storage.Message, error) {
	if err := f.fault(); err != nil {
		return nil, err
	}
	return f.Queues.Receive(ctx, name, n, lease)
}

func (f *failing) Count(ctx context.Context, name string) (int, error) {
	if err := f.fault(); err != nil {
		return 0, err
	}
	return f.Queues.Count(ctx, name)
}
