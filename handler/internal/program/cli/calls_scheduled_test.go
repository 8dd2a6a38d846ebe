package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/observers/sight/sighttest"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/program/terminal"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// newRowsSession returns a session with these rows, whose messages are gone.
func newRowsSession(t *testing.T, scheduled ...record.Row) *testSession {
	t.Helper()
	d := newTestSession(t)
	table := &memory.Table{}
	d.account.Table = table
	for _, row := range scheduled {
		if row.Content == nil {
			row.Content = fmt.Appendf(nil, `{"asyncCaller":1,"requestId":%q,"createdAt":%q,"attempts":2,`+
				`"call":{"url":"https://t.example/orders/7?code=CANARY",`+
				`"headers":{"Authorization":"CANARY"}},"trail":[{"at":%q,"status":503,"tookMs":12}]}`, row.RequestID,
				row.CreatedAt.Format(time.RFC3339), row.CreatedAt.Format(time.RFC3339))
		}
		if err := rows.Put(t.Context(), table, row); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// rowAt returns a row whose message is due after a while.
func rowAt(id, host string, wait time.Duration) record.Row {
	now := time.Now()
	return record.Row{
		Key:       storage.Key{Partition: "async-caller", ID: id},
		RequestID: "r-" + id, PopReceipt: "RECEIPT", TargetHost: host,
		PathPattern: "/orders/{n}", Reason: "temporary_status",
		Status: 503, Attempts: 2, CreatedAt: now.Add(-time.Hour), NextAttemptAt: now.Add(wait),
		Deadline: now.Add(48 * time.Hour),
	}
}

func TestListScheduled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newRowsSession(t, rowAt("aaaaaaaa-1", "one.example", 30*time.Minute),
			rowAt("bbbbbbbb-2", "two.example", -time.Minute), rowAt("cccccccc-3", "two.example", -time.Hour),
			rowAt("dddddddd-4", "two.example", -10*time.Minute))
		if err := d.listCalls(t.Context(), ofScheduled(account.Source{})); err != nil {
			t.Fatal(err)
		}
		want := "ID         NEXT  ATT  REASON            STATUS  ENDS  REQUEST         CALL\n" +
			"cccccccc  stale    2  temporary_status     503    2d  r-cccccccc-3    two.example/orders/{n}\n" +
			"dddddddd    due    2  temporary_status     503    2d  r-dddddddd-4    two.example/orders/{n}\n" +
			"bbbbbbbb    due    2  temporary_status     503    2d  r-bbbbbbbb-2    two.example/orders/{n}\n" +
			"aaaaaaaa    30m    2  temporary_status     503    2d  r-aaaaaaaa-1    one.example/orders/{n}\n"
		if got := d.stdout.String(); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
			t.Errorf("printed\n%swant\n%s", got, want)
		}
		if d.err.String() != "4 messages\n" {
			t.Errorf("summary %q", d.err.String())
		}
	})
}

// TestListScheduledJSON checks that a line has the fields of the row, but neither receipt nor content.
func TestListScheduledJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newRowsSession(t, rowAt("aaaaaaaa-1", "one.example", 30*time.Minute))
		d.json = true
		if err := d.listCalls(t.Context(), ofScheduled(account.Source{})); err != nil {
			t.Fatal(err)
		}
		var line map[string]any
		if err := json.Unmarshal(d.stdout.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]any{
			"queue": "async-caller", "id": "aaaaaaaa-1", "requestId": "r-aaaaaaaa-1", "host": "one.example",
			"pathPattern": "/orders/{n}", "reason": "temporary_status",
			"status": 503.0, "attempts": 2.0, "state": "waiting", "nextAttemptAt": time.Now().Add(30 * time.Minute).
					UTC().Format(time.RFC3339),
		} {
			if line[name] != want {
				t.Errorf("%s is %v, want %v", name, line[name], want)
			}
		}
		if text := d.stdout.String(); strings.Contains(text, "RECEIPT") || strings.Contains(text, "CANARY") {
			t.Errorf("printed %s", text)
		}
	})
}

