package capacity

import (
	"math"
	"sort"

	"asynccaller/handler/internal/queue"
)

// What Queue Storage takes (https://learn.microsoft.com/azure/storage/queues/scalability-targets). Its
// checklist says that putting, getting and deleting a message count as a message each
// (https://learn.microsoft.com/azure/storage/queues/storage-performance-checklist). It does not say what
// messages beyond 1 KiB count, nor batches; see weight.
const (
	queueMessages   = 2_000     // a second, of 1 KiB
	accountMessages = 20_000    // a second, of 1 KiB
	queueBytes      = 500 << 40 // of one queue, whatever their number
	messageLimit    = queue.MaxTextBytes
	messageUnit     = 1 << 10
	// mostAccounts bounds the search for a layout.
	mostAccounts = 10_000_000
)

// weight is what a message counts when it is put or got, by the careful reading: as many as it has KiB on
// the queue, one at least, in batches too. A delete carries no message and counts one, and so does a receive
// that finds nothing.
func weight(textBytes int) float64 {
	return max(1, float64(textBytes)/messageUnit)
}

// split is how calls are spread. Each storage account has a Function App, because an app has all its queues
// on one account.
type split struct {
	accounts int
	// queues is of all accounts, which share them evenly; instances is of each Function App.
	queues, instances int
}

// listeners is how many there are on queues that have calls: every instance of an app polls all its queues.
func (s split) listeners() int { return s.queues * s.instances }

// queuesOfApp is of the app that has most.
func (s split) queuesOfApp() int { return (s.queues + s.accounts - 1) / s.accounts }

// traffic is what a split makes of a demand, a second.
type traffic struct {
	// found and vain are receives of the queues that have calls, idle those of the others.
	found, vain, idle float64
	// ofQueue and ofAccount are messages as storage counts them.
	ofQueue, ofAccount float64
}

func (d demand) traffic(s split) traffic {
	listeners := float64(s.listeners())
	found, vain := d.listener.polls(d.attempts / listeners)
	unused := max(d.functions-s.queuesOfApp(), 0) * s.accounts * s.instances
	t := traffic{found: found * listeners, vain: vain * listeners, idle: float64(unused) * d.listener.idle()}
	onQueues := d.messages(d.attempts) + t.vain
	t.ofQueue = onQueues / float64(s.queues)
	t.ofAccount = t.ofQueue*float64(s.queuesOfApp()) + (d.givenUp*d.weight+t.idle)/float64(s.accounts)
	return t
}

// messages is what puts, gets and deletes of so many attempts a second count. Each attempt is one message
// that is got and deleted, and was put by the sender or by us.
func (d demand) messages(attempts float64) float64 {
	return attempts * (2*d.weight + 1)
}

// capacity is how many attempts a second are surely made.
func (d demand) capacity(s split) float64 {
	return d.listener.surely(d.held) * float64(s.listeners())
}

// instances is how many instances of each app surely carry the demand and its spare, over so many queues in
// all.
func (d demand) instances(queues int) int {
	return max(up(d.wanted()/d.listener.surely(d.held)/float64(queues)), 1)
}

// layout finds the fewest accounts, queues and instances that carry the demand and its spare; queues and
// instances are as given if they are not 0. What is given may not be enough.
func (d demand) layout(queues, instances int) split {
	one := d.spread(1, queues, instances)
	if d.traffic(one).ofQueue > queueMessages {
		return one // more accounts would not help
	}
	most := mostAccounts
	if queues > 0 {
		most = min(most, queues) // an account has one queue at least
	}
	accounts := 1 + sort.Search(most, func(n int) bool {
		s := d.spread(n+1, queues, instances)
		return d.traffic(s).ofAccount*(1+d.spare) <= accountMessages
	})
	if accounts > most { // none fits
		return one
	}
	return d.spread(accounts, queues, instances)
}

// spread finds the queues for so many accounts.
func (d demand) spread(accounts, queues, instances int) split {
	with := func(queues int) split {
		s := split{accounts: accounts, queues: queues, instances: instances}
		if s.instances == 0 {
			s.instances = d.instances(queues)
		}
		return s
	}
	if queues > 0 {
		return with(queues)
	}
	fewest := max(up(d.messages(d.attempts)*(1+d.spare)/queueMessages), 1)
	each := (fewest + accounts - 1) / accounts // of an account
	more := sort.Search(maxQueues, func(n int) bool {
		return d.traffic(with((each+n)*accounts)).ofQueue*(1+d.spare) <= queueMessages
	})
	if more == maxQueues { // receives that find nothing are too many, however many queues share the calls
		more = 0
	}
	return with((each + more) * accounts)
}

func (d demand) describe(s split) Layout {
	t := d.traffic(s)
	l := Layout{
		Accounts:        s.accounts,
		Queues:          s.queues,
		Instances:       s.instances,
		FlexInstances:   s.listeners(),
		QueuesByCount:   max(up((3*d.attempts+t.vain)*(1+d.spare)/queueMessages), 1),
		Capacity:        Figure(d.capacity(s)),
		QueueMessages:   Figure(t.ofQueue),
		AccountMessages: Figure(t.ofAccount),
	}
	l.Enough = d.capacity(s) >= d.attempts*(1-1e-9) && t.ofQueue <= queueMessages && t.ofAccount <= accountMessages
	return l
}

// memory: docs/performance.md has what a call in flight takes at these two sizes. What lies between is
// interpolated, what lies beyond goes on in the same line.
const (
	smallMessage, smallCall = 1 << 10, 60 << 10
	largeMessage, largeCall = 48 << 10, 150 << 10
	idleProcess             = 14 << 20
)

func memoryOf(q Question, s split) Memory {
	beyond := max(float64(q.MessageBytes-smallMessage), 0) / (largeMessage - smallMessage)
	call := smallCall + beyond*(largeCall-smallCall)
	places := s.queuesOfApp() * (q.Host.BatchSize + q.Host.NewBatchThreshold)
	return Memory{
		Places:      places,
		PerCall:     int64(math.Round(call)),
		PerInstance: idleProcess + int64(math.Round(call*float64(places))),
	}
}
