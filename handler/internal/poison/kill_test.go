package poison_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue/memory"
)

// inFlight is how many messages a run handles at once, and therefore how many a kill may duplicate.
const inFlight = 8

// killed is a command that is killed at each of its storage operations.
type killed struct {
	name string
	// prepare carries out the run that is undone.
	prepare func(t *testing.T, a *poison.Account) (run string)
	plan    func(ctx context.Context, a *poison.Account, run string) (*poison.Plan, error)
	// from and to are the queues; to is empty for a delete.
	from, to string
	// absent is set if messages are temporarily only in a file.
	absent bool
}

func killedCommands() []killed {
	done := func(plan func(*poison.Account) (*poison.Plan, error)) func(*testing.T, *poison.Account) string {
		return func(t *testing.T, a *poison.Account) string {
			t.Helper()
			return execute(t, mustPlan(t)(plan(a))).Run
		}
	}
	move := func(a *poison.Account) (*poison.Plan, error) {
		return a.PlanMove(context.Background(), poison.Source{}, poison.Move{To: parking, Create: true})
	}
	requeue := func(a *poison.Account) (*poison.Plan, error) {
		return a.PlanRequeue(context.Background(), poison.Source{}, poison.Requeue{})
	}
	remove := func(a *poison.Account) (*poison.Plan, error) {
		return a.PlanDelete(context.Background(), poison.Source{}, poison.Backup{})
	}
	now := func(plan func(*poison.Account) (*poison.Plan, error)) func(context.Context, *poison.Account, string) (*poison.Plan, error) {
		return func(_ context.Context, a *poison.Account, _ string) (*poison.Plan, error) { return plan(a) }
	}
	undo := func(ctx context.Context, a *poison.Account, run string) (*poison.Plan, error) {
		return a.PlanUndo(ctx, run)
	}
	return []killed{
		{name: "move", plan: now(move), from: poisonQueue, to: parking},
		{name: "requeue", plan: now(requeue), from: poisonQueue, to: mainQueue},
		{name: "delete", plan: now(remove), from: poisonQueue, absent: true},
		{name: "undo_move", prepare: done(move), plan: undo, from: parking, to: poisonQueue},
		{name: "undo_requeue", prepare: done(requeue), plan: undo, from: mainQueue, to: poisonQueue},
		{name: "undo_delete", prepare: done(remove), plan: undo, to: poisonQueue, absent: true},
		{name: "import", plan: imported, to: parking, absent: true},
	}
}

// imported plans an import of the messages on the poison queue, which stays unchanged.
func imported(ctx context.Context, a *poison.Account, _ string) (*poison.Plan, error) {
	var file bytes.Buffer
	_, err := a.List(ctx, poison.Source{}, func(f poison.Found) { _ = poison.WriteRecord(&file, f) })
	if err != nil {
		return nil, err
	}
	return a.PlanImport(ctx, &file, poison.Import{To: parking, Force: true})
}

// TestKilled kills a run at each of its storage operations, before or after its effect, and checks that no message
// is missing at any moment, and that the resumed run finishes.
func TestKilled(t *testing.T) {
	const messages = 20
	for _, c := range killedCommands() {
		for _, afterwards := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/afterwards=%v", c.name, afterwards), func(t *testing.T) {
				reached := true
				for at := 1; reached && !t.Failed(); at++ {
					k := killing{
						killed: c, messages: messages, at: at, afterwards: afterwards,
						wait: at%2 == 0, again: at%3 == 0,
					}
					synctest.Test(t, func(t *testing.T) { reached = k.run(t) })
					if t.Failed() {
						t.Logf("killed at operation %d; once more: %v; leases have ended: %v", at, k.again, k.wait)
					}
					if !reached && at < messages {
						t.Errorf("it has only %d operations", at-1)
					}
				}
			})
		}
	}
}

// TestKilledResume kills the process that resumes a long run near its end, and checks that the next one waits until the
// leases of the whole run end, not only those of the few messages that are left.
func TestKilledResume(t *testing.T) {
	const messages = 6000
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		store := newQueues(t, messages)
		a := newAccount(t, store)
		first := newKiller(t, store, 500, true, string(a.Runs))
		dying := *a
		dying.Store = first
		_, _ = mustPlan(t)(dying.PlanMove(ctx, poison.Source{}, poison.Move{To: parking, Create: true})).Execute(ctx)
		ids := must(journal.Folder(first.to).List())

		second := newKiller(t, store, 0, true, first.to)
		before, updates := second.before, 0
		second.before = func(operation string) error {
			if operation == "update" {
				if updates++; updates == messages-200 {
					second.at = second.n + 1 // the lease is renewed, and its receipt lost
				}
			}
			return before(operation)
		}
		_, _ = accountIn(second, first.to).Resume(ctx, ids[0])
		if !second.dead {
			t.Fatal("it was not killed")
		}
		advance(time.Second)
		r, err := accountIn(store, second.to).Resume(ctx, ids[0])
		if err != nil || !r.Finished() || r.Skipped > 0 || len(calls(store, parking)) != messages {
			t.Errorf("%+v, %v, %d of %d have arrived", r, err, len(calls(store, parking)), messages)
		}
	})
}

// killing is one such kill.
type killing struct {
	killed
	messages, at     int
	afterwards, wait bool
	// again kills the resuming process as well.
	again bool

	store *memory.Store
	kills int
}

