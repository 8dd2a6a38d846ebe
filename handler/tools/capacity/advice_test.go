package capacity

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// about finds the advice about something.
func about(a Answer, change string) (Advice, bool) {
	i := slices.IndexFunc(a.Advice, func(advice Advice) bool { return advice.Change == change })
	if i < 0 {
		return Advice{}, false
	}
	return a.Advice[i], true
}

// lean is a load that one instance carries, with nothing to be said about it.
func lean(q *Question) { q.Rate, q.Latency, q.Host.QueueFunctions = 5, 100*time.Millisecond, 1 }

func TestAdvice(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Question)
		about  string
		to     int
		text   string
	}{
		"nothing":         {lean, changeNothing, 0, "Nothing to change."},
		"threshold":       {func(q *Question) { q.Queues = 2 }, changeThreshold, 216, "3 instances are enough instead of 70"},
		"one_instance":    {func(q *Question) { q.Rate, q.Latency = 10, time.Second }, changeThreshold, 12, "1 instance is enough instead of 2"},
		"instances":       {func(q *Question) { q.Instances = 5 }, changeInstances, 70, "625 attempts a second are wanted, and 5 surely make 44.7 only"},
		"plan":            {func(q *Question) { q.Rate = 10_000; q.Queues = 1 }, changeInstances, 0, "No plan gives"},
		"connections":     {func(q *Question) { q.Host.NewBatchThreshold = 600 }, changeThreshold, 0, "1,232 calls in flight"},
		"more_queues":     {func(q *Question) { q.Queues = 1 }, changeQueues, 2, "more than 2,000. Spread the calls evenly over 2 queues; the priorities"},
		"own_queues":      {func(q *Question) { q.Host.QueueFunctions = 1 }, changeQueues, 2, "the app has 1, a folder in functions/ adds one"},
		"accounts":        {func(q *Question) { q.Rate, q.Latency = 5000, 10*time.Millisecond }, changeAccounts, 2, "each with a Function App of its own"},
		"queues_of_both":  {func(q *Question) { q.Rate, q.Latency = 5000, 10*time.Millisecond }, changeQueues, 12, ", 6 on each storage account"},
		"polling":         {func(q *Question) { q.Rate, q.Instances, q.Queues = 1, 10_000, 1 }, changePolling, 0, "Raise maxPollingInterval"},
		"unused":          {func(q *Question) { q.Rate, q.Queues = 0.01, 1 }, changeFunctions, 1, "look into 10 queues without calls"},
		"outage_late":     {func(q *Question) { lean(q); q.Outage, q.FailingLatency = time.Hour, 100*time.Second }, changeInstances, 278, "would keep up"},
		"outage_queue":    {func(q *Question) { q.Queues, q.Outage = 2, time.Hour }, changeQueues, 5, "5 queues would take it"},
		"outage_given_up": {func(q *Question) { lean(q); q.Outage = time.Hour }, changeRate, 0, "17,625 calls are given up"},
		"outage_too_large": {func(q *Question) {
			q.Rate, q.MessageBytes, q.Queues, q.Outage, q.Timetable = maxRate, 48<<10, 1, maxOutage, timetable(0, 1e9)
		}, changeQueues, 0, "more than the queues hold, 500 TiB each"},
		"outage_forever": {func(q *Question) { q.Instances, q.Outage = 10, time.Minute }, changeRate, 0, "never worked off"},
	} {
		t.Run(name, func(t *testing.T) {
			a := mustPlan(t, question(test.change))
			var got []string
			for _, advice := range a.Advice {
				if advice.Change == test.about && advice.To == test.to && strings.Contains(advice.Text, test.text) {
					return
				}
				got = append(got, advice.Change+": "+advice.Text)
			}
			t.Errorf("no advice about %s (to %d) with %q, but:\n%s", test.about, test.to, test.text, strings.Join(got, "\n"))
		})
	}
}

// Who takes the advice is no longer given it: the figures in it are true.
func TestAdviceHelps(t *testing.T) {
	for _, q := range []Question{
		question(nil),
		question(func(q *Question) { q.Instances = 5 }),
		question(func(q *Question) { q.Queues, q.Rate = 1, 2000 }),
		question(func(q *Question) { q.Queues, q.Rate, q.Latency, q.Failing = 3, 900, 30*time.Second, 0.3 }),
		question(func(q *Question) { q.Rate, q.MessageBytes, q.Queues = 100, 48<<10, 2 }),
	} {
		before := mustPlan(t, q)
		if advice, ok := about(before, changeQueues); ok {
			changed := q
			changed.Queues = advice.To
			if after := mustPlan(t, changed).Layout; after.QueueMessages > queueMessages {
				t.Errorf("%s\nbut with that a queue still takes %v", advice.Text, after.QueueMessages)
			}
		}
		if advice, ok := about(before, changeInstances); ok && advice.To > 0 {
			changed := q
			changed.Instances, changed.Queues = advice.To, before.Layout.Queues
			if after := mustPlan(t, changed).Layout; after.Capacity < before.Load.Attempts {
				t.Errorf("%s\nbut with that they make %v", advice.Text, after.Capacity)
			}
		}
		if advice, ok := about(before, changeThreshold); ok && advice.To > 0 {
			changed := q
			changed.Host.BatchSize, changed.Host.NewBatchThreshold = 32, advice.To
			changed.Instances, changed.Queues = 0, before.Layout.Queues
			after := mustPlan(t, changed).Layout
			if want := plural(after.Instances, "instance is", "instances are"); !strings.Contains(advice.Text, "host.json "+want+" enough") {
				t.Errorf("%s\nbut with that %s enough", advice.Text, want)
			}
			if after.Instances*(32+advice.To) > after.Instances*mostInFlight/before.Layout.Queues {
				t.Errorf("%s\nbut that is more than %d in flight", advice.Text, mostInFlight)
			}
		}
	}
}

// In an outage too.
func TestOutageAdviceHelps(t *testing.T) {
	q := question(func(q *Question) { q.Outage, q.Queues = time.Hour, 2 })
	before := mustPlan(t, q)
	if before.Outage.KeepsUp || before.Outage.QueueMessages <= queueMessages {
		t.Fatalf("%+v is no trouble", before.Outage)
	}
	queues := q
	for _, advice := range before.Advice {
		if advice.Change == changeQueues {
			queues.Queues = advice.To
		}
	}
	if after := mustPlan(t, queues).Outage; after.QueueMessages > queueMessages {
		t.Errorf("with %d queues each takes %v", queues.Queues, after.QueueMessages)
	}
	advice, _ := about(before, changeInstances)
	q.Instances = advice.To
	if after := mustPlan(t, q).Outage; !after.KeepsUp {
		t.Errorf("%d instances do not keep up", q.Instances)
	}
}
