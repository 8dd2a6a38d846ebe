package poison

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/lease"
)

const (
	// keepers is how many batches a [Keeper] handles at once. It leaves most of the connections to storage to the calls.
	keepers = 12
	// keepLease is how long the messages that a [Keeper] has received stay invisible. It writes none of them again in
	// the second half, so that no other client receives the original meanwhile.
	keepLease = time.Minute
	// keepGrace is how long the operations on one message may take.
	keepGrace = 15 * time.Second
	// rereadInterval is when a queue of unchanged length is read again: its messages may have been replaced by others,
	// which expire after 7 days.
	rereadInterval = 24 * time.Hour
	// maxRest limits the texts of the messages that a pass releases.
	maxRest = 1 << 20
)

// Keeper keeps messages that the host moved to poison queues from expiring. It writes each again without an expiry,
// then deletes the original. A kill in between leaves the message on its queue twice, so a Keeper needs no journal.
// It is not safe for concurrent use.
type Keeper struct {
	account *Account
	queues  []string
	// permanent has the queues on which no message expires.
	permanent map[string]reading
}

// reading is the length of a queue at the time when it was read.
type reading struct {
	length int
	at     time.Time
}

// NewKeeper returns a keeper of the named queues of an account. A queue may be missing.
func NewKeeper(a *Account, queues []string) *Keeper {
	return &Keeper{account: a, queues: queues, permanent: make(map[string]reading)}
}

// Run reads the queues in turns, a few hundred messages at a time, and returns the number of messages that it has
// kept. The error joins what is incomplete; it does not keep the other queues waiting. When ctx ends, Run completes the
// messages that it has begun, which takes at most 15 s, and leaves the others to the next run.
func (k *Keeper) Run(ctx context.Context) (kept int, err error) {
	var passes []*pass
	for _, name := range k.queues {
		p := &pass{account: k.account, queue: name, written: map[string]bool{}}
		p.begin(ctx, k.permanent[name])
		passes = append(passes, p)
	}
	for slices.ContainsFunc(passes, func(p *pass) bool { return !p.over }) {
		for _, p := range passes {
			p.chunk(ctx)
		}
	}
	var problems []error
	for _, p := range passes {
		problem := p.problem(ctx)
		problems = append(problems, problem)
		kept += p.kept
		switch {
		case p.kept > 0 || problem != nil:
			delete(k.permanent, p.queue)
		case p.read:
			k.permanent[p.queue] = reading{p.total, time.Now()}
		}
	}
	return kept, errors.Join(problems...)
}

// pass reads a queue once.
type pass struct {
	account *Account
	queue   string
	// total is the length of the queue at the beginning. More messages are not read, because those that have become
	// visible again follow.
	total int
	// read means that messages were received, over that no more need to be.
	read, over bool
	// took is the time of the latest chunk.
	took time.Duration
	// err is why the pass was not completed.
	err error

	mu sync.Mutex
	// seen and kept count the messages that were handled; empty means that the queue has no more.
	seen, kept int
	empty      bool
	// written are the IDs of the messages that were written again.
	written map[string]bool
	// refused counts the messages that storage refuses to write again, whyRefused is the latest error.
	refused    int
	whyRefused error
	// limit is the size of a batch, of which all messages can be kept in half of keepLease.
	limit int
	// rest are the latest messages that never expire, and restBytes is the length of their texts.
	rest      []queue.Message
	restBytes int
}

// errStopped is why a pass was not completed when the time was over or the handler stopped.
var errStopped = errors.New("there was no time to read all messages; the next run continues")

// begin decides whether the queue must be read. Peeking at it is enough if it is short, or if it has not changed
// since the latest reading, after which none of its messages expired.
func (p *pass) begin(ctx context.Context, latest reading) {
	if ctx.Err() != nil {
		p.err, p.over = errStopped, true
		return
	}
	ctx, cancel := begun(ctx)
	defer cancel()
	p.over = true
	if p.total, p.err = p.account.count(ctx, p.queue); p.err != nil || p.total == 0 {
		return
	}
	began := time.Now()
	front, err := p.account.peek(ctx, p.queue)
	switch p.err = err; {
	case err != nil:
	case slices.ContainsFunc(front, expires):
		p.over = false
	case len(front) < queue.MaxBatch:
		p.seen = len(front)
	case latest.length == p.total && time.Since(latest.at) < rereadInterval:
		p.seen = p.total
	default:
		p.over = false
	}
	// Each message takes two operations like this one.
	p.limit = min(max(int(keepLease/4/max(time.Since(began), 1)), 1), queue.MaxBatch)
}

// begun returns the context of operations that are completed although ctx ends.
func begun(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), keepGrace)
}

