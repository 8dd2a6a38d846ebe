package run_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
)

// breakJournals makes open journals of a folder unwritable, as a full disk does: it replaces their descriptors by
// others that can only read. Part is a part of their names.
func breakJournals(t *testing.T, folder, part string) {
	t.Helper()
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range descriptors {
		path, _ := os.Readlink("/proc/self/fd/" + d.Name())
		if filepath.Dir(path) != folder || filepath.Ext(path) != ".jsonl" || !strings.Contains(path, part) {
			continue
		}
		readable, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer readable.Close()
		number, err := strconv.Atoi(d.Name())
		if err == nil {
			err = syscall.Dup3(int(readable.Fd()), number, syscall.O_CLOEXEC)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnwritableJournal makes the journal unwritable at each operation of a run, as a full disk does, which stops the
// run. Once the disk has room again, resume completes the run, and its report is true.
func TestUnwritableJournal(t *testing.T) {
	for name, k := range kinds {
		for _, actor := range append(k.actors, "disk") {
			t.Run(name+"/"+actor, func(t *testing.T) {
				for at, reached := 1, true; reached; at++ {
					synctest.Test(t, func(t *testing.T) {
						reached = k.unwritable(t, schedule{kind: name, actor: actor, moment: at})
					})
				}
			})
		}
	}
}

// unwritable plays a schedule whose run has an unwritable journal from the moment on. It reports whether the run came
// to that moment.
func (k kind) unwritable(t *testing.T, s schedule) (reached bool) {
	t.Helper()
	w := newWorld(t)
	m := k.prepare(t, w)
	c := &checker{w: w, schedule: s}
	act := c.actor(t, k, m)
	did := newEffects()
	w.moment, w.others = s.moment, func(w *world) {
		breakJournals(t, w.runs, "")
		w.mu.Lock()
		did.faults++
		w.mu.Unlock()
		if act != nil {
			act(w)
		}
	}
	id, err := w.complete(did, [2]time.Duration{long, 0}, func(e *run.Engine) error {
		err := k.execute(e, m)
		reached = w.n >= s.moment
		return err
	})
	w.end()
	c.check("run", w.runs, id, did)
	c.checkLost(k, did, newEffects())
	if id != "" && err != nil {
		c.problem("resume: %v", err)
	}
	if id == "" && len(did.puts)+len(did.deletes) > 0 {
		c.problem("a run that was not confirmed has changed something: %+v", did)
	}
	for _, p := range c.problems {
		t.Errorf("unwritable from operation %d on: %s%s", s.moment, p, c.log.String())
	}
	return reached
}

// TestUnwritablePlan checks that a plan that cannot be recorded is neither carried out nor kept. Its messages become
// visible when their leases end.
func TestUnwritablePlan(t *testing.T) {
	for name, abandon := range map[string]func(*testing.T, *run.Engine, *run.Plan){
		"discard": func(t *testing.T, _ *run.Engine, p *run.Plan) {
			t.Helper()
			p.Discard(t.Context())
		},
		"add": func(t *testing.T, _ *run.Engine, p *run.Plan) {
			t.Helper()
			err := p.Add(journal.Step{Put: &journal.Put{Queue: live, Text: "new"}})
			if !errors.Is(err, syscall.EBADF) || !strings.Contains(err.Error(), "journal ") {
				t.Errorf("added: %v", err)
			}
			p.Discard(t.Context())
		},
		"execute": func(t *testing.T, e *run.Engine, p *run.Plan) {
			t.Helper()
			if _, err := p.Execute(t.Context()); !errors.Is(err, syscall.EBADF) {
				t.Errorf("executed: %v", err)
			}
			if err := undoRun(e, p.Run.ID); !errors.Is(err, run.ErrNothingLeft) ||
				!strings.Contains(err.Error(), "never confirmed") {
				t.Errorf("undone: %v", err)
			}
			if _, err := e.Resume(t.Context(), p.Run.ID); !errors.Is(err, run.ErrNothingLeft) {
				t.Errorf("resumed: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.fill(t, 3)
				did := newEffects()
				_, e := w.newProcess(did)
				p, err := planAll(t.Context(), e, journal.Pace{})
				if err != nil {
					t.Fatal(err)
				}
				breakJournals(t, w.runs, "")
				abandon(t, e, p)
				if len(did.puts)+len(did.deletes) > 0 {
					t.Errorf("the plan has changed something: %+v", did)
				}
				summaries, err := run.Summaries(e.Runs)
				if err != nil || len(summaries) > 0 && summaries[0].State != "not confirmed" {
					t.Errorf("%+v, %v", summaries, err)
				}
				advance(leasesEnd)
				if visible, err := w.store.Peek(t.Context(), dead, 10); err != nil || len(visible) != 3 {
					t.Errorf("%d messages are visible: %v", len(visible), err)
				}
			})
		})
	}
}

// TestUnwritablePaced is TestUnwritableJournal for several steps that wait for their turn.
func TestUnwritablePaced(t *testing.T) {
	const messages = 5
	for name, step := range map[string]func(*journal.Take) journal.Step{
		"set":    set,
		"park":   park,
		"cancel": func(take *journal.Take) journal.Step { return journal.Step{Take: take} },
		"put": func(*journal.Take) journal.Step {
			return journal.Step{Put: &journal.Put{Queue: parking, Text: changed}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for at, reached := 1, true; reached; at++ {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					did := newEffects()
					_, e := w.newProcess(did)
					steps := w.fillLive(t, messages, step)
					w.moment, w.others = at, func(w *world) { breakJournals(t, w.runs, "") }
					r, err := begin(t, e, journal.Pace{Rate: 50}, steps...).Execute(t.Context())
					reached = w.n >= at
					if reached && !errors.Is(err, syscall.EBADF) {
						t.Errorf("unwritable from operation %d on: %v", at, err)
					}
					if reached {
						r, err = e.Resume(t.Context(), r.Run)
					}
					certain := len(did.deletes) + len(did.sets)
					if name == "put" {
						certain = len(w.store.All(parking))
					}
					if err != nil || r.Left+r.NotDeleted > 0 || r.Done+r.Unknown != messages || r.Done > certain {
						t.Errorf("unwritable from operation %d on: %+v, %v, %+v", at, r, err, did)
					}
				})
			}
		})
	}
}

