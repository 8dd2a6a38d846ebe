package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/storage"
)

// Plan is a run that waits for a confirmation. Its messages are reserved for [run.ClaimTime], but nothing is changed.
// The caller must either Execute or Discard it.
type Plan struct {
	operations *Operations
	run        *run.Plan
	// matches are the messages that each ID of the source names.
	matches map[string][]string

	// Result is that of a run of which nothing is done yet.
	Result
	// From and To are the numbers of messages by queue.
	From, To map[string]int
	// Hidden is how many messages could not be read, because another client has received them or they are delayed.
	Hidden int
	// Final says that the run cannot be undone.
	Final bool
	Counts
	// Untold is how many messages have a callback that a cancel does not send, because it was not asked for.
	Untold int
}

// Refusal is a message that a run leaves alone.
type Refusal struct {
	Message message.Message `json:"message"`
	Why     string          `json:"why"`
}

// Result is the result of a run so far, including its earlier parts.
type Result struct {
	run.Result
	// Refused is how many selected messages the run leaves alone; Refusals are the first of them. Unmatched is the
	// number of IDs of the source that no message has. A run that was resumed knows none of these.
	Refused   int       `json:"refused"`
	Refusals  []Refusal `json:"refusals,omitempty"`
	Unmatched int       `json:"unmatched,omitempty"`
	// UnmatchedIDs are these.
	UnmatchedIDs []string `json:"unmatchedIds,omitempty"`
	// Unsearched is how many messages were left out although a part of them could not be searched for a text.
	Unsearched int `json:"unsearched,omitempty"`
	// Warnings are those of the plan. A run that was resumed knows none.
	Warnings []Warning `json:"warnings,omitempty"`
	// Encodings counts the messages of the plan by what FixEncoding changes. A run that was resumed knows none.
	Encodings map[string]int `json:"encodings,omitempty"`
}

// maxRefusals limits the refusals that a plan lists.
const maxRefusals = 20

// change returns the step of a message. Its error is the reason to refuse the message.
type change func(ctx context.Context, f account.Found) (journal.Step, error)

// exchange returns a step that takes a message away, and writes a text to a queue.
func exchange(f account.Found, to, text string) journal.Step {
	put := &journal.Put{Queue: to, Text: text}
	if text == f.Text {
		put.Text = "" // the journal need not have it twice
	}
	return journal.Step{Take: &journal.Take{Text: f.Text}, Put: put}
}

// plan reads the source's messages and plans the change of each.
func (op *Operations) plan(ctx context.Context, about journal.Run, s account.Source, change change) (*Plan, error) {
	names, err := op.Account.QueuesOf(ctx, s)
	if err != nil {
		return nil, err
	}
	p, err := op.newPlan(ctx, about)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		err = p.take(ctx, s, name, change)
		if err != nil {
			break
		}
	}
	p.Unsearched = op.Account.Unsearched
	err = errors.Join(err, context.Cause(ctx), p.checkIDs(s.IDs))
	if err != nil {
		p.Discard(ctx)
		if !errors.Is(err, account.ErrAmbiguous) {
			op.observer().Note(Hidden(time.Now()))
		}
		return nil, err
	}
	return p, nil
}

// Hidden says until when messages are invisible that a plan or a run has claimed before now and has not released.
func Hidden(now time.Time) string {
	until := format.Moment(now.Add(run.ClaimTime))
	return "messages that it has claimed are invisible until " + until + " at the latest"
}

func (op *Operations) newPlan(ctx context.Context, about journal.Run) (*Plan, error) {
	e := op.engine()
	e.Operator = op.By(ctx)
	begun, err := e.Begin(about)
	if err != nil {
		return nil, err
	}
	return op.planOf(begun), nil
}

func (op *Operations) planOf(p *run.Plan) *Plan {
	planned := run.Result{Run: p.Run.ID, Command: p.Run.Command, Account: p.Run.Account, Total: p.Total, Left: p.Total}
	return &Plan{
		operations: op, run: p, matches: map[string][]string{}, From: p.From, To: p.To, Result: Result{Result: planned},
		Counts: newCounts(),
	}
}

