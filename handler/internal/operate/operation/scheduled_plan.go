package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/observers/background"
	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/plain/fold"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// scheduledChange returns the step of a scheduled message. The error is the reason to refuse the message, or
// errLeftOut.
type scheduledChange func(p *Plan, in decision.Intake, row record.Row) (journal.Step, error)

// errLeftOut means that a message is not selected after all, as its content shows.
var errLeftOut = errors.New("not selected")

// planScheduled plans the change of each selected message. The app reads the queues, so that only the receipts of the
// rows claim messages.
func (op *Operations) planScheduled(
	ctx context.Context, about journal.Run, s account.Source, change scheduledChange,
) (*Plan, error) {
	if _, err := op.Account.Reach(ctx); err != nil {
		return nil, err
	}
	p, err := op.newPlan(ctx, about)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	_, err = op.Account.ListScheduled(ctx, s, true, func(m message.Recorded) error {
		p.match(s.IDs, m.Message)
		row := m.Row
		text := op.Account.Rules.Encoding.Encode(row.Content)
		if why := checkRow(row, text); why != nil {
			p.refuse(m.Message, why.Error())
			return nil
		}
		step, why := change(p, op.Account.Rules.Open(row.Content, row.ID, now), row)
		switch {
		case errors.Is(why, errLeftOut):
			return nil
		case why != nil:
			p.refuse(m.Message, why.Error())
			return nil
		}
		row.Content = nil
		step.RequestID, step.Row = requestID(m.Message), &row
		if step.Take == nil {
			step.Take = &journal.Take{}
		}
		step.Take.Queue, step.Take.ID, step.Take.Text = row.Partition, row.ID, text
		step.Take.Receipt, step.Take.ByReceipt = row.PopReceipt, true
		if row.Repeated {
			p.warn(repeatedWrite, nameOf(row))
		}
		p.count(m.Message)
		return p.add(step)
	})
	p.Unsearched = op.Account.Unsearched
	err = errors.Join(err, p.checkIDs(s.IDs))
	if err != nil {
		p.Discard(ctx)
		return nil, err
	}
	return p, nil
}

// checkRow returns why the message of a row cannot be changed.
func checkRow(row record.Row, text string) error {
	valid := storage.ValidName(row.Partition) && storage.ValidID(row.ID)
	if !valid || row.PopReceipt == "" || len(row.Content) == 0 {
		return errors.New("its row is incomplete, or has no id of a message")
	}
	return storage.CheckText(text)
}

// Limits of the writers of a run, which wait for nothing else: the memory that rows may take while they wait, and how
// long it may take to write the last of them.
const (
	rowBytes  = 32 << 20
	closeTime = 30 * time.Second
)

// newWriter returns a writer of the record of scheduled messages.
func newWriter(table storage.Table) *background.Writer {
	return record.NewWriter(table, rowBytes, zerolog.Nop())
}

// hooks follow the messages of a run: they watch what becomes of them, and keep the record of scheduled messages.
type hooks struct {
	*watch

	// rows changes the record; nil without one. Cancelled keeps the calls that are cancelled, and removes those whose
	// cancel is undone; nil if none are kept.
	rows      *background.Writer
	cancelled *history.History
	// moves says that the run moves dead letters to another queue, undoes that it undoes another run.
	moves, undoes bool
	// outOfDate counts the edited messages whose rows could not be written, and err is why.
	mu        sync.Mutex
	outOfDate int
	err       error
	// shownCancelled counts the calls that the history still shows as cancelled although their cancel is undone.
	shownCancelled int
}

func (op *Operations) hooks(about journal.Run) run.Hooks {
	h := &hooks{watch: newWatch(op, about.Token), moves: about.Command == moveCommand, undoes: about.Of != ""}
	if op.Account.Table != nil {
		h.rows = newWriter(op.Account.Table)
	}
	if (about.Command == cancelCommand || about.Of != "") && op.keepsHistory() {
		h.cancelled = history.New(op.History, op.HistoryRetention, zerolog.Nop())
	}
	return h
}

