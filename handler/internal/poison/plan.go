package poison

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"

	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/lease"
)

// Plan is a run that waits for a confirmation. Its messages are leased, but nothing is changed. The caller must
// either Execute or Discard it.
type Plan struct {
	account *Account
	journal *journal.Journal
	leases  *lease.Holder
	// stopRenewing ends the renewals of RenewLeases.
	stopRenewing func()
	// matches are the messages that each ID of the source names.
	matches map[string][]string
	// undoes is the journal of the run that is undone, or nil. It is locked, so that no other process resumes that run.
	undoes *journal.Journal

	// Result is that of a run of which nothing is done yet.
	Result
	// From and To are the numbers of messages by queue.
	From, To map[string]int
	// Hidden is how many messages could not be read, because another client has received them or they are delayed.
	Hidden int
	// Backup is the file that the messages were exported to, or empty.
	Backup string
}

// Refusal is a message that a run leaves alone.
type Refusal struct {
	Message inspect.Message `json:"message"`
	Why     string          `json:"why"`
}

// maxRefusals limits the refusals that a plan lists, and the reasons for skipping that a result lists.
const maxRefusals = 20

// change returns what is written for a message, and to which queue. Its error is the reason to refuse the message.
type change func(ctx context.Context, f Found) (journal.Step, error)

// plan leases the source's messages and plans the change of each.
func (a *Account) plan(ctx context.Context, run journal.Run, s Source, change change) (*Plan, error) {
	names, err := a.queues(ctx, s)
	if err != nil {
		return nil, err
	}
	p, err := a.newPlan(run)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err = p.take(ctx, s, name, change); err != nil {
			break
		}
	}
	if err = errors.Join(err, context.Cause(ctx), p.checkIDs(s.IDs)); err != nil {
		p.Discard(ctx)
		return nil, err
	}
	return p, nil
}

func (a *Account) newPlan(run journal.Run) (*Plan, error) {
	run.Account = a.Name
	j, err := a.Runs.Begin(run)
	if err != nil {
		return nil, err
	}
	return a.planOf(j), nil
}

// planOf returns a plan with a journal. It records leases and new receipts there; if that fails, so does the next record.
func (a *Account) planOf(j *journal.Journal) *Plan {
	return &Plan{
		account: a, journal: j, stopRenewing: func() {}, matches: map[string][]string{}, leases: lease.New(a.Store, j),
		Result: resultOf(j), From: map[string]int{}, To: map[string]int{},
	}
}

// take leases the selected messages of one queue.
func (p *Plan) take(ctx context.Context, s Source, name string, change change) error {
	total, err := p.account.count(ctx, name)
	if err != nil {
		return err
	}
	seen, failed := 0, error(nil)
	full := func() bool { return s.Limit > 0 && p.Total+p.Refused >= s.Limit }
	err = p.leases.Take(ctx, name, total, lease.Selection{
		Most:   s.isWholeQueue(),
		Enough: func() bool { return failed != nil || ctx.Err() != nil || full() },
		Select: func(m queue.Message) (number int, hold bool) {
			seen++
			p.account.observer().Scanned(name, seen, total)
			found, ok := p.account.read(s, name, m)
			if !ok || failed != nil || full() {
				return 0, false
			}
			p.match(s.IDs, found.Message)
			number = p.Total
			hold, failed = p.step(ctx, found, m.PopReceipt, change)
			return number, hold
		},
	})
	if !full() {
		p.Hidden += max(total-seen, 0)
	}
	return errors.Join(failed, ignoreMissing(err))
}

// isWholeQueue reports whether the source selects every message of its queues.
func (s Source) isWholeQueue() bool {
	return len(s.IDs) == 0 && s.Limit == 0 && !s.expiring && reflect.ValueOf(s.Filter).IsZero()
}

// match records which IDs name a message. A request ID may name several messages; all of them are meant.
func (p *Plan) match(ids []string, m inspect.Message) {
	for _, id := range ids {
		if inspect.MatchID(m, id) && (len(p.matches[id]) == 0 || id != m.RequestID) {
			p.matches[id] = append(p.matches[id], m.ID)
		}
	}
}

// checkIDs counts the IDs that no message has, and refuses the beginning of an ID that several messages have.
func (p *Plan) checkIDs(ids []string) error {
	for _, id := range ids {
		switch found := p.matches[id]; {
		case len(found) == 0:
			p.Unmatched++
		case len(found) > 1:
			return fmt.Errorf("%.80q %w: %s and %s; give the whole ID of each", id, ErrAmbiguous, found[0], found[1])
		}
	}
	return nil
}

