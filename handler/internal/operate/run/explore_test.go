package run_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/storage"
)

// stride selects every stride-th of the schedules that combine several faults and actors. All of them take an hour, and
// `make test-long` plays every 13th. A large stride also plays each single fault in one variant only.
var stride = flag.Int("stride", largeStride, "explore every nth schedule")

const largeStride = 397

// The texts of the message.
const (
	original = "original"
	changed  = "changed"
	told     = "told"
)

// long is longer than a claim.
const long = run.ClaimTime + time.Minute

// due is when the call of a scheduled message is due.
const due = 30 * time.Minute

// kind is a kind of step.
type kind struct {
	// queue has the message; it is empty if the step only writes one. delay is how long it is invisible at first.
	queue string
	delay time.Duration
	// step returns the step. The claim of a message that is read is filled in.
	step func(m storage.Message) journal.Step
	// actors are what others do meanwhile.
	actors []string
}

func receipt(name string, m storage.Message) *journal.Take {
	return &journal.Take{Queue: name, ID: m.ID, Receipt: m.PopReceipt, ByReceipt: true, Text: original}
}

var kinds = map[string]kind{
	"read_put": {dead, 0, func(storage.Message) journal.Step {
		return journal.Step{Take: &journal.Take{Text: original}, Put: &journal.Put{Queue: live, Text: changed}}
	}, []string{"consume_taken", "consume_put", "list", "other"}},
	"read_park": {dead, 0, func(storage.Message) journal.Step {
		return journal.Step{Take: &journal.Take{Text: original}, Put: &journal.Put{Queue: parking, Text: changed}}
	}, []string{"consume_put", "list"}},
	"read": {dead, 0, func(storage.Message) journal.Step {
		return journal.Step{Take: &journal.Take{Text: original}}
	}, []string{"consume_taken", "list", "other"}},
	"read_no_text": {dead, 0, func(storage.Message) journal.Step {
		return journal.Step{Take: &journal.Take{NoText: true}}
	}, []string{"consume_taken", "list", "other"}},
	"receipt_put": {live, 0, func(m storage.Message) journal.Step {
		return journal.Step{Take: receipt(live, m), Put: &journal.Put{Queue: dead, Text: changed}}
	}, []string{"consume_taken", "consume_put", "list", "other", "expedite"}},
	"put": {"", 0, func(storage.Message) journal.Step {
		return journal.Step{Put: &journal.Put{Queue: dead, Text: changed}}
	}, []string{"consume_put", "list"}},
	"put_live": {"", 0, func(storage.Message) journal.Step {
		return journal.Step{Put: &journal.Put{Queue: live, Text: changed}}
	}, []string{"consume_put"}},
	"receipt_then": {live, due, func(m storage.Message) journal.Step {
		take := receipt(live, m)
		take.Due = m.NextVisibleAt
		return journal.Step{Take: take, Then: &journal.Put{Queue: callbacks, Text: told}}
	}, []string{"consume_taken", "other", "expedite"}},
	"receipt_then_soon": {live, time.Minute, func(m storage.Message) journal.Step {
		take := receipt(live, m)
		take.Due = m.NextVisibleAt
		return journal.Step{Take: take, Then: &journal.Put{Queue: callbacks, Text: told}}
	}, []string{"consume_taken", "other", "expedite"}},
	"receipt": {live, due, func(m storage.Message) journal.Step {
		return journal.Step{Take: receipt(live, m)}
	}, []string{"consume_taken", "expedite"}},
	"set": {live, due, func(m storage.Message) journal.Step {
		return journal.Step{Take: receipt(live, m), Set: &journal.Set{Text: changed}}
	}, []string{"consume_taken", "other", "expedite"}},
	"edit": {live, due, edited, []string{"consume_taken", "other", "expedite"}},
	// The call is due while operations are repeated.
	"edit_soon": {live, time.Minute, edited, []string{"consume_taken", "other", "expedite"}},
}

// edited returns a step that edits a scheduled message.
func edited(m storage.Message) journal.Step {
	take := receipt(live, m)
	take.Due = m.NextVisibleAt
	return journal.Step{Take: take, Set: &journal.Set{Text: changed, Due: m.NextVisibleAt}}
}

