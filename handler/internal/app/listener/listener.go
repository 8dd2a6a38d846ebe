// Package listener receives the messages of queue functions and runs timer functions, as docs/host.md describes the
// Functions host. It knows no handler: its caller decides what an invocation is.
package listener

import (
	"cmp"
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
	// busyTime is how long a queue that had a message is not idle: longer than the lease of a worker, so that the
	// message of one that was killed is received as soon as its lease ends.
	busyTime = 7 * time.Minute
	// renewalFloor is the shortest wait between two renewals of a lease of 10 minutes or more.
	renewalFloor = time.Minute
)

const (
	// RequestTimeout bounds a request to storage. Messages of an abandoned receive stay invisible until their lease
	// ends.
	RequestTimeout = 10 * time.Second
	// CompletionTimeout bounds the requests that complete a message. They are repeated, because a message that is not
	// completed is tried again.
	CompletionTimeout = 30 * time.Second
)

// Result says how one invocation ended.
type Result int

// The results of invocations. A message is deleted after success; after a failure it is tried again, up to
// maxDequeueCount. One that is kept stays as the invocation has left it.
const (
	Failed Result = iota
	Succeeded
	Kept
	undecodable // the message's text is not in the queue's encoding: it was not tried
)

// Options configures a [Listener]. All are required but those that say otherwise; a zero Log discards the log.
type Options struct {
	Function functionapp.Function
	// Queues are the options of host.json. MaxPollingInterval is the longest pause between two polls.
	Queues functionapp.QueueOptions
	// IdlePolling takes the place of MaxPollingInterval when the queue had no message for 7 minutes; zero changes
	// nothing.
	IdlePolling time.Duration
	Store       storage.Queues
	// Invoke runs the function for a message, whose decoded text is the content. The end of ctx cuts it short.
	Invoke func(ctx context.Context, msg storage.Message, content []byte) Result
	// Lease is how long a received message stays invisible, in whole seconds. If it is renewed, that is while the
	// invocation lasts.
	Lease       time.Duration
	RenewsLease bool
	// Places are shared by several listeners; nil sets no limit beside the slots of each.
	Places *Places
	// PoisonTTL is how long a message lives on the poison queue; zero means that it never expires.
	PoisonTTL time.Duration
	// Poisoned is told of each message that was moved to the poison queue, as it is there; it may be nil.
	Poisoned func(queue string, msg storage.Message)
	// Counts counts the messages. Several listeners may share it.
	Counts *Counts
	// Polled is told how each poll ended; it may be nil.
	Polled func(error)
	// Refused is called when storage refuses access (see [storage.ErrRefused]), after which a listener ends. It may be
	// called more than once, and concurrently. Without it, a listener goes on: somebody may grant the access.
	Refused func(error)
	// Log never gets a message's content.
	Log zerolog.Logger
}

// Stats counts messages.
type Stats struct {
	Received, Succeeded, Failed, Poisoned int
	MaxDequeueCount                       int64
}

