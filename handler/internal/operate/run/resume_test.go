package run_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// rewrite changes the text of a journal.
func rewrite(t *testing.T, e *run.Engine, id string, change func(text string) string) {
	t.Helper()
	path := filepath.Join(string(e.Runs), id+".jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(change(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
}

// begin begins a run with steps that read no queue.
func begin(t *testing.T, e *run.Engine, pace journal.Pace, steps ...journal.Step) *run.Plan {
	t.Helper()
	p, err := e.Begin(journal.Run{Command: "move", Pace: pace})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if err := p.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// fillLive puts scheduled messages on the live queue, and returns a step for each.
func (w *world) fillLive(t *testing.T, n int, step func(take *journal.Take) journal.Step) (steps []journal.Step) {
	t.Helper()
	for range n {
		steps = append(steps, step(receipt(live, mustPut(t, w, live, original, due))))
	}
	return steps
}

func set(take *journal.Take) journal.Step {
	return journal.Step{Take: take, Set: &journal.Set{Text: changed}}
}

func park(take *journal.Take) journal.Step {
	return journal.Step{Take: take, Put: &journal.Put{Queue: parking, Text: changed}}
}

// TestInterruptedTurn ends a run while its steps wait for their turn. Steps that were not begun are left to resume,
// which changes each message once.
func TestInterruptedTurn(t *testing.T) {
	const messages = 10
	for name, step := range map[string]func(*journal.Take) journal.Step{
		"set":  set,
		"park": park,
		"put": func(*journal.Take) journal.Step {
			return journal.Step{Put: &journal.Put{Queue: parking, Text: changed}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				did := newEffects()
				_, e := w.newProcess(did)
				p := begin(t, e, journal.Pace{Rate: 1}, w.fillLive(t, messages, step)...)
				ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
				defer cancel()
				r, err := p.Execute(ctx)
				if err != nil || r.Done != 4 || r.Left != messages-4 {
					t.Fatalf("%+v, %v", r, err)
				}
				r, err = e.Resume(t.Context(), r.Run)
				if err != nil || r.Done != messages || r.PossibleDuplicates > 0 {
					t.Errorf("resumed: %+v, %v", r, err)
				}
				now := 0
				for _, m := range append(w.store.All(live), w.store.All(parking)...) {
					if m.Text == changed {
						now++
					}
				}
				if now != messages {
					t.Errorf("%d messages are changed", now)
				}
			})
		})
	}
}

// TestClaimEnded resumes a run whose claims have ended. The messages that the app has received meanwhile are left
// alone.
func TestClaimEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, e := w.newProcess(newEffects())
		steps := w.fillLive(t, 3, park)
		p := begin(t, e, journal.Pace{Rate: 0.1}, steps...)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r, err := p.Execute(ctx)
		if err != nil || r.Done != 1 || r.Left != 2 {
			t.Fatalf("%+v, %v", r, err)
		}
		advance(long)
		received, err := w.store.Receive(t.Context(), live, storage.MaxBatch, time.Hour)
		if err != nil || len(received) != 2 {
			t.Fatalf("%d messages are received: %v", len(received), err)
		}
		r, err = e.Resume(t.Context(), r.Run)
		if err != nil || r.Done != 1 || r.Skipped != 2 || r.Unknown > 0 ||
			!strings.HasSuffix(r.Why[0], "received after this run's claim had ended") {
			t.Errorf("%+v, %v", r, err)
		}
		if parked := w.store.All(parking); len(parked) != 1 {
			t.Errorf("%d messages are parked", len(parked))
		}
	})
}

// TestNoQueue checks that messages whose queue was deleted are skipped, and that the report says so.
func TestNoQueue(t *testing.T) {
	for name, step := range map[string]func(*journal.Take) journal.Step{"set": set, "park": park} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				_, e := w.newProcess(newEffects())
				take := &journal.Take{Queue: "missing", ID: "m", Receipt: "r", ByReceipt: true, Text: original}
				r, err := begin(t, e, journal.Pace{}, step(take)).Execute(t.Context())
				if err != nil || r.Skipped != 1 || r.Unknown > 0 ||
					r.Why[0] != "(m) on missing: its queue does not exist" {
					t.Errorf("%+v, %v", r, err)
				}
			})
		})
	}
}