// putQueue returns the queue to which the step writes.
func (k kind) putQueue() string {
	s := k.step(storage.Message{})
	if s.Put == nil {
		return ""
	}
	return s.Put.Queue
}

// execute plans and carries out a run with a step of the kind.
func (k kind) execute(e *run.Engine, m storage.Message) error {
	ctx := context.Background()
	p, err := e.Begin(journal.Run{Command: "move"})
	if err != nil {
		return err
	}
	s := k.step(m)
	if s.Take == nil || s.Take.ByReceipt {
		err = p.Add(s)
	} else {
		err = k.read(ctx, p, e.Store, m.ID, s)
	}
	if err != nil {
		p.Discard(ctx)
		return err
	}
	_, err = p.Execute(ctx)
	return err
}

func (k kind) read(ctx context.Context, p *run.Plan, store storage.Queues, id string, s journal.Step) error {
	total, err := store.Count(ctx, k.queue)
	if err != nil {
		return err
	}
	choose := func(m storage.Message) (*journal.Step, error) {
		if m.ID != id {
			return nil, nil
		}
		return &s, nil
	}
	return p.Read(ctx, run.Selection{Queue: k.queue, Total: total, Select: choose})
}

// schedule is what happens to a run of one step and to its undo.
type schedule struct {
	kind   string
	faults map[int]fault
	// actor acts from the operation of this number on.
	actor  string
	moment int
	// pauses are how much later a run is resumed for the first time and from then on.
	pauses [2]time.Duration
	// latency is how long an operation takes.
	latency time.Duration
}

func (s schedule) String() string {
	var b strings.Builder
	fmt.Fprint(&b, s.kind)
	for at := range 50 {
		if what := s.faults[at]; what != none {
			fmt.Fprintf(&b, ", %d %s", at, what)
		}
	}
	if s.actor != "" {
		fmt.Fprintf(&b, ", %s from %d on", s.actor, s.moment)
	}
	return fmt.Sprintf("%s, resumed after %v, operations take %s", &b, s.pauses, s.latency)
}

// losesReceipts reports whether a run can lose the newest receipt of its message, or storage refuses a request.
func (s schedule) losesReceipts() bool {
	for what := range maps.Values(s.faults) {
		if !slices.Contains([]fault{none, denied, fails, outage}, what) {
			return true
		}
	}
	return false
}

// outcome is how a schedule ended.
type outcome struct {
	// operations is the number of operations.
	operations int
	problems   []string
	log        string
}

// play carries out a schedule.
func (s schedule) play(t *testing.T) (o outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { o = s.inBubble(t) })
	return o
}

func (s schedule) inBubble(t *testing.T) outcome {
	t.Helper()
	w, k := newWorld(t), kinds[s.kind]
	w.latency, w.faults, w.moment = s.latency, s.faults, s.moment
	m := k.prepare(t, w)
	c := &checker{w: w, schedule: s}
	w.others = c.actor(t, k, m)

	did, undid := newEffects(), newEffects()
	id, err := w.complete(did, s.pauses, func(e *run.Engine) error { return k.execute(e, m) })
	if id == "" && len(did.puts)+len(did.deletes) > 0 {
		c.problem("a run that was not confirmed has changed something: %+v", did)
	}
	if err != nil && did.faults == 0 {
		c.problem("run: %v", err)
	}
	undo := ""
	if id != "" {
		advance(time.Second) // so that the undo is newer
		undo, err = w.complete(undid, s.pauses, func(e *run.Engine) error { return undoRun(e, id) })
		if err != nil && !errors.Is(err, run.ErrNothingLeft) {
			c.problem("undo: %v", err)
		}
	}
	w.end()
	if !c.check("run", w.runs, id, did) && len(undid.puts)+len(undid.deletes) > 0 {
		c.problem("a step that is not known or may exist twice was undone")
	}
	c.check("undo", w.runs, undo, undid)
	c.checkLost(k, did, undid)
	c.checkText(m)
	return outcome{w.n, c.problems, c.log.String()}
}

// prepare puts the message of a step, if there is one, and messages that no run may touch.
func (k kind) prepare(t *testing.T, w *world) (m storage.Message) {
	t.Helper()
	for _, bystander := range []string{"a", "b", "c"} {
		mustPut(t, w, dead, bystander, 0)
	}
	if k.queue != "" {
		m = mustPut(t, w, k.queue, original, k.delay)
	}
	return m
}