// Counts are the numbers of a plan's messages by reason, by host and by tenant.
type Counts struct {
	Reasons map[string]int `json:"reasons"`
	Hosts   map[string]int `json:"hosts"`
	Tenants map[string]int `json:"tenants"`
}

func newCounts() Counts { return Counts{map[string]int{}, map[string]int{}, map[string]int{}} }

// mostCounted limits the reasons, hosts and tenants that a plan counts, because anyone can have written them. The
// others count as otherKeys.
const (
	mostCounted = 1000
	otherKeys   = "others"
)

// count counts a message that the plan changes.
func (c Counts) count(m message.Message) {
	countKey(c.Reasons, m.Reason)
	countKey(c.Hosts, cmp.Or(m.Host, "no host"))
	tenant := "no tenant"
	if m.Organization != "" || m.Environment != "" {
		tenant = m.Organization + "/" + m.Environment
	}
	countKey(c.Tenants, tenant)
}

func countKey(counts map[string]int, key string) {
	if counts[key] == 0 && len(counts) >= mostCounted {
		key = otherKeys
	}
	counts[key]++
}

// planCompareTime limits how long a plan waits for the rows of a queue, which it puts right on its way.
const planCompareTime = 5 * time.Second

// take plans the change of the selected messages of one queue.
func (p *Plan) take(ctx context.Context, s account.Source, name string, change change) error {
	total, err := p.operations.Account.Count(ctx, name)
	if err != nil {
		return err
	}
	seen := 0
	rows := compare(ctx, p.operations.Account.Table, name, planCompareTime)
	full := func() bool { return s.Limit > 0 && p.Total+p.Refused >= s.Limit }
	selectStep := func(m storage.Message) (*journal.Step, error) {
		seen++
		p.operations.Account.Scanned(name, seen, total)
		rows.see(ctx, p.operations.Account, name, m)
		found, ok := p.operations.Account.Read(s, name, m)
		if !ok {
			return nil, nil //nolint:nilnil // not selected
		}
		p.match(s.IDs, found.Message)
		step, why := change(ctx, found)
		if why != nil {
			p.refuse(found.Message, why.Error())
			return nil, nil //nolint:nilnil // refused
		}
		step.RequestID = requestID(found.Message)
		p.count(found.Message)
		p.Total++
		return &step, nil
	}
	err = p.run.Read(ctx, run.Selection{
		Queue: name, Total: total, Whole: s.IsWhole(), Enough: full, Select: selectStep,
	})
	_ = rows.end(ctx, err == nil && !full() && seen >= total) // the plan does not depend on rows
	p.Left = p.Total
	if !full() {
		p.Hidden += max(total-seen, 0)
	}
	return account.IgnoreMissing(err)
}

// requestID returns the request ID of a message. The handler uses the same default.
func requestID(m message.Message) string { return cmp.Or(m.RequestID, m.ID) }

// match records which IDs name a message. A request ID may name several messages; all of them are meant.
func (p *Plan) match(ids []string, m message.Message) {
	for _, id := range ids {
		if message.MatchID(m, id) && (len(p.matches[id]) == 0 || id != m.RequestID) {
			p.matches[id] = append(p.matches[id], m.ID)
		}
	}
}

// checkIDs counts the IDs that no message has, and refuses the beginning of an ID that several messages have.
func (p *Plan) checkIDs(ids []string) error {
	for _, id := range ids {
		matches := p.matches[id]
		switch {
		case len(matches) == 0:
			p.Unmatched++
			p.UnmatchedIDs = append(p.UnmatchedIDs, id)
		case len(matches) > 1:
			return fmt.Errorf("%.80q %w: %s and %s; give the whole ID of each",
				id, account.ErrAmbiguous, matches[0], matches[1])
		}
	}
	return nil
}

func (p *Plan) refuse(m message.Message, why string) {
	p.Refused++
	if len(p.Refusals) < maxRefusals {
		p.Refusals = append(p.Refusals, Refusal{m, why})
	}
}

func (p *Plan) add(s journal.Step) error {
	err := p.run.Add(s)
	p.Total, p.Left = p.run.Total, p.run.Total
	return err
}

