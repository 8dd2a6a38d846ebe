package main

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/admission"
	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/retry"
	"asynccaller/handler/internal/targets"
)

// These tests calculate the tables of docs/capacity.md with its formulas, and check the formula for slots against a
// simulation. Times are seconds.

const (
	storageLatency = 0.010  // one request to storage
	spare          = 1.25   // a quarter more than needed
	processorTime  = 0.0035 // host and handler, one message
	queueLimit     = 2000   // messages a second
	accountLimit   = 20000
)

// listener is the loop of the Functions host for one queue function on one instance: it receives up to batch messages,
// starts them, waits until at most threshold are in flight, and receives again.
type listener struct {
	batch, threshold int
	receive          float64
}

// atLeast and atMost bound the attempts per second, if each attempt takes held on average.
func (l listener) atLeast(held float64) float64 {
	n := float64(l.threshold + 1)
	return n / (held + n*l.receive/float64(l.batch))
}

func (l listener) atMost(held float64) float64 {
	return min(float64(l.batch+l.threshold)/held, float64(l.batch)/l.receive)
}

// shipped has the numbers of host.json, as TestCapacityOfSlots checks. Share is the slots that one target gets then.
var shipped = listener{32, 224, storageLatency}

const share = 56

func TestCapacityOfSlots(t *testing.T) {
	host, err := functionapp.LoadHost("..", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := (listener{host.Queues.BatchSize, host.Queues.NewBatchThreshold, storageLatency}); got != shipped {
		t.Errorf("host.json has %v, docs/capacity.md is about %v", got, shipped)
	}
	gate, slots := admission.New(shipped.threshold, 400<<10), 0
	target := &url.URL{Scheme: "https", Host: "api.example"}
	request := admission.Request{Function: "AC-standard", Target: target, Profile: targets.Profiles{}.For(target)}
	for refusal := (*admission.Refusal)(nil); refusal == nil; slots++ {
		_, refusal = gate.Admit(request, time.Time{}, 0)
	}
	if slots--; slots != share {
		t.Errorf("one target gets %d slots, docs/capacity.md says %d", slots, share)
	}
}

// expectTable checks that the document has a table.
func expectTable(t *testing.T, rows [][]string) {
	t.Helper()
	var table strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&table, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			table.WriteString("|" + strings.Repeat(" --- |", len(row)) + "\n")
		}
	}
	if !strings.Contains(read(t, "../docs/capacity.md"), table.String()) {
		t.Errorf("docs/capacity.md does not have this table:\n%s", &table)
	}
}

func up(x float64) int { return int(math.Ceil(x * (1 - 1e-12))) }

func TestCapacityOfInstances(t *testing.T) {
	for _, attempts := range []func(held float64) float64{
		shipped.atLeast,
		func(held float64) float64 { return share / held },
	} {
		rows := [][]string{{"calls/s", "100ms", "500ms", "2s", "10s", "60s"}}
		for _, rate := range []float64{1, 10, 50, 100, 400} {
			row := []string{fmt.Sprint(rate)}
			for _, latency := range []float64{0.1, 0.5, 2, 10, 60} {
				slots, processors := up(rate*spare/attempts(latency+storageLatency)), up(rate*spare*processorTime)
				cell := fmt.Sprint(max(slots, processors))
				if processors > slots {
					cell += "*"
				}
				row = append(row, cell)
			}
			rows = append(rows, row)
		}
		expectTable(t, rows)
	}
}

// weight is how many messages of 1 KiB storage counts for a message with an envelope of this size.
func weight(kib float64) float64 { return max(1, kib*4/3) }

func TestCapacityOfQueues(t *testing.T) {
	rows := [][]string{{"envelope", "calls/s of a queue", "calls/s of a storage account"}}
	for _, kib := range []float64{0.75, 1, 4, 16, 48} {
		perCall := (2*weight(kib) + 1) * spare
		rows = append(rows, []string{fmt.Sprintf("%v KiB", kib), fmt.Sprint(int(queueLimit / perCall)), fmt.Sprint(int(accountLimit / perCall))})
	}
	expectTable(t, rows)
}

