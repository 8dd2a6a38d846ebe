package delivery_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

const retention = 90 * 24 * time.Hour

// withHistory gives a bench a history in these tables.
func (b *bench) withHistory(t *testing.T, tables storage.Tables, keep targets.History) *bench {
	t.Helper()
	b.History = history.New(tables, retention, zerolog.New(b.log))
	b.KeepHistory = keep
	t.Cleanup(func() { b.History.Close(time.Minute) })
	return b
}

// deliverAs delivers content as a message with an id and a dequeue count.
func (b *bench) deliverAs(content, id string, dequeueCount int64) *delivery.Result {
	return b.Deliver(b.ctx, delivery.Message{
		Message: decision.Message{Queue: mainQueue, ID: id, DequeueCount: dequeueCount},
		Content: []byte(content),
		Lease:   settle.Lease{ID: id, PopReceipt: "p", DequeueCount: dequeueCount},
	})
}

// takeAll removes the messages of a queue, and returns their contents.
func (b *bench) takeAll(t *testing.T, name string) (contents []string) {
	t.Helper()
	for {
		<-time.After(time.Hour)
		received, err := b.store.Receive(t.Context(), name, storage.MaxBatch, time.Minute)
		if err != nil || len(received) == 0 {
			return contents
		}
		for _, m := range received {
			content, err := storage.Base64.Decode(m.Text)
			err = errors.Join(err, b.store.Delete(t.Context(), name, m.ID, m.PopReceipt))
			if err != nil {
				t.Fatal(err)
			}
			contents = append(contents, string(content))
		}
	}
}

// repeats are the ways in which a call that was delivered can come again. Each makes the call at least once.
var repeats = map[string]func(t *testing.T, b *bench){
	"the host dies after the answer, or its delete fails": func(_ *testing.T, b *bench) {
		b.deliverAs(fmt.Sprintf(plain, ""), "m1", 1)
		b.deliverAs(fmt.Sprintf(plain, ""), "m1", 2)
	},
	"the same without a request id": func(_ *testing.T, b *bench) {
		const anonymous = `{"asyncCaller":1,"call":{"url":"https://t.example/"}}`
		b.deliverAs(anonymous, "m1", 1)
		b.deliverAs(anonymous, "m1", 2)
	},
	"the same on a routed queue": func(t *testing.T, b *bench) {
		b.withRoute(t, "")
		for count := range int64(2) {
			b.Deliver(b.ctx, delivery.Message{
				Message:  decision.Message{Queue: routedQueue, ID: "m1", DequeueCount: count + 1},
				Content:  []byte("x"),
				IsRouted: true,
				Lease:    settle.Lease{ID: "m1", PopReceipt: "p", DequeueCount: count + 1, InsertedAt: midnight},
			})
		}
	},
	"the acknowledgement of a successor is lost": func(t *testing.T, b *bench) {
		answer := b.target.answer
		b.target.answer = func(context.Context, *envelope.Envelope) decision.Outcome {
			b.target.answer = answer
			return decision.Outcome{Status: 503}
		}
		b.Settler = settle.New(&deaf{b: b}, storage.Base64)
		b.deliverAs(fmt.Sprintf(plain, ""), "m1", 1)
		b.target.calls = nil
		for i, content := range b.takeAll(t, mainQueue) {
			b.deliverAs(content, fmt.Sprint("twin", i), 1)
		}
	},
	"the sender puts an envelope twice": func(_ *testing.T, b *bench) {
		b.deliverAs(fmt.Sprintf(plain, ""), "m1", 1)
		b.deliverAs(fmt.Sprintf(plain, ""), "m2", 1)
	},
	"the sender puts a call twice, with spans of its own": func(_ *testing.T, b *bench) {
		for i := range 2 {
			const call = `{"asyncCaller":1,"requestId":"r","call":{"url":"https://t.example/",` +
				`"headers":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333%d-01"}}}`
			b.deliverAs(fmt.Sprintf(call, i), fmt.Sprint("m", i), 1)
		}
	},
	"the host has ended when the answer comes": func(_ *testing.T, b *bench) {
		answer := b.target.answer
		b.target.answer = func(ctx context.Context, e *envelope.Envelope) decision.Outcome {
			b.hostGone()
			return answer(ctx, e)
		}
		b.deliverAs(fmt.Sprintf(plain, ""), "m1", 1)
		b.target.answer, b.Stopping = answer, context.WithoutCancel(b.Stopping) // another instance
		b.deliverAs(fmt.Sprintf(plain, ""), "m1", 2)
	},
	"a dead letter is requeued twice, or after an undo": func(t *testing.T, b *bench) {
		answer := b.target.answer
		b.target.answer = answers(decision.Outcome{Status: 400}).answer
		b.deliverAs(fmt.Sprintf(plain, ""), "m1", 1)
		b.target.answer, b.target.calls = answer, nil
		letter := b.takeAll(t, poisonQueue)[0]
		rules := message.Rules{Encoding: storage.Base64, Decision: b.Rules}
		for i := range 2 {
			text, err := edit.Prepare(t.Context(), rules, storage.Base64.Encode([]byte(letter)), "m1", edit.Options{},
				time.Now())
			if err != nil {
				t.Fatal(err)
			}
			b.deliverAs(string(rules.Content(text)), fmt.Sprint("requeued", i), 1)
		}
	},
}

