package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/queue"
)

// poisonTTL is how long a message lives on the poison queue: the service's default, as the host asks
// for no other.
const poisonTTL = 7 * 24 * time.Hour

// completion is what happens to a message after its delivery.
type completion int

const (
	deleteMessage  completion = iota
	releaseMessage            // visible again after visibilityTimeout
	giveBack                  // visible again at once: it had no try
	poisonMessage             // moved, after as many tries as it gets
	rejectMessage             // moved without a try: its text cannot be decoded
	leaveMessage              // until its lease ends
)

// tooOften reports whether a message goes to the poison queue without another try. A queue without a
// poison queue has no limit.
func tooOften(dequeues, limit int64, hasPoison bool) bool { return hasPoison && dequeues > limit }

// complete decides what happens to a message: section D.5 of the Functions host contract.
func complete(out outcome, dequeues, limit int64, hasPoison bool) completion {
	switch out {
	case succeeded:
		return deleteMessage
	case notInvoked:
		return giveBack
	case failedTry:
	}
	switch {
	case !hasPoison:
		return leaveMessage
	case dequeues >= limit:
		return poisonMessage
	}
	return releaseMessage
}

// undecodable decides what happens to a message whose text is not in the queue's encoding: section D.7
// of the Functions host contract.
func undecodable(hasPoison bool) completion {
	if hasPoison {
		return rejectMessage
	}
	return leaveMessage
}

// carryOut completes the message. It goes on when the host stops, and leaves the message to its lease
// when storage cannot be reached; a refusal of storage stops the host.
func (l *listener) carryOut(ctx context.Context, what completion, msg queue.Message, log zerolog.Logger) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storageTimeout)
	defer cancel()
	var err error
	switch what {
	case deleteMessage:
		err = ignoreGone(l.store.Delete(ctx, l.fn.Queue, msg.ID, msg.PopReceipt), log)
	case releaseMessage:
		err = l.release(ctx, msg, l.rules.retryDelay, log)
	case giveBack:
		log.Info().Msg("message given back: the host is stopping")
		err = l.release(ctx, msg, 0, log)
	case poisonMessage:
		log.Warn().Msgf("Message has reached MaxDequeueCount of %d. Moving message to queue '%s'.", l.rules.maxDequeues, l.poison)
		err = l.moveToPoison(ctx, msg, log)
	case rejectMessage:
		log.Warn().Msgf("Moving message that cannot be decoded to queue '%s'.", l.poison)
		err = l.moveToPoison(ctx, msg, log)
	case leaveMessage:
		log.Warn().Dur("lease", l.rules.lease).Msg("message left invisible until its lease ends: there is no poison queue for it")
	}
	if err == nil {
		return
	}
	if errors.Is(err, queue.ErrRefused) {
		l.fatal(fmt.Errorf("complete message of %s: %w", l.fn.Queue, err))
	}
	log.Warn().Err(err).Msg("message not completed: it comes again when its lease ends")
}

func (l *listener) release(ctx context.Context, msg queue.Message, delay time.Duration, log zerolog.Logger) error {
	_, err := l.store.Update(ctx, l.fn.Queue, msg.ID, msg.PopReceipt, msg.Text, delay)
	return ignoreGone(err, log)
}

// moveToPoison writes the message's text to the poison queue and deletes the message: section D.6 of
// the Functions host contract. If the delete fails there are two of it.
func (l *listener) moveToPoison(ctx context.Context, msg queue.Message, log zerolog.Logger) error {
	item := queue.Item{Text: msg.Text, TTL: poisonTTL}
	_, err := l.store.Put(ctx, l.poison, item)
	if errors.Is(err, queue.ErrNoQueue) {
		if err = l.store.Create(ctx, l.poison); err == nil {
			_, err = l.store.Put(ctx, l.poison, item)
		}
	}
	if err != nil {
		return fmt.Errorf("move message to %s: %w", l.poison, err)
	}
	l.counts.count(l.fn.Name, func(s *FunctionStats) { s.Poisoned++ })
	l.wrote(l.poison)
	return ignoreGone(l.store.Delete(ctx, l.fn.Queue, msg.ID, msg.PopReceipt), log)
}

// ignoreGone drops the errors that say that there is nothing left to complete.
func ignoreGone(err error, log zerolog.Logger) error {
	if errors.Is(err, queue.ErrStale) || errors.Is(err, queue.ErrNoQueue) {
		log.Debug().Err(err).Msg("message is no longer ours: nothing to complete")
		return nil
	}
	return err
}
