package poison_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/memory"
)

// app simulates a function app that reads the main queue.
type app struct {
	store *memory.Store
	// does returns the result of a call: "deliver", "fail", "retry" or "ignore".
	does func(requestID string) string
	// takes is the duration of a call.
	takes time.Duration
}

// start starts the app. It ends with the test.
func (a app) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		polls := time.NewTicker(700 * time.Millisecond) // so that a message is visible for a moment
		defer polls.Stop()
		for ctx.Err() == nil {
			batch, err := a.store.Receive(ctx, mainQueue, queue.MaxBatch, 10*time.Minute)
			if err != nil {
				return
			}
			for _, m := range batch {
				running.Go(func() { a.handle(t, ctx, m) })
			}
			select {
			case <-ctx.Done():
			case <-polls.C:
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func (a app) handle(t *testing.T, ctx context.Context, m queue.Message) { //nolint:revive // t comes first, as in every other test
	select {
	case <-ctx.Done():
		return
	case <-time.After(a.takes):
	}
	content, err := queue.Base64.Decode(m.Text)
	if err != nil {
		t.Errorf("sent: %v", err)
	}
	e, err := envelope.Parse(content)
	if err != nil {
		t.Errorf("sent: %v", err)
		return
	}
	limit := queue.Base64.MaxContentBytes()
	e = e.WithState(envelope.State{Attempts: e.Attempts + 1, CreatedAt: e.CreatedAt})
	var after envelope.Content
	to, delay := "", time.Duration(0)
	switch a.does(e.RequestID) {
	case "fail":
		to = poisonQueue
		after, err = e.DeadLettered(envelope.DeadLetter{At: time.Now(), Reason: "rejected", Detail: "answered 418", Queue: mainQueue, Attempts: 1}, limit)
	case "retry":
		to, delay = mainQueue, 5*time.Second
		after, err = e.Successor(limit)
	}
	if err == nil && to != "" {
		_, err = a.store.Put(ctx, to, queue.Item{Text: queue.Base64.Encode(after.Bytes), Delay: delay})
	}
	if err == nil {
		err = a.store.Delete(ctx, mainQueue, m.ID, m.PopReceipt)
	}
	if err != nil && ctx.Err() == nil {
		t.Error(err)
	}
}

func always(what string) func(string) string { return func(string) string { return what } }

func requeue(t *testing.T, a *poison.Account, pace journal.Pace) (poison.Result, *notes) {
	t.Helper()
	said := &notes{}
	a.Observer = said
	p := mustPlan(t)(a.PlanRequeue(t.Context(), poison.Source{}, poison.Requeue{Pace: pace}))
	r, err := p.Execute(context.Background())
	if err != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	return r, said
}

func TestCanary(t *testing.T) {
	for name, c := range map[string]struct {
		does  string // empty: no app runs
		takes time.Duration
		pace  journal.Pace
		want  string // the problem; empty if the canaries pass
	}{
		"delivered":           {does: "deliver"},
		"delivered_slowly":    {does: "deliver", takes: 20 * time.Second},
		"delivered_delayed":   {does: "deliver", pace: journal.Pace{Delay: time.Minute}},
		"failed":              {does: "fail", want: "failed again: r"},
		"failed_slowly":       {does: "fail", takes: time.Minute, want: "failed again: r"},
		"failed_delayed":      {does: "fail", pace: journal.Pace{Delay: time.Minute}, want: "failed again: r"},
		"tried_again":         {does: "retry", want: "waits for attempt 2"},
		"not_read":            {want: "does the function app run?"},
		"not_read_delayed":    {pace: journal.Pace{Delay: time.Minute}, want: "does the function app run?"},
		"not_over_in_time":    {does: "deliver", takes: time.Hour, want: "whether they are delivered does not show yet"},
		"all_are_first":       {does: "deliver", pace: journal.Pace{Canary: 30}},
		"all_failed":          {does: "fail", pace: journal.Pace{Canary: 30}, want: "failed again: r"},
		"more_than_all":       {does: "deliver", pace: journal.Pace{Canary: 31}},
		"more_failed":         {does: "fail", pace: journal.Pace{Canary: 100}, want: "failed again: r"},
		"more_not_read":       {pace: journal.Pace{Canary: 100}, want: "does the function app run?"},
		"spread_over_an_hour": {does: "fail", pace: journal.Pace{Spread: time.Hour}, want: "failed again: r"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueues(t, 30)
				if c.does != "" {
					app{store: store, does: always(c.does), takes: c.takes}.start(t)
				}
				if c.pace.Canary == 0 {
					c.pace.Canary = 3
				}
				c.pace.CanaryWait = 30 * time.Minute
				a := newAccount(t, store)
				r, said := requeue(t, a, c.pace)
				if c.want == "" {
					if !r.Finished() || r.Done != 30 || r.Stopped != "" {
						t.Errorf("%+v, %q", r, said.said)
					}
					return
				}
				if first := min(c.pace.Canary, 30); !strings.Contains(r.Stopped, c.want) || r.Done != first || r.Left != 30-first {
					t.Errorf("want it stopped by %q: %+v, %q", c.want, r, said.said)
				}
				if n := len(hidden(store, poisonQueue)); n > 0 {
					t.Errorf("%d of what was not sent are hidden", n)
				}
			})
		})
	}
}

