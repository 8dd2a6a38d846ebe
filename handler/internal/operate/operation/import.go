package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

// ErrOtherQueue means that the queue is none of the app, and may belong to another one.
var ErrOtherQueue = errors.New("it is not a poison queue of the app")

// Import says where exported messages are written.
type Import struct {
	// To is the queue of dead letters; empty means the one that each was exported from.
	To string
	// Force allows dead letters on queues that are not poison queues of the app, and scheduled calls on queues that no
	// function reads.
	Force bool
}

// PlanImport prepares to write exported messages to a queue: dead letters, and scheduled calls that become due when
// they would have been. The file may come from elsewhere, and it names the queues.
func (op *Operations) PlanImport(ctx context.Context, in io.Reader, o Import) (*Plan, error) {
	all, err := op.Account.Reach(ctx)
	if err != nil {
		return nil, err
	}
	p, err := op.newPlan(ctx, journal.Run{Command: "import"})
	if err != nil {
		return nil, err
	}
	err = readRecords(in, func(r exported) error {
		if err := storage.CheckText(r.Text); err != nil {
			return fmt.Errorf("text: %w", err)
		}
		if r.isScheduled() {
			return op.planImportedCall(p, all, r, o.Force)
		}
		to := cmp.Or(o.To, r.Queue)
		if !storage.ValidName(to) {
			return fmt.Errorf("queue: %.80q is not the name of a queue", to)
		}
		if err := op.checkImport(all, r.Found, to); err != nil && !o.Force {
			return err
		}
		p.count(message.Read(op.Account.Rules, to, storage.Message{Text: r.Text}))
		return p.add(journal.Step{RequestID: r.RequestID, Put: &journal.Put{Queue: to, Text: r.Text}})
	})
	if err == nil && p.Total == 0 {
		err = fmt.Errorf("import: %w: the file has no messages", account.ErrNothing)
	}
	if err != nil {
		p.Discard(ctx)
		return nil, err
	}
	return p, nil
}

// planImportedCall plans to put a scheduled call on its queue again, due as it was. Its row says what the line says,
// and of the call what the content says.
func (op *Operations) planImportedCall(p *Plan, all []string, r exported, force bool) error {
	content := op.Account.Rules.Content(r.Text)
	_, malformed := envelope.Parse(content)
	switch {
	case !storage.ValidName(r.Queue):
		return fmt.Errorf("queue: %.80q is not the name of a queue", r.Queue)
	case malformed != nil:
		return fmt.Errorf("text: it is no call that can be scheduled: %w", malformed)
	case !force && !op.Account.IsRead(all, r.Queue):
		return fmt.Errorf("queue %s: no function of the app reads it; --force puts scheduled calls there", r.Queue)
	}
	if err := op.Account.Rules.CheckRaw(false, r.Queue); err != nil && !force {
		return fmt.Errorf("%w; --force imports it nevertheless", err)
	}
	latest := time.Now().Add(storage.MaxDelay) // another time is not an exported one
	due := r.NextAttemptAt
	if due.After(latest) {
		due = latest
	}
	row := op.editedRow(record.Row{
		Key: storage.Key{Partition: r.Queue}, RequestID: r.RequestID, Reason: r.Reason, Status: int(r.Status),
		Cause: r.Cause, Answer: r.Answer, Attempts: r.Attempts, CreatedAt: r.CreatedAt, NextAttemptAt: due,
		Deadline: r.Deadline,
	}, content, content)
	row.Content = nil
	p.count(message.FromRow(row).Message)
	return p.add(journal.Step{
		RequestID: cmp.Or(row.RequestID, r.ID), Put: &journal.Put{Queue: r.Queue, Text: r.Text, Due: due}, Row: &row,
	})
}

// checkImport refuses a queue that is not a poison queue of the app, or on which the message would be something else.
func (op *Operations) checkImport(all []string, r account.Found, to string) error {
	if err := op.Account.CheckQueue(all, to, "import to a poison queue and retry, or use --force"); err != nil {
		return err
	}
	main := account.MainQueue(to)
	if main == to || !slices.Contains(op.Account.AppQueues, main) {
		return fmt.Errorf("queue %s: %w; name the app folder with --app, or use --force", to, ErrOtherQueue)
	}
	isRaw := r.Raw || op.Account.Rules.IsRaw(r.Queue)
	if err := op.Account.Rules.CheckRaw(isRaw, to); err != nil {
		return fmt.Errorf("%w; --force imports it nevertheless", err)
	}
	return nil
}
