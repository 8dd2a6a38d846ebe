package capacity

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/explain"
	"asynccaller/handler/internal/queue"
)

// timetable makes a timetable of attempts at these seconds after the first.
func timetable(moments ...float64) explain.Schedule {
	t := explain.Schedule{Policy: "test"}
	for _, m := range moments {
		at := explain.Seconds(m * float64(time.Second))
		t.Attempts = append(t.Attempts, explain.Attempt{Earliest: at, Latest: at})
	}
	return t
}

// question is one that can be answered, with changes.
func question(change func(*Question)) Question {
	q := Question{
		Rate: 500, Latency: 2 * time.Second, MessageBytes: 1 << 10, Spare: 0.25,
		StorageLatency: 10 * time.Millisecond, Host: Shipped(), Timetable: timetable(0, 5, 15, 35, 75),
	}
	if change != nil {
		change(&q)
	}
	return q
}

func mustPlan(tb testing.TB, q Question) Answer {
	tb.Helper()
	a, err := Plan(q)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

func near(tb testing.TB, what string, got Figure, want float64) {
	tb.Helper()
	if math.Abs(float64(got)-want) > 1e-3*math.Abs(want) {
		tb.Errorf("%s: %v, want %v", what, float64(got), want)
	}
}

// What the command line shows first, worked out by hand.
func TestPlan(t *testing.T) {
	a := mustPlan(t, question(nil))
	near(t, "attempts", a.Load.Attempts, 500)
	near(t, "in flight", a.Load.InFlight, 1005) // 500 * (2 s + 10 ms)
	near(t, "surely", a.Listener.Surely, 9/(2.01+9*0.01/16))
	near(t, "capacity", a.Layout.Capacity, 140*float64(a.Listener.Surely))
	want := Layout{
		Enough: true, Accounts: 1,
		Queues:        2,  // 500 * (1.34 put + 1.34 got + 1 deleted) * 1.25 is 2,295, and receives in vain
		Instances:     70, // 625 / 4.465 is just below 140 listeners
		FlexInstances: 140, QueuesByCount: 2,
		Capacity: a.Layout.Capacity, QueueMessages: a.Layout.QueueMessages, AccountMessages: a.Layout.AccountMessages,
	}
	if diff := cmp.Diff(want, a.Layout); diff != "" {
		t.Errorf("layout (-want +got):\n%s", diff)
	}
	if a.Memory != (Memory{Places: 48, PerCall: 60 << 10, PerInstance: 14<<20 + 48*60<<10}) {
		t.Errorf("memory %+v", a.Memory)
	}
	if a.Outage != nil {
		t.Error("an outage that nobody asked for")
	}
}

func TestFailing(t *testing.T) {
	for name, test := range map[string]struct {
		failing                       float64
		perCall, reschedules, givenUp float64
		held, waiting                 float64
	}{
		"none":    {0, 1, 0, 0, 2.01, 0},
		"a_tenth": {0.1, 1.1111, 50 * 1.111, 0.005, 0.9*2.01 + 0.1*10.02, 500 * (0.1*5 + 0.01*10 + 0.001*20 + 0.0001*40)},
		"half":    {0.5, 1.9375, 500 * 0.9375, 500.0 / 32, 0.5*2.01 + 0.5*10.02, 500 * (2.5 + 2.5 + 2.5 + 2.5)},
		"all":     {1, 5, 2000, 500, 10.02, 500 * 75},
	} {
		t.Run(name, func(t *testing.T) {
			l := mustPlan(t, question(func(q *Question) { q.Failing, q.FailingLatency = test.failing, 10*time.Second })).Load
			near(t, "attempts per call", l.AttemptsPerCall, test.perCall)
			near(t, "attempts", l.Attempts, 500*test.perCall)
			near(t, "reschedules", l.Reschedules, test.reschedules)
			near(t, "given up", l.GivenUp, test.givenUp)
			near(t, "waiting", l.Waiting, test.waiting)
			near(t, "held", Figure(time.Duration(l.Held).Seconds()), test.held)
			near(t, "in flight", l.InFlight, 500*test.perCall*test.held)
		})
	}
}

// A call that fails takes as long as others unless it is said how long.
func TestFailingLatencyDefault(t *testing.T) {
	a := mustPlan(t, question(func(q *Question) { q.Failing = 0.5 }))
	b := mustPlan(t, question(func(q *Question) { q.Failing, q.FailingLatency = 0.5, 2*time.Second }))
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("(-default +2s):\n%s", diff)
	}
}

