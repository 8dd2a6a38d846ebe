package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"asynccaller/handler/internal/record"
	"asynccaller/handler/internal/storage"
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

// main is the queue of most rows.
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

func (a *table) put(queue string, rows ...storage.Row) {
	a.t.Helper()
	a.must(a.Put(a.t.Context(), queue, rows))
}

func (a *table) delete(keys ...storage.Key) {
	a.t.Helper()
	a.must(a.Delete(a.t.Context(), main, keys))
}

func (a *table) get(id string) (storage.Row, bool) {
	a.t.Helper()
	row, found, err := a.Get(a.t.Context(), main, id)
	a.must(err)
	return row, found
}

func (a *table) list(q storage.Query) (rows []storage.Row) {
	a.t.Helper()
	a.must(a.List(a.t.Context(), q, func(row storage.Row) error {
		rows = append(rows, row)
		return nil
	}))
	return rows
}

// wantIDs checks the queues and ids of rows.
func (a *table) wantIDs(q storage.Query, want string) {
	a.t.Helper()
	var got []string
	for _, row := range a.list(q) {
		got = append(got, row.Queue+"/"+row.ID)
	}
	if text := strings.Join(got, " "); text != want {
		a.t.Errorf("%+v lists %q, want %q", q, text, want)
	}
}

var due = time.Date(2030, 2, 3, 4, 5, 6, 0, time.UTC)

// example returns a row with all members.
func example(id string) storage.Row {
	return storage.Row{
		ID: id, PopReceipt: "AgAAAAMAAAAAAAAA+/=", RequestID: "order-1", TargetHost: "t.example:8443",
		Route: "/orders/{n}", Reason: "temporary_status", Status: 503, Attempts: 3,
		CreatedAt: due.Add(-time.Hour), NextAttemptAt: due, Deadline: due.Add(time.Hour),
		Organization: "org", Environment: "env", Repeated: true, Content: []byte("{\"a\":\"\xff\x00\"}"),
		Called: true, Action: "reschedule", Writes: "another", At: due.Add(-time.Minute),
		Cause: "connection refused", Answer: "{\"error\":\"down\"}", App: "app-1",
		Since: due.Add(-time.Hour), OpenAt: due.Add(-time.Second),
		Reads: "pause", By: "anna@ops-7", Until: due.Add(time.Minute),
	}
}

func manyRows(n int) []storage.Row {
	rows := make([]storage.Row, n)
	for i := range rows {
		rows[i] = example(fmt.Sprintf("%08d-0000-4000-8000-000000000000", i))
	}
	return rows
}

func testMissing(a *table) {
	a.delete(storage.Key{ID: "1"})
	a.delete(storage.Key{ID: "1"}, storage.Key{ID: "2"})
	if _, found := a.get("1"); found {
		a.t.Error("a row in a missing table")
	}
	a.wantIDs(storage.Query{}, "")
}

func testPutAndGet(a *table) {
	want := example("1")
	a.put("main", want)
	got, found := a.get("1")
	if got.Version == "" || !found {
		a.t.Errorf("found %t, version %q", found, got.Version)
	}
	if age := time.Since(got.WrittenAt); age.Abs() > 10*time.Second {
		a.t.Errorf("written %v ago", age)
	}
	want.Queue, want.Version, want.WrittenAt = "main", got.Version, got.WrittenAt
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		a.t.Errorf("got  %+v\nwant %+v", got, want)
	}
	listed := a.list(storage.Query{Content: true})
	if len(listed) != 1 || fmt.Sprintf("%+v", listed[0]) != fmt.Sprintf("%+v", want) {
		a.t.Errorf("listed %+v\nwant %+v", listed, want)
	}
	listed = a.list(storage.Query{})
	if len(listed) != 1 || listed[0].Content != nil || listed[0].Version != want.Version ||
		!listed[0].WrittenAt.Equal(want.WrittenAt) {
		a.t.Errorf("listed without content %+v", listed)
	}
}

func testReplace(a *table) {
	a.put("main", example("1"))
	before, _ := a.get("1")
	a.put("main", storage.Row{ID: "1", Attempts: 9})
	after, _ := a.get("1")
	if after.Version == before.Version || after.Attempts != 9 || after.RequestID != "" || after.Repeated ||
		len(after.Content) > 0 || !after.Deadline.IsZero() {
		a.t.Errorf("replaced by %+v, before %+v", after, before)
	}
}

// replace writes a row under the condition of its version.
func (a *table) replace(row storage.Row, want bool) {
	a.t.Helper()
	version, err := a.Replace(a.t.Context(), main, row)
	a.must(err)
	if (version != "") != want {
		a.t.Errorf("replaced %+v: %q, want %t", row, version, want)
	}
	if got, _ := a.get(row.ID); want && got.Version != version {
		a.t.Errorf("version %q, want %q", version, got.Version)
	}
}

