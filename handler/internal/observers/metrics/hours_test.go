package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/observers/metrics"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// faulty is a table of which one operation fails once.
type faulty struct {
	storage.Table
	fails string
}

var errTable = fmt.Errorf("the table has failed: %w", storage.ErrRefused) // it is not repeated

func (f *faulty) failsNow(operation string) error {
	if f.fails != operation {
		return nil
	}
	f.fails = ""
	return errTable
}

func (f *faulty) List(ctx context.Context, q storage.Query, see func(storage.Entity) error) error {
	return errors.Join(f.Table.List(ctx, q, see), f.failsNow("list"))
}

func (f *faulty) Replace(ctx context.Context, entity storage.Entity) (string, error) {
	if err := f.failsNow("replace"); err != nil {
		return "", err
	}
	version, err := f.Table.Replace(ctx, entity)
	return version, errors.Join(err, f.failsNow("answer"))
}

func (f *faulty) Delete(ctx context.Context, keys []storage.Key) error {
	if f.fails != "delete" {
		return f.Table.Delete(ctx, keys)
	}
	return errors.Join(f.Table.Delete(ctx, keys[:len(keys)/2]), f.failsNow("delete"))
}

// TestAddUp: whatever fails in between, the row of an hour has each minute once, and later ones, too, but none of a
// hostile writer.
func TestAddUp(t *testing.T) {
	for _, fails := range []string{"none", "list", "replace", "answer", "delete"} {
		t.Run(fails, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := &faulty{Table: &memory.Table{}}
				a := start(t, table, "a")
				for range 140 {
					a.deliver("one.example")
					<-time.After(time.Minute)
				}
				a.stop()
				put := func(id, numbers string) {
					entity := storage.Entity{
						Key:    storage.Key{Partition: "app,20000101T00", ID: id},
						Values: map[string]any{"numbers": []byte(numbers)},
					}
					if err := table.Put(t.Context(), []storage.Entity{entity}); err != nil {
						t.Fatal(err)
					}
				}
				put("20000101T0000,invalid", `{"hosts":{"one.example":{"delivered":-1}}}`)
				put("20000102T0000,elsewhere", `{"hosts":{"one.example":{"delivered":1}}}`)
				table.fails = fails
				hours := metrics.NewHours(app)
				_, err := hours.AddUp(t.Context(), table, time.Now())
				if fails != "none" && !errors.Is(err, errTable) {
					t.Errorf("error %v", err)
				}
				addUp := func(h *metrics.Hours) {
					if _, err := h.AddUp(t.Context(), table, time.Now()); err != nil {
						t.Error(err)
					}
				}
				addUp(hours)
				<-time.After(time.Minute)
				put("20000101T0059,late", `{"hosts":{"one.example":{"delivered":1}}}`)
				addUp(metrics.NewHours(app)) // of an instance that starts
				rows := rowsOf(t, table)
				if len(rows) != 81 || !strings.HasPrefix(rows[0], "app,20000101T01 ") ||
					rows[80] != "app,hours 20000101T00" {
					t.Errorf("%d rows are left: %v", len(rows), rows)
				}
				reader := metrics.NewReader(table)
				if of := read(t, reader, "one.example").Hours; len(of) != 1 || of[0].Delivered != 61 {
					t.Errorf("hours %+v", of)
				}
			})
		})
	}
}

// TestAddUpTogether: two instances that add up the same hour count nothing twice.
func TestAddUpTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &meeting{}
		a := start(t, &table.Table, "a")
		a.deliver("one.example")
		<-time.After(140 * time.Minute)
		a.stop()
		table.meet = func() {
			table.meet = nil
			if _, err := metrics.NewHours(app).AddUp(t.Context(), table, time.Now()); err != nil {
				t.Error(err)
			}
		}
		if _, err := metrics.NewHours(app).AddUp(t.Context(), table, time.Now()); err == nil {
			t.Error("the second instance has written the same hour")
		}
		reader := metrics.NewReader(&table.Table)
		if of := read(t, reader, "one.example").Hours; len(of) != 1 || of[0].Delivered != 1 {
			t.Errorf("hours %+v", of)
		}
	})
}

// meeting is a table that does something before a row is replaced.
type meeting struct {
	memory.Table
	meet func()
}

func (m *meeting) Replace(ctx context.Context, entity storage.Entity) (string, error) {
	if m.meet != nil {
		m.meet()
	}
	return m.Table.Replace(ctx, entity)
}
