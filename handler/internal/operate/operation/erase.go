package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"asynccaller/handler/internal/observers/history"
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

// EraseCommand is the command of an erase in the list of runs.
const EraseCommand = "erase"

// Erasure selects what is erased: by a request id, a text, or both. It is recorded nowhere.
type Erasure struct {
	// RequestID is the exact id of a call of Tenant. Its callbacks are meant, too, as far as they are known as such.
	RequestID string
	Tenant    envelope.Tenant
	// Text matches as in [message.Filter].
	Text string
}

// selects reports whether a message is to be erased, or a part of it could not be searched for the text. The texts of a
// description are cut, so the content counts if it is an envelope.
func (e Erasure) selects(m message.Message, content []byte) (selected, unsearched bool) {
	isNamed := e.names(cmp.Or(m.RequestID, m.ID))
	tenant := envelope.Tenant{Organization: m.Organization, Environment: m.Environment}
	if in, err := envelope.Parse(content); err == nil && !m.Raw {
		isNamed = isNamed || e.names(in.RequestID) || e.names(in.OriginalRequestID) || in.IsCallbackOf(e.RequestID)
		tenant = in.Tenant
	}
	hasTenant := e.RequestID != "" || e.Tenant != envelope.Tenant{}
	if hasTenant && tenant != e.Tenant || !isNamed {
		return false, false
	}
	return message.Filter{Text: e.Text}.Match(m, content)
}

// names reports whether a request id is that of the call.
func (e Erasure) names(requestID string) bool { return e.RequestID == "" || requestID == e.RequestID }

// mayName reports whether a request id is that of the callback, which another call can have as well.
func (e Erasure) mayName(requestID string) bool {
	return e.RequestID != "" && requestID == envelope.CallbackID(e.RequestID)
}

// ErasedPlace is what was found and deleted in one place.
type ErasedPlace struct {
	Place   string `json:"place"`
	Found   int    `json:"found"`
	Deleted int    `json:"deleted"`
	// Hidden is how many messages could not be read, because another client has received them.
	Hidden int `json:"hidden,omitempty"`
	// Unsearched is how many messages were left although a part of them could not be searched for the text.
	Unsearched int `json:"unsearched,omitempty"`
	// Unknown is how many were left that have the request id of the callback, and are not known to be of the call.
	Unknown int `json:"unknown,omitempty"`
	// Problem is why the place could not be searched, or not everything was deleted; empty if all is well.
	Problem string `json:"problem,omitempty"`
}

// Left is how many were found and not deleted.
func (p ErasedPlace) Left() int { return p.Found - p.Deleted }

// Erase deletes what an erasure selects on the account, for good: it keeps no journal, and publishes who has deleted
// how many messages. Without remove it only counts. An error means that the account cannot be reached, and that nothing
// was deleted.
func (op *Operations) Erase(ctx context.Context, e Erasure, remove bool) ([]ErasedPlace, error) {
	if _, err := op.Account.Reach(ctx); err != nil {
		return nil, err
	}
	poison, scheduled := op.erasePoison(ctx, e, remove), op.eraseScheduled(ctx, e, remove)
	places := []ErasedPlace{poison, scheduled}
	if e.RequestID != "" { // the others have no texts of messages
		places = append(places, op.eraseOutcomes(ctx, e, remove), op.eraseHistory(ctx, e, remove))
	}
	if remove {
		var s RunSummary
		s.Command, s.Operator = EraseCommand, op.By(ctx)
		s.Filter, s.CommandLine = "", "" // what is erased is not kept
		s.Total, s.Done = poison.Found+scheduled.Found, poison.Deleted+scheduled.Deleted
		op.publishChange(ctx, s)
	}
	return places, nil
}

// selects is [Erasure.selects] for a message of the place, and counts one that could not be searched.
func (p *ErasedPlace) selects(e Erasure, m message.Message, content []byte) bool {
	selected, unsearched := e.selects(m, content)
	switch {
	case unsearched:
		p.Unsearched++
	case !selected && e.mayName(m.RequestID):
		p.Unknown++
	}
	return selected
}

// problem is why the work on a place is not complete.
func (p *ErasedPlace) problem(err error) {
	if err != nil {
		p.Problem = err.Error()
	}
}

// letters are the dead letters that an erase has read.
type letters struct {
	// selected says of each, by its id, whether it is selected.
	selected map[string]bool
	// deleted has the keys of the rows of those that were deleted, by their ids.
	deleted map[string]storage.Key
}

func (op *Operations) erasePoison(ctx context.Context, e Erasure, remove bool) ErasedPlace {
	p, found := ErasedPlace{Place: "poison queues"}, letters{map[string]bool{}, map[string]storage.Key{}}
	if !remove {
		listed, err := op.Account.List(ctx, account.Source{}, func(f account.Found) {
			found.selected[f.ID] = p.selects(e, f.Message, f.Content)
			if found.selected[f.ID] {
				p.Found++
			}
		})
		p.Hidden = listed.Hidden
		p.problem(errors.Join(err, op.eraseDeadRows(ctx, e, &p, &found, false)))
		return p
	}
	names, err := op.Account.QueuesOf(ctx, account.Source{})
	for _, name := range names {
		err = errors.Join(err, op.eraseQueue(ctx, name, e, &p, &found))
	}
	p.problem(errors.Join(err, op.eraseDeadRows(ctx, e, &p, &found, true)))
	return p
}

