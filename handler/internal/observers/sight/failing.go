package sight

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
)

// Target is a target that fails, as one instance of an app sees it, or all together.
type Target struct {
	// App is the app that calls it: apps that share an account need not have the same network. Host has the spelling of
	// [targets.Host].
	App  string `json:"app"`
	Host string `json:"host"`
	// Reason is why the latest call failed, or [NoAnswerYet], and Cause says so in a few words. Status is that of the
	// answer, 0 if there was none.
	Reason string              `json:"reason"`
	Cause  string              `json:"cause"`
	Status envelope.StatusCode `json:"status"`
	// Since is when the first call that failed since the last success began, and Latest when the latest one began. If
	// no call has ended yet, both are when the oldest one in flight began.
	Since  time.Time `json:"since"`
	Latest time.Time `json:"latest"`
	// OpenAt is when an instance last had its circuit breaker open; zero if none had.
	OpenAt time.Time `json:"openAt"`
	// Answer is the beginning of the latest answer, with its secrets masked.
	Answer string `json:"answer,omitempty"`
	// SeenAt is when the row was written that says all this; zero if this instance says it.
	SeenAt time.Time `json:"-"`
}

// NoAnswerYet is the reason of a target whose calls have all been in flight for long.
const NoAnswerYet = "no_answer_yet"

// IsUnanswered reports whether no call had ended yet when the row was written.
func (t Target) IsUnanswered() bool { return t.Reason == NoAnswerYet }

// Age returns for how long the target fails or, if no call has ended yet, for how long when the row was written.
func (t Target) Age(now time.Time) time.Duration {
	if t.IsUnanswered() {
		return max(t.SeenAt.Sub(t.Since), 0)
	}
	return now.Sub(t.Since)
}

// maxBreakerAge limits the time from the latest report of an open circuit breaker to the latest failure: an instance
// whose breaker is open tries a call about once a minute, and may write its row a minute later.
const maxBreakerAge = 2 * time.Minute

// IsOpen reports whether an instance had its circuit breaker open when the target last failed.
func (t Target) IsOpen() bool { return !t.OpenAt.IsZero() && t.Latest.Sub(t.OpenAt) <= maxBreakerAge }

// OfHost returns those of some targets that have a host, in whatever spelling.
func OfHost(failing []Target, host string) []Target {
	host = targets.HostOf(host)
	return slices.DeleteFunc(slices.Clone(failing), func(t Target) bool { return t.Host != host })
}

// view is what one instance knows of the targets of its app.
type view struct {
	Failing []Target `json:"failing,omitempty"`
	// Succeeded has, of hosts that other instances name as failing, when the latest call known to this one succeeded.
	Succeeded map[string]time.Time `json:"succeeded,omitempty"`
}

// join returns the targets that fail, by host, from what instances know: one fails unless a later success is known, and
// since the earliest failure after it.
func join(views []view) map[string]Target {
	succeeded := map[string]time.Time{}
	for _, v := range views {
		for host, at := range v.Succeeded {
			succeeded[host] = bounds.Later(succeeded[host], at)
		}
	}
	failing := map[string]Target{}
	for _, v := range views {
		for _, t := range v.Failing {
			after, fails := t.after(succeeded[t.Host])
			if fails {
				failing[t.Host] = after.with(failing[t.Host])
			}
		}
	}
	return failing
}

// after returns what is left of the failures after a success; zero means that none is known. It reports false if
// nothing is.
func (t Target) after(success time.Time) (Target, bool) {
	if !t.Latest.After(success) {
		return Target{}, false
	}
	if !t.Since.After(success) { // the instance did not know of the success
		t.Since = t.Latest
	}
	return t, true
}

// with adds what another instance knows, whose zero value is nothing. How calls fail says more than that they have not
// ended.
func (t Target) with(other Target) Target {
	switch {
	case other.Host == "" || other.IsUnanswered() && !t.IsUnanswered():
		return t
	case t.IsUnanswered() && !other.IsUnanswered():
		return other
	case t.IsUnanswered():
		if other.Since.Before(t.Since) {
			return other
		}
		return t
	}
	latest, earlier := t, other
	if other.Latest.After(t.Latest) {
		latest, earlier = other, t
	}
	latest.Since = bounds.Earlier(latest.Since, earlier.Since)
	latest.OpenAt = bounds.Later(latest.OpenAt, earlier.OpenAt)
	latest.Answer = cmp.Or(latest.Answer, earlier.Answer) // the latest call got none
	return latest
}

// longest returns at most so many targets, those that have failed for the longest time, in this order.
func longest(failing map[string]Target, most int) []Target {
	sorted := slices.SortedFunc(maps.Values(failing), func(a, b Target) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Host, b.Host))
	})
	return sorted[:min(len(sorted), most)]
}
