package operation_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/observers/background"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// app simulates a function app that reads the main queue, and records outcomes.
type app struct {
	store    *memory.Queues
	outcomes storage.Table
	// does returns the result of a call, such as "deliver" or "fail".
	does func(requestID string) string
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
	beating := heartbeat.App{Name: "local", Version: "test"}
	if err := heartbeat.Beat(t.Context(), a.Account.Table, beating, functionapp.MonitorTimer); err != nil {
		t.Fatal(err)
	}
	return a.Outcomes
}

// start starts the app. It ends with the test, or when stop is called.
func (a app) start(t *testing.T) (stop func()) {
	t.Helper()
	writer := record.NewOutcomeWriter(a.outcomes, 1<<20, zerolog.Nop())
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
				running.Go(func() { a.handle(t, ctx, m, writer) })
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
		writer.Close(time.Second)
	})
	t.Cleanup(stop)
	return stop
}

//nolint:revive // t comes first, as in every other test
func (a app) handle(t *testing.T, ctx context.Context, m storage.Message, writer *background.Writer) {
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
	switch what := a.does(e.RequestID); what {
	case "deliver":
		o.Action, o.Reason, o.Status = "finish", "delivered", 200
	case "repeat": // the history has the delivery
		o.Action, o.Reason, o.Called = "finish", "duplicate", false
	case "fail":
		to = poisonQueue
		why := envelope.DeadLetter{At: time.Now(), Reason: "rejected", Detail: "answered 418", Queue: mainQueue}
		after, err = next.DeadLettered(why, limit)
		o.Action, o.Reason, o.Status = "dead_letter", "rejected", 418
	case "retry", "retry_soon":
		to, delay = mainQueue, time.Hour
		if what == "retry_soon" {
			delay = 30 * time.Second
		}
		after, err = next.Successor(limit)
		o.Action, o.Reason, o.Status = "reschedule", "temporary_status", 503
	case "expire": // on arrival
		o.Action, o.Reason, o.Called = "drop", "expired", false
	case "refuse":
		to, delay = mainQueue, 10*time.Second
		after, err = e.Successor(limit)
		o.Action, o.Reason, o.Status, o.Called = "reschedule", "target_down", 503, false
	case "busy":
		to, delay = mainQueue, 10*time.Second
		after, err = e.Successor(limit)
		o.Action, o.Reason, o.Called = "reschedule", "busy", false
		o.Cause = "limit 2 at a time"
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
		writer.Put(o.Keyed())
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
	return mustPlan(t)(a.PlanRetryPoison(t.Context(), account.Source{}, operation.Retry{Pace: pace}))
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
	const messages, soon, slowly = 30, 10 * time.Second, 4 * time.Minute
	const undelivered = "0 of 3 first messages are delivered; "
	const breaker = "not called yet: the circuit breaker of t.example is open"
	const busy = undelivered + "not called yet: t.example is busy: limit 2 at a time"
	const notRead = undelivered + "no outcome is recorded yet: does the function app run?"
	twoMinutesDown := func(string) string {
		if time.Now().Minute() < 2 { // the bubble begins at midnight
			return "refuse"
		}
		return "deliver"
	}
	for name, c := range map[string]struct {
		does   func(string) string // nil: no app runs
		canary int
		want   string // the problem; empty if the canaries pass
		noted  string // the lines while it waits
		after  time.Duration
	}{
		"delivered":        {does: always("deliver"), canary: 3, after: soon},
		"delivered_before": {does: always("repeat"), canary: 3, after: soon},
		"breaker_closes":   {does: twoMinutesDown, canary: 3, noted: "3 calls: " + breaker + "\n", after: 3 * time.Minute},
		"more_than_all":    {does: always("deliver"), canary: 100, after: soon},
		"failed":           {does: always("fail"), canary: 3, want: ": rejected, status 418", after: soon},
		"tried_again":      {does: always("retry"), canary: 3, want: "status 503; it waits for attempt 2", after: soon},
		"breaker_open":     {does: always("refuse"), canary: 3, want: undelivered + breaker, after: slowly},
		"busy":             {does: always("busy"), canary: 3, want: busy, after: slowly},
		"not_read":         {canary: 3, want: notRead, after: slowly},
		"all_failed":       {does: always("fail"), canary: 100, want: "is not delivered: r", after: soon},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueues(t, messages)
				a, reader := newApp(t, store, c.does)
				if c.does != nil {
					reader.start(t)
				}
				began, first := time.Now(), min(c.canary, messages)
				r, said := requeue(t, a, journal.Pace{Canary: c.canary})
				if took := time.Since(began); took > c.after {
					t.Errorf("it took %v", took)
				}
				if c.want == "" {
					const form = "sent %d first; waiting until they are delivered, at most 3m\n" +
						"%s%[1]d calls: delivered"
					got, want := strings.Join(said.said, "\n"), fmt.Sprintf(form, first, c.noted)
					if !r.Finished() || r.Done != messages || r.Stopped != "" || said.advanced != messages ||
						!maps.Equal(countLines(got), countLines(want)) {
						t.Errorf("%+v, %+v, want %s", r, said, want)
					}
					return
				}
				if !strings.Contains(r.Stopped, c.want) || r.Done != first || r.Left != messages-first {
					t.Errorf("want it stopped by %q: %+v, %q", c.want, r, said.said)
				}
				if n := len(hidden(store, poisonQueue)); n > 0 {
					t.Errorf("%d of what was not sent are hidden", n)
				}
				if r.Finished() {
					if _, err := a.Resume(t.Context(), r.Run); !errors.Is(err, run.ErrNothingLeft) {
						t.Errorf("all were sent, and the run has not ended: %v", err)
					}
				}
			})
		})
	}
}

