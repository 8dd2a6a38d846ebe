package capacity

import "fmt"

// Group is some rows of an answer that belong together.
type Group struct {
	// Titles are the headings of the labels and of the figures.
	Titles []string
	Rows   []Row
}

// Row is one thing of an answer.
type Row struct {
	Label string
	// Figures are as many as the group has titles for.
	Figures []string
	// Why says in a few words where they come from.
	Why string
}

// Report lays out an answer for people.
func Report(a Answer) []Group {
	groups := []Group{a.underWay(), a.oneListener(), a.whatItTakes(), a.transactions(), a.millionCalls()}
	if a.Outage != nil {
		groups = append(groups, a.inOutage(*a.Outage), a.afterOutage(*a.Outage))
	}
	return groups
}

func (g *Group) add(label, figure, why string, args ...any) {
	g.Rows = append(g.Rows, Row{label, []string{figure}, fmt.Sprintf(why, args...)})
}

func (g *Group) addTwo(label string, first, second int64, why string, args ...any) {
	g.Rows = append(g.Rows, Row{label, []string{number(float64(first)), number(float64(second))}, fmt.Sprintf(why, args...)})
}

func (f Figure) aSecond() string { return f.String() + " /s" }

func (a Answer) underWay() Group {
	g := Group{Titles: []string{"under way", ""}}
	l := a.Load
	failing := a.Given.Failing > 0
	if failing {
		g.add("attempts", l.Attempts.aSecond(), "%s a call: %s fail and are rescheduled by policy %s", l.AttemptsPerCall, percent(a.Given.Failing), a.Given.Policy)
		g.add("held, each", l.Held.String(), "%s, or %s if it fails; %s for a write or delete", a.Given.Latency, a.Given.FailingLatency, a.Given.StorageLatency)
	} else {
		g.add("attempts", l.Attempts.aSecond(), "each call is made once")
		g.add("held, each", l.Held.String(), "%s for the target, %s for the host's delete", a.Given.Latency, a.Given.StorageLatency)
	}
	g.add("in flight", l.InFlight.String(), "attempts a second x how long each is held (Little's law)")
	if failing {
		g.add("waiting", l.Waiting.String(), "messages that are rescheduled and not due yet")
	}
	if l.GivenUp*month >= 1 {
		g.add("given up", l.GivenUp.aSecond(), "fail at the last attempt that policy and deadline allow")
	}
	return g
}

func (a Answer) oneListener() Group {
	l := a.Listener
	g := Group{Titles: []string{"one instance, one queue", ""}}
	g.add("places", number(float64(l.Places)), "batchSize %d + newBatchThreshold %d, in flight at most", a.Given.BatchSize, a.Given.NewBatchThreshold)
	g.add("surely", l.Surely.aSecond(), "%d are in flight at least, except while it receives", a.Given.NewBatchThreshold+1)
	g.add("usually", l.Usually.aSecond(), "if latencies are spread exponentially")
	g.add("at most", l.AtMost.aSecond(), "if every place is taken all the time")
	return g
}

func (a Answer) whatItTakes() Group {
	l := a.Layout
	g := Group{Titles: []string{"what it takes", ""}}
	instances := "instances"
	if l.Accounts > 1 {
		instances = "instances of each app"
	}
	enough := ""
	switch {
	case a.Listener.AtMost*Figure(l.FlexInstances) < a.Load.Attempts:
		enough = notEnough
	case l.Capacity < a.Load.Attempts:
		enough = ": NOT SURELY ENOUGH"
	}
	g.add(instances, number(float64(l.Instances)), "they surely make %s attempts a second%s", l.Capacity, enough)
	g.add("on Flex Consumption", number(float64(l.FlexInstances)), "in all: there each queue function has its own")
	g.add("queues", number(float64(l.Queues)), "each takes %s of %s messages a second%s", l.QueueMessages, number(queueMessages), over(l.QueueMessages, queueMessages))
	if l.QueuesByCount < l.Queues {
		g.add("if size does not count", number(float64(l.QueuesByCount)), "Azure speaks of 1 KiB only; above, each KiB counts")
	}
	g.add("storage accounts", number(float64(l.Accounts)), "each takes %s of %s messages a second%s", l.AccountMessages, number(accountMessages), over(l.AccountMessages, accountMessages))
	g.add("message", bytesText(int64(a.Given.TextBytes)), "on the queue, of %s at most", bytesText(messageLimit))
	g.add("memory of an instance", bytesText(a.Memory.PerInstance), "estimated: %s and %s for each of %s in flight", bytesText(idleProcess), bytesText(a.Memory.PerCall), number(float64(a.Memory.Places)))
	return g
}