// TestNoSecondCall: check closes what repeats a call that was delivered; outcomes does not.
func TestNoSecondCall(t *testing.T) {
	for name, repeat := range repeats {
		for mode, want := range map[targets.History]int{targets.HistoryCheck: 1, targets.HistoryOutcomes: 2} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := setup(t, answers(decision.Outcome{Status: 200})).withHistory(t, &memory.Tables{}, mode)
					repeat(t, b)
					if n := len(b.target.calls); n != want {
						t.Errorf("%d calls, want %d", n, want)
					}
					lines := b.linesWith(t, "settled")
					last := lines[len(lines)-1]
					isDuplicate := last["reason"] == "duplicate" && last["action"] == "finish"
					if isDuplicate != (want == 1) {
						t.Errorf("the last line is %v", last)
					}
					b.History.Close(time.Minute)
				})
			})
		}
	}
}

// TestNotADuplicate: calls that differ in anything that the target or the sender notices are all made.
func TestNotADuplicate(t *testing.T) {
	const format = `{"asyncCaller":1,"requestId":%q,"call":{"url":%q,"method":%q,"headers":%s,"body":%q}%s}`
	base := []any{"1", "https://t.example/a", "POST", `{"A":"1"}`, "x", ""}
	others := []any{
		"2", "https://t.example/a?b", "PUT", `{"A":"2"}`, "y", `,"callback":{"url":"https://c.example"}`,
	}
	for i, value := range others {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, answers(decision.Outcome{Status: 200})).
				withHistory(t, &memory.Tables{}, targets.HistoryCheck)
			changed := append([]any{}, base...)
			changed[i] = value
			b.deliverAs(fmt.Sprintf(format, base...), "m1", 1)
			b.deliverAs(fmt.Sprintf(format, changed...), "m2", 1)
			if len(b.target.calls) != 2 {
				t.Errorf("%d calls with %v", len(b.target.calls), value)
			}
			b.History.Close(time.Minute)
		})
	}
	const nexus = `{"Organization":%q,"Environment":%q,"OriginalRequestId":"1","RawRequest":{"Id":"1","CallOut":%q}}`
	raw := base64.StdEncoding.EncodeToString([]byte("GET / HTTP/1.1\r\nHost: t.example\r\n\r\n"))
	for _, tenants := range [][4]string{{"a", "b", "a", "c"}, {"ab", "c", "a", "bc"}, {`a" "b`, "c", "a", `b" "c`}} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, answers(decision.Outcome{Status: 200})).
				withHistory(t, &memory.Tables{}, targets.HistoryCheck)
			b.deliverAs(fmt.Sprintf(nexus, tenants[0], tenants[1], raw), "m1", 1)
			b.deliverAs(fmt.Sprintf(nexus, tenants[2], tenants[3], raw), "m2", 1)
			b.deliverAs(fmt.Sprintf(nexus, tenants[2], tenants[3], raw), "m3", 1)
			if len(b.target.calls) != 2 {
				t.Errorf("%d calls of tenants %q", len(b.target.calls), tenants)
			}
			b.History.Close(time.Minute)
		})
	}
}

