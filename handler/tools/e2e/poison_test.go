package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/tools/storageproxy"
)

const otherPoisonQueue = "async-caller-1-poison"

// poisonCommand returns `async-caller poison` with arguments, and its output.
func (f *fixture) poisonCommand(args ...string) (command *exec.Cmd, stdout, stderr *bytes.Buffer) {
	return f.operate(inState("poison", args)...)
}

// inState returns the arguments of a command on the calls in a state. Undo and resume are commands of the group runs.
func inState(state string, args []string) []string {
	switch args[0] {
	case "undo", "resume":
		return append([]string{"runs"}, args...)
	case "import":
		return append([]string{"calls"}, args...)
	}
	return append([]string{"calls", args[0], "--state", state}, args[1:]...)
}

// operate returns `async-caller` with arguments, as an operator runs it in the app folder, and its output.
func (f *fixture) operate(args ...string) (command *exec.Cmd, stdout, stderr *bytes.Buffer) {
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	command = exec.CommandContext(f.t.Context(), executable, args...)
	command.Env = append(os.Environ(), "AzureWebJobsStorage="+f.connectionString,
		"XDG_STATE_HOME="+filepath.Join(f.app, "state"),
		"ASYNC_CALLER_TARGETS_ALLOW=127.0.0.1,*")
	command.Dir, command.Stdout, command.Stderr = f.app, stdout, stderr
	return command, stdout, stderr
}

// poison runs a poison command and returns its output and exit code.
func (f *fixture) poison(args ...string) (stdout []byte, code int) {
	f.t.Helper()
	command, out, talk := f.poisonCommand(args...)
	err := command.Run()
	if exited, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exited.ExitCode()
	} else {
		f.must(err)
	}
	f.t.Logf("poison %s: exit code %d\n%s", strings.Join(args, " "), code, talk.String())
	return out.Bytes(), code
}

// mustPoison runs a poison command with --json that must succeed, and returns its output.
func (f *fixture) mustPoison(args ...string) (values []map[string]any) {
	f.t.Helper()
	out, code := f.poison(append(args, "--json")...)
	if code != 0 {
		f.t.Fatalf("poison %s: exit code %d", strings.Join(args, " "), code)
	}
	for line := range bytes.Lines(out) {
		var value map[string]any
		f.must(json.Unmarshal(line, &value))
		values = append(values, value)
	}
	return values
}

// putAll puts texts on a queue, unencoded. A time-to-live of 0 means none.
func (f *fixture) putAll(name string, ttl time.Duration, texts []string) {
	f.t.Helper()
	f.must(f.store.Create(f.t.Context(), name))
	next := make(chan string)
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for text := range next {
				err := errors.New("not tried")
				for try := 0; try < 3 && err != nil; try++ {
					_, err = f.store.Put(f.t.Context(), name, storage.Item{Text: text, TTL: ttl})
				}
				if err != nil {
					f.t.Error(err)
				}
			}
		})
	}
	for _, text := range texts {
		next <- text
	}
	close(next)
	writers.Wait()
}

// cause is a kind of poison message of TestPoisonAtScale.
type cause struct {
	queue  string
	reason string
	count  int
	ttl    time.Duration
	text   func(n int) string
}

// sixCauses are the messages of TestPoisonAtScale on two poison queues.
func sixCauses(target string) []cause {
	dead := func(prefix, url, reason string, status int) func(int) string {
		return func(n int) string {
			return storage.Base64.Encode(
				fmt.Appendf(nil, `{"asyncCaller":1,"requestId":"%s%d","call":{"url":%q,"json":{"n":%d}},`+
					`"createdAt":"2026-01-01T00:00:00Z","attempts":4,`+
					`"trail":[{"at":"2026-01-08T00:00:00Z","status":%d,"tookMs":12}],`+
					`"deadLetter":{"at":"2026-01-08T00:00:00Z","reason":%q,"detail":"answered `+
					`%d","queue":"async-caller","attempts":4}}`,
					prefix, n, url, n, status, reason, status),
			)
		}
	}
	const week = 7 * 24 * time.Hour
	return []cause{
		{poisonQueue, "expired", 200 / scale, 0, dead("expired", target, "expired", 503)},
		{poisonQueue, "rejected", 4200 / scale, 0, dead("rejected", "http://crm.example/orders/4711", "rejected", 400)},
		{
			poisonQueue, "malformed", 600 / scale, 0,
			func(n int) string { return storage.Base64.Encode(fmt.Appendf(nil, `{"asyncCaller":1,"n":%d}`, n)) },
		},
		{
			otherPoisonQueue, "exhausted", 3800 / scale, 0,
			dead("exhausted", "http://erp.example/items/12345", "exhausted", 500),
		},
		{otherPoisonQueue, "host_gave_up", 1000 / scale, week, func(n int) string {
			return storage.Base64.Encode(fmt.Appendf(nil,
				`{"asyncCaller":1,"requestId":"host%d","call":{"url":"http://erp.example/"}}`, n))
		}},
		{
			otherPoisonQueue, "undecodable", 200 / scale, week,
			func(n int) string { return fmt.Sprintf(`{"asyncCaller":1,"n":%d}`, n) },
		},
	}
}

