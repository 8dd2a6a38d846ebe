package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/reconcile"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

const (
	mainQueue   = "async-caller"
	poisonQueue = mainQueue + storage.PoisonSuffix
	retention   = 90 * 24 * time.Hour
)

// tables are tables of the history that find rows as fast as the service does. Each request takes a time, and can fail.
type tables struct {
	*memory.Tables

	names []string
	rows  map[string]map[string][]storage.Entity
	takes time.Duration
	// fail returns the error of a request to a table, and whether rows are shown before it.
	fail     func(table string, request int64) (err error, late bool)
	requests atomic.Int64
}

func (t *tables) TableNames(context.Context, string) ([]string, error) { return t.names, nil }

func (t *tables) Table(name string) storage.Table { return table{t.Tables.Table(name), t, name} }

type table struct {
	storage.Table

	all  *tables
	name string
}

func (t table) List(ctx context.Context, q storage.Query, see func(storage.Entity) error) error {
	n := t.all.requests.Add(1)
	if !storage.Sleep(ctx, t.all.takes) {
		return ctx.Err()
	}
	var err error
	late := true
	if t.all.fail != nil {
		err, late = t.all.fail(t.name, n)
	}
	if err != nil && !late {
		return err
	}
	for _, entity := range t.all.rows[t.name][q.IDPrefix] {
		if err := see(entity); err != nil {
			return err
		}
	}
	return err
}

