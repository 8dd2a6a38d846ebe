package host

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/queue"
)

// rules are host.json's `extensions.queues` as a listener follows them.
type rules struct {
	batchSize   int
	threshold   int // messages in flight at or below which the next poll starts
	longestWait time.Duration
	lease       time.Duration
	retryDelay  time.Duration
	maxDequeues int64
	encoding    queue.Encoding
}

func newRules(o functionapp.QueueOptions, lease time.Duration, env []string) rules {
	processors := runtime.NumCPU()
	if sku, _ := lookupIn(env)("WEBSITE_SKU"); sku == "Dynamic" {
		processors = 1
	}
	threshold := o.NewBatchThreshold
	if threshold < 0 {
		threshold = o.BatchSize / 2 * processors
	}
	return rules{
		batchSize:   o.BatchSize,
		threshold:   threshold,
		longestWait: pollLimit(o.MaxPollingInterval),
		lease:       lease,
		retryDelay:  o.VisibilityTimeout,
		maxDequeues: o.MaxDequeueCount,
		encoding:    o.MessageEncoding,
	}
}

// invokeFunc hands a message to the handler and tells what became of it.
type invokeFunc func(ctx context.Context, fn functionapp.Function, msg queue.Message, content []byte) outcome

// listener polls one function's queue and has its messages handled: section D of the Functions host
// contract. Set the fields of the second group before run.
type listener struct {
	fn     functionapp.Function
	rules  rules
	store  queue.Store
	poison string // empty: the queue has none
	invoke invokeFunc

	counts *counters
	log    zerolog.Logger
	random func() float64     // in [0,1)
	fatal  func(error)        // stops the host
	wrote  func(queue string) // called after a write to a queue

	// wake has room for one: waking twice is waking once.
	wake chan struct{}
	// finished has room for all messages in flight, so that none waits for the loop.
	finished chan struct{}
	messages sync.WaitGroup

	// What follows belongs to run.
	inFlight int
	exists   bool
	trouble  string
}

func newListener(fn functionapp.Function, r rules, store queue.Store, invoke invokeFunc) *listener {
	poison, _ := queue.PoisonName(fn.Queue)
	return &listener{
		fn:       fn,
		rules:    r,
		store:    store,
		poison:   poison,
		invoke:   invoke,
		wake:     make(chan struct{}, 1),
		finished: make(chan struct{}, r.batchSize+r.threshold),
	}
}

// wakeUp ends the wait for the next poll.
func (l *listener) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run polls until stopping is closed and returns when all messages are completed. The end of ctx cuts
// short what is in flight.
func (l *listener) run(ctx context.Context, stopping <-chan struct{}) {
	defer l.messages.Wait()
	waits := backoff{longest: l.rules.longestWait}
	for !closed(stopping) {
		batch, err := l.poll(ctx)
		if errors.Is(err, queue.ErrRefused) {
			l.fatal(fmt.Errorf("function %s cannot read its queue, which makes the real host crash; "+
				"check the credentials and their rights: %w", l.fn.Name, err))
			return
		}
		l.report(err)
		if len(batch) == 0 {
			l.rest(waits.next(l.random()), stopping)
			continue
		}
		waits.found()
		for _, msg := range batch {
			l.inFlight++
			l.messages.Go(func() {
				l.handle(ctx, msg, stopping)
				l.finished <- struct{}{}
			})
		}
		l.makeRoom(stopping)
	}
}

// poll receives messages if the queue exists, which it never makes it do. It is not broken off by a
// stop: what storage has leased to us would be out of reach until the lease ends.
func (l *listener) poll(ctx context.Context) ([]queue.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, storageTimeout)
	defer cancel()
	if !l.exists {
		if _, err := l.store.Count(ctx, l.fn.Queue); err != nil {
			return nil, err
		}
		l.exists = true
	}
	batch, err := l.store.Receive(ctx, l.fn.Queue, l.rules.batchSize, l.rules.lease)
	l.exists = err == nil
	return batch, err
}

// report logs what keeps the listener from polling when it changes, not at every poll.
func (l *listener) report(err error) {
	trouble := ""
	switch {
	case errors.Is(err, queue.ErrNoQueue):
		trouble = "missing"
	case err != nil:
		trouble = "unreachable"
	}
	if trouble == l.trouble {
		return
	}
	l.trouble = trouble
	switch trouble {
	case "missing":
		l.log.Warn().Msg("queue does not exist: waiting for somebody to create it")
	case "unreachable":
		l.log.Warn().Err(err).Msg("queue cannot be read: trying again until it can")
	default:
		l.log.Info().Msg("queue can be read")
	}
}

// rest waits for the time of the next poll.
func (l *listener) rest(d time.Duration, stopping <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-l.wake:
			return
		case <-stopping:
			return
		case <-l.finished:
			l.inFlight--
		}
	}
}

// makeRoom waits until few enough messages are in flight.
func (l *listener) makeRoom(stopping <-chan struct{}) {
	for l.inFlight > l.rules.threshold {
		select {
		case <-l.finished:
			l.inFlight--
		case <-stopping:
			return
		}
	}
}

// handle takes one message from its receipt to its completion.
func (l *listener) handle(ctx context.Context, msg queue.Message, stopping <-chan struct{}) {
	log := l.log.With().Str("message_id", msg.ID).Int64("dequeue_count", msg.DequeueCount).Logger()
	hasPoison := l.poison != ""
	l.counts.count(l.fn.Name, func(s *FunctionStats) {
		s.Received++
		s.MaxDequeueCount = max(s.MaxDequeueCount, msg.DequeueCount)
	})
	content, err := l.rules.encoding.Decode(msg.Text)
	switch {
	case err != nil:
		log.Warn().Err(err).Msg("Message decoding has failed! Check MessageEncoding settings.")
		l.carryOut(ctx, undecodable(hasPoison), msg, log)
		return
	case tooOften(msg.DequeueCount, l.rules.maxDequeues, hasPoison):
		l.carryOut(ctx, poisonMessage, msg, log)
		return
	case closed(stopping):
		l.carryOut(ctx, giveBack, msg, log)
		return
	}

	renewal := startRenewal(ctx, l.store, l.fn.Queue, msg, l.rules.lease, log)
	out := l.invoke(ctx, l.fn, msg, content)
	msg.PopReceipt = renewal.end()
	l.counts.countInvocation(l.fn.Name, out)
	l.carryOut(ctx, complete(out, msg.DequeueCount, l.rules.maxDequeues, hasPoison), msg, log)
}
