package operation_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// app simulates a function app that reads the main queue, and records outcomes.
type app struct {
	store    *memory.Queues
	outcomes storage.Table
	// does returns the result of a call: "deliver", "fail", "retry", "refuse" or "leave", which leaves the message to
	// its lease.
	does func(requestID string) string
	// takes is the duration of a call.
	takes time.Duration
}

// newApp returns an account whose app records outcomes, and that app. The app is not started.
func newApp(t *testing.T, store *memory.Queues, does func(string) string) (*operation.Operations, app) {
	t.Helper()
	a := newAccount(t, store)
	return a, app{store: store, outcomes: recorded(t, a), does: does}
}

// recorded makes the app of an account one that records outcomes.
func recorded(t *testing.T, a *operation.Operations) storage.Table {
	t.Helper()
	a.Outcomes = &memory.Table{}
	if a.Account.Table == nil {
		a.Account.Table = &memory.Table{}
	}
	if err := record.Beat(t.Context(), a.Account.Table, "local", "test", functionapp.MonitorTimer, ""); err != nil {
		t.Fatal(err)
	}
	return a.Outcomes
}

// start starts the app. It ends with the test, or when stop is called.
func (a app) start(t *testing.T) (stop func()) {
	t.Helper()
	recorder := record.NewOutcomeRecorder(a.outcomes, 1<<20, zerolog.Nop())
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		polls := time.NewTicker(700 * time.Millisecond)
		defer polls.Stop()
		for ctx.Err() == nil {
			batch, err := a.store.Receive(ctx, mainQueue, storage.MaxBatch, 10*time.Minute)
			if err != nil {
				return
			}
			for _, m := range batch {
				running.Go(func() { a.handle(t, ctx, m, recorder) })
			}
			select {
			case <-ctx.Done():
			case <-polls.C:
			}
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		recorder.Close(time.Second)
	})
	t.Cleanup(stop)
	return stop
}

//nolint:revive // t comes first, as in every other test
func (a app) handle(t *testing.T, ctx context.Context, m storage.Message, recorder *record.Recorder) {
	if !storage.Sleep(ctx, a.takes) {
		return
	}
	content, err := storage.Base64.Decode(m.Text)
	if err != nil {
		t.Errorf("sent: %v", err)
	}
	e, err := envelope.Parse(content)
	if err != nil {
		t.Errorf("sent: %v", err)
		return
	}
	limit := storage.Base64.MaxContentBytes()
	o := record.Outcome{
		Run: e.Run, RequestID: e.RequestID, Attempt: e.Attempts + 1, Called: true, TargetHost: "t.example",
		At: time.Now(),
	}
	next := e.WithState(envelope.State{Attempts: e.Attempts + 1, CreatedAt: e.CreatedAt})
	var after envelope.Content
	to, delay := "", time.Duration(0)
	switch a.does(e.RequestID) {
	case "leave":
		return
	case "deliver":
		o.Action, o.Reason, o.Status = "finish", "delivered", 200
	case "repeat": // the history has the delivery
		o.Action, o.Reason, o.Called = "finish", "duplicate", false
	case "report": // a 2xx with a callback
		o.Action, o.Reason, o.Status = "callback", "delivered", 201
	case "fail":
		to = poisonQueue
		why := envelope.DeadLetter{At: time.Now(), Reason: "rejected", Detail: "answered 418", Queue: mainQueue}
		after, err = next.DeadLettered(why, limit)
		o.Action, o.Reason, o.Status = "dead_letter", "rejected", 418
	case "retry":
		to, delay = mainQueue, time.Hour
		after, err = next.Successor(limit)
		o.Action, o.Reason, o.Status = "reschedule", "temporary_status", 503
	case "refuse":
		to, delay = mainQueue, 10*time.Second
		after, err = e.Successor(limit)
		o.Action, o.Reason, o.Status, o.Called = "reschedule", "target_down", 503, false
	case "busy":
		to, delay = mainQueue, 10*time.Second
		after, err = e.Successor(limit)
		o.Action, o.Reason, o.Called = "reschedule", "busy", false
	}
	if err == nil && to != "" {
		_, err = a.store.Put(ctx, to, storage.Item{Text: storage.Base64.Encode(after.Bytes), Delay: delay})
	}
	if err == nil {
		err = a.store.Delete(ctx, mainQueue, m.ID, m.PopReceipt)
	}
	if err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	if o.Run != "" {
		recorder.Outcome(o)
	}
}

