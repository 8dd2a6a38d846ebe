package listener

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("storage is down")

// poisonTTL is how long messages live on the poison queue of a test.
const poisonTTL = 3 * 24 * time.Hour

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
	*Listener
	t       *testing.T
	store   *memory.Queues
	begin   time.Time
	polls   []time.Duration // since begin; read it after the stop or while all goroutines are blocked
	refused error
	leave   context.CancelFunc // ends the polls
	running sync.WaitGroup
	fault   func(operation string) error
}

// work is what the handler does with a message.
type work func(ctx context.Context, msg storage.Message) Result

func newListenerTest(t *testing.T, do work) *listenerTest {
	t.Helper()
	b := &listenerTest{t: t, store: memory.New(), begin: time.Now()}
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
		BatchSize: 4, NewBatchThreshold: 2, MaxPollingInterval: 2 * time.Second,
		VisibilityTimeout: 30 * time.Second, MaxDequeueCount: 3, MessageEncoding: storage.Base64,
	}
	b.Listener = New(Options{
		Function: functionapp.Function{Name: "Fn", Queue: "work"}, Queues: queues, Store: store,
		Invoke: func(ctx context.Context, msg storage.Message, _ []byte) Result { return do(ctx, msg) },
		Lease:  10 * time.Minute, RenewsLease: true, PoisonTTL: poisonTTL, Counts: &Counts{}, Log: zerolog.Nop(),
		Refused: func(err error) { b.refused = err },
	})
	b.random = func() float64 { return 0.5 }
	return b
}

func (b *listenerTest) create() {
	b.t.Helper()
	if err := b.store.Create(b.t.Context(), b.Function.Queue); err != nil {
		b.t.Fatal(err)
	}
}

func (b *listenerTest) put(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		if _, err := b.store.Put(b.t.Context(), b.Function.Queue, storage.Item{Text: text}); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *listenerTest) start() {
	ctx, leave := context.WithCancel(context.Background())
	b.leave = leave
	b.running.Go(func() { b.Run(ctx, context.Background()) })
}

func (b *listenerTest) stop() Stats {
	b.leave()
	b.running.Wait()
	return b.Counts.Read()
}

// run puts one message, and runs the listener for a time.
func (b *listenerTest) run(d time.Duration) Stats {
	b.t.Helper()
	b.create()
	b.put(hello)
	b.start()
	pass(d)
	return b.stop()
}

// left returns what is on the queue.
func (b *listenerTest) left() []storage.Message { return b.store.All(b.Function.Queue) }

// pass advances the clock of the bubble.
func pass(d time.Duration) {
	storage.Sleep(context.Background(), d)
	synctest.Wait()
}

func always(out Result) work {
	return func(context.Context, storage.Message) Result { return out }
}

// takes is work that succeeds after a while.
func takes(d time.Duration) work {
	return func(ctx context.Context, _ storage.Message) Result {
		storage.Sleep(ctx, d)
		return Succeeded
	}
}

const hello = "aGVsbG8="
