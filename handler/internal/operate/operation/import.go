package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/storage"
)

// ErrOtherQueue means that the queue is none of the app, and may belong to another one.
var ErrOtherQueue = errors.New("it is not a poison queue of the app")

// Import says where exported messages are written.
type Import struct {
	// To is the queue; empty means the one that each message was exported from.
	To string
	// Force allows queues that are not poison queues of the app: those that it reads, and those of other apps.
	Force bool
}

// PlanImport prepares to write exported messages to a queue. The file may come from elsewhere, and it names the queues.
func (op *Operations) PlanImport(ctx context.Context, in io.Reader, o Import) (*Plan, error) {
	all, err := op.Account.Reach(ctx)
	if err != nil {
		return nil, err
	}
	p, err := op.newPlan(journal.Run{Command: "import"})
	if err != nil {
		return nil, err
	}
	err = readRecords(in, func(r account.Found) error {
		to := cmp.Or(o.To, r.Queue)
		if !storage.ValidName(to) {
			return fmt.Errorf("queue: %.80q is not the name of a queue", to)
		}
		if err := op.checkImport(all, r, to); err != nil && !o.Force {
			return err
		}
		if err := storage.CheckText(r.Text); err != nil {
			return fmt.Errorf("text: %w", err)
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