// TestPoisonAtScale counts, groups, requeues and deletes 10,000 messages of six causes (1,000 in `make test`),
// and checks that each command changes exactly what it says.
func TestPoisonAtScale(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{tables: true})
	to := f.target.URL("200")
	address := strings.TrimPrefix(to[:strings.Index(to, "/answer")], "http://")
	causes := sixCauses("http://old.example/answer/200")
	total := map[string]float64{}
	for _, c := range causes {
		texts := make([]string, c.count)
		for n := range texts {
			texts[n] = c.text(n)
		}
		f.putAll(c.queue, c.ttl, texts)
		total[c.queue] += float64(c.count)
	}

	begin := time.Now()
	groups := f.mustPoison("list", "--group-by", "reason")
	t.Logf("%d messages grouped in %v", 10_000/scale, time.Since(begin))
	if len(groups) != len(causes) {
		t.Errorf("%d groups, want %d", len(groups), len(causes))
	}
	for _, g := range groups {
		for _, c := range causes {
			if g["key"] == c.reason && g["count"] != float64(c.count) {
				t.Errorf("%v %v, want %d", g["count"], c.reason, c.count)
			}
		}
	}

	f.stageMonitor()
	f.start(nil)
	f.awaitOutcomes()
	result := f.mustPoison("retry", "--queue", poisonQueue, "--group", "reason=expired", "--replace-host",
		"old.example="+address, "--canary", "3", "--yes")[0]
	if result["done"] != 200.0/scale || result["twice"] != nil || result["skipped"] != nil {
		t.Errorf("requeue: %v", result)
	}
	f.awaitEmpty()
	for n := range 200 / scale {
		if calls := f.target.Calls(fmt.Sprintf("expired%d", n)); len(calls) != 1 ||
			string(calls[0].Body) != fmt.Sprintf(`{"n":%d}`, n) {
			t.Fatalf("expired%d was called %d times", n, len(calls))
		}
	}

	result = f.mustPoison("delete", "--queue", otherPoisonQueue, "--reason", "undecodable", "--yes")[0]
	if result["done"] != 200.0/scale {
		t.Errorf("delete: %v", result)
	}
	for name, before := range total {
		want := before - map[string]float64{poisonQueue: 200 / scale, otherPoisonQueue: 200 / scale}[name]
		if listed := f.mustPoison("list", "--queue", name); len(listed) != int(want) {
			t.Errorf("%s: %d messages, want %v", name, len(listed), want)
		}
	}
}

// TestUndoAfterAnEditedRequeue checks that an undo restores requeued and edited messages byte for byte, as long as no
// function app has received them.
func TestUndoAfterAnEditedRequeue(t *testing.T) {
	needsHost(t, "no call is made")
	t.Parallel()
	f := newFixture(t, options{})
	before := map[string]bool{}
	texts := make([]string, 500)
	for n := range texts {
		texts[n] = sixCauses("http://old.example/")[1].text(n)
		before[texts[n]] = true
	}
	f.putAll(poisonQueue, 0, texts)
	result := f.mustPoison("retry", "--all", "--set", "call.url=http://new.example/orders", "--set-header",
		"X-Edited: yes", "--yes")[0]
	if result["done"] != 500.0 || f.count(poisonQueue) != 0 || f.count(mainQueue) != 500 {
		t.Fatalf("requeue: %v, %d left, %d sent", result, f.count(poisonQueue), f.count(mainQueue))
	}
	result = f.mustPoison("undo", result["run"].(string), "--yes")[0]
	if result["done"] != 500.0 || f.count(mainQueue) != 0 || f.count(poisonQueue) != 500 {
		t.Fatalf("undo: %v, %d left, %d back", result, f.count(mainQueue), f.count(poisonQueue))
	}
	for {
		batch, err := f.store.Receive(t.Context(), poisonQueue, storage.MaxBatch, time.Hour)
		f.must(err)
		if len(batch) == 0 {
			break
		}
		for _, m := range batch {
			if !before[m.Text] {
				t.Errorf("an unknown message: %s", m.Text)
			}
			delete(before, m.Text)
		}
	}
	if len(before) > 0 {
		t.Errorf("%d messages are missing", len(before))
	}
}

