package record_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// slow is a table whose writes take some time, may fail, and are counted.
type slow struct {
	memory.Table
	mu     sync.Mutex
	took   time.Duration
	fail   func(try int) error
	tries  int
	writes []int
}

func (s *slow) Put(ctx context.Context, name string, rows []storage.Row) error {
	s.mu.Lock()
	s.tries++
	var err error
	if s.fail != nil {
		err = s.fail(s.tries)
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
	s.writes = append(s.writes, len(rows))
	return s.Table.Put(ctx, name, rows)
}

func (s *slow) rows(t *testing.T) (ids []string) {
	t.Helper()
	if err := s.List(t.Context(), storage.Query{},
		func(row storage.Row) error { ids = append(ids, row.ID); return nil }); err != nil {
		t.Fatal(err)
	}
	return ids
}

const limit = 1 << 20

func newRecorder(table storage.Table) (*record.Recorder, *bytes.Buffer) {
	var log bytes.Buffer
	return record.NewRecorder(table, strings.ToUpper, limit, zerolog.New(&log)), &log
}

func row(n int) storage.Row {
	return storage.Row{Queue: "main", ID: fmt.Sprintf("%04d", n), Route: "/a", Content: []byte("{}")}
}

func TestRecorderBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slow{}
		r, log := newRecorder(table)
		for n := range 250 {
			r.Scheduled(row(n))
		}
		r.Gone("main", storage.Key{ID: "0007"}) // the latest change counts
		pass(2 * time.Second)
		if got := table.writes; len(got) > 20 || slices.Max(got) > 100 || len(table.rows(t)) != 249 {
			t.Errorf("writes of %d rows, %d rows", got, len(table.rows(t)))
		}
		got, _, _ := table.Get(t.Context(), "main", "0001")
		if got.Route != "/A" {
			t.Errorf("route %q", got.Route)
		}
		r.Scheduled(row(300))
		r.Close(2 * time.Second) // at once
		r.Close(2 * time.Second)
		if len(table.rows(t)) != 250 || log.Len() > 0 {
			t.Errorf("%d rows after Close, log %s", len(table.rows(t)), log)
		}
	})
}

// TestRecorderAwayTable: changes are lost without a wait, memory is bounded, the loss is logged once a minute, and the
// record goes on when the table is back.
func TestRecorderAwayTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		table := &slow{fail: func(int) error { return away }}
		r, log := newRecorder(table)
		defer r.Close(2 * time.Second)
		began := time.Now()
		for n := range 10_000 {
			r.Scheduled(row(n))
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
		r.Scheduled(row(20_000))
		pass(2 * time.Second)
		if ids := table.rows(t); len(ids) == 0 || len(ids) > 4096 || ids[len(ids)-1] != "20000" {
			t.Errorf("%d rows after the outage", len(ids))
		}
	})
}

func TestRecorderRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slow{fail: func(try int) error {
			if try == 1 {
				return errors.New("busy")
			}
			return nil
		}}
		r, log := newRecorder(table)
		defer r.Close(2 * time.Second)
		r.Scheduled(row(1))
		pass(3 * time.Second)
		if len(table.rows(t)) != 1 || log.Len() > 0 {
			t.Errorf("%d rows, log %s", len(table.rows(t)), log)
		}
	})
}

func TestRecorderWithoutPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slow{fail: func(int) error { return fmt.Errorf("write rows: %w", storage.ErrDenied) }}
		r, log := newRecorder(table)
		for n := range 500 {
			r.Scheduled(row(n))
		}
		pass(time.Hour)
		r.Scheduled(row(1))
		r.Close(2 * time.Second)
		if table.tries != 1 || strings.Count(log.String(), "\n") != 1 ||
			!strings.Contains(log.String(), "Storage Table Data Contributor") {
			t.Errorf("%d tries, log:\n%s", table.tries, log)
		}
	})
}

// TestRecorderClosesInTime: a table that hangs does not hold up the end of the handler.
func TestRecorderClosesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slow{took: time.Hour}
		r, log := newRecorder(table)
		r.Scheduled(row(1))
		pass(1500 * time.Millisecond)
		began := time.Now()
		r.Close(2 * time.Second)
		if took := time.Since(began); took > 2*time.Second || !strings.Contains(log.String(), `"messages":1`) {
			t.Errorf("closed after %v, log %s", took, log)
		}
	})
}

func TestNoRecorder(*testing.T) {
	var r *record.Recorder
	r.Scheduled(row(1))
	r.Gone("main", storage.Key{ID: "1"})
	r.Close(2 * time.Second)
}

// pass lets time pass, and waits until the recorder is idle.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
