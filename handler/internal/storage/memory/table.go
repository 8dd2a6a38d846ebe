package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"asynccaller/handler/internal/storage"
)

// Table is a table in memory. The zero value is empty.
type Table struct {
	mu       sync.Mutex
	rows     map[key]storage.Row
	versions int
	// err, unless nil, is the error of every operation.
	err error
}

type key struct{ queue, id string }

var _ storage.Table = (*Table)(nil)

// Fail makes every operation fail with the error, until it is called with nil.
func (t *Table) Fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
}

// Put implements [storage.Table].
func (t *Table) Put(ctx context.Context, queue string, rows []storage.Row) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.check(ctx); err != nil {
		return err
	}
	for _, row := range rows {
		t.put(queue, row)
	}
	return nil
}

func (t *Table) put(queue string, row storage.Row) {
	if t.rows == nil {
		t.rows = map[key]storage.Row{}
	}
	t.versions++
	row.Queue, row.Version, row.WrittenAt = queue, strconv.Itoa(t.versions), time.Now().UTC()
	t.rows[key{queue, row.ID}] = row
}

// Replace implements [storage.Table].
func (t *Table) Replace(ctx context.Context, queue string, row storage.Row) (version string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.check(ctx); err != nil {
		return "", err
	}
	if t.rows[key{queue, row.ID}].Version != row.Version {
		return "", nil
	}
	t.put(queue, row)
	return t.rows[key{queue, row.ID}].Version, nil
}

// Delete implements [storage.Table].
func (t *Table) Delete(ctx context.Context, queue string, keys []storage.Key) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.check(ctx); err != nil {
		return err
	}
	for _, k := range keys {
		row, ok := t.rows[key{queue, k.ID}]
		if ok && (k.Version == "" || k.Version == row.Version) {
			delete(t.rows, key{queue, k.ID})
		}
	}
	return nil
}

// Get implements [storage.Table].
func (t *Table) Get(ctx context.Context, queue, id string) (storage.Row, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	row, ok := t.rows[key{queue, id}]
	return row, ok, t.check(ctx)
}

// List implements [storage.Table].
func (t *Table) List(ctx context.Context, q storage.Query, see func(storage.Row) error) error {
	t.mu.Lock()
	err := t.check(ctx)
	keys := slices.SortedFunc(maps.Keys(t.rows), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.queue, b.queue), cmp.Compare(a.id, b.id))
	})
	rows := maps.Clone(t.rows)
	t.mu.Unlock()
	for _, k := range keys {
		row := rows[k]
		ofQueue := (q.Queue == "" || q.Queue == k.queue) && strings.HasPrefix(k.id, q.IDPrefix)
		isDue := isWithin(row.NextAttemptAt, time.Time{}, q.DueBefore)
		wasWritten := isWithin(row.WrittenAt, q.WrittenAfter, q.WrittenBefore)
		if err != nil || !ofQueue || !isDue || !wasWritten {
			continue
		}
		if !q.Content {
			row.Content = nil
		}
		err = see(row)
	}
	return err
}

// isWithin reports whether a time is between two others that may be zero.
func isWithin(at, after, before time.Time) bool {
	return (after.IsZero() || at.After(after)) && (before.IsZero() || !at.IsZero() && at.Before(before))
}

// check returns why an operation fails.
func (t *Table) check(ctx context.Context) error { return cmp.Or(t.err, ctx.Err()) }

// Tables are tables in memory. The zero value has none.
type Tables struct {
	mu     sync.Mutex
	tables map[string]*Table
}

var _ storage.Tables = (*Tables)(nil)

// Table implements [storage.Tables].
func (t *Tables) Table(name string) storage.Table { return t.Open(name) }

// Open returns a table.
func (t *Tables) Open(name string) *Table {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tables == nil {
		t.tables = map[string]*Table{}
	}
	if t.tables[name] == nil {
		t.tables[name] = &Table{}
	}
	return t.tables[name]
}

// TableNames implements [storage.Tables]. A table without rows was not created.
func (t *Tables) TableNames(ctx context.Context, prefix string) (names []string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, table := range t.tables {
		if strings.HasPrefix(name, prefix) && len(table.rows) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, ctx.Err()
}

// Drop implements [storage.Tables].
func (t *Tables) Drop(ctx context.Context, name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if table := t.tables[name]; table != nil && ctx.Err() == nil {
		table.mu.Lock()
		defer table.mu.Unlock()
		table.rows = nil
	}
	return ctx.Err()
}