func TestHostDefaults(t *testing.T) {
	given := mustPlan(t, question(func(q *Question) {
		q.Host.NewBatchThreshold, q.Host.BatchSize, q.Host.MaxPollingInterval = -1, 20, 0
	})).Given
	if given.NewBatchThreshold != 10 || given.MaxPollingInterval != Span(time.Minute) {
		t.Errorf("threshold %d, interval %v", given.NewBatchThreshold, given.MaxPollingInterval)
	}
	given = mustPlan(t, question(func(q *Question) { q.Host.NewBatchThreshold = 0 })).Given
	if given.NewBatchThreshold != 0 {
		t.Errorf("a threshold of 0 became %d", given.NewBatchThreshold)
	}
}

func TestRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Question)
		want   string
	}{
		"rate_zero":        {func(q *Question) { q.Rate = 0 }, "rate: "},
		"rate_small":       {func(q *Question) { q.Rate = 0.0009 }, "rate: "},
		"rate_large":       {func(q *Question) { q.Rate = 1_000_001 }, "rate: "},
		"rate_nan":         {func(q *Question) { q.Rate = math.NaN() }, "rate: "},
		"rate_endless":     {func(q *Question) { q.Rate = math.Inf(1) }, "rate: "},
		"latency_zero":     {func(q *Question) { q.Latency = 0 }, "latency: "},
		"latency_negative": {func(q *Question) { q.Latency = -1 }, "latency: "},
		"latency_long":     {func(q *Question) { q.Latency = 121 * time.Second }, "latency: "},
		"failing_negative": {func(q *Question) { q.Failing = -0.1 }, "failing: "},
		"failing_large":    {func(q *Question) { q.Failing = 1.1 }, "failing: "},
		"failing_nan":      {func(q *Question) { q.Failing = math.NaN() }, "failing: "},
		"failing_long":     {func(q *Question) { q.FailingLatency = 3 * time.Minute }, "failing-latency: "},
		"message_empty":    {func(q *Question) { q.MessageBytes = 0 }, "message: "},
		"message_large":    {func(q *Question) { q.MessageBytes = 48<<10 + 1 }, "message: give the size of an envelope, 1 to 49152 bytes: a queue takes 65536, and it is base64 there"},
		"message_plain":    {func(q *Question) { q.MessageBytes, q.Host.Encoding = 64<<10+1, queue.None }, "message: give the size of an envelope, 1 to 65536 bytes: a queue takes 65536, and it is not encoded there"},
		"queues":           {func(q *Question) { q.Queues = -1 }, "queues: "},
		"queues_many":      {func(q *Question) { q.Queues = 1_000_001 }, "queues: "},
		"instances":        {func(q *Question) { q.Instances = -1 }, "instances: "},
		"instances_many":   {func(q *Question) { q.Instances = 100_001 }, "instances: "},
		"spare":            {func(q *Question) { q.Spare = 10.1 }, "spare: give a share, 0% to 1000%"},
		"storage_zero":     {func(q *Question) { q.StorageLatency = 0 }, "storage-latency: "},
		"storage_long":     {func(q *Question) { q.StorageLatency = 11 * time.Second }, "storage-latency: "},
		"outage_negative":  {func(q *Question) { q.Outage = -1 }, "outage: "},
		"outage_long":      {func(q *Question) { q.Outage = 367 * 24 * time.Hour }, "outage: "},
		"no_attempt":       {func(q *Question) { q.Timetable = timetable() }, "policy: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Plan(question(test.change))
			if err == nil || !strings.HasPrefix(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want one line that begins %q", err, test.want)
			}
		})
	}
	_, err := Plan(Question{Failing: 2, Host: Shipped()})
	if lines := strings.Count(err.Error(), "\n") + 1; lines != 6 {
		t.Errorf("%d problems, want all 6:\n%v", lines, err)
	}
}

