package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/reading"
	"asynccaller/handler/internal/storage/rows"
)

const (
	// keeperParallelism is how many queues a [Keeper] reads at once. It leaves most of the connections to storage to
	// the calls.
	keeperParallelism = 2
	// keepPatience is how long an operation may take, also after the time for a pass is over.
	keepPatience = 15 * time.Second
	// rereadInterval is when a queue of unchanged length is read again: its messages may have been replaced by others,
	// which expire after 7 days.
	rereadInterval = 24 * time.Hour
)

// Keeper keeps messages that the host moved to poison queues from expiring. It writes each again without an expiry,
// then deletes the original. A kill in between leaves the message on its queue twice, so a Keeper needs no journal.
// Whenever it reads a queue, it puts the rows of its dead letters right. It is safe for concurrent use.
type Keeper struct {
	account *account.Account
	queues  []string

	mu sync.Mutex
	// permanent has the queues on which no message expires, and readings what is known of their comparisons.
	permanent map[string]readQueue
	readings  map[string]record.Reading
}

// readQueue is the length of a queue at the time when it was read.
type readQueue struct {
	length int
	at     time.Time
}

// NewKeeper returns a keeper of the named queues of an account. A queue may be missing.
func NewKeeper(a *account.Account, queues []string) *Keeper {
	return &Keeper{account: a, queues: queues, permanent: map[string]readQueue{}, readings: map[string]record.Reading{}}
}