// TestListScheduledByMethod: a filter by method selects by the content: rows of earlier versions have no method.
func TestListScheduledByMethod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newRowsSession(t, rowAt("aaaaaaaa-1", "one.example", 30*time.Minute))
		for method, want := range map[string]string{"get": "GET one.example/orders/{n}\n", "post": ""} {
			d.stdout.Reset()
			source := account.Source{Filter: message.Filter{Methods: []string{method}}}
			if err := d.listCalls(t.Context(), ofScheduled(source)); err != nil {
				t.Fatal(err)
			}
			if got := d.stdout.String(); !strings.HasSuffix(got, want) || (got == "") != (want == "") {
				t.Errorf("%s: %s", method, got)
			}
		}
	})
}

func TestGroupScheduled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := rowAt("eeeeeeee-5", "two.example", 5*time.Hour)
		other.Status = 0
		d := newRowsSession(t, rowAt("aaaaaaaa-1", "one.example", 30*time.Minute),
			rowAt("bbbbbbbb-2", "two.example", -time.Minute),
			rowAt("cccccccc-3", "two.example", -time.Hour), rowAt("dddddddd-4", "two.example", time.Minute), other)
		d.json = true
		if err := d.groupCalls(t.Context(), ofScheduled(account.Source{}), message.ByHost); err != nil {
			t.Fatal(err)
		}
		var got []message.ScheduledGroup
		for line := range strings.Lines(d.stdout.String()) {
			var g message.ScheduledGroup
			if err := json.Unmarshal([]byte(line), &g); err != nil {
				t.Fatal(err)
			}
			got = append(got, g)
		}
		if len(got) != 2 || got[0].Key != "two.example" || got[0].Count != 4 || got[0].DueInMinute != 2 ||
			got[0].DueInHour != 2 || got[0].Stale != 1 ||
			len(got[0].Statuses) != 2 || got[0].Statuses[503] != 3 || got[1].DueInHour != 1 || got[1].DueInMinute != 0 {
			t.Errorf("groups %+v", got)
		}
	})
}

// TestHostileRows checks that a writer to the table controls neither the terminal nor the width of the output.
func TestHostileRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := strings.Repeat("x\x1b[2J\u202e\n", 100)
		d := newRowsSession(t)
		known := &memory.Table{}
		d.account.Sight = sight.NewReader(known)
		row := storage.Entity{Key: storage.Key{Partition: text, ID: text}, Values: map[string]any{
			"requestId": "r", "targetHost": text, "route": text, "reason": text, "organization": text,
			"environment": text, "status": int32(math.MinInt32), "attempts": int32(math.MaxInt32),
			"content": []byte(text), "cause": text, "answer": text,
		}}
		sighttest.Fail(t, known, sight.Target{
			App: text, Host: targets.HostOf(text), Cause: text, Answer: text, Since: time.Now(), Latest: time.Now(),
		})
		if err := d.account.Table.Put(t.Context(), []storage.Entity{row}); err != nil {
			t.Fatal(err)
		}
		for name, print := range map[string]func() error{
			"list":   func() error { return d.listCalls(t.Context(), ofScheduled(account.Source{})) },
			"group":  func() error { return d.groupCalls(t.Context(), ofScheduled(account.Source{}), message.ByPath) },
			"hosts":  func() error { return d.groupCalls(t.Context(), ofScheduled(account.Source{}), message.ByHost) },
			"cause":  func() error { return d.groupCalls(t.Context(), ofScheduled(account.Source{}), message.ByCause) },
			"show":   func() error { return d.show(t.Context(), "r", showOptions{}) },
			"status": func() error { return d.showStatus(t.Context(), false, false, nil) },
		} {
			d.stdout.Reset()
			if err := print(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for line := range strings.Lines(d.stdout.String()) {
				line = strings.TrimSuffix(line, "\n")
				if strings.ContainsAny(line, "\x1b\u202e") ||
					utf8.RuneCountInString(line) > terminal.DefaultWidth && !strings.HasPrefix(line, "    ") &&
						!strings.HasPrefix(line, "  async-caller") {
					t.Errorf("%s: %d columns: %q", name, utf8.RuneCountInString(line), line)
				}
			}
		}
	})
}

