package history_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

const retention = 90 * 24 * time.Hour

func open(tables storage.Tables, log *bytes.Buffer) *history.History {
	return history.New(tables, retention, zerolog.New(log))
}

func parse(t *testing.T, content string) *envelope.Envelope {
	t.Helper()
	e, err := envelope.Parse([]byte(content))
	if err == nil {
		err = e.Accept(time.Now(), "m1", 48<<10)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func entry(h *history.History, e *envelope.Envelope, reason string) history.Entry {
	entry := h.NewEntry(e, time.Now())
	entry.Reason = reason
	entry.Trail = []history.Attempt{}
	return entry
}

func find(t *testing.T, tables storage.Tables, tenant envelope.Tenant, id string) (reasons []string) {
	t.Helper()
	entries, _, err := history.Find(t.Context(), tables, tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		reasons = append(reasons, e.Reason)
	}
	return reasons
}

const native = `{"asyncCaller":1,"requestId":%q,"createdAt":%q,"call":{"url":"https://t.example/orders/%s"}}`

// TestFind: an id finds its calls of all months and its callbacks, the newest first, and no other call.
func TestFind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		<-time.After(400 * 24 * time.Hour)
		var tables memory.Tables
		h := open(&tables, &bytes.Buffer{})
		now := time.Now().UTC()
		for i, age := range []time.Duration{0, 70 * 24 * time.Hour} {
			created := now.Add(-age).Format(time.RFC3339)
			for _, id := range []string{"4711", "4711.callback", "4711.callback.callback", "471", "47110"} {
				h.Record(entry(h, parse(t, fmt.Sprintf(native, id, created, id)), fmt.Sprint(id, "-", i)))
				<-time.After(time.Second)
			}
		}
		const nexus = `{"Organization":"o","Environment":"e","OriginalRequestId":"4711","RawRequest":{"Id":"guid",` +
			`"CallOut":"R0VUIC8gSFRUUC8xLjENCkhvc3Q6IHQuZXhhbXBsZQ0KDQo="}}`
		h.Record(entry(h, parse(t, nexus), "nexus"))
		h.Close(time.Minute)
		tenant := envelope.Tenant{Organization: "o", Environment: "e"}
		for id, want := range map[string]string{
			"4711": "4711.callback-1 4711-1 4711.callback-0 4711-0", "471": "471-1 471-0", "4712": "",
		} {
			if got := strings.Join(find(t, &tables, envelope.Tenant{}, id), " "); got != want {
				t.Errorf("%s finds %q, want %q", id, got, want)
			}
		}
		for _, id := range []string{"4711", "guid"} {
			if got := find(t, &tables, tenant, id); len(got) != 1 || got[0] != "nexus" {
				t.Errorf("%s of the tenant finds %v", id, got)
			}
		}
	})
}

// TestMonths: a sender cannot choose the number of tables, and the tables of months beyond the retention are dropped.
func TestMonths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tables memory.Tables
		var log bytes.Buffer
		h := open(&tables, &log)
		for year := 1970; year < 2100; year += 13 {
			created := time.Date(year, 2, 3, 0, 0, 0, 0, time.UTC).Format(time.RFC3339)
			h.Record(entry(h, parse(t, fmt.Sprintf(native, "id", created, "x")), "delivered"))
		}
		november := parse(t, fmt.Sprintf(native, "id", "1999-11-30T00:00:00Z", "x"))
		h.Acknowledge(t.Context(), entry(h, november, "delivered"), time.Now())
		h.Close(time.Minute)
		h = open(&tables, &log)
		defer h.Close(time.Minute)
		wantTables := func(want string) {
			t.Helper()
			names, err := tables.TableNames(t.Context(), history.TablePrefix)
			if got := strings.ReplaceAll(strings.Join(names, " "), history.TablePrefix, ""); err != nil || got != want {
				t.Errorf("tables of %s, %v, want %s", got, err, want)
			}
		}
		drop := func(want int) {
			t.Helper()
			if dropped, err := h.DropOld(t.Context(), "app", time.Now()); dropped != want || err != nil {
				t.Errorf("dropped %d, %v, want %d", dropped, err, want)
			}
		}
		wantTables("199910 199911 200001")
		drop(0)
		<-time.After(40 * 24 * time.Hour) // February 10: October ended more than 90 days ago
		drop(1)
		wantTables("199911 200001")
		<-time.After(time.Minute)
		drop(0)
		<-time.After(365 * 24 * time.Hour)
		drop(2)
		wantTables("")
	})
}

// deniedTables are tables that nobody may list.
type deniedTables struct{ memory.Tables }

func (*deniedTables) TableNames(context.Context, string) ([]string, error) {
	return nil, storage.ErrDenied
}

