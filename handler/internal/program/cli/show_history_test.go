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

// TestShowSeveral: several calls with an id are listed, with exit code 1, and --message chooses one of them.
func TestShowSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newHistorySession(t, endedNow{"order-1", 1, decision.Rejected, nil},
			endedNow{"order-1", 2, decision.Delivered, nil}, endedNow{"order-1.callback", 1, decision.Delivered, nil})
		err := d.show(t.Context(), "order-1", showOptions{})
		if codeOf(err) != exitFailed || !strings.Contains(err.Error(), `"order-1" names 2 calls: `) {
			t.Errorf("exit code %d, %v", codeOf(err), err)
		}
		want := "STATE ID QUEUE HOST REASON AGE ended 00000002 async-caller t.example delivered 1m " +
			"ended 00000001 async-caller t.example rejected 2m"
		if got := strings.Join(strings.Fields(d.stdout.String()), " "); got != want {
			t.Errorf("lists\n%s\nwant\n%s", got, want)
		}
		d.stdout.Reset()
		err = d.show(t.Context(), "order-1", showOptions{Options: call.Options{Message: "00000001"}})
		if printed := d.stdout.String(); err != nil || strings.Count(printed, ", ended: ") != 1 ||
			!strings.Contains(printed, ", callback: delivered") {
			t.Errorf("%v, shows %s", err, printed)
		}
		err = d.show(t.Context(), "order-1", showOptions{Options: call.Options{Message: "00000003"}})
		if codeOf(err) != exitNothing {
			t.Errorf("exit code %d, %v", codeOf(err), err)
		}
	})
}

// TestShowEndedOfMany: an id is found among many that begin with it. Of one that was used many times the newest calls
// are listed, and what was not looked at is not called missing.
func TestShowEndedOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := []endedNow{{"order-1", 0, decision.Rejected, nil}}
		for i := range 500 {
			calls = append(calls, endedNow{fmt.Sprint("order-1", i), i, decision.Delivered, nil},
				endedNow{"often", i, decision.Delivered, nil})
		}
		d, _ := newHistorySession(t, calls...)
		for id, want := range map[string]struct {
			o     showOptions
			code  int
			lines int
			said  string
		}{
			"order-1":   {showOptions{}, exitDone, 9, ""},
			"order-133": {showOptions{}, exitDone, 9, ""},
			"often": {
				showOptions{},
				exitFailed, 1 + history.MaxFound,
				"only the newest 100 of 500 calls and callbacks that have ended were looked at",
			},
			"often ": {
				showOptions{Options: call.Options{Message: messageOf(3)}},
				exitPartly, 0, "only the newest 100 of 500 calls",
			},
		} {
			d.stdout.Reset()
			d.err.Reset()
			err := d.show(t.Context(), strings.TrimSpace(id), want.o)
			if codeOf(err) != want.code || strings.Count(d.stdout.String(), "\n") < want.lines ||
				!strings.Contains(d.err.String(), want.said) {
				t.Errorf("%s: exit code %d, %v, says %s, prints %.300s", id, codeOf(err), err, &d.err, &d.stdout)
			}
		}
	})
}

// TestShowEndedOfHostileRows: whatever is in a row, the output is printable and short.
func TestShowEndedOfHostileRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, tables := newHistorySession(t, endedNow{"order-1", 1, decision.Delivered, nil})
		found, _, err := history.Find(t.Context(), tables, envelope.Tenant{}, "order-1")
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
			for _, o := range []showOptions{{}, {Options: call.Options{Message: messageOf(1)}}} {
				if err := d.show(t.Context(), "order-1", o); err != nil && codeOf(err) != exitFailed {
					t.Fatal(err)
				}
			}
			printed := d.stdout.String()
			bad := strings.IndexFunc(printed, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
			if bad >= 0 || !isJSON && len(printed) > 20_000 {
				t.Errorf("%d bytes, unprintable at %d", len(printed), bad)
			}
		}
	})
}

// TestShowFails checks the exit code and the message if no call has the id, or if that is not known.
func TestShowFails(t *testing.T) {
	acme := envelope.Tenant{Organization: "acme\x1b", Environment: "prd"}
	for name, test := range map[string]struct {
		tenant             envelope.Tenant
		failHistory        error
		failRecord         error
		noHistory, noTable bool
		code               int
		want               string
	}{
		"nowhere": {
			code: exitNothing, want: `"order-2": not scheduled, no dead letter, and no end is recorded; give at ` +
				"least the first 8 characters of a message id, or the whole request id; the possibilities, " +
				"likeliest first:\nit has ended: the history begins with asynccallerhistory200001; the app",
		},
		"no_tenant": {
			code: exitNothing,
			want: "\nit is the ended call of a Nexus tenant: give --organization and --environment\n",
		},
		"other_tenant": {
			tenant: acme, code: exitNothing,
			want: "the history begins with asynccallerhistory200001; the app",
		},
		"denied": {
			failHistory: storage.ErrDenied, code: exitPartly,
			want: "not looked at: history: storage refused access",
		},
		"no_history": {noHistory: true, code: exitPartly, want: "add TableEndpoint"},
		"no_record": {
			noTable: true, code: exitPartly,
			want: "not looked at: scheduled calls: the record of calls that wait",
		},
		"record_away": {
			failRecord: storage.ErrRefused, code: exitPartly,
			want: "not looked at: scheduled calls: list",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, tables := newHistorySession(t, endedNow{"order-1", 1, decision.Delivered, nil})
				tables.Open(history.TablePrefix + "200001").Fail(test.failHistory)
				d.account.Table.(*memory.Table).Fail(test.failRecord)
				if test.noHistory {
					d.operations.History = nil
				}
				if test.noTable {
					d.account.Table = nil
				}
				if _, err := d.store.Put(t.Context(), "async-caller", storage.Item{Text: "*"}); err != nil {
					t.Fatal(err)
				}
				<-time.After(40 * time.Second)
				o := showOptions{Options: call.Options{Tenant: test.tenant}}
				err := withExitCode(t.Context(), d.show(t.Context(), "order-2", o))
				if codeOf(err) != test.code || !strings.Contains(fmt.Sprint(err), test.want) || d.stdout.Len() > 0 {
					t.Errorf("exit code %d, %v, printed %s", codeOf(err), err, &d.stdout)
				}
				if test.failHistory != nil && !errors.Is(err, test.failHistory) {
					t.Errorf("%v, so that the role is not named", err)
				}
				said := fmt.Sprint(err)
				isClaimed := strings.Contains(said, "not scheduled") || strings.Contains(said, "no end")
				if isClaimed != (test.code == exitNothing) {
					t.Errorf("it says what it does not know: %v", err)
				}
			})
		})
	}
}

// TestShowDenied: the error names the role.
func TestShowDenied(t *testing.T) {
	connection := refusing(t, 403, "AuthorizationPermissionMismatch", "This request is not authorized.")
	connection += strings.ReplaceAll(connection[strings.Index(connection, "QueueEndpoint"):], "Queue", "Table")
	var stdout, stderr bytes.Buffer
	code := Run(t.Context(), []string{"show", "order-1", "--app", t.TempDir()}, Env{
		Environ: []string{"AzureWebJobsStorage=" + connection}, Stdin: strings.NewReader(""),
		Stdout: &stdout, Stderr: &stderr,
	})
	if code != exitPartly || !strings.Contains(stderr.String(), storage.TableReaderRole) || stdout.Len() > 0 {
		t.Errorf("exit code %d\n%s%s", code, &stdout, &stderr)
	}
}
