// Package listener receives the messages of queue functions and runs timer functions, as docs/host.md describes the
// Functions host. It knows no handler: its caller decides what an invocation is.
package listener

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/storage"
)

const (
	// shortestPoll is the first wait after an empty poll.
	shortestPoll = 100 * time.Millisecond
	// pollSpread is the random part of a wait, up or down.
	pollSpread = 0.2
	// renewalFloor is the shortest wait between two renewals of a lease of 10 minutes or more.
	renewalFloor = time.Minute
	// storageTimeout bounds a poll, a renewal or the completion of a message: the network timeout of the Azure SDK for
	// .NET. Messages of an abandoned receive are invisible until their lease ends.
	storageTimeout = 100 * time.Second
	// The client of the real host repeats what completes a message three times, as the SDK does by default: after
	// firstPause, and then after twice as long, up to lastPause.
	firstPause = 800 * time.Millisecond
	lastPause  = 4 * firstPause
)

// Result says how one invocation ended.
type Result int

// The results of invocations. A message is deleted after success; after a failure it is tried again, up to
// maxDequeueCount.
const (
	Failed Result = iota
	Succeeded
	undecodable // the message's text is not in the queue's encoding: it was not tried
)

// Options configures a [Listener]. All but PoisonTTL are required; a zero Log discards the log.
type Options struct {
	Function functionapp.Function
	// Queues are the options of host.json, with a MaxPollingInterval.
	Queues functionapp.QueueOptions
	Store  storage.Queues
	// Invoke runs the function for a message, whose decoded text is the content. The end of ctx cuts it short.
	Invoke func(ctx context.Context, msg storage.Message, content []byte) Result
	// Lease is how long a received message stays invisible unless renewed, in whole seconds. It is renewed while the
	// invocation lasts.
	Lease time.Duration
	// PoisonTTL is how long a message lives on the poison queue; zero means that it never expires.
	PoisonTTL time.Duration
	// Counts counts the messages. Several listeners may share it.
	Counts *Counts
	// Refused is called when storage refuses access (see [storage.ErrRefused]). It may be called more than once, and
	// concurrently.
	Refused func(error)
	// Log never gets a message's content.
	Log zerolog.Logger
}

// Stats counts messages.
type Stats struct {
	Received, Succeeded, Failed, Poisoned int
	MaxDequeueCount                       int64
}

// Counts is [Stats] for concurrent use. The zero value is ready.
type Counts struct {
	mu    sync.Mutex
	stats Stats
}

// Read returns what was counted so far.
func (c *Counts) Read() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

func (c *Counts) update(change func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.stats)
}

// Listener polls one function's queue and invokes the function for each message (docs/host.md, "Polling", "Slots",
// "Leases" and "Retries and poison messages"). Create it with [New].
type Listener struct {
	Options

	poison string         // every queue of a valid app has one
	random func() float64 // in [0,1)

	inFlight atomic.Int64
	finished chan struct{} // has room for one signal
	messages sync.WaitGroup

	// These belong to Run.
	exists bool
	state  string // whether the queue can be read, as logged last
}

const readable = "queue can be read"

// New returns a listener that does not run yet.
func New(o Options) *Listener {
	poison, _ := storage.PoisonName(o.Function.Queue)
	o.Log = o.Log.With().Str("function", o.Function.Name).Str("queue", o.Function.Queue).Logger()
	return &Listener{
		Options: o, poison: poison, random: rand.Float64, finished: make(chan struct{}, 1), state: readable,
	}
}