func TestShowScheduled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newRowsSession(t, rowAt("aaaaaaaa-1", "t.example", 30*time.Minute),
			rowAt("aaaaaaaa-2", "t.example", 30*time.Minute))
		if err := d.show(t.Context(), "r-aaaaaaaa-1", showOptions{}); err != nil {
			t.Fatal(err)
		}
		got := d.stdout.String()
		for _, want := range []string{
			"message        aaaaaaaa-1 on async-caller\n", ", in 30m\n",
			"attempts       2, latest status 503; 1 in the timeline\n",
			"\ntimeline\n  1h ago ", "answered 503, took 12ms", "  in 30m ",
			"next attempt: it waits because of temporary_status",
			"request      GET https://t.example/orders/7?code=***\n", "Authorization: ***",
			"\nat its next attempt\n  action       call", "calls delete aaaaaaaa-1 --queue async-caller\n",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%q is missing in\n%s", want, got)
			}
		}
		if strings.Contains(got, "CANARY") {
			t.Errorf("a secret is shown:\n%s", got)
		}
		d.stdout.Reset()
		err := d.show(t.Context(), "r-aaaaaaaa-1", showOptions{reveal: true})
		if err != nil || !strings.Contains(d.stdout.String(), "CANARY") {
			t.Errorf("%v, the secret is not revealed:\n%s", err, d.stdout.String())
		}
		for id, want := range map[string]error{"aaaaaaaa": account.ErrAmbiguous, "bbbbbbbb": account.ErrNothing} {
			if _, err := d.account.FindScheduled(t.Context(), account.Source{}, id); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", id, err, want)
			}
		}
	})
}

// manyRows is a table with rows that exist only while they are listed.
type manyRows struct {
	memory.Table
	n int
}

func (r *manyRows) List(_ context.Context, _ storage.Query, see func(storage.Entity) error) error {
	for i := range r.n {
		row, err := rows.Encode(rowAt(fmt.Sprintf("%08d", i), fmt.Sprintf("h%d.example", i), time.Hour))
		if err == nil {
			err = see(row)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// TestManyRows checks that groups need bounded memory, whatever the hosts.
func TestManyRows(t *testing.T) {
	d := newTestSession(t)
	d.account.Table = &manyRows{n: 100_000}
	groups := message.ScheduledGroups{By: message.ByHost, Now: time.Now()}
	var before, memory runtime.MemStats // other tests have left something on the heap
	runtime.GC()
	runtime.ReadMemStats(&before)
	_, err := d.account.ListScheduled(t.Context(), account.Source{}, false, func(m message.Recorded) error {
		groups.Add(m, false)
		return nil
	})
	runtime.GC()
	runtime.ReadMemStats(&memory)
	grown := int64(memory.HeapAlloc) - int64(before.HeapAlloc)
	result := groups.Result()
	if err != nil || len(result) != message.MaxKeys+1 || result[0].Key != message.KeyOthers ||
		result[0].Count != 100_000-message.MaxKeys || grown > 16<<20 {
		t.Errorf("%v: %d groups, the first %+v, %d bytes", err, len(result), result[0], grown)
	}
}

// denied refuses to list the queues.
type denied struct{ storage.Queues }

func (denied) Names(context.Context, string) ([]string, error) { return nil, storage.ErrDenied }

// TestScheduledQueueThatIsGone: the rows of a deleted queue can still be selected, and so can all without permission to
// list queues.
func TestScheduledQueueThatIsGone(t *testing.T) {
	row := rowAt("aaaaaaaa-1", "one.example", time.Hour)
	row.Partition = "deleted"
	d := newRowsSession(t, row)
	check := func(names ...string) error {
		return d.account.CheckQueues(t.Context(),
			account.Source{Queues: names})
	}
	if err := check("deleted", "async-caller"); err != nil {
		t.Error(err)
	}
	if err := check("deleted", "async-caler"); codeOf(withExitCode(t.Context(), err)) != exitUsage ||
		!strings.Contains(err.Error(), "async-caler: queue does not exist in test; did you mean async-caller?") {
		t.Error(err)
	}
	d.account.Store = denied{d.account.Store}
	if err := check("async-caler"); err != nil {
		t.Error(err)
	}
}
