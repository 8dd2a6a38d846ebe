package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// RunTable checks the tables that open returns; open is called once for each test, and returns an empty table.
func RunTable(t *testing.T, open func(t *testing.T) storage.Table) {
	t.Helper()
	for name, test := range map[string]func(*table){
		"missing_table_is_empty": testMissing,
		"put_and_get":            testPutAndGet,
		"put_replaces":           testReplace,
		"put_many":               testPutMany,
		"replace_by_version":     testReplaceVersion,
		"replace_at_once":        testReplaceAtOnce,
		"insert":                 testInsert,
		"delete":                 testDelete,
		"delete_by_version":      testDeleteVersion,
		"delete_many":            testDeleteMany,
		"list_in_order":          testList,
		"list_ends_early":        testListEnds,
		"list_by_time":           testListByTime,
		"list_by_prefix":         testListByPrefix,
		"any_partition":          testPartitions,
		"hostile_texts":          testHostile,
		"times":                  testTimes,
		"context_ended":          testContext,
	} {
		t.Run(name, func(t *testing.T) { test(&table{Table: open(t), t: t}) })
	}
}

// main is the partition of most entities.
const main = "main"

// table is the table of one test. Its methods fail the test.
type table struct {
	storage.Table
	t *testing.T
}

func (a *table) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *table) put(entities ...storage.Entity) {
	a.t.Helper()
	a.must(a.Put(a.t.Context(), entities))
}

func (a *table) delete(keys ...storage.Key) {
	a.t.Helper()
	a.must(a.Delete(a.t.Context(), keys))
}

func (a *table) get(id string) (storage.Entity, bool) {
	a.t.Helper()
	entity, found, err := a.Get(a.t.Context(), main, id)
	a.must(err)
	return entity, found
}

func (a *table) list(q storage.Query) (entities []storage.Entity) {
	a.t.Helper()
	a.must(a.List(a.t.Context(), q, func(entity storage.Entity) error {
		entities = append(entities, entity)
		return nil
	}))
	return entities
}

// wantIDs checks the partitions and ids of entities.
func (a *table) wantIDs(q storage.Query, want string) {
	a.t.Helper()
	var got []string
	for _, entity := range a.list(q) {
		got = append(got, entity.Partition+"/"+entity.ID)
	}
	if text := strings.Join(got, " "); text != want {
		a.t.Errorf("%+v lists %q, want %q", q, text, want)
	}
}

var due = time.Date(2030, 2, 3, 4, 5, 6, 0, time.UTC)

func key(id string) storage.Key { return storage.Key{Partition: main, ID: id} }

// example returns an entity with values of all types.
func example(id string) storage.Entity {
	return storage.Entity{Key: key(id), Values: map[string]any{
		"text": "AgAAAAMAAAAAAAAA+/=<&\"'{n}", "empty": "", "number": int32(3), "most": int32(math.MaxInt32),
		"zero": int32(0), "true": true, "false": false, "due": due,
		"precise": due.Add(time.Second - 100*time.Nanosecond), "bytes": []byte("{\"a\":\"\xff\x00\"}"), "none": []byte{},
	}}
}

// of returns an entity of another partition.
func of(partition string, entity storage.Entity) storage.Entity {
	entity.Partition = partition
	return entity
}

// numbered returns a version of an entity, with a number.
func numbered(version string, number int) storage.Entity {
	return storage.Entity{
		Key:    storage.Key{Partition: main, ID: "1", Version: version},
		Values: map[string]any{"number": int32(number)}, //nolint:gosec // it is small
	}
}

func examples(n int) []storage.Entity {
	entities := make([]storage.Entity, n)
	for i := range entities {
		entities[i] = example(fmt.Sprintf("%08d-0000-4000-8000-000000000000", i))
	}
	return entities
}

func testMissing(a *table) {
	a.delete(key("1"))
	a.delete(key("1"), key("2"))
	if _, found := a.get("1"); found {
		a.t.Error("an entity in a missing table")
	}
	a.wantIDs(storage.Query{}, "")
}

func testPutAndGet(a *table) {
	want := example("1")
	a.put(want)
	got, found := a.get("1")
	if got.Version == "" || !found {
		a.t.Errorf("found %t, version %q", found, got.Version)
	}
	if age := time.Since(got.WrittenAt); age.Abs() > 10*time.Second {
		a.t.Errorf("written %v ago", age)
	}
	want.Version, want.WrittenAt = got.Version, got.WrittenAt
	a.wantEqual(got, want)
	for _, names := range [][]string{nil, {"text", "number", "due", "missing"}, {}} {
		listed := a.list(storage.Query{Select: names})
		if len(listed) != 1 {
			a.t.Fatalf("%d entities", len(listed))
		}
		selected := want
		if names != nil {
			selected.Values = map[string]any{}
			for _, name := range names {
				if value, ok := want.Values[name]; ok {
					selected.Values[name] = value
				}
			}
		}
		a.wantEqual(listed[0], selected)
	}
}