// TestHostMadePoison checks that the messages that the Functions host moves to the poison queue are listed with a
// reason.
func TestHostMadePoison(t *testing.T) {
	needsHost(t, "what a worker moves never expires, and its lease lasts 6 minutes")
	t.Parallel()
	f := newFixture(t, options{azurite: true})
	f.start([]string{"AzureFunctionsJobHost__extensions__queues__maxDequeueCount=1"}, "--max-handler-errors", "-1")
	f.put("faulty", "400", `,"giveUp":"fault"`)
	f.putAll(mainQueue, 0, []string{"not base64, and no JSON"})
	f.put("crashing", "hang,200", "")
	f.await("the call that hangs", func() bool { return len(f.target.Calls("crashing")) == 1 })
	f.must(f.host.KillHandler())
	f.await("the host to have moved all three",
		func() bool { return f.count(poisonQueue) == 3 && f.count(mainQueue) == 0 })

	want := map[string]struct{ reason, detail string }{
		"faulty":   {"host_gave_up", "giveUp is fault"},
		"":         {"undecodable", "not base64"},
		"crashing": {"host_gave_up", "no failure was recorded"},
	}
	for _, m := range f.mustPoison("list") {
		id, _ := m["requestId"].(string)
		if w := want[id]; m["reason"] != w.reason || !strings.Contains(fmt.Sprint(m["detail"]), w.detail) ||
			m["expiresAt"] == nil {
			t.Errorf("%q: %v, %v, expires %v; want %v", id, m["reason"], m["detail"], m["expiresAt"], w)
		}
		delete(want, id)
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}

	f.mustPoison("retry", "--request-id", "crashing", "--yes")
	f.await("the call that crashed", func() bool { return len(f.target.Calls("crashing")) == 2 })
}

// stageKeeper adds the timer function AC-poison-keeper to the app, with a run each second.
func (f *fixture) stageKeeper() { f.stageTimer("AC-poison-keeper", `"0 0 * * * *"`) }

// stageTimer adds a timer function to the app, with a run each second instead of its schedule.
func (f *fixture) stageTimer(name, schedule string) {
	f.t.Helper()
	function, err := os.ReadFile(filepath.Join("../../../functions", name, "function.json"))
	f.must(err)
	if !bytes.Contains(function, []byte(schedule)) {
		f.t.Fatalf("the schedule of %s is not %s: %s", name, schedule, function)
	}
	f.must(os.Mkdir(filepath.Join(f.app, name), 0o700))
	function = bytes.Replace(function, []byte(schedule), []byte(`"* * * * * *"`), 1)
	f.must(os.WriteFile(filepath.Join(f.app, name, "function.json"), function, 0o600))
}

// refusing refuses to list the account's queues, and to receive from otherPoisonQueue. It counts the batches that are
// received from poisonQueue.
type refusing struct{ batches atomic.Int64 }

func (r *refusing) Before(request storageproxy.Request) (order storageproxy.Order) {
	switch get := request.Operation == storageproxy.Get; {
	case request.Queue == "", get && request.Queue == otherPoisonQueue:
		order.Status, order.Code = http.StatusForbidden, "AuthorizationPermissionMismatch"
	case get && request.Queue == poisonQueue:
		r.batches.Add(1)
	}
	return order
}

func (*refusing) After(storageproxy.Request, storageproxy.Answer) storageproxy.Order {
	return storageproxy.Order{}
}

// TestKeeperBesideARefusal checks that a queue that cannot be read is reported, and that the keeper keeps the messages
// of another one, behind others that it does not receive again and again.
func TestKeeperBesideARefusal(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	f.stageKeeper()
	other := filepath.Join(f.app, "AC-priority01")
	f.must(os.CopyFS(other, os.DirFS("../../../functions/AC-priority01")))
	const messages = 300
	texts := make([]string, messages)
	for n := range texts {
		texts[n] = sixCauses("http://t.example/")[0].text(n)
	}
	f.putAll(poisonQueue, 0, texts)
	for n := range texts {
		texts[n] = sixCauses("http://t.example/")[4].text(n)
	}
	f.putAll(poisonQueue, 7*24*time.Hour, texts)
	f.putAll(otherPoisonQueue, 7*24*time.Hour, texts[:1])
	storage := &refusing{}
	proxy, err := storageproxy.Open(t.Context(), f.endpoint, storage)
	f.must(err)
	t.Cleanup(proxy.Close)
	f.start([]string{"AzureWebJobsStorage=" + proxy.Through(f.connectionString)})

	runs := func(n int) func() bool { return func() bool { return len(f.host.Lines("task failed")) >= n } }
	f.await("the messages to be kept, and all to be read again", runs(2))
	batches := storage.batches.Load()
	f.await("more runs", runs(5))
	if more := storage.batches.Load() - batches; more > 0 || f.count(poisonQueue) != 2*messages {
		t.Errorf("%d more batches were received; there are %d messages", more, f.count(poisonQueue))
	}
	line := f.host.Lines("task failed")[0]
	if text := fmt.Sprint(line["error"]); line["level"] != "error" ||
		!strings.HasPrefix(text, "incomplete: kept 300 messages") ||
		!strings.Contains(text, otherPoisonQueue) {
		t.Errorf("the first invocation says %v", line)
	}
	if !underFunc && !strings.Contains(f.host.Output(), "timer function failed") {
		t.Error("the host does not know that the invocation was incomplete")
	}
}