// TestDropDenied: without the permission to list or to drop tables, AC-monitor does not fail every minute, the log says
// so once an hour, and the history goes on.
func TestDropDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tables deniedTables
		var log bytes.Buffer
		h := open(&tables, &log)
		defer h.Close(time.Minute)
		e := parse(t, fmt.Sprintf(native, "id", "2000-01-01T00:00:00Z", "x"))
		h.Acknowledge(t.Context(), entry(h, e, "delivered"), time.Now())
		for range 3 * 60 {
			if dropped, err := h.DropOld(t.Context(), "app", time.Now()); dropped > 0 || err != nil {
				t.Errorf("dropped %d, %v", dropped, err)
			}
			<-time.After(time.Minute)
		}
		if n := strings.Count(log.String(), storage.TableRole); n != 3 || strings.Count(log.String(), "\n") != 3 {
			t.Errorf("%d lines: %s", n, log.String())
		}
		if _, ok := h.WasDelivered(t.Context(), e, time.Now()); !ok {
			t.Error("not delivered: the history is off")
		}
	})
}

// TestRetentionOfOthers: no app drops a table that another app of the account keeps longer.
func TestRetentionOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		var tables memory.Tables
		january := history.TablePrefix + "200001" // ends after 31 days
		app := func(name string, retention time.Duration) func() int {
			return func() int {
				h := history.New(&tables, retention, zerolog.Nop())
				defer h.Close(time.Minute)
				dropped, err := h.DropOld(t.Context(), name, time.Now())
				if err != nil {
					t.Error(err)
				}
				return dropped
			}
		}
		short, long, stopped := app("short", 31*day), app("long", 90*day), app("stopped/#?", 60*day)
		put := func(partition, id string, values map[string]any) {
			entity := storage.Entity{Key: storage.Key{Partition: partition, ID: id}, Values: values}
			if err := tables.Table(january).Put(t.Context(), []storage.Entity{entity}); err != nil {
				t.Fatal(err)
			}
		}
		put("1", "call", nil)
		put("retention", "hostile", map[string]any{"until": time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)})
		want := func(after time.Duration, run func() int, dropped int) {
			t.Helper()
			<-time.After(after)
			if got := run(); got != dropped {
				t.Errorf("at %v dropped %d, want %d", time.Now(), got, dropped)
			}
		}
		want(0, stopped, 0)
		want(0, short, 0)
		want(day, long, 0)
		want(64*day, short, 0) // it is day 65
		put("2", "call", nil)
		want(30*day, short, 0)
		want(10*day, long, 0)
		want(10*day, long, 0)
		want(9*day, short, 1)
		if names, _ := tables.TableNames(t.Context(), history.TablePrefix); len(names) > 0 {
			t.Errorf("tables %v", names)
		}
	})
}

// TestShorterRetention: an app whose retention is made shorter drops its tables earlier.
func TestShorterRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		var tables memory.Tables
		dropAfter := func(after, retention time.Duration, app string, want int) {
			t.Helper()
			<-time.After(after)
			h := history.New(&tables, retention, zerolog.Nop())
			defer h.Close(time.Minute)
			if got, err := h.DropOld(t.Context(), app, time.Now()); got != want || err != nil {
				t.Errorf("dropped %d, %v, want %d", got, err, want)
			}
		}
		table := tables.Table(history.TablePrefix + "200001")
		call := storage.Entity{Key: storage.Key{Partition: "1", ID: "call"}}
		if err := table.Put(t.Context(), []storage.Entity{call}); err != nil {
			t.Fatal(err)
		}
		dropAfter(0, 365*day, "app", 0)
		dropAfter(70*day, 31*day, "other", 0)
		dropAfter(time.Hour, 60*day, "app", 0)
		dropAfter(25*day, 31*day, "other", 1)
	})
}

// refusingTables are tables that refuse the rows of one request id.
type refusingTables struct{ memory.Tables }

type refusingTable struct{ storage.Table }

func (t *refusingTables) Table(name string) storage.Table { return refusingTable{t.Tables.Table(name)} }

func (t refusingTable) Put(ctx context.Context, entities []storage.Entity) error {
	for _, entity := range entities {
		if entity.Values["requestId"] == "bad" {
			return fmt.Errorf("413: %w", storage.ErrRefused)
		}
	}
	return t.Table.Put(ctx, entities)
}

