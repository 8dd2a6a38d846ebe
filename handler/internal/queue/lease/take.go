package lease

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"asynccaller/handler/internal/queue"
)

const (
	// probes is the number of batches that are received before the time for the rest is estimated.
	probes = 2
	// slack is added to that estimate.
	slack = time.Second
	// maxIdle is the number of consecutive batches without a new message after which the queue counts as read:
	// messages whose lease has ended come again.
	maxIdle = 3
)

// Selection says which messages to hold.
type Selection struct {
	// Select is called once for each message of the queue, in the order of arrival. It reports whether to hold
	// the message, and its [Message.Number].
	Select func(queue.Message) (number int, hold bool)
	// Most is a hint that most messages will be selected: they get a long lease at once.
	Most bool
	// Enough, unless nil, ends the search when it returns true.
	Enough func() bool
}

// Take reads a whole queue of about total messages, holds the selected messages, and releases the others. When it
// returns an error, the messages that were selected so far are held as well.
func (h *Holder) Take(ctx context.Context, queueName string, total int, s Selection) error {
	if total == 0 {
		return nil
	}
	h.mu.Lock()
	h.largest = max(h.largest, total)
	h.mu.Unlock()
	began, batches, seen, selected := time.Now(), 0, 0, 0
	for idle := 0; idle < maxIdle && (s.Enough == nil || !s.Enough()); {
		lease := h.Lease()
		if most := s.Most || 2*selected > seen; !most && batches >= probes {
			lease = min(estimate(time.Since(began)/time.Duration(batches), total-seen), lease)
		}
		var ends time.Time
		batch, err := timed(ctx, h, func(ctx context.Context) ([]queue.Message, error) {
			ends = time.Now().Add(lease)
			return h.store.Receive(ctx, queueName, queue.MaxBatch, lease)
		})
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			break
		}
		idle++
		for _, received := range batch {
			m, isNew, err := h.take(queueName, received, ends, lease, s)
			if err != nil {
				return err
			}
			if isNew {
				idle = 0
			}
			if m.selected {
				selected++
			}
		}
		batches++
		seen += len(batch)
	}
	h.RenewDue(ctx)
	h.Release(ctx, slices.DeleteFunc(h.All(), func(m *Message) bool { return m.selected })...)
	return nil
}

// take adds a received message, whose lease ends at the given time at the earliest. A message that is held already was
// received again after its lease had ended. A new message is added only after its selection, because others renew it
// from then on.
func (h *Holder) take(queueName string, received queue.Message, ends time.Time, lease time.Duration, s Selection) (m *Message, isNew bool, err error) {
	m = h.Find(queueName, received.ID)
	if m == nil {
		m, isNew = &Message{Queue: queueName, ID: received.ID}, true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if isNew || m.adopted {
		if m.text, err = h.texts.append(received.Text); err != nil {
			return nil, false, err
		}
	}
	m.ends, m.expires, m.adopted = ends, received.ExpiresAt, false
	endsAtLatest := time.Now().Add(lease)
	h.setReceipt(m, received.PopReceipt) // not reported for a new message, which Select gets
	if isNew {
		m.Number, m.selected = s.Select(received)
		h.add(m)
	}
	if !m.selected {
		m.ends = endsAtLatest
	}
	return m, isNew, nil
}

// Scan shows every visible message of a queue of about total messages. It only peeks at a short queue, which has no
// side effects; it receives and releases the messages of a longer one.
func Scan(ctx context.Context, store queue.Store, queueName string, total int, see func(queue.Message)) error {
	if total == 0 {
		return nil
	}
	batch, err := Retry(ctx, func(ctx context.Context) ([]queue.Message, error) {
		return store.Peek(ctx, queueName, queue.MaxBatch)
	})
	if err != nil {
		return err
	}
	if len(batch) < queue.MaxBatch {
		for _, m := range batch {
			see(m)
		}
		return nil
	}
	h := New(store, nil)
	defer h.Close(ctx)
	return h.Take(ctx, queueName, total, Selection{Select: func(m queue.Message) (int, bool) {
		see(m)
		return 0, false
	}})
}

// estimate returns a lease that lasts until the rest of a queue is read. That is best for messages that are not
// selected: a shorter lease shows them twice, and releasing them costs as much as deleting them.
func estimate(perBatch time.Duration, rest int) time.Duration {
	batches := max(rest, 0)/queue.MaxBatch + 2
	lease := time.Duration(batches)*perBatch*11/10 + slack
	return lease.Truncate(time.Second) + time.Second
}

// spool keeps texts on disk, so that a queue of any length needs little memory. Other users cannot read its file, which
// is gone when the process ends. The zero value is an empty spool.
type spool struct {
	file *os.File

	mu   sync.Mutex
	size int64
}

// span locates a text in the file.
type span struct {
	at     int64
	length int
}

func (s *spool) append(text string) (span, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		file, err := os.CreateTemp("", "async-caller-*")
		if err != nil {
			return span{}, fmt.Errorf("temporary file for messages: %w", err)
		}
		// Unix keeps an open file without a name until it is closed. Elsewhere close removes it.
		_ = os.Remove(file.Name())
		s.file = file
	}
	where := span{at: s.size, length: len(text)}
	if _, err := s.file.WriteAt([]byte(text), where.at); err != nil {
		return span{}, fmt.Errorf("temporary file for messages: %w", err)
	}
	s.size += int64(len(text))
	return where, nil
}

func (s *spool) text(where span) (string, error) {
	text := make([]byte, where.length)
	if n, err := s.file.ReadAt(text, where.at); n < len(text) {
		return "", fmt.Errorf("temporary file for messages: %w", err)
	}
	return string(text), nil
}

func (s *spool) close() {
	if s.file == nil {
		return
	}
	_ = s.file.Close()
	_ = os.Remove(s.file.Name())
}
