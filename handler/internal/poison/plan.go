package poison

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/lease"
)

// Plan is a run that is ready but was not agreed to: its messages are taken, nothing is changed. Execute or
// Discard it.
type Plan struct {
	account *Account
	journal *journal.Journal
	hold    *lease.Hold
	// stopRenewing ends the renewal of the leases.
	stopRenewing func()
	// named are the messages that each id of the source names.
	named map[string][]string
	// of is the journal of the run that is to be undone, held so that nobody goes on with it; or nil.
	of *journal.Journal

	// Command is what will be done, Run the run's name.
	Command, Run string
	// Total is how many messages it is about: From and To count them by queue.
	Total    int
	From, To map[string]int
	// Refused is how many messages were meant but will be left alone; Refusals are the first of them.
	Refused  int
	Refusals []Refusal
	// Hidden is how many messages could not be looked at: somebody else has them, or they wait.
	Hidden int
	// Unmatched are the ids of the source that no message has.
	Unmatched []string
	// Backup is the file that the messages were exported to, or empty.
	Backup string
}

// Refusal is a message that a run leaves alone.
type Refusal struct {
	Message inspect.Message `json:"message"`
	Why     string          `json:"why"`
}

const maxRefusals = 20

// change says what becomes of a message: what is written, and where. From, ID and receipt are filled in.
// Its error is why the message is left alone.
type change func(ctx context.Context, f Found) (journal.Step, error)

// plan takes the messages that the source means and writes down what will become of each.
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
	p.hold.GiveBackOthers(ctx)
	if err = errors.Join(err, context.Cause(ctx), p.checkIDs(s.IDs)); err != nil {
		p.Discard(ctx)
		return nil, err
	}
	return p, nil
}

// checkIDs finds the ids that no message has, and refuses a beginning that several have: one of them was
// meant.
func (p *Plan) checkIDs(ids []string) error {
	for _, id := range ids {
		switch found := p.named[id]; {
		case len(found) == 0:
			p.Unmatched = append(p.Unmatched, id)
		case len(found) > 1:
			return fmt.Errorf("%.80q %w: %s and %s; give the whole id of each that you mean", id, ErrAmbiguous, found[0], found[1])
		}
	}
	return nil
}

// name notes which messages an id names. A call's id may name several, which are all meant.
func (p *Plan) name(ids []string, m inspect.Message) {
	for _, id := range ids {
		if !inspect.MatchID(m, id) || len(p.named[id]) > 0 && id == m.RequestID {
			continue
		}
		p.named[id] = append(p.named[id], m.ID)
	}
}

func (a *Account) newPlan(run journal.Run) (*Plan, error) {
	run.Account = a.Name
	j, err := a.Runs.Begin(run)
	if err != nil {
		return nil, err
	}
	p := &Plan{
		account: a, journal: j, Command: run.Command, Run: j.Run.ID,
		From: map[string]int{}, To: map[string]int{}, named: map[string][]string{}, stopRenewing: func() {},
	}
	if p.hold, err = newHold(a, j); err != nil {
		_ = j.Discard()
		return nil, err
	}
	return p, nil
}

// take goes through one queue.
func (p *Plan) take(ctx context.Context, s Source, name string, change change) error {
	total, err := p.account.count(ctx, name)
	if err != nil {
		return err
	}
	n, failed := 0, error(nil)
	full := func() bool { return s.Limit > 0 && p.Total+p.Refused >= s.Limit }
	seen, err := p.hold.Take(ctx, name, lease.Choice{
		Most:   s.all(),
		Enough: func() bool { return failed != nil || ctx.Err() != nil || full() },
		Choose: func(m queue.Message) (number int, keep bool) {
			n++
			p.account.observer().Scanned(name, n, total)
			if failed != nil || full() {
				return 0, false
			}
			found, ok := p.account.read(s, name, m)
			if !ok {
				return 0, false
			}
			p.name(s.IDs, found.Message)
			number = p.Total
			keep, failed = p.choose(ctx, found, m.PopReceipt, change)
			return number, keep
		},
	})
	if !full() {
		p.Hidden += max(total-seen, 0)
	}
	return errors.Join(failed, err)
}

// all reports whether the source means whole queues.
func (s Source) all() bool {
	f := s.Filter
	return len(s.IDs) == 0 && s.Limit == 0 && !s.expiring && f.ID == "" && f.RequestID == "" && f.Text == "" && f.Group == nil &&
		f.Since.IsZero() && f.Until.IsZero() && f.MinAttempts == 0 &&
		len(f.Reasons)+len(f.Statuses)+len(f.Hosts)+len(f.Methods) == 0
}

// choose writes down what becomes of a message, or that it is left alone.
func (p *Plan) choose(ctx context.Context, f Found, popReceipt string, change change) (taken bool, err error) {
	step, why := change(ctx, f)
	if why != nil {
		p.Refused++
		if len(p.Refusals) < maxRefusals {
			p.Refusals = append(p.Refusals, Refusal{Message: f.Message, Why: why.Error()})
		}
		return false, nil
	}
	step.N, step.From, step.ID, step.PopReceipt = p.Total, f.Queue, f.ID, popReceipt
	step.RequestID = cmp.Or(f.RequestID, f.ID) // as the call is named
	if step.After == step.Before {
		step.After = ""
	}
	return true, p.add(step)
}

func (p *Plan) add(step journal.Step) error {
	if err := p.journal.Plan(step); err != nil {
		return err
	}
	p.Total++
	if step.From != "" {
		p.From[step.From]++
	}
	if step.To != "" {
		p.To[step.To]++
	}
	return nil
}

// RenewLeases keeps the messages leased in the background, until Execute or Discard.
func (p *Plan) RenewLeases(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with stopRenewing
		defer close(done)
		p.hold.Renew(ctx)
	}()
	p.stopRenewing = func() {
		cancel()
		<-done
	}
}

// Discard gives the messages back. Nothing was changed.
func (p *Plan) Discard(ctx context.Context) {
	p.stopRenewing()
	p.hold.Close(ctx)
	_ = p.journal.Discard()
	if p.of != nil {
		_ = p.of.Close()
	}
	if p.Backup != "" {
		_ = os.Remove(p.Backup)
	}
}

// Execute does what was planned. It may be called once. When ctx ends it finishes what it has begun and
// leaves the rest: see [Account.Resume].
func (p *Plan) Execute(ctx context.Context) (result Result, err error) {
	p.stopRenewing()
	defer func() { err = errors.Join(err, p.journal.Close()) }()
	defer p.hold.Close(ctx) // before the journal: it notes receipts
	if p.of != nil {
		defer func() { err = errors.Join(err, p.of.Close()) }()
		if err := p.of.Undone(p.Run); err != nil { // counts from the moment that we are agreed to
			return Result{}, err
		}
	}
	if err := p.journal.Go(); err != nil {
		return Result{}, err
	}
	history, err := p.account.Runs.Read(p.Run)
	if err != nil {
		return Result{}, err
	}
	defer history.Close()
	r := newRun(p.account, p.journal, history, p.hold)
	if p.of != nil {
		if err := adopt(p.hold, history); err != nil {
			return Result{}, err
		}
	}
	err = r.perform(ctx)
	return r.result(), err
}

// newHold returns a hold that notes new receipts in the journal. That a note fails shows with the next one
// that matters.
func newHold(a *Account, j *journal.Journal) (*lease.Hold, error) {
	return lease.New(a.Store, func(m *lease.Message, popReceipt string) { _ = j.Renewed(m.Number, popReceipt) })
}