func always(what string) func(string) string { return func(string) string { return what } }

// firstOf returns a result for the first messages that the app receives, and another for the others.
func firstOf(n int, what, then string) func(string) string {
	var mu sync.Mutex
	first := map[string]bool{}
	return func(requestID string) string {
		mu.Lock()
		defer mu.Unlock()
		if len(first) < n {
			first[requestID] = true
		}
		if first[requestID] {
			return what
		}
		return then
	}
}

func planRequeue(t *testing.T, a *operation.Operations, pace journal.Pace) *operation.Plan {
	t.Helper()
	return mustPlan(t)(a.PlanRequeue(t.Context(), account.Source{}, operation.Requeue{Pace: pace}))
}

func requeue(t *testing.T, a *operation.Operations, pace journal.Pace) (operation.Result, *notes) {
	t.Helper()
	said := &notes{}
	a.Observer = said
	r, err := planRequeue(t, a, pace).Execute(context.Background())
	if err != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	return r, said
}

// TestCanary checks that the others follow if and only if the first messages are delivered, and that the run says what
// happened to them.
func TestCanary(t *testing.T) {
	const soon, slowly = 10 * time.Second, 4 * time.Minute
	const breaker = "0 of 3 first messages are delivered; not called yet: the circuit breaker of t.example is open"
	const not = "is not delivered: r"
	for name, c := range map[string]struct {
		does  string // empty: no app runs
		takes time.Duration
		pace  journal.Pace
		want  string // the problem; empty if the canaries pass
		after time.Duration
	}{
		"delivered":          {does: "deliver", after: soon},
		"delivered_callback": {does: "report", after: soon},
		"delivered_before":   {does: "repeat", after: soon},
		"delivered_slowly":   {does: "deliver", takes: 20 * time.Second, after: 30 * time.Second},
		"failed":             {does: "fail", want: "a first message is not delivered: r", after: soon},
		"failed_why":         {does: "fail", want: ": rejected, status 418", after: soon},
		"failed_slowly":      {does: "fail", takes: time.Minute, want: not, after: 80 * time.Second},
		"tried_again":        {does: "retry", want: "status 503; it waits for attempt 2", after: soon},
		"breaker_open":       {does: "refuse", want: breaker, after: slowly},
		"busy":               {does: "busy", want: "not called yet: busy: t.example has no free slot", after: slowly},
		"not_read":           {want: "does the function app run?", after: slowly},
		"not_over_in_time":   {does: "deliver", takes: time.Hour, want: "no outcome is recorded yet", after: slowly},
		"all_are_first":      {does: "deliver", pace: journal.Pace{Canary: 30}, after: soon},
		"all_failed":         {does: "fail", pace: journal.Pace{Canary: 30}, want: not, after: soon},
		"more_than_all":      {does: "deliver", pace: journal.Pace{Canary: 31}, after: soon},
		"more_failed":        {does: "fail", pace: journal.Pace{Canary: 100}, want: not, after: soon},
		"more_not_read":      {pace: journal.Pace{Canary: 100}, want: "does the function app run?", after: slowly},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueues(t, 30)
				a, reader := newApp(t, store, always(c.does))
				reader.takes = c.takes
				if c.does != "" {
					reader.start(t)
				}
				if c.pace.Canary == 0 {
					c.pace.Canary = 3
				}
				began := time.Now()
				r, said := requeue(t, a, c.pace)
				if took := time.Since(began); took > c.after {
					t.Errorf("it took %v", took)
				}
				if c.want == "" {
					noted := slices.Contains(said.said, fmt.Sprintf("%d delivered", min(c.pace.Canary, 30)))
					if !r.Finished() || r.Done != 30 || r.Stopped != "" || !noted {
						t.Errorf("%+v, %q", r, said.said)
					}
					return
				}
				if first := min(c.pace.Canary, 30); !strings.Contains(r.Stopped, c.want) || r.Done != first ||
					r.Left != 30-first {
					t.Errorf("want it stopped by %q: %+v, %q", c.want, r, said.said)
				}
				if n := len(hidden(store, poisonQueue)); n > 0 {
					t.Errorf("%d of what was not sent are hidden", n)
				}
			})
		})
	}
}