func mustPut(t *testing.T, w *world, name, text string, delay time.Duration) storage.Message {
	t.Helper()
	m, err := w.store.Put(t.Context(), name, storage.Item{Text: text, Delay: delay})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func undoRun(e *run.Engine, id string) error {
	p, refused, _, err := e.Undo(context.Background(), id, func(name string) bool { return name == live }, unseen)
	if err != nil {
		return err
	}
	if p.Total == 0 && len(refused) > 0 {
		p.Discard(context.Background())
		return run.ErrNothingLeft
	}
	_, err = p.Execute(context.Background())
	return err
}

// checker compares reports with what has happened.
type checker struct {
	w        *world
	schedule schedule

	mu       sync.Mutex
	log      strings.Builder
	problems []string
	// allowed is set if a report admits that the message was deleted, or says that this is not known.
	allowed bool
	// set is the text that the reports give a message that was changed in place; empty if they give none.
	set string
}

func (c *checker) problem(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// actor returns what others do.
func (c *checker) actor(t *testing.T, k kind, m storage.Message) func(*world) {
	t.Helper()
	const interval = 300 * time.Millisecond
	switch c.schedule.actor {
	case "consume_taken":
		return consume(k.queue, interval)
	case "consume_put":
		return consume(k.putQueue(), interval)
	case "list":
		return list(k.listed())
	case "expedite":
		return func(w *world) {
			_, _ = w.store.Update(context.Background(), k.queue, m.ID, m.PopReceipt, original, 0)
			consume(k.queue, interval)(w)
		}
	case "other":
		folder := folderInMemory(t)
		return func(w *world) {
			did := newEffects()
			other := &world{store: w.store, latency: w.latency * 7 / 10, runs: folder}
			id, err := other.complete(did, [2]time.Duration{}, func(e *run.Engine) error { return k.execute(e, m) })
			if err != nil {
				c.problem("the other run: %v", err)
			}
			c.check("other run", folder, id, did)
		}
	}
	return nil
}

// listed returns the queue that is listed.
func (k kind) listed() string {
	if k.queue != "" {
		return k.queue
	}
	return k.putQueue()
}

// check compares the report of a run with what it did. It reports whether the run is sure of all steps.
func (c *checker) check(who, folder, id string, did *effects) (sure bool) {
	if id == "" {
		return true
	}
	j, err := journal.Folder(folder).Read(id)
	if err != nil {
		c.problem("%s: %v", who, err)
		return true
	}
	defer func() { _ = j.Close() }()
	sure = true
	for n, p := range j.Steps() {
		s, err := j.Step(n)
		if err != nil {
			c.problem("%s: %v", who, err)
			continue
		}
		c.w.mu.Lock()
		found := c.compare(s, p, did)
		fmt.Fprintf(&c.log, "\n%s: %s twice=%v unknown=%v %s", who, p.State, p.PossibleDuplicate, p.Unknown, p.Why)
		fmt.Fprintf(&c.log, "\n    puts %v, deletes %v, sets %v", did.puts, did.deletes, did.sets)
		fmt.Fprintf(&c.log, "\n    consumed %v", c.w.consumed)
		if s.Set != nil && who != "other run" {
			c.noteText(s, p)
		}
		c.w.mu.Unlock()
		for _, f := range found {
			c.problem("%s: %s", who, f)
		}
		sure = sure && !p.PossibleDuplicate && !p.Unknown
	}
	return sure
}

// compare returns in which points the report on a step is false.
func (c *checker) compare(s journal.Step, p journal.Progress, did *effects) (untrue []string) {
	var deleted, written, called, set int
	consumed, early := false, false
	if s.Take != nil {
		deleted = did.deletes[s.Take.ID]
		taken, ok := c.w.consumed[s.Take.ID]
		consumed = ok
		early = ok && taken.at.Before(s.Take.Due) && c.schedule.actor == "consume_taken"
	}
	if s.Put != nil {
		written = did.puts[target{s.Put.Queue, s.Text()}]
	}
	if s.Then != nil {
		called = did.puts[target{s.Then.Queue, s.Then.Text}]
	}
	if s.Set != nil {
		set = did.sets[target{s.Take.ID, s.Set.Text}]
	}
	takes := s.Take != nil && s.Set == nil
	unsure := p.Unknown || p.PossibleDuplicate
	done := p.State == journal.Done
	undisturbed := did.faults == 0 && c.schedule.actor == ""
	alone := c.schedule.actor == "" && !c.schedule.losesReceipts()
	there := s.Take == nil || deleted > 0 || consumed || c.w.has(s.Take.Queue, s.Take.ID)
	for _, rule := range []struct {
		broken bool
		is     string
	}{
		{p.Unfinished(), "it is not finished"},
		{early, "it was visible before it was due"},
		{done && !p.PossibleDuplicate && takes && (deleted != 1 || consumed), "done, but not deleted by the run"},
		{done && !p.PossibleDuplicate && s.Put != nil && written != 1, "done, but not written once"},
		{done && s.Put != nil && written == 0, "done, but not written"},
		{done && s.Then != nil && called == 0, "done, but without the callback"},
		{done && s.Set != nil && set == 0, "done, but not changed"},
		{p.State == journal.Skipped && !p.Unknown && deleted+written+called+set > 0, "skipped, but changed"},
		{p.Unknown && p.State != journal.Skipped, "not known, but not skipped"},
		{called > 0 && deleted == 0, "the callback tells of a deletion that was none"},
		{called > 0 && !done, "the callback was sent, but not reported"},
		{written > 0 && consumed && did.faults == 0, "written though somebody else has received it"},
		{p.State == journal.Skipped && !p.Unknown && alone, "skipped, without a reason"},
		{p.State == journal.Skipped && !p.Unknown && !there && c.schedule.actor != "other", "skipped, but gone"},
		{unsure && undisturbed, "not sure, without a reason"},
		{!unsure && undisturbed && !done, "not done, without a reason"},
	} {
		if rule.broken {
			untrue = append(untrue, rule.is)
		}
	}
	mayDelete := takes && s.Put == nil
	c.allowed = c.allowed || mayDelete && deleted > 0 && (p.State == journal.Done || p.Unknown)
	return untrue
}

// noteText notes the text that a report gives a message that was changed in place.
func (c *checker) noteText(s journal.Step, p journal.Progress) {
	switch {
	case p.State == journal.Done:
		c.set = s.Set.Text
	case p.Unknown:
		c.set = ""
	}
}

// checkText checks that a message that was changed in place has the text that the reports give it.
func (c *checker) checkText(m storage.Message) {
	got, ok := c.w.consumed[m.ID]
	for _, left := range c.w.store.All(live) {
		if left.ID == m.ID {
			got.text, ok = left.Text, true
		}
	}
	if c.set != "" && (!ok || got.text != c.set) {
		c.problem("the message has the text %q, and the reports say %q", got.text, c.set)
	}
}

// checkLost checks that the message exists, unless a report says that it was deleted.
func (c *checker) checkLost(k kind, did, undid *effects) {
	nothing := k.queue == "" && len(did.puts) == 0
	if !nothing && !c.allowed && !c.w.exists(original, changed) {
		c.problem("the message is lost")
	}
	for _, bystander := range []string{"a", "b", "c"} {
		if !c.w.exists(bystander) {
			c.problem("another message is lost")
		}
	}
	if len(did.deletes)+len(undid.deletes) > 2 {
		c.problem("other messages were deleted")
	}
}

var (
	singleFaults = []fault{denied, refused, fails, lost, late, outage, lostOutage, killBefore, killAfter, killLate}
	secondFaults = []fault{denied, refused, fails, lost, late, lostOutage, killBefore, killAfter, killLate}
)

// TestExplore explores what faults, kills and others do to each kind of step, and to its undo.
func TestExplore(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := explorer{t: t, problems: map[string]schedule{}}
			x.all(name, k)
			x.report()
		})
	}
}