func (a *table) wantEqual(got, want storage.Entity) {
	a.t.Helper()
	if diff := cmp.Diff(want, got, cmp.Comparer(bytes.Equal)); diff != "" { // which takes long byte by byte
		a.t.Errorf("(-want +got):\n%s", diff)
	}
}

func testReplace(a *table) {
	a.put(example("1"))
	before, _ := a.get("1")
	a.put(numbered("", 9))
	after, _ := a.get("1")
	if after.Version == before.Version || len(after.Values) != 1 || after.Values["number"] != int32(9) {
		a.t.Errorf("replaced by %+v, before %+v", after, before)
	}
}

// replace writes an entity under the condition of its version.
func (a *table) replace(entity storage.Entity, want bool) {
	a.t.Helper()
	version, err := a.Replace(a.t.Context(), entity)
	a.must(err)
	if (version != "") != want {
		a.t.Errorf("replaced %+v: %q, want %t", entity, version, want)
	}
	if got, _ := a.get(entity.ID); want && got.Version != version {
		a.t.Errorf("version %q, want %q", version, got.Version)
	}
}

// testReplaceVersion: only the client that knows the latest version changes an entity.
func testReplaceVersion(a *table) {
	a.replace(numbered("W/\"datetime'2026-01-01T00%3A00%3A00Z'\"", 0), false)
	a.replace(numbered("", 1), true) // also creates the table
	a.replace(numbered("", 2), false)
	first, _ := a.get("1")
	changed := example("1")
	changed.Version = first.Version
	a.replace(changed, true)
	a.replace(numbered(first.Version, 4), false)
	got, _ := a.get("1")
	if got.Version == first.Version {
		a.t.Errorf("version %q", got.Version)
	}
	changed.Version, changed.WrittenAt = got.Version, got.WrittenAt
	a.wantEqual(got, changed)
	a.delete(key("1"))
	a.replace(numbered(got.Version, 5), false)
	if _, found := a.get("1"); found {
		a.t.Error("replaced an entity that is gone")
	}
}

// testInsert: an entity of an ID that there is already stays as it is, and the others are written.
func testInsert(a *table) {
	a.must(a.Insert(a.t.Context(), []storage.Entity{numbered("", 1)})) // also creates the table
	before, _ := a.get("1")
	a.must(a.Insert(a.t.Context(), []storage.Entity{example("0"), numbered("", 2), example("3")}))
	a.must(a.Insert(a.t.Context(), []storage.Entity{numbered("", 3)}))
	a.must(a.Insert(a.t.Context(), []storage.Entity{example("4"), example("5")}))
	after, _ := a.get("1")
	a.wantEqual(after, before)
	a.wantIDs(storage.Query{}, "main/0 main/1 main/3 main/4 main/5")
}

// testReplaceAtOnce: of clients that write an entity at the same moment, one succeeds.
func testReplaceAtOnce(a *table) {
	a.put(example("other")) // the table exists
	for round := range 5 {
		entity, _ := a.get("1")
		var writing sync.WaitGroup
		var done atomic.Int32
		for client := range 4 {
			writing.Go(func() {
				version, err := a.Replace(a.t.Context(), numbered(entity.Version, client))
				if err != nil {
					a.t.Error(err)
				}
				if version != "" {
					done.Add(1)
				}
			})
		}
		writing.Wait()
		if n := done.Load(); n != 1 {
			a.t.Errorf("round %d: %d clients wrote the entity, want 1", round, n)
		}
	}
}

// testPutMany: the largest write.
func testPutMany(a *table) {
	entities := examples(100)
	for i := range entities {
		entities[i].Values["bytes"] = bytes.Repeat([]byte{byte(i)}, 10<<10)
	}
	entities[0].Values["bytes"] = bytes.Repeat([]byte{1}, storage.MaxPropertyBytes)
	a.put(entities...)
	listed := a.list(storage.Query{})
	if len(listed) != len(entities) {
		a.t.Fatalf("%d entities, want %d", len(listed), len(entities))
	}
	for i, got := range listed {
		want := entities[i]
		want.Version, want.WrittenAt = got.Version, got.WrittenAt
		a.wantEqual(got, want)
	}
}

