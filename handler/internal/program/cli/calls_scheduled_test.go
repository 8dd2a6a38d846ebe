package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
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

// TestListScheduled: a line has the fields of the row, but neither receipt nor content.
func TestListScheduled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newRowsSession(t, rowAt("aaaaaaaa-1", "one.example", 30*time.Minute),
			rowAt("bbbbbbbb-2", "two.example", -time.Minute), rowAt("cccccccc-3", "two.example", -time.Hour))
		if err := d.listCalls(t.Context(), ofScheduled(account.Source{})); err != nil {
			t.Fatal(err)
		}
		const want = `ID         NEXT  ATT  REASON            STATUS  ENDS  REQUEST   CALL
cccccccc  stale    2  temporary_status     503    2d  r-cccccccc-3  two.example/orders/{n}
bbbbbbbb    due    2  temporary_status     503    2d  r-bbbbbbbb-2  two.example/orders/{n}
aaaaaaaa    30m    2  temporary_status     503    2d  r-aaaaaaaa-1  one.example/orders/{n}
`
		if got := d.stdout.String(); got != want || d.err.String() != "3 messages\n" {
			t.Errorf("printed\n%swant\n%s%s", got, want, d.err.String())
		}
		d.stdout.Reset()
		d.json = true
		if err := d.listCalls(t.Context(), ofScheduled(account.Source{IDs: []string{"aaaaaaaa-1"}})); err != nil {
			t.Fatal(err)
		}
		var line map[string]any
		if err := json.Unmarshal(d.stdout.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]any{
			"queue": "async-caller", "id": "aaaaaaaa-1", "requestId": "r-aaaaaaaa-1", "host": "one.example",
			"pathPattern": "/orders/{n}", "reason": "temporary_status", "status": 503.0, "attempts": 2.0,
			"state": "scheduled", "nextAttemptAt": time.Now().Add(30 * time.Minute).UTC().Format(time.RFC3339),
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

// TestGroupScheduled: a group counts what is due and what is stale. The number of groups is bounded.
func TestGroupScheduled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const others = 10
		other := rowAt("eeeeeeee-5", "two.example", 5*time.Hour)
		other.Status = 0
		scheduled := []record.Row{
			rowAt("aaaaaaaa-1", "one.example", 30*time.Minute), rowAt("bbbbbbbb-2", "two.example", -time.Minute),
			rowAt("cccccccc-3", "two.example", -time.Hour), rowAt("dddddddd-4", "two.example", time.Minute), other,
		}
		groups := func() (got []message.ScheduledGroup) {
			d := newRowsSession(t, scheduled...)
			d.json = true
			if err := d.groupCalls(t.Context(), ofScheduled(account.Source{}), message.ByHost); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(d.stdout.String()) {
				var g message.ScheduledGroup
				if err := json.Unmarshal([]byte(line), &g); err != nil {
					t.Fatal(err)
				}
				got = append(got, g)
			}
			return got
		}
		got := groups()
		if len(got) != 2 || got[0].Key != "two.example" || got[0].Count != 4 || got[0].DueInMinute != 2 ||
			got[0].DueInHour != 2 || got[0].Stale != 1 || len(got[0].Statuses) != 2 || got[0].Statuses[503] != 3 ||
			got[1].DueInHour != 1 || got[1].DueInMinute != 0 {
			t.Errorf("groups %+v", got)
		}
		scheduled = nil
		for n := range message.MaxKeys + others {
			scheduled = append(scheduled, rowAt(fmt.Sprintf("%08d", n), fmt.Sprintf("h%d.example", n), time.Hour))
		}
		got = groups()
		if len(got) != message.MaxKeys+1 || got[0].Key != message.KeyOthers || got[0].Count != others {
			t.Errorf("%d groups, the first %+v", len(got), got[0])
		}
	})
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
