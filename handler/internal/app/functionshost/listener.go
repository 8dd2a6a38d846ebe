package functionshost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/storage"
)

const (
	// shortestPoll is the first wait after an empty poll.
	shortestPoll = 100 * time.Millisecond
	// longestPoll is the host's default for maxPollingInterval. A Development host replaces it by
	// developmentPoll.
	longestPoll     = time.Minute
	developmentPoll = 2 * time.Second
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
	// poisonTTL is how long a message lives on the poison queue: the service's default, because the host sets
	// no time-to-live.
	poisonTTL = 7 * 24 * time.Hour
)

// listener polls one function's queue and invokes the function for each message (docs/host.md, "Polling", "Slots",
// "Leases" and "Retries and poison messages").
type listener struct {
	fn     functionapp.Function
	queues functionapp.QueueOptions // with the host's default of maxPollingInterval filled in
	lease  time.Duration
	poison string // every queue of a valid app has one
	store  storage.Queues
	invoke func(context.Context, invocation) result
	count  func(change func(*stats))
	random func() float64 // in [0,1)
	fatal  func(error)    // stops the host
	log    zerolog.Logger

	inFlight atomic.Int64
	finished chan struct{} // has room for one signal
	messages sync.WaitGroup

	// These belong to run.
	exists bool
	state  string // whether the queue can be read, as logged last
}

const readable = "queue can be read"

func (h *Host) newListener(fn functionapp.Function, i *invoker, fatal func(error)) *listener {
	poison, _ := storage.PoisonName(fn.Queue)
	return &listener{
		fn:       fn,
		queues:   withDefaultPolling(h.options.App.Host.Queues, kindOf(h.options.Env)),
		lease:    h.options.Lease,
		poison:   poison,
		store:    h.options.Store,
		invoke:   i.invoke,
		count:    h.counts.update,
		random:   rand.Float64,
		fatal:    fatal,
		log:      h.options.Log.With().Str("function", fn.Name).Str("queue", fn.Queue).Logger(),
		finished: make(chan struct{}, 1),
		state:    readable,
	}
}

// withDefaultPolling fills in the host's default for maxPollingInterval. A Development host also shortens an interval
// in host.json that equals the default.
func withDefaultPolling(o functionapp.QueueOptions, kind string) functionapp.QueueOptions {
	o.MaxPollingInterval = cmp.Or(o.MaxPollingInterval, longestPoll)
	if o.MaxPollingInterval == longestPoll && strings.EqualFold(kind, development) {
		o.MaxPollingInterval = developmentPoll
	}
	return o
}

// run polls until stopping is closed, and returns when all messages are completed. The end of ctx cuts
// invocations short.
func (l *listener) run(ctx context.Context, stopping <-chan struct{}) {
	defer l.messages.Wait()
	empty := 0 // polls in a row that found nothing
	for !closed(stopping) {
		batch, err := l.poll(ctx)
		if errors.Is(err, storage.ErrRefused) {
			l.fatal(fmt.Errorf("function %s cannot read its queue, at which the real host crashes: %w", l.fn.Name, err))
			return
		}
		l.report(err)
		if len(batch) == 0 {
			empty++
			pause(pollPause(empty, l.queues.MaxPollingInterval, l.random()), stopping)
			continue
		}
		empty = 0
		for _, msg := range batch {
			l.inFlight.Add(1)
			l.messages.Go(func() {
				l.handle(ctx, msg)
				l.inFlight.Add(-1)
				select {
				case l.finished <- struct{}{}:
				default:
				}
			})
		}
		for l.inFlight.Load() > int64(l.queues.NewBatchThreshold) && !closed(stopping) {
			select {
			case <-l.finished:
			case <-stopping:
			}
		}
	}
}

// poll receives messages if the queue exists; it never creates the queue. A stop does not interrupt it,
// because messages that storage has leased would be out of reach until the lease ends.
func (l *listener) poll(ctx context.Context) ([]storage.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, storageTimeout)
	defer cancel()
	if !l.exists {
		if _, err := l.store.Count(ctx, l.fn.Queue); err != nil {
			return nil, err
		}
	}
	batch, err := l.store.Receive(ctx, l.fn.Queue, l.queues.BatchSize, l.lease)
	l.exists = err == nil
	return batch, err
}

