package poison

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/lease"
)

const (
	// peekEvery is how often a main queue is peeked at while a canary is out. A message that was rescheduled is
	// visible only until the host takes it again, which is two seconds at most.
	peekEvery = 200 * time.Millisecond
	// countEvery is how often the other queues are looked at.
	countEvery = time.Second
	// quiet is how long a canary must be out of sight on a queue that is never empty: longer than a call of
	// 120 s, the most that is configured as a rule, and the first wait behind it, so that it would have been
	// seen when it was rescheduled.
	quiet = 150 * time.Second
	// enough is how many messages must have been sent before a share of them says anything.
	enough = 5
)

// watch sees what becomes of messages that were sent: which come back to the poison queue.
type watch struct {
	account *Account

	mu sync.Mutex
	// out are the calls that were sent and have not come back, by request id; since is when the first was
	// sent to each queue, by storage's clock.
	out map[string]string
	// steps are those that are counted already.
	steps map[int]bool
	since map[string]time.Time
	// counts is how many messages a poison queue had when it was last looked at, those included that we have
	// deleted: deleted tells how many.
	counts, deleted map[string]int
	// before is how many messages a main queue had before any was sent.
	before map[string]int
	back   []inspect.Message
}

func newWatch(a *Account) *watch {
	return &watch{
		account: a, out: map[string]string{}, steps: map[int]bool{}, since: map[string]time.Time{},
		counts: map[string]int{}, deleted: map[string]int{}, before: map[string]int{},
	}
}

// sent notes a message that was written.
func (w *watch) sent(s journal.Step, p journal.Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.steps[s.N] {
		return
	}
	w.steps[s.N] = true
	w.out[s.RequestID] = s.To
	if first, ok := w.since[s.To]; !ok || p.WrittenAt.Before(first) {
		w.since[s.To] = p.WrittenAt
	}
}

// begin notes how many messages a main queue has before any is sent, if that is not known yet.
func (w *watch) begin(ctx context.Context, main string) error {
	if _, known := w.before[main]; known || main == "" {
		return nil
	}
	count, err := w.account.count(ctx, main)
	w.before[main] = count
	return ignoreMissing(err)
}

// took notes a message that was deleted.
func (w *watch) took(queueName string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deleted[queueName]++
}

// mains are the queues that something was sent to.
func (w *watch) mains() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.since))
}

// failures watches until more than a share of what was sent has come back, and says so; or until ctx ends.
func (w *watch) failures(ctx context.Context, share float64) (problem string) {
	ticker := time.NewTicker(countEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ""
		case <-ticker.C:
		}
		for _, main := range w.mains() {
			if err := w.arrivals(ctx, main, false); err != nil && ctx.Err() == nil {
				return fmt.Sprintf("what comes back cannot be watched: %v", err)
			}
		}
		w.mu.Lock()
		back, total := len(w.back), len(w.steps)
		w.mu.Unlock()
		if total >= enough && float64(back) > share*float64(total) {
			return fmt.Sprintf("%d of %d came back: %s", back, total, w.firstBack())
		}
	}
}

func (w *watch) firstBack() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.back) == 0 {
		return ""
	}
	m := w.back[0]
	return fmt.Sprintf("%s on %s: %s: %s", m.RequestID, m.Queue, m.Reason, m.Detail)
}

// arrivals looks on the poison queue of a main queue for what came back, if it has grown or must be sure.
func (w *watch) arrivals(ctx context.Context, main string, sure bool) error {
	name, ok := queue.PoisonName(main)
	if !ok {
		return nil
	}
	count, err := w.account.count(ctx, name)
	if err != nil {
		return ignoreMissing(err)
	}
	w.mu.Lock()
	last, known := w.counts[name]
	count += w.deleted[name]
	w.counts[name] = count
	since := w.since[main]
	w.mu.Unlock()
	if !sure && known && count <= last {
		return nil
	}
	rules := w.account.reader()
	_, err = w.account.look(ctx, []string{name}, silent{}, func(queueName string, m queue.Message) {
		if m.InsertedAt.Before(since) {
			return
		}
		message := inspect.Read(rules, queueName, m)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.out[message.RequestID] == main {
			delete(w.out, message.RequestID)
			w.back = append(w.back, message)
		}
	})
	return err
}

