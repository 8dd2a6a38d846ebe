package run_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/storage"
)

// fill puts n messages on the poison queue, each with a text of its own.
func (w *world) fill(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		mustPut(t, w, dead, fmt.Sprintf("m%d", i), 0)
	}
}

// requeueAll plans and carries out a run that moves all messages of the poison queue to the live queue.
func requeueAll(ctx context.Context, e *run.Engine, pace journal.Pace) (run.Result, error) {
	p, err := planAll(ctx, e, pace)
	if err != nil {
		return run.Result{}, err
	}
	return p.Execute(ctx)
}

func planAll(ctx context.Context, e *run.Engine, pace journal.Pace) (*run.Plan, error) {
	p, err := e.Begin(journal.Run{Command: "requeue", Pace: pace})
	if err != nil {
		return nil, err
	}
	total, err := e.Store.Count(ctx, dead)
	if err == nil {
		err = p.Read(ctx, run.Selection{Queue: dead, Total: total, Whole: true, Select: requeued})
	}
	if err != nil {
		p.Discard(ctx)
		return nil, err
	}
	return p, nil
}

func requeued(m storage.Message) (*journal.Step, error) {
	return &journal.Step{
		RequestID: m.Text, Take: &journal.Take{Text: m.Text}, Put: &journal.Put{Queue: live, Text: m.Text + " changed"},
	}, nil
}

// TestManyKilled kills a run with many messages at random operations, and its undo as well.
func TestManyKilled(t *testing.T) {
	const messages = 100
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 0))
				w := newWorld(t)
				w.fill(t, messages)
				w.faults = map[int]fault{}
				for range 6 {
					what := []fault{killBefore, killAfter, killLate, lost}[random.IntN(4)]
					w.faults[1+random.IntN(5*messages)] = what
				}
				pauses := [2]time.Duration{0, time.Duration(seed%2) * long}
				did, undid := newEffects(), newEffects()
				c := &checker{w: w, schedule: schedule{actor: "many"}}
				var id string
				for id == "" { // until a plan is confirmed
					var err error
					id, err = w.complete(did, pauses, func(e *run.Engine) error {
						_, err := requeueAll(context.Background(), e, journal.Pace{})
						return err
					})
					if err != nil && !errors.Is(err, storage.ErrRefused) {
						t.Fatal(err)
					}
					advance(leasesEnd)
				}
				undo, err := w.complete(undid, pauses, func(e *run.Engine) error { return undoRun(e, id) })
				if err != nil {
					t.Error(err)
				}
				w.end()
				c.check("run", w.runs, id, did)
				c.check("undo", w.runs, undo, undid)
				for n := range messages {
					if text := fmt.Sprintf("m%d", n); !w.exists(text, text+" changed") {
						c.problem("%s is lost", text)
					}
				}
				if twice := len(w.store.All(live)) + len(w.store.All(dead)) - messages; twice > 8*len(w.faults) {
					c.problem("there are %d duplicates after %d faults", twice, len(w.faults))
				}
				if len(c.problems) > 0 {
					t.Error(w.faults, strings.Join(c.problems, "\n"))
				}
			})
		})
	}
}

// TestFarCancel cancels a call that is due in 30 days on day 6, and resumes it on day 8. Meanwhile, on day 7, an app
// receives the message unless the run hides it: no message stays invisible for longer.
func TestFarCancel(t *testing.T) {
	const day = 24 * time.Hour
	for _, what := range singleFaults {
		for at := 1; at <= 4; at++ {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				m := mustPut(t, w, live, original, 30*day)
				take := receipt(live, m)
				take.Due = time.Now().Add(30 * day)
				advance(6 * day)
				w.faults = map[int]fault{at: what}
				w.moment, w.others = 1, consume(live, time.Hour)
				c := &checker{w: w, schedule: schedule{faults: w.faults, actor: "consume"}}
				step := journal.Step{Take: take, Then: &journal.Put{Queue: callbacks, Text: told}}
				did := newEffects()
				id, err := w.complete(did, [2]time.Duration{2 * day, 0}, func(e *run.Engine) error {
					p, err := e.Begin(journal.Run{Command: "cancel"})
					if err != nil {
						return err
					}
					if err := p.Add(step); err != nil {
						return err
					}
					_, err = p.Execute(context.Background())
					return err
				})
				if err != nil {
					t.Error(err)
				}
				advance(8 * day)
				w.end()
				c.check("cancel", w.runs, id, did)
				if len(c.problems) > 0 {
					t.Error(at, what, c.problems, c.log.String())
				}
			})
		}
	}
}

