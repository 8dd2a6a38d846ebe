package decision

import (
	"errors"
	"net/http"
	"time"

	"github.com/dunglas/httpsfv"
)

// limitField and policyField are lists of structured fields (draft-ietf-httpapi-ratelimit-headers-10, RFC 9651).
const (
	limitField  = "RateLimit"
	policyField = "RateLimit-Policy"
)

// limit is an item of RateLimit: a rate limit of the target.
type limit struct {
	// reached says that nothing remains until the next window begins, in wait seconds.
	reached bool
	wait    int64
	// partial says that it is the limit of a part of the callers, which has a partition key.
	partial bool
}

// LimitWait returns how long all calls to the target have to wait because its rate limit is reached, from 0 to
// [MaxAskedWait]. Any response can say so, also one that is delivered. A limit of a part of the callers says nothing
// about the others.
func (o Outcome) LimitWait() time.Duration {
	limits, _ := rateLimits(o.Header)
	wait, _ := longestWait(limits, func(l limit) bool { return !l.partial })
	return wait
}

// longestWait returns the longest wait for a limit that is reached, among those that apply.
func longestWait(limits []limit, applies func(limit) bool) (time.Duration, error) {
	longest := int64(0)
	var err error
	for _, l := range limits {
		switch {
		case !l.reached || !applies(l):
		case l.wait < 0 || l.wait > int64(MaxAskedWait.Seconds()):
			err = errors.New("header " + limitField + " is not a future time")
		default:
			longest = max(longest, l.wait)
		}
	}
	return time.Duration(longest) * time.Second, err
}

// rateLimits reads RateLimit. An item without a wait has that of its policy.
func rateLimits(header http.Header) (limits []limit, err error) {
	list, err := httpsfv.UnmarshalList(header.Values(limitField))
	if err != nil {
		return olderRateLimit(header)
	}
	policies, _ := httpsfv.UnmarshalList(header.Values(policyField)) // without policies, such an item asks for nothing
	windows := map[any]any{}
	for _, policy := range items(policies) {
		windows[policy.Value], _ = policy.Params.Get("w")
	}
	for _, item := range items(list) {
		remaining, _ := item.Params.Get("r")
		wait, hasWait := item.Params.Get("t")
		if !hasWait {
			wait = windows[item.Value]
		}
		l := limit{reached: remaining == int64(0)}
		l.wait, _ = wait.(int64)
		_, l.partial = item.Params.Get("pk")
		limits = append(limits, l)
	}
	return limits, nil
}

// olderRateLimit reads RateLimit in the form of draft 07, a dictionary: limit=10, remaining=0, reset=30.
func olderRateLimit(header http.Header) ([]limit, error) {
	members, err := httpsfv.UnmarshalDictionary(header.Values(limitField))
	if err != nil {
		return nil, errors.New("header " + limitField + " is not a list of structured fields")
	}
	number := func(name string) (n int64, known bool) {
		member, _ := members.Get(name)
		item, _ := member.(httpsfv.Item)
		n, known = item.Value.(int64)
		return n, known
	}
	remaining, known := number("remaining")
	wait, _ := number("reset")
	return []limit{{reached: known && remaining == 0, wait: wait}}, nil
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