func testDelete(a *table) {
	a.put(example("1"), example("2"))
	a.put(of("other", example("1")))
	a.delete(key("1"))
	a.delete(key("1"))
	a.delete()
	a.wantIDs(storage.Query{}, "main/2 other/1")
}

func testDeleteVersion(a *table) {
	a.put(example("1"), example("2"))
	old, _ := a.get("1")
	a.put(example("1"))
	a.delete(old.Key)
	a.wantIDs(storage.Query{}, "main/1 main/2")
	current, _ := a.get("1")
	a.delete(current.Key)
	a.wantIDs(storage.Query{}, "main/2")
}

// testDeleteMany: entities that are missing or have another version do not protect the others.
func testDeleteMany(a *table) {
	entities := examples(100)
	a.put(entities...)
	a.delete(entities[3].Key)
	keys := make([]storage.Key, len(entities))
	for i, entity := range a.list(storage.Query{}) {
		keys[i] = entity.Key
	}
	keys[len(keys)-1] = entities[3].Key
	a.put(entities[7])
	a.delete(keys...)
	a.wantIDs(storage.Query{}, "main/"+entities[7].ID)
}

func testList(a *table) {
	early, late := example("b"), example("a")
	late.Values["due"] = due.Add(time.Second)
	a.put(early, late)
	a.put(of("also", example("c")))
	a.put(of("heartbeat", storage.Entity{Key: key("no-time")}))
	before := func(at time.Time) map[string]time.Time { return map[string]time.Time{"due": at} }
	a.wantIDs(storage.Query{}, "also/c heartbeat/no-time main/a main/b")
	a.wantIDs(storage.Query{Before: before(time.Time{})}, "also/c heartbeat/no-time main/a main/b")
	a.wantIDs(storage.Query{Partition: "main"}, "main/a main/b")
	a.wantIDs(storage.Query{Partition: "main", Before: before(due.Add(time.Second))}, "main/b")
	a.wantIDs(storage.Query{Before: before(due.Add(time.Second)), Select: []string{"text"}}, "also/c main/b")
	a.wantIDs(storage.Query{Before: before(due)}, "")
	a.wantIDs(storage.Query{Partition: "none"}, "")
}

