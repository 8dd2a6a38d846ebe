package admission

import "time"

const (
	// maxEntries bounds a table, because senders can name any number of targets.
	maxEntries = 4096
	// evictionSample is how many entries a removal compares.
	evictionSample = 8
)

// table keeps the state of targets by name. If it is full, it forgets a target that has no calls in flight.
type table[V any] map[string]*entry[V]

// entry is the state of one target.
type entry[V any] struct {
	value V
	// calls are those in flight.
	calls int
	used  time.Time
}

// get returns the entry of a name, a new one if there is none.
func (t table[V]) get(name string, now time.Time) *entry[V] {
	e := t[name]
	if e == nil {
		if len(t) >= maxEntries {
			t.evict()
		}
		e = new(entry[V])
		t[name] = e
	}
	e.used = now
	return e
}

// evict removes the least recently used of some entries without calls. The order of a map is random.
func (t table[V]) evict() {
	seen, oldest := 0, ""
	for name, e := range t {
		if e.calls > 0 {
			continue
		}
		if seen == 0 || e.used.Before(t[oldest].used) {
			oldest = name
		}
		if seen++; seen == evictionSample {
			break
		}
	}
	if seen > 0 {
		delete(t, oldest)
	}
}