// TestDuplicateHasNoSecondCallback: the callback is on its queue before the row is written, and no second one follows.
func TestDuplicateHasNoSecondCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tables memory.Tables
		b := setup(t, answers(decision.Outcome{Status: 200})).withHistory(t, &tables, targets.HistoryCheck)
		b.Settler = settle.New(failing{b.store, func(context.Context) error { return errDown }}, storage.Base64)
		b.deliverAs(fmt.Sprintf(plain, callback), "m1", 1) // the callback is not written, so there is no row
		b.Settler = settle.New(b.store, storage.Base64)
		b.deliverAs(fmt.Sprintf(plain, callback), "m1", 2)
		b.deliverAs(fmt.Sprintf(plain, callback), "m1", 3)
		if n := len(b.items(t, mainQueue)); n != 1 || len(b.target.calls) != 2 {
			t.Errorf("%d callbacks, %d calls", n, len(b.target.calls))
		}
		b.History.Close(time.Minute)
	})
}

// awayTables are tables that fail or hang.
type awayTables struct {
	memory.Tables
	err error
}

type awayTable struct {
	storage.Table
	err error
}

func (t *awayTables) Table(name string) storage.Table { return awayTable{t.Tables.Table(name), t.err} }

func (t awayTable) Get(ctx context.Context, _, _ string) (entity storage.Entity, found bool, err error) {
	return entity, false, t.fail(ctx)
}

func (t awayTable) Put(ctx context.Context, _ []storage.Entity) error { return t.fail(ctx) }

func (t awayTable) fail(ctx context.Context) error {
	if t.err == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return t.err
}

// TestHistoryAway: a table that is stopped, slow or refuses changes no outcome, costs a call at most 2 s, and is said
// in the log.
func TestHistoryAway(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		line  string
		lines int
	}{
		"stopped":  {errors.New("connection refused"), "history was not read or written", 1},
		"hangs":    {nil, "history was not read or written", 1},
		"refusing": {fmt.Errorf("write table: %w", storage.ErrDenied), "history is off until a restart", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, answers(decision.Outcome{Status: 200})).
					withHistory(t, &awayTables{err: c.err}, targets.HistoryCheck)
				var took time.Duration
				for i := range 20 {
					began := time.Now()
					r := b.deliverAs(fmt.Sprintf(plain, ""), fmt.Sprint("m", i), 2)
					took = max(took, time.Since(began))
					if r.Reason != decision.Delivered || !r.MayDelete() {
						t.Errorf("%s %s", r.Action, r.Reason)
					}
				}
				if n := strings.Count(b.log.String(), c.line); n != c.lines || took > 2*time.Second {
					t.Errorf("%d lines, a delivery took %v\n%s", n, took, b.log)
				}
				b.History.Close(time.Minute)
			})
		})
	}
}

// TestHistoryKeeps: each end of a call has a row with what an operator asks for, in the table of its month.
func TestHistoryKeeps(t *testing.T) {
	for name, c := range map[string]struct {
		outcome decision.Outcome
		members string
		action  decision.Action
		reason  decision.Reason
	}{
		"delivered": {decision.Outcome{Status: 204}, "", decision.Finish, decision.Delivered},
		"rejected":  {decision.Outcome{Status: 422}, "", decision.DeadLetter, decision.Rejected},
		"reported":  {decision.Outcome{Status: 422}, callback, decision.Callback, decision.Rejected},
		"dropped":   {decision.Outcome{Status: 422}, `,"giveUp":"drop"`, decision.Drop, decision.Rejected},
		"exhausted": {
			decision.Outcome{Status: 503}, `,"retry":{"maxAttempts":1}`, decision.DeadLetter, decision.Exhausted,
		},
		"expired": {
			decision.Outcome{}, `,"deadline":"1999-12-31T00:00:00Z"`, decision.DeadLetter, decision.Expired,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var tables memory.Tables
				b := setup(t, answers(c.outcome)).withHistory(t, &tables, targets.HistoryOutcomes)
				b.deliverAs(fmt.Sprintf(plain, c.members), "m1", 1)
				b.History.Close(time.Minute)
				requestID := mustJSON(t, fmt.Sprintf(plain, "")).(map[string]any)["requestId"].(string)
				entries, _, err := history.Find(t.Context(), &tables, envelope.Tenant{}, requestID)
				if err != nil || len(entries) != 1 {
					t.Fatalf("%d entries, %v", len(entries), err)
				}
				e := entries[0]
				got := []any{e.Queue, e.MessageID, e.Action, e.Reason, e.TargetHost, int(e.Status), len(e.Trail)}
				want := []any{
					mainQueue, "m1", string(c.action), string(c.reason), "target.example:8443", c.outcome.Status,
					e.Attempts,
				}
				if diff := cmp.Diff(want, got); diff != "" || e.TraceID == "" || e.EndedAt.IsZero() {
					t.Errorf("-want +got:\n%s\n%+v", diff, e)
				}
				names, err := tables.TableNames(t.Context(), history.TablePrefix)
				if err != nil || strings.Join(names, " ") != "asynccallerhistory200001" {
					t.Errorf("tables %v, %v", names, err)
				}
			})
		})
	}
}

