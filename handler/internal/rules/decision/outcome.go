package decision

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/plain/secret"
	"asynccaller/handler/internal/rules/envelope"
)

// Outcome is the outcome of a call.
type Outcome struct {
	// Failure is why there is no usable response; empty if the target responded. If the response broke off, Status,
	// Header and Body have what arrived of it.
	Failure Failure
	// Status is the status of the response, or 0 if there was none.
	Status int
	// Header is the header of the response, or nil if there was none.
	Header http.Header
	// Body is the beginning of the response body. Truncated says that the body was longer; Signal is then what the
	// whole body says. The body of a 2xx without a callback is not read.
	Body      []byte
	Truncated bool
	Signal    Signal
	// Detail explains a failure in a few words, or what is odd about an answer, without URL, headers or bodies.
	Detail string
	// Took is how long the call lasted.
	Took time.Duration
}

// Answer returns the target's response, or nil if there was none. A 2xx that broke off is none: a sender who is
// told its status would take the call for delivered.
func (o Outcome) Answer() *envelope.Answer {
	if o.Status == 0 || o.Status/100 == 2 && o.Failure != "" {
		return nil
	}
	return &envelope.Answer{Status: o.Status, Header: o.Header, Body: o.Body, Truncated: o.Truncated}
}

// Keep makes the outcome what is kept of it; see [envelope.Answer.Readable].
func (o *Outcome) Keep(secrets []secret.Text) {
	received := envelope.Answer{Status: o.Status, Header: o.Header, Body: o.Body, Truncated: o.Truncated}
	kept := received.Readable(secrets)
	if kept.Truncated && !o.Truncated && o.Failure == "" && o.Status/100 != 2 {
		o.Signal, _ = ReadSignal(o.Header, o.Body, http.NoBody)
	}
	o.Header, o.Body, o.Truncated = kept.Header, kept.Body, kept.Truncated
}

// attempt returns the trail's entry about the call.
func (o Outcome) attempt(started time.Time) envelope.Attempt {
	a := envelope.Attempt{At: started, Status: o.Status, Took: o.Took}
	if o.Failure != "" {
		a.Error = o.describe()
	}
	return a
}

// describe summarizes the outcome in a few words.
func (o Outcome) describe() string {
	switch {
	case o.Failure == "":
		return o.Summary()
	case o.Detail == "":
		return string(o.Failure)
	}
	return string(o.Failure) + ": " + o.Detail
}

// Cause says in a few words why the call failed: what went wrong on the way to the target, or its status.
func (o Outcome) Cause() string {
	switch {
	case o.Failure == "":
		return strconv.Itoa(o.Status)
	case o.Detail == "":
		return string(o.Failure)
	}
	return strings.TrimPrefix(o.Detail, "the ")
}

// Summary says in a few words what came of the call, without the failure, which is the reason of the decision.
func (o Outcome) Summary() string {
	if o.Failure == "" {
		return strings.TrimSuffix("answered "+strconv.Itoa(o.Status)+", "+o.Detail, ", ")
	}
	return o.Detail
}

// reason returns the failure or, if the target responded, the given reason.
func (o Outcome) reason(responded Reason) Reason {
	if o.Failure != "" {
		return Reason(o.Failure)
	}
	return responded
}

// Failure is a way for a call to end without a usable response. It is a closed set; the values appear in logs as
// reasons.
type Failure string

// The failures. Those down to FailureAuth are temporary, the last three permanent.
const (
	// FailureTimeout: the target did not respond in time, or connecting took too long.
	FailureTimeout Failure = "timeout"
	// FailureDNS: the target's name could not be resolved.
	FailureDNS Failure = "dns"
	// FailureConnect: the target refused the connection or could not be reached.
	FailureConnect Failure = "connect"
	// FailureTLS: the TLS handshake broke.
	FailureTLS Failure = "tls"
	// FailureConnection: the connection broke before the response was complete, or the response was not HTTP.
	FailureConnection Failure = "connection"
	// FailureCertificate: the target's certificate is not trusted, has expired or is for another host. Somebody will
	// renew it.
	FailureCertificate Failure = "certificate"
	// FailureAuth: there is no token to authorize the call with or, if the target responded, it has refused the token,
	// and it is too early for another one.
	FailureAuth Failure = "auth"
	// FailureInterrupted: the handler is stopping; the target is not to blame.
	FailureInterrupted Failure = "interrupted"
	// FailureRedirected: the target redirected the call in a way that must not be followed.
	FailureRedirected Failure = "redirected"
	// FailureBadURL: the URL, or one that the target redirected to, cannot be called.
	FailureBadURL Failure = "bad_url"
	// FailureTargetRefused: a rule forbids calling the target, or one that it redirected to. The detail names
	// the rule.
	FailureTargetRefused Failure = "target_refused"
)