// TestResumeWritten resumes a run that was killed when it had changed or written a message and not recorded that the
// step is done. It must not do that again.
func TestResumeWritten(t *testing.T) {
	for name, step := range map[string]func(*journal.Take) journal.Step{
		"set": set,
		"put": func(*journal.Take) journal.Step {
			return journal.Step{Put: &journal.Put{Queue: parking, Text: changed}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				_, e := w.newProcess(newEffects())
				r, err := begin(t, e, journal.Pace{}, w.fillLive(t, 1, step)...).Execute(t.Context())
				if err != nil || r.Done != 1 {
					t.Fatalf("%+v, %v", r, err)
				}
				rewrite(t, e, r.Run, func(text string) string {
					before, _, ok := strings.Cut(text, `{"is":"done"`)
					if !ok {
						t.Error("no step is done")
					}
					return before
				})
				did := newEffects()
				_, e = w.newProcess(did)
				r, err = e.Resume(t.Context(), r.Run)
				if err != nil || r.Done != 1 || r.PossibleDuplicates > 0 {
					t.Errorf("resumed: %+v, %v", r, err)
				}
				if len(did.puts)+len(did.sets) > 0 {
					t.Errorf("done again: %+v", did)
				}
			})
		})
	}
}

// TestLostLines resumes a run whose journal lacks the last lines, as after a power failure. It reports the messages
// that it has written twice. Once its claims have ended, it does not know those that it has moved, and loses none.
func TestLostLines(t *testing.T) {
	for name, c := range map[string]struct {
		later            time.Duration
		done, gone, live int
	}{
		"soon":  {time.Second, 3, 0, 6},
		"later": {long, 0, 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.fill(t, 3)
				_, e := w.newProcess(newEffects())
				r, err := requeueAll(t.Context(), e, journal.Pace{})
				if err != nil || r.Done != 3 {
					t.Fatalf("%+v, %v", r, err)
				}
				rewrite(t, e, r.Run, func(text string) string {
					before, _, _ := strings.Cut(text, `{"is":"begun"`)
					return before
				})
				advance(c.later)
				r, err = e.Resume(t.Context(), r.Run)
				if err != nil || r.Done != c.done || r.PossibleDuplicates != c.done || r.Skipped != c.gone {
					t.Errorf("%+v, %v", r, err)
				}
				if c.gone > 0 && !strings.Contains(r.Why[0], "its receipt is out of date") {
					t.Errorf("skipped: %s", r.Why)
				}
				if n := len(w.store.All(live)); n != c.live || len(w.store.All(dead)) > 0 {
					t.Errorf("%d messages are written", n)
				}
			})
		})
	}
}

// TestResumeCanaries kills a run when it has written its first message and not deleted the original. Resume deletes the
// original, and waits for the delivery of one message that it sends itself.
func TestResumeCanaries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fill(t, 3)
		dying, e := w.newProcess(newEffects())
		e.Hooks = func(journal.Run) run.Hooks { return &hooks{} }
		p, err := planAll(t.Context(), e, journal.Pace{Canary: 1})
		if err != nil {
			t.Fatal(err)
		}
		w.faults = map[int]fault{w.n + 2: killBefore} // the put is the first
		_, _ = p.Execute(t.Context())
		if !dying.killed || len(w.store.All(live)) != 1 || len(w.store.All(dead)) != 3 {
			t.Fatalf("killed %v, %d are written", dying.killed, len(w.store.All(live)))
		}
		_, e = w.newProcess(newEffects())
		e.Runs = journal.Folder(dying.copied)
		if err := undoRun(e, p.Run.ID); err == nil || !strings.Contains(err.Error(), "resume it first") {
			t.Errorf("undone within a step: %v", err)
		}
		whenWaiting := 0
		e.Hooks = func(journal.Run) run.Hooks {
			return &hooks{
				canaries: func(context.Context) error {
					whenWaiting = len(w.store.All(dead))
					return run.StopError("not delivered")
				},
			}
		}
		r, err := e.Resume(t.Context(), p.Run.ID)
		if err != nil || r.Done != 2 || r.Left != 1 || r.Stopped != "not delivered" || r.PossibleDuplicates > 0 {
			t.Errorf("%+v, %v", r, err)
		}
		if whenWaiting != 1 || len(w.store.All(live)) != 2 {
			t.Errorf("%d originals when it waited, %d are written", whenWaiting, len(w.store.All(live)))
		}
	})
}