// TestUnwritableUndo checks that an undo changes nothing if its journal cannot be written, and that it can be repeated.
func TestUnwritableUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fill(t, 20)
		did := newEffects()
		_, e := w.newProcess(did)
		p, err := planAll(t.Context(), e, journal.Pace{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		w.moment, w.others = w.n+20, func(*world) { cancel() }
		r, err := p.Execute(ctx)
		if err != nil || r.Done == 0 || r.Left == 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		advance(time.Second)
		operations := w.n
		_, _, _, err = e.Undo(t.Context(), r.Run, func(string) bool {
			breakJournals(t, w.runs, "undo")
			return true
		}, unseen)
		if ids, _ := e.Runs.List(); !errors.Is(err, syscall.EBADF) || len(ids) != 1 {
			t.Errorf("planned: %v; journals: %q", err, ids)
		}
		plan := func() *run.Plan {
			undo, _, _, err := e.Undo(t.Context(), r.Run, func(string) bool { return true }, unseen)
			if err != nil {
				t.Fatal(err)
			}
			return undo
		}
		undo := plan()
		breakJournals(t, w.runs, "undo")
		if _, err := undo.Execute(t.Context()); !errors.Is(err, syscall.EBADF) || w.n != operations {
			t.Errorf("executed: %v, %d operations", err, w.n-operations)
		}
		undone, err := plan().Execute(t.Context())
		if err != nil || undone.Done != r.Done || len(w.store.All(live)) > 0 {
			t.Errorf("repeated: %+v, %v", undone, err)
		}
		if _, err := e.Resume(t.Context(), r.Run); !errors.Is(err, run.ErrNothingLeft) {
			t.Errorf("the undone run is resumed: %v", err)
		}
	})
}

// TestOutOfDescriptors checks that a run is undone as a whole or not at all if the process cannot open more files.
func TestOutOfDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fill(t, 1)
		_, e := w.newProcess(newEffects())
		r, err := requeueAll(t.Context(), e, journal.Pace{})
		if err != nil {
			t.Fatal(err)
		}
		advance(time.Second)
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		setLimit := func(n uint64) {
			t.Helper()
			if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: limit.Max}); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { setLimit(limit.Cur) })
		failures := 0
		for n := uint64(3); ; n++ {
			setLimit(n)
			p, _, _, err := e.Undo(t.Context(), r.Run, func(string) bool { return true }, unseen)
			setLimit(limit.Cur)
			if err == nil {
				if done, err := p.Execute(t.Context()); err != nil || done.Done != 1 {
					t.Errorf("%+v, %v", done, err)
				}
				break
			}
			failures++
			if ids, _ := e.Runs.List(); !errors.Is(err, syscall.EMFILE) || len(ids) != 1 {
				t.Errorf("with %d descriptors: %v; journals: %q", n, err, ids)
			}
		}
		if failures == 0 || len(w.store.All(dead)) != 1 || len(w.store.All(live)) != 0 {
			t.Errorf("%d failures, messages: %v and %v", failures, w.store.All(dead), w.store.All(live))
		}
	})
}