// eraseDeadRows replaces the rows of the dead letters that were deleted by marks, which keep a row that the app writes
// late from appearing. It removes the rows of the other selected ones, and counts those of messages that were not read.
// AC-monitor brings the row of a message back that was left on its queue, which a mark would prevent.
func (op *Operations) eraseDeadRows(
	ctx context.Context, e Erasure, p *ErasedPlace, found *letters, remove bool,
) error {
	if op.Account.Table == nil {
		return nil
	}
	writer := newWriter(op.Account.Table) //nolint:contextcheck // Close ends it
	alone := 0
	err := record.ListDeadLetters(ctx, op.Account.Table, record.Query{Content: true}, func(row record.Row) error {
		isErased, isFound := found.selected[row.ID]
		_, getsMark := found.deleted[row.ID]
		if isFound && !isErased || getsMark {
			return nil
		}
		if !isFound {
			if !p.selects(e, message.FromRow(row).Message, row.Content) {
				return nil
			}
			alone++
		}
		if remove {
			writer.Remove(row.Key)
		}
		return nil
	})
	for _, key := range found.deleted {
		writer.Put(record.Mark(key.Partition, key.ID))
	}
	writer.Close(closeTime)
	lost, lostErr := writer.Lost()
	p.Found += alone
	switch {
	case lost > 0:
		err = errors.Join(err, fmt.Errorf("%d rows are left: %w", lost, cmp.Or(lostErr, errTooSlow)))
	case remove && p.Hidden == 0: // otherwise their messages may be those that were not read
		p.Deleted += alone
	}
	return err
}

// eraser returns an engine without a journal.
func (op *Operations) eraser() *run.Engine {
	return &run.Engine{Store: op.Account.Store, Observer: silent{}, Patience: keepPatience}
}

// eraseQueue reads a poison queue, and deletes the selected messages. A message that another client receives meanwhile
// is left.
func (op *Operations) eraseQueue(
	ctx context.Context, name string, e Erasure, p *ErasedPlace, found *letters,
) error {
	total, err := op.Account.Count(ctx, name)
	if err != nil {
		return err
	}
	seen := 0
	r := reading.Reading{Store: op.Account.Store, Queue: name, Total: total}
	visible, err := r.Each(ctx, func(b reading.Batch) (taken int, stop bool, err error) {
		var steps []journal.Step
		for _, m := range b.Messages {
			if m.Again {
				continue
			}
			seen++
			letter, _ := op.Account.Read(account.Source{}, name, m.Message)
			found.selected[m.ID] = p.selects(e, letter.Message, letter.Content)
			if !found.selected[m.ID] {
				continue
			}
			take := &journal.Take{Queue: name, ID: m.ID, Receipt: m.PopReceipt, Until: b.Until, Text: m.Text}
			if m.Expires() {
				take.Expires = m.ExpiresAt
			}
			steps = append(steps, journal.Step{RequestID: requestID(letter.Message), Take: take})
		}
		p.Found += len(steps)
		progress, err := op.eraser().Do(ctx, steps)
		for n, s := range progress {
			if s.State == journal.Done {
				p.Deleted++
				id := steps[n].Take.ID
				found.deleted[id] = storage.Key{Partition: name, ID: id}
			}
		}
		return len(steps), ctx.Err() != nil, err
	})
	p.Hidden += max(total-seen, 0)
	reading.Wait(ctx, visible)
	return errors.Join(account.IgnoreMissing(err), ctx.Err())
}

// maxErased is how many scheduled messages are deleted at once.
const maxErased = 100

func (op *Operations) eraseScheduled(ctx context.Context, e Erasure, remove bool) ErasedPlace {
	p := ErasedPlace{Place: "scheduled calls"}
	var batch []record.Row
	flush := func() error {
		err := op.eraseRows(ctx, batch, &p)
		batch = nil
		return err
	}
	_, err := op.Account.ListScheduled(ctx, account.Source{}, true, func(m message.Recorded) error {
		if !p.selects(e, m.Searched(), m.Row.Content) {
			return nil
		}
		p.Found++
		if !remove {
			return nil
		}
		isFull := len(batch) == maxErased || len(batch) > 0 && batch[0].Partition != m.Row.Partition
		if isFull {
			if err := flush(); err != nil {
				return err
			}
		}
		batch = append(batch, m.Row)
		return nil
	})
	if err == nil && remove {
		err = flush()
	}
	p.problem(err)
	return p
}