func testListEnds(a *table) {
	a.put(examples(20)...)
	enough, seen := errors.New("enough"), 0
	err := a.List(a.t.Context(), storage.Query{}, func(storage.Entity) error {
		seen++
		if seen == 3 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || seen != 3 {
		a.t.Errorf("saw %d entities, %v", seen, err)
	}
}

// testListByTime: entities are selected by the time of their latest write.
func testListByTime(a *table) {
	a.put(example("1"), example("2"))
	before, _ := a.get("1")
	if second, _ := a.get("2"); second.WrittenAt.After(before.WrittenAt) {
		before = second
	}
	const precision = time.Millisecond // of Azurite
	for after := before; after.WrittenAt.Sub(before.WrittenAt) < 2*precision; after, _ = a.get("1") {
		a.put(example("1"))
	}
	a.wantIDs(storage.Query{Partition: "main", WrittenAfter: before.WrittenAt}, "main/1")
	a.wantIDs(storage.Query{Partition: "main", WrittenAfter: before.WrittenAt.Add(-time.Hour)}, "main/1 main/2")
	a.wantIDs(storage.Query{WrittenBefore: before.WrittenAt.Add(precision)}, "main/2")
	a.wantIDs(storage.Query{WrittenBefore: before.WrittenAt.Add(-time.Hour)}, "")
}

// testPartitions: the name of a partition selects its entities and no others, whatever a sender has put into it.
func testPartitions(a *table) {
	tokens := []string{"T0KEN", "t0ken", "run", "x' or PartitionKey ne 'x", "/\\?#%2e", strings.Repeat("~", 64)}
	for _, token := range tokens {
		name := rows.KeyOf(token)
		a.put(of(name, example(name)))
		if found := a.list(storage.Query{Partition: name}); len(found) != 1 || found[0].ID != name {
			a.t.Errorf("%q: %+v", token, found)
		}
	}
	a.wantIDs(storage.Query{Partition: "x' or PartitionKey ne 'x"}, "")
	if n := len(a.list(storage.Query{})); n != 6 {
		a.t.Errorf("%d entities, want 6", n)
	}
	a.delete(storage.Key{Partition: rows.KeyOf("run"), ID: rows.KeyOf("run")})
	a.wantIDs(storage.Query{Partition: rows.KeyOf("run")}, "")
}

// hostile is a row whose values a sender chooses.
type hostile struct {
	storage.Key

	Text   string    `row:"text"`
	Number int       `row:"number"`
	At     time.Time `row:"at"`
	Due    time.Time `row:"due"`
}

// testHostile: whatever a sender has written, the row can be written, and the others of its batch with it.
func testHostile(a *table) {
	for i, text := range []string{
		"'; DROP", "\x00\x1b[2J\u202e", "\xff\xfe", strings.Repeat("ä", 60_000), "日本/\\?#%27&\"<>", "",
		strings.Repeat("\ufffe\uffff\ufffd", 1000), strings.Repeat("\U0010ffff", 1000),
	} {
		for _, number := range []int{1 << 40, -1} {
			row := hostile{Key: key(fmt.Sprint(i)), Text: text, Number: number}
			a.must(rows.Put(a.t.Context(), a, row, hostile{Key: key("other")}))
			want, err := rows.Encode(row)
			a.must(err)
			got, _ := a.get(row.ID)
			if diff := cmp.Diff(want.Values, got.Values); diff != "" {
				a.t.Errorf("%.20q: (-want +got):\n%s", text, diff)
			}
		}
	}
	if n := len(a.list(storage.Query{})); n != 9 {
		a.t.Errorf("%d rows, want 9", n)
	}
}

// testTimes: a time that the table cannot hold does not matter.
func testTimes(a *table) {
	for i, at := range []time.Time{
		{},
		time.Date(1500, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(1602, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", 3600)),
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -3600)),
		time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Unix(1<<40, 0),
	} {
		row := hostile{Key: key(fmt.Sprint(i)), At: at, Due: due.In(time.FixedZone("", 3600)).Add(123456789)}
		a.must(rows.Put(a.t.Context(), a, row))
		got, found, err := rows.Get[hostile](a.t.Context(), a, main, row.ID)
		a.must(err)
		if !found || got.Due.Sub(row.Due).Abs() > time.Microsecond {
			a.t.Errorf("%v: found %t, due at %v", at, found, got.Due)
		}
		if year := at.UTC().Year(); year < 1602 || year > 9999 {
			at = time.Time{}
		}
		if !got.At.Equal(at) {
			a.t.Errorf("%d: read as %v, want %v", i, got.At, at)
		}
	}
}

func testContext(a *table) {
	a.put(example("1"))
	ctx, cancel := context.WithCancel(a.t.Context())
	cancel()
	_, _, getErr := a.Get(ctx, "main", "1")
	_, replaceErr := a.Replace(ctx, example("2"))
	for operation, err := range map[string]error{
		"put":     a.Put(ctx, examples(1)),
		"delete":  a.Delete(ctx, []storage.Key{key("1")}),
		"get":     getErr,
		"replace": replaceErr,
		"list":    a.List(ctx, storage.Query{}, func(storage.Entity) error { return nil }),
	} {
		if !errors.Is(err, context.Canceled) {
			a.t.Errorf("%s: %v", operation, err)
		}
	}
	a.wantIDs(storage.Query{}, "main/1")
}

func testListByPrefix(a *table) {
	for _, partition := range []string{"main", "other"} {
		for _, id := range []string{"ab.1", "ab.2", "a", "abc.3", "b"} {
			a.put(of(partition, example(id)))
		}
	}
	a.wantIDs(storage.Query{Partition: "main", IDPrefix: "ab."}, "main/ab.1 main/ab.2")
	a.wantIDs(storage.Query{Partition: "main", IDPrefix: "z"}, "")
}

// RunTables checks tables of an account that may have others. Prefix begins the names of those of the test.
func RunTables(t *testing.T, tables storage.Tables, prefix string) {
	t.Helper()
	ctx := t.Context()
	names := []string{prefix + "202511", prefix + "202512"}
	for _, name := range append(names, prefix[:len(prefix)-1]) {
		a := &table{Table: tables.Table(name), t: t}
		a.put(example(name))
		defer func() { a.must(tables.Drop(context.WithoutCancel(ctx), name)) }()
	}
	wantNames := func(want ...string) {
		t.Helper()
		got, err := tables.TableNames(ctx, prefix)
		if err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("tables %v, %v, want %v", got, err, want)
		}
	}
	wantNames(names...)
	for range 2 {
		if err := tables.Drop(ctx, names[0]); err != nil {
			t.Error(err)
		}
	}
	wantNames(names[1])
	_, found, err := tables.Table(names[0]).Get(ctx, "main", names[0])
	if found || err != nil {
		t.Errorf("the dropped table has its entity: %t, %v", found, err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := tables.TableNames(ended, prefix); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v after the end of the context", err)
	}
	if err := tables.Drop(ended, names[1]); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v after the end of the context", err)
	}
}