func TestCapacityOfTransactions(t *testing.T) {
	rows := [][]string{{"a million calls", "sender's puts", "handler's writes", "host's deletes", "host's receives", "total"}}
	for _, end := range []struct {
		name             string
		messages, writes float64
	}{
		{"delivered at once", 1, 0},
		{"delivered after 1 retry", 2, 1},
		{"delivered after 3 retries", 4, 3},
		{"delivered at once, with a callback", 2, 1},
		{"dead-lettered at once", 1, 1},
	} {
		least, most := end.messages/float64(shipped.batch), end.messages
		without := 1 + end.writes + end.messages
		rows = append(rows, []string{
			end.name, "1 M", fmt.Sprintf("%v M", end.writes), fmt.Sprintf("%v M", end.messages),
			fmt.Sprintf("%.2f to %v M", least, most), fmt.Sprintf("%.2f to %v M", without+least, without+most),
		})
	}
	expectTable(t, rows)
}

func TestCapacityOfOutages(t *testing.T) {
	rows := [][]string{{"outage", "attempts of a call, mean", "attempts/s at its end", "last wait after its end"}}
	policy := retry.Default()
	for _, outage := range []time.Duration{10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour} {
		length, at, mean, attempts := outage.Seconds(), 0.0, 0.0, 0
		var wait time.Duration
		for at < length {
			attempts++
			mean += 1 - at/length // of the calls come early enough for this attempt
			shortest, longest := policy.Bounds(attempts)
			wait = (shortest + longest) / 2
			at += wait.Seconds()
		}
		rows = append(rows, []string{
			strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(outage.String()), fmt.Sprintf("%.1f", mean), fmt.Sprintf("%d × calls/s", attempts), wait.String(),
		})
	}
	expectTable(t, rows)
}

// moments is a heap.
type moments []float64

func (m moments) Len() int           { return len(m) }
func (m moments) Less(i, j int) bool { return m[i] < m[j] }
func (m moments) Swap(i, j int)      { m[i], m[j] = m[j], m[i] }
func (m *moments) Push(x any)        { *m = append(*m, x.(float64)) }
func (m *moments) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}

// simulate returns the attempts per second that the loop makes from a queue that never gets empty.
func (l listener) simulate(held func() float64) float64 {
	const attempts = 60_000
	now, ended := 0.0, 0
	var inFlight moments
	for ended < attempts {
		now += l.receive
		for len(inFlight) > 0 && inFlight[0] <= now { // ended during the receive
			heap.Pop(&inFlight)
			ended++
		}
		for range l.batch {
			heap.Push(&inFlight, now+held())
		}
		for len(inFlight) > l.threshold {
			now = max(now, heap.Pop(&inFlight).(float64))
			ended++
		}
	}
	return float64(ended) / now
}

// TestListenerAgainstSimulation checks that the bounds hold, however latencies are distributed around their mean, and that
// the loop comes near to the lower bound if a few calls take almost all of the time.
func TestListenerAgainstSimulation(t *testing.T) {
	const noise = 0.05
	random := rand.New(rand.NewPCG(1, 2))
	rare := func(share float64) func() float64 {
		return func() float64 {
			if random.Float64() < share {
				return 1 / share
			}
			return 0
		}
	}
	for name, l := range map[string]listener{
		"shipped": shipped, "host_default": {16, 8, storageLatency}, "one_at_a_time": {1, 0, storageLatency}, "slow_storage": {4, 100, 0.2},
	} {
		for distribution, held := range map[string]func() float64{
			"constant":    func() float64 { return 1 },
			"exponential": random.ExpFloat64,
			"uniform":     func() float64 { return 2 * random.Float64() },
			"uneven":      rare(0.05),
		} {
			t.Run(name+"/"+distribution, func(t *testing.T) {
				for _, mean := range []float64{0.002, 0.1, 2} {
					got := l.simulate(func() float64 { return mean * held() })
					if least, most := l.atLeast(mean), l.atMost(mean); got < least*(1-noise) || got > most*(1+noise) {
						t.Errorf("mean %v s: %v attempts/s, want %v to %v", mean, got, least, most)
					}
				}
			})
		}
	}
	held := rare(0.02)
	if got, least := shipped.simulate(func() float64 { return 2 * held() }), shipped.atLeast(2); got > least*1.15 {
		t.Errorf("%v attempts/s at worst, the bound is %v", got, least)
	}
}