// Ended implements [run.Hooks]. A message that waits now gets a row. The row of a scheduled message is removed, unless
// the handler has replaced it, and that of a dead letter becomes a mark, unless it is not known whether the message is
// still there.
func (h *hooks) Ended(s journal.Step, p journal.Progress) {
	h.keepCancelled(s, p)
	switch {
	case h.rows == nil || p.Unknown:
		return
	case s.Row == nil:
		h.changeDeadLetters(s, p)
		return
	case s.IsEdit():
		h.rewrite(s, p)
		return
	}
	row := *s.Row
	row.Content = nil
	switch {
	case p.State != journal.Done: // its receipt is stale
	case s.Put != nil:
		row.NextAttemptAt = s.Put.Due
		row.Content = h.operations.Account.Rules.Content(s.Text())
		row.Repeated = row.Repeated || p.PossibleDuplicate
	}
	if row.Content != nil && time.Until(row.NextAttemptAt) >= decision.MinRecordedDelay {
		row.ID, row.PopReceipt = p.NewID, p.NewReceipt
		h.rows.Put(row)
		return
	}
	wasImported := row.ID == "" // the step knows no version of the row: another one may be an edited message's
	if s.Take != nil && (!wasImported || p.State == journal.Done) {
		row.ID = s.Take.ID
		h.rows.Remove(row.Key)
	}
}

// changeDeadLetters changes the rows of the dead letters that a step takes away and writes. After a possible duplicate,
// the message that was to be deleted may still be there.
func (h *hooks) changeDeadLetters(s journal.Step, p journal.Progress) {
	if p.State != journal.Done {
		return
	}
	isOfApp := s.Take != nil && slices.Contains(h.operations.Account.AppQueues, s.Take.Queue) // of an undo
	if s.Take != nil && !p.PossibleDuplicate && !isOfApp {
		h.rows.Put(record.Mark(s.Take.Queue, s.Take.ID))
	}
	if s.Put != nil && (h.moves || strings.HasSuffix(s.Put.Queue, storage.PoisonSuffix)) {
		h.rows.Insert(RowOf(h.operations.Account.Rules, s.Put.Queue, p.NewID, s.Text()))
	}
}

// rewriteTime limits the write of the row of an edited message, with its repetitions.
const rewriteTime = 10 * time.Second

// rewrite writes the row of an edited message, if the row is still the one that the edit has used: the handler may have
// removed or replaced it. The row of a message that was not edited may be another command's. After a table without an
// answer, no further row is written: the run must not wait for each.
func (h *hooks) rewrite(s journal.Step, p journal.Progress) {
	if p.State != journal.Done {
		return
	}
	h.mu.Lock()
	err := h.err
	h.mu.Unlock()
	if err == nil || errors.Is(err, storage.ErrRefused) {
		err = h.operations.rewriteRow(s, p.NewReceipt)
	}
	if err != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.outOfDate++
		h.err = err
	}
}

// rewriteRow writes the row of a message that a step has edited, as its text says.
func (op *Operations) rewriteRow(s journal.Step, receipt string) error {
	ctx, cancel := context.WithTimeout(context.Background(), rewriteTime)
	defer cancel()
	return storage.Persist(ctx, rewriteTime/3, func(ctx context.Context) error {
		row, found, err := rows.Get[record.Row](ctx, op.Account.Table, s.Take.Queue, s.Take.ID)
		if err != nil || !found || row.PopReceipt != s.Take.Receipt {
			return err
		}
		row = op.editedRow(row, op.Account.Rules.Content(s.Take.Text), op.Account.Rules.Content(s.Set.Text))
		row.PopReceipt = receipt
		_, err = rows.Replace(ctx, op.Account.Table, row) // it does nothing if another client was first
		return err
	}, storage.ErrRefused)
}

