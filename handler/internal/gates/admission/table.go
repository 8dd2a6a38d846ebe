package admission

import (
	"hash/maphash"
	"strconv"
	"time"
)

const (
	// maxEntries bounds a table, because senders can name any number of targets.
	maxEntries = 4096
	// maxLooks is how many entries a full table looks at to make room for a new one. So the cost of a message does not
	// depend on the number of targets.
	maxLooks = 8
	// commonEntries is how many entries are shared by the targets of a group that have none of their own. A group has
	// only one if those of other groups have reached maxEntries.
	commonEntries = 1024
)

// table keeps the state of targets by name. It forgets an entry only to make room for another, and only if the entry is
// at rest: then a new entry would decide in the same way. While no entry is at rest, new targets get none. A sender who
// names any number of targets can therefore not make the gate forget a limit; it only treats new targets more strictly.
type table[V any] struct {
	// atRest reports whether a value without calls in flight is at rest.
	atRest  func(*V, time.Time) bool
	entries map[string]*entry[V]
	// ring has the same entries. Latest is the index of the one that was looked at last.
	ring   []*entry[V]
	latest int
	// common has the entries that targets share. They are never forgotten.
	common map[string]*entry[V]
	seed   maphash.Seed
}

// entry is the state of one target, or of several that share it.
type entry[V any] struct {
	name  string
	value V
	// calls are those in flight.
	calls int
}

func newTable[V any](atRest func(*V, time.Time) bool) *table[V] {
	return &table[V]{
		atRest:  atRest,
		entries: map[string]*entry[V]{},
		common:  map[string]*entry[V]{},
		seed:    maphash.MakeSeed(),
	}
}

// get returns the entry of a name, a new one if there is none, or nil if there is no room for a new one.
func (t *table[V]) get(name string, now time.Time) *entry[V] {
	if e := t.entries[name]; e != nil {
		return e
	}
	e := &entry[V]{name: name}
	switch {
	case len(t.ring) < maxEntries:
		t.ring = append(t.ring, e)
	case t.forget(now):
		t.ring[t.latest] = e
	default:
		return nil
	}
	t.entries[name] = e
	return e
}

// getOrShare returns the entry of a name. If there is no room for it, it returns one that the name shares with others
// of its group, always the same one. A target cannot avoid a limit by changing between the two, because it changes only
// while the one that it leaves is at rest.
func (t *table[V]) getOrShare(name, group string, now time.Time) *entry[V] {
	if e := t.entries[name]; e != nil {
		return e
	}
	key := group + " " + strconv.FormatUint(maphash.String(t.seed, name)%commonEntries, 10)
	shared := t.common[key]
	if shared == nil && len(t.common) >= maxEntries {
		key = group
		shared = t.common[key]
	}
	if shared == nil || t.rests(shared, now) {
		if e := t.get(name, now); e != nil {
			return e
		}
	}
	if shared == nil {
		shared = &entry[V]{name: key}
		t.common[key] = shared
	}
	return shared
}

// forget removes one of the next few entries that is at rest, and reports whether there is one. Latest is then its
// place in the ring.
func (t *table[V]) forget(now time.Time) bool {
	for range maxLooks {
		t.latest = (t.latest + 1) % len(t.ring)
		e := t.ring[t.latest]
		if t.rests(e, now) {
			delete(t.entries, e.name)
			return true
		}
	}
	return false
}

func (t *table[V]) rests(e *entry[V], now time.Time) bool {
	return e.calls == 0 && t.atRest(&e.value, now)
}
