package decision

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// What a target can say about trying again, besides its status. A signal says whether; pressure says
// when.
const (
	retryHeader        = "X-Async-Caller-Retry"
	problemMediaType   = "application/problem+json" // RFC 9457
	maxWait            = 366 * 24 * time.Hour       // a target that asks for more means something else
	epochSeconds       = 1_000_000_000              // a number of seconds above it is a moment (2001), not a wait
	epochMilliseconds  = 1_000_000_000_000
	pressureJitter     = 0.2
	statusUnmistakable = http.StatusTooManyRequests
)

// signal is an answer's own word on whether to try again, and where it stood; says is false for an
// answer that says nothing. Ignored names a signal that means nothing.
//
// The order of precedence: the header X-Async-Caller-Retry, an RFC 9457 problem with the member
// retryable, a Nexus error.
func (o Outcome) signal() (retry, says bool, source, ignored string) {
	switch value := o.Header.Get(retryHeader); strings.ToLower(strings.TrimSpace(value)) {
	case "yes":
		return true, true, "header " + retryHeader + ": yes", ""
	case "no":
		return false, true, "header " + retryHeader + ": no", ""
	case "":
	default:
		ignored = "header " + retryHeader + " is neither yes nor no"
	}
	var body struct {
		Retryable         *bool
		Type              any
		IsRetryMeaningful *bool
	}
	if len(o.Body) == 0 || o.Truncated || json.Unmarshal(o.Body, &body) != nil {
		return false, false, "", ignored
	}
	if body.Retryable != nil && o.Answer().MediaType() == problemMediaType {
		return *body.Retryable, true, fmt.Sprintf("problem body, retryable: %v", *body.Retryable), ignored
	}
	if body.Type != nil && body.IsRetryMeaningful != nil {
		return *body.IsRetryMeaningful, true, fmt.Sprintf("Nexus error body, IsRetryMeaningful: %v", *body.IsRetryMeaningful), ignored
	}
	return false, false, "", ignored
}

// pressure is how long the target wants to be left alone, from which header, and which headers make no
// sense; zero when it does not say.
//
// Retry-After counts on every temporary answer. The rate limit headers stand on ordinary answers too, so
// they count only when the limit is reached: status 429, or nothing remaining.
func (o Outcome) pressure(now time.Time) (wait time.Duration, source string, ignored []string) {
	consider := func(name string, parse func(string, time.Time) (time.Duration, bool)) {
		value := o.Header.Get(name)
		if value == "" {
			return
		}
		d, ok := parse(strings.TrimSpace(value), now)
		switch {
		case !ok:
			ignored = append(ignored, "header "+name+" is no time to come")
		case d > wait:
			wait, source = d, name
		}
	}
	consider("Retry-After", retryAfter)
	if wait > 0 || !o.limitReached() {
		return wait, source, ignored
	}
	for _, name := range []string{"RateLimit-Reset", "X-RateLimit-Reset", "X-RateLimit-Reset-After", "X-Rate-Limit-Reset"} {
		consider(name, reset)
	}
	return wait, source, ignored
}

func (o Outcome) limitReached() bool {
	for _, name := range []string{"RateLimit-Remaining", "X-RateLimit-Remaining", "X-Rate-Limit-Remaining"} {
		if value := o.Header.Get(name); value != "" {
			return strings.TrimSpace(value) == "0"
		}
	}
	return o.Status == statusUnmistakable
}

// retryAfter reads RFC 9110's Retry-After: whole seconds, or a date.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
		return sensible(float64(seconds))
	}
	if at, err := http.ParseTime(value); err == nil {
		return sensible(at.Sub(now).Seconds())
	}
	return 0, false
}

// reset reads what is in use for rate limits: seconds from now, with or without a fraction, or a moment
// as Unix seconds or milliseconds.
func reset(value string, now time.Time) (time.Duration, bool) {
	number, err := strconv.ParseFloat(value, 64)
	switch {
	case err != nil:
		return 0, false
	case number >= epochMilliseconds:
		number = number/1000 - float64(now.UnixMilli())/1000
	case number >= epochSeconds:
		number -= float64(now.UnixMilli()) / 1000
	}
	return sensible(number)
}

func sensible(seconds float64) (time.Duration, bool) {
	if !(seconds >= 0 && seconds <= maxWait.Seconds()) { // NaN too
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}
