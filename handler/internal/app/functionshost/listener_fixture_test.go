package functionshost

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

var errDown = errors.New("storage is down")

// faultyStore fails operations with the errors of fault.
type faultyStore struct {
	storage.Queues
	fault func(operation string) error
}

func (s *faultyStore) Receive(
	ctx context.Context, name string, limit int, lease time.Duration,
) ([]storage.Message, error) {
	if err := s.fault("receive"); err != nil {
		return nil, err
	}
	return s.Queues.Receive(ctx, name, limit, lease)
}

func (s *faultyStore) Count(ctx context.Context, name string) (int, error) {
	if err := s.fault("count"); err != nil {
		return 0, err
	}
	return s.Queues.Count(ctx, name)
}

func (s *faultyStore) Put(ctx context.Context, name string, item storage.Item) (storage.Message, error) {
	if err := s.fault("put"); err != nil {
		return storage.Message{}, err
	}
	return s.Queues.Put(ctx, name, item)
}

func (s *faultyStore) Update(ctx context.Context, name, id, receipt, text string, delay time.Duration) (string, error) {
	if err := s.fault("update"); err != nil {
		return "", err
	}
	return s.Queues.Update(ctx, name, id, receipt, text, delay)
}

func (s *faultyStore) Delete(ctx context.Context, name, id, receipt string) error {
	if err := s.fault("delete"); err != nil {
		return err
	}
	return s.Queues.Delete(ctx, name, id, receipt)
}

// listenerTest is a listener in a synctest bubble, with its store and the times of its polls.
type listenerTest struct {
	*listener
	t        *testing.T
	store    *memory.Queues
	counts   counters
	begin    time.Time
	polls    []time.Duration // since begin; read it after the stop or while all goroutines are blocked
	refused  error
	stopping chan struct{}
	cut      context.CancelFunc
	running  sync.WaitGroup
	fault    func(operation string) error
}

// work is what the handler does with a message.
type work func(ctx context.Context, msg storage.Message) result

func newListenerTest(t *testing.T, do work) *listenerTest {
	t.Helper()
	b := &listenerTest{t: t, store: memory.New(), begin: time.Now(), stopping: make(chan struct{})}
	store := &faultyStore{Queues: b.store, fault: func(operation string) error {
		if operation == "receive" || operation == "count" && b.fault != nil {
			b.polls = append(b.polls, time.Since(b.begin))
		}
		if b.fault != nil {
			return b.fault(operation)
		}
		return nil
	}}
	queues := functionapp.QueueOptions{
		BatchSize: 4, NewBatchThreshold: 2, VisibilityTimeout: 30 * time.Second, MaxDequeueCount: 3,
		MessageEncoding: storage.Base64,
	}
	app := &functionapp.App{Host: functionapp.Host{Queues: queues}}
	h := New(Options{Store: store, App: app, Lease: DefaultLease, Log: zerolog.Nop()})
	b.listener = h.newListener(testFunction, &invoker{}, func(err error) { b.refused = err })
	b.invoke = func(ctx context.Context, inv invocation) result { return do(ctx, inv.message) }
	b.count = b.counts.update
	b.random = func() float64 { return 0.5 }
	return b
}

func (b *listenerTest) create() {
	b.t.Helper()
	if err := b.store.Create(b.t.Context(), b.fn.Queue); err != nil {
		b.t.Fatal(err)
	}
}

func (b *listenerTest) put(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		if _, err := b.store.Put(b.t.Context(), b.fn.Queue, storage.Item{Text: text}); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *listenerTest) start() {
	ctx, cut := context.WithCancel(context.Background())
	b.cut = cut
	b.running.Go(func() { b.run(ctx, b.stopping) })
}

func (b *listenerTest) stop() stats {
	close(b.stopping)
	b.running.Wait()
	b.cut()
	return b.counts.read()
}

// pass advances the clock of the bubble.
func pass(d time.Duration) {
	pause(d, nil)
	synctest.Wait()
}

func always(out result) work {
	return func(context.Context, storage.Message) result { return out }
}

// takes is work that succeeds after a while.
func takes(d time.Duration) work {
	return func(context.Context, storage.Message) result {
		pause(d, nil)
		return succeeded
	}
}

const hello = "aGVsbG8="
