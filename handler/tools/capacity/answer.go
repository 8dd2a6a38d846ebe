package capacity

import (
	"encoding/json"
	"strconv"
	"time"
)

// Answer is what a deployment needs, and why. Its JSON names are for scripts, and stay.
type Answer struct {
	Given    Given    `json:"given"`
	Load     Load     `json:"load"`
	Listener Listener `json:"oneInstanceAndQueue"`
	Layout   Layout   `json:"layout"`
	Memory   Memory   `json:"memory"`
	Cost     Cost     `json:"transactions"`
	// Ends says what a million calls cost by how they end, all of them the same way.
	Ends []End `json:"aMillionCalls"`
	// Outage is nil when none was asked for.
	Outage *Outage  `json:"outage,omitempty"`
	Advice []Advice `json:"advice"`
}

// Given is the question with all that was filled in.
type Given struct {
	Rate               Figure `json:"rate"`
	Latency            Span   `json:"latencySeconds"`
	Failing            Figure `json:"failing"`
	FailingLatency     Span   `json:"failingLatencySeconds"`
	MessageBytes       int    `json:"messageBytes"`
	TextBytes          int    `json:"messageBytesOnTheQueue"`
	Spare              Figure `json:"spare"`
	StorageLatency     Span   `json:"storageLatencySeconds"`
	BatchSize          int    `json:"batchSize"`
	NewBatchThreshold  int    `json:"newBatchThreshold"`
	MaxPollingInterval Span   `json:"maxPollingIntervalSeconds"`
	QueueFunctions     int    `json:"queueFunctions"`
	Policy             string `json:"policy"`
}

// Load is what is under way on average. All but Held and AttemptsPerCall are a second, or at a time.
type Load struct {
	AttemptsPerCall Figure `json:"attemptsPerCall"`
	Attempts        Figure `json:"attempts"`
	// Reschedules and GivenUp are of the calls that come in; GivenUp are those that fail at the last
	// attempt of the policy.
	Reschedules Figure `json:"reschedules"`
	GivenUp     Figure `json:"givenUp"`
	// Held is how long an attempt keeps its place in flight.
	Held     Span   `json:"heldSeconds"`
	InFlight Figure `json:"inFlight"`
	// Waiting messages were rescheduled and are not due.
	Waiting Figure `json:"waiting"`
}

// Listener is what one instance makes of one queue: attempts a second, and the places that it has in flight.
type Listener struct {
	Places int `json:"places"`
	// Surely is reached however much latencies differ, Usually when they are spread exponentially; more
	// than AtMost is not possible.
	Surely  Figure `json:"surely"`
	Usually Figure `json:"usually"`
	AtMost  Figure `json:"atMost"`
}

// Layout is how many of what carry the load.
type Layout struct {
	// Enough says that the load is surely carried, within what storage takes, be it without any spare.
	Enough bool `json:"enough"`
	// Accounts are storage accounts, each with a Function App of its own.
	Accounts int `json:"storageAccounts"`
	// Queues are of all accounts, Instances of one Function App.
	Queues    int `json:"queues"`
	Instances int `json:"instances"`
	// FlexInstances is how many instances there are in all where each queue function has its own.
	FlexInstances int `json:"flexConsumptionInstances"`
	// QueuesByCount is how many queues would do if the size of messages did not count.
	QueuesByCount int `json:"queuesIfSizeDoesNotCount"`
	// Capacity is how many attempts a second are surely made.
	Capacity Figure `json:"capacity"`
	// QueueMessages and AccountMessages are what one queue and one account have to take, a second.
	QueueMessages   Figure `json:"messagesPerQueue"`
	AccountMessages Figure `json:"messagesPerStorageAccount"`
}

// Memory is an estimate of the handler's, in bytes.
type Memory struct {
	// Places is how many calls can be in flight on an instance, PerInstance what they take.
	Places      int   `json:"placesPerInstance"`
	PerCall     int64 `json:"bytesPerCall"`
	PerInstance int64 `json:"bytesPerInstance"`
}

// Cost is storage transactions, as they are billed: one a request.
type Cost struct {
	Items      []Item `json:"items"`
	PerMillion int64  `json:"perMillionCalls"`
	PerMonth   int64  `json:"perMonth"`
}

// Item is one kind of request.
type Item struct {
	Name       string `json:"name"`
	PerMillion int64  `json:"perMillionCalls"`
	PerMonth   int64  `json:"perMonth"`
}

// End is what calls cost that all end the same way. Receives and with them the total depend on how many
// messages one brings.
type End struct {
	Name          string `json:"end"`
	SenderPuts    int64  `json:"senderPuts"`
	Writes        int64  `json:"handlerWrites"`
	Deletes       int64  `json:"hostDeletes"`
	ReceivesLeast int64  `json:"receivesInFullBatches"`
	ReceivesMost  int64  `json:"receivesOneByOne"`
	Least         int64  `json:"totalInFullBatches"`
	Most          int64  `json:"totalOneByOne"`
}

// Advice is one thing to change.
type Advice struct {
	// Change is what to change, To its new value; 0 where it has none.
	Change string `json:"change"`
	To     int    `json:"to,omitempty"`
	Text   string `json:"text"`
}

// Figure is a computed number. Its JSON has six digits that count: the rest is noise, and differs from one
// kind of processor to the next.
type Figure float64

// MarshalJSON writes a plain number.
func (f Figure) MarshalJSON() ([]byte, error) {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', 6, 64), 64)
	if err != nil {
		return nil, err
	}
	return json.Marshal(rounded)
}

// Span is a time. Its JSON is in seconds.
type Span time.Duration

// MarshalJSON writes seconds, as a [Figure].
func (s Span) MarshalJSON() ([]byte, error) {
	return Figure(time.Duration(s).Seconds()).MarshalJSON()
}

// seconds makes a span; what is too long for one is cut to the longest.
func seconds(s float64) Span {
	const longest = 1<<63 - 1
	if s >= longest/float64(time.Second) {
		return longest
	}
	return Span(s * float64(time.Second))
}

func (q Question) given() Given {
	return Given{
		Rate:               Figure(q.Rate),
		Latency:            Span(q.Latency),
		Failing:            Figure(q.Failing),
		FailingLatency:     Span(q.FailingLatency),
		MessageBytes:       q.MessageBytes,
		TextBytes:          q.textBytes(),
		Spare:              Figure(q.Spare),
		StorageLatency:     Span(q.StorageLatency),
		BatchSize:          q.Host.BatchSize,
		NewBatchThreshold:  q.Host.NewBatchThreshold,
		MaxPollingInterval: Span(q.Host.MaxPollingInterval),
		QueueFunctions:     q.Host.QueueFunctions,
		Policy:             q.Timetable.Policy,
	}
}
