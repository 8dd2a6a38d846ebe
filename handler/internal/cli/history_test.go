package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/history"
	"asynccaller/handler/internal/operate/message"
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

// newHistorySession returns a session with the history of calls that ended a minute after each other.
func newHistorySession(t *testing.T, calls ...endedNow) (*testSession, *memory.Tables) {
	t.Helper()
	d, tables := newTestSession(t), &memory.Tables{}
	d.operations.History = tables
	kept := history.New(tables, 90*24*time.Hour, zerolog.Nop())
	for _, c := range calls {
		const format = `{"asyncCaller":1,"requestId":%q,"trace":{"traceparent":"00-%032x-00f067aa0ba902b7-01"},` +
			`"call":{"url":"https://t.example/orders/%d"}}`
		e, err := envelope.Parse(fmt.Appendf(nil, format, c.id, c.number%1000, c.number))
		if err == nil {
			err = e.Accept(time.Now(), "m1", 48<<10)
		}
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		entry := kept.NewEntry(e, time.Now())
		entry.Queue, entry.MessageID, entry.Trail, entry.Attempts = "async-caller", "m1", c.trail, len(c.trail)
		entry.Reason, entry.Action = string(c.reason), string(decision.Finish)
		if c.reason != decision.Delivered {
			entry.Action, entry.Status = string(decision.Callback), 422
		}
		kept.Record(entry)
	}
	kept.Close(time.Minute)
	return d, tables
}

// TestShowHistory checks the page of a request id: each call, newest first, with its attempts and its callback.
func TestShowHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now()
		d, _ := newHistorySession(t,
			endedNow{"order-1", 1, decision.Rejected, []history.Attempt{
				{At: at, Error: "timeout", TookMs: 120_000}, {At: at.Add(130 * time.Second), Status: 422, TookMs: 12},
			}},
			endedNow{"order-1.callback", 1, decision.Delivered, []history.Attempt{{At: at, Status: 200, TookMs: 5}}},
			endedNow{"order-1", 1001, decision.Delivered, nil}, // with the trace of the first one
			endedNow{"order-1.callback", 3, decision.Exhausted, nil},
			endedNow{"order-10", 2, decision.Delivered, nil},
		)
		if err := d.showHistory(t.Context(), envelope.Tenant{}, "order-1", message.Filter{}); err != nil {
			t.Fatal(err)
		}
		want := `
call           order-1
result         delivered
target         t.example/orders/{n}
message        m1 on async-caller
created        2000-01-01T00:02:00Z, 3m ago
ended          2000-01-01T00:03:00Z, 2m ago
attempts       0
trace id       00000000000000000000000000000001

call           order-1
result         rejected (callback), status 422
target         t.example/orders/{n}
message        m1 on async-caller
created        2000-01-01T00:00:00Z, 5m ago
ended          2000-01-01T00:01:00Z, 4m ago
attempts       2
trace id       00000000000000000000000000000001
callback       delivered at 2000-01-01T00:02:00Z, to t.example, attempts 1
TIME                          TOOK  STATUS  REASON
2000-01-01T00:00:00Z          2m0s       -  timeout
2000-01-01T00:02:10Z          12ms     422  answered

callback       order-1.callback
result         exhausted (callback), status 422
target         t.example/orders/{n}
message        m1 on async-caller
created        2000-01-01T00:03:00Z, 2m ago
ended          2000-01-01T00:04:00Z, 1m ago
attempts       0
trace id       00000000000000000000000000000003
`
		if got := "\n" + d.stdout.String(); got != want {
			t.Errorf("%s\nwant%s", got, want)
		}
		d.stdout.Reset()
		d.json = true
		if err := d.showHistory(t.Context(), envelope.Tenant{}, "order-1.callback", message.Filter{}); err != nil {
			t.Fatal(err)
		}
		var reasons []string
		for line := range strings.Lines(d.stdout.String()) {
			var call endedCall
			if err := json.Unmarshal([]byte(line), &call); err != nil {
				t.Fatal(err)
			}
			reasons = append(reasons, call.Reason)
			if call.Callback != nil {
				reasons = append(reasons, "callback "+call.Callback.Reason)
			}
		}
		if got := strings.Join(reasons, ", "); got != "delivered, rejected, callback delivered, exhausted" {
			t.Errorf("JSON has %s", got)
		}
	})
}