// TestKilledTwice kills a run beside a list loop, and then the process that resumes it. The second kill can lose the
// newest receipt.
func TestKilledTwice(t *testing.T) {
	for _, name := range []string{"read_put", "read", "read_no_text"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := explorer{t: t, problems: map[string]schedule{}}
			s := schedule{kind: name, actor: "list", pauses: [2]time.Duration{long, 0}, latency: slow}
			for s.moment = 1; s.moment <= 12; s.moment++ {
				for second := s.moment + 1; second <= s.moment+12; second++ {
					s.faults = map[int]fault{s.moment: killBefore, second: killAfter}
					x.play(s)
				}
			}
			x.report()
		})
	}
}

// explorer plays schedules, and keeps the first one of each kind of problem.
type explorer struct {
	t *testing.T
	// called is how many schedules of two were offered, played how many schedules were played.
	called, played int
	problems       map[string]schedule
	logs           map[string]string
}

// all plays schedules of a kind: those with one fault, those with one actor, and some of those that combine one or two
// faults with an actor.
func (x *explorer) all(name string, k kind) {
	base := schedule{kind: name, latency: fast}
	n := x.play(base).operations
	if n == 0 {
		x.t.Error("there are no operations")
	}
	for _, actor := range k.actors {
		for moment := 1; moment <= n; moment++ {
			s := base
			s.actor, s.moment = actor, moment
			x.play(s)
		}
	}
	for turn, s := range variants() {
		s.kind = name
		x.single(k, s, turn)
	}
}

