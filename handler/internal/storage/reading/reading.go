// Package reading reads whole queues. Peeking returns only the first 32 messages, so receiving the messages is the
// only way to see all. That hides them from other clients, and increases their dequeue counts, which is harmless on a
// poison queue. A reading hides each message once, and releases none: a message becomes visible again when its lease
// ends.
package reading

import (
	"context"
	"time"

	"asynccaller/handler/internal/storage"
)

const (
	// maxLease limits a lease.
	maxLease = 4 * time.Hour
	// minIdle is the number of consecutive batches without a new message after which a short queue counts as read:
	// messages whose lease has ended come again, and may come first. A long queue has as many more as it has batches.
	minIdle = 3
	// maxWait limits the time of [Wait].
	maxWait = 5 * time.Second
)

// Reading is one pass over a queue.
type Reading struct {
	Store storage.Queues
	Queue string
	// Total is about how many messages the queue has.
	Total int
	// Hold is how much longer than the reading the messages stay invisible. Whoever leaves a message alone nevertheless
	// makes it visible after [Batch.Rest].
	Hold time.Duration
}

// Batch is a number of messages that were received together. Their lease ends at Until at the earliest. Rest is
// about how long the reading still takes.
type Batch struct {
	Messages []Message
	Until    time.Time
	Rest     time.Duration
}

// Message is a received message. Again says that the reading has received it before, and that its lease has ended.
type Message struct {
	storage.Message

	Again bool
}

// Each receives the messages of the queue, one batch at a time, until there are no more, visit returns stop or an
// error, or ctx ends. A message can come again if its lease ended before the reading did. Visit returns how many
// messages it has claimed or deleted. Visible is when the others are visible again.
func (r Reading) Each(ctx context.Context, visit func(Batch) (taken int, stop bool, err error)) (
	visible time.Time, err error,
) {
	if r.Total == 0 {
		return time.Time{}, nil
	}
	known := map[string]bool{}
	began, batches := time.Now(), 0
	_, err = storage.Retry(ctx,
		func(ctx context.Context) ([]storage.Message, error) { return r.Store.Peek(ctx, r.Queue, 1) })
	if err != nil {
		return visible, err
	}
	perBatch := time.Since(began) // so that the first lease is not too short
	began = time.Now()
	for idle := 0; idle < minIdle+r.Total/storage.MaxBatch; {
		rest := estimate(perBatch, r.Total-len(known))
		lease := rest + r.Hold
		var sent time.Time
		received, err := storage.Retry(ctx, func(ctx context.Context) ([]storage.Message, error) {
			sent = storage.WallTime()
			return r.Store.Receive(ctx, r.Queue, storage.MaxBatch, lease)
		})
		if err != nil || len(received) == 0 {
			return visible, err
		}
		idle++
		ends := time.Now().Add(rest)
		batch := Batch{Until: sent.Add(lease), Rest: rest}
		for _, m := range received {
			again := known[m.ID]
			batch.Messages = append(batch.Messages, Message{m, again})
			if !again {
				known[m.ID] = true
				idle = 0
			}
		}
		taken, stop, err := visit(batch)
		if taken < len(received) && ends.After(visible) {
			visible = ends
		}
		if err != nil || stop {
			return visible, err
		}
		batches++
		perBatch = time.Since(began) / time.Duration(batches)
	}
	return visible, nil
}

// Wait waits for a moment until the messages of a reading are visible again, so that the next command sees them.
func Wait(ctx context.Context, visible time.Time) {
	storage.Sleep(ctx, min(time.Until(visible), maxWait))
}

// estimate returns a lease that lasts until the rest of a queue is read. A shorter one would show the messages twice.
func estimate(perBatch time.Duration, rest int) time.Duration {
	batches := max(rest, 0)/storage.MaxBatch + 2
	lease := time.Duration(batches) * perBatch * 11 / 10
	return min(lease.Truncate(time.Second)+time.Second, maxLease)
}

// Show shows every visible message of a queue of about total messages, of which these are the first. It receives
// messages only if there are probably more, so that showing a short queue has no side effects.
func Show(
	ctx context.Context, store storage.Queues, name string, total int, first []storage.Message,
	visit func(storage.Message),
) error {
	if len(first) < storage.MaxBatch {
		for _, m := range first {
			visit(m)
		}
		return nil
	}
	r := Reading{Store: store, Queue: name, Total: total}
	visible, err := r.Each(ctx, func(b Batch) (int, bool, error) {
		for _, m := range b.Messages {
			if !m.Again {
				visit(m.Message)
			}
		}
		return 0, false, nil
	})
	Wait(ctx, visible)
	return err
}
