package decision

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	retryHeader      = "X-Async-Caller-Retry"
	problemMediaType = "application/problem+json" // RFC 9457

	maxAskedWait      = 366 * 24 * time.Hour // a longer wait is a mistake
	askedWaitJitter   = 0.2
	epochSeconds      = 1_000_000_000 // a larger number of seconds is a time since 1970, not a wait
	epochMilliseconds = 1_000_000_000_000
)

// retrySignal returns what the response itself says about retrying; the verdict is undecided if it says nothing.
// The order of precedence is: the header X-Async-Caller-Retry, the member retryable of an RFC 9457 problem, a
// Nexus error.
func (o Outcome) retrySignal() judgement {
	var j judgement
	switch strings.ToLower(strings.TrimSpace(o.Header.Get(retryHeader))) {
	case "yes":
		return judgement{verdict: temporary, rule: "header " + retryHeader + ": yes"}
	case "no":
		return judgement{verdict: permanent, rule: "header " + retryHeader + ": no"}
	case "":
	default:
		j.ignored = []string{"header " + retryHeader + " is neither yes nor no"}
	}
	var body struct {
		Retryable         *bool
		Type              any
		IsRetryMeaningful *bool
	}
	if len(o.Body) == 0 || o.Truncated || json.Unmarshal(o.Body, &body) != nil {
		return j
	}
	retryable, format := body.Retryable, "problem body, retryable: %v"
	if retryable == nil || o.Answer().MediaType() != problemMediaType {
		retryable, format = body.IsRetryMeaningful, "Nexus error body, IsRetryMeaningful: %v"
		if body.Type == nil {
			return j
		}
	}
	if retryable != nil {
		j.verdict, j.rule = permanent, fmt.Sprintf(format, *retryable)
		if *retryable {
			j.verdict = temporary
		}
	}
	return j
}

// askedWait is the wait that a target asks for; zero if it does not ask.
type askedWait struct {
	wait   time.Duration
	header string
	// ignored names the headers whose values are invalid.
	ignored []string
}

// askedWait reads the wait from the response. Retry-After counts on every temporary response. Rate limit headers
// occur on ordinary responses as well, so they count only if the limit is reached.
func (o Outcome) askedWait(now time.Time) askedWait {
	var a askedWait
	a.read(o.Header, now, retryAfter, "Retry-After")
	if a.wait == 0 && o.limitReached() {
		a.read(o.Header, now, reset, "RateLimit-Reset", "X-RateLimit-Reset", "X-RateLimit-Reset-After", "X-Rate-Limit-Reset")
	}
	return a
}

// read keeps the longest wait among the named headers.
func (a *askedWait) read(header http.Header, now time.Time, parse func(string, time.Time) float64, names ...string) {
	for _, name := range names {
		value := strings.TrimSpace(header.Get(name))
		if value == "" {
			continue
		}
		seconds := parse(value, now)
		if !(seconds >= 0 && seconds <= maxAskedWait.Seconds()) { // also if it is NaN
			a.ignored = append(a.ignored, "header "+name+" is not a future time")
			continue
		}
		if wait := time.Duration(seconds * float64(time.Second)); wait > a.wait {
			a.wait, a.header = wait, name
		}
	}
}

// limitReached reports whether the target's rate limit is reached: nothing remains or, if no header says how much
// remains, the status is 429.
func (o Outcome) limitReached() bool {
	for _, name := range []string{"RateLimit-Remaining", "X-RateLimit-Remaining", "X-Rate-Limit-Remaining"} {
		if value := o.Header.Get(name); value != "" {
			return strings.TrimSpace(value) == "0"
		}
	}
	return o.Status == http.StatusTooManyRequests
}

// retryAfter reads RFC 9110's Retry-After, whole seconds or a date, as seconds from now. It returns -1 if the
// value is invalid.
func retryAfter(value string, now time.Time) float64 {
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
		return float64(seconds)
	}
	if at, err := http.ParseTime(value); err == nil {
		return at.Sub(now).Seconds()
	}
	return -1
}

// reset reads the common forms of rate limit headers as seconds from now: seconds with or without a fraction, or a
// time as Unix seconds or milliseconds. It returns -1 if the value is invalid.
func reset(value string, now time.Time) float64 {
	number, err := strconv.ParseFloat(value, 64)
	switch {
	case err != nil:
		return -1
	case number >= epochMilliseconds:
		return number/1000 - float64(now.UnixMilli())/1000
	case number >= epochSeconds:
		return number - float64(now.UnixMilli())/1000
	}
	return number
}