// The latencies of storage.
const (
	fast = 50 * time.Millisecond
	slow = time.Second
)

// mostVariants is how many variants are enough, unless all schedules are asked for.
const mostVariants = 3

// variants returns what else differs between schedules.
func variants() []schedule {
	all := []schedule{
		{latency: fast},
		{latency: fast, pauses: [2]time.Duration{long, long}},
		{latency: slow, pauses: [2]time.Duration{long, 0}},
		{latency: fast, pauses: [2]time.Duration{long, 0}},
		{latency: fast, pauses: [2]time.Duration{0, long}},
		{latency: slow},
		{latency: slow, pauses: [2]time.Duration{0, long}},
		{latency: slow, pauses: [2]time.Duration{long, long}},
	}
	if *stride > 1 {
		return all[:mostVariants]
	}
	return all
}

// mostOperations limits the operations that have faults: later ones are repetitions.
const mostOperations = 16

// single plays the schedules with one fault, and those with one fault and something else. With a large stride, the
// variants take turns.
func (x *explorer) single(k kind, base schedule, turn int) {
	reached := true
	for at := 1; reached && at <= mostOperations; at++ {
		for n, what := range singleFaults {
			if *stride >= largeStride && (at+n)%mostVariants != turn {
				continue
			}
			s := base
			s.faults = map[int]fault{at: what}
			o := x.play(s)
			reached = o.operations >= at
			if !reached {
				break
			}
			x.pairs(s, k, at, min(o.operations, mostOperations))
			x.actors(s, k, at)
		}
	}
}

// pairs plays schedules with a second fault, and those of them with an actor that begins between the two.
func (x *explorer) pairs(base schedule, k kind, at, operations int) {
	for second := at + 1; second <= operations; second++ {
		for _, what := range secondFaults {
			s := base
			s.faults = map[int]fault{at: base.faults[at], second: what}
			x.some(s)
			for _, s.actor = range k.actors {
				s.moment = at
				x.some(s)
			}
		}
	}
}

// actors plays schedules with an actor that begins shortly before or after the fault.
func (x *explorer) actors(base schedule, k kind, at int) {
	for _, actor := range k.actors {
		for moment := max(1, at-1); moment <= at+1; moment++ {
			s := base
			s.actor, s.moment = actor, moment
			x.some(s)
		}
	}
}

// some plays every stride-th schedule that it is called with.
func (x *explorer) some(s schedule) {
	x.t.Helper()
	x.called++
	if x.called%*stride == 0 {
		x.play(s)
	}
}

func (x *explorer) play(s schedule) outcome {
	x.t.Helper()
	x.played++
	o := s.play(x.t)
	for _, p := range o.problems {
		if first, ok := x.problems[p]; !ok || len(s.faults) < len(first.faults) {
			x.problems[p] = s
			if x.logs == nil {
				x.logs = map[string]string{}
			}
			x.logs[p] = o.log
		}
	}
	return o
}

func (x *explorer) report() {
	x.t.Helper()
	x.t.Logf("%d schedules", x.played)
	var all []string
	for p, s := range x.problems {
		all = append(all, fmt.Sprintf("%s: %s%s", s, p, x.logs[p]))
	}
	slices.Sort(all)
	for _, p := range all {
		x.t.Error(p)
	}
}