// editedRow returns the row of a message whose content has changed.
func (op *Operations) editedRow(row record.Row, before, after []byte) record.Row {
	row.Content = after
	e, err := envelope.Parse(after)
	if err != nil {
		return row
	}
	row.RequestID = cmp.Or(e.RequestID, row.RequestID)
	row.Method = e.Call.Method
	row.TargetHost, row.PathPattern = targets.Host(e.Call.Target), fold.Path(e.Call.Target.EscapedPath())
	row.MovedTo = ""
	if to := op.Account.Rules.Decision.Profiles.Move(e.Call.Target); to != e.Call.Target {
		row.MovedTo = targets.Host(to)
	}
	row.Organization, row.Environment = e.Tenant.Organization, e.Tenant.Environment
	if edit.EditsDeadline(before, after) {
		row.Deadline = e.GiveUpAt(op.Account.Rules.Decision.Expiration)
	}
	return row
}

// historyTime is how long a run waits to learn whether the account has a history.
const historyTime = 5 * time.Second

// keepsHistory reports whether the app keeps how calls end: then it has tables for it. Its settings are elsewhere.
func (op *Operations) keepsHistory() bool {
	if op.History == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), historyTime)
	defer cancel()
	names, err := op.History.TableNames(ctx, history.TablePrefix)
	return err == nil && len(names) > 0
}

// keepCancelled keeps in the history that a call was cancelled, until the cancel is undone.
func (h *hooks) keepCancelled(s journal.Step, p journal.Progress) {
	isUndo := s.Take == nil
	isOther := isUndo != h.undoes // the undo of an import
	if h.cancelled == nil || p.State != journal.Done || s.Row == nil || s.Set != nil || isOther {
		return
	}
	text := ""
	if isUndo {
		text = s.Text()
	} else {
		text = s.Take.Text
	}
	now := time.Now()
	in := h.operations.Account.Rules.Open(h.operations.Account.Rules.Content(text), s.Row.ID, now)
	if in.Envelope == nil {
		return
	}
	entry := h.cancelled.NewEntry(in.Envelope, now)
	entry.MovedTo = in.MovedTo()
	entry.Queue, entry.MessageID = s.Row.Partition, s.Row.ID
	entry.Action, entry.Reason = cancelCommand, string(decision.Cancelled)
	entry.Status = envelope.StatusCode(in.Envelope.LatestStatus())
	entry.Attempts, entry.Trail = in.Envelope.Attempts, history.TrailOf(in.Envelope.Trail)
	if !isUndo {
		h.cancelled.Record(entry)
		return
	}
	h.tryWithdraw(entry)
}

// tryWithdraw removes a call whose cancel was undone from the history. Nothing depends on it, so an error is only a
// note.
func (h *hooks) tryWithdraw(entry history.Entry) {
	h.mu.Lock()
	isAway := h.shownCancelled > 0
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), historyTime)
	defer cancel()
	if !isAway && h.cancelled.Withdraw(ctx, entry) == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shownCancelled++
}

// Close implements [run.Hooks]. Nothing depends on the record, so an error is only a note.
func (h *hooks) Close() {
	h.cancelled.Close(closeTime)
	if h.shownCancelled > 0 {
		h.operations.observer().Note(fmt.Sprintf("the history still shows %d calls as cancelled, because its table "+
			"did not answer; the messages are not affected", h.shownCancelled))
	}
	if h.rows == nil {
		return
	}
	h.rows.Close(closeTime)
	lost, err := h.rows.Lost()
	lost += h.outOfDate
	if lost > 0 {
		err = cmp.Or(err, h.err)
		h.operations.observer().Note(fmt.Sprintf("the record of %d messages is out of date: %v; "+
			"the messages are not affected", lost, cmp.Or(err, errTooSlow)))
	}
}

var errTooSlow = errors.New("the table is too slow")
