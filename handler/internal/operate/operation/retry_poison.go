package operation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/plain/nearest"
	"asynccaller/handler/internal/storage"
)

// Retry says how messages are sent again.
type Retry struct {
	// To is the queue; empty means the main queue of the poison queue on which a message is.
	To   string
	Edit edit.Options
	Pace journal.Pace
	// Force sends messages although edits have no effect.
	Force bool
	// Dedupe sends only the latest message of each call, and refuses the others.
	Dedupe bool
}

// CheckRetry returns why nothing can be retried like this, or a warning if nobody would receive the messages.
func (op *Operations) CheckRetry(ctx context.Context, r Retry) (warning string, err error) {
	if err := op.checkOutcomes(ctx, r.Pace); err != nil || r.To == "" {
		return "", err
	}
	all, err := op.Account.Reach(ctx)
	if err == nil {
		err = op.checkTarget(all, r.To)
	}
	if err == nil && !op.Account.IsRead(all, r.To) {
		warning = fmt.Sprintf("no function of the app reads %s: messages that are sent to it wait there", r.To)
	}
	return warning, err
}

// mostNames is the largest number of queues that an error lists.
const mostNames = 20

// checkTarget refuses a queue to write to that does not exist, unless a function reads it: nobody would look for
// messages on a queue whose name is misspelt.
func (op *Operations) checkTarget(all []string, to string) error {
	switch {
	case !storage.ValidName(to):
		return fmt.Errorf("queue %.80q: not the name of a queue", to)
	case slices.Contains(all, to), op.Account.IsRead(all, to):
		return nil
	}
	known := slices.Compact(slices.Sorted(slices.Values(slices.Concat(all, op.Account.AppQueues))))
	exist := strings.Join(all[:min(len(all), mostNames)], ", ")
	if more := len(all) - mostNames; more > 0 {
		exist += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("%s: %w, and no function of the app reads it%s\nqueues that exist: %s\n"+
		"to create it: `az storage queue create --name %[1]s`",
		to, storage.ErrNoQueue, nearest.Hint(to, known), cmp.Or(exist, "none"))
}

// PlanRetryPoison prepares to send messages again. It refuses messages that would only come back. The error is an
// [ErrNoEffect] if edits do nothing.
func (op *Operations) PlanRetryPoison(ctx context.Context, s account.Source, r Retry) (*Plan, error) {
	if _, err := op.CheckRetry(ctx, r); err != nil {
		return nil, err
	}
	run := paced("requeue", r.Pace)
	r.Edit.Run = run.Token
	var noted notes
	encodings := map[string]int{}
	retry, err := op.retryPoison(ctx, s, r, &noted, encodings)
	if err != nil {
		return nil, err
	}
	p, err := op.plan(ctx, run, s, retry)
	if err != nil {
		return nil, err
	}
	p.Encodings = encodings
	p.Warnings, err = noted.judge(r.Force)
	if err != nil {
		p.Discard(ctx)
		return nil, err
	}
	return p, nil
}

// retryPoison returns the change of each message. The change adds to the notes and encodings.
func (op *Operations) retryPoison(
	ctx context.Context, s account.Source, r Retry, noted *notes, encodings map[string]int,
) (change, error) {
	now := time.Now()
	send := func(ctx context.Context, f account.Found) (journal.Step, error) {
		to, err := RetryTo(f.Queue, r.To)
		if err == nil {
			err = op.Account.Rules.CheckRaw(f.Raw, to)
		}
		if err != nil {
			return journal.Step{}, err
		}
		options := r.Edit
		options.Raw = f.Raw
		text, err := edit.Prepare(ctx, op.Account.Rules, f.Text, f.ID, options, now)
		return exchange(f, to, text), err
	}
	if r.Dedupe {
		var err error
		send, err = op.dedupe(ctx, s, send)
		if err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context, f account.Found) (journal.Step, error) {
		step, refused := send(ctx, f)
		if refused != nil {
			return step, refused
		}
		content := f.Content
		if r.Edit.FixEncoding {
			fixed, encoding := edit.FixEncoding(op.Account.Rules, f.Text, f.Raw)
			content = fixed
			if encoding != "" {
				encodings[encoding]++
			}
		}
		noted.add(r.Edit, content, op.Account.Rules.Content(step.Text()),
			Name{Queue: f.Queue, ID: f.ID, RequestID: f.RequestID})
		return step, nil
	}, nil
}

// RetryTo returns the queue to which a message is sent again: the given one, or the main queue of a poison queue. The
// queue that a dead letter names does not count, because any sender can have written it.
func RetryTo(from, to string) (string, error) {
	main := account.MainQueue(from)
	if to == "" && main == from {
		return "", fmt.Errorf("%s is not a poison queue, so its main queue is unknown: "+
			"name the queue to send to with --to", from)
	}
	return cmp.Or(to, main), nil
}

// Preview shows what a retry would change, without changing anything. For a message that would be refused, why
// is the reason, and the queue and the content mean nothing. The warnings are those that the plan would have, and the
// error is an [ErrNoEffect] if it would be refused for that.
func (op *Operations) Preview(
	ctx context.Context, s account.Source, r Retry, visit func(f account.Found, to string, after []byte, why error),
) (listed account.Listed, warnings []Warning, err error) {
	if _, err := op.CheckRetry(ctx, r); err != nil {
		return account.Listed{}, nil, err
	}
	var noted notes
	retry, err := op.retryPoison(ctx, s, r, &noted, map[string]int{})
	if err != nil {
		return account.Listed{}, nil, err
	}
	listed, err = op.Account.List(ctx, s, func(f account.Found) {
		step, err := retry(ctx, f)
		if err != nil {
			visit(f, "", nil, err)
			return
		}
		visit(f, step.Put.Queue, op.Account.Rules.Content(step.Text()), nil)
	})
	if err == nil {
		warnings, err = noted.judge(r.Force)
	}
	return listed, warnings, err
}