// Failures lists all failures.
func Failures() []Failure {
	return []Failure{
		FailureTimeout, FailureDNS, FailureConnect, FailureTLS, FailureConnection,
		FailureRedirected, FailureCertificate, FailureAuth, FailureBadURL, FailureTargetRefused, FailureInterrupted,
	}
}

// verdict is the meaning of an outcome for the message.
type verdict int

const (
	undecided verdict = iota
	delivered
	temporary
	permanent
	interrupted
)

// judgement is a verdict and the rule that led to it.
type judgement struct {
	verdict verdict
	rule    string
	// ignored names the retry signals in the response that are invalid.
	ignored []string
}

// judge applies the rules to the outcome of a call, which ended now.
func (r Rules) judge(in *Intake, o Outcome, now time.Time) judgement {
	switch o.Failure {
	case "":
		return r.judgeResponse(in, o, now)
	case FailureInterrupted:
		return judgement{verdict: interrupted, rule: "the handler is stopping"}
	case FailureRedirected, FailureBadURL, FailureTargetRefused:
		if o.hasRetryAfter(now) { // an answer, and so a redirect
			return judgement{verdict: temporary, rule: string(o.Failure) + " with " + retryAfter + " is temporary"}
		}
		return judgement{verdict: permanent, rule: "permanent failure: " + string(o.Failure)}
	case FailureTimeout, FailureDNS, FailureConnect, FailureTLS, FailureConnection, FailureCertificate, FailureAuth:
	}
	return judgement{verdict: temporary, rule: "no answer: " + string(o.Failure)}
}

// judgeResponse applies the rules in their order of precedence: what the response says about the call, the operator's
// statuses for the target, what a 4xx says about a later call, and the operator's statuses for all targets.
func (r Rules) judgeResponse(in *Intake, o Outcome, now time.Time) judgement {
	if o.Status/100 == 2 {
		return judgement{verdict: delivered, rule: "status 2xx"}
	}
	j := o.retrySignal()
	status := "status " + strconv.Itoa(o.Status)
	isRetried, isListed := in.Profile.Statuses[o.Status]
	advice := o.retryAdvice(now)
	switch {
	case j.verdict != undecided:
	case isListed && isRetried:
		j.verdict, j.rule = temporary, status+" is temporary (targets.json)"
	case isListed:
		j.verdict, j.rule = permanent, status+" is permanent (targets.json)"
	case advice != "":
		j.verdict, j.rule = temporary, status+" with "+advice+" is temporary"
	case r.Statuses.Temporary(o.Status):
		j.verdict, j.rule = temporary, status+" is temporary"
	default:
		j.verdict, j.rule = permanent, status+" is permanent"
	}
	return j
}

// retryAdvice returns what in a 4xx says that the call may be repeated, at once or later; empty if nothing does.
func (o Outcome) retryAdvice(now time.Time) string {
	if o.Status/100 != 4 {
		return ""
	}
	switch {
	case o.hasRetryAfter(now):
		return retryAfter
	case o.Status == http.StatusForbidden && readLimits(o.Header, now).isReached:
		return "a rate limit that is reached"
	}
	return ""
}

// hasRetryAfter reports whether a Retry-After counts, also if its time has passed.
func (o Outcome) hasRetryAfter(now time.Time) bool {
	wait, ok := readWait(fieldValue(o.Header, retryAfter), now)
	return ok && wait <= MaxAskedWait
}

// isUnauthorized reports whether the target has refused a token that can only be replaced later.
func (o Outcome) isUnauthorized() bool {
	return o.Failure == FailureAuth && o.Status == http.StatusUnauthorized
}

// WasUnauthorized reports whether the latest attempt at the call of an envelope has ended with a 401 that was temporary
// because it was too early for another token. An envelope without room for its trail may have no trace of it.
func WasUnauthorized(e *envelope.Envelope) bool {
	if len(e.Trail) == 0 {
		return e.Latest != nil && e.Latest.Status == http.StatusUnauthorized
	}
	latest := e.Trail[len(e.Trail)-1]
	return latest.Status == http.StatusUnauthorized && strings.HasPrefix(latest.Error, string(FailureAuth))
}