// TestDamagedJournal resumes and undoes runs with a step that cannot be read. The error names the journal and the step,
// and nothing is changed.
func TestDamagedJournal(t *testing.T) {
	damage := func(text string) string { return strings.Replace(text, `"put":{"`, `"put":5,"x":{"`, 1) }
	until := func(end string) func(string) string {
		return func(text string) string {
			before, _, _ := strings.Cut(damage(text), end)
			return before
		}
	}
	undo := func(e *run.Engine, id string) error { return undoRun(e, id) }
	resume := func(e *run.Engine, id string) error {
		_, err := e.Resume(context.Background(), id)
		return err
	}
	for name, test := range map[string]struct {
		pace   journal.Pace
		change func(text string) string
		do     func(*run.Engine, string) error
	}{
		"planned": {journal.Pace{}, until(`{"is":"begun"`), resume},
		"written": {journal.Pace{Canary: 1}, until(`{"is":"done"`), resume},
		"done":    {journal.Pace{}, until(`{"is":"end"`), resume},
		"undo":    {journal.Pace{}, damage, undo},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				did := newEffects()
				_, e := w.newProcess(did)
				e.Hooks = func(journal.Run) run.Hooks {
					return &hooks{canaries: func(context.Context) error { return nil }}
				}
				put := journal.Step{Put: &journal.Put{Queue: parking, Text: changed}}
				r, err := begin(t, e, test.pace, put).Execute(t.Context())
				if err != nil || r.Done != 1 {
					t.Fatalf("%+v, %v", r, err)
				}
				advance(time.Second)
				rewrite(t, e, r.Run, test.change)
				operations := w.n
				err = test.do(e, r.Run)
				if err == nil || !strings.Contains(err.Error(), r.Run+".jsonl: step 0") {
					t.Errorf("error %v", err)
				}
				if w.n != operations {
					t.Errorf("%d operations", w.n-operations)
				}
				if ids, err := e.Runs.List(); err != nil || len(ids) != 1 {
					t.Errorf("journals %q, %v", ids, err)
				}
			})
		})
	}
}

// FuzzEditedJournal checks that a run whose journal was edited is resumed or undone, or that an error says why not, and
// that nothing panics.
func FuzzEditedJournal(f *testing.F) {
	const id = "20261121-100000-move-abcd"
	head := `{"is":"run","v":2,"run":"` + id + `","account":"test","canary":1,"rate":1e9}` + "\n"
	planned := `{"is":"planned","n":0,"take":{"queue":"queue-poison","id":"m","text":"x"},"put":{"queue":"queue"}}` +
		"\n" +
		`{"is":"planned","n":1,"take":{"queue":"queue","id":"m","byReceipt":true},"set":{"text":"x"}}` + "\n"
	for _, seed := range []string{
		head, head + planned, head + planned + `{"is":"go"}` + "\n",
		head + planned + `{"is":"go"}` + "\n" + `{"is":"written","n":0,"id":"m"}` + "\n" + `{"is":"done","n":0}` + "\n",
		head + planned + `{"is":"go"}` + "\n" + `{"is":"end"}` + "\n" + `{"is":"undone","id":"` + id + `"}` + "\n",
		head + `{"is":"planned","n":0,"set":{}}` + "\n" + `{"is":"go"}` + "\n",
		head + `{"is":"planned","n":0}` + "\n" + `{"is":"go"}` + "\n" + `{"is":"done","n":0}` + "\n",
		strings.Replace(head, `"canary"`, `"of":"`+id+`","canary"`, 1) + planned + `{"is":"go"}` + "\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		store := memory.New()
		for _, name := range []string{live, dead} {
			if err := store.Create(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		e := &run.Engine{
			Store: store, Account: "test", Runs: journal.Folder(folderInMemory(t)), Observer: &silent{},
			Patience: time.Millisecond,
		}
		path := filepath.Join(string(e.Runs), id+".jsonl")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		e.Hooks = func(journal.Run) run.Hooks {
			return &hooks{canaries: func(context.Context) error { return nil }}
		}
		_, _ = e.Resume(ctx, id)
		if p, _, _, err := e.Undo(ctx, id, func(name string) bool { return name == live }, unseen); err == nil {
			_, _ = p.Execute(ctx)
		}
		_, _ = run.Summaries(e.Runs)
	})
}

// TestResumeRefused checks that a run is not resumed where that could do harm, and that nothing is changed then.
func TestResumeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, e := w.newProcess(newEffects())
		var steps []journal.Step
		for range 6 {
			steps = append(steps, journal.Step{Put: &journal.Put{Queue: parking, Text: changed}})
		}
		limited, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		r, err := begin(t, e, journal.Pace{Rate: 1}, steps...).Execute(limited)
		if err != nil || r.Done != 2 || r.Left != 4 {
			t.Fatalf("%+v, %v", r, err)
		}
		id := r.Run
		wantRefused := func(who *run.Engine, id string, want error) {
			t.Helper()
			before := w.n
			if _, err := who.Resume(t.Context(), id); !errors.Is(err, want) || !strings.Contains(err.Error(), id) {
				t.Errorf("resumed: %v, want %v", err, want)
			}
			if w.n != before {
				t.Errorf("%d operations", w.n-before)
			}
		}

		other := *e
		other.Account = "other"
		wantRefused(&other, id, run.ErrOtherAccount)

		// The undo of a run keeps others from resuming the run, and is not resumed beside them.
		advance(time.Second)
		p, _, _, err := e.Undo(t.Context(), id, func(string) bool { return false }, unseen)
		if err != nil || p.Total != 2 {
			t.Fatalf("%+v, %v", p, err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if r, err := p.Execute(ended); err != nil || r.Left != 2 {
			t.Fatalf("%+v, %v", r, err)
		}
		wantRefused(e, id, run.ErrNothingLeft)
		j, err := e.Runs.Reopen(id)
		if err != nil {
			t.Fatal(err)
		}
		before := w.n
		if _, err := e.Resume(t.Context(), p.Run.ID); !errors.Is(err, journal.ErrBusy) || w.n != before {
			t.Errorf("resumed: %v, %d operations", err, w.n-before)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}

		// It is not known what another version's undo has done.
		rewrite(t, e, p.Run.ID, func(text string) string { return strings.Replace(text, `"v":2`, `"v":3`, 1) })
		if err := undoRun(e, id); !errors.Is(err, journal.ErrVersion) {
			t.Errorf("undone: %v", err)
		}
	})
}