// canaries watches the first n messages until they are delivered. It returns what is wrong, or nothing.
func (r *run) canaries(ctx context.Context, n int, patience time.Duration) (problem string, err error) {
	mains := make(map[string]map[string]string) // queue, request id, message id
	for i, p := range r.history.Steps[:n] {
		if p.State != journal.Done && p.State != journal.Written {
			continue
		}
		s, err := r.history.Step(i)
		if err != nil {
			return "", err
		}
		r.watch.sent(s, p)
		if mains[s.To] == nil {
			mains[s.To] = map[string]string{}
		}
		mains[s.To][s.RequestID] = p.NewID
	}
	r.observer.Note(fmt.Sprintf("sent %d first; waiting until they are delivered, at most %v", n, patience))
	deadline := time.Now().Add(patience)
	for _, main := range slices.Sorted(maps.Keys(mains)) {
		if err := r.watch.begin(ctx, main); err != nil { // not known when they were sent by an earlier process
			return "", err
		}
		problem, err := r.watch.delivered(ctx, main, mains[main], deadline)
		if problem != "" || err != nil {
			return problem, err
		}
	}
	if ctx.Err() == nil {
		r.observer.Note(fmt.Sprintf("%d delivered", n))
	}
	return "", nil
}

// delivered waits until the messages are neither on the main queue nor on its poison queue. A main queue
// that is empty for a moment proves it; one that never is proves it as far as can be seen.
func (w *watch) delivered(ctx context.Context, main string, ids map[string]string, deadline time.Time) (problem string, err error) {
	ticker := time.NewTicker(peekEvery)
	defer ticker.Stop()
	lastSeen, lastCount, others := time.Now(), time.Time{}, len(ids)
	for {
		select {
		case <-ctx.Done():
			return "", nil
		case <-ticker.C:
		}
		now := time.Now()
		seen, problem, err := w.visible(ctx, main, ids)
		if problem != "" || err != nil {
			return problem, err
		}
		if seen {
			lastSeen = now
		}
		if now.Sub(lastCount) >= countEvery {
			lastCount = now
			if others, err = w.left(ctx, main); err != nil {
				return "", err
			}
		}
		// As many more than before as we have sent may be ours, invisible while the call is made.
		ours := others - w.before[main]
		switch gone := others == 0 || (ours <= 0 || ours > len(ids)) && now.Sub(lastSeen) >= quiet; {
		case gone || len(w.back) > 0:
			if err := w.arrivals(ctx, main, true); err != nil {
				return "", err
			}
			if len(w.back) > 0 {
				return "a first message failed again: " + w.firstBack(), nil
			}
			return "", nil
		case now.After(deadline) && seen:
			return fmt.Sprintf("the first messages still wait on %s: does the function app run?", main), nil
		case now.After(deadline):
			return fmt.Sprintf("the first messages were taken from %s, but whether they are delivered does not show yet", main), nil
		}
	}
}

// visible reports whether one of the messages can be seen on the main queue, or what is wrong with it.
func (w *watch) visible(ctx context.Context, main string, ids map[string]string) (seen bool, problem string, err error) {
	var batch []queue.Message
	err = lease.Patiently(ctx, func(ctx context.Context) (err error) {
		batch, err = w.account.Store.Peek(ctx, main, queue.MaxBatch)
		return err
	})
	if err != nil {
		return false, "", ignoreMissing(err)
	}
	for _, m := range batch {
		message := inspect.Read(w.account.reader(), main, m)
		id, ours := ids[message.RequestID]
		switch {
		case !ours:
		case m.ID == id && m.DequeueCount == 0:
			seen = true
		case message.Attempts > 0:
			return true, fmt.Sprintf("a first message, %s, is not delivered: it waits for attempt %d", message.RequestID, message.Attempts+1), nil
		default:
			seen = true
		}
	}
	return seen || len(batch) == queue.MaxBatch, "", nil
}

// left is how many messages the main queue still has, invisible ones included.
func (w *watch) left(ctx context.Context, main string) (int, error) {
	if err := w.arrivals(ctx, main, false); err != nil {
		return 0, err
	}
	count, err := w.account.count(ctx, main)
	return count, ignoreMissing(err)
}