// TestInterrupted ends the context of a run at each of its operations. The run completes what it has begun, and resume
// does the rest.
func TestInterrupted(t *testing.T) {
	const messages = 20
	for at, reached := 1, true; reached; at++ {
		synctest.Test(t, func(t *testing.T) { reached = interrupt(t, messages, at) })
		if t.Failed() {
			t.Fatalf("interrupted at operation %d of the execution", at)
		}
	}
}

func interrupt(t *testing.T, messages, at int) (reached bool) {
	t.Helper()
	w := newWorld(t)
	w.fill(t, messages)
	did := newEffects()
	_, e := w.newProcess(did)
	p, err := planAll(t.Context(), e, journal.Pace{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.moment, w.others = w.n+at, func(*world) { cancel() }
	r, err := p.Execute(ctx)
	if err != nil || r.NotDeleted > 0 || r.Done+r.Left != messages {
		t.Errorf("%+v, %v", r, err)
	}
	reached = w.n >= w.moment
	for n, s := range steps(t, w.runs, r.Run) {
		if s.InBetween() {
			t.Errorf("step %d is in between: %+v", n, s)
		}
	}
	if r.Left > 0 {
		r, err = e.Resume(t.Context(), r.Run)
	}
	if err != nil || r.Done != messages || r.PossibleDuplicates > 0 || len(w.store.All(live)) != messages {
		t.Errorf("resumed: %+v, %v, %d are requeued", r, err, len(w.store.All(live)))
	}
	return reached
}

// TestExpiring checks that messages that soon expire are requeued as well, and do not stop the run.
func TestExpiring(t *testing.T) {
	for _, left := range []time.Duration{10 * time.Second, 40 * time.Second, 90 * time.Second, 3 * time.Minute} {
		t.Run(left.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.fill(t, 20)
				_, err := w.store.Put(t.Context(), dead, storage.Item{Text: "expiring", TTL: left})
				if err != nil {
					t.Fatal(err)
				}
				_, e := w.newProcess(newEffects())
				p, err := e.Begin(journal.Run{Command: "requeue"})
				if err != nil {
					t.Fatal(err)
				}
				if err := p.Read(t.Context(), run.Selection{Queue: dead, Total: 21, Select: requeued}); err != nil {
					t.Fatal(err)
				}
				r, err := p.Execute(t.Context())
				if err != nil || r.Done != 21 || r.PossibleDuplicates > 0 || !w.exists("expiring changed") {
					t.Errorf("%+v, %v", r, err)
				}
			})
		})
	}
}

func steps(t *testing.T, folder, id string) []journal.Progress {
	t.Helper()
	j, err := journal.Folder(folder).Read(id)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	return j.Steps()
}

// TestRate checks that a run never writes faster than its rate, and not much slower.
func TestRate(t *testing.T) {
	const messages, rate = 60, 2
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fill(t, messages)
		_, e := w.newProcess(newEffects())
		p, err := planAll(t.Context(), e, journal.Pace{Rate: rate})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		r, err := p.Execute(t.Context())
		if err != nil || r.Done != messages || r.PossibleDuplicates > 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		if took := time.Since(began); took > messages/rate*time.Second*11/10 {
			t.Errorf("%d messages at %d in a second took %v", messages, rate, took)
		}
		written := w.store.All(live)
		for i, m := range written[rate:] {
			if took := m.InsertedAt.Sub(written[i].InsertedAt); took < time.Second-w.latency {
				t.Errorf("message %d was written %s after message %d", i+rate, took, i)
			}
		}
	})
}