// Discard removes the plan, and makes its messages visible again, as [run.Plan.Discard] does.
func (p *Plan) Discard(ctx context.Context) { p.run.Discard(ctx) }

// Execute carries out the plan, once. When ctx ends it completes the steps that it has begun and leaves the rest to
// [Operations.Resume]. A result without a run is that of a run that has not begun: with a command, the plan is
// discarded.
func (p *Plan) Execute(ctx context.Context) (Result, error) {
	if undone := p.run.Run.Of; undone != "" {
		if err := p.operations.claimUndo(ctx, undone, p.run.Run.ID); err != nil {
			p.Discard(ctx)
			return Result{Result: run.Result{Command: p.Command}}, err
		}
	}
	publishEnd := p.operations.publishRunning(ctx, beginning(p.run.Run, p.Total))
	done, err := p.run.Execute(ctx)
	publishEnd()
	result := p.Result
	result.Result = done
	return result, err
}

// Resume continues an interrupted run.
func (op *Operations) Resume(ctx context.Context, id string) (Result, error) {
	_, pace, err := op.check(ctx, id)
	if err == nil {
		err = op.checkOutcomes(ctx, pace)
	}
	if err == nil && op.Outcomes != nil {
		_, err = op.checkUndone(ctx, id)
		if !errors.Is(err, errUndoBegun) { // no answer does not keep an interrupted run from going on
			err = nil
		}
	}
	if err != nil {
		return Result{}, err
	}
	publishEnd := func() {}
	if s, err := run.Summarize(op.Journals, id); err == nil && s.State == run.Interrupted {
		publishEnd = op.publishRunning(ctx, s)
	}
	done, err := op.engine().Resume(ctx, id)
	publishEnd()
	return Result{Result: done}, err
}

// check returns why a run can be neither resumed nor undone. Otherwise it returns the names of all queues, and the pace
// of what is left of the run.
func (op *Operations) check(ctx context.Context, id string) (all []string, left journal.Pace, err error) {
	j, err := op.Journals.Read(id)
	if err != nil {
		return nil, left, err
	}
	defer func() { _ = j.Close() }() // nothing was written
	if err := op.engine().Check(j); err != nil {
		return nil, left, err
	}
	if j.Agreed && !j.Ended {
		left = j.Run.Pace
	}
	if j.CanaryPassed {
		left.Canary = 0
	}
	all, err = op.Account.Reach(ctx)
	return all, left, err
}

// PlanUndo prepares to restore the messages of a finished run, if they are still where the run has put
// them: that shows when the plan is executed.
func (op *Operations) PlanUndo(ctx context.Context, id string) (*Plan, error) {
	all, _, err := op.check(ctx, id)
	if err != nil {
		return nil, err
	}
	isRead := func(name string) bool { return op.Account.IsRead(all, name) }
	counts := newCounts()
	e := op.engine()
	e.Operator = op.By(ctx)
	undo, refused, callbacks, err := e.Undo(ctx, id, isRead, func(s journal.Step) {
		counts.count(op.describeStep(s))
	})
	if err != nil {
		return nil, err
	}
	p := op.planOf(undo)
	p.Counts = counts
	for _, r := range refused {
		p.refuse(messageOf(r.Step), r.Why)
	}
	if callbacks > 0 {
		p.Warnings = append(p.Warnings, Warning{Why: callbackSent, Count: callbacks})
	}
	return p, nil
}

// describeStep describes the message that a step writes, or takes away.
func (op *Operations) describeStep(s journal.Step) message.Message {
	switch {
	case s.Row != nil:
		return message.FromRow(*s.Row).Message
	case s.Put != nil:
		return message.Read(op.Account.Rules, s.Put.Queue, storage.Message{Text: s.Text()})
	}
	return message.Read(op.Account.Rules, s.Take.Queue, storage.Message{Text: s.Take.Text})
}

// messageOf names the message of a step.
func messageOf(s journal.Step) message.Message {
	if s.Take == nil {
		return message.Message{Queue: s.Put.Queue, RequestID: s.RequestID}
	}
	return message.Message{ID: s.Take.ID, Queue: s.Take.Queue, RequestID: s.RequestID}
}