// TestCanaryOnABusyQueue checks that canaries end within seconds on a queue that is never empty.
func TestCanaryOnABusyQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 30)
		a, reader := newApp(t, store, func(requestID string) string {
			if requestID == "none" || strings.HasPrefix(requestID, "busy") {
				return "leave"
			}
			return "deliver"
		})
		for i := range 2000 { // each is received once in ten minutes
			put(t, store, mainQueue, hostCopy(fmt.Sprintf("busy%d", i)), 0)
		}
		reader.start(t)
		began := time.Now()
		r, said := requeue(t, a, journal.Pace{Canary: 3})
		if took := time.Since(began); r.Done != 30 || r.Stopped != "" || took > time.Minute {
			t.Errorf("%v, %+v, %q", took, r, said.said)
		}
	})
}

// TestCanaryBehindTheBreaker checks that messages that are refused for a while are no canaries that were delivered, and
// that they pass once they are.
func TestCanaryBehindTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 30)
		began := time.Now()
		a, reader := newApp(t, store, func(string) string {
			if time.Since(began) < 2*time.Minute {
				return "refuse"
			}
			return "deliver"
		})
		reader.start(t)
		r, said := requeue(t, a, journal.Pace{Canary: 3})
		if r.Done != 30 || time.Since(began) < 2*time.Minute || time.Since(began) > 3*time.Minute {
			t.Errorf("%v, %+v", time.Since(began), r)
		}
		want := []string{
			"sent 3 first; waiting until they are delivered, at most 3m0s",
			"not called yet: the circuit breaker of t.example is open",
			"3 delivered",
		}
		if !slices.Equal(said.said, want) {
			t.Errorf("it said %q", said.said)
		}
	})
}

// TestCanaryOfEditedID checks that a canary whose request id an edit has changed is recognized.
func TestCanaryOfEditedID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 1)
		a, reader := newApp(t, store, always("deliver"))
		reader.start(t)
		set, err := edit.ParseSet("requestId=another")
		if err != nil {
			t.Fatal(err)
		}
		pace := journal.Pace{Canary: 1}
		edited := operation.Requeue{Edit: edit.Options{Edits: edit.Edits{set}}, Pace: pace}
		p := mustPlan(t)(a.PlanRequeue(t.Context(), account.Source{}, edited))
		if r, err := p.Execute(t.Context()); err != nil || r.Stopped != "" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestCanaryOfOthers checks that outcomes of other runs and of other messages count for nothing.
func TestCanaryOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 3)
		a, _ := newApp(t, store, nil)
		p := planRequeue(t, a, journal.Pace{Canary: 3})
		recorder := record.NewOutcomeRecorder(a.Outcomes, 1<<20, zerolog.Nop())
		for _, id := range []string{"r0", "r1", "r2"} {
			recorder.Outcome(record.Outcome{
				Run: "another", RequestID: id, Attempt: 1, Called: true, Action: "finish", Reason: "delivered",
			})
		}
		recorder.Close(time.Second)
		r, err := p.Execute(t.Context())
		if err != nil || !strings.Contains(r.Stopped, "0 of 3 first messages are delivered") {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestNoOutcomes checks that a run that could not know what becomes of its messages is refused before it changes
// anything.
func TestNoOutcomes(t *testing.T) {
	denied := fmt.Errorf("list rows: %w", storage.ErrDenied)
	for name, c := range map[string]struct {
		prepare func(*operation.Operations)
		words   []string
	}{
		"no_table": {func(a *operation.Operations) { a.Account.Table, a.Outcomes = nil, nil }, []string{"SCHEDULED is off"}},
		"no_rights": {
			func(a *operation.Operations) { a.Account.Table.(*memory.Table).Fail(denied) },
			[]string{storage.TableRole},
		},
		"no_rights_run": {
			func(a *operation.Operations) { a.Outcomes.(*memory.Table).Fail(denied) },
			[]string{storage.TableRole},
		},
		"no_heartbeat": {
			func(a *operation.Operations) { a.Account.Table = &memory.Table{} },
			[]string{"no timer function", "AC-monitor"},
		},
	} {
		paces := map[string]journal.Pace{"canary": {Canary: 1}, "stop": {StopAt: 0.1}}
		for option, pace := range paces {
			t.Run(name+"/"+option, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := newQueues(t, 3)
					a, _ := newApp(t, store, nil)
					advance(time.Second)
					c.prepare(a)
					_, requeueErr := a.PlanRequeue(t.Context(), account.Source{}, operation.Requeue{Pace: pace})
					_, runErr := a.PlanExpedite(t.Context(), account.ScheduledSource{}, pace)
					for _, err := range []error{requeueErr, runErr} {
						if !errors.Is(err, operation.ErrNoOutcomes) {
							t.Errorf("%v", err)
						}
						wantError(t, err, c.words...)
					}
					if runs, _ := a.Journals.List(); len(runs) > 0 || len(hidden(store, poisonQueue)) > 0 {
						t.Errorf("it has begun: %q", runs)
					}
					execute(t, planRequeue(t, a, journal.Pace{Rate: 100}))
				})
			})
		}
	}
}