// TestReceivedSince lets others receive the messages of a plan when its claims have ended. The run skips them, and says
// what to do.
func TestReceivedSince(t *testing.T) {
	const messages = 3
	for name, step := range map[string]journal.Step{
		"move":                    {Take: &journal.Take{Text: "m"}, Put: &journal.Put{Queue: live, Text: changed}},
		"delete":                  {Take: &journal.Take{Text: "m"}},
		"delete without its text": {Take: &journal.Take{NoText: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.fill(t, messages)
				_, e := w.newProcess(newEffects())
				p, err := e.Begin(journal.Run{})
				if err != nil {
					t.Fatal(err)
				}
				choose := func(storage.Message) (*journal.Step, error) { s := step; return &s, nil }
				if err := p.Read(t.Context(), run.Selection{Queue: dead, Total: messages, Select: choose}); err != nil {
					t.Fatal(err)
				}
				advance(leasesEnd)
				received, err := w.store.Receive(t.Context(), dead, storage.MaxBatch, time.Second)
				if err != nil || len(received) != messages {
					t.Fatal(len(received), err)
				}
				r, err := p.Execute(t.Context())
				if err != nil || r.Skipped != messages || r.Unknown > 0 || !r.Finished() {
					t.Errorf("%+v, %v", r, err)
				}
				for _, why := range r.Why {
					if !strings.HasSuffix(why, "select it again if it is still there") {
						t.Errorf("skipped: %s", why)
					}
				}
				if len(w.store.All(dead)) != messages || len(w.store.All(live)) > 0 {
					t.Errorf("%d are there, %d were written", len(w.store.All(dead)), len(w.store.All(live)))
				}
			})
		})
	}
}

// hooks are hooks that record their calls.
type hooks struct {
	canaries, failures func(ctx context.Context) error

	mu          sync.Mutex
	sent, ended int
	closed      bool
}

func (h *hooks) Sent(journal.Step) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent++
}

func (h *hooks) Ended(journal.Step, journal.Progress) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended++
}

func (h *hooks) Canaries(ctx context.Context) error            { return h.canaries(ctx) }
func (h *hooks) Failures(ctx context.Context, _ float64) error { return h.failures(ctx) }
func (h *hooks) Close()                                        { h.closed = true }

// TestCanaries checks that a run sends nothing more before its first messages are delivered.
func TestCanaries(t *testing.T) {
	const messages, canaries = 50, 3
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fill(t, messages)
		_, e := w.newProcess(newEffects())
		down := &hooks{canaries: func(context.Context) error { return run.StopError("the breaker is open") }}
		e.Hooks = func(journal.Run) run.Hooks { return down }
		r, err := requeueAll(t.Context(), e, journal.Pace{Canary: canaries})
		if err != nil || r.Stopped != "the breaker is open" || r.Done != canaries || r.Left != messages-canaries {
			t.Errorf("%+v, %v", r, err)
		}
		if down.sent != canaries || down.ended != canaries || !down.closed {
			t.Errorf("%+v", down)
		}
		if visible, err := w.store.Peek(t.Context(), live, storage.MaxBatch); err != nil || len(visible) != canaries {
			t.Errorf("%d canaries are visible: %v", len(visible), err)
		}

		up := &hooks{}
		atOnce := 0
		up.canaries = func(context.Context) error { atOnce = up.sent; return nil }
		e.Hooks = func(journal.Run) run.Hooks { return up }
		r, err = e.Resume(t.Context(), r.Run)
		if err != nil || r.Done != messages || r.Stopped != "" || !r.Finished() {
			t.Errorf("resumed: %+v, %v", r, err)
		}
		if atOnce != canaries || up.sent != messages-canaries || up.ended != messages {
			t.Errorf("resumed: %d when it waited, %+v", atOnce, up)
		}
	})
}

// TestReleaseKilled kills a run that has stopped while it releases its messages. Somebody else receives the released
// message: resume must not write it.
func TestReleaseKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fill(t, 2)
		dying, e := w.newProcess(newEffects())
		e.Hooks = func(journal.Run) run.Hooks {
			return &hooks{canaries: func(context.Context) error {
				w.faults = map[int]fault{w.n + 1: killAfter}
				return run.StopError("the breaker is open")
			}}
		}
		r, err := requeueAll(t.Context(), e, journal.Pace{Canary: 1})
		if err != nil || r.Done != 1 || !dying.killed {
			t.Fatalf("%+v, %v, killed %v", r, err, dying.killed)
		}
		received, err := w.store.Receive(t.Context(), dead, storage.MaxBatch, time.Hour)
		if err != nil || len(received) != 1 {
			t.Fatalf("%d messages were released, %v", len(received), err)
		}
		_, e = w.newProcess(newEffects())
		e.Runs = journal.Folder(dying.copied)
		e.Hooks = func(journal.Run) run.Hooks {
			return &hooks{canaries: func(context.Context) error { return nil }}
		}
		r, err = e.Resume(t.Context(), r.Run)
		if err != nil || r.Done != 1 || r.Skipped != 1 || r.Unknown+r.PossibleDuplicates > 0 {
			t.Errorf("%+v, %v", r, err)
		}
		if sent := len(w.store.All(live)); sent != 1 {
			t.Errorf("%d messages were written, and somebody else has one of them", sent)
		}
	})
}