// TestShowHistoryOfMany: an id is found among many that begin with it, and of one that was used many times the newest
// calls are shown.
func TestShowHistoryOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := []endedNow{{"order-1", 0, decision.Rejected, nil}}
		for i := range 1000 {
			calls = append(calls, endedNow{fmt.Sprint("order-1", i), i, decision.Delivered, nil},
				endedNow{"often", i, decision.Delivered, nil})
		}
		d, _ := newHistorySession(t, calls...)
		for id, want := range map[string]struct {
			calls int
			more  bool
		}{"order-1": {1, false}, "order-1999": {1, false}, "often": {history.MaxFound, true}} {
			d.stdout.Reset()
			d.err.Reset()
			if err := d.showHistory(t.Context(), envelope.Tenant{}, id, message.Filter{}); err != nil {
				t.Fatal(err)
			}
			printed := d.stdout.String()
			n := strings.Count(printed, "call ")
			isSaid := strings.Contains(d.err.String(), "only the newest 100 of 1,000 calls")
			if n != want.calls || isSaid != want.more || !strings.Contains(printed, " "+id+"\n") {
				t.Errorf("%s: %d calls, says more %v:\n%.300s", id, n, isSaid, printed)
			}
			if newest := fmt.Sprintf("%032x\n", 999); id == "often" &&
				strings.Index(printed, newest) > strings.Index(printed, "\n\n") {
				t.Errorf("the newest call is not the first:\n%.300s", printed)
			}
		}
	})
}

func all(history.Entry) bool { return true }

// TestShowHistorySelects: --host and --until select among the calls with an id, however many newer ones there are, with
// their callbacks to other hosts.
func TestShowHistorySelects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := []endedNow{
			{"often", 1, decision.Rejected, nil}, {"often.callback", 1, decision.Delivered, nil},
		}
		for i := range 110 {
			calls = append(calls, endedNow{"often", 2 + i, decision.Delivered, nil})
		}
		d, tables := newHistorySession(t, calls...)
		found, _, err := history.Find(t.Context(), tables, envelope.Tenant{}, "often", func(e history.Entry) bool {
			return e.Reason == string(decision.Rejected)
		})
		if err != nil || len(found) != 2 {
			t.Fatalf("%d entries, %v", len(found), err)
		}
		old := found[1]
		table := tables.Open(old.Table)
		row, _, err := table.Get(t.Context(), old.Partition, old.Row)
		if err == nil {
			row.Values["targetHost"] = "old.example:8443"
			err = table.Put(t.Context(), []storage.Entity{row})
		}
		if err != nil {
			t.Fatal(err)
		}
		for name, test := range map[string]struct {
			filter message.Filter
			calls  int
			want   string
		}{
			"all":        {message.Filter{}, 100, "only the newest 100 of 112 calls"},
			"host":       {message.Filter{Hosts: []string{"old.example"}}, 1, ""},
			"other_port": {message.Filter{Hosts: []string{"old.example:1"}}, 0, "that --host and --until select has ended"},
			"hosts":      {message.Filter{Hosts: []string{"old.example", "*.example"}}, 100, "of 112 calls"},
			"until":      {message.Filter{Until: old.EndedAt.Add(time.Second)}, 1, ""},
			"until_none": {message.Filter{Until: old.EndedAt}, 0, "that --host and --until select"},
			"both":       {message.Filter{Hosts: []string{"t.example"}, Until: old.EndedAt.Add(3 * time.Minute)}, 2, ""},
		} {
			d.stdout.Reset()
			d.err.Reset()
			err := d.showHistory(t.Context(), envelope.Tenant{}, "often", test.filter)
			printed, said := d.stdout.String(), d.err.String()+fmt.Sprint(err)
			if n := strings.Count(printed, "result  "); n != test.calls || !strings.Contains(said, test.want) {
				t.Errorf("%s: %d calls, says %s", name, n, said)
			}
			if test.calls == 1 && !strings.Contains(printed, "callback       delivered") {
				t.Errorf("%s: no callback in\n%s", name, printed)
			}
		}
	})
}

