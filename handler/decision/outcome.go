// Package decision says what becomes of a message: the settlement table as pure functions. Values in,
// a decision out; the clock and the random number are arguments, nothing is written here.
package decision

import (
	"encoding/json"
	"net/http"
	"time"
)

// Outcome is what came of a call.
type Outcome struct {
	// Failure is why there was no answer that counts, or empty when the target answered.
	Failure Failure
	// Status is the target's answer, or 0 when there was none.
	Status int
	// MediaType is the answer's Content-Type without parameters.
	MediaType string
	// Body is the beginning of the answer's body; Truncated says that there was more.
	Body      []byte
	Truncated bool
	// Detail explains a failure in a few words, without URL, headers or bodies.
	Detail string
	// Took is how long the call lasted.
	Took time.Duration
}

// Failure is a way for a call to end without an answer that counts. It is a closed set, and the words
// appear in logs as reasons.
type Failure string

// The failures. All but the last three may pass, so they are tried again.
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
)

// verdict is what an outcome means for the message.
type verdict int

const (
	delivered verdict = iota
	temporary
	permanent
	interrupted
)

// Delivered reports whether the target took the call: it answered 2xx.
func (o Outcome) Delivered() bool { return o.judge() == delivered }

func (o Outcome) judge() verdict {
	switch o.Failure {
	case "":
		return judgeAnswer(o.Status, o.Body)
	case FailureTimeout, FailureDNS, FailureConnect, FailureTLS, FailureConnection:
		return temporary
	case FailureInterrupted:
		return interrupted
	case FailureRedirected, FailureCertificate, FailureBadURL:
		return permanent
	}
	return temporary // unknown: trying again loses nothing
}

// judgeAnswer applies the status rules, which an error body in Nexus's form overrides.
func judgeAnswer(status int, body []byte) verdict {
	if status/100 == 2 {
		return delivered
	}
	retry, says := nexusError(body)
	switch {
	case says && retry:
		return temporary
	case says:
		return permanent
	case TemporaryStatus(status):
		return temporary
	}
	return permanent
}

// TemporaryStatus reports whether a target that answers with this status may answer otherwise later:
// 404, 408, 423, 425, 429 and everything from 500 but 510 and 526. The rule is Nexus Async Caller's.
func TemporaryStatus(status int) bool {
	switch status {
	case http.StatusNotFound, http.StatusRequestTimeout, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusNotExtended, statusInvalidCertificate:
		return false
	}
	return status >= http.StatusInternalServerError
}

// statusInvalidCertificate is Cloudflare's 526.
const statusInvalidCertificate = 526

// nexusError reads the body of an answer that says itself whether to try again: a JSON object with a
// Type that is not null and a boolean IsRetryMeaningful (Nexus's FulcrumError).
func nexusError(body []byte) (retry, says bool) {
	var answer struct {
		Type              any
		IsRetryMeaningful *bool
	}
	if len(body) == 0 || body[0] != '{' || json.Unmarshal(body, &answer) != nil {
		return false, false
	}
	if answer.Type == nil || answer.IsRetryMeaningful == nil {
		return false, false
	}
	return *answer.IsRetryMeaningful, true
}