// MarshalZerologObject adds the counts to a line of the log.
func (s Stats) MarshalZerologObject(line *zerolog.Event) {
	line.Int("received", s.Received).Int("succeeded", s.Succeeded).Int("failed", s.Failed).
		Int("poisoned", s.Poisoned).Int64("max_dequeue_count", s.MaxDequeueCount)
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
	state  string    // whether the queue can be read, as logged last
	busyAt time.Time // when the queue last had a message, or the listener began
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
	l.busyAt = time.Now()
	for ctx.Err() == nil {
		places := l.Places.take(ctx, l.Queues.BatchSize)
		if places == 0 {
			return
		}
		batch, err := l.poll(invocations, places)
		l.Places.received(len(batch), places)
		if errors.Is(err, storage.ErrRefused) && l.Refused != nil {
			l.Refused(fmt.Errorf("function %s cannot read its queue: %w", l.Function.Name, err))
			return
		}
		l.report(err)
		if len(batch) == 0 {
			empty++
			storage.Sleep(ctx, pollPause(empty, l.longestPause(), l.random()))
			continue
		}
		empty, l.busyAt = 0, time.Now()
		for _, msg := range batch {
			l.inFlight.Add(1)
			l.messages.Go(func() {
				l.handle(invocations, msg)
				l.Places.ended()
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
func (l *Listener) poll(ctx context.Context, limit int) ([]storage.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	if !l.exists {
		if _, err := l.Store.Count(ctx, l.Function.Queue); err != nil {
			return nil, err
		}
	}
	batch, err := l.Store.Receive(ctx, l.Function.Queue, limit, l.Lease)
	l.exists = err == nil
	return batch, err
}

// report logs when it changes whether the queue can be read.
func (l *Listener) report(err error) {
	if l.Polled != nil {
		l.Polled(err)
	}
	state, event := readable, l.Log.Info()
	switch {
	case errors.Is(err, storage.ErrNoQueue):
		state, event = "queue does not exist: waiting for someone to create it", l.Log.Info()
	case err != nil:
		state, event = "queue cannot be read: trying again", l.Log.Warn().Err(err)
	}
	if state != l.state {
		event.Msg(state)
	}
	l.state = state
}

// longestPause returns the longest wait before the next poll.
func (l *Listener) longestPause() time.Duration {
	if time.Since(l.busyAt) < busyTime {
		return l.Queues.MaxPollingInterval
	}
	return cmp.Or(l.IdlePolling, l.Queues.MaxPollingInterval)
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
		if errors.Is(err, storage.ErrRefused) && l.Refused != nil {
			l.Refused(fmt.Errorf("complete message of %s: %w", l.Function.Queue, err))
		}
	}
}

// tryMessage invokes the function, and renews the message's lease meanwhile if it is renewed. It returns the newest
// receipt.
func (l *Listener) tryMessage(
	ctx context.Context, msg storage.Message, content []byte, log zerolog.Logger,
) (out Result, receipt string) {
	renewing, done := context.WithCancel(context.WithoutCancel(ctx))
	defer done()
	receipts := make(chan string, 1)
	if l.RenewsLease {
		go func() { receipts <- l.renew(renewing, msg, log) }()
	} else {
		receipts <- msg.PopReceipt
	}
	out = l.Invoke(ctx, msg, content)
	done()
	l.Counts.update(func(s *Stats) {
		if out == Failed {
			s.Failed++
		} else {
			s.Succeeded++
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RequestTimeout)
	defer cancel()
	return l.Store.Update(ctx, l.Function.Queue, msg.ID, msg.PopReceipt, msg.Text, l.Lease)
}

// complete ends the delivery of a message. The host's stop does not interrupt it.
func (l *Listener) complete(ctx context.Context, out Result, msg storage.Message, log zerolog.Logger) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CompletionTimeout)
	defer cancel()
	switch {
	case out == Kept:
	case out == Succeeded:
		err = l.remove(ctx, msg)
	case out == undecodable || msg.DequeueCount >= l.Queues.MaxDequeueCount:
		log.Warn().Msgf("Message has reached MaxDequeueCount of %d. Moving message to queue '%s'.",
			l.Queues.MaxDequeueCount, l.poison)
		err = l.moveToPoison(ctx, msg)
	default:
		err = persist(ctx, func(ctx context.Context) error {
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

// persist repeats a request until it succeeds, is refused, or finds no message or queue.
func persist(ctx context.Context, try func(context.Context) error) error {
	return storage.Persist(ctx, RequestTimeout, try, storage.ErrStale, storage.ErrNoQueue, storage.ErrRefused)
}

func (l *Listener) remove(ctx context.Context, msg storage.Message) error {
	return persist(ctx, func(ctx context.Context) error {
		return l.Store.Delete(ctx, l.Function.Queue, msg.ID, msg.PopReceipt)
	})
}

// moveToPoison writes the message's text to the poison queue and deletes the message. If the delete fails, both exist.
func (l *Listener) moveToPoison(ctx context.Context, msg storage.Message) error {
	var put storage.Message
	err := persist(ctx, func(ctx context.Context) (err error) {
		put, err = storage.PutCreating(ctx, l.Store, l.poison, storage.Item{Text: msg.Text, TTL: l.PoisonTTL})
		return err
	})
	if err != nil {
		return fmt.Errorf("move message to %s: %w", l.poison, err)
	}
	l.Counts.update(func(s *Stats) { s.Poisoned++ })
	if l.Poisoned != nil {
		put.Text = msg.Text
		l.Poisoned(l.poison, put)
	}
	return l.remove(ctx, msg)
}

// isGone reports whether the error says that another receiver has the message or that it was deleted.
func isGone(err error) bool {
	return errors.Is(err, storage.ErrStale) || errors.Is(err, storage.ErrNoQueue)
}
