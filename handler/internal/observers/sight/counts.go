// Package sight keeps what the instances of an app know of targets: which fail, and how many calls there were in each
// minute. Each instance writes, best effort, two kinds of rows that no other instance writes: *now* and *minute*
// ([Sight]). The commands read them ([Reader]). They never change what becomes of a message.
package sight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// minuteHosts are the busiest hosts that a row has by name. The others are one number.
	minuteHosts = 50
	// maxHosts limits the hosts of an interval while it is counted: a sender can invent hosts.
	maxHosts = 200
	// maxReasons limits the reasons of a host, of which there are fewer. Somebody else may have written a row.
	maxReasons = 20
	// maxCount is the largest number in a row that is valid.
	maxCount = 1 << 30
)

// otherReasons are those beyond maxReasons.
const otherReasons = "other"

// DurationLimits are the upper limits of all but the last element of [Durations].
var DurationLimits = [...]time.Duration{
	10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond,
	time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second, 2 * time.Minute,
}

// Durations counts calls by how long they took: less than each of [DurationLimits], and longer.
type Durations [len(DurationLimits) + 1]int

func (d *Durations) add(took time.Duration) {
	bucket := 0
	for bucket < len(DurationLimits) && took >= DurationLimits[bucket] {
		bucket++
	}
	d[bucket]++
}

// Percentile returns a limit below which so many percent of the calls are, such as "<30ms", or ">2m" if there is none.
// It returns "-" if there are no calls.
func (d Durations) Percentile(percent int) string {
	element, isKnown := d.Element(percent)
	switch {
	case !isKnown:
		return "-"
	case element == len(DurationLimits):
		return ">" + limitText(DurationLimits[element-1])
	}
	return "<" + limitText(DurationLimits[element])
}

// Element returns the first element up to which so many percent of the calls are. It reports false if there are no
// calls.
func (d Durations) Element(percent int) (element int, isKnown bool) {
	calls, below := 0, 0
	for _, n := range d {
		calls += n
	}
	for i, n := range d {
		below += n
		if calls > 0 && below*100 >= calls*percent {
			return i, true
		}
	}
	return 0, false
}

// limitText returns a limit without the zeros of [time.Duration.String].
func limitText(limit time.Duration) string {
	if limit >= time.Minute {
		return fmt.Sprintf("%dm", limit/time.Minute)
	}
	return limit.String()
}

// Counts are the numbers of one host, or of several together.
type Counts struct {
	// New counts the messages that were seen for the first time, also those whose call is not due, or is refused.
	New       int `json:"new,omitempty"`
	Delivered int `json:"delivered,omitempty"`
	// Failed counts the other calls, and Refused the messages whose call a gate did not let pass, each by reason.
	Failed  map[string]int `json:"failed,omitempty"`
	Refused map[string]int `json:"refused,omitempty"`
	// Durations are those of the calls that the target could answer.
	Durations Durations `json:"durations,omitzero"`
	// AtLeast says that there can be more: the host was perhaps among the others for a part of the time.
	AtLeast bool `json:"atLeast,omitempty"`
}

// FailedCalls returns the number of calls that failed.
func (c *Counts) FailedCalls() int { return total(c.Failed) }

// Messages returns the number of messages of which a call was made or refused.
func (c *Counts) Messages() int { return c.Delivered + total(c.Failed) + total(c.Refused) }

func total(byReason map[string]int) (all int) {
	for _, n := range byReason {
		all += n
	}
	return all
}

func addReason(byReason *map[string]int, reason string, n int) {
	if *byReason == nil {
		*byReason = map[string]int{}
	}
	if _, has := (*byReason)[reason]; !has && len(*byReason) >= maxReasons {
		reason = otherReasons
	}
	(*byReason)[reason] += n
}

func (c *Counts) add(other *Counts) {
	c.New += other.New
	c.Delivered += other.Delivered
	for reason, n := range other.Failed {
		addReason(&c.Failed, reason, n)
	}
	for reason, n := range other.Refused {
		addReason(&c.Refused, reason, n)
	}
	for bucket, n := range other.Durations {
		c.Durations[bucket] += n
	}
	c.AtLeast = c.AtLeast || other.AtLeast
}

// Interval has the numbers of an interval by host. The zero value has none.
type Interval struct {
	Hosts map[string]*Counts `json:"hosts,omitempty"`
	// Others are the numbers of all hosts that are not counted by name.
	Others Counts `json:"others,omitzero"`
}

// isEmpty reports whether nothing happened.
func (i *Interval) isEmpty() bool { return len(i.Hosts) == 0 && !i.hasOthers() }

func (i *Interval) hasOthers() bool { return i.Others.Messages() > 0 }

// counts returns the numbers of a host to add to.
func (i *Interval) counts(host string) *Counts {
	c := i.Hosts[host]
	if c != nil {
		return c
	}
	if len(i.Hosts) >= maxHosts {
		i.keepBusiest(maxHosts / 2)
	}
	if i.Hosts == nil {
		i.Hosts = map[string]*Counts{}
	}
	c = &Counts{AtLeast: i.hasOthers()}
	i.Hosts[host] = c
	return c
}

// Counts returns the numbers of a host.
func (i *Interval) Counts(host string) Counts {
	if c := i.Hosts[host]; c != nil {
		return *c
	}
	return Counts{AtLeast: i.hasOthers()}
}

// except returns the numbers of all hosts but these together.
func (i *Interval) except(hosts []string) Counts {
	var others Counts
	for host, c := range i.Hosts {
		if !slices.Contains(hosts, host) {
			others.add(c)
		}
	}
	others.add(&i.Others)
	others.AtLeast = false
	return others
}

// keepBusiest adds all but the busiest hosts to the others.
func (i *Interval) keepBusiest(most int) {
	if len(i.Hosts) <= most {
		return
	}
	for _, host := range i.busiest()[most:] {
		i.Others.add(i.Hosts[host])
		delete(i.Hosts, host)
	}
	i.Others.AtLeast = false
}

// busiest returns the hosts, those with the most messages first.
func (i *Interval) busiest() []string {
	messages := make(map[string]int, len(i.Hosts))
	for host, c := range i.Hosts {
		messages[host] = c.Messages()
	}
	return slices.SortedFunc(maps.Keys(messages), func(a, b string) int {
		return cmp.Or(cmp.Compare(messages[b], messages[a]), strings.Compare(a, b))
	})
}

// add adds the numbers of another interval, or of another instance.
func (i *Interval) add(other *Interval) {
	for host, c := range i.Hosts {
		c.AtLeast = c.AtLeast || other.Hosts[host] == nil && other.hasOthers()
	}
	for host, c := range other.Hosts {
		i.counts(host).add(c)
	}
	i.Others.add(&other.Others)
}