// TestUnreadableSummary checks that a list of runs says which journals cannot be read, and why.
func TestUnreadableSummary(t *testing.T) {
	folder := journal.Folder(t.TempDir())
	if err := os.Mkdir(filepath.Join(string(folder), "20260101-000000-move-abcd.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	list, err := run.Summaries(folder)
	if err != nil || len(list) != 1 || list[0].State != "unreadable" ||
		!strings.Contains(list[0].Problem, "directory") {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestDiscardWithoutText checks that a plan without copies of the texts does not replace them when it is discarded.
func TestDiscardWithoutText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fill(t, 3)
		_, e := w.newProcess(newEffects())
		p, err := e.Begin(journal.Run{Command: "delete"})
		if err != nil {
			t.Fatal(err)
		}
		withoutText := func(storage.Message) (*journal.Step, error) {
			return &journal.Step{Take: &journal.Take{NoText: true}}, nil
		}
		err = p.Read(t.Context(), run.Selection{Queue: dead, Total: 3, Whole: true, Select: withoutText})
		if err != nil || p.Total != 3 {
			t.Fatalf("%d are planned: %v", p.Total, err)
		}
		p.Discard(t.Context())
		advance(leasesEnd)
		visible, err := w.store.Peek(t.Context(), dead, 10)
		if err != nil || len(visible) != 3 {
			t.Fatalf("%d messages are visible: %v", len(visible), err)
		}
		for n, m := range visible {
			if m.Text != fmt.Sprintf("m%d", n) {
				t.Errorf("message %d is %q", n, m.Text)
			}
		}
	})
}

// TestReleaseByReceipt checks that a scheduled message does not become due when its claim is released.
func TestReleaseByReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, e := w.newProcess(newEffects())
		steps := w.fillLive(t, 1, func(take *journal.Take) journal.Step {
			take.Until = time.Now().Add(due) // as after a claim
			return park(take)
		})
		before := w.store.All(live)[0]
		begin(t, e, journal.Pace{}, steps...).Discard(t.Context())
		if after := w.store.All(live)[0]; !after.NextVisibleAt.Equal(before.NextVisibleAt) {
			t.Errorf("it was due at %s and is at %s", before.NextVisibleAt, after.NextVisibleAt)
		}
	})
}

// TestDoLeavesReceived checks that a message that another client has received since is neither written nor skipped.
func TestDoLeavesReceived(t *testing.T) {
	w := newWorld(t)
	m := mustPut(t, w, dead, original, 0)
	if _, err := w.store.Receive(t.Context(), dead, 1, time.Second); err != nil {
		t.Fatal(err)
	}
	take := &journal.Take{Queue: dead, ID: m.ID, Receipt: m.PopReceipt, Text: original}
	e := &run.Engine{Store: w.store, Observer: &silent{}}
	progress, err := e.Do(t.Context(), []journal.Step{{Take: take, Put: &journal.Put{Queue: parking, Text: changed}}})
	if err != nil || len(progress) != 1 || progress[0].State != journal.Planned || len(w.store.All(parking)) > 0 {
		t.Errorf("%+v, %v", progress, err)
	}
}