// TestHistoryOfATarget: the profile of a target has precedence over the setting.
func TestHistoryOfATarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tables memory.Tables
		b := setup(t, answers(decision.Outcome{Status: 200})).withHistory(t, &tables, targets.HistoryCheck)
		profiles, err := targets.Parse([]byte(`{"target.example":{"history":"off"}}`), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.Rules.Profiles = profiles
		for range 2 {
			b.deliverAs(fmt.Sprintf(plain, ""), "m1", 2)
		}
		b.History.Close(time.Minute)
		names, err := tables.TableNames(t.Context(), "")
		if len(b.target.calls) != 2 || len(names) > 0 || err != nil {
			t.Errorf("%d calls, tables %v, %v", len(b.target.calls), names, err)
		}
	})
}

// TestSameMoment: of two messages with one request id that two instances receive at the same moment, at least one is
// called and at most both are.
func TestSameMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tables memory.Tables
		called := answers(decision.Outcome{Status: 200})
		one := setup(t, called).withHistory(t, &tables, targets.HistoryCheck)
		other := setup(t, called).withHistory(t, &tables, targets.HistoryCheck)
		for i := range 1000 {
			called.calls = nil
			content := fmt.Sprintf(`{"asyncCaller":1,"requestId":"r%d","call":{"url":"https://t.example/"}}`, i)
			var both sync.WaitGroup
			for k, b := range []*bench{one, other} {
				both.Go(func() { b.deliverAs(content, fmt.Sprintf("m%d.%d", i, k), 1) })
			}
			both.Wait()
			if n := len(called.calls); n < 1 || n > 2 {
				t.Fatalf("%d calls", n)
			}
		}
		one.History.Close(time.Minute)
		other.History.Close(time.Minute)
	})
}

// TestHistoryTransactions: check makes one read and one write for a delivered call, and outcomes one transaction for
// twenty calls.
func TestHistoryTransactions(t *testing.T) {
	for mode, most := range map[targets.History]float64{targets.HistoryOutcomes: 0.05, targets.HistoryCheck: 2} {
		synctest.Test(t, func(t *testing.T) {
			tables := &countedTables{}
			b := setup(t, answers(decision.Outcome{Status: 200})).withHistory(t, tables, mode)
			const calls = 2000
			for i := range calls {
				content := fmt.Sprintf(`{"asyncCaller":1,"requestId":"r%d","call":{"url":"https://t.example/"}}`, i)
				b.deliverAs(content, fmt.Sprint("m", i), 1)
				<-time.After(10 * time.Millisecond)
			}
			b.History.Close(time.Minute)
			if got := float64(tables.operations) / calls; got > most {
				t.Errorf("%s: %.3f transactions a call, want at most %v", mode, got, most)
			}
		})
	}
}

type countedTables struct {
	memory.Tables
	mu         sync.Mutex
	operations int
}

type countedTable struct {
	storage.Table
	all *countedTables
}

func (t *countedTables) Table(name string) storage.Table {
	return countedTable{t.Tables.Table(name), t}
}

func (t countedTable) count() {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	t.all.operations++
}

func (t countedTable) Get(ctx context.Context, partition, id string) (storage.Entity, bool, error) {
	t.count()
	return t.Table.Get(ctx, partition, id)
}

func (t countedTable) Put(ctx context.Context, entities []storage.Entity) error {
	t.count()
	return t.Table.Put(ctx, entities)
}