// TestCanaryOfOthers checks that outcomes of other runs count for nothing, and that a canary whose request id an edit
// has changed is recognized.
func TestCanaryOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, reader := newApp(t, newQueues(t, 2), always("deliver"))
		writer := record.NewOutcomeWriter(a.Outcomes, 1<<20, zerolog.Nop())
		other := record.Outcome{
			Run: "another", RequestID: "edited", Attempt: 1, Called: true, Action: "finish", Reason: "delivered",
		}
		writer.Put(other.Keyed())
		writer.Close(time.Second)
		set, err := edit.ParseSet("requestId=edited")
		if err != nil {
			t.Fatal(err)
		}
		edited := operation.Retry{Edit: edit.Options{Edits: edit.Edits{set}}, Pace: journal.Pace{Canary: 1}}
		r, err := mustPlan(t)(a.PlanRetryPoison(t.Context(), account.Source{}, edited)).Execute(t.Context())
		if err != nil || !strings.Contains(r.Stopped, "0 of 1 first messages are delivered") {
			t.Errorf("%+v, %v", r, err)
		}
		reader.start(t)
		if r, err := a.Resume(t.Context(), r.Run); err != nil || r.Stopped != "" || r.Done != 2 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestNoOutcomes checks that a run that could not know what becomes of its messages is refused before it changes