// TestShowHistoryOfHostileRows: whatever is in a row, the output is printable and short.
func TestShowHistoryOfHostileRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, tables := newHistorySession(t, endedNow{"order-1", 1, decision.Delivered, nil})
		found, _, err := history.Find(t.Context(), tables, envelope.Tenant{}, "order-1", all)
		if err != nil || len(found) != 1 {
			t.Fatalf("%d entries, %v", len(found), err)
		}
		const hostile = "\x1b[2J\u202e\n\r\x00\xff"
		long := hostile + strings.Repeat("a\u0301\u0301\u0301", 20_000)
		trail := []history.Attempt{{Error: long, Status: -1, TookMs: -1 << 60, At: time.Time{}}}
		details, err := json.Marshal(map[string]any{"queue": long, "messageId": long, "original": long, "trail": trail})
		if err != nil {
			t.Fatal(err)
		}
		for i, content := range [][]byte{details, []byte(hostile), nil} {
			key := storage.Key{Partition: found[0].Partition, ID: found[0].Row + fmt.Sprint(i)}
			row := storage.Entity{Key: key, Values: map[string]any{
				"requestId": long, "targetHost": long, "route": long, "reason": long, "action": long,
				"organization": long, "environment": long, "status": int32(-1), "attempts": int32(1 << 30),
				"content": content,
			}}
			err := tables.Table(found[0].Table).Put(t.Context(), []storage.Entity{row})
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, isJSON := range []bool{false, true} {
			d.json = isJSON
			d.stdout.Reset()
			if err := d.showHistory(t.Context(), envelope.Tenant{}, "order-1", message.Filter{}); err != nil {
				t.Fatal(err)
			}
			printed := d.stdout.String()
			bad := strings.IndexFunc(printed, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
			if bad >= 0 || !isJSON && len(printed) > 20_000 {
				t.Errorf("%d bytes, unprintable at %d", len(printed), bad)
			}
		}
	})
}

// TestShowHistoryFails checks the exit code and the message if there is no call, or no answer.
func TestShowHistoryFails(t *testing.T) {
	acme := envelope.Tenant{Organization: "acme\x1b", Environment: "prd"}
	for name, test := range map[string]struct {
		tenant envelope.Tenant
		fail   error
		none   bool
		code   int
		want   string
	}{
		"other_id":     {code: exitNothing, want: "give --organization and --environment for the call of a Nexus tenant"},
		"since":        {code: exitNothing, want: "the account has tables since asynccallerhistory200001: the app keeps"},
		"other_tenant": {tenant: acme, code: exitNothing, want: `has ended for the tenant "acme\x1b/prd"`},
		"denied":       {fail: storage.ErrDenied, code: exitFailed, want: "history of test: storage refused access"},
		"no_table":     {none: true, code: exitUsage, want: "add TableEndpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, tables := newHistorySession(t, endedNow{"order-1", 1, decision.Delivered, nil})
				tables.Open(history.TablePrefix + "200001").Fail(test.fail)
				if test.none {
					d.operations.History = nil
				}
				err := withExitCode(t.Context(), d.showHistory(t.Context(), test.tenant, "order-2", message.Filter{}))
				if codeOf(err) != test.code || !strings.Contains(fmt.Sprint(err), test.want) || d.stdout.Len() > 0 {
					t.Errorf("exit code %d, %v, printed %s", codeOf(err), err, &d.stdout)
				}
				if test.fail != nil && !errors.Is(err, test.fail) {
					t.Errorf("%v, so that the role is not named", err)
				}
			})
		})
	}
}

// TestHistoryDenied: the error names the role.
func TestHistoryDenied(t *testing.T) {
	connection := refusing(t, 403, "AuthorizationPermissionMismatch", "This request is not authorized.")
	connection += strings.ReplaceAll(connection[strings.Index(connection, "QueueEndpoint"):], "Queue", "Table")
	var stdout, stderr bytes.Buffer
	code := Run(t.Context(), []string{"history", "show", "order-1", "--app", t.TempDir()}, Env{
		Environ: []string{"AzureWebJobsStorage=" + connection}, Stdin: strings.NewReader(""),
		Stdout: &stdout, Stderr: &stderr,
	})
	if code != exitFailed || !strings.Contains(stderr.String(), storage.TableRole) || stdout.Len() > 0 {
		t.Errorf("exit code %d\n%s%s", code, &stdout, &stderr)
	}
}