// TestOutcomesUnknown checks that a table that does not answer is not a wrong configuration.
func TestOutcomesUnknown(t *testing.T) {
	store := newQueues(t, 3)
	a, _ := newApp(t, store, nil)
	a.Account.Table.(*memory.Table).Fail(errors.New("away"))
	pace := journal.Pace{Canary: 1}
	_, err := a.PlanRequeue(t.Context(), account.Source{}, operation.Requeue{Pace: pace})
	wantError(t, err, "whether the app records outcomes", "away")
	if errors.Is(err, operation.ErrNoOutcomes) {
		t.Errorf("%v", err)
	}
}

// TestNoRoomForRun checks that a message that has no room for its trace and the token is refused, and sent without
// them.
func TestNoRoomForRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 0)
		a, _ := newApp(t, store, nil)
		const form = `{"asyncCaller":1,"requestId":"r1","deadline":"2000-01-03T00:00:00Z",` +
			`"call":{"url":"https://t.example/","headers":{"tracestate":"a=%[1]s,b=%[1]s",` +
			`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"},"body":"%[2]s"}}`
		entry := strings.Repeat("x", 240)
		room := storage.Base64.MaxContentBytes() - len(form) - 2*len(entry) - 300
		put(t, store, poisonQueue, storage.Base64.Encode(fmt.Appendf(nil, form, entry, strings.Repeat("x", room))), 0)
		p := planRequeue(t, a, journal.Pace{Canary: 1})
		if p.Total != 0 || p.Refused != 1 || !strings.Contains(p.Refusals[0].Why, "omit --canary") {
			t.Errorf("%+v", p.Result)
		}
		p.Discard(t.Context())
		execute(t, mustPlan(t)(a.PlanRequeue(t.Context(), account.Source{}, operation.Requeue{})))
	})
}

// TestCanaryResumed checks that a run that its canaries have stopped can be resumed.
func TestCanaryResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 30)
		a, reader := newApp(t, store, always("deliver"))
		r, _ := requeue(t, a, journal.Pace{Canary: 3})
		if r.Stopped == "" {
			t.Fatalf("not stopped, though no function app runs: %+v", r)
		}
		reader.start(t)
		r, err := a.Resume(t.Context(), r.Run)
		if err != nil || !r.Finished() || r.Done != 30 || r.PossibleDuplicates != 0 {
			t.Errorf("%+v, %v", r, err)
		}
		advance(time.Minute)
		if n := len(store.All(mainQueue)) + len(store.All(poisonQueue)); n > 0 {
			t.Errorf("%d are left", n)
		}
	})
}

// TestCanaryReplaced checks that a resumed run sends another message first in place of each whose call has failed, and
// not the others before those are delivered.
func TestCanaryReplaced(t *testing.T) {
	for name, fails := range map[string]string{"failed": "fail", "rescheduled": "retry"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueues(t, 30)
				a, reader := newApp(t, store, firstOf(5, fails, "deliver"))
				reader.start(t)
				pace := journal.Pace{Canary: 3}
				r, _ := requeue(t, a, pace)
				if !strings.Contains(r.Stopped, "is not delivered: r") || r.Done != 3 {
					t.Fatalf("%+v", r)
				}
				advance(3 * time.Second) // all three have failed
				r, err := a.Resume(t.Context(), r.Run)
				if err != nil || r.Done != 6 || !strings.Contains(r.Stopped, "is not delivered: r") {
					t.Fatalf("2 of 3 further messages fail: %+v, %v", r, err)
				}
				advance(3 * time.Second)
				r, err = a.Resume(t.Context(), r.Run)
				if err != nil || r.Done != 30 || r.Stopped != "" {
					t.Errorf("%+v, %v", r, err)
				}
			})
		})
	}
}