// report logs when it changes whether the queue can be read.
func (l *listener) report(err error) {
	state, event := readable, l.log.Info()
	switch {
	case errors.Is(err, storage.ErrNoQueue):
		state, event = "queue does not exist: waiting for someone to create it", l.log.Warn()
	case err != nil:
		state, event = "queue cannot be read: trying again", l.log.Warn().Err(err)
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
func (l *listener) handle(ctx context.Context, msg storage.Message) {
	log := l.log.With().Str("message_id", msg.ID).Int64("dequeue_count", msg.DequeueCount).Logger()
	l.count(func(s *stats) {
		s.received++
		s.maxDequeueCount = max(s.maxDequeueCount, msg.DequeueCount)
	})
	var out result
	content, err := l.queues.MessageEncoding.Decode(msg.Text)
	switch {
	case err != nil:
		log.Warn().Err(err).Msg("Message decoding has failed! Check MessageEncoding settings.")
		out = undecodable
	case msg.DequeueCount > l.queues.MaxDequeueCount:
		out = failed // without another try
	default:
		out, msg.PopReceipt = l.tryMessage(ctx, msg, content, log)
	}
	if ctx.Err() != nil {
		return
	}
	if err := l.complete(ctx, out, msg, log); err != nil {
		log.Warn().Err(err).Msg("message not completed: it is visible again when its lease ends")
		if errors.Is(err, storage.ErrRefused) {
			l.fatal(fmt.Errorf("complete message of %s: %w", l.fn.Queue, err))
		}
	}
}

// tryMessage invokes the function and renews the message's lease meanwhile. It returns the newest receipt.
func (l *listener) tryMessage(
	ctx context.Context, msg storage.Message, content []byte, log zerolog.Logger,
) (out result, receipt string) {
	done, receipts := make(chan struct{}), make(chan string)
	go func() { receipts <- l.renew(ctx, msg, done, log) }()
	out = l.invoke(ctx, messageInvocation(l.fn, msg, content, time.Now(), uuid.NewString()))
	close(done)
	l.count(func(s *stats) {
		if out == succeeded {
			s.succeeded++
		} else {
			s.failed++
		}
	})
	return out, <-receipts
}

// renew renews the message's lease until done is closed: after half the lease, and sooner after each failure.
func (l *listener) renew(
	ctx context.Context, msg storage.Message, done <-chan struct{}, log zerolog.Logger,
) (receipt string) {
	wait := l.lease / 2
	for pause(wait, done) {
		newest, err := l.renewOnce(ctx, msg)
		switch {
		case err == nil:
			msg.PopReceipt = newest
			wait = l.lease / 2
		case isGone(err):
			log.Debug().Msg("message is gone: lease not renewed")
			return msg.PopReceipt
		default:
			log.Warn().Err(err).Msg("lease not renewed")
			wait = max(wait/2, min(renewalFloor, l.lease/10))
		}
	}
	return msg.PopReceipt
}

// renewOnce is not interrupted by the end of the invocation or of the host: if storage renews the lease and the new
// receipt is lost, the message cannot be deleted.
func (l *listener) renewOnce(ctx context.Context, msg storage.Message) (receipt string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storageTimeout)
	defer cancel()
	return l.store.Update(ctx, l.fn.Queue, msg.ID, msg.PopReceipt, msg.Text, l.lease)
}

// complete ends the delivery of a message. The host's stop does not interrupt it.
func (l *listener) complete(ctx context.Context, out result, msg storage.Message, log zerolog.Logger) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storageTimeout)
	defer cancel()
	switch {
	case out == succeeded:
		err = l.remove(ctx, msg)
	case out == undecodable || msg.DequeueCount >= l.queues.MaxDequeueCount:
		log.Warn().Msgf("Message has reached MaxDequeueCount of %d. Moving message to queue '%s'.",
			l.queues.MaxDequeueCount, l.poison)
		err = l.moveToPoison(ctx, msg)
	default:
		err = persist(ctx, func() error {
			_, err := l.store.Update(ctx, l.fn.Queue, msg.ID, msg.PopReceipt, msg.Text, l.queues.VisibilityTimeout)
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

func (l *listener) remove(ctx context.Context, msg storage.Message) error {
	return persist(ctx, func() error { return l.store.Delete(ctx, l.fn.Queue, msg.ID, msg.PopReceipt) })
}

// moveToPoison writes the message's text to the poison queue and deletes the message. If the delete fails, both exist.
func (l *listener) moveToPoison(ctx context.Context, msg storage.Message) error {
	put := func() error {
		_, err := l.store.Put(ctx, l.poison, storage.Item{Text: msg.Text, TTL: poisonTTL})
		return err
	}
	err := persist(ctx, put)
	if errors.Is(err, storage.ErrNoQueue) {
		err = l.store.Create(ctx, l.poison)
		if err == nil {
			err = persist(ctx, put)
		}
	}
	if err != nil {
		return fmt.Errorf("move message to %s: %w", l.poison, err)
	}
	l.count(func(s *stats) { s.poisoned++ })
	return l.remove(ctx, msg)
}

// isGone reports whether the error says that another receiver has the message or that it was deleted.
func isGone(err error) bool {
	return errors.Is(err, storage.ErrStale) || errors.Is(err, storage.ErrNoQueue)
}