// run reports whether the command has reached the operation.
func (k *killing) run(t *testing.T) (reached bool) {
	t.Helper()
	ctx := context.Background()
	k.store = newQueues(t, k.messages)
	a := newAccount(t, k.store)
	original := ""
	if k.prepare != nil {
		original = k.prepare(t, a)
	}
	advance(time.Second) // so that the name of the next run is later
	first := newKiller(t, k.store, k.at, k.afterwards, string(a.Runs))
	first.see = k.present(t)
	dying := *a
	dying.Store = first
	if p, err := k.plan(ctx, &dying, original); err == nil {
		_, _ = p.Execute(ctx)
	}
	if !first.dead {
		return false
	}
	k.kills++
	runs := first.to
	id := k.find(t, runs)
	if id == "" || !agreed(t, runs, id) {
		k.unharmed(t)
		return true
	}
	if k.again {
		k.elapse()
		second := newKiller(t, k.store, 1+k.at*7%23, k.afterwards, runs)
		second.see = k.present(t)
		_, _ = accountIn(second, runs).Resume(ctx, id)
		if second.dead {
			runs = second.to
			k.kills++
		}
	}
	k.elapse()
	k.resume(t, runs, id)
	return true
}

func (k *killing) elapse() {
	if k.wait {
		advance(leasesEnd)
	}
}

// present returns a check that every message is on a queue.
func (k *killing) present(t *testing.T) func(string) {
	t.Helper()
	return func(operation string) {
		if k.absent {
			return
		}
		if n := len(calls(k.store, k.from, k.to)); n != k.messages {
			t.Errorf("after a %s: %d of %d messages exist", operation, n, k.messages)
		}
	}
}

// find returns the ID of the run that was killed.
func (k *killing) find(t *testing.T, runs string) string {
	t.Helper()
	ids, err := journal.Folder(runs).List()
	if err != nil {
		t.Fatal(err)
	}
	command, _, _ := strings.Cut(k.name, "_")
	if len(ids) > 0 && strings.Contains(ids[0], "-"+command+"-") {
		return ids[0]
	}
	return ""
}

func agreed(t *testing.T, runs, id string) bool {
	t.Helper()
	h, err := journal.Folder(runs).Read(id)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	return h.Agreed
}

// unharmed checks that an unconfirmed run has changed nothing, and that its leases end.
func (k *killing) unharmed(t *testing.T) {
	t.Helper()
	advance(leasesEnd)
	if k.from != "" && (len(k.store.All(k.from)) != k.messages || len(hidden(k.store, k.from)) > 0) {
		t.Errorf("%d on %s, %d of them hidden, by an unconfirmed run", len(k.store.All(k.from)), k.from, len(hidden(k.store, k.from)))
	}
	if k.to != "" && len(k.store.All(k.to)) > 0 {
		t.Errorf("%d on %s by an unconfirmed run", len(k.store.All(k.to)), k.to)
	}
}

// resume resumes the run, twice if messages were invisible, and checks the result.
func (k *killing) resume(t *testing.T, runs, id string) {
	t.Helper()
	a := accountIn(&tap{Store: k.store, after: func(operation string) error { k.present(t)(operation); return nil }}, runs)
	r, err := a.Resume(context.Background(), id)
	if err != nil && !errors.Is(err, poison.ErrNothingLeft) {
		t.Errorf("resume: %v", err)
	}
	if !r.Finished() {
		advance(leasesEnd)
		if r, err = a.Resume(context.Background(), id); err != nil || !r.Finished() {
			t.Errorf("resume again: %+v, %v", r, err)
		}
	}
	if r.Skipped > 0 && k.to != "" && k.from != mainQueue { // from there a function app may have received it
		t.Errorf("%d were skipped, though nobody else received messages: %q", r.Skipped, r.Why)
	}
	if _, err := a.Resume(context.Background(), id); !errors.Is(err, poison.ErrNothingLeft) {
		t.Errorf("after the end resume says: %v", err)
	}
	if k.to == "" {
		k.deleted(t, runs)
		return
	}
	if left := len(k.store.All(k.from)); left > 0 && (k.from != mainQueue || left > r.Skipped) {
		t.Errorf("%d are still on %s: %+v", left, k.from, r)
	}
	k.arrived(t, runs, id, r)
}

// arrived checks that each message arrived once, except for the duplicates that the journal admits.
func (k *killing) arrived(t *testing.T, runs, id string, r poison.Result) {
	t.Helper()
	counts := calls(k.store, k.to, k.from)
	if len(counts) != k.messages {
		t.Errorf("%d of %d arrived", len(counts), k.messages)
	}
	h, err := journal.Folder(runs).Read(id)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	twice, more := 0, 0
	for n, p := range h.Steps() {
		s, err := h.Step(n)
		if err != nil {
			t.Fatal(err)
		}
		if copies := counts[s.RequestID]; copies > 1 {
			twice++
			more += copies - 1
			if p.Writes < copies {
				t.Errorf("%s arrived %d times, the journal says at most %d", s.RequestID, copies, p.Writes)
			}
		}
	}
	if more > inFlight*k.kills {
		t.Errorf("%d duplicates after %d kills", more, k.kills)
	}
	if r.Run != "" && r.Twice < twice {
		t.Errorf("%d arrived more than once, the result says %d", twice, r.Twice)
	}
}

// deleted checks that the messages are deleted, and that the file has all of them.
func (k *killing) deleted(t *testing.T, runs string) {
	t.Helper()
	if n := len(k.store.All(k.from)); n > 0 {
		t.Errorf("%d are left", n)
	}
	exported := map[string]bool{}
	for _, path := range glob(t, runs, "*-deleted-*.export") {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		err = poison.ReadRecords(file, func(r poison.Found) error { exported[requestID(r.Text)] = true; return nil })
		if err != nil {
			t.Error(err)
		}
	}
	if len(exported) != k.messages {
		t.Errorf("%d of %d deleted messages were kept", len(exported), k.messages)
	}
}
