package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/operate/call"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// endedNow is a call that ends now. Its number makes calls of one id different; its last three digits are the trace.
type endedNow struct {
	id     string
	number int
	reason decision.Reason
	trail  []history.Attempt
}

// messageOf returns the id of the last message of a call.
func messageOf(number int) string { return fmt.Sprintf("%08d-m", number) }

// newHistorySession returns a session with the history of calls that ended a minute after each other.
func newHistorySession(t *testing.T, calls ...endedNow) (*testSession, *memory.Tables) {
	t.Helper()
	d, tables := newTestSession(t), &memory.Tables{}
	d.operations.History, d.account.Table = tables, &memory.Table{}
	kept := history.New(tables, 90*24*time.Hour, zerolog.Nop())
	for _, c := range calls {
		const format = `{"asyncCaller":1,"requestId":%q,"trace":{"traceparent":"00-%032x-00f067aa0ba902b7-01"},` +
			`"call":{"url":"https://t.example/orders/%d"}}`
		e, err := envelope.Parse(fmt.Appendf(nil, format, c.id, c.number%1000, c.number))
		if err == nil {
			err = e.Accept(time.Now(), messageOf(c.number), 48<<10)
		}
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		entry := kept.NewEntry(e, time.Now())
		entry.Queue, entry.MessageID = "async-caller", messageOf(c.number)
		entry.Trail, entry.Attempts = c.trail, len(c.trail)
		entry.Reason, entry.Action = string(c.reason), string(decision.Finish)
		if c.reason != decision.Delivered {
			entry.Action, entry.Status = string(decision.Callback), 422
		}
		kept.Record(entry)
	}
	kept.Close(time.Minute)
	return d, tables
}

// TestShowEnded checks the page of a call that has ended: it was a dead letter, was requeued, and its callback is made.
func TestShowEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now()
		d, _ := newHistorySession(t,
			endedNow{"order-1", 1, decision.Rejected, []history.Attempt{
				{At: at, Error: "timeout", TookMs: 120_000}, {At: at.Add(30 * time.Second), Status: 422, TookMs: 12},
			}},
			endedNow{"order-1", 1, decision.Delivered, []history.Attempt{
				{At: at.Add(time.Minute), Status: 204, TookMs: 5},
			}},
			endedNow{"order-1.callback", 1, decision.Delivered, []history.Attempt{{At: at, Status: 200, TookMs: 5}}},
			endedNow{"order-10", 2, decision.Delivered, nil},
		)
		for _, id := range []string{"order-1", "order-1.callback"} {
			d.stdout.Reset()
			if err := d.show(t.Context(), id, showOptions{}); err != nil {
				t.Fatal(err)
			}
			want := `
message        00000001-m on async-caller
request id     order-1
state          ended 2m ago
result         delivered
target         t.example/orders/{n}
attempts       1
trace id       00000000000000000000000000000001

timeline
  4m ago       2000-01-01T00:00:00Z, created
  4m ago       2000-01-01T00:00:00Z, timeout, took 2m0s
  3m30s ago    2000-01-01T00:00:30Z, answered 422, took 12ms
  3m ago       2000-01-01T00:01:00Z, ended: rejected (callback), status 422
  3m ago       2000-01-01T00:01:00Z, created
  3m ago       2000-01-01T00:01:00Z, answered 204, took 5ms
  2m ago       2000-01-01T00:02:00Z, ended: delivered
  1m ago       2000-01-01T00:03:00Z, callback: delivered, to t.example, attempts 1
`
			if got := "\n" + d.stdout.String(); got != want {
				t.Errorf("%s: %s\nwant%s", id, got, want)
			}
		}
		d.stdout.Reset()
		d.json = true
		if err := d.show(t.Context(), "order-1", showOptions{}); err != nil {
			t.Fatal(err)
		}
		var page struct {
			RequestID, Host, State string
			Status                 *int
			NextAttemptAt          *time.Time
			History                []struct{ Table, Partition, Row, Host, RequestID string }
		}
		err := json.Unmarshal(d.stdout.Bytes(), &page)
		if err != nil || page.State != call.StateEnded || page.RequestID != "order-1" || page.Host != "t.example" ||
			page.Status != nil || page.NextAttemptAt != nil || len(page.History) != 3 || page.History[0].Row == "" {
			t.Errorf("%v, JSON %s", err, &d.stdout)
		}
		if strings.Contains(d.stdout.String(), `"0001-`) {
			t.Errorf("the year 1 is in %s", &d.stdout)
		}
	})
}

