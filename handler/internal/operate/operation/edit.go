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
	// NewRequestID gives each message a new request id.
	NewRequestID bool
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
// refuses messages that the handler would refuse. The error is an [ErrNoEffect] if edits do nothing.
func (op *Operations) PlanEdit(ctx context.Context, s account.Source, e Edit) (*Plan, error) {
	var noted notes
	change := func(_ *Plan, in decision.Intake, row record.Row) (journal.Step, error) {
		due := row.NextAttemptAt
		if due.IsZero() {
			return journal.Step{}, errNoDue
		}
		edited, err := op.edit(ctx, e, in, row)
		if err != nil {
			return journal.Step{}, err
		}
		noted.add(e.Options, in.Content, edited, nameOf(row))
		if e.Show != nil {
			e.Show(message.FromRow(row).Message, in.Content, edited)
		}
		text := op.Account.Rules.Encoding.Encode(edited)
		return journal.Step{Take: &journal.Take{Due: due}, Set: &journal.Set{Text: text, Due: due}}, nil
	}
	p, err := op.planScheduled(ctx, journal.Run{Command: "edit"}, s, change)
	if err != nil {
		return nil, err
	}
	warnings, err := noted.judge(e.Force)
	if err != nil {
		p.Discard(ctx)
		return nil, err
	}
	p.Warnings = append(p.Warnings, warnings...)
	return p, nil
}

// edit returns the edited content of a message.
func (op *Operations) edit(ctx context.Context, e Edit, in decision.Intake, row record.Row) ([]byte, error) {
	switch {
	case op.Account.Rules.IsRaw(row.Partition):
		return nil, errEditedRaw
	case e.Options.Edited != nil && !bytes.Equal(in.Content, e.Original):
		return nil, errEditedOld
	}
	requestID := ""
	if e.NewRequestID {
		requestID = uuid.NewString()
	}
	edited, err := e.Options.Scheduled(
		ctx, op.Account.Rules, in.Content, row.ID, requestID, row.NextAttemptAt, time.Now())
	if err != nil {
		return nil, err
	}
	if edited.Envelope.Format() == envelope.FormatNexus { // the C# app needs it
		edited.Envelope.Expires = op.editedRow(row, in.Content, edited.Content).Deadline
	}
	content, err := edited.Envelope.Successor(edited.Limit)
	return content.Bytes, err
}
