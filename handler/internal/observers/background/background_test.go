package background_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/observers/background"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// refused is the reason of a row that a slow table refuses.
const refused = "refused"

// slow is a table whose writes take some time, may fail, and are counted.
type slow struct {
	memory.Table
	mu     sync.Mutex
	took   time.Duration
	fail   func(try int) error
	tries  int
	writes []int
}

func (s *slow) Put(ctx context.Context, entities []storage.Entity) error {
	s.mu.Lock()
	s.tries++
	var err error
	if s.fail != nil {
		err = s.fail(s.tries)
	}
	for _, entity := range entities {
		if entity.Values["reason"] == refused {
			err = fmt.Errorf("400: %w", storage.ErrRefused)
		}
	}
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.took):
	}
	if err != nil {
		return err
	}
	s.writes = append(s.writes, len(entities))
	return s.Table.Put(ctx, entities)
}

func (s *slow) rows(t *testing.T) (ids []string) {
	t.Helper()
	if err := s.List(t.Context(), storage.Query{},
		func(entity storage.Entity) error { ids = append(ids, entity.ID); return nil }); err != nil {
		t.Fatal(err)
	}
	return ids
}

const limit = 1 << 20

func newWriter(table storage.Table) (*background.Writer, *bytes.Buffer) {
	var log bytes.Buffer
	return background.New(background.Config{
		Table: table, Rows: "scheduled calls", Bytes: limit, Log: zerolog.New(&log),
	}), &log
}

// row is a row as a caller declares it.
type row struct {
	storage.Key

	Text    string `row:"text"`
	Reason  string `row:"reason"`
	Content []byte `row:"content"`
}

func rowOf(n int) row {
	return row{Key: storage.Key{Partition: "main", ID: fmt.Sprintf("%04d", n)}, Text: "/a/1", Content: []byte("{}")}
}

func TestWriterBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slow{}
		w, log := newWriter(table)
		for n := range 250 {
			w.Put(rowOf(n))
		}
		w.Remove(rowOf(7).Key) // the latest change counts
		pass(2 * time.Second)
		if got := table.writes; len(got) > 20 || slices.Max(got) > 100 || len(table.rows(t)) != 249 {
			t.Errorf("writes of %d rows, %d rows", got, len(table.rows(t)))
		}
		got, _, _ := rows.Get[row](t.Context(), table, "main", "0001")
		if got.Text != "/a/1" {
			t.Errorf("text %q", got.Text)
		}
		w.Put(rowOf(300))
		w.Close(2 * time.Second) // at once
		w.Close(2 * time.Second)
		if len(table.rows(t)) != 250 || log.Len() > 0 {
			t.Errorf("%d rows after Close, log %s", len(table.rows(t)), log)
		}
	})
}

// TestWriterAwayTable: changes are lost without a wait, memory is bounded, the loss is logged once a minute, and the
// record goes on when the table is back.
func TestWriterAwayTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		table := &slow{fail: func(int) error { return away }}
		w, log := newWriter(table)
		defer w.Close(2 * time.Second)
		began := time.Now()
		for n := range 10_000 {
			w.Put(rowOf(n))
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("recording waited for %v", took)
		}
		pass(10 * time.Minute)
		lines := strings.Count(log.String(), "\n")
		if lines < 1 || lines > 10 || !strings.Contains(log.String(), `"error":"away"`) ||
			!strings.Contains(log.String(), "were not recorded in the last minute") {
			t.Errorf("%d lines:\n%s", lines, log)
		}
		table.mu.Lock()
		table.fail = nil
		table.mu.Unlock()
		pass(time.Hour)
		w.Put(rowOf(20_000))
		pass(2 * time.Second)
		if ids := table.rows(t); len(ids) == 0 || len(ids) > 4096 || ids[len(ids)-1] != "20000" {
			t.Errorf("%d rows after the outage", len(ids))
		}
	})
}

func TestWriterRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slow{fail: func(try int) error {
			if try == 1 {
				return errors.New("busy")
			}
			return nil
		}}
		w, log := newWriter(table)
		defer w.Close(2 * time.Second)
		w.Put(rowOf(1))
		pass(3 * time.Second)
		if len(table.rows(t)) != 1 || log.Len() > 0 {
			t.Errorf("%d rows, log %s", len(table.rows(t)), log)
		}
	})
}

func TestWriterWithoutPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slow{fail: func(int) error { return fmt.Errorf("write rows: %w", storage.ErrDenied) }}
		w, log := newWriter(table)
		for n := range 500 {
			w.Put(rowOf(n))
		}
		pass(time.Hour)
		w.Put(rowOf(1))
		w.Close(2 * time.Second)
		if table.tries != 1 || strings.Count(log.String(), "\n") != 1 ||
			!strings.Contains(log.String(), "Storage Table Data Contributor") {
			t.Errorf("%d tries, log:\n%s", table.tries, log)
		}
	})
}

