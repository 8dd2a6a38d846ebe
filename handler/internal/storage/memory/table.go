package memory

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"asynccaller/handler/internal/storage"
)

// precision is that of the service's times.
const precision = 100 * time.Nanosecond

// Table is a table in memory. The zero value is empty.
type Table struct {
	mu       sync.Mutex
	entities map[name]storage.Entity
	versions int
	// err, unless nil, is the error of every operation.
	err error
}

// name is the key of an entity without a version.
type name struct{ partition, id string }

func nameOf(k storage.Key) name { return name{k.Partition, k.ID} }

var _ storage.Table = (*Table)(nil)

// Now returns the time of its clock, which is that of this machine.
func (*Table) Now() time.Time { return time.Now() }

// Fail makes every operation fail with the error, until it is called with nil.
func (t *Table) Fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
}

// Put implements [storage.Table].
func (t *Table) Put(ctx context.Context, entities []storage.Entity) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.check(ctx); err != nil {
		return err
	}
	for _, entity := range entities {
		t.put(entity)
	}
	return nil
}

// Insert implements [storage.Table].
func (t *Table) Insert(ctx context.Context, entities []storage.Entity) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.check(ctx); err != nil {
		return err
	}
	for _, entity := range entities {
		if _, exists := t.entities[nameOf(entity.Key)]; !exists {
			t.put(entity)
		}
	}
	return nil
}

func (t *Table) put(entity storage.Entity) (version string) {
	if t.entities == nil {
		t.entities = map[name]storage.Entity{}
	}
	t.versions++
	entity.Version, entity.WrittenAt = strconv.Itoa(t.versions), time.Now().UTC().Truncate(precision)
	t.entities[nameOf(entity.Key)] = entity
	return entity.Version
}

// Replace implements [storage.Table].
func (t *Table) Replace(ctx context.Context, entity storage.Entity) (version string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.check(ctx); err != nil || t.entities[nameOf(entity.Key)].Version != entity.Version {
		return "", err
	}
	return t.put(entity), nil
}

// Delete implements [storage.Table].
func (t *Table) Delete(ctx context.Context, keys []storage.Key) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.check(ctx); err != nil {
		return err
	}
	for _, k := range keys {
		if k.Version == "" || k.Version == t.entities[nameOf(k)].Version {
			delete(t.entities, nameOf(k))
		}
	}
	return nil
}

// Get implements [storage.Table].
func (t *Table) Get(ctx context.Context, partition, id string) (storage.Entity, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entity, ok := t.entities[name{partition, id}]
	return entity, ok, t.check(ctx)
}

// List implements [storage.Table].
func (t *Table) List(ctx context.Context, q storage.Query, see func(storage.Entity) error) error {
	t.mu.Lock()
	err := t.check(ctx)
	entities := slices.SortedFunc(maps.Values(t.entities), func(a, b storage.Entity) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.ID, b.ID))
	})
	t.mu.Unlock()
	for _, entity := range entities {
		isSelected := (q.Partition == "" || q.Partition == entity.Partition) &&
			strings.HasPrefix(entity.ID, q.IDPrefix) && isWithin(entity.WrittenAt, q.WrittenAfter, q.WrittenBefore)
		for name, before := range q.Before {
			at, _ := entity.Values[name].(time.Time)
			isSelected = isSelected && isWithin(at, time.Time{}, before)
		}
		if err != nil || !isSelected {
			continue
		}
		if q.Select != nil {
			entity.Values = maps.Clone(entity.Values)
			maps.DeleteFunc(entity.Values, func(name string, _ any) bool { return !slices.Contains(q.Select, name) })
		}
		err = see(entity)
	}
	return err
}

// Effect is what a [Change] does with an entity.
type Effect int

// The effects. Insert refuses to write an entity that exists. Replace and Merge write it in either case, unless a
// version is demanded, and Merge keeps the values that the change does not have.
const (
	Insert Effect = iota
	Replace
	Merge
	Remove
)

// AnyVersion is the version of an entity that must exist.
const AnyVersion = "*"

// Change is a write of one entity under the condition of its Version: an empty one demands nothing.
type Change struct {
	Effect Effect
	storage.Entity
}

// Why a change is refused.
var (
	ErrExists  = errors.New("the entity exists")
	ErrMissing = errors.New("the entity does not exist")
	ErrVersion = errors.New("the entity has another version")
)

// Change writes all entities, each another one, or none. It returns the new versions, or an error and the number of the
// change that it is about.
func (t *Table) Change(ctx context.Context, changes []Change) (versions []string, failed int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.check(ctx); err != nil {
		return nil, 0, err
	}
	for i, change := range changes {
		entity, exists := t.entities[nameOf(change.Key)]
		switch {
		case change.Effect == Insert && exists:
			return nil, i, ErrExists
		case change.Version != "" && !exists:
			return nil, i, ErrMissing
		case change.Version != "" && change.Version != AnyVersion && change.Version != entity.Version:
			return nil, i, ErrVersion
		}
	}
	versions = make([]string, len(changes))
	for i, change := range changes {
		if change.Effect == Remove {
			delete(t.entities, nameOf(change.Key))
			continue
		}
		if change.Effect == Merge {
			merged := maps.Clone(change.Values)
			for name, value := range t.entities[nameOf(change.Key)].Values {
				if _, isNew := merged[name]; !isNew {
					merged[name] = value
				}
			}
			change.Values = merged
		}
		versions[i] = t.put(change.Entity)
	}
	return versions, 0, nil
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

// TableNames implements [storage.Tables]. A table without entities was not created.
func (t *Tables) TableNames(ctx context.Context, prefix string) (names []string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, table := range t.tables {
		if strings.HasPrefix(name, prefix) && len(table.entities) > 0 {
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
		table.entities = nil
	}
	return ctx.Err()
}
