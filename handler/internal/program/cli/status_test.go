package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/observers/sight/sighttest"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

func (d *testSession) mustStatus(t *testing.T) string {
	t.Helper()
	d.stdout.Reset()
	if err := d.showStatus(t.Context(), false, false, nil); err != nil && !errors.Is(err, errUnknown) {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(d.stdout.String()), " ")
}

// absolute returns a path as it is shown, which has a drive on Windows.
func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStatusScreen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newRowsSession(t, rowAt("aaaaaaaa-1", "one.example", 30*time.Minute),
			rowAt("bbbbbbbb-2", "two.example", -time.Minute), rowAt("cccccccc-3", "two.example", 20*time.Second))
		d.account.AppQueues = []string{"async-caller", "async-caller-1"}
		folder := absolute(t, "/no/app")
		d.app = folder
		content := fmt.Appendf(nil, `{"asyncCaller":1,"createdAt":%q,"call":{"url":"https://t.example/"}}`, time.Now().
			Add(-5*time.Hour).Format(time.RFC3339))
		for name, item := range map[string]storage.Item{
			"async-caller":        {Text: storage.Base64.Encode(content)},
			"async-caller-poison": {Text: storage.Base64.Encode([]byte("no envelope")), TTL: time.Hour},
		} {
			if _, err := d.store.Put(t.Context(), name, item); err != nil {
				t.Fatal(err)
			}
		}
		app := heartbeat.App{
			Name: "local", Version: "test", Certificate: "a.example: $CERT",
			CertificateEnds: time.Date(2000, 1, 12, 0, 0, 0, 0, time.UTC),
		}
		if err := heartbeat.Beat(t.Context(), d.account.Table, app, functionapp.MonitorTimer); err != nil {
			t.Fatal(err)
		}
		got := d.mustStatus(t)
		for _, want := range []string{
			"running yes", "timers local: AC-monitor 0s ago, AC-poison-keeper not yet",
			"certificate local, the first to end: a.example: $CERT to 2000-01-12, ends in 11 days: renew it",
			"async-caller 1 5h 3 2 0 1 malformed 1",
			"TARGET CAUSE SINCE BREAKER WAITING 1 HOUR NEXT two.example 503 - - 2 2 0s one.example 503 - - 1 1 30m",
			"note 1 idle priority queue not shown: --all shows them",
			"storage will delete at least 1 message on async-caller-poison",
			"app none in " + folder + ": the queues are the usual ones; --app names the folder of an app, such as dist",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%q is missing in %s", want, got)
			}
		}
		<-time.After(10 * time.Minute)
		if got := d.mustStatus(t); !strings.Contains(got, "no: these apps or their timer functions do not run: local") {
			t.Errorf("ten minutes later: %s", got)
		}
		d.json = true
		var status account.Status
		d.mustStatus(t)
		if err := json.Unmarshal(d.stdout.Bytes(), &status); err != nil || status.Queues[0].Scheduled.Count != 3 ||
			len(status.Queues) != 2 || *status.Queues[0].Poison != 1 || len(status.Targets) != 2 {
			t.Errorf("%v: %+v", err, status)
		}
	})
}

// TestStatusOfTwoNames: status says which adapter an app has, and that two names serve the same queue.
func TestStatusOfTwoNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newRowsSession(t)
		for _, app := range []heartbeat.App{
			{Name: "shop", Adapter: heartbeat.Host, Queues: []string{"async-caller", "orders"}},
			{Name: "shop-w", Adapter: heartbeat.Worker, Queues: []string{"async-caller"}},
		} {
			if err := heartbeat.Beat(t.Context(), d.account.Table, app, functionapp.MonitorTimer); err != nil {
				t.Fatal(err)
			}
		}
		got := d.mustStatus(t)
		for _, want := range []string{
			"timers shop (host): AC-monitor 0s ago", "timers shop-w (worker): AC-monitor 0s ago",
			"limits the apps shop (host), shop-w (worker) serve the same queues, async-caller: each of them counts " +
				"limits of targets on its own: give them one name, by ASYNC_CALLER_APP or ",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%q is missing in %s", want, got)
			}
		}
	})
}

