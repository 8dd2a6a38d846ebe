// Package capacity works out what a deployment needs: how many instances and queues carry so many calls a
// second, what limits them, what that costs in storage transactions, and what an outage of the targets does.
// It is pure: a [Question] in, an [Answer] out. How the Functions host polls its queues is in host.go, what
// Queue Storage takes in storage.go; docs/capacity.md has the derivations.
package capacity

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"asynccaller/handler/internal/explain"
	"asynccaller/handler/internal/queue"
)

// Bounds of a question.
const (
	minRate = 0.001
	maxRate = 1_000_000
	// maxLatency is the call timeout that we ship: no call lasts longer.
	maxLatency        = 120 * time.Second
	maxStorageLatency = 10 * time.Second // what one try of a write may take
	maxSpare          = 10
	maxQueues         = 1_000_000
	maxInstances      = 100_000
	maxOutage         = 366 * 24 * time.Hour
)

// Question is what somebody wants to know. Times a second count calls, not attempts.
type Question struct {
	// Rate is how many calls come in a second, 0.001 to 1,000,000. A callback is a call of its own.
	Rate float64
	// Latency is how long a target takes for a call on average, more than 0 and at most 120 s.
	Latency time.Duration
	// Failing is the share of the attempts that fail and are tried again, 0 to 1; FailingLatency is how
	// long those take, 0 for as long as the others.
	Failing        float64
	FailingLatency time.Duration
	// MessageBytes is the size of an envelope, before any encoding.
	MessageBytes int
	// Queues is over how many queues the calls are spread evenly, and Instances how many instances each
	// Function App has; 0 for as many as needed.
	Queues, Instances int
	// Spare is how much more than needed there shall be, as a share: 0.25 is a quarter more.
	Spare float64
	// StorageLatency is how long one request to storage takes, more than 0 and at most 10 s.
	StorageLatency time.Duration
	Host           Host
	// Timetable is when the retry policy makes its attempts.
	Timetable explain.Schedule
	// Outage is how long no target answers; 0 for no outage.
	Outage time.Duration
}

// Host is what counts of an app folder: host.json's `extensions.queues`, and how many queue functions there
// are.
type Host struct {
	// BatchSize is how many messages one receive asks for, 1 to 32.
	BatchSize int
	// NewBatchThreshold is the number of messages in flight at or below which the next receive starts.
	// Negative is what the host does without it on one processor, the fewest: half of BatchSize.
	NewBatchThreshold int
	// MaxPollingInterval is the longest wait between receives of an empty queue; 0 is the host's
	// default, a minute.
	MaxPollingInterval time.Duration
	Encoding           queue.Encoding
	// QueueFunctions is how many queues every instance polls, those without calls included.
	QueueFunctions int
}

// Shipped is the app folder as we ship it.
func Shipped() Host {
	return Host{BatchSize: 16, NewBatchThreshold: 8, MaxPollingInterval: 2 * time.Second, Encoding: queue.Base64, QueueFunctions: 11}
}

// Plan answers a question. The error joins what is wrong with the question, a line each that begins with the
// name of the flag without its dashes.
func Plan(q Question) (Answer, error) {
	if err := q.check(); err != nil {
		return Answer{}, err
	}
	q = q.complete()
	d := newDemand(q)
	l := d.layout(q.Queues, q.Instances)
	a := Answer{
		Given:    q.given(),
		Load:     d.load(),
		Listener: d.listener.rates(d.held),
		Layout:   d.describe(l),
		Memory:   memoryOf(q, l),
		Cost:     d.cost(l),
		Ends:     ends(q.Host.BatchSize),
	}
	if q.Outage > 0 {
		a.Outage = new(d.outage(l))
	}
	a.Advice = advise(q, d, l, a)
	return a, nil
}

func (q Question) check() error {
	var problems []error
	want := func(ok bool, flag, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(flag+": "+format, args...))
		}
	}
	largest := q.Host.Encoding.MaxContentBytes()
	// The comparisons are the way round that refuses NaN.
	want(q.Rate >= minRate && q.Rate <= maxRate, "rate", "give the calls a second, %v to %d", minRate, maxRate)
	want(q.Latency > 0 && q.Latency <= maxLatency, "latency", "give how long a target takes, such as 200ms, above 0 and at most %v", maxLatency)
	want(q.Failing >= 0 && q.Failing <= 1, "failing", "give the share of attempts that fail, 0%% to 100%%")
	want(q.FailingLatency >= 0 && q.FailingLatency <= maxLatency, "failing-latency", "give a duration such as 10s, at most %v", maxLatency)
	want(q.MessageBytes >= 1 && q.MessageBytes <= largest, "message", "give the size of an envelope, 1 to %d bytes: a queue takes %d, and it is %s there",
		largest, queue.MaxTextBytes, encoded(q.Host.Encoding))
	want(q.Queues >= 0 && q.Queues <= maxQueues, "queues", "give 1 to %d, or 0 for as many as needed", maxQueues)
	want(q.Instances >= 0 && q.Instances <= maxInstances, "instances", "give 1 to %d, or 0 for as many as needed", maxInstances)
	want(q.Spare >= 0 && q.Spare <= maxSpare, "spare", "give a share, 0%% to %d%%", maxSpare*100)
	want(q.StorageLatency > 0 && q.StorageLatency <= maxStorageLatency, "storage-latency", "give a duration such as 10ms, above 0 and at most %v", maxStorageLatency)
	want(q.Outage >= 0 && q.Outage <= maxOutage, "outage", "give a duration such as 1h, at most %v", maxOutage)
	want(len(q.Timetable.Attempts) > 0, "policy", "it makes no attempt before the deadline")
	return errors.Join(problems...)
}