// TestFailures checks that a run stops when too many calls fail, and says why.
func TestFailures(t *testing.T) {
	const messages = 200
	for _, after := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 1900 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.fill(t, messages)
				_, e := w.newProcess(newEffects())
				h := &hooks{failures: func(context.Context) error {
					advance(after)
					return run.StopError("most calls fail")
				}}
				e.Hooks = func(journal.Run) run.Hooks { return h }
				r, err := requeueAll(t.Context(), e, journal.Pace{StopAt: 0.5})
				if err != nil || r.Stopped != "most calls fail" || r.NotDeleted > 0 || r.Left == 0 {
					t.Errorf("%+v, %v", r, err)
				}
				h.failures = func(ctx context.Context) error { <-ctx.Done(); return nil }
				r, err = e.Resume(t.Context(), r.Run)
				if err != nil || r.Done != messages || r.PossibleDuplicates > 0 ||
					len(w.store.All(live)) != messages {
					t.Errorf("resumed: %+v, %v", r, err)
				}
			})
		})
	}
}

// TestUndoInterrupted checks that an interrupted run can be undone when no step is in between, and not resumed then.
func TestUndoInterrupted(t *testing.T) {
	const messages = 20
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fill(t, messages)
		_, e := w.newProcess(newEffects())
		p, err := planAll(t.Context(), e, journal.Pace{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		w.moment, w.others = w.n+messages, func(*world) { cancel() }
		r, err := p.Execute(ctx)
		if err != nil || r.Left == 0 || r.Done == 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		advance(time.Second)
		undo, _, _, err := e.Undo(t.Context(), r.Run, func(name string) bool { return name == live }, unseen)
		if err != nil {
			t.Fatal(err)
		}
		if undo.Total != r.Done {
			t.Errorf("%d are undone, %d were done", undo.Total, r.Done)
		}
		if _, err := e.Resume(t.Context(), r.Run); !errors.Is(err, journal.ErrBusy) {
			t.Errorf("resumed while the undo is planned: %v", err)
		}
		undone, err := undo.Execute(t.Context())
		if err != nil || undone.Done != r.Done || len(w.store.All(live)) > 0 || len(w.store.All(dead)) != messages {
			t.Errorf("%+v, %v", undone, err)
		}
		if _, err := e.Resume(t.Context(), r.Run); !errors.Is(err, run.ErrNothingLeft) {
			t.Errorf("resumed after the undo: %v", err)
		}
		if err := undoRun(e, r.Run); !errors.Is(err, run.ErrNothingLeft) {
			t.Errorf("undone twice: %v", err)
		}
	})
}

// TestMemory checks how much memory a plan needs beyond the texts, which are in the journal.
func TestMemory(t *testing.T) {
	const steps, limit = 10_000, 6 << 20
	w := newWorld(t)
	w.runs = t.TempDir() // a large file
	_, e := w.newProcess(newEffects())
	p, err := e.Begin(journal.Run{Command: "requeue"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Discard(t.Context())
	before, text := heap(), strings.Repeat("x", 500)
	for n := range steps {
		err := p.Add(journal.Step{
			RequestID: fmt.Sprintf("request-%032d", n), Put: &journal.Put{Queue: live},
			Take: &journal.Take{
				Queue: dead, ID: fmt.Sprintf("00000000-0000-4000-8000-%012x", n), Text: text,
				Receipt: fmt.Sprintf("AgAAAAMAAAAAAAAA%08x", n), Until: time.Now(),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	used := heap() - before
	t.Logf("%d steps need %.1f MiB", steps, float64(used)/(1<<20))
	if used > limit {
		t.Errorf("%d steps need %d MiB, more than %d", steps, used>>20, limit>>20)
	}
	runtime.KeepAlive(p)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
