//go:build long

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/internal/storage/rows"
)

// TestListManyScheduled checks the time and the memory of the commands that read the whole record.
func TestListManyScheduled(t *testing.T) {
	needsHost(t, "no call is made")
	t.Parallel()
	const manyRows = 100_000
	const limit, mostMiB, hosts = 30 * time.Second, 300, 50
	f := newFixture(t, options{tables: true})
	f.putRows(manyRows, hosts)
	for name, want := range map[string]int{
		"calls list --state scheduled --json":                 manyRows,
		"calls list --state scheduled --group-by host --json": hosts, "status --json": 1,
	} {
		command, stdout, stderr := f.operate(strings.Fields(name)...)
		began := time.Now()
		mib, err := runMeasured(command)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, stderr)
		}
		took := time.Since(began)
		t.Logf("%s: %v, %v of processor time and %d MiB for %d rows", name, took.Round(time.Millisecond),
			command.ProcessState.UserTime()+command.ProcessState.SystemTime(), mib, manyRows)
		if lines := bytes.Count(stdout.Bytes(), []byte("\n")); lines != want || took > limit || mib > mostMiB {
			t.Errorf("%s: %d lines in %v with %d MiB, want %d lines, at most %v and %d MiB", name, lines, took, mib,
				want, limit, mostMiB)
		}
		var total struct {
			Queues []struct{ Scheduled struct{ Count int } }
		}
		if strings.HasPrefix(name, "status") {
			f.must(json.Unmarshal(stdout.Bytes(), &total))
			if total.Queues[0].Scheduled.Count != manyRows {
				t.Errorf("status: %+v", total)
			}
		}
	}
}

// putRows fills the record with messages for some hosts.
func (f *fixture) putRows(total, hosts int) {
	f.t.Helper()
	connection, err := azure.ParseConnection([]string{"AzureWebJobsStorage=" + f.connectionString},
		"AzureWebJobsStorage")
	f.must(err)
	table, err := azure.OpenTable(connection, storage.ScheduledTable)
	f.must(err)
	defer table.Close()
	all := make([]record.Row, 0, total)
	for n := range total {
		key := storage.Key{Partition: mainQueue, ID: fmt.Sprintf("%08d-0000-4000-8000-000000000000", n)}
		all = append(all, record.Row{
			Key: key, RequestID: fmt.Sprint("order-", n),
			TargetHost:  fmt.Sprintf("host-%d.example", n%hosts),
			PathPattern: "/orders/{n}", Reason: "temporary_status", Status: 503, Attempts: 4, NextAttemptAt: time.Now().
					Add(time.Duration(n) * time.Second),
			CreatedAt: time.Now(), Deadline: time.Now().Add(24 * time.Hour), PopReceipt: "AgAAAAMAAAAAAAAA",
			Content: bytes.Repeat([]byte("x"), 1<<10),
		})
	}
	for batch := range slices.Chunk(all, 100) {
		f.must(rows.Put(f.t.Context(), table, batch...))
	}
}

// runMeasured runs a command, and returns its peak memory as far as the system tells.
func runMeasured(command *exec.Cmd) (mib int, err error) {
	if err := command.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return mib, err
		case <-tick.C:
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", command.Process.Pid)) // Linux has it
			if _, peak, found := strings.Cut(string(status), "VmHWM:"); found {
				kib, _ := strconv.Atoi(strings.Fields(peak)[0])
				mib = kib >> 10
			}
		}
	}
}
