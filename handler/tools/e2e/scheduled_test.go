package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/internal/storage/rows"
)

// scheduledResult is the JSON output of a command that changes scheduled messages.
type scheduledResult struct {
	Run                        string
	Total, Done, Skipped, Left int
	Why                        []string
}

// scheduled runs a command on scheduled messages and returns its result and exit code.
func (f *fixture) scheduled(args ...string) (result scheduledResult, code int) {
	f.t.Helper()
	command, stdout, stderr := f.operate(append(inState("scheduled", args), "--json")...)
	err := command.Run()
	if exited, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exited.ExitCode()
	} else {
		f.must(err)
	}
	f.t.Logf("scheduled %s: exit code %d\n%s", strings.Join(args, " "), code, stderr.String())
	if stdout.Len() > 0 {
		f.must(json.Unmarshal(stdout.Bytes(), &result))
	}
	return result, code
}

// TestRunAfterAnOutage schedules calls for a target that is down. The target comes back, and expedite drains them
// at its rate; it is killed and resumed in the middle. None is lost, and none is made twice. The status is right
// all the time.
func TestRunAfterAnOutage(t *testing.T) {
	onlyLocal(t, "it measures rates, for which Azurite is too slow")
	f := newFixture(t, options{tables: true})
	f.start(nil)
	const atOnce = 100 // more of them, while the machine is busy, are more rows than the handler keeps until it writes
	for first := 0; first < outageMessages; first += atOnce {
		for n := first; n < first+atOnce; n++ {
			f.put(fmt.Sprintf("r%d", n), "503,200", `,"retry":{"schedule":["2h"]}`)
		}
		f.await("all calls to be recorded", func() bool {
			r, _ := f.scheduled("retry", "--host", "127.0.0.1", "--status", "503", "--dry-run")
			return r.Total == first+atOnce
		})
	}
	waiting := f.watchWaiting(outageMessages)
	stopStatus := waiting.checkStatus()
	command, _, stderr := f.operate("calls", "retry", "--state", "scheduled", "--host", "127.0.0.1", "--rate",
		fmt.Sprintf("%d/s", outageRate), "--yes")
	f.must(command.Start())
	f.await("half of the calls", func() bool { return len(f.secondCalls(outageMessages)) >= outageMessages/2 })
	f.must(command.Process.Kill())
	_ = command.Wait() // it was killed
	f.t.Logf("killed: %s", stderr)
	f.checkRate("before the kill", f.secondCalls(outageMessages))

	name := f.latestRun()
	resumed := time.Now()
	result, code := f.scheduled("resume", name)
	const inFlight = 8 // that many can have been on their way when the command was killed
	unknown := result.Skipped
	isTrue := result.Done+unknown == outageMessages && unknown <= inFlight && (code == 4) == (unknown > 0)
	if !isTrue || code != 0 && code != 4 {
		t.Errorf("resume: exit code %d, %+v", code, result)
	}
	f.awaitEmpty()
	stopStatus()
	var later []time.Time
	for _, at := range f.secondCalls(outageMessages) {
		if at.After(resumed) {
			later = append(later, at)
		}
	}
	f.checkRate("after the kill", later)
	for n := range outageMessages {
		if calls := f.target.Calls(fmt.Sprintf("r%d", n)); len(calls) != 2 || calls[1].Answer != "200" ||
			calls[1].Attempt != "2" {
			t.Errorf("r%d was called %d times", n, len(calls))
		}
	}
	if r, code := f.scheduled("retry", "--all", "--dry-run"); r.Total > unknown || (code == 3) != (r.Total == 0) {
		t.Errorf("the record still has messages: exit code %d, %+v", code, r)
	}
}

// waiting is how many of some messages wait for their second call, over time.
type waiting struct {
	f     *fixture
	total int
}

func (f *fixture) watchWaiting(total int) *waiting { return &waiting{f, total} }

// at returns how many messages waited at a moment.
func (w *waiting) at(moment time.Time) int {
	left := w.total
	for _, at := range w.f.secondCalls(w.total) {
		if !at.After(moment) {
			left--
		}
	}
	return left
}