// TestStatusOfTargets: each target that fails says why, since when and what it said, for each app that calls it.
func TestStatusOfTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newRowsSession(t, rowAt("aaaaaaaa-1", "b.example", 30*time.Minute),
			rowAt("bbbbbbbb-2", "b.example", time.Minute), rowAt("cccccccc-3", "z.example", time.Hour))
		known := &memory.Table{}
		folder := absolute(t, "/the/app")
		d.account.Sight, d.hasApp, d.app = sight.NewReader(known), true, folder
		now := time.Now()
		fail := func(name, host, cause, answer string, since, latest time.Duration, open bool) {
			row := sight.Target{
				App: name, Host: host, Cause: cause, Answer: answer, Since: now.Add(-since), Latest: now.Add(-latest),
			}
			if open {
				row.OpenAt = row.Latest
			}
			sighttest.Fail(t, known, row)
		}
		fail("app-1", "b.example", "503", `{"error":"down"}`, 2*time.Hour, time.Minute, true)
		fail("app-2", "b.example", "connection refused", "", time.Minute, time.Minute, false)
		fail("app-1", "c.example", "certificate has expired or is not valid yet", "", time.Hour, time.Minute, false)
		fail("app-1", "old.example", "400", "no", 5*time.Hour, 2*time.Hour, false)
		d.mustStatus(t)
		want := `
TARGET                 CAUSE                                   SINCE  BREAKER  WAITING  1 HOUR  NEXT
b.example (app app-1)  503                                        2h  open           2       2    1m
b.example (app app-2)  connection refused                         1m  -
c.example              certificate has expired …not valid yet     1h  -              0       0     -
z.example              503                                         -  -              1       1    1h

answer         b.example: {"error":"down"}
`
		got := d.stdout.String()
		if !strings.Contains(got, want) || !strings.Contains(got, "app            "+folder+"\n") {
			t.Errorf("got %s\nwant %s", got, want)
		}
		d.json = true
		d.mustStatus(t)
		var status account.Status
		if err := json.Unmarshal(d.stdout.Bytes(), &status); err != nil {
			t.Fatal(err)
		}
		first := status.Targets[0]
		if len(first.Failing) != 2 || first.Failing[0].Cause != "503" ||
			!first.Failing[0].Since.Equal(now.Add(-2*time.Hour)) {
			t.Errorf("%+v", first)
		}
		known.Fail(storage.ErrDenied)
		d.json = false
		if got := d.mustStatus(t); !strings.Contains(got, "why targets fail is unknown") ||
			!strings.Contains(got, "b.example 503 - - 2 2 1m") {
			t.Errorf("without permission: %s", got)
		}
	})
}

// transactions notes the requests to the queues and tables of an account.
type transactions struct {
	mu    sync.Mutex
	noted []string
}

func (n *transactions) note(request string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.noted = append(n.noted, request)
}

// notedQueues notes the requests to queues.
type notedQueues struct {
	storage.Queues
	*transactions
}

func (q notedQueues) Names(ctx context.Context, prefix string) ([]string, error) {
	q.note("names")
	return q.Queues.Names(ctx, prefix)
}

func (q notedQueues) Count(ctx context.Context, name string) (int, error) {
	q.note("count " + name)
	return q.Queues.Count(ctx, name)
}

func (q notedQueues) Peek(ctx context.Context, name string, limit int) ([]storage.Message, error) {
	q.note("peek " + name)
	return q.Queues.Peek(ctx, name, limit)
}

// notedTable notes the readings of a table.
type notedTable struct {
	*memory.Table
	*transactions
}

