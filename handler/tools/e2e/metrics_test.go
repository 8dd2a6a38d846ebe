package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/tools/testbed"
)

// tally counts messages by what came of them: "delivered", or another reason.
type tally map[string]int

func (t tally) add(other map[string]int, sign int) {
	for reason, n := range other {
		t[reason] += sign * n
	}
	maps.DeleteFunc(t, func(_ string, n int) bool { return n == 0 })
}

// tallyOf returns what the log of a host says of a target, from a time on.
func tallyOf(log, target string, from time.Time) tally {
	found := tally{}
	for line := range strings.Lines(log) {
		var fields struct {
			Time            time.Time
			Message, Reason string
			Host            string `json:"target_host"`
		}
		isLine := json.Unmarshal([]byte(line), &fields) == nil && fields.Message == "settled"
		if isLine && fields.Host == target && !fields.Time.Before(from) {
			found[fields.Reason]++
		}
	}
	return found
}

// TestNumbers: the numbers of three instances are those of the target, of the queues and of the log, but for those of
// an instance that is killed since its last full minute.
func TestNumbers(t *testing.T) {
	needsHost(t, "nobody starts a killed worker again")
	t.Parallel()
	const messages = 10_000 / scale
	f := newFixture(t, options{tables: true})
	f.stageMonitor()
	targets := []string{f.target.Addr, strings.Replace(f.target.Addr, "127.0.0.1", "localhost", 1)}
	put := func(first, last int) {
		var texts []string
		for n := first; n < last; n++ {
			script := []string{"503,200", "400", "200", "200", "200"}[n%5]
			url := strings.Replace(f.target.URL(script), targets[0], targets[n%2], 1)
			content := fmt.Appendf(nil, `{"asyncCaller":1,"requestId":"r%d","call":{"url":%q}}`, n, url)
			texts = append(texts, storage.Base64.Encode(content))
		}
		f.putAll(mainQueue, 0, texts)
	}
	var hosts []*testbed.Host
	for range 3 {
		f.start(nil)
		hosts = append(hosts, f.host)
	}
	f.await("the handlers", func() bool {
		return !slices.ContainsFunc(hosts, func(h *testbed.Host) bool { return h.HandlerPID() == 0 })
	})
	put(0, messages/2)
	f.awaitEmpty()
	minute := time.Now().Truncate(time.Minute).Add(time.Minute)
	const written = 3 * time.Second
	f.await("the rows of the first minute", func() bool { return time.Since(minute) > written })
	const linesOfCalls = 40 << 10
	before := len(hosts[0].Output())
	put(messages/2, messages)
	f.await("calls of an instance", func() bool { return len(hosts[0].Output()) > before+linesOfCalls })
	pid := hosts[0].HandlerPID()
	f.must(hosts[0].KillHandler())
	killedAt := time.Now()
	f.await("the next handler", func() bool { return hosts[0].HandlerPID() != pid })
	f.awaitEmpty()
	for _, host := range hosts { // a host that stops kills its handler
		failed := len(host.Lines("handler failed"))
		f.must(host.InterruptHandler())
		f.await("the end of the handler", func() bool { return len(host.Lines("handler failed")) > failed })
	}

	connection, err := azure.ParseConnection([]string{storage.ConnectionName + "=" + f.connectionString},
		storage.ConnectionName)
	f.must(err)
	table, err := azure.OpenTable(connection, storage.SightTable)
	f.must(err)
	numbers, err := sight.NewReader(table).Read(t.Context(), time.Now().Add(2*time.Minute))
	f.must(err)
	killed, _, wasKilled := strings.Cut(hosts[0].Output(), `"message":"handler failed`)
	if !wasKilled {
		t.Fatal("no handler was killed")
	}
	counted, lost := tally{}, tally{}
	for _, target := range targets {
		all, logged := tally{}, tally{}
		of := numbers.Of(target).LastHour
		all.add(map[string]int{"delivered": of.Delivered}, 1)
		all.add(of.Failed, 1)
		all.add(of.Refused, 1)
		for _, host := range hosts {
			logged.add(tallyOf(host.Output(), target, time.Time{}), 1)
		}
		ofKilled := tallyOf(killed, target, killedAt.Truncate(time.Minute))
		logged.add(ofKilled, -1)
		if diff := cmp.Diff(logged, all); diff != "" {
			t.Errorf("%s: (-log +numbers):\n%s", target, diff)
		}
		counted.add(all, 1)
		lost.add(ofKilled, 1)
	}
	answered := 0
	for n := range messages {
		answered += len(f.target.Calls(fmt.Sprintf("r%d", n)))
	}
	missing := answered - counted["delivered"] - counted["temporary_status"] - counted["rejected"]
	inFlight := missing - lost["delivered"] - lost["temporary_status"] - lost["rejected"]
	dead := f.count(poisonQueue)
	t.Logf("%d calls, counted %v, lost %v and %d in flight, %d dead letters", answered, counted, lost, inFlight, dead)
	if inFlight < 0 || inFlight > 256 {
		t.Errorf("%d calls are neither counted nor in the log of the killed instance", inFlight)
	}
	// A call whose message the killed instance could not delete is made again.
	if of := counted["rejected"]; dead < max(of, messages/5) || dead > of+lost["rejected"]+inFlight {
		t.Errorf("%d calls were rejected, and %d messages are dead letters", of, dead)
	}
	f.mustShowNumbers(targets)
}

// mustShowNumbers waits until the status shows that targets were called.
func (f *fixture) mustShowNumbers(targets []string) {
	f.t.Helper()
	f.await("the numbers of a full minute", func() bool {
		command, out, _ := f.operate("status", "--json")
		var status account.Status
		_ = command.Run() // exit code 4 while rows of the killed instance are missing
		if json.Unmarshal(out.Bytes(), &status) != nil {
			return false
		}
		shown := 0
		for _, target := range status.Targets {
			if slices.Contains(targets, target.Key) && target.Numbers.LastHour.Delivered > 0 {
				shown++
			}
		}
		return shown == len(targets)
	})
}
