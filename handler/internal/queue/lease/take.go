package lease

import (
	"context"
	"errors"
	"time"

	"asynccaller/handler/internal/queue"
)

const (
	// probes is how many batches are received before it is known how long the rest will take.
	probes = 2
	// slack is added to that estimate.
	slack = time.Second
	// rounds is how many batches in a row may hold nothing new before the queue counts as seen: messages
	// whose lease has ended come again.
	rounds = 3
)

// Choice says what to take.
type Choice struct {
	// Choose is asked once about each message of the queue, in the order in which they come, and reports
	// whether to keep it, and as which number; see [Message].
	Choose func(queue.Message) (number int, keep bool)
	// Most is set where most messages will be chosen: they are leased for long from the start.
	Most bool
	// Enough, unless nil, ends the search when it reports true.
	Enough func() bool
}

// Take goes through a whole queue and keeps what is chosen; the rest has a lease that ends about then, see
// [Hold.GiveBackOthers]. It returns how many messages it saw. A queue that does not exist has none. With an
// error, or the end of ctx, what was chosen so far is held all the same.
func (h *Hold) Take(ctx context.Context, queueName string, choice Choice) (seen int, err error) {
	total, err := h.count(ctx, queueName)
	if err != nil || total == 0 {
		return 0, err
	}
	h.expect(total)
	pace := pace{began: time.Now(), total: total, long: h.Lease(), most: choice.Most}
	for idle := 0; idle < rounds && (choice.Enough == nil || !choice.Enough()); {
		lease := pace.next(time.Now())
		batch, ends, err := h.receive(ctx, queueName, lease)
		if err != nil {
			return seen, err
		}
		if len(batch) == 0 {
			break
		}
		idle++
		for _, received := range batch {
			isNew, err := h.take(queueName, received, ends, time.Now().Add(lease), choice.Choose)
			if err != nil {
				return seen, err
			}
			if isNew {
				idle = 0
				seen++
			}
		}
		pace.saw(len(batch))
	}
	h.Secure(ctx)
	return seen, nil
}

// Look shows every message of a queue that is visible and keeps none. A short queue is peeked at, which
// nobody notices; a longer one can only be seen by taking it for a moment. It returns how many it saw.
func (h *Hold) Look(ctx context.Context, queueName string, see func(queue.Message)) (seen int, err error) {
	batch, err := h.peek(ctx, queueName)
	if errors.Is(err, queue.ErrNoQueue) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if len(batch) < queue.MaxBatch {
		for _, m := range batch {
			see(m)
		}
		return len(batch), nil
	}
	return h.Take(ctx, queueName, Choice{Choose: func(m queue.Message) (int, bool) {
		see(m)
		return 0, false
	}})
}

func (h *Hold) peek(ctx context.Context, queueName string) (batch []queue.Message, err error) {
	err = Patiently(ctx, func(ctx context.Context) (err error) {
		batch, err = h.store.Peek(ctx, queueName, queue.MaxBatch)
		return err
	})
	return batch, err
}

// take notes a message that was received, and asks whether it is chosen if it is new. It is held only then,
// because from there on others renew it.
func (h *Hold) take(
	queueName string, received queue.Message, ends, ended time.Time, choose func(queue.Message) (int, bool),
) (isNew bool, err error) {
	if m := h.Find(queueName, received.ID); m != nil {
		return false, h.takeAgain(m, received, ends, ended)
	}
	where, err := h.texts.append(received.Text)
	if err != nil {
		return false, err
	}
	m := &Message{
		Queue: queueName, ID: received.ID, where: where,
		popReceipt: received.PopReceipt, ends: ends, ended: ended, expires: received.ExpiresAt,
	}
	m.Number, m.chosen = choose(received)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[key{queueName, received.ID}] = m
	return true, nil
}

// takeAgain notes a message that is held already: it was left to others for a moment, when its lease had ended.
func (h *Hold) takeAgain(m *Message, received queue.Message, ends, ended time.Time) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.popReceipt, m.ends, m.ended, m.expires = received.PopReceipt, ends, ended, received.ExpiresAt
	if m.adopted {
		if m.where, err = h.texts.append(received.Text); err != nil {
			return err
		}
		m.adopted = false
	}
	if m.chosen {
		h.renewed(m, received.PopReceipt)
	}
	return nil
}

// Find returns a message that is held, or nil.
func (h *Hold) Find(queueName, id string) *Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held[key{queueName, id}]
}

// expect notes the length of a queue.
func (h *Hold) expect(total int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.most = max(h.most, total)
}

func (h *Hold) count(ctx context.Context, queueName string) (int, error) {
	var total int
	err := Patiently(ctx, func(ctx context.Context) (err error) {
		total, err = h.store.Count(ctx, queueName)
		return err
	})
	if errors.Is(err, queue.ErrNoQueue) {
		return 0, nil
	}
	return total, err
}

// receive takes a batch, and tells when its lease ends at the latest moment that is safe to rely on.
func (h *Hold) receive(ctx context.Context, queueName string, lease time.Duration) (batch []queue.Message, ends time.Time, err error) {
	err = Patiently(ctx, func(ctx context.Context) (err error) {
		ends = time.Now().Add(lease)
		batch, err = h.store.Receive(ctx, queueName, queue.MaxBatch, lease)
		return err
	})
	return batch, ends, err
}

// pace estimates how long a queue takes to be seen. A message that is not chosen has to stay away just until
// then, or it would come twice; and then it should come back without being asked, because giving it back
// costs as much as deleting it.
type pace struct {
	began   time.Time
	total   int
	long    time.Duration // the lease of what is chosen
	most    bool
	batches int
	seen    int
}

func (p *pace) saw(n int) {
	p.batches++
	p.seen += n
}

// next is the lease of the next batch.
func (p *pace) next(now time.Time) time.Duration {
	if p.most || p.batches < probes {
		return p.long
	}
	left := max(p.total-p.seen, 0)/queue.MaxBatch + 2
	each := now.Sub(p.began) / time.Duration(p.batches)
	lease := time.Duration(left)*each*11/10 + slack
	return min(lease.Truncate(time.Second)+time.Second, p.long)
}