// chunk reads the next messages, several batches at once, and keeps those that expire.
func (p *pass) chunk(ctx context.Context) {
	if p.over {
		return
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < p.took {
		p.err, p.over = errStopped, true // otherwise the messages that are left over go behind all others
		return
	}
	began := time.Now()
	p.read = true
	workers, working := errgroup.WithContext(ctx)
	for range min(keepers, (p.total-p.seen+queue.MaxBatch-1)/queue.MaxBatch) {
		workers.Go(func() error { return p.batch(working) })
	}
	p.err = workers.Wait()
	p.took = time.Since(began)
	if p.over = p.err != nil || p.empty || p.seen >= p.total; p.over {
		p.release(ctx)
	}
}

// batch receives a batch and keeps the messages in it that expire.
func (p *pass) batch(ctx context.Context) error {
	if ctx.Err() != nil {
		return errStopped
	}
	began := time.Now()
	batch, err := p.receive(ctx)
	if err != nil {
		return err
	}
	for n, m := range batch {
		found, ok := p.account.read(Source{expiring: true}, p.queue, m)
		if !ok {
			p.locked(func() { p.passBy(m) })
			continue
		}
		if ctx.Err() != nil {
			return errStopped
		}
		if time.Since(began) > keepLease/2 { // the rest is read again when it is visible
			p.locked(func() { p.limit = max(n, 1) })
			return nil
		}
		if err := p.keep(ctx, m, found); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) receive(ctx context.Context) ([]queue.Message, error) {
	ctx, cancel := begun(ctx)
	defer cancel()
	limit := 0
	p.locked(func() { limit = p.limit })
	batch, err := lease.Retry(ctx, func(ctx context.Context) ([]queue.Message, error) {
		return p.account.Store.Receive(ctx, p.queue, limit, keepLease)
	})
	p.locked(func() { p.empty = p.empty || len(batch) == 0 })
	return batch, err
}

// passBy notes a message that never expires. The caller holds p.mu.
func (p *pass) passBy(m queue.Message) {
	if !p.written[m.ID] { // those do not belong to the queue that this pass reads
		p.seen++
	}
	p.rest = append(p.rest, m)
	for p.restBytes += len(m.Text); p.restBytes > maxRest; p.rest = p.rest[1:] {
		p.restBytes -= len(p.rest[0].Text)
	}
}

func (p *pass) locked(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
}

// keep writes a message again without an expiry, then deletes the original. It goes on after a refusal to write this
// message, but not after a failed deletion, because each further message would be there twice.
func (p *pass) keep(ctx context.Context, m queue.Message, found Found) error {
	ctx, cancel := begun(ctx)
	defer cancel()
	item := queue.Item{Text: p.account.deadLettered(found)}
	put, err := lease.Retry(ctx, func(ctx context.Context) (queue.Message, error) { return p.account.Store.Put(ctx, p.queue, item) })
	if errors.Is(err, queue.ErrRefused) {
		p.locked(func() { p.seen, p.refused, p.whyRefused = p.seen+1, p.refused+1, err })
		return nil
	}
	if err != nil {
		return err
	}
	p.locked(func() { p.written[put.ID] = true })
	_, err = lease.Retry(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.account.Store.Delete(ctx, p.queue, m.ID, m.PopReceipt)
	})
	if err != nil && !errors.Is(err, queue.ErrStale) { // a stale receipt follows a try without an answer
		return err
	}
	p.locked(func() { p.seen, p.kept = p.seen+1, p.kept+1 })
	return nil
}

// release makes messages that never expire visible again: all of a short queue, and the latest of a long one. The others
// become visible after keepLease, because releasing a message costs as much as deleting it.
func (p *pass) release(ctx context.Context) {
	var workers errgroup.Group
	workers.SetLimit(keepers)
	for _, m := range p.rest {
		workers.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			ctx, cancel := begun(ctx)
			defer cancel()
			_, _ = p.account.Store.Update(ctx, p.queue, m.ID, m.PopReceipt, m.Text, 0) // otherwise its lease ends
			return nil
		})
	}
	_ = workers.Wait() // no worker returns an error
}

// problem returns why messages of the queue may still expire, or nil.
func (p *pass) problem(ctx context.Context) error {
	switch {
	case p.err != nil:
		return fmt.Errorf("%s: %w", p.queue, p.err)
	case p.refused > 0:
		return fmt.Errorf("%s: %d messages cannot be written again: %w", p.queue, p.refused, p.whyRefused)
	case p.seen < p.total && ctx.Err() != nil:
		return fmt.Errorf("%s: %w", p.queue, errStopped)
	case p.seen >= p.total:
		return nil
	}
	ctx, cancel := begun(ctx)
	defer cancel()
	left, err := p.account.count(ctx, p.queue) // the length is approximate, and other clients delete messages
	if hidden := min(left, p.total) - p.seen; err == nil && hidden > 0 {
		err = fmt.Errorf("%d messages are invisible: received by another client or an earlier run, or delayed", hidden)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", p.queue, err)
	}
	return err
}

// expires reports whether storage will delete the message. The expiry of any other message is in the year 9999.
func expires(m queue.Message) bool { return m.ExpiresAt.Year() < 9999 }

// deadLettered returns the text with a dead letter, or the unchanged text if it takes none.
func (a *Account) deadLettered(f Found) string {
	if f.Reason != inspect.HostGaveUp {
		return f.Text
	}
	in := a.Rules.Open(f.Content, f.ID, f.InsertedAt)
	if in.Envelope == nil {
		return f.Text
	}
	content, err := in.Envelope.DeadLettered(envelope.DeadLetter{
		At: f.InsertedAt, Reason: f.Reason, Detail: f.Detail, Queue: f.Main, Attempts: f.Attempts,
	}, in.Limit)
	if err != nil {
		return f.Text
	}
	return a.Rules.Encoding.Encode(content.Bytes)
}