// Run polls until ctx ends, and returns when all messages are completed or storage refuses a poll. It may be called
// once. The end of invocations, which outlives ctx, cuts them short: their messages stay as they are.
func (l *Listener) Run(ctx, invocations context.Context) {
	defer l.messages.Wait()
	empty := 0 // polls in a row that found nothing
	for ctx.Err() == nil {
		batch, err := l.poll(invocations)
		if errors.Is(err, storage.ErrRefused) {
			l.Refused(fmt.Errorf("function %s cannot read its queue: %w", l.Function.Name, err))
			return
		}
		l.report(err)
		if len(batch) == 0 {
			empty++
			storage.Sleep(ctx, pollPause(empty, l.Queues.MaxPollingInterval, l.random()))
			continue
		}
		empty = 0
		for _, msg := range batch {
			l.inFlight.Add(1)
			l.messages.Go(func() {
				l.handle(invocations, msg)
				l.inFlight.Add(-1)
				select {
				case l.finished <- struct{}{}:
				default:
				}
			})
		}
		for l.inFlight.Load() > int64(l.Queues.NewBatchThreshold) && ctx.Err() == nil {
			select {
			case <-l.finished:
			case <-ctx.Done():
			}
		}
	}
}

// poll receives messages if the queue exists; it never creates the queue. A stop does not interrupt it,
// because messages that storage has leased would be out of reach until the lease ends.
func (l *Listener) poll(ctx context.Context) ([]storage.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, storageTimeout)
	defer cancel()
	if !l.exists {
		if _, err := l.Store.Count(ctx, l.Function.Queue); err != nil {
			return nil, err
		}
	}
	batch, err := l.Store.Receive(ctx, l.Function.Queue, l.Queues.BatchSize, l.Lease)
	l.exists = err == nil
	return batch, err
}

// report logs when it changes whether the queue can be read.
func (l *Listener) report(err error) {
	state, event := readable, l.Log.Info()
	switch {
	case errors.Is(err, storage.ErrNoQueue):
		state, event = "queue does not exist: waiting for someone to create it", l.Log.Warn()
	case err != nil:
		state, event = "queue cannot be read: trying again", l.Log.Warn().Err(err)
	}
	if state != l.state {
		event.Msg(state)
	}
	l.state = state
}

// pollPause returns the wait before the next poll, after this many in a row that found nothing; random is in [0,1).
func pollPause(empty int, longest time.Duration, random float64) time.Duration {
	wait := shortestPoll.Seconds()
	if empty > 1 {
		wait += (1 - pollSpread + 2*pollSpread*random) * math.Pow(2, float64(empty-2)) * shortestPoll.Seconds()
	}
	if wait >= longest.Seconds() { // also for every later poll: the waits double, and vary by less than that
		return longest
	}
	return time.Duration(wait * float64(time.Second))
}

// handle processes one message from its receipt to its completion. Once ctx has ended, it leaves the message as it is,
// like a host that has ended.
func (l *Listener) handle(ctx context.Context, msg storage.Message) {
	log := l.Log.With().Str("message_id", msg.ID).Int64("dequeue_count", msg.DequeueCount).Logger()
	l.Counts.update(func(s *Stats) {
		s.Received++
		s.MaxDequeueCount = max(s.MaxDequeueCount, msg.DequeueCount)
	})
	var out Result
	content, err := l.Queues.MessageEncoding.Decode(msg.Text)
	switch {
	case err != nil:
		log.Warn().Err(err).Msg("Message decoding has failed! Check MessageEncoding settings.")
		out = undecodable
	case msg.DequeueCount > l.Queues.MaxDequeueCount:
		out = Failed // without another try
	default:
		out, msg.PopReceipt = l.tryMessage(ctx, msg, content, log)
	}
	if ctx.Err() != nil {
		return
	}
	if err := l.complete(ctx, out, msg, log); err != nil {
		log.Warn().Err(err).Msg("message not completed: it is visible again when its lease ends")
		if errors.Is(err, storage.ErrRefused) {
			l.Refused(fmt.Errorf("complete message of %s: %w", l.Function.Queue, err))
		}
	}
}

// tryMessage invokes the function and renews the message's lease meanwhile. It returns the newest receipt.
func (l *Listener) tryMessage(
	ctx context.Context, msg storage.Message, content []byte, log zerolog.Logger,
) (out Result, receipt string) {
	renewing, done := context.WithCancel(context.WithoutCancel(ctx))
	receipts := make(chan string)
	go func() { receipts <- l.renew(renewing, msg, log) }()
	out = l.Invoke(ctx, msg, content)
	done()
	l.Counts.update(func(s *Stats) {
		if out == Succeeded {
			s.Succeeded++
		} else {
			s.Failed++
		}
	})
	return out, <-receipts
}

