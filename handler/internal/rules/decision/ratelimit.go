package decision

import (
	"cmp"
	"net/http"
	"time"

	"github.com/dunglas/httpsfv"
)

// limitField and policyField are lists of structured fields (draft-ietf-httpapi-ratelimit-headers-10, RFC 9651).
const (
	limitField  = "RateLimit"
	policyField = "RateLimit-Policy"
)

// remainingHeaders say how much of a rate limit remains.
var remainingHeaders = []string{"RateLimit-Remaining", "X-RateLimit-Remaining", "X-Rate-Limit-Remaining"}

// limits is what a response says about the target's rate limits.
type limits struct {
	// isReached says that of a limit nothing remains. isKnown says that a header of its own says how much remains.
	isReached, isKnown bool
	// wait is the longest wait that RateLimit asks for, and sharedWait that of limits which apply to all callers: a
	// partition key makes a limit that of a part of them.
	wait, sharedWait time.Duration
	// ignored names the headers whose values do not count, and says why.
	ignored []string
}

// LimitWait returns how long all calls to the target have to wait because its rate limit is reached, in whole seconds
// from 0 to [MaxAskedWait]. Any response can say so, also one that is delivered. A limit of a part of the callers says
// nothing about the others.
func (o Outcome) LimitWait(now time.Time) time.Duration { return readLimits(o.Header, now).sharedWait }

func readLimits(header http.Header, now time.Time) limits {
	var l limits
	problem := l.readField(header, now)
	if problem != "" {
		l.ignored = append(l.ignored, "header "+limitField+" "+problem)
	}
	for _, name := range remainingHeaders {
		value := fieldValue(header, name)
		if value == "" {
			continue
		}
		isReached, ok := nothingLeft(value)
		if !ok {
			l.ignored = append(l.ignored, "header "+name+" "+unreadable)
		}
		l.isReached = l.isReached || isReached
		l.isKnown = l.isKnown || ok
	}
	return l
}

// readField reads RateLimit. An item without a wait has that of its policy. The problem is that of the first value
// that does not count.
func (l *limits) readField(header http.Header, now time.Time) (problem string) {
	field, policyList := fieldValue(header, limitField), fieldValue(header, policyField)
	switch {
	case field == "":
		return ""
	case len(field) > maxValueBytes || len(policyList) > maxValueBytes:
		return unreadable
	}
	list, err := httpsfv.UnmarshalList([]string{field})
	if err != nil {
		return l.readOlderField(field, now)
	}
	policies, _ := httpsfv.UnmarshalList([]string{policyList}) // without policies, such an item asks for nothing
	windows := map[any]string{}
	for _, policy := range items(policies) {
		windows[policy.Value] = text(policy.Params.Get("w"))
	}
	for _, item := range items(list) {
		wait := text(item.Params.Get("t"))
		if wait == "" {
			wait = windows[item.Value]
		}
		_, isPartial := item.Params.Get("pk")
		ofItem := l.add(text(item.Params.Get("r")), wait, isPartial, now)
		problem = cmp.Or(problem, ofItem)
	}
	return problem
}

// readOlderField reads RateLimit in the form of draft 07, a dictionary: limit=10, remaining=0, reset=30.
func (l *limits) readOlderField(field string, now time.Time) (problem string) {
	members, err := httpsfv.UnmarshalDictionary([]string{field})
	if err != nil {
		return unreadable
	}
	value := func(name string) string {
		member, _ := members.Get(name)
		item, isItem := member.(httpsfv.Item)
		return text(item.Value, isItem)
	}
	return l.add(value("remaining"), value("reset"), false, now)
}

// add adds a limit of which something remains for the next time. Both are texts as in a header, empty if missing.
func (l *limits) add(remaining, wait string, isPartial bool, now time.Time) (problem string) {
	if remaining == "" {
		return ""
	}
	isReached, ok := nothingLeft(remaining)
	if !ok {
		return unreadable
	}
	if !isReached {
		return ""
	}
	l.isReached = true
	if wait == "" {
		return ""
	}
	usable, problem := usableWait(wait, now)
	l.wait = max(l.wait, usable)
	if !isPartial {
		l.sharedWait = max(l.sharedWait, usable)
	}
	return problem
}

// items returns the items of a list whose value is a string or a token: the name of a limit.
func items(list httpsfv.List) (items []httpsfv.Item) {
	for _, member := range list {
		item, _ := member.(httpsfv.Item)
		switch item.Value.(type) {
		case string, httpsfv.Token:
			items = append(items, item)
		}
	}
	return items
}

// text returns the form that a bare item has in a header; empty if there is none.
func text(value any, exists bool) string {
	if !exists {
		return ""
	}
	text, _ := httpsfv.Marshal(httpsfv.NewItem(value)) // what was read can be written
	return text
}
