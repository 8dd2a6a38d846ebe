package host

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/memory"
)

var errDown = errors.New("storage is down")

// faultyStore fails the operations that fault says.
type faultyStore struct {
	queue.Store
	fault func(operation string) error
}

func (s *faultyStore) Receive(ctx context.Context, name string, limit int, lease time.Duration) ([]queue.Message, error) {
	if err := s.fault("receive"); err != nil {
		return nil, err
	}
	return s.Store.Receive(ctx, name, limit, lease)
}

func (s *faultyStore) Count(ctx context.Context, name string) (int, error) {
	if err := s.fault("count"); err != nil {
		return 0, err
	}
	return s.Store.Count(ctx, name)
}

func (s *faultyStore) Put(ctx context.Context, name string, item queue.Item) (queue.Message, error) {
	if err := s.fault("put"); err != nil {
		return queue.Message{}, err
	}
	return s.Store.Put(ctx, name, item)
}

func (s *faultyStore) Update(ctx context.Context, name, id, receipt, text string, delay time.Duration) (string, error) {
	if err := s.fault("update"); err != nil {
		return "", err
	}
	return s.Store.Update(ctx, name, id, receipt, text, delay)
}

func (s *faultyStore) Delete(ctx context.Context, name, id, receipt string) error {
	if err := s.fault("delete"); err != nil {
		return err
	}
	return s.Store.Delete(ctx, name, id, receipt)
}

// bench is a listener in a synctest bubble, with its store and the times at which it polled.
type bench struct {
	*listener
	t        *testing.T
	store    *memory.Store
	begin    time.Time
	polls    []time.Duration // since begin; read it after the stop or while all are blocked
	refused  error
	stopping chan struct{}
	cut      context.CancelFunc
	running  sync.WaitGroup
	fault    func(operation string) error
}

func newBench(t *testing.T, queueName string, invoke invokeFunc) *bench {
	t.Helper()
	b := &bench{t: t, store: memory.New(), begin: time.Now(), stopping: make(chan struct{})}
	store := &faultyStore{Store: b.store, fault: func(operation string) error {
		if operation == "receive" || operation == "count" && b.fault != nil {
			b.polls = append(b.polls, time.Since(b.begin))
		}
		if b.fault != nil {
			return b.fault(operation)
		}
		return nil
	}}
	fn := functionapp.Function{Name: "Fn", Binding: "msg", Queue: queueName, DataType: functionapp.DataBinary}
	b.listener = newListener(fn, rules{
		batchSize: 4, threshold: 2, longestWait: 2 * time.Second, lease: 10 * time.Minute,
		retryDelay: 30 * time.Second, maxDequeues: 3, encoding: queue.Base64,
	}, store, invoke)
	b.counts = newCounters(&functionapp.App{Functions: []functionapp.Function{fn}})
	b.log = zerolog.Nop()
	b.random = func() float64 { return 0.5 }
	b.fatal = func(err error) { b.refused = err }
	b.wrote = func(string) {}
	return b
}

func (b *bench) create() {
	b.t.Helper()
	if err := b.store.Create(b.t.Context(), b.fn.Queue); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) put(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		if _, err := b.store.Put(b.t.Context(), b.fn.Queue, queue.Item{Text: text}); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bench) start() {
	ctx, cut := context.WithCancel(context.Background())
	b.cut = cut
	b.running.Go(func() { b.run(ctx, b.stopping) })
}

func (b *bench) stop() FunctionStats {
	close(b.stopping)
	b.running.Wait()
	b.cut()
	return b.counts.snapshot().Functions["Fn"]
}

// pass lets time go by in the bubble; nobody waits for it.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func always(out outcome) invokeFunc {
	return func(context.Context, functionapp.Function, queue.Message, []byte) outcome { return out }
}

const hello = "aGVsbG8="