// The ends of what may be asked are answered.
func TestLargestAndSmallest(t *testing.T) {
	for name, change := range map[string]func(*Question){
		"most": func(q *Question) {
			q.Rate, q.Latency, q.Failing, q.MessageBytes, q.Spare = maxRate, maxLatency, 1, 48<<10, maxSpare
			q.StorageLatency, q.Outage = maxStorageLatency, maxOutage
		},
		"least": func(q *Question) { q.Rate, q.Latency, q.MessageBytes, q.StorageLatency, q.Spare = minRate, 1, 1, 1, 0 },
		"plain": func(q *Question) { q.MessageBytes, q.Host.Encoding = 64<<10, queue.None },
	} {
		t.Run(name, func(t *testing.T) {
			a := mustPlan(t, question(change))
			if !a.Layout.Enough {
				t.Errorf("not enough: %+v", a.Layout)
			}
		})
	}
}

// FuzzPlan: whatever is asked, the answer hangs together.
func FuzzPlan(f *testing.F) {
	f.Add(500.0, int64(2e9), 0.1, int64(0), 1024, 0, 0, 0.25, int64(1e7), 16, 8, int64(2e9), 11, int64(3.6e12))
	f.Add(0.001, int64(1), 1.0, int64(1.2e11), 1, 1, 100000, 0.0, int64(1e10), 1, 0, int64(1e8), 0, int64(1))
	f.Add(1e6, int64(1.2e11), 0.0, int64(0), 49152, 7, 3, 10.0, int64(1), 32, 1000, int64(8.64e13), 100, int64(3e16))
	f.Fuzz(func(t *testing.T, rate float64, latency int64, failing float64, failingLatency int64, bytes, queues, instances int,
		spare float64, storage int64, batch, threshold int, polling int64, functions int, outage int64,
	) {
		q := Question{
			Rate: rate, Latency: time.Duration(latency), Failing: failing, FailingLatency: time.Duration(failingLatency), MessageBytes: bytes,
			Queues: queues, Instances: instances, Spare: spare, StorageLatency: time.Duration(storage), Outage: time.Duration(outage),
			Timetable: timetable(0, 5, 15, 35, 75),
			Host: Host{
				BatchSize: min(max(batch, 1), 32), NewBatchThreshold: min(max(threshold, -1), 1000),
				MaxPollingInterval: time.Duration(min(max(polling, 1e8), 8.64e13)),
				Encoding:           queue.Base64, QueueFunctions: min(max(functions, 0), 1000),
			},
		}
		a, err := Plan(q)
		if err != nil {
			if !strings.Contains(err.Error(), ": ") {
				t.Fatalf("%v names no flag", err)
			}
			return
		}
		l := a.Listener
		if !(l.Surely > 0 && l.Surely <= l.Usually*1.000001 && l.Usually <= l.AtMost*1.000001) {
			t.Errorf("surely %v, usually %v, at most %v", float64(l.Surely), float64(l.Usually), float64(l.AtMost))
		}
		if a.Layout.Queues < 1 || a.Layout.Instances < 1 || a.Layout.Accounts < 1 || (queues > 0 && a.Layout.Queues != queues) || (instances > 0 && a.Layout.Instances != instances) {
			t.Errorf("layout %+v", a.Layout)
		}
		if instances == 0 && a.Layout.Capacity < a.Load.Attempts {
			t.Errorf("instances for %v attempts/s, not for %v", a.Layout.Capacity, a.Load.Attempts)
		}
		for _, item := range a.Cost.Items {
			if item.PerMonth < 0 || item.PerMillion < 0 {
				t.Errorf("%+v", item)
			}
		}
		if len(a.Advice) == 0 {
			t.Error("no advice")
		}
		if _, err := json.Marshal(a); err != nil {
			t.Error(err) // a number that is none
		}
		for _, group := range Report(a) {
			for _, row := range group.Rows {
				if row.Label == "" || len(row.Figures) != len(group.Titles)-1 {
					t.Errorf("%+v", row)
				}
				text := strings.Join(row.Figures, " ") + " " + row.Why
				for _, wrong := range []string{"NaN", "Inf", "e+", "e-", "%!"} {
					if strings.Contains(text, wrong) || strings.HasPrefix(text, "-") {
						t.Errorf("%+v", row)
					}
				}
			}
		}
	})
}