// renew renews the message's lease until ctx ends: after half the lease, and sooner after each failure.
func (l *Listener) renew(ctx context.Context, msg storage.Message, log zerolog.Logger) (receipt string) {
	wait := l.Lease / 2
	for storage.Sleep(ctx, wait) {
		newest, err := l.renewOnce(ctx, msg)
		switch {
		case err == nil:
			msg.PopReceipt = newest
			wait = l.Lease / 2
		case isGone(err):
			log.Debug().Msg("message is gone: lease not renewed")
			return msg.PopReceipt
		default:
			log.Warn().Err(err).Msg("lease not renewed")
			wait = max(wait/2, min(renewalFloor, l.Lease/10))
		}
	}
	return msg.PopReceipt
}

// renewOnce is not interrupted by the end of the invocation or of the host: if storage renews the lease and the new
// receipt is lost, the message cannot be deleted.
func (l *Listener) renewOnce(ctx context.Context, msg storage.Message) (receipt string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storageTimeout)
	defer cancel()
	return l.Store.Update(ctx, l.Function.Queue, msg.ID, msg.PopReceipt, msg.Text, l.Lease)
}

// complete ends the delivery of a message. The host's stop does not interrupt it.
func (l *Listener) complete(ctx context.Context, out Result, msg storage.Message, log zerolog.Logger) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storageTimeout)
	defer cancel()
	switch {
	case out == Succeeded:
		err = l.remove(ctx, msg)
	case out == undecodable || msg.DequeueCount >= l.Queues.MaxDequeueCount:
		log.Warn().Msgf("Message has reached MaxDequeueCount of %d. Moving message to queue '%s'.",
			l.Queues.MaxDequeueCount, l.poison)
		err = l.moveToPoison(ctx, msg)
	default:
		err = persist(ctx, func() error {
			_, err := l.Store.Update(ctx, l.Function.Queue, msg.ID, msg.PopReceipt, msg.Text,
				l.Queues.VisibilityTimeout)
			return err
		})
	}
	if isGone(err) {
		log.Debug().Err(err).Msg("message is gone: nothing to complete")
		return nil
	}
	return err
}

// persist repeats an operation until it succeeds, is refused, or finds no message or queue.
func persist(ctx context.Context, do func() error) error {
	for wait := firstPause; ; wait *= 2 {
		err := do()
		if err == nil || isGone(err) || errors.Is(err, storage.ErrRefused) || wait > lastPause {
			return err
		}
		storage.Sleep(ctx, wait)
	}
}

func (l *Listener) remove(ctx context.Context, msg storage.Message) error {
	return persist(ctx, func() error { return l.Store.Delete(ctx, l.Function.Queue, msg.ID, msg.PopReceipt) })
}

// moveToPoison writes the message's text to the poison queue and deletes the message. If the delete fails, both exist.
func (l *Listener) moveToPoison(ctx context.Context, msg storage.Message) error {
	put := func() error {
		_, err := l.Store.Put(ctx, l.poison, storage.Item{Text: msg.Text, TTL: l.PoisonTTL})
		return err
	}
	err := persist(ctx, put)
	if errors.Is(err, storage.ErrNoQueue) {
		err = l.Store.Create(ctx, l.poison)
		if err == nil {
			err = persist(ctx, put)
		}
	}
	if err != nil {
		return fmt.Errorf("move message to %s: %w", l.poison, err)
	}
	l.Counts.update(func(s *Stats) { s.Poisoned++ })
	return l.remove(ctx, msg)
}

// isGone reports whether the error says that another receiver has the message or that it was deleted.
func isGone(err error) bool {
	return errors.Is(err, storage.ErrStale) || errors.Is(err, storage.ErrNoQueue)
}
