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

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/history"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

const retention = 90 * 24 * time.Hour

func open(tables storage.Tables, log *bytes.Buffer) *history.History {
	return history.New(tables, retention, func(path string) string { return "route of " + path }, zerolog.New(log))
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
	entries, err := history.Find(t.Context(), tables, tenant, id)
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
		for year := 1970; year < 2100; year += 3 {
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
			if dropped, err := h.DropOld(t.Context(), time.Now()); dropped != want || err != nil {
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

// TestDropDenied: without permission AC-monitor does not fail every minute.
func TestDropDenied(t *testing.T) {
	var log bytes.Buffer
	h := open(&deniedTables{}, &log)
	defer h.Close(time.Minute)
	for range 3 {
		if dropped, err := h.DropOld(t.Context(), time.Now()); dropped > 0 || err != nil {
			t.Errorf("dropped %d, %v", dropped, err)
		}
	}
	if n := strings.Count(log.String(), storage.TableRole); n != 1 {
		t.Errorf("%d lines: %s", n, log.String())
	}
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
		if dropped, err := h.DropOld(t.Context(), time.Now()); dropped > 0 || err != nil {
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