const notEnough = ": NOT ENOUGH"

// over marks a row of which more is asked than it can take.
func over(asked Figure, limit float64) string {
	if float64(asked) > limit {
		return notEnough
	}
	return ""
}

func (a Answer) transactions() Group {
	g := Group{Titles: []string{"storage transactions", "per million", "a month"}}
	for _, item := range a.Cost.Items {
		text := itemTexts[item.Name]
		if item.PerMonth == 0 && item.Name != leaseRenewals {
			continue
		}
		g.addTwo(text.label, item.PerMillion, item.PerMonth, "%s", text.why)
	}
	g.addTwo("in all", a.Cost.PerMillion, a.Cost.PerMonth, "a month of 730 hours")
	return g
}

type itemText struct{ label, why string }

var itemTexts = map[string]itemText{
	senderPuts:     {"sender's puts", "one a call"},
	receivesFound:  {"receives with messages", "the host's, estimated: 1 to batchSize each"},
	receivesVain:   {"receives in vain", "the host's, estimated: it found nothing"},
	receivesUnused: {"of other queues", "every instance polls every queue"},
	deletes:        {"deletes", "the host's, one an attempt"},
	reschedules:    {"reschedules", "ours, one a failed attempt"},
	deadLetters:    {"dead letters", "ours, one a call that is given up"},
	leaseRenewals:  {"lease renewals", "the host's, after 5 minutes: none"},
}

func (a Answer) millionCalls() Group {
	g := Group{Titles: []string{"a million calls cost", "full batches", "one by one"}}
	for _, end := range a.Ends {
		handled, writes := end.Deletes/million, end.Writes/million
		g.addTwo(endTexts[end.Name], end.Least, end.Most, "puts 1, ours %d, deletes %d, gets %d/%d to %d",
			writes, handled, handled, a.Given.BatchSize, handled)
	}
	return g
}

var endTexts = map[string]string{
	endAtOnce:       "delivered at once",
	endOneRetry:     "after 1 retry",
	endThreeRetries: "after 3 retries",
	endCallback:     "with a callback",
	endDeadLetter:   "dead letter at once",
}

func (a Answer) inOutage(o Outage) Group {
	g := Group{Titles: []string{"outage of " + o.Length.String(), ""}}
	g.add("attempts in vain", o.AttemptsPerCall.String()+" a call", "on average, if made on time by policy %s", a.Given.Policy)
	g.add("reschedules", number(float64(o.Reschedules)), "of calls that come in during the outage")
	if o.GivenUp > 0 {
		g.add("given up", number(float64(o.GivenUp)), "their policy or deadline ends before the outage")
	}
	g.add("piled up", number(float64(o.Messages)), "messages, %s: a queue holds any number, up to %s", bytesText(o.Bytes), bytesText(queueBytes))
	g.add("attempts at its end", o.AtTheEnd.aSecond(), "earlier calls are tried again beside new ones")
	keeps := "so the planned ones keep up"
	if !o.KeepsUp {
		keeps = fmt.Sprintf("with %s they come late; nothing is lost", number(float64(a.Layout.Instances)))
	}
	g.add("instances for that", number(float64(o.InstancesToKeepUp)), "%s", keeps)
	g.add("a queue then takes", o.QueueMessages.aSecond(), "of %s messages a second", number(queueMessages))
	return g
}

func (a Answer) afterOutage(o Outage) Group {
	g := Group{Titles: []string{"after the outage", ""}}
	g.add("to spare", o.PerSecond.aSecond(), "calls beside those that come in, as planned above")
	g.add("last one is due after", o.LastDue.String(), "the wait that it is in when the outage ends")
	if !o.Drains {
		g.add("worked off after", "never", "what is due and finds no place grows and grows")
		return g
	}
	g.add("due at a time", number(float64(o.MostDue)), "messages at most that find no place at once")
	g.add("worked off after", o.Drained.String(), "then all is as before")
	return g
}