// TestWriterClosesInTime: a table that hangs does not hold up the end of the handler.
func TestWriterClosesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slow{took: time.Hour}
		w, log := newWriter(table)
		w.Put(rowOf(1))
		pass(1500 * time.Millisecond)
		began := time.Now()
		w.Close(2 * time.Second)
		if took := time.Since(began); took > 2*time.Second || !strings.Contains(log.String(), `"messages":1`) {
			t.Errorf("closed after %v, log %s", took, log)
		}
	})
}

func TestNoWriter(*testing.T) {
	var w *background.Writer
	w.Put(rowOf(1))
	w.Remove(rowOf(1).Key)
	w.Close(2 * time.Second)
}

// pass lets time pass, and waits until the writer is idle.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestWriterRefusedRow: a row that storage refuses is lost alone, and is no outage.
func TestWriterRefusedRow(t *testing.T) {
	for name, bad := range map[string][]int{"one": {7}, "first_and_last": {0, 49}, "all_of_few": {0, 1, 2}} {
		synctest.Test(t, func(t *testing.T) {
			table := &slow{}
			w, log := newWriter(table)
			n := 50
			if name == "all_of_few" {
				n = len(bad)
			}
			for i := range n {
				change := rowOf(i)
				if slices.Contains(bad, i) {
					change.Reason = refused
				}
				w.Put(change)
			}
			w.Remove(storage.Key{Partition: "main", ID: "none"})
			pass(2 * time.Second)
			w.Put(rowOf(100)) // after the refusal
			pass(2 * time.Second)
			if got, want := len(table.rows(t)), n-len(bad)+1; got != want {
				t.Errorf("%s: %d rows, want %d", name, got, want)
			}
			if lost, err := w.Lost(); lost != len(bad) || !errors.Is(err, storage.ErrRefused) {
				t.Errorf("%s: lost %d, %v", name, lost, err)
			}
			if table.tries > n+4 {
				t.Errorf("%s: %d tries", name, table.tries)
			}
			w.Close(2 * time.Second)
			if !strings.Contains(log.String(), fmt.Sprintf(`"messages":%d`, len(bad))) {
				t.Errorf("%s: log %s", name, log)
			}
		})
	}
}

// TestWriterTooLarge: a row that is too large for any table is lost alone, at once.
func TestWriterTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slow{}
		w, _ := newWriter(table)
		large := rowOf(0)
		large.Content = make([]byte, storage.MaxPropertyBytes+1)
		w.Put(large)
		w.Put(rowOf(1))
		w.Close(2 * time.Second)
		if lost, err := w.Lost(); lost != 1 || err == nil || !strings.Contains(err.Error(), "content") ||
			len(table.rows(t)) != 1 || table.tries != 1 {
			t.Errorf("lost %d, %v; %d rows in %d tries", lost, err, len(table.rows(t)), table.tries)
		}
	})
}

// TestWriterRefusedAndAway: when the table goes away while rows are written one by one, the rest is lost as in any
// outage.
func TestWriterRefusedAndAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slow{fail: func(try int) error {
			if try == 1 {
				return storage.ErrRefused
			}
			if try > 3 {
				return errors.New("away")
			}
			return nil
		}}
		w, _ := newWriter(table)
		for i := range 50 {
			w.Put(rowOf(i))
		}
		pass(time.Minute)
		if lost, _ := w.Lost(); lost != 48 || len(table.rows(t)) != 2 {
			t.Errorf("lost %d, %d rows", lost, len(table.rows(t)))
		}
		w.Close(2 * time.Second)
	})
}

// TestWriterMemory: while the table hangs, the rows that wait take no more memory than the limit, whatever text a
// sender fills, and hold no large messages.
func TestWriterMemory(t *testing.T) {
	for name, set := range map[string]func(*row, string){
		"text":    func(r *row, text string) { r.Text = text },
		"part":    func(r *row, text string) { r.Text = text[:10] },
		"id":      func(r *row, text string) { r.ID += text[:20] },
		"content": func(r *row, text string) { r.Content = []byte(text)[:20] },
	} {
		synctest.Test(t, func(t *testing.T) {
			table := &slow{took: time.Hour}
			w, _ := newWriter(table)
			before := heap()
			for n := range 2_000 {
				change := rowOf(n)
				set(&change, strings.Repeat(fmt.Sprintf("%04d", n), 8<<10))
				w.Put(change)
			}
			if grown := heap() - before; grown > 4*limit {
				t.Errorf("%s: %d bytes", name, grown)
			}
			w.Close(time.Millisecond)
		})
	}
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