// step plans the change of one message, or its refusal.
func (p *Plan) step(ctx context.Context, f Found, popReceipt string, change change) (planned bool, err error) {
	s, why := change(ctx, f)
	if why != nil {
		p.refuse(f.Message, why.Error())
		return false, nil
	}
	s.N, s.From, s.ID, s.PopReceipt = p.Total, f.Queue, f.ID, popReceipt
	s.RequestID = cmp.Or(f.RequestID, f.ID) // the handler uses the same default
	if s.After == s.Before {
		s.After = ""
	}
	return true, p.add(s)
}

func (p *Plan) refuse(m inspect.Message, why string) {
	p.Refused++
	if len(p.Refusals) < maxRefusals {
		p.Refusals = append(p.Refusals, Refusal{m, why})
	}
}

func (p *Plan) add(s journal.Step) error {
	if err := p.journal.Plan(s); err != nil {
		return err
	}
	p.Total++
	if s.From != "" {
		p.From[s.From]++
	}
	if s.To != "" {
		p.To[s.To]++
	}
	return nil
}

// RenewLeases keeps the messages leased in the background, until Execute or Discard.
func (p *Plan) RenewLeases(ctx context.Context) { p.stopRenewing = p.leases.Renew(ctx) }

// Discard releases the messages and removes the journal.
func (p *Plan) Discard(ctx context.Context) {
	p.stopRenewing()
	p.leases.Close(ctx)
	_ = p.journal.Discard()
	if p.undoes != nil {
		_ = p.undoes.Close()
	}
	if p.Backup != "" {
		_ = os.Remove(p.Backup)
	}
}

// Execute carries out the plan, once. When ctx ends it completes the steps that it has begun and leaves the rest to
// [Account.Resume].
func (p *Plan) Execute(ctx context.Context) (result Result, err error) {
	p.stopRenewing()
	defer func() { err = errors.Join(err, p.close(ctx)) }()
	if p.undoes != nil {
		err = p.undoes.Undone(p.Run) // takes effect with Go
	}
	if err == nil {
		err = p.journal.Go()
	}
	if err != nil {
		return Result{}, err
	}
	return p.perform(ctx)
}

// close releases the remaining messages and closes the journals.
func (p *Plan) close(ctx context.Context) (err error) {
	p.leases.Close(ctx) // before the journal, which records the receipts
	if p.undoes != nil {
		err = p.undoes.Close()
	}
	return errors.Join(p.journal.Close(), err)
}

// Result is the result of a run so far, including its earlier parts.
type Result struct {
	Run     string `json:"run"`
	Command string `json:"command"`
	Account string `json:"account"`
	Total   int    `json:"total"`
	// Done and Skipped are the numbers of completed and skipped messages; Why has the first reasons for skipping, and all of
	// a run that expedites or cancels scheduled messages.
	Done    int      `json:"done"`
	Skipped int      `json:"skipped,omitempty"`
	Why     []string `json:"why,omitempty"`
	// Both is how many messages are on both queues, Left how many are still to be done. Resume handles them.
	Both int `json:"both,omitempty"`
	Left int `json:"left,omitempty"`
	// Twice is how many messages may have been written twice, because of a kill or a lost answer. TwiceMessages
	// are the first of them, on the queue that they were written to.
	Twice         int    `json:"twice,omitempty"`
	TwiceMessages []Name `json:"twiceMessages,omitempty"`
	// Stopped is why the run stopped by itself before its end.
	Stopped string `json:"stopped,omitempty"`
	// Refused is how many selected messages the run leaves alone; Refusals are the first of them. Unmatched is the number of
	// IDs of the source that no message has. A run that was resumed knows none of these.
	Refused   int       `json:"refused"`
	Refusals  []Refusal `json:"refusals,omitempty"`
	Unmatched int       `json:"unmatched,omitempty"`
	// Warnings are those of the plan. A run that was resumed knows none.
	Warnings []Warning `json:"warnings,omitempty"`
}

// Finished reports whether nothing is left to resume.
func (r Result) Finished() bool { return r.Both == 0 && r.Left == 0 }

// resultOf sums up the progress of a run.
func resultOf(j *journal.Journal) Result {
	steps := j.Steps()
	result := Result{Run: j.Run.ID, Command: j.Run.Command, Account: j.Run.Account, Total: len(steps)}
	for _, p := range steps {
		switch p.State {
		case journal.Done:
			result.Done++
		case journal.Skipped:
			result.Skipped++
			if len(result.Why) < maxRefusals || j.Run.Command == commandExpedite || j.Run.Command == commandCancel {
				result.Why = append(result.Why, p.Why)
			}
		case journal.Written:
			result.Both++
		case journal.Planned, journal.Begun, journal.Deleting:
			result.Left++
		}
		if mayBeTwice(p) {
			result.Twice++
		}
	}
	return result
}

// mayBeTwice reports whether the message of a step may have been written twice, as far as the journal says.
func mayBeTwice(p journal.Progress) bool {
	return p.Writes > 1 || p.State == journal.Skipped && p.Writes > 0
}