// TestCanaryOfAnOlderVersion checks that a run that an older version began is not resumed as if its messages had a
// TestCanaryInterrupted checks that a run that is interrupted while it waits for its last messages is not finished.
func TestCanaryInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 3)
		a, reader := newApp(t, store, always("deliver"))
		p := planRequeue(t, a, journal.Pace{Canary: 3})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := p.Execute(ctx)
		if err != nil || !strings.Contains(r.Stopped, "interrupted") || r.Done != 3 {
			t.Errorf("%+v, %v", r, err)
		}
		if s := summaries(t, a)[0]; s.State != "interrupted" {
			t.Errorf("%+v", s)
		}
		reader.start(t)
		r, err = a.Resume(t.Context(), r.Run)
		if err != nil || r.Stopped != "" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestCanaryTableAway checks that a table that goes away while the run waits stops it, and that it can be resumed.
func TestCanaryTableAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 30)
		a, reader := newApp(t, store, always("deliver"))
		p := planRequeue(t, a, journal.Pace{Canary: 3})
		a.Outcomes.(*memory.Table).Fail(errors.New("away"))
		r, err := p.Execute(t.Context())
		wantError(t, err, "read the outcomes of the messages", "away")
		if r.Done != 3 {
			t.Errorf("%+v", r)
		}
		a.Outcomes.(*memory.Table).Fail(nil)
		reader.start(t)
		r, err = a.Resume(t.Context(), r.Run)
		if err != nil || r.Done != 30 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestStopAt checks that a run stops if and only if more than a share of the calls fails, for whatever reason.
func TestStopAt(t *testing.T) {
	for name, c := range map[string]struct {
		fails  int // of ten
		how    string
		canary int
		share  float64
		stops  bool
	}{
		"none_fail":        {fails: 0, share: 0.2},
		"few_fail":         {fails: 1, share: 0.2},
		"half_fail":        {fails: 5, share: 0.2, stops: true},
		"all_fail":         {fails: 10, share: 0.9, stops: true},
		"half_are_retried": {fails: 5, how: "retry", share: 0.2, stops: true},
		"behind_canaries":  {fails: 5, share: 0.4, canary: 10, stops: true},
		"all_may_fail":     {fails: 10, share: 1},
		"half_fail_of_2/3": {fails: 5, share: 0.67},
		"all_are_refused":  {fails: 10, how: "refuse", share: 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const messages = 200
				store := newQueues(t, messages)
				a, reader := newApp(t, store, func(id string) string {
					var n int
					if _, err := fmt.Sscanf(id, "r%d", &n); err != nil {
						t.Error(err)
					}
					if n >= c.canary && n%10 < c.fails {
						return cmp.Or(c.how, "fail")
					}
					return "deliver"
				})
				reader.start(t)
				pace := journal.Pace{Rate: 10, StopAt: c.share, Canary: c.canary}
				r, _ := requeue(t, a, pace)
				if stopped := r.Stopped != ""; stopped != c.stops {
					t.Fatalf("%+v", r)
				}
				if !c.stops {
					return
				}
				_, why, _ := strings.Cut(r.Stopped, "messages have failed: r")
				if !strings.Contains(why, ", status ") {
					t.Errorf("it says %q", r.Stopped)
				}
				if r.Done > messages/2 {
					t.Errorf("%d were sent before it stopped", r.Done)
				}
			})
		})
	}
}

// TestStopAtResumed checks that a run that has stopped judges only what it sends after it is resumed.
func TestStopAtResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 200)
		var works atomic.Bool
		a, reader := newApp(t, store, func(string) string {
			if works.Load() {
				return "deliver"
			}
			return "fail"
		})
		reader.start(t)
		r, _ := requeue(t, a, journal.Pace{Rate: 10, StopAt: 0.2})
		if r.Stopped == "" {
			t.Fatalf("%+v", r)
		}
		advance(time.Minute)
		works.Store(true)
		if r, err := a.Resume(t.Context(), r.Run); err != nil || r.Stopped != "" || r.Done != 200 {
			t.Errorf("%+v, %v", r, err)
		}
	})
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
			inSecond[second]++
			if inSecond[second] > 11 {
				t.Errorf("more than 10 in second %d", second)
			}
		}
	})
}
