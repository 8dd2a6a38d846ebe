// Package decision says what becomes of a message: the settlement table as pure functions. Values in,
// a decision out; the clock and the random number are arguments, nothing is written here.
package decision

import (
	"net/http"
	"strconv"
	"time"

	"asynccaller/handler/internal/envelope"
)

// Outcome is what came of a call.
type Outcome struct {
	// Failure is why there was no answer that counts, or empty when the target answered.
	Failure Failure
	// Status is the target's answer, or 0 when there was none.
	Status int
	// Header is the answer's; nil when there was none.
	Header http.Header
	// Body is the beginning of the answer's body; Truncated says that there was more.
	Body      []byte
	Truncated bool
	// Detail explains a failure in a few words, without URL, headers or bodies.
	Detail string
	// Took is how long the call lasted.
	Took time.Duration
}

// Answer is what the target answered, or nil when it did not.
func (o Outcome) Answer() *envelope.Answer {
	if o.Status == 0 {
		return nil
	}
	return &envelope.Answer{Status: o.Status, Header: o.Header, Body: o.Body, Truncated: o.Truncated}
}

// Failure is a way for a call to end without an answer that counts. It is a closed set, and the words
// appear in logs as reasons.
type Failure string

// The failures. All but the last four may pass, so they are tried again.
const (
	// FailureTimeout: no answer within the call's time, or connecting took too long.
	FailureTimeout Failure = "timeout"
	// FailureDNS: the target's name could not be resolved.
	FailureDNS Failure = "dns"
	// FailureConnect: the target refused the connection or could not be reached.
	FailureConnect Failure = "connect"
	// FailureTLS: the TLS handshake was broken off.
	FailureTLS Failure = "tls"
	// FailureConnection: the connection broke before the answer was there, or the answer was not HTTP.
	FailureConnection Failure = "connection"
	// FailureInterrupted: the handler is stopping; the target is not to blame.
	FailureInterrupted Failure = "interrupted"
	// FailureRedirected: the target pointed elsewhere and the call must not follow.
	FailureRedirected Failure = "redirected"
	// FailureCertificate: the target's certificate is not trusted.
	FailureCertificate Failure = "certificate"
	// FailureBadURL: the URL, or one that the target redirected to, cannot be called.
	FailureBadURL Failure = "bad_url"
	// FailureTargetRefused: the operator's rules or ours forbid calling the target, or one that it
	// redirected to. The detail tells which rule.
	FailureTargetRefused Failure = "target_refused"
)

// Failures lists all failures.
func Failures() []Failure {
	return []Failure{
		FailureTimeout, FailureDNS, FailureConnect, FailureTLS, FailureConnection,
		FailureRedirected, FailureCertificate, FailureBadURL, FailureTargetRefused, FailureInterrupted,
	}
}

// verdict is what an outcome means for the message.
type verdict int

const (
	delivered verdict = iota
	temporary
	permanent
	interrupted
)

// Delivered reports whether the target took the call: it answered 2xx.
func (o Outcome) Delivered() bool { return o.Failure == "" && o.Status/100 == 2 }

// judgement is what an outcome means, and which rule says so.
type judgement struct {
	verdict verdict
	rule    string
	// ignored names what the target said that makes no sense.
	ignored string
}

// judge applies the rules: what the target says itself beats its status.
func (r Rules) judge(o Outcome) judgement {
	switch o.Failure {
	case "":
		return r.judgeAnswer(o)
	case FailureTimeout, FailureDNS, FailureConnect, FailureTLS, FailureConnection:
		return judgement{verdict: temporary, rule: "no answer: " + string(o.Failure)}
	case FailureInterrupted:
		return judgement{verdict: interrupted, rule: "the handler is stopping"}
	case FailureRedirected, FailureCertificate, FailureBadURL, FailureTargetRefused:
		return judgement{verdict: permanent, rule: "never another answer: " + string(o.Failure)}
	}
	return judgement{verdict: temporary, rule: "unknown failure: trying again loses nothing"}
}

func (r Rules) judgeAnswer(o Outcome) judgement {
	if o.Delivered() {
		return judgement{verdict: delivered, rule: "status 2xx"}
	}
	retry, says, source, ignored := o.signal()
	j := judgement{verdict: permanent, rule: source, ignored: ignored}
	if !says {
		retry = r.Statuses.Temporary(o.Status)
		j.rule = "status " + strconv.Itoa(o.Status) + " is permanent"
		if retry {
			j.rule = "status " + strconv.Itoa(o.Status) + " is temporary"
		}
	}
	if retry {
		j.verdict = temporary
	}
	return j
}