// checkStatus compares the scheduled messages of the status with the messages that wait, until it is stopped. The
// status may be 10 seconds old and 1 % wrong; a message that is due is called within three seconds.
func (w *waiting) checkStatus() (stop func()) {
	const oldest, late = 10 * time.Second, 3 * time.Second
	type status struct {
		from, to  time.Time
		scheduled int
	}
	var seen []status
	var stopping atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stopping.Load() {
			command, stdout, _ := w.f.operate("status", "--json")
			from := time.Now()
			var answer struct {
				Queues []struct {
					Queue     string
					Scheduled *struct{ Count, Stale int }
				}
			}
			if err := command.Run(); err != nil {
				w.f.t.Errorf("status: %v", err)
				return
			}
			if err := json.Unmarshal(stdout.Bytes(), &answer); err != nil {
				w.f.t.Error(err)
				return
			}
			for _, q := range answer.Queues {
				if q.Queue == mainQueue && q.Scheduled != nil {
					seen = append(seen, status{from, time.Now(), q.Scheduled.Count - q.Scheduled.Stale})
				}
			}
		}
	}()
	return func() {
		stopping.Store(true)
		<-done
		margin := max(w.total/100, 1)
		for _, s := range seen {
			least, most := w.at(s.to.Add(late))-margin, w.at(s.from.Add(-oldest))+margin
			if s.scheduled < least || s.scheduled > most {
				w.f.t.Errorf("status shows %d scheduled calls, want %d to %d", s.scheduled, least, most)
			}
		}
		w.f.t.Logf("%d screens of the status", len(seen))
		if len(seen) < 3 {
			w.f.t.Errorf("only %d screens of the status", len(seen))
		}
	}
}

// secondCalls returns when the second call of each message r0, r1, … was made, as far as it was.
func (f *fixture) secondCalls(messages int) (at []time.Time) {
	for n := range messages {
		if calls := f.target.Calls(fmt.Sprintf("r%d", n)); len(calls) > 1 {
			at = append(at, calls[1].At)
		}
	}
	return at
}

// checkRate checks the rate of the calls between the first and the last tenth, because the host polls.
func (f *fixture) checkRate(when string, calls []time.Time) {
	f.t.Helper()
	slices.SortFunc(calls, time.Time.Compare)
	tenth := len(calls) / 10
	if tenth == 0 {
		f.t.Errorf("%s: only %d calls", when, len(calls))
		return
	}
	calls = calls[tenth : len(calls)-tenth]
	took, want := calls[len(calls)-1].Sub(calls[0]),
		time.Duration(float64(len(calls)-1)/outageRate*float64(time.Second))
	f.t.Logf("%s: %d calls in %v, %.1f per second", when, len(calls), took, float64(len(calls)-1)/took.Seconds())
	if took < want*9/10-outageSlack || took > want*11/10+outageSlack {
		f.t.Errorf("%s: %d calls took %v, want about %v", when, len(calls), took, want)
	}
}

// latestRun returns the name of the latest run.
func (f *fixture) latestRun() string {
	f.t.Helper()
	command, stdout, _ := f.operate("runs", "list", "--json")
	f.must(command.Run())
	line, _, _ := bytes.Cut(stdout.Bytes(), []byte("\n"))
	var latest struct{ Run, State string }
	f.must(json.Unmarshal(line, &latest))
	if latest.State != "interrupted" {
		f.t.Errorf("%+v", latest)
	}
	return latest.Run
}

// TestCancelAndUndo cancels scheduled calls and restores them.
func TestCancelAndUndo(t *testing.T) {
	t.Parallel()
	const messages = 20
	f := newFixture(t, options{azurite: true})
	f.start(nil)
	for n := range messages {
		f.put(fmt.Sprintf("r%d", n), "503,200", `,"retry":{"schedule":["2h"]}`)
	}
	f.await("all calls to be recorded", func() bool {
		r, _ := f.scheduled("delete", "--all", "--dry-run")
		return r.Total == messages
	})
	cancelled, code := f.scheduled("delete", "--all", "--yes")
	if code != 0 || cancelled.Done != messages || f.count(mainQueue) != 0 {
		t.Fatalf("exit code %d, %+v, %d messages are left", code, cancelled, f.count(mainQueue))
	}
	if undone, code := f.scheduled("undo", cancelled.Run, "--yes"); code != 0 || undone.Done != messages ||
		f.count(mainQueue) != messages {
		t.Fatalf("undo: exit code %d, %+v, %d messages", code, undone, f.count(mainQueue))
	}
	if r, code := f.scheduled("retry", "--all", "--yes"); code != 0 || r.Done != messages {
		t.Fatalf("expedite: exit code %d, %+v", code, r)
	}
	f.awaitEmpty()
	if !f.delivered(messages) {
		t.Error("not all calls were delivered")
	}
}

// TestListManyScheduled checks the time and the memory of the commands that read the whole record.
func TestListManyScheduled(t *testing.T) {
	needsHost(t, "no call is made")
	t.Parallel()
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