// Run reads the queues, which table has rows of unless it is nil, and returns the number of messages that it has kept.
// The error joins what is incomplete; it does not keep the other queues waiting. When ctx ends, Run completes the
// messages that it has begun, which takes at most 30 s, and leaves the others to the next pass.
func (k *Keeper) Run(ctx context.Context, table storage.Table) (kept int, err error) {
	passes, problems := make([]pass, len(k.queues)), make([]error, len(k.queues))
	var workers errgroup.Group
	workers.SetLimit(keeperParallelism)
	for i, name := range k.queues {
		workers.Go(func() error {
			if err := k.keep(ctx, table, name, &passes[i]); err != nil {
				problems[i] = fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	_ = workers.Wait() // no worker returns an error
	for _, p := range passes {
		kept += p.kept
	}
	return kept, errors.Join(problems...)
}

// pass is one pass over a queue. Seen counts the messages that were received, without those that the pass has written.
type pass struct{ seen, kept int }

// errStopped is why a pass was not completed when the time was over or the handler stopped.
var errStopped = errors.New("there was no time to read all messages; the next pass continues")

// keep keeps the messages of a queue.
func (k *Keeper) keep(ctx context.Context, table storage.Table, name string, p *pass) error {
	if ctx.Err() != nil {
		return errStopped
	}
	front, first := k.account.Front(ctx, name)
	if front.Problem != nil || *front.Messages == 0 {
		return front.Problem
	}
	total := *front.Messages
	mustRead, err := k.mustRead(ctx, name, total, first)
	if err != nil || !mustRead {
		return err
	}
	err = k.read(ctx, table, name, total, p)
	stopped := ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err()))
	complete := err == nil && p.seen >= total
	switch {
	case !complete && stopped:
		return errStopped
	case !complete:
		return errors.Join(err, k.checkHidden(ctx, name, total-p.seen))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if p.kept == 0 {
		k.permanent[name] = readQueue{total, time.Now()}
	} else {
		delete(k.permanent, name)
	}
	return nil
}

// mustRead decides whether a queue must be read. Its first messages are enough if it is short, or if it has not changed
// since the latest reading, after which none of its messages expired.
func (k *Keeper) mustRead(ctx context.Context, name string, total int, first []storage.Message) (bool, error) {
	if slices.ContainsFunc(first, storage.Message.Expires) {
		return true, nil
	}
	if len(first) < storage.MaxBatch {
		return false, k.checkHidden(ctx, name, total-len(first))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	latest := k.permanent[name]
	return latest.length != total || time.Since(latest.at) >= rereadInterval, nil
}

// checkHidden returns an error if about so many messages of a queue cannot be read.
func (k *Keeper) checkHidden(ctx context.Context, name string, hidden int) error {
	if hidden <= 0 {
		return nil
	}
	left, err := k.account.Count(ctx, name)
	hidden = min(hidden, left) // the length is approximate, and other clients delete messages
	if err != nil || hidden <= 0 {
		return err
	}
	return fmt.Errorf("%d messages are invisible: received by another client or an earlier run, or delayed", hidden)
}

// Compare compares the number of rows of each queue with that of its messages, and reads the queue if rows are missing
// or are left, see [record.Reading.MustRead]. It is called once a minute.
func (k *Keeper) Compare(ctx context.Context, table storage.Table) error {
	problems := make([]error, len(k.queues))
	var workers errgroup.Group
	workers.SetLimit(keeperParallelism)
	for i, name := range k.queues {
		workers.Go(func() error {
			problems[i] = k.compareOne(ctx, table, name)
			return nil
		})
	}
	_ = workers.Wait() // no worker returns an error
	return errors.Join(problems...)
}

func (k *Keeper) compareOne(ctx context.Context, table storage.Table, name string) error {
	recorded, messages, err := k.countBoth(ctx, table, name)
	if err != nil {
		return fmt.Errorf("compare %s with its rows: %w", name, err)
	}
	isEqual := recorded == messages
	k.mu.Lock()
	last := k.readings[name]
	k.mu.Unlock()
	if isEqual && !last.ReadAt.IsZero() && !last.Differs {
		return nil
	}
	last, _, err = rows.Get[record.Reading](ctx, table, name, record.ReadingID)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	before := last
	last.Key = storage.Key{Partition: name, ID: record.ReadingID}
	now := time.Now()
	switch {
	case messages == 0 && isEqual && last.ReadAt.IsZero(): // nothing is older than the record
		last.ReadAt, last.TriedAt = now, now
	case last.MustRead(recorded, messages, now):
		last.TriedAt, last.Rows, last.Messages = now, recorded, messages
		if err := rows.Put(ctx, table, last); err != nil { // the next reading waits, whatever becomes of this one
			return fmt.Errorf("%s: %w", name, err)
		}
		last.Rows, err = k.compare(ctx, table, name)
		if err == nil && ctx.Err() == nil {
			last.ReadAt = now
		}
		isEqual = true
	}
	last.Differs = !isEqual
	if last != before {
		err = errors.Join(err, rows.Put(ctx, table, last))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.readings[name] = last
	if err != nil {
		err = fmt.Errorf("compare %s with its rows: %w", name, err)
	}
	return err
}

// recountAfter is how long rows and messages may take to agree: rows come and go after their messages.
const recountAfter = 3 * time.Second

// countBoth returns the numbers of rows and of messages of a queue. They are equal if they may have been equal between
// two counts. Of a queue that can be seen as a whole, a row without its message does not count.
func (k *Keeper) countBoth(ctx context.Context, table storage.Table, name string) (recorded, messages int, err error) {
	var allRows, allMessages []int
	for again := range 2 {
		if again > 0 && !storage.Sleep(ctx, recountAfter) {
			break
		}
		messages, err = k.account.Count(ctx, name)
		ids := map[string]bool{} // the first ones
		recorded = 0
		if err == nil {
			err = record.ListDeadLetters(ctx, table, record.Query{Queue: name}, func(row record.Row) error {
				recorded++
				if recorded <= storage.MaxBatch {
					ids[row.ID] = true
				}
				return nil
			})
		}
		if err == nil && recorded == messages && 0 < messages && messages <= storage.MaxBatch {
			recorded, err = k.countSeen(ctx, name, ids)
		}
		if err != nil || recorded == messages {
			return recorded, messages, err
		}
		allRows, allMessages = append(allRows, recorded), append(allMessages, messages)
	}
	if slices.Min(allRows) <= slices.Max(allMessages) && slices.Min(allMessages) <= slices.Max(allRows) {
		recorded = messages
	}
	return recorded, messages, err
}

// countSeen returns how many of the rows with the ids have a message that can be seen, unless some messages cannot.
// Numbers alone do not tell when a message was moved while the table was away, or the mover was killed.
func (k *Keeper) countSeen(ctx context.Context, name string, ids map[string]bool) (seen int, err error) {
	visible, err := k.account.Store.Peek(ctx, name, storage.MaxBatch)
	if err != nil || len(visible) < len(ids) {
		return len(ids), err
	}
	for _, m := range visible {
		if ids[m.ID] {
			seen++
		}
	}
	return seen, nil
}

// compare reads a queue, puts its rows right, and returns how many messages it has seen. A longer queue than can be
// peeked at is received.
func (k *Keeper) compare(ctx context.Context, table storage.Table, name string) (seen int, err error) {
	front, first := k.account.Front(ctx, name)
	if front.Problem != nil {
		return 0, front.Problem
	}
	if *front.Messages == len(first) {
		c := compare(ctx, table, name, compareTime)
		for _, m := range first {
			c.see(ctx, k.account, name, m)
		}
		return len(first), c.end(ctx, true)
	}
	var p pass
	err = k.read(ctx, table, name, *front.Messages, &p)
	return p.seen, err
}

// read reads a queue of about total messages, and keeps those that expire. More are not read, because those follow that
// were written again.
func (k *Keeper) read(ctx context.Context, table storage.Table, name string, total int, p *pass) error {
	compared := compare(ctx, table, name, compareTime)
	engine := run.Engine{Store: k.account.Store, Observer: silent{}, Patience: keepPatience}
	refused, why := 0, ""
	written := map[string]bool{}
	r := reading.Reading{Store: k.account.Store, Queue: name, Total: total}
	visible, err := r.Each(ctx, func(b reading.Batch) (taken int, stop bool, err error) {
		var steps []journal.Step
		for _, m := range b.Messages {
			if m.Expires() {
				found, _ := k.account.Read(account.Source{}, name, m.Message)
				step := exchange(found, name, k.deadLettered(found))
				step.RequestID = requestID(found.Message)
				step.Take.Queue, step.Take.ID, step.Take.Receipt = name, m.ID, m.PopReceipt
				step.Take.Until, step.Take.Expires = b.Until, m.ExpiresAt
				steps = append(steps, step)
			} else if !m.Again && !written[m.ID] {
				p.seen++
				compared.see(ctx, k.account, name, m.Message)
			}
		}
		progress, err := engine.Do(ctx, steps)
		k.account.Scanned(name, p.seen, total)
		for n, s := range progress {
			written[s.NewID] = true
			switch s.State { //nolint:exhaustive // the others are not finished
			case journal.Done:
				p.kept++
				p.seen++
				compared.add(ctx, RowOf(k.account.Rules, name, s.NewID, steps[n].Text()))
			case journal.Skipped:
				refused++
				p.seen++
				why = s.Why
			}
		}
		return len(steps), p.seen >= total || ctx.Err() != nil, err
	})
	left, countErr := k.account.Count(ctx, name)
	sawAll := err == nil && countErr == nil && p.seen >= max(total, left)
	err = errors.Join(err, compared.end(ctx, sawAll))
	reading.Wait(ctx, visible)
	if refused > 0 {
		err = errors.Join(err, fmt.Errorf("%d messages cannot be written again: %s", refused, why))
	}
	return account.IgnoreMissing(err)
}

// RowOf returns the row of a message that was written to a poison queue just now.
func RowOf(r message.Rules, queue, id, text string) record.Row {
	now := storage.WallTime()
	m := message.Read(r, queue, storage.Message{ID: id, Text: text, InsertedAt: now, ExpiresAt: storage.NeverExpires})
	return message.ToRow(m, r.Content(text))
}

// deadLettered returns the text with a dead letter, or the unchanged text if it takes none.
func (k *Keeper) deadLettered(f account.Found) string {
	if f.Reason != message.HostGaveUp {
		return f.Text
	}
	in := k.account.Rules.Open(f.Content, f.ID, f.InsertedAt)
	if in.Envelope == nil {
		return f.Text
	}
	content, err := in.Envelope.DeadLettered(envelope.DeadLetter{
		At: f.InsertedAt, Reason: f.Reason, Detail: f.Detail, Queue: f.Main, Attempts: f.Attempts,
	}, in.Limit)
	if err != nil {
		return f.Text
	}
	return k.account.Rules.Encoding.Encode(content.Bytes)
}