// DefaultStatuses are the temporary statuses of Nexus Async Caller.
const DefaultStatuses = "404,408,423,425,429,500-999,!510,!526"

// defaultStatuses is the set of [DefaultStatuses].
var defaultStatuses, _ = ParseStatuses(DefaultStatuses)

// Statuses is the set of response statuses that are temporary. Nil means [DefaultStatuses].
type Statuses map[int]bool

// Temporary reports whether a response with this status is temporary: a later attempt may succeed.
func (s Statuses) Temporary(status int) bool {
	if s == nil {
		s = defaultStatuses
	}
	return s[status]
}

// ParseStatuses reads a list of statuses and ranges, separated by commas: "404,500-599,!510". An exclamation mark
// excludes a status or a range, regardless of the order. 2xx cannot be temporary.
func ParseStatuses(text string) (Statuses, error) {
	included, excluded := Statuses{}, Statuses{}
	sets := map[bool]Statuses{false: included, true: excluded}
	var problems []error
	for part := range strings.SplitSeq(text, ",") {
		part, exclude := strings.CutPrefix(strings.TrimSpace(part), "!")
		from, to, err := parseRange(part)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for status := from; status <= to; status++ {
			sets[exclude][status] = true
		}
	}
	if len(problems) == 0 && len(included) == 0 {
		problems = append(problems, errors.New("no status is temporary: no call would be retried"))
	}
	maps.DeleteFunc(included, func(status int, _ bool) bool { return excluded[status] })
	return included, errors.Join(problems...)
}

func parseRange(text string) (from, to int, err error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, errFrom := strconv.Atoi(first)
	to, errTo := strconv.Atoi(last)
	switch {
	case errFrom != nil || errTo != nil || from < 100 || to > 999 || from > to:
		return 0, 0, fmt.Errorf("%.20q: want a status such as 404 or a range such as 500-599, from 100 to 999", text)
	case from < 300 && to >= 200:
		return 0, 0, fmt.Errorf("%.20q: 2xx means delivered and is never retried", text)
	}
	return from, to, nil
}

// Limits on the wait that a target asks for.
const (
	// MaxAskedWait is the longest wait on behalf of one message; a longer one is a mistake.
	MaxAskedWait = 366 * 24 * time.Hour
	// MaxSharedWait is the longest wait on behalf of all messages for the target: one of its paths must not stop the
	// others for days.
	MaxSharedWait = time.Hour
	// AskedWaitJitter spreads the messages that wait as long as the target asks.
	AskedWaitJitter = 0.2
)

const retryAfter = "Retry-After"

// resetHeaders have the time when the window of a rate limit ends.
var resetHeaders = []string{"RateLimit-Reset", "X-RateLimit-Reset", "X-RateLimit-Reset-After", "X-Rate-Limit-Reset"}

// askedWait is the wait that a target asks for; zero if it does not ask.
type askedWait struct {
	wait   time.Duration
	header string
	// ignored names the headers whose values do not count, and says why.
	ignored []string
}

// AskedWait returns how long the target asks callers to wait: whole seconds from 0 to [MaxAskedWait], or zero if it
// does not ask.
func (o Outcome) AskedWait(now time.Time) time.Duration { return o.askedWait(now).wait }

// askedWait reads the wait from the response. Retry-After counts on every temporary response. Rate limit headers
// occur on ordinary responses as well, so they count only if the limit is reached.
func (o Outcome) askedWait(now time.Time) askedWait {
	var a askedWait
	a.read(o.Header, now, retryAfter)
	if a.wait > 0 {
		return a
	}
	limits := readLimits(o.Header, now)
	a.ignored = append(a.ignored, limits.ignored...)
	if limits.wait > 0 {
		a.wait, a.header = limits.wait, limitField
	}
	isUnknown := !limits.isKnown && o.Status == http.StatusTooManyRequests
	if limits.isReached || isUnknown {
		a.read(o.Header, now, resetHeaders...)
	}
	return a
}

// read keeps the longest wait among the named headers.
func (a *askedWait) read(header http.Header, now time.Time, names ...string) {
	for _, name := range names {
		value := fieldValue(header, name)
		if value == "" {
			continue
		}
		wait, problem := usableWait(value, now)
		if problem != "" {
			a.ignored = append(a.ignored, "header "+name+" "+problem)
		}
		if wait > a.wait {
			a.wait, a.header = wait, name
		}
	}
}

// fieldValue returns the value of a header without white space around it. Several lines are one list.
func fieldValue(header http.Header, name string) string {
	return strings.TrimSpace(strings.Join(header.Values(name), ","))
}