func (t notedTable) List(ctx context.Context, q storage.Query, see func(storage.Entity) error) error {
	t.note("table")
	return t.Table.List(ctx, q, see)
}

// TestStatusTransactions: a refresh reads each queue that exists once, and the messages of those that have some. The
// page has the number for an app without messages.
func TestStatusTransactions(t *testing.T) {
	for name, test := range map[string]struct {
		// exist are further queues, and full are those with a message.
		exist, full []string
		// want are the requests to queues, beside one for the names and one for the length of each main queue.
		want []string
	}{
		"no_messages": {},
		"empty_poison_queue": {
			exist: []string{"async-caller-poison", "async-caller-3-poison"},
			want:  []string{"count async-caller-3-poison", "count async-caller-poison"},
		},
		"messages": {
			full: []string{"async-caller", "async-caller-3", "async-caller-3-poison"},
			want: []string{
				"count async-caller-3-poison", "peek async-caller", "peek async-caller-3", "peek async-caller-3-poison",
			},
		},
		"of_other_program": {full: []string{"foreign"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				<-time.After(30 * time.Minute)
				d := newNumbersSession(t)
				var noted transactions
				store := memory.New()
				d.account.Store, d.account.AppQueues = notedQueues{store, &noted}, envelope.Queues()
				d.account.AppTable = notedTable{&memory.Table{}, &noted}
				record, _ := d.account.Table.(*memory.Table)
				d.account.Table = notedTable{record, &noted}
				d.account.Sight = sight.NewReader(notedTable{d.table, &noted})
				for _, name := range slices.Concat(envelope.Queues(), test.exist) {
					if err := store.Create(t.Context(), name); err != nil {
						t.Fatal(err)
					}
				}
				for _, name := range test.full {
					if _, err := storage.PutCreating(t.Context(), store, name, storage.Item{Text: "x"}); err != nil {
						t.Fatal(err)
					}
				}
				d.mustStatus(t)
				want := append([]string{"names"}, test.want...)
				for _, name := range envelope.Queues() {
					want = append(want, "count "+name)
				}
				slices.Sort(want)
				got := slices.Sorted(slices.Values(noted.noted))
				got = slices.DeleteFunc(got, func(request string) bool { return request == "table" })
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				text := fmt.Sprintf("needs %d transactions for an app without messages", len(noted.noted))
				page := strings.Join(strings.Fields(pages(t)["docs/operating.md"]), " ")
				if name == "no_messages" && !strings.Contains(page, text) {
					t.Errorf("docs/operating.md does not say that a refresh %s", text)
				}
			})
		})
	}
}

// hangingTable answers nothing.
type hangingTable struct{ memory.Table }

func (*hangingTable) List(ctx context.Context, _ storage.Query, _ func(storage.Entity) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestStatusWithoutTable checks that the queues are shown whatever happens to the table.
func TestStatusWithoutTable(t *testing.T) {
	denied := &memory.Table{}
	denied.Fail(fmt.Errorf("list rows: %w", storage.ErrDenied))
	for name, test := range map[string]struct {
		table storage.Table
		want  string
	}{
		"none":    {nil, "unknown: the record of calls that wait is not available"},
		"missing": {&memory.Table{}, "running unknown: no timer function has recorded that it ran"},
		"not_run": {&memory.Table{}, "next `async-caller doctor`: why the app does not run"},
		"denied": {
			denied,
			"scheduled unknown: list rows: storage refused access; assign the role Storage Table Data Reader",
		},
		"slow": {&hangingTable{}, "scheduled unknown: the table asynccallerscheduled does not answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newTestSession(t)
				d.account.Table = test.table
				if _, err := d.store.Put(t.Context(), "async-caller", storage.Item{Text: "x"}); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if got := d.mustStatus(t); !strings.Contains(got, test.want) ||
					!strings.Contains(got, " async-caller 1 0s ") {
					t.Errorf("%q is missing in %s", test.want, got)
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}