// TestShowEndedOfMany: an id is found among many that begin with it. Of one that was used many times the newest calls
// are listed, and what was not looked at is not called missing.
func TestShowEndedOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := []endedNow{{"order-1", 0, decision.Rejected, nil}}
		for i := range 120 {
			calls = append(calls, endedNow{fmt.Sprint("order-1", i), i, decision.Delivered, nil},
				endedNow{"often", i, decision.Delivered, nil})
		}
		d, _ := newHistorySession(t, calls...)
		if err := d.show(t.Context(), "order-1", showOptions{}); err != nil {
			t.Error(err)
		}
		for message, code := range map[string]int{"": exitFailed, messageOf(3): exitPartly} {
			d.stdout.Reset()
			d.err.Reset()
			err := d.show(t.Context(), "often", showOptions{Options: call.Options{Message: message}})
			const said = "only the newest 100 of 120 calls and callbacks that have ended were looked at"
			isListed := strings.Count(d.stdout.String(), "\n") == 1+history.MaxFound
			all := fmt.Sprint(d.err.String(), err)
			if codeOf(err) != code || isListed != (message == "") || !strings.Contains(all, said) {
				t.Errorf("%q: exit code %d, %v, says %s, prints %.300s", message, codeOf(err), err, &d.err, &d.stdout)
			}
		}
	})
}

// TestShowFails: the error says whether no call has the id, or whether that is not known.
func TestShowFails(t *testing.T) {
	acme := envelope.Tenant{Organization: "acme\x1b", Environment: "prd"}
	const nowhere, begins = `"order-2": not scheduled, no dead letter, and no end is recorded; `,
		"the history begins with asynccallerhistory200001; the app"
	fail := func(err error) func(*testSession, *memory.Table) {
		return func(d *testSession, _ *memory.Table) { d.account.Table.(*memory.Table).Fail(err) }
	}
	for name, test := range map[string]struct {
		tenant envelope.Tenant
		fault  func(d *testSession, history *memory.Table)
		code   int
		want   string
	}{
		"nowhere":      {envelope.Tenant{}, fail(nil), exitNothing, nowhere},
		"no_tenant":    {envelope.Tenant{}, fail(nil), exitNothing, "give --organization and --environment\n"},
		"other_tenant": {acme, fail(nil), exitNothing, begins},
		"record_away":  {acme, fail(storage.ErrRefused), exitPartly, "not looked at: scheduled calls: list"},
		"denied": {
			acme, func(_ *testSession, history *memory.Table) { history.Fail(storage.ErrDenied) }, exitPartly,
			"not looked at: history: storage refused access",
		},
		"no_history": {
			acme, func(d *testSession, _ *memory.Table) { d.operations.History = nil }, exitPartly, "add TableEndpoint",
		},
		"no_record": {
			acme, func(d *testSession, _ *memory.Table) { d.account.Table = nil }, exitPartly,
			"not looked at: scheduled calls: the record of calls that wait",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, tables := newHistorySession(t, endedNow{"order-1", 1, decision.Delivered, nil})
				test.fault(d, tables.Open(history.TablePrefix+"200001"))
				o := showOptions{Options: call.Options{Tenant: test.tenant}}
				err := withExitCode(t.Context(), d.show(t.Context(), "order-2", o))
				said := fmt.Sprint(err)
				if codeOf(err) != test.code || !strings.Contains(said, test.want) || d.stdout.Len() > 0 {
					t.Errorf("exit code %d: %s, printed %s", codeOf(err), said, &d.stdout)
				}
				isClaimed := strings.Contains(said, "not scheduled") || strings.Contains(said, "no end")
				if isClaimed != (test.code == exitNothing) {
					t.Errorf("it says what it does not know: %s", said)
				}
			})
		})
	}
}
