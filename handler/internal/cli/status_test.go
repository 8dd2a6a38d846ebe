package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

func (d *testSession) mustStatus(t *testing.T) string {
	t.Helper()
	d.stdout.Reset()
	if err := d.showStatus(t.Context(), false, false); err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(d.stdout.String()), " ")
}

func TestStatusScreen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newRowsSession(t, rowAt("aaaaaaaa-1", "one.example", 30*time.Minute),
			rowAt("bbbbbbbb-2", "two.example", -time.Minute), rowAt("cccccccc-3", "two.example", 20*time.Second))
		d.runs.AppQueues = []string{"async-caller", "async-caller-1"}
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
		if err := record.Beat(t.Context(), d.runs.Table, functionapp.MonitorTimer); err != nil {
			t.Fatal(err)
		}
		got := d.mustStatus(t)
		for _, want := range []string{
			"running yes", "AC-monitor 0s ago, AC-poison-keeper unknown", "async-caller 1 5h 3 2 0 1 malformed 1",
			"2 2 2 0 0s 20s 503 two.example",
			"note not created yet: async-caller-1", "storage will delete at least 1 message on async-caller-poison",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("%q is missing in %s", want, got)
			}
		}
		<-time.After(10 * time.Minute)
		if got := d.mustStatus(t); !strings.Contains(got, "the app or its timer functions do not run") {
			t.Errorf("ten minutes later: %s", got)
		}
		d.json = true
		var status account.Status
		d.mustStatus(t)
		if err := json.Unmarshal(d.stdout.Bytes(), &status); err != nil || status.Queues[0].Scheduled.Count != 3 ||
			status.Queues[0].Poison != 1 || len(status.Targets) != 2 {
			t.Errorf("%v: %+v", err, status)
		}
	})
}

// hangingTable answers nothing.
type hangingTable struct{ memory.Table }

func (*hangingTable) List(ctx context.Context, _ storage.Query, _ func(storage.Row) error) error {
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
		"none":    {nil, "unknown: the record of scheduled messages is not available"},
		"missing": {&memory.Table{}, "running unknown: no timer function has recorded a run"},
		"denied": {
			denied,
			"scheduled unknown: list rows: storage refused access; assign the role Storage Table Data Contributor",
		},
		"slow": {&hangingTable{}, "scheduled unknown: the table asynccallerscheduled does not answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newTestSession(t)
				d.runs.Table = test.table
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
