package poison

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/poison/edit"
	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/lease"
)

// Requeue is how messages are sent again.
type Requeue struct {
	// To is the queue; empty means the one that each message came from.
	To   string
	Edit edit.Options
	Pace journal.Pace
}

// PlanRequeue prepares to send messages again. What would only come back is refused.
func (a *Account) PlanRequeue(ctx context.Context, s Source, r Requeue) (*Plan, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	return a.plan(ctx, journal.Run{Command: "requeue", Pace: r.Pace}, s, a.again(r, time.Now()))
}

func (r Requeue) check() error {
	if r.To != "" && !queue.ValidName(r.To) {
		return fmt.Errorf("queue %.80q: not the name of a queue", r.To)
	}
	if r.Pace.Delay+r.Pace.Spread > queue.MaxDelay {
		return fmt.Errorf("delay and spread are %v together: a message can wait %v at most", r.Pace.Delay+r.Pace.Spread, queue.MaxDelay)
	}
	return nil
}

func (a *Account) again(r Requeue, now time.Time) change {
	return func(ctx context.Context, f Found) (journal.Step, error) {
		to, err := a.home(f.Message, r.To)
		if err != nil {
			return journal.Step{}, err
		}
		text, err := a.Rules.Prepare(ctx, f.Text, f.ID, r.Edit, now)
		return journal.Step{Before: f.Text, To: to, After: text}, err
	}
}

// home is the queue that a message goes back to. A message may name any queue, whoever wrote it; it is only
// believed where a function app reads it.
func (a *Account) home(m inspect.Message, to string) (string, error) {
	main := mainQueue(m.Queue)
	switch {
	case to != "":
		return to, nil
	case main != m.Queue:
		return main, nil
	case slices.Contains(a.AppQueues, m.Main):
		return m.Main, nil
	}
	return "", fmt.Errorf("%s is no poison queue, so where it belongs is not known: say so with --to", m.Queue)
}

// Preview shows what requeueing would change, and takes and changes nothing. After is nil for a message that
// would be refused, and why says why.
func (a *Account) Preview(ctx context.Context, s Source, r Requeue, see func(f Found, to string, after []byte, why error)) (Listed, error) {
	if err := r.check(); err != nil {
		return Listed{}, err
	}
	again := a.again(r, time.Now())
	return a.List(ctx, s, func(f Found) {
		step, err := again(ctx, f)
		if err != nil {
			see(f, "", nil, err)
			return
		}
		see(f, step.To, a.reader().Content(step.After), nil)
	})
}

// PlanMove prepares to move messages, as they are, to another queue. It is no way to send them again:
// that is requeue, which starts them afresh.
func (a *Account) PlanMove(ctx context.Context, s Source, to string) (*Plan, error) {
	if !queue.ValidName(to) {
		return nil, fmt.Errorf("queue %.80q: not the name of a queue", to)
	}
	all, err := a.reach(ctx)
	if err != nil {
		return nil, err
	}
	if why := a.live(all, to); why != "" && !s.Force {
		return nil, fmt.Errorf("queue %s: %w (%s): requeue sends messages there; --force moves them as they are", to, ErrAppQueue, why)
	}
	return a.plan(ctx, journal.Run{Command: "move"}, s, func(_ context.Context, f Found) (journal.Step, error) {
		if f.Queue == to {
			return journal.Step{}, errors.New("it is there already")
		}
		return journal.Step{Before: f.Text, To: to}, nil
	})
}

// Backup is what is kept of deleted messages.
type Backup struct {
	// Path is the file that they are exported to; empty for one beside the journal. None keeps nothing at
	// all, so that the run cannot be undone.
	Path string
	None bool
}