// TestRefusedRow: a row that the table refuses says nothing about the rows of others: they are read and written.
func TestRefusedRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tables refusingTables
		var log bytes.Buffer
		h := open(&tables, &log)
		bad := parse(t, fmt.Sprintf(native, "bad", "2000-01-01T00:00:00Z", "x"))
		for i := range 3 {
			h.Acknowledge(t.Context(), entry(h, bad, "delivered"), time.Now())
			h.Record(entry(h, bad, "rejected"))
			good := parse(t, fmt.Sprintf(native, fmt.Sprint("good", i), "2000-01-01T00:00:00Z", "x"))
			h.Acknowledge(t.Context(), entry(h, good, "delivered"), time.Now())
			h.Record(entry(h, good, "rejected"))
			if _, ok := h.WasDelivered(t.Context(), good, time.Now()); !ok {
				t.Errorf("%d is not delivered", i)
			}
		}
		h.Close(time.Minute)
		for i := range 3 {
			if got := find(t, &tables, envelope.Tenant{}, fmt.Sprint("good", i)); len(got) != 2 {
				t.Errorf("%d has %v", i, got)
			}
		}
		if !strings.Contains(log.String(), "413") {
			t.Errorf("log %s", log.String())
		}
	})
}

// TestHostileRows: whatever accepted envelopes have in texts and trail, everybody's rows are written, with details.
func TestHostileRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tables memory.Tables
		h := open(&tables, &bytes.Buffer{})
		const attempt = `{"at":"2000-01-01T00:00:00Z","error":"%s"}`
		attempts := strings.Repeat(fmt.Sprintf(attempt, strings.Repeat("<", 100))+",", 99)
		trail := attempts + fmt.Sprintf(attempt, strings.Repeat(`\u2028`, 33))
		long := strings.Repeat("<", 10<<10)
		hostile := fmt.Sprintf(`{"Organization":%q,"Environment":%q,"OriginalRequestId":%q,"Trail":[%s],`+
			`"RawRequest":{"Id":"%%d","CallOut":"R0VUIC8gSFRUUC8xLjENCkhvc3Q6IHQuZXhhbXBsZQ0KDQo="}}`,
			long[:100], long[:200], long, trail)
		for i := range 5 {
			for _, content := range []string{
				fmt.Sprintf(hostile, i), fmt.Sprintf(native, fmt.Sprint("good", i), "2000-01-01T00:00:00Z", "x"),
			} {
				e := parse(t, content)
				ended := entry(h, e, "delivered")
				ended.Trail, ended.Queue = history.TrailOf(e.Trail), "async-caller"
				h.Record(ended)
			}
		}
		h.Close(time.Minute)
		tenant := envelope.Tenant{Organization: long[:100], Environment: long[:200]}
		for i := range 5 {
			found, _, err := history.Find(t.Context(), &tables, tenant, fmt.Sprint(i))
			if err != nil || len(found) != 1 || len(found[0].Trail) != 100 || found[0].Queue != "async-caller" {
				t.Fatalf("%d: %d entries, %v", i, len(found), err)
			}
			if got := find(t, &tables, envelope.Tenant{}, fmt.Sprint("good", i)); len(got) != 1 {
				t.Errorf("good %d: %v", i, got)
			}
		}
	})
}

// TestDenied: without permission there is one warning, and then no request.
func TestDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tables memory.Tables
		var log bytes.Buffer
		h := open(&tables, &log)
		denied := fmt.Errorf("%w: role", storage.ErrDenied)
		tables.Open(history.TablePrefix + "200001").Fail(denied)
		e := parse(t, fmt.Sprintf(native, "id", "2000-01-01T00:00:00Z", "x"))
		for range 5 {
			if _, ok := h.WasDelivered(t.Context(), e, time.Now()); ok {
				t.Error("delivered")
			}
			h.Acknowledge(t.Context(), entry(h, e, "delivered"), time.Now())
			h.Record(entry(h, e, "rejected"))
		}
		if dropped, err := h.DropOld(t.Context(), "app", time.Now()); dropped > 0 || err != nil {
			t.Errorf("dropped %d, %v", dropped, err)
		}
		tables.Open(history.TablePrefix + "200001").Fail(errors.New("must not be asked"))
		h.WasDelivered(t.Context(), e, time.Now())
		h.Close(time.Minute)
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), storage.TableRole) {
			t.Errorf("%d lines: %s", n, log.String())
		}
	})
}

// TestDeliveredStays: no later end of a call hides that it was delivered.
func TestDeliveredStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tables memory.Tables
		h := open(&tables, &bytes.Buffer{})
		e := parse(t, fmt.Sprintf(native, "id", "2000-01-01T00:00:00Z", "x"))
		for _, reason := range []string{"rejected", "delivered", "expired"} {
			h.Record(entry(h, e, reason))
			<-time.After(time.Minute)
		}
		if _, ok := h.WasDelivered(t.Context(), e, time.Now()); !ok {
			t.Error("not delivered")
		}
		if got := find(t, &tables, envelope.Tenant{}, "id"); strings.Join(got, " ") != "expired delivered" {
			t.Errorf("ends %q", got)
		}
		h.Close(time.Minute)
	})
}
