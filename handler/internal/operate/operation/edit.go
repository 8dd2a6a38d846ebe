package operation

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
)

// Edit says how scheduled messages are edited.
type Edit struct {
	Options edit.Options
	// Original is the content that was edited, if Options.Edited is set.
	Original []byte
	// Now makes the messages due at once, as expedite does. NewRequestID gives each a new request id.
	Now, NewRequestID bool
	Pace              journal.Pace
	// Force edits messages although edits have no effect.
	Force bool
	// Show, unless nil, is called with each message that the plan changes.
	Show func(m message.Message, before, after []byte)
}

var (
	errEditedRaw = errors.New("the message is the content of a call of a route, and has no envelope to edit")
	errNoDue     = errors.New("its row does not say when it is due")
	errEditedOld = errors.New("it was changed after the editor was opened: edit it again")
)

// PlanEdit prepares to edit scheduled messages in place. Attempts, trail and the time of the next attempt stay. It
// refuses messages that the handler would refuse. The error is an [ErrNoEffect] if edits do nothing. A plan that makes
// the messages due cannot be undone.
func (op *Operations) PlanEdit(ctx context.Context, s account.Source, e Edit) (p *Plan, err error) {
	const command = "edit"
	run := paced(command, e.Pace)
	var noted notes
	apply := func(_ *Plan, in *decision.Intake, row *record.Row) error {
		before, original := in.Content, *row
		if err := op.edit(ctx, e, in, row); err != nil {
			return err
		}
		noted.add(e.Options, before, in.Content, nameOf(original))
		if e.Show != nil {
			e.Show(message.FromRow(original).Message, before, in.Content)
		}
		return nil
	}
	if e.Now {
		p, err = op.planRetryScheduled(ctx, s, run, op.settingsInForce(ctx), apply)
	} else {
		p, err = op.planEdit(ctx, s, run, apply)
	}
	if err != nil {
		return nil, err
	}
	warnings, err := noted.judge(e.Force)
	if err != nil {
		p.Discard(ctx)
		return nil, err
	}
	p.Warnings = append(p.Warnings, warnings...)
	p.Final = e.Now
	return p, nil
}

// planEdit plans edits of messages that stay scheduled.
func (op *Operations) planEdit(
	ctx context.Context, s account.Source, run journal.Run, apply preparation,
) (*Plan, error) {
	change := func(p *Plan, in decision.Intake, row record.Row) (journal.Step, error) {
		due := row.NextAttemptAt
		if due.IsZero() {
			return journal.Step{}, errNoDue
		}
		err := apply(p, &in, &row)
		text := op.Account.Rules.Encoding.Encode(in.Content)
		return journal.Step{Take: &journal.Take{Due: due}, Set: &journal.Set{Text: text, Due: due}}, err
	}
	return op.planScheduled(ctx, run, s, change)
}

// edit applies the edits to the intake of a message, and to its row.
func (op *Operations) edit(ctx context.Context, e Edit, in *decision.Intake, row *record.Row) error {
	switch {
	case op.Account.Rules.IsRaw(row.Partition):
		return errEditedRaw
	case e.Options.Edited != nil && !bytes.Equal(in.Content, e.Original):
		return errEditedOld
	}
	requestID := ""
	if e.NewRequestID {
		requestID = uuid.NewString()
	}
	now := time.Now()
	due := row.NextAttemptAt
	if e.Now {
		due = now
	}
	edited, err := e.Options.Scheduled(ctx, op.Account.Rules, in.Content, row.ID, requestID, due, now)
	if err != nil {
		return err
	}
	*row = op.editedRow(*row, in.Content, edited.Content)
	if edited.Envelope.Format() == envelope.FormatNexus { // the C# app needs it
		edited.Envelope.Expires = row.Deadline
	}
	content, err := edited.Envelope.Successor(edited.Limit)
	edited.Content = content.Bytes
	*in = edited
	return err
}