// eraseRows deletes the scheduled messages of rows of one queue, and then the rows, which have copies. A message that
// the app has received is not deleted, but its row is. Where it is not known whether the message was deleted, the row
// stays, so that a further try finds it.
func (op *Operations) eraseRows(ctx context.Context, batch []record.Row, p *ErasedPlace) error {
	var steps []journal.Step
	var changed []record.Row
	var keys []storage.Key
	for _, row := range batch {
		text := op.Account.Rules.Encoding.Encode(row.Content)
		if checkRow(row, text) != nil { // it leads to no message
			keys = append(keys, row.Key)
			continue
		}
		changed = append(changed, row)
		steps = append(steps, journal.Step{RequestID: row.RequestID, Take: &journal.Take{
			Queue: row.Partition, ID: row.ID, Receipt: row.PopReceipt, ByReceipt: true, Text: text,
			Due: row.NextAttemptAt,
		}})
	}
	progress, failure := op.eraser().Do(ctx, steps)
	presence := op.Account.PresenceCheck(ctx, time.Now())
	deleted := 0
	for n, step := range progress {
		switch {
		case step.State == journal.Done,
			step.State == journal.Skipped && !step.Unknown && presence(changed[n]) == record.Gone:
			deleted++
		case step.State == journal.Skipped && !step.Unknown:
		default:
			continue
		}
		keys = append(keys, changed[n].Key)
	}
	_, err := rows.Delete(ctx, op.Account.Table, keys)
	if err == nil {
		p.Deleted += deleted
	} else {
		err = fmt.Errorf("%d messages were deleted, but perhaps not their rows: %w", deleted, err)
	}
	return errors.Join(failure, err, ctx.Err())
}

// eraseOutcomes deletes the outcomes of messages of runs. They do not say the tenant of a call.
func (op *Operations) eraseOutcomes(ctx context.Context, e Erasure, remove bool) ErasedPlace {
	p := ErasedPlace{Place: "outcomes"}
	if op.Outcomes == nil {
		p.problem(account.ErrNoTable)
		return p
	}
	keys := map[string][]storage.Key{}
	err := rows.List(ctx, op.Outcomes, storage.Query{}, func(row record.Outcome) error {
		isRun := row.Partition == record.RunsPartition || row.Partition == record.UndonePartition
		if !isRun && e.mayName(row.RequestID) {
			p.Unknown++
		}
		if !isRun && e.names(row.RequestID) {
			p.Found++
			keys[row.Partition] = append(keys[row.Partition], storage.Key{Partition: row.Partition, ID: row.ID})
		}
		return nil
	})
	for _, found := range keys {
		if err != nil || !remove {
			break
		}
		n := 0
		n, err = rows.Delete(ctx, op.Outcomes, found)
		p.Deleted += n
	}
	p.problem(err)
	return p
}

func (op *Operations) eraseHistory(ctx context.Context, e Erasure, remove bool) ErasedPlace {
	p := ErasedPlace{Place: "history"}
	if op.History == nil {
		p.Problem = "the storage connection names no table service"
		return p
	}
	var err error
	p.Found, p.Deleted, p.Unknown, err = history.Erase(ctx, op.History, e.Tenant, e.RequestID, remove)
	p.problem(err)
	return p
}

// FindCopies names the runs of this machine on the account whose journals have what an erasure selects, or cannot be
// searched.
func (op *Operations) FindCopies(e Erasure) ([]string, error) {
	runs := []string{}
	ids, err := op.Journals.List()
	for _, id := range ids {
		mayHave, err := op.mayHaveCopy(id, e)
		isGone := errors.Is(err, journal.ErrNoRun) // it was deleted just now
		if mayHave || err != nil && !isGone {
			runs = append(runs, id)
		}
	}
	return runs, err
}

func (op *Operations) mayHaveCopy(id string, e Erasure) (bool, error) {
	j, err := op.Journals.Read(id)
	if err != nil {
		return false, err
	}
	defer func() { _ = j.Close() }() // nothing was written
	if j.Run.Account != op.Account.Name {
		return false, nil
	}
	for n := range j.Steps() {
		s, err := j.Step(n)
		if err != nil {
			return false, err
		}
		if op.stepMayHave(s, e) {
			return true, nil
		}
	}
	return false, nil
}

// stepMayHave reports whether a step names the request id, or has a message that an erasure selects or that cannot be
// searched.
func (op *Operations) stepMayHave(s journal.Step, e Erasure) bool {
	if e.RequestID != "" && (e.names(s.RequestID) || e.mayName(s.RequestID)) {
		return true
	}
	mayHave := func(queue, id, text string) bool {
		found, _ := op.Account.Read(account.Source{}, queue, storage.Message{ID: id, Text: text})
		selected, unsearched := e.selects(found.Message, found.Content)
		return text != "" && (selected || unsearched)
	}
	isTaken := s.Take != nil && mayHave(s.Take.Queue, s.Take.ID, s.Take.Text)
	isPut := s.Put != nil && mayHave(s.Put.Queue, "", s.Put.Text)
	isThen := s.Then != nil && mayHave(s.Then.Queue, "", s.Then.Text)
	isSet := s.Set != nil && s.Take != nil && mayHave(s.Take.Queue, s.Take.ID, s.Set.Text)
	return isTaken || isPut || isThen || isSet
}