// world is an account whose calls are added before it is read.
type world struct {
	op   *operation.Operations
	kept *history.History
	past *tables
	// ids are those of all calls.
	ids []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	store := memory.New()
	for _, name := range []string{mainQueue, poisonQueue} {
		if err := store.Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{past: &tables{Tables: &memory.Tables{}, rows: map[string]map[string][]storage.Entity{}}}
	w.kept = history.New(w.past.Tables, retention, zerolog.Nop())
	w.op = &operation.Operations{History: w.past, Account: &account.Account{
		Store: store, Name: "test", AppQueues: []string{mainQueue}, Table: &memory.Table{},
		Rules: message.Rules{Encoding: storage.Base64, Decision: decision.Rules{Expiration: retention}},
	}}
	reading := record.Reading{Key: storage.Key{Partition: poisonQueue, ID: record.ReadingID}, ReadAt: time.Now()}
	if err := rows.Put(t.Context(), w.op.Account.Table, reading); err != nil {
		t.Fatal(err)
	}
	return w
}

// envelope returns the content of a call that was created some time ago.
func (w *world) envelope(t *testing.T, id string, age time.Duration, more string) *envelope.Envelope {
	t.Helper()
	w.ids = append(w.ids, id)
	e, err := envelope.Parse(fmt.Appendf(nil, `{"asyncCaller":1,"requestId":%q,"createdAt":%q,`+
		`"call":{"url":"https://t.example/%s"}%s}`, id, time.Now().Add(-age).UTC().Format(time.RFC3339), id, more))
	if err == nil {
		err = e.Accept(time.Now(), "m-"+id, 48<<10)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (w *world) end(t *testing.T, id string, age time.Duration, action decision.Action, reason decision.Reason) {
	t.Helper()
	entry := w.kept.NewEntry(w.envelope(t, id, age, ""), time.Now())
	entry.Action, entry.Reason, entry.Queue, entry.MessageID = string(action), string(reason), mainQueue, "m-"+id
	w.kept.Acknowledge(t.Context(), entry, time.Now())
}

func (w *world) dead(t *testing.T, id string) {
	t.Helper()
	w.end(t, id, 0, decision.DeadLetter, decision.Rejected)
	content := fmt.Sprintf(`{"asyncCaller":1,"requestId":%q,"call":{"url":"https://t.example/"},"deadLetter":`+
		`{"at":%q,"reason":"rejected","queue":"async-caller"}}`, id, time.Now().UTC().Format(time.RFC3339))
	a := w.op.Account
	m, err := a.Store.Put(t.Context(), poisonQueue, storage.Item{Text: storage.Base64.Encode([]byte(content))})
	if err == nil {
		m.Text = storage.Base64.Encode([]byte(content))
		m.InsertedAt = time.Now()
		err = rows.Put(t.Context(), a.Table, message.ToRow(message.Read(a.Rules, poisonQueue, m), []byte(content)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) scheduled(t *testing.T, id string) {
	t.Helper()
	w.ids = append(w.ids, id)
	err := rows.Put(t.Context(), w.op.Account.Table, record.Row{
		Key: storage.Key{Partition: mainQueue, ID: "w-" + id}, RequestID: id, Reason: "temporary_status", Status: 503,
		Attempts: 2, CreatedAt: time.Now(), NextAttemptAt: time.Now().Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// run reads the account, and returns the ids of each state as a text, and how many.
func (w *world) run(t *testing.T, q reconcile.Query) (reconcile.Report, map[string]int) {
	t.Helper()
	var err error
	if w.past.names == nil {
		w.past.names, err = w.past.Tables.TableNames(t.Context(), history.TablePrefix)
	}
	for _, name := range w.past.names {
		known := map[string][]storage.Entity{}
		w.past.rows[name] = known
		add := func(e storage.Entity) error {
			prefix, _, _ := strings.Cut(e.ID, ".")
			known[prefix+"."] = append(known[prefix+"."], e)
			return nil
		}
		err = errors.Join(err, w.past.Tables.Table(name).List(t.Context(), storage.Query{}, add))
	}
	if err != nil {
		t.Fatal(err)
	}
	if q.IDs == nil {
		q.IDs = w.ids
	}
	q.OnRead = func(int, int) {}
	report, err := reconcile.Run(t.Context(), w.op, q)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, r := range report.Results {
		counts[r.State]++
	}
	return report, counts
}

// TestRun counts 3,000 calls by their states, with and without a history.
func TestRun(t *testing.T) {
	for name, hasHistory := range map[string]bool{"history": true, "none": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				for i := range 3000 {
					switch id := fmt.Sprintf("call-%d", i); {
					case i < 40:
						w.dead(t, id)
					case i < 100:
						w.scheduled(t, id)
					case i < 120: // in flight, or never sent
						w.ids = append(w.ids, id)
					case i < 130:
						w.ids = append(w.ids, id)
						w.end(t, id+envelope.CallbackSuffix, 0, decision.Finish, decision.Delivered)
						w.ids = w.ids[:len(w.ids)-1]
					default:
						w.end(t, id, 0, decision.Finish, decision.Delivered)
					}
				}
				if !hasHistory {
					w.past.names = []string{}
				}
				want := map[string]int{"delivered": 2870, "poison": 40, "scheduled": 60, "unknown": 30}
				if !hasHistory {
					want = map[string]int{"poison": 40, "scheduled": 60, "unknown": 2900}
				}
				report, counts := w.run(t, reconcile.Query{})
				isOpen, hasFailed := report.Verdict()
				if fmt.Sprint(counts) != fmt.Sprint(want) || !isOpen || !hasFailed || len(report.Unread) > 0 {
					t.Errorf("got %v, want %v; not read %v", counts, want, report.Unread)
				}
			})
		})
	}
}

// TestRunInTime: 10,000 ids take less than a minute if each request takes 10 ms, with the history of four months.
func TestRunInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.past.takes = 10 * time.Millisecond
		for i := range 10_000 {
			w.end(t, fmt.Sprint("call-", i), time.Duration(i%4)*30*24*time.Hour, decision.Finish, decision.Delivered)
		}
		began := time.Now()
		report, counts := w.run(t, reconcile.Query{})
		took := time.Since(began)
		if took > time.Minute || counts["delivered"] != 10_000 || len(report.Tables) != 4 {
			t.Errorf("%v, tables %v, took %v", counts, report.Tables, took)
		}
		t.Logf("10,000 ids in %d tables: %v", len(report.Tables), took)
		isOpen, hasFailed := report.Verdict()
		if isOpen || hasFailed {
			t.Error("not all are delivered")
		}
		w.past.requests.Store(0)
		report, counts = w.run(t, reconcile.Query{Since: began})
		if counts["delivered"] != 2500 || w.past.requests.Load() != 10_000 {
			t.Errorf("since: %v, %d requests", counts, w.past.requests.Load())
		}
	})
}

// TestRunWithFaults: what is not read is said, a table that is away costs no more than a person waits, and no call that
// was not read is delivered.
func TestRunWithFaults(t *testing.T) {
	denied := fmt.Errorf("table: %w", storage.ErrDenied)
	for name, test := range map[string]struct {
		prepare func(w *world)
		want    string
		unread  string
	}{
		"denied": {func(w *world) {
			w.past.fail = func(string, int64) (error, bool) { return denied, false }
		}, "map[poison:1 scheduled:1 unknown:100]", "storage refused access"},
		"cut": {func(w *world) {
			w.past.fail = func(string, int64) (error, bool) { return io.ErrUnexpectedEOF, true }
		}, "map[poison:1 scheduled:1 unknown:100]", "asynccallerhistory200001: "},
		"slow": {
			func(w *world) { w.past.takes = time.Hour }, "map[poison:1 scheduled:1 unknown:100]",
			"asynccallerhistory200001: ",
		},
		"record": {func(w *world) {
			w.op.Account.Table.(*memory.Table).Fail(denied)
		}, "map[delivered:100 poison:1 unknown:1]", "scheduled calls"},
		"no_tables": {func(w *world) { w.op.History = nil }, "map[poison:1 scheduled:1 unknown:100]", "history"},
		"slow_once": {func(w *world) {
			w.past.fail = func(_ string, n int64) (err error, late bool) {
				if n%7 == 0 {
					err = io.ErrUnexpectedEOF
				}
				return err, true
			}
		}, "map[delivered:100 poison:1 scheduled:1]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				for i := range 100 {
					w.end(t, fmt.Sprint("call-", i), 0, decision.Finish, decision.Delivered)
				}
				w.dead(t, "dead")
				w.scheduled(t, "waits")
				began := time.Now()
				test.prepare(w)
				report, counts := w.run(t, reconcile.Query{})
				isOpen, _ := report.Verdict()
				unread := fmt.Sprint(report.Unread)
				if fmt.Sprint(counts) != test.want || !isOpen || !strings.Contains(unread, test.unread) {
					t.Errorf("got %v, not read %v", counts, unread)
				}
				if took := time.Since(began); took > 2*account.ReachTimeout {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// TestRunOfTenants: an id is looked for with its tenant alone, and not for its callback.
func TestRunOfTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.scheduled(t, "a")
		w.end(t, "b", 0, decision.Finish, decision.Delivered)
		_, counts := w.run(t, reconcile.Query{IDs: []string{"a", "b", "b.callback"}})
		if fmt.Sprint(counts) != "map[delivered:1 scheduled:1 unknown:1]" {
			t.Errorf("no tenant: %v", counts)
		}
		_, counts = w.run(t, reconcile.Query{Tenant: envelope.Tenant{Organization: "o", Environment: "e"}})
		if fmt.Sprint(counts) != "map[unknown:2]" {
			t.Errorf("another tenant: %v", counts)
		}
	})
}

// TestRunRepeated: a sender can use an id any number of times, and only some of the calls are kept.
func TestRunRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 50 {
			w.ids = w.ids[:0]
			callback := fmt.Sprintf(`,"callback":{"url":"https://t.example/%d"}`, i)
			e := w.envelope(t, "a", time.Duration(i)*time.Second, callback)
			entry := w.kept.NewEntry(e, time.Now())
			entry.Action, entry.Reason = string(decision.Finish), history.Delivered
			w.kept.Acknowledge(t.Context(), entry, time.Now())
		}
		report, _ := w.run(t, reconcile.Query{})
		isOpen, _ := report.Verdict()
		if r := report.Results[0]; r.State != reconcile.Several || len(r.Places) != 5 || !r.More || !isOpen {
			t.Errorf("%s, %d places", r.State, len(r.Places))
		}
		report, _ = w.run(t, reconcile.Query{Since: time.Now().Add(-time.Second)})
		if r := report.Results[0]; r.State != reconcile.Several || len(r.Places) != 2 || r.More {
			t.Errorf("since: %s, %d places", r.State, len(r.Places))
		}
	})
}
