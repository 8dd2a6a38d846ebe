package poison

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue"
)

const (
	// peekInterval is how often the watch peeks at a main queue while a canary is under way. A rescheduled message
	// is visible only until the host receives it, which takes at most two seconds.
	peekInterval = 200 * time.Millisecond
	// countInterval is how often the watch counts the messages of the other queues.
	countInterval = time.Second
	// quietPeriod is how long no canary may be visible on a queue that is never empty. It is longer than a call of
	// 120 s, the default limit, and the first delay after it, so that a rescheduled canary becomes visible within it.
	quietPeriod = 150 * time.Second
	// minSent is how many messages must have been sent before the share of failures is judged.
	minSent = 5
)

// watch watches the messages that a run has sent, and finds those that come back to the poison queue.
type watch struct {
	account *Account

	// before is the length of each main queue before any message was sent.
	before map[string]int
	// counts is the length of each poison queue at the last look, plus the messages that the run has deleted.
	counts map[string]int
	back   []inspect.Message
	// scheduled says that the run is one of scheduled messages.
	scheduled bool

	// mu guards the members that the workers of the run change.
	mu sync.Mutex
	// out are the messages that were sent and have not come back, by request ID; total counts all.
	out     map[string]sentMessage
	total   int
	deleted map[string]int
}

type sentMessage struct {
	queue, id string
	at        time.Time // by storage's clock
	// attempts is the number of calls made before, if the message was scheduled.
	attempts int
}

// begin notes the length of a main queue before any message is sent to it.
func (w *watch) begin(ctx context.Context, main string) (err error) {
	if _, known := w.before[main]; !known && main != "" {
		w.before[main], err = w.account.count(ctx, main)
	}
	return err
}

// sent notes a message that was written.
func (w *watch) sent(s journal.Step, p journal.Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total++
	m := sentMessage{queue: s.To, id: p.NewID, at: p.WrittenAt}
	if s.Row != nil {
		w.scheduled, m.attempts = true, s.Row.Attempts
	}
	w.out[s.RequestID] = m
}

// deletedFrom notes a message that was deleted.
func (w *watch) deletedFrom(queueName string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deleted[queueName]++
}

// outByQueue counts the messages that were sent to each queue and have not come back.
func (w *watch) outByQueue() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := map[string]int{}
	for _, m := range w.out {
		counts[m.queue]++
	}
	return counts
}

// failures watches until ctx ends or more than a share of the sent messages has come back, which is a [stopError].
func (w *watch) failures(ctx context.Context, share float64) error {
	for queue.Sleep(ctx, countInterval) {
		for main := range w.outByQueue() {
			if err := w.checkPoison(ctx, main); err != nil && ctx.Err() == nil {
				return stopError("cannot watch for messages that come back: " + err.Error())
			}
		}
		w.mu.Lock()
		total := w.total
		w.mu.Unlock()
		if total >= minSent && float64(len(w.back)) > share*float64(total) {
			return stopError(fmt.Sprintf("%d of %d came back: %s", len(w.back), total, w.firstBack()))
		}
	}
	return nil
}

func notDelivered(requestID string, attempts int) stopError {
	return stopError(fmt.Sprintf("a first message, %.128s, is not delivered: it waits for attempt %d", requestID, attempts+1))
}

func (w *watch) firstBack() string {
	m := w.back[0]
	return strings.TrimSuffix(fmt.Sprintf("%s on %s: %s: %s", m.RequestID, m.Queue, m.Reason, m.Detail), ": ")
}

// checkPoison looks for messages that came back to the poison queue of a main queue, if that queue has grown.
func (w *watch) checkPoison(ctx context.Context, main string) error {
	name, ok := queue.PoisonName(main)
	if !ok {
		return nil
	}
	count, err := w.account.count(ctx, name)
	if err != nil {
		return err
	}
	w.mu.Lock()
	count += w.deleted[name]
	w.mu.Unlock()
	last, known := w.counts[name]
	w.counts[name] = count
	if known && count <= last {
		return nil
	}
	_, err = w.account.scan(ctx, name, silent{}, func(m queue.Message) {
		message := inspect.Read(w.account.Rules, name, m)
		w.mu.Lock()
		defer w.mu.Unlock()
		sent, ok := w.out[message.RequestID]
		if ok && sent.queue == main && !m.InsertedAt.Before(sent.at) {
			delete(w.out, message.RequestID)
			w.back = append(w.back, message)
		}
	})
	return err
}

// canaries watches the messages that were sent until they are delivered. A [stopError] means that they are not.
func (w *watch) canaries(ctx context.Context, pace journal.Pace) error {
	w.account.observer().Note(fmt.Sprintf("sent %d first; waiting until they are delivered, at most %v", pace.Canary, pace.CanaryWait))
	deadline := time.Now().Add(pace.CanaryWait)
	for main, n := range w.outByQueue() {
		if err := w.delivered(ctx, main, n, deadline); err != nil {
			return err
		}
	}
	if ctx.Err() == nil {
		w.account.observer().Note(fmt.Sprintf("%d delivered", pace.Canary))
	}
	return nil
}

// delivered waits until the sent messages are neither on the main queue nor on its poison queue. A moment at which
// the main queue is empty proves that. For a queue that is never empty, a quiet period has to do.
func (w *watch) delivered(ctx context.Context, main string, canaries int, deadline time.Time) error {
	lastSeen, lastCount, left := time.Now(), time.Time{}, canaries
	for queue.Sleep(ctx, peekInterval) {
		now := time.Now()
		seen, err := w.visible(ctx, main)
		if err != nil {
			return err
		}
		if seen {
			lastSeen = now
		}
		if now.Sub(lastCount) >= countInterval {
			lastCount = now
			if err := w.checkPoison(ctx, main); err != nil {
				return err
			}
			if left, err = w.account.count(ctx, main); err != nil {
				return err
			}
		}
		// If the queue has grown by no more than the number of canaries, these may be invisible during their calls.
		growth := left - w.before[main]
		isQuiet := (growth <= 0 || growth > canaries) && now.Sub(lastSeen) >= quietPeriod
		switch {
		case left == 0 || isQuiet || len(w.back) > 0:
			w.counts = map[string]int{} // read the poison queue even if it has not grown
			if err := w.checkPoison(ctx, main); err != nil {
				return err
			}
			if len(w.back) == 0 {
				return w.checkRescheduled(ctx, main)
			}
			return stopError("a first message failed again: " + w.firstBack())
		case now.After(deadline):
			if err := w.checkRescheduled(ctx, main); err != nil {
				return err
			}
			if seen {
				return stopError("the first messages still wait on " + main + ": does the function app run?")
			}
			return stopError("the first messages were taken from " + main + ", but whether they are delivered does not show yet")
		}
	}
	return nil
}

// visible reports whether a sent message is visible on the main queue, or may be. It returns a [stopError] if one was
// rescheduled.
func (w *watch) visible(ctx context.Context, main string) (seen bool, err error) {
	batch, err := w.account.peek(ctx, main)
	if err != nil {
		return false, err
	}
	for _, m := range batch {
		message := inspect.Read(w.account.Rules, main, m)
		canary := w.out[message.RequestID]
		if canary.queue != main {
			continue
		}
		isOriginal := m.ID == canary.id && m.DequeueCount == 0
		if !isOriginal && message.Attempts > canary.attempts {
			return true, notDelivered(message.RequestID, message.Attempts)
		}
		seen = true
	}
	return seen || len(batch) == queue.MaxBatch, nil
}