// anything. A table that does not answer is not a wrong configuration.
func TestNoOutcomes(t *testing.T) {
	denied := fmt.Errorf("list rows: %w", storage.ErrDenied)
	fail := func(table storage.Table, err error) { table.(*memory.Table).Fail(err) }
	for name, c := range map[string]struct {
		prepare func(*operation.Operations)
		words   []string
		unknown bool
	}{
		"no_table": {
			func(a *operation.Operations) { a.Account.Table, a.Outcomes = nil, nil }, []string{"TABLES is off"}, false,
		},
		"no_rights": {
			func(a *operation.Operations) { fail(a.Account.Table, denied) }, []string{storage.TableReaderRole}, false,
		},
		"no_rights_run": {
			func(a *operation.Operations) { fail(a.Outcomes, denied) }, []string{storage.TableReaderRole}, false,
		},
		"no_heartbeat": {
			func(a *operation.Operations) { a.Account.Table = &memory.Table{} },
			[]string{"no timer function", "AC-monitor"},
			false,
		},
		"away": {
			func(a *operation.Operations) { fail(a.Account.Table, errors.New("away")) },
			[]string{"whether the app records outcomes", "away"},
			true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueues(t, 3)
				a, _ := newApp(t, store, nil)
				advance(time.Second)
				c.prepare(a)
				requeue := operation.Retry{Pace: journal.Pace{Canary: 1}}
				_, requeueErr := a.PlanRetryPoison(t.Context(), account.Source{}, requeue)
				_, expediteErr := planExpedite(t.Context(), a, journal.Pace{StopAt: 0.1})
				for _, err := range []error{requeueErr, expediteErr} {
					if errors.Is(err, operation.ErrNoOutcomes) == c.unknown {
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
		execute(t, mustPlan(t)(a.PlanRetryPoison(t.Context(), account.Source{}, operation.Retry{})))
	})
}

// TestCanaryResumed checks that a run whose first messages are not delivered can be resumed, whatever has stopped it.
// It sends as many first messages again, whatever became of the earlier ones, and the others once these are delivered.
func TestCanaryResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, reader := newApp(t, newQueues(t, 30), firstOf(11, "fail", "deliver"))
		said := &notes{}
		a.Observer = said
		p := planRequeue(t, a, journal.Pace{Canary: 3})
		a.Outcomes.(*memory.Table).Fail(errors.New("away"))
		r, err := p.Execute(t.Context())
		wantError(t, err, "read the outcomes of the messages", "away")
		a.Outcomes.(*memory.Table).Fail(nil)
		resume := func(ctx context.Context, done int, stopped string) {
			t.Helper()
			r, err := a.Resume(ctx, r.Run)
			if err != nil || r.Done != done || (r.Stopped == "") != (stopped == "") ||
				!strings.Contains(r.Stopped, stopped) || r.PossibleDuplicates > 0 {
				t.Fatalf("want %d done, stopped by %q: %+v, %v", done, stopped, r, err)
			}
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		resume(soon, 6, "interrupted")
		resume(t.Context(), 9, "does the function app run?")
		reader.start(t)
		resume(t.Context(), 12, "is not delivered: r") // the app has received the earlier ones first
		said.said = nil
		resume(t.Context(), 30, "")
		if countLines(strings.Join(said.said, "\n"))["delivered"] != 3 {
			t.Errorf("it said %q", said.said)
		}
	})
}

// TestStopAt checks that a run stops if and only if more than a share of the calls fails, for whatever reason, and
// judges only what it sends afterwards when it is resumed.
func TestStopAt(t *testing.T) {
	for name, c := range map[string]struct {
		fails  int // of ten
		how    string
		canary int
		share  float64
		stops  bool
	}{
		"few_fail":         {fails: 1, how: "fail", share: 0.2},
		"half_fail":        {fails: 5, how: "fail", share: 0.2, stops: true},
		"half_are_retried": {fails: 5, how: "retry", share: 0.2, stops: true},
		"behind_canaries":  {fails: 5, how: "fail", share: 0.4, canary: 10, stops: true},
		"all_may_fail":     {fails: 10, how: "fail", share: 1},
		"all_are_refused":  {fails: 10, how: "refuse", share: 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const messages = 150
				var works atomic.Bool
				a, reader := newApp(t, newQueues(t, messages), func(id string) string {
					var n int
					if _, err := fmt.Sscanf(id, "r%d", &n); err != nil {
						t.Error(err)
					}
					if n >= c.canary && n%10 < c.fails && !works.Load() {
						return c.how
					}
					return "deliver"
				})
				reader.start(t)
				r, _ := requeue(t, a, journal.Pace{Rate: 10, StopAt: c.share, Canary: c.canary})
				if stopped := r.Stopped != ""; stopped != c.stops {
					t.Fatalf("%+v", r)
				}
				if !c.stops {
					return
				}
				_, why, _ := strings.Cut(r.Stopped, "messages have failed: r")
				if !strings.Contains(why, ", status ") || r.Done > messages/2 {
					t.Errorf("%+v", r)
				}
				advance(time.Minute)
				works.Store(true)
				if r, err := a.Resume(t.Context(), r.Run); err != nil || r.Stopped != "" || r.Done != messages {
					t.Errorf("%+v, %v", r, err)
				}
			})
		})
	}
}
