package work

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// mortal is the account as one process uses it, which is killed at its nth request: before the request arrives, or
// before its answer does. Nothing that a killed process does has an effect.
type mortal struct {
	storage.Queues
	requests atomic.Int64
	killedAt int64
	arrives  bool // the last request
	dead     chan struct{}
	buried   chan struct{} // ends the goroutines of the process
}

var errKilled = errors.New("killed")

// die blocks a killed process.
func (m *mortal) die() error {
	<-m.buried
	return errKilled
}

// request makes a request of the process.
func request[T any](m *mortal, do func() (T, error)) (result T, err error) {
	n := m.requests.Add(1)
	if n > m.killedAt || n == m.killedAt && !m.arrives {
		m.kill()
		return result, m.die()
	}
	result, err = do()
	if n == m.killedAt {
		m.kill()
		return result, m.die()
	}
	return result, err
}

func (m *mortal) kill() {
	select {
	case <-m.dead:
	default:
		close(m.dead)
	}
}

func (m *mortal) Receive(ctx context.Context, name string, n int, lease time.Duration) ([]storage.Message, error) {
	return request(m, func() ([]storage.Message, error) { return m.Queues.Receive(ctx, name, n, lease) })
}

func (m *mortal) Put(ctx context.Context, name string, item storage.Item) (storage.Message, error) {
	return request(m, func() (storage.Message, error) { return m.Queues.Put(ctx, name, item) })
}

func (m *mortal) Update(ctx context.Context, name, id, receipt, text string, delay time.Duration) (string, error) {
	return request(m, func() (string, error) { return m.Queues.Update(ctx, name, id, receipt, text, delay) })
}

func (m *mortal) Delete(ctx context.Context, name, id, receipt string) error {
	_, err := request(m, func() (struct{}, error) {
		return struct{}{}, m.Queues.Delete(ctx, name, id, receipt)
	})
	return err
}

// TestKills kills a worker at each of its first requests, before it arrives or after. No message is lost: each is
// delivered or a dead letter in the end, and its callback is made.
func TestKills(t *testing.T) {
	dir := app(t)
	for _, mode := range []string{"enqueue", "update"} {
		for n := range 50 {
			t.Run(fmt.Sprintf("%s %d", mode, n), func(t *testing.T) {
				c, err := ReadConfig(dir, append(environ, "ASYNC_CALLER_RESCHEDULE="+mode), nil)
				must(t, err)
				synctest.Test(t, func(t *testing.T) { killed(t, c, int64(1+n/2), n%2 == 1) })
			})
		}
	}
}

func killed(t *testing.T, c Config, at int64, arrives bool) {
	t.Helper()
	store := memory.New()
	doomed := &mortal{
		Queues: store, killedAt: at, arrives: arrives, dead: make(chan struct{}), buried: make(chan struct{}),
	}
	g := newTarget(0)
	var mu sync.Mutex
	delivered := map[string]bool{}
	g.answer = func(_ context.Context, id string, before int) int {
		status := http.StatusOK
		switch {
		case id == "rejected":
			status = http.StatusBadRequest
		case id == "retried" && before < 2:
			status = http.StatusServiceUnavailable
		}
		if status == http.StatusOK {
			mu.Lock()
			defer mu.Unlock()
			delivered[id] = true
		}
		return status
	}
	for _, id := range []string{"delivered", "rejected", "retried"} {
		put(t, store, id, "")
	}
	put(t, store, "told", `,"callback":{"url":"https://t.example/"}`)
	first := start(t, c, doomed, g)
	select {
	case <-doomed.dead:
	case <-time.After(2 * time.Minute): // it has made all its requests but polls
		doomed.kill()
	}
	second := start(t, c, store, g)
	<-time.After(20 * time.Minute)
	second.stop(t)
	hasLetter := waiting(t, store, poison)["rejected"] > 0
	if !delivered["delivered"] || !delivered["retried"] || !delivered["told"] || !hasLetter {
		t.Errorf("killed at request %d: delivered %v, poison queue %v", at, delivered, waiting(t, store, poison))
	}
	callbacks := 0
	for id := range delivered {
		if id != "delivered" && id != "retried" && id != "told" {
			callbacks++
		}
	}
	if callbacks == 0 || len(store.All(queue)) != 0 {
		t.Errorf("killed at request %d: delivered %v, queue %v", at, delivered, waiting(t, store, queue))
	}
	close(doomed.buried)
	first.leave()
	err := <-first.ended
	if err != nil {
		t.Log("the end of the killed worker:", err)
	}
}