// TestCanaryResumed checks that a run that its canaries have stopped can be resumed.
func TestCanaryResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 30)
		a := newAccount(t, store)
		r, _ := requeue(t, a, journal.Pace{Canary: 3, CanaryWait: time.Minute})
		if r.Stopped == "" {
			t.Fatalf("not stopped, though no function app runs: %+v", r)
		}
		app{store: store, does: always("deliver")}.start(t)
		r, err := a.Resume(t.Context(), r.Run)
		if err != nil || !r.Finished() || r.Done != 30 || r.Twice != 0 {
			t.Errorf("%+v, %v", r, err)
		}
		advance(time.Minute)
		if n := len(store.All(mainQueue)) + len(store.All(poisonQueue)); n > 0 {
			t.Errorf("%d are left", n)
		}
	})
}

// TestCanaryInterrupted checks that a run that is interrupted while it waits for its last messages is not finished.
func TestCanaryInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 3)
		a := newAccount(t, store)
		p := mustPlan(t)(a.PlanRequeue(t.Context(), poison.Source{}, poison.Requeue{Pace: journal.Pace{Canary: 3, CanaryWait: time.Hour}}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := p.Execute(ctx)
		if err != nil || !strings.Contains(r.Stopped, "interrupted") || r.Done != 3 {
			t.Errorf("%+v, %v", r, err)
		}
		if s := must(a.Summaries())[0]; s.State != "interrupted" {
			t.Errorf("%+v", s)
		}
		app{store: store, does: always("deliver")}.start(t)
		if r, err = a.Resume(t.Context(), r.Run); err != nil || r.Stopped != "" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestStopAt checks that a run stops if and only if more than a share of the sent messages comes back.
func TestStopAt(t *testing.T) {
	for name, c := range map[string]struct {
		fails  int // of ten
		canary int
		share  float64
		stops  bool
	}{
		"none_fail":        {fails: 0, share: 0.2},
		"few_fail":         {fails: 1, share: 0.2},
		"half_fail":        {fails: 5, share: 0.2, stops: true},
		"all_fail":         {fails: 10, share: 0.9, stops: true},
		"behind_canaries":  {fails: 5, share: 0.4, canary: 10, stops: true},
		"all_may_fail":     {fails: 10, share: 1},
		"half_fail_of_2/3": {fails: 5, share: 0.67},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const messages = 200
				store := newQueues(t, messages)
				app{store: store, does: func(id string) string {
					var n int
					if _, err := fmt.Sscanf(id, "r%d", &n); err != nil {
						t.Error(err)
					}
					if n >= c.canary && n%10 < c.fails {
						return "fail"
					}
					return "deliver"
				}}.start(t)
				r, _ := requeue(t, newAccount(t, store), journal.Pace{Rate: 10, StopAt: c.share, Canary: c.canary, CanaryWait: time.Minute})
				if stopped := r.Stopped != ""; stopped != c.stops {
					t.Fatalf("%+v", r)
				}
				if !c.stops {
					return
				}
				if !strings.Contains(r.Stopped, "came back") || !strings.Contains(r.Stopped, "answered 418") {
					t.Errorf("it says %q", r.Stopped)
				}
				if r.Done > messages/2 {
					t.Errorf("%d were sent before it stopped", r.Done)
				}
			})
		})
	}
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 50)
		began := time.Now()
		r, said := requeue(t, newAccount(t, store), journal.Pace{Rate: 10})
		if took := time.Since(began); took < 4900*time.Millisecond || took > 6*time.Second {
			t.Errorf("50 messages at 10 a second took %v", took)
		}
		if r.Done != 50 || said.advanced != 50 {
			t.Errorf("%+v, reported %d", r, said.advanced)
		}
		inSecond := map[int64]int{}
		for _, m := range store.All(mainQueue) {
			second := int64(m.InsertedAt.Sub(began) / time.Second)
			if inSecond[second]++; inSecond[second] > 11 {
				t.Errorf("more than 10 in second %d", second)
			}
		}
	})
}

func TestDelayAndSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 60)
		requeue(t, newAccount(t, store), journal.Pace{Delay: time.Hour, Spread: time.Hour})
		inMinute := map[int]int{}
		for _, m := range store.All(mainQueue) {
			wait := m.NextVisibleAt.Sub(m.InsertedAt)
			if wait < time.Hour || wait > 2*time.Hour {
				t.Errorf("waits %v", wait)
			}
			inMinute[int(math.Ceil((wait-time.Hour).Minutes()))]++
		}
		if len(inMinute) != 60 {
			t.Errorf("not spread evenly: %v", inMinute)
		}
	})
	a := newAccount(t, newQueues(t, 1))
	_, err := a.PlanRequeue(t.Context(), poison.Source{}, poison.Requeue{Pace: journal.Pace{Delay: 4 * 24 * time.Hour, Spread: 4 * 24 * time.Hour}})
	wantError(t, err, "192h", "at most")
}

// TestSlowStorage checks that a run goes on at nearly the full rate beside the renewals of its leases, if storage is slow
// or becomes slow.
func TestSlowStorage(t *testing.T) {
	const messages, slow = 5000, 300 * time.Millisecond
	for name, planning := range map[string]time.Duration{"always": slow, "after_the_plan": 15 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit = 3 * time.Minute // before a renewal and a step meet: a Mutex stops the clock of a bubble
				updates, running := 0, t.Context()
				s := &tap{Store: newQueues(t, messages), takes: planning, before: func(operation string) error {
					if operation == "update" && running.Err() == nil {
						updates++
					}
					return nil
				}}
				p := mustPlan(t)(newAccount(t, s).PlanMove(t.Context(), poison.Source{}, poison.Move{To: parking, Create: true}))
				s.takes = slow
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				running = ctx
				r, err := p.Execute(ctx)
				want := int(limit/(2*slow)) * inFlight
				if err != nil || r.Done < want*9/10 || updates > want {
					t.Errorf("%d of %d beside %d renewals, %v", r.Done, want, updates, err)
				}
			})
		})
	}
}
