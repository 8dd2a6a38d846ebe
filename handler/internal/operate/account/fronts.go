package account

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

// The queues are read within [ReachTimeout], queuesAtOnce at once: their messages take memory. One that does not answer
// leaves time for the others.
const (
	queueTimeout = ReachTimeout / 3
	queuesAtOnce = 8
)

// Front describes a queue and its first visible messages.
type Front struct {
	Queue string
	// Missing says that the queue does not exist. Problem is why some of it could not be read.
	Missing bool
	Problem error
	// Messages is the approximate number of messages, invisible ones included; nil if it is unknown. Visible is the
	// number of the first ones, at most [storage.MaxBatch].
	Messages *int
	Visible  int
	// Oldest is when the oldest call of the first messages was created, and Since when the first of these messages
	// became visible; zero if there are none.
	Oldest, Since time.Time
	// HasDeadLetters says that it is a poison queue, or that one of the first messages is a dead letter. Only then,
	// First describes them.
	HasDeadLetters bool
	First          []message.Message
}

// Front reads the front of a queue, and returns its messages as well. It changes nothing. An empty queue needs one
// transaction and any other two, because a length is never too low.
func (a *Account) Front(ctx context.Context, name string) (Front, []storage.Message) {
	f := Front{Queue: name, HasDeadLetters: strings.HasSuffix(name, storage.PoisonSuffix)}
	count, countErr := ask(ctx, a, func(ctx context.Context) (int, error) { return a.Store.Count(ctx, name) })
	f.Missing = errors.Is(countErr, storage.ErrNoQueue)
	countErr = IgnoreMissing(countErr)
	var first []storage.Message
	var peekErr error
	if countErr != nil || count > 0 {
		first, peekErr = ask(ctx, a, func(ctx context.Context) ([]storage.Message, error) {
			return a.Store.Peek(ctx, name, storage.MaxBatch)
		})
	}
	if countErr == nil {
		f.Messages = new(max(count, len(first)))
	}
	f.Problem = cmp.Or(countErr, IgnoreMissing(peekErr))
	f.describe(a.Rules, first)
	return f, first
}

// describe completes the front with what its messages say.
func (f *Front) describe(r message.Rules, first []storage.Message) {
	f.Visible = len(first)
	for _, m := range first {
		visible := m.InsertedAt
		f.Oldest = bounds.Earliest(f.Oldest, m.InsertedAt)
		e, err := envelope.Parse(r.Content(m.Text))
		if err == nil && !r.IsRaw(f.Queue) {
			f.Oldest = bounds.Earliest(f.Oldest, e.CreatedAt)
			visible = bounds.Later(visible, e.NextAttemptAt)
			f.HasDeadLetters = f.HasDeadLetters || e.DeadLetter != nil
		}
		f.Since = bounds.Earliest(f.Since, visible)
	}
	if !f.HasDeadLetters {
		return
	}
	for _, m := range first {
		f.First = append(f.First, message.Read(r, f.Queue, m))
	}
}

// Fronts are the fronts of an account's queues. Each is read when it is needed, and then known: a page or command reads
// no queue twice. Fronts are safe for concurrent use.
type Fronts struct {
	account *Account
	// names are those of all queues; nil if they are unknown.
	names []string
	slots chan struct{}
	mu    sync.Mutex
	known map[string]*knownFront
}

// knownFront is a front that is read, or is being read until the channel is closed.
type knownFront struct {
	Front
	isRead chan struct{}
}

func (a *Account) newFronts(names []string) *Fronts {
	return &Fronts{
		account: a, names: names, slots: make(chan struct{}, queuesAtOnce), known: map[string]*knownFront{},
	}
}

// Of returns the front of a queue, and its messages unless the front was known: they take memory.
func (f *Fronts) Of(ctx context.Context, name string) (front Front, first []storage.Message) {
	if f.names != nil && !slices.Contains(f.names, name) {
		return Front{Queue: name, Missing: true, Messages: new(int)}, nil
	}
	f.mu.Lock()
	known, isKnown := f.known[name]
	if !isKnown {
		known = &knownFront{isRead: make(chan struct{})}
		f.known[name] = known
	}
	f.mu.Unlock()
	if isKnown {
		<-known.isRead
		return known.Front, nil
	}
	defer close(known.isRead)
	f.slots <- struct{}{}
	defer func() { <-f.slots }()
	ctx, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	known.Front, first = f.account.Front(ctx, name)
	return known.Front, first
}

// each shows the fronts of queues in this order. It reads others meanwhile.
func (f *Fronts) each(ctx context.Context, names []string, show func(Front, []storage.Message)) {
	shows := make(chan chan func(), queuesAtOnce)
	go func() {
		defer close(shows)
		for _, name := range names {
			next := make(chan func(), 1)
			shows <- next
			go func() {
				front, first := f.Of(ctx, name)
				next <- func() { show(front, first) }
			}()
		}
	}()
	for next := range shows {
		(<-next)()
	}
}

// Poison returns the fronts of the poison queues of the account, and of the other queues that have a dead letter among
// their first messages. It leaves out empty queues, and those that functions read.
func (f *Fronts) Poison(ctx context.Context) (fronts []Front) {
	ctx, cancel := context.WithTimeout(ctx, ReachTimeout)
	defer cancel()
	names := slices.DeleteFunc(slices.Clone(f.names), func(name string) bool {
		isOfRoute := !strings.HasSuffix(name, storage.PoisonSuffix) && f.account.Rules.IsRaw(name)
		return isOfRoute || f.account.IsRead(f.names, name)
	})
	f.each(ctx, names, func(front Front, _ []storage.Message) {
		if front.Problem != nil || front.HasDeadLetters && *front.Messages > 0 {
			fronts = append(fronts, front)
		}
	})
	return fronts
}

// PoisonFronts returns [Fronts.Poison] of the account.
func (a *Account) PoisonFronts(ctx context.Context) ([]Front, error) {
	all, err := a.Reach(ctx)
	return a.newFronts(all).Poison(ctx), err
}
