package capacity

import (
	"fmt"

	"asynccaller/handler/internal/queue"
)

const (
	// mostInFlight is how many calls we advise to have in flight on an instance: the Consumption plan allows
	// an instance 600 connections, of which the handler keeps up to 64 to storage.
	mostInFlight = 500
	// planConnections is what an instance of the Consumption plan may have open, less storage's.
	planConnections = 600 - 64
	// planInstances is the most that any plan gives an app: Flex Consumption's.
	planInstances = 1_000
)

// What advice is about.
const (
	changeNothing   = "nothing"
	changeThreshold = "new_batch_threshold"
	changeInstances = "instances"
	changeQueues    = "queues"
	changeAccounts  = "storage_accounts"
	changePolling   = "max_polling_interval"
	changeFunctions = "queue_functions"
	changeRate      = "rate"
)

// advise says what to change so that the load is carried, or carried by less.
func advise(q Question, d demand, s split, a Answer) []Advice {
	var all []Advice
	say := func(change string, to int, format string, args ...any) {
		all = append(all, Advice{change, to, fmt.Sprintf(format, args...)})
	}
	adviseInstances(q, d, s, say)
	adviseStorage(q, d, s, say)
	if o := a.Outage; o != nil {
		adviseOutage(d, s, *o, say)
	}
	t := d.traffic(s)
	if unused := d.functions - s.queuesOfApp(); unused > 0 && 4*perMonth(t.idle) > a.Cost.PerMonth {
		say(changeFunctions, s.queuesOfApp(), "Remove the folders of queues that nobody uses, or raise maxPollingInterval: %s of %s transactions a month look into %s.",
			number(float64(perMonth(t.idle))), number(float64(a.Cost.PerMonth)), plural(unused, "queue without calls", "queues without calls"))
	}
	if len(all) == 0 {
		say(changeNothing, 0, "Nothing to change.")
	}
	return all
}

type sayer func(change string, to int, format string, args ...any)

// adviseInstances is about host.json and the number of instances.
func adviseInstances(q Question, d demand, s split, say sayer) {
	needed := d.instances(s.queues)
	enough := d.capacity(s) >= d.attempts*(1-1e-9)
	if !enough {
		say(changeInstances, needed, "Have %s of the Function App: %s attempts a second are wanted, and %s surely make %s only.",
			plural(needed, "instance", "instances"), number(d.wanted()), number(float64(s.instances)), number(d.capacity(s)))
	}
	if !enough || q.Instances == 0 {
		adviseThreshold(q, d, s, needed, say)
	}
	if max(needed, s.instances) > planInstances {
		say(changeInstances, 0, "No plan gives a Function App more than %s instances.", number(planInstances))
	}
	if places := s.queuesOfApp() * d.listener.places(); places > planConnections {
		say(changeThreshold, 0, "An instance can have %s calls in flight; the Consumption plan leaves %d connections for calls.", number(float64(places)), planConnections)
	}
}

// adviseThreshold says which settings of host.json would do with fewer instances.
func adviseThreshold(q Question, d demand, s split, needed int, say sayer) {
	better := d
	better.listener.batch = queue.MaxBatch
	better.listener.threshold = mostInFlight/s.queuesOfApp() - queue.MaxBatch
	if better.listener.threshold <= d.listener.threshold {
		return
	}
	target := max(better.instances(s.queues), q.Instances)
	threshold, ok := better.listener.thresholdFor(d.wanted()/float64(target*s.queues), d.held)
	if !ok || target >= needed {
		return
	}
	threshold = max(threshold, d.listener.threshold)
	say(changeThreshold, threshold, "With batchSize %d and newBatchThreshold %d in host.json %s enough instead of %s. The processor time of the Functions host is not counted here: measure it.",
		queue.MaxBatch, threshold, plural(target, "instance is", "instances are"), number(float64(needed)))
}

// adviseStorage is about queues and accounts.
func adviseStorage(q Question, d demand, s split, say sayer) {
	free := d.layout(0, q.Instances)
	t, freed := d.traffic(s), d.traffic(free)
	switch {
	case freed.ofQueue > queueMessages || freed.ofAccount > accountMessages:
		say(changePolling, 0, "Raise maxPollingInterval or have fewer instances: so many receives that find nothing are more than storage takes, over however many queues.")
		return
	case q.Queues > 0 && t.ofQueue > queueMessages:
		say(changeQueues, free.queues, "A queue would have to take %s messages a second, more than %s. %s", number(t.ofQueue), number(queueMessages), spreading(free, d.functions))
	case q.Queues == 0 && s.queues > 1:
		say(changeQueues, s.queues, "%s", spreading(s, d.functions))
	}
	if free.accounts > 1 {
		alone := d.traffic(d.spread(1, free.queues, q.Instances)).ofAccount * (1 + d.spare)
		say(changeAccounts, free.accounts, "Use %s storage accounts, each with a Function App of its own, because an app has all its queues on one: %s messages a second, spare included, are more than %s.",
			number(float64(free.accounts)), number(alone), number(accountMessages))
	}
}

// spreading says how to use the queues of a split.
func spreading(s split, functions int) string {
	text := fmt.Sprintf("Spread the calls evenly over %s queues", number(float64(s.queues)))
	if s.accounts > 1 {
		text += fmt.Sprintf(", %s on each storage account", number(float64(s.queuesOfApp())))
	}
	if s.queuesOfApp() <= functions {
		return text + "; the priorities 1 to 10 have queues of their own."
	}
	return text + fmt.Sprintf("; the app has %d, a folder in functions/ adds one.", functions)
}

// adviseOutage is about what an outage does to the rest.
func adviseOutage(d demand, s split, o Outage, say sayer) {
	if !o.KeepsUp {
		say(changeInstances, o.InstancesToKeepUp, "In the outage attempts come late: %s would keep up with them. Nothing is lost, but calls to other targets on the same queues wait as well.",
			plural(o.InstancesToKeepUp, "instance", "instances"))
	}
	if float64(o.QueueMessages) > queueMessages {
		queues := up((d.rate*d.weight + d.messagesOfFailing(float64(o.AtTheEnd))) / queueMessages)
		say(changeQueues, queues, "In the outage a queue is asked for %s messages a second, more than %s: storage answers that it is busy, and what it refuses for a minute the host delivers again, maxDequeueCount times in all. %s queues would take it; so might a policy with longer waits.",
			number(float64(o.QueueMessages)), number(queueMessages), number(float64(queues)))
	}
	if !o.Drains {
		say(changeRate, 0, "What piles up in the outage is never worked off: more instances or queues, or a larger --spare.")
	}
	if o.GivenUp > 0 {
		say(changeRate, 0, "%s calls are given up in the outage: their policy or their deadline ends before it does.", number(float64(o.GivenUp)))
	}
	if float64(o.Bytes) > queueBytes*float64(s.queues) {
		say(changeQueues, 0, "What piles up is more than the queues hold, %s each.", bytesText(queueBytes))
	}
}
