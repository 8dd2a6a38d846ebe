package run_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/storage"
)

// TestDiscard checks that a plan that is not confirmed releases its messages at once, and leaves no journal.
func TestDiscard(t *testing.T) {
	const messages = 100
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fill(t, messages)
		_, e := w.newProcess(newEffects())
		p, err := planAll(t.Context(), e, journal.Pace{})
		if err != nil {
			t.Fatal(err)
		}
		if p.Total != messages || p.From[dead] != messages || p.To[live] != messages {
			t.Errorf("%d of %v to %v", p.Total, p.From, p.To)
		}
		p.Discard(t.Context())
		for _, m := range w.store.All(dead) {
			if m.NextVisibleAt.After(time.Now()) {
				t.Errorf("%s is invisible until %s", m.Text, m.NextVisibleAt)
			}
		}
		if ids, err := e.Runs.List(); err != nil || len(ids) > 0 {
			t.Errorf("journals: %q, %v", ids, err)
		}
	})
}

// TestSlowPlan checks that a plan uses the newest receipts of messages that come again because leases ended before it
// was complete.
func TestSlowPlan(t *testing.T) {
	const messages = 100
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fill(t, messages)
		did := newEffects()
		_, e := w.newProcess(did)
		p, err := e.Begin(journal.Run{Command: "requeue"})
		if err != nil {
			t.Fatal(err)
		}
		err = p.Read(t.Context(), run.Selection{
			Queue: dead, Total: messages, Select: func(m storage.Message) (*journal.Step, error) {
				advance(20 * time.Second)
				return requeued(m)
			},
		})
		if err != nil || p.Total != messages {
			t.Fatalf("%d are planned: %v", p.Total, err)
		}
		r, err := p.Execute(t.Context())
		if err != nil || r.Done != messages || r.PossibleDuplicates > 0 || len(w.store.All(live)) != messages {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestLateConfirmation: a plan that is confirmed after its claims ended claims its messages again, also if another
// reader has received them since, but not one that was changed.
func TestLateConfirmation(t *testing.T) {
	const messages = 100
	for _, isRead := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.fill(t, messages)
			_, e := w.newProcess(newEffects())
			p, err := planAll(t.Context(), e, journal.Pace{})
			if err != nil {
				t.Fatal(err)
			}
			advance(time.Hour)
			changed := 0
			for isRead {
				received, err := w.store.Receive(t.Context(), dead, storage.MaxBatch, time.Minute)
				if err != nil || len(received) == 0 {
					break
				}
				if m := received[0]; changed == 0 {
					changed = 1
					if _, err := w.store.Update(t.Context(), dead, m.ID, m.PopReceipt, "changed", 0); err != nil {
						t.Fatal(err)
					}
				}
			}
			advance(2 * time.Minute)
			r, err := p.Execute(t.Context())
			left := w.store.All(dead)
			if err != nil || r.Done != messages-changed || r.Skipped != changed || r.PossibleDuplicates > 0 ||
				len(w.store.All(live)) != r.Done || len(left) != changed || changed > 0 && left[0].Text != "changed" {
				t.Errorf("read %v: %+v, %v; left %+v", isRead, r, err, left)
			}
		})
	}
}

// TestResumeAfterAnotherReader: a run that was stopped goes on although somebody has received its messages since.
func TestResumeAfterAnotherReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fill(t, 5)
		_, e := w.newProcess(newEffects())
		p, err := planAll(t.Context(), e, journal.Pace{})
		if err != nil {
			t.Fatal(err)
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		if r, err := p.Execute(stopped); err != nil || r.Left != 5 {
			t.Fatalf("%+v, %v", r, err)
		}
		advance(time.Hour)
		if _, err := w.store.Receive(t.Context(), dead, storage.MaxBatch, time.Minute); err != nil {
			t.Fatal(err)
		}
		advance(2 * time.Minute)
		r, err := e.Resume(t.Context(), p.Run.ID)
		if err != nil || r.Done != 5 || r.Skipped > 0 || len(w.store.All(live)) != 5 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestSummaries checks the states of runs.
func TestSummaries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fill(t, 3)
		_, e := w.newProcess(newEffects())
		wantStates := func(want ...string) {
			t.Helper()
			summaries, err := run.Summaries(e.Runs)
			if err != nil || len(summaries) != len(want) {
				t.Fatalf("%d runs, want %d: %v", len(summaries), len(want), err)
			}
			run.MarkUndone(summaries)
			for i, s := range summaries {
				if s.State != want[i] {
					t.Errorf("run %d of %d is %s, want %s", i, len(want), s.State, want[i])
				}
			}
		}
		p, err := planAll(t.Context(), e, journal.Pace{})
		if err != nil {
			t.Fatal(err)
		}
		wantStates("running") // a plan that waits for a confirmation
		requeue := p.Run.ID
		if _, err := p.Execute(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantStates("finished")

		advance(time.Second)
		copied := w.store.All(live)[0]
		received, err := w.store.Receive(t.Context(), live, 1, time.Minute)
		if err != nil || received[0].ID != copied.ID {
			t.Fatal(err)
		}
		if err := undoRun(e, requeue); err != nil {
			t.Fatal(err)
		}
		wantStates("finished", "partly undone")
		if _, err := e.Resume(t.Context(), requeue); !errors.Is(err, run.ErrNothingLeft) {
			t.Errorf("resumed: %v", err)
		}

		advance(leasesEnd)
		w.faults = map[int]fault{w.n + 5: killBefore}
		_ = mustPut(t, w, dead, "late", 0)
		dying, killed := w.newProcess(newEffects())
		_, _ = requeueAll(t.Context(), killed, journal.Pace{})
		if !dying.killed {
			t.Fatal("it was not killed")
		}
		e.Runs = journal.Folder(dying.copied)
		wantStates("interrupted", "finished", "partly undone")
		e.Account = "other"
		if err := undoRun(e, requeue); !errors.Is(err, run.ErrOtherAccount) {
			t.Errorf("on another account: %v", err)
		}
	})
}