func encoded(e queue.Encoding) string {
	if e == queue.None {
		return "not encoded"
	}
	return string(e)
}

// complete fills in what was left to us.
func (q Question) complete() Question {
	q.FailingLatency = cmp.Or(q.FailingLatency, q.Latency)
	q.Host.MaxPollingInterval = cmp.Or(q.Host.MaxPollingInterval, time.Minute)
	if q.Host.NewBatchThreshold < 0 {
		q.Host.NewBatchThreshold = q.Host.BatchSize / 2
	}
	return q
}

// demand is what the calls ask of instances and storage, however they are spread. Rates are a second, times
// are seconds.
type demand struct {
	rate float64
	// attempts is how many calls are made, reschedules how many of them write a successor, givenUp how many
	// end at the policy's last attempt.
	attempts, reschedules, givenUp float64
	// held is how long an attempt keeps its place in flight on average, heldFailing when it fails.
	held, heldFailing float64
	// waiting is how many messages are rescheduled and not due at a time.
	waiting float64
	// weight is what a message counts for storage, textBytes its size on the queue.
	weight    float64
	textBytes float64
	spare     float64
	listener  listener
	// functions is how many queues every instance polls at least.
	functions int
	moments   []float64
	length    float64 // of the outage
}

func newDemand(q Question) demand {
	storage := q.StorageLatency.Seconds()
	d := demand{
		rate:  q.Rate,
		spare: q.Spare,
		// The host's delete is over before the place is free, and so is our write when a call failed.
		heldFailing: q.FailingLatency.Seconds() + 2*storage,
		weight:      weight(q.textBytes()),
		textBytes:   float64(q.textBytes()),
		functions:   q.Host.QueueFunctions,
		moments:     moments(q.Timetable),
		length:      q.Outage.Seconds(),
		listener: listener{
			batch:     q.Host.BatchSize,
			threshold: q.Host.NewBatchThreshold,
			receive:   storage,
			longest:   q.Host.MaxPollingInterval.Seconds(),
		},
	}
	d.held = (1-q.Failing)*(q.Latency.Seconds()+storage) + q.Failing*d.heldFailing
	share := 1.0 // of the calls that come to the i-th attempt
	for i := range d.moments {
		d.attempts += d.rate * share
		if i > 0 {
			d.reschedules += d.rate * share
			d.waiting += d.rate * share * (d.moments[i] - d.moments[i-1])
		}
		share *= q.Failing
	}
	d.givenUp = d.rate * share
	return d
}

// moments are when the attempts of a call come on average, in seconds after the first.
func moments(t explain.Schedule) []float64 {
	all := make([]float64, len(t.Attempts))
	for i, a := range t.Attempts {
		all[i] = time.Duration(a.Earliest+a.Latest).Seconds() / 2
	}
	return all
}

// attemptsPerCall is 1 when nothing fails.
func (d demand) attemptsPerCall() float64 { return d.attempts / d.rate }

// wanted is how many attempts a second there shall be room for.
func (d demand) wanted() float64 { return d.attempts * (1 + d.spare) }

func (d demand) load() Load {
	return Load{
		AttemptsPerCall: Figure(d.attemptsPerCall()),
		Attempts:        Figure(d.attempts),
		Reschedules:     Figure(d.reschedules),
		GivenUp:         Figure(d.givenUp),
		Held:            seconds(d.held),
		InFlight:        Figure(d.attempts * d.held),
		Waiting:         Figure(d.waiting),
	}
}

// textBytes is the size of a message as it stands on the queue.
func (q Question) textBytes() int {
	if q.Host.Encoding == queue.None {
		return q.MessageBytes
	}
	return (q.MessageBytes + 2) / 3 * 4
}

// up rounds up to a whole number, with room for what floating point adds to one.
func up(x float64) int { return int(math.Ceil(x * (1 - 1e-12))) }

// count rounds to a whole number; what is too large for one is cut.
func count(x float64) int64 { return int64(math.Round(min(x, 1<<62))) }