// PlanDelete prepares to delete messages, and exports them.
func (a *Account) PlanDelete(ctx context.Context, s Source, b Backup) (*Plan, error) {
	run := journal.Run{Command: "delete"}
	if b.None {
		return a.plan(ctx, run, s, func(context.Context, Found) (journal.Step, error) { return journal.Step{}, nil })
	}
	file, err := a.backup(b.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	p, err := a.plan(ctx, run, s, func(_ context.Context, f Found) (journal.Step, error) {
		return journal.Step{Before: f.Text}, WriteRecord(out, f)
	})
	if err == nil {
		err = errors.Join(out.Flush(), file.Sync())
	}
	if err != nil {
		if p != nil {
			p.Discard(ctx)
		}
		_ = os.Remove(file.Name())
		return nil, fmt.Errorf("export before deleting: %w", err)
	}
	p.Backup = file.Name()
	return p, nil
}

func (a *Account) backup(path string) (*os.File, error) {
	if path != "" {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the operator names it
		if err != nil {
			return nil, fmt.Errorf("export before deleting: %w", err)
		}
		return file, nil
	}
	if err := os.MkdirAll(string(a.Runs), 0o700); err != nil {
		return nil, fmt.Errorf("export before deleting: %w", err)
	}
	file, err := os.CreateTemp(string(a.Runs), time.Now().UTC().Format("20060102-150405")+"-deleted-*.export")
	if err != nil {
		return nil, fmt.Errorf("export before deleting: %w", err)
	}
	return file, nil
}

// Import says where exported messages are written.
type Import struct {
	// To is the queue; empty means the one that each message was exported from.
	To string
	// Force also writes to queues that a function app reads.
	Force bool
}

// PlanImport prepares to write exported messages to a queue.
func (a *Account) PlanImport(ctx context.Context, in io.Reader, o Import) (*Plan, error) {
	all, err := a.reach(ctx)
	if err != nil {
		return nil, err
	}
	p, err := a.newPlan(journal.Run{Command: "import"})
	if err != nil {
		return nil, err
	}
	err = ReadRecords(in, func(r Record) error {
		name := cmp.Or(o.To, r.Queue)
		if !queue.ValidName(name) {
			return fmt.Errorf("queue: %.80q is not the name of a queue", name)
		}
		if why := a.live(all, name); why != "" && !o.Force {
			return fmt.Errorf("queue %s: %w (%s): import to a poison queue, and requeue; --force writes there all the same", name, ErrAppQueue, why)
		}
		if err := queue.CheckText(r.Text); err != nil {
			return fmt.Errorf("text: %w", err)
		}
		return p.add(journal.Step{N: p.Total, To: name, After: r.Text, RequestID: r.RequestID})
	})
	if err == nil && p.Total == 0 {
		err = fmt.Errorf("import: %w: the file holds none", ErrNothing)
	}
	if err != nil {
		p.Discard(ctx)
		return nil, err
	}
	return p, nil
}

// PlanKeep prepares to write messages that storage would delete, those that the host moved itself, anew so
// that they never expire, and to note on them what is known: on a dead letter as the handler would have, on
// what is no envelope nothing.
func (a *Account) PlanKeep(ctx context.Context, s Source) (*Plan, error) {
	s.expiring = true
	return a.plan(ctx, journal.Run{Command: "keep"}, s, func(_ context.Context, f Found) (journal.Step, error) {
		return journal.Step{Before: f.Text, To: f.Queue, After: a.stamped(f)}, nil
	})
}

// stamped is the text with what is known of the message; the text itself where nothing can be added.
func (a *Account) stamped(f Found) string {
	if f.Reason != inspect.HostGaveUp {
		return f.Text
	}
	limit := a.Rules.Encoding.MaxContentBytes()
	e, err := envelope.Parse(f.Content)
	if err != nil || e.Accept(f.InsertedAt, f.ID, limit) != nil {
		return f.Text
	}
	content, err := e.DeadLettered(envelope.DeadLetter{
		At: f.InsertedAt, Reason: f.Reason, Detail: f.Detail, Queue: f.Main, Attempts: f.Attempts,
	}, limit)
	if err != nil {
		return f.Text
	}
	return a.Rules.Encoding.Encode(content.Bytes)
}

// Keep is PlanKeep and Execute in one, for where nobody is there to agree: the journal is gone afterwards.
// It returns how many messages were kept.
func (a *Account) Keep(ctx context.Context, queues []string) (kept int, err error) {
	dir, err := os.MkdirTemp("", "async-caller-keep-*")
	if err != nil {
		return 0, fmt.Errorf("keep: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	account := *a
	account.Runs = journal.Folder(dir)
	for _, name := range queues {
		result, err := account.keep(ctx, name)
		kept += result.Done
		if err != nil {
			return kept, err
		}
	}
	return kept, nil
}

func (a *Account) keep(ctx context.Context, name string) (Result, error) {
	expiring, complete, err := a.expiring(ctx, name)
	if err != nil || complete && !expiring {
		return Result{}, ignoreMissing(err)
	}
	p, err := a.PlanKeep(ctx, Source{Queues: []string{name}})
	if err != nil {
		return Result{}, err
	}
	if p.Total == 0 {
		p.Discard(ctx)
		return Result{}, nil
	}
	return p.Execute(ctx)
}

// expiring peeks whether a queue has messages that expire. It is complete for a short queue, which then
// nobody needs to disturb.
func (a *Account) expiring(ctx context.Context, name string) (expiring, complete bool, err error) {
	var batch []queue.Message
	err = lease.Patiently(ctx, func(ctx context.Context) (err error) {
		batch, err = a.Store.Peek(ctx, name, queue.MaxBatch)
		return err
	})
	return slices.ContainsFunc(batch, expires), len(batch) < queue.MaxBatch, err
}

// expires reports whether storage will delete the message.
func expires(m queue.Message) bool { return m.ExpiresAt.Year() < never }

// never is the year in which storage says that a message without an end expires.
const never = 9999