// testReplaceVersion: only the client that knows the latest version changes a row.
func testReplaceVersion(a *table) {
	a.replace(storage.Row{ID: "1", Version: "W/\"datetime'2026-01-01T00%3A00%3A00Z'\""}, false)
	a.replace(storage.Row{ID: "1", Attempts: 1}, true) // also creates the table
	a.replace(storage.Row{ID: "1", Attempts: 2}, false)
	first, _ := a.get("1")
	changed := example("1")
	changed.Version = first.Version
	a.replace(changed, true)
	a.replace(storage.Row{ID: "1", Version: first.Version, Attempts: 4}, false)
	got, _ := a.get("1")
	if got.Version == first.Version || got.Attempts != changed.Attempts || got.Cause != changed.Cause {
		a.t.Errorf("got %+v, want %+v", got, changed)
	}
	a.delete(storage.Key{ID: "1"})
	a.replace(storage.Row{ID: "1", Version: got.Version}, false)
	if _, found := a.get("1"); found {
		a.t.Error("replaced a row that is gone")
	}
}

// testReplaceAtOnce: of clients that write a row at the same moment, one succeeds.
func testReplaceAtOnce(a *table) {
	a.put(main, example("other")) // the table exists
	for round := range 5 {
		row, _ := a.get("1")
		var writing sync.WaitGroup
		var done atomic.Int32
		for client := range 4 {
			writing.Go(func() {
				next := storage.Row{ID: "1", Version: row.Version, Attempts: client}
				version, err := a.Replace(a.t.Context(), main, next)
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
			a.t.Errorf("round %d: %d clients wrote the row, want 1", round, n)
		}
	}
}

// testPutMany: the largest write.
func testPutMany(a *table) {
	rows := manyRows(100)
	for i := range rows {
		rows[i].Content = bytes.Repeat([]byte{byte(i)}, 10<<10)
	}
	rows[0].Content = bytes.Repeat([]byte{1}, 64<<10)
	a.put("main", rows...)
	listed := a.list(storage.Query{Content: true})
	if len(listed) != len(rows) {
		a.t.Fatalf("%d rows, want %d", len(listed), len(rows))
	}
	for i, row := range listed {
		if row.ID != rows[i].ID || !bytes.Equal(row.Content, rows[i].Content) {
			a.t.Fatalf("row %d: %s with %d bytes", i, row.ID, len(row.Content))
		}
	}
}

func testDelete(a *table) {
	a.put("main", example("1"), example("2"))
	a.put("other", example("1"))
	a.delete(storage.Key{ID: "1"})
	a.delete(storage.Key{ID: "1"})
	a.delete()
	a.wantIDs(storage.Query{}, "main/2 other/1")
}

func testDeleteVersion(a *table) {
	a.put("main", example("1"), example("2"))
	old, _ := a.get("1")
	a.put("main", example("1"))
	a.delete(storage.Key{ID: "1", Version: old.Version})
	a.wantIDs(storage.Query{}, "main/1 main/2")
	current, _ := a.get("1")
	a.delete(storage.Key{ID: "1", Version: current.Version})
	a.wantIDs(storage.Query{}, "main/2")
}

// testDeleteMany: rows that are missing or have another version do not protect the others.
func testDeleteMany(a *table) {
	rows := manyRows(100)
	a.put("main", rows...)
	a.delete(storage.Key{ID: rows[3].ID})
	keys := make([]storage.Key, len(rows))
	for i, row := range a.list(storage.Query{}) {
		keys[i] = storage.Key{ID: row.ID, Version: row.Version}
	}
	keys[len(keys)-1] = storage.Key{ID: rows[3].ID}
	a.put("main", rows[7])
	a.delete(keys...)
	a.wantIDs(storage.Query{}, "main/"+rows[7].ID)
}

func testList(a *table) {
	early, late := example("b"), example("a")
	early.NextAttemptAt, late.NextAttemptAt = due, due.Add(time.Second)
	a.put("main", early, late)
	a.put("also", example("c"))
	a.put("heartbeat", storage.Row{ID: "no-time"})
	a.wantIDs(storage.Query{}, "also/c heartbeat/no-time main/a main/b")
	a.wantIDs(storage.Query{Queue: "main"}, "main/a main/b")
	a.wantIDs(storage.Query{Queue: "main", DueBefore: due.Add(time.Second)}, "main/b")
	a.wantIDs(storage.Query{DueBefore: due}, "")
	a.wantIDs(storage.Query{Queue: "none"}, "")
}

func testListEnds(a *table) {
	a.put("main", manyRows(20)...)
	enough, seen := errors.New("enough"), 0
	err := a.List(a.t.Context(), storage.Query{}, func(storage.Row) error {
		seen++
		if seen == 3 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || seen != 3 {
		a.t.Errorf("saw %d rows, %v", seen, err)
	}
}

// testListByTime: rows are selected by the time of their latest write.
func testListByTime(a *table) {
	a.put("main", example("1"), example("2"))
	before, _ := a.get("1")
	if second, _ := a.get("2"); second.WrittenAt.After(before.WrittenAt) {
		before = second
	}
	const precision = time.Millisecond // of Azurite
	for after := before; after.WrittenAt.Sub(before.WrittenAt) < 2*precision; after, _ = a.get("1") {
		a.put("main", example("1"))
	}
	a.wantIDs(storage.Query{Queue: "main", WrittenAfter: before.WrittenAt}, "main/1")
	a.wantIDs(storage.Query{Queue: "main", WrittenAfter: before.WrittenAt.Add(-time.Hour)}, "main/1 main/2")
	a.wantIDs(storage.Query{WrittenBefore: before.WrittenAt.Add(precision)}, "main/2")
	a.wantIDs(storage.Query{WrittenBefore: before.WrittenAt.Add(-time.Hour)}, "")
}

// testPartitions: the name of a partition selects its rows and no others, whatever a sender has put into it.
func testPartitions(a *table) {
	tokens := []string{"T0KEN", "t0ken", "run", "x' or PartitionKey ne 'x", "/\\?#%2e", strings.Repeat("~", 64)}
	for _, token := range tokens {
		name := record.Partition(token)
		a.put(name, example(name))
		if rows := a.list(storage.Query{Queue: name}); len(rows) != 1 || rows[0].ID != name {
			a.t.Errorf("%q: %+v", token, rows)
		}
	}
	a.wantIDs(storage.Query{Queue: "x' or PartitionKey ne 'x"}, "")
	if n := len(a.list(storage.Query{})); n != 6 {
		a.t.Errorf("%d rows, want 6", n)
	}
	a.must(a.Delete(a.t.Context(), record.Partition("run"), []storage.Key{{ID: record.Partition("run")}}))
	a.wantIDs(storage.Query{Queue: record.Partition("run")}, "")
}

// testHostile: whatever a sender has written, the row can be written, and the others of its batch with it.
func testHostile(a *table) {
	for i, text := range []string{
		"'; DROP", "\x00\x1b[2J\u202e", "\xff\xfe", strings.Repeat("ä", 60_000), "日本/\\?#%27&\"<>", "",
	} {
		row := example(fmt.Sprint(i))
		row.RequestID, row.TargetHost, row.Route = text, text, text
		row.Reason, row.Organization, row.Environment = text, text, text
		row.Status, row.Attempts = 1<<40, -1
		a.put("main", row, example("other"))
		if _, found := a.get(row.ID); !found {
			a.t.Errorf("%.20q: no row", text)
		}
	}
	if n := len(a.list(storage.Query{})); n != 7 {
		a.t.Errorf("%d rows, want 7", n)
	}
}

// testTimes: a time that the table cannot hold does not matter.
func testTimes(a *table) {
	for i, at := range []time.Time{
		{},
		time.Date(1500, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Unix(1<<40, 0),
	} {
		row := example(fmt.Sprint(i))
		row.CreatedAt, row.Deadline = at, at
		row.NextAttemptAt = due.In(time.FixedZone("", 3600)).Add(123456789)
		a.put("main", row)
		got, found := a.get(row.ID)
		if !found || got.NextAttemptAt.Sub(row.NextAttemptAt).Abs() > time.Microsecond {
			a.t.Errorf("%v: found %t, next attempt at %v", at, found, got.NextAttemptAt)
		}
	}
}

func testContext(a *table) {
	a.put("main", example("1"))
	ctx, cancel := context.WithCancel(a.t.Context())
	cancel()
	_, _, getErr := a.Get(ctx, "main", "1")
	_, replaceErr := a.Replace(ctx, "main", storage.Row{ID: "2"})
	for operation, err := range map[string]error{
		"put":     a.Put(ctx, "main", manyRows(1)),
		"delete":  a.Delete(ctx, "main", []storage.Key{{ID: "1"}}),
		"get":     getErr,
		"replace": replaceErr,
		"list":    a.List(ctx, storage.Query{}, func(storage.Row) error { return nil }),
	} {
		if !errors.Is(err, context.Canceled) {
			a.t.Errorf("%s: %v", operation, err)
		}
	}
	a.wantIDs(storage.Query{}, "main/1")
}

func testListByPrefix(a *table) {
	for _, queue := range []string{"main", "other"} {
		a.put(queue, example("ab.1"), example("ab.2"), example("a"), example("abc.3"), example("b"))
	}
	a.wantIDs(storage.Query{Queue: "main", IDPrefix: "ab."}, "main/ab.1 main/ab.2")
	a.wantIDs(storage.Query{Queue: "main", IDPrefix: "z"}, "")
}

// RunTables checks tables of an account that may have others. Prefix begins the names of those of the test.
func RunTables(t *testing.T, tables storage.Tables, prefix string) {
	t.Helper()
	ctx := t.Context()
	names := []string{prefix + "202511", prefix + "202512"}
	for _, name := range append(names, prefix[:len(prefix)-1]) {
		a := &table{Table: tables.Table(name), t: t}
		a.put("main", example(name))
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
		t.Errorf("the dropped table has its row: %t, %v", found, err)
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
