// Package explain shows in advance what the handler would do with a message, and when it would make its
// attempts. It states no rule of its own: it runs the code that the handler runs (envelope, decision) with a clock
// and random numbers of its own, and reports the decisions. It is pure. The reports are safe to print: they contain
// no query string, user info, header value, body or context.
package explain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
)

// The ends of the range of random numbers that decision.World has.
const (
	lowestJitter  = 0.0
	highestJitter = 1 - 1.0/(1<<53) // the last number below 1
)

// Question is a message, and an assumption about the outcome of its call.
type Question struct {
	// Queue is the queue that the message is or would be on.
	Queue string
	// MessageID identifies the call if the envelope has no request id.
	MessageID string
	Content   []byte
	// Now is when the host would deliver the message.
	Now time.Time
	// MaxContentBytes is the size of the largest content that the queue accepts; see storage.Encoding.
	MaxContentBytes int
	// Guard are the rules that say which targets may be called.
	Guard guard.Rules
	// Live returns the live settings of a target, or the zero value. It is nil if they are not known.
	Live func(target *url.URL) Live
	// Outcome is the assumed outcome of the call, or nil. It does not matter if the target is refused.
	Outcome *decision.Outcome
}

// Open opens the message under the operator's rules, as the handler does.
func (q Question) Open(rules decision.Rules) decision.Intake {
	return rules.Open(q.Content, q.MessageID, q.MaxContentBytes, q.Now)
}

// Live is what operators have set for a target.
type Live struct {
	// Paused is a text about its pause; empty if there is none. Until is the end of the pause; zero means that it has
	// none.
	Paused string
	Until  time.Time
	// Profile returns the profile that is in force in the place of one of targets.json; nil if it is the same. Set are
	// texts about the members that are set.
	Profile func(targets.Profile) targets.Profile
	Set     []string
}

// Explanation describes how the handler would process a message.
type Explanation struct {
	// Envelope is nil if the content is not an envelope.
	Envelope *Envelope `json:"envelope,omitempty"`
	// Unknown are the members that have no effect.
	Unknown []envelope.Unknown `json:"unknown,omitempty"`
	// Arrival is the step on delivery of the message.
	Arrival Step `json:"arrival"`
	// AfterCall is the step after a call with the assumed outcome, or that follows if the target is refused; nil if
	// none is assumed or no call is ever due. If the random part of the wait decides between two actions, AfterCall is
	// for the shortest wait and Otherwise for the longest.
	AfterCall *Step `json:"afterCall,omitempty"`
	Otherwise *Step `json:"otherwise,omitempty"`
	// NoCall says why the message ends without a call, whatever outcome is assumed, and without a callback that tells
	// its sender; empty otherwise.
	NoCall string `json:"noCall,omitempty"`
}

// Step is a decision, and the message that settling it would write.
type Step struct {
	// At is the time of the decision.
	At     time.Time       `json:"at"`
	Action decision.Action `json:"action"`
	Reason decision.Reason `json:"reason"`
	Detail string          `json:"detail,omitempty"`
	// Rule names the rule that judged the outcome.
	Rule     string `json:"rule,omitempty"`
	GivenUp  bool   `json:"givenUp"`
	Callback bool   `json:"callback"`
	// Next is when the message is due again; nil if never.
	Next *Next `json:"next,omitempty"`
	// Limited names the operator's limits that changed the envelope's own policy.
	Limited string   `json:"limited,omitempty"`
	Ignored []string `json:"ignored,omitempty"`
	// Writes describes the message that is written; empty if there is none.
	Writes string `json:"writes,omitempty"`
}

// Next bounds the time of the next attempt, at the latest the deadline, and how long the message is invisible: less
// than the wait if the queue does not accept a delay of that length.
type Next struct {
	Earliest time.Time `json:"earliest"`
	Latest   time.Time `json:"latest"`
	Shortest Seconds   `json:"shortestDelaySeconds"`
	Longest  Seconds   `json:"longestDelaySeconds"`
}

// Seconds is a duration that is a number of seconds in JSON.
type Seconds time.Duration

// MarshalJSON writes a number of seconds.
func (s Seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// About explains a message under the operator's rules.
func About(rules decision.Rules, q Question) Explanation {
	m := message{Question: q, rules: rules, in: q.Open(rules)}
	m.findLive()
	arrivals := []decision.Decision{rules.Decide(&m.in, nil, world(q.Now, 0))}
	if m.live.Paused != "" && arrivals[0].Action == decision.Call {
		arrivals = nil
		for _, jitter := range []float64{lowestJitter, highestJitter} {
			paused := &decision.Verdict{Refusal: decision.PausedUntil(m.live.Until, q.Now, jitter)}
			arrivals = append(arrivals, rules.Decide(&m.in, paused, world(q.Now, jitter)))
		}
	}
	arrival := arrivals[0]
	explanation := Explanation{Arrival: m.step(q.Now, arrivals...), Unknown: envelope.UnknownMembers(q.Content)}
	if m.in.Envelope != nil {
		explanation.Envelope = m.describe()
		if refused := explanation.Envelope.Refused; refused != "" {
			m.Outcome = &decision.Outcome{Failure: decision.FailureTargetRefused, Detail: refused}
		}
	}
	at := q.Now
	if arrival.Reason == decision.NotDue { // one long wait, although several delays may make it up
		at = arrival.State.NextAttemptAt
		m.in.Envelope = m.in.Envelope.WithState(arrival.State)
		arrival = rules.Decide(&m.in, nil, world(at, 0))
	}
	explanation.NoCall = noCall(m.step(at, arrival))
	if arrival.Action == decision.Call && m.Outcome != nil {
		explanation.AfterCall, explanation.Otherwise = m.afterCall(at)
		if explanation.Envelope.Refused != "" { // whatever the operator assumes
			explanation.NoCall = noCall(*explanation.AfterCall)
		}
	}
	return explanation
}

// noCall returns why a message ends with a step, or an empty text if it does not, or if its callback tells the sender.
func noCall(s Step) string {
	switch s.Action {
	case decision.DeadLetter, decision.Drop, decision.Fault:
		text := fmt.Sprintf("%s (%s)", s.Action, s.Reason)
		if s.Detail != "" {
			text += ": " + s.Detail
		}
		return text
	case decision.Call, decision.Finish, decision.Reschedule, decision.Callback, decision.Hold, decision.Release:
	}
	return ""
}

// message is a question whose message was opened.
type message struct {
	Question
	rules decision.Rules
	in    decision.Intake
	live  Live
}

// world is the world in which a message is decided. Messages of routes without room may stay on their queue.
func world(now time.Time, jitter float64) decision.World {
	return decision.World{Arrived: now, Now: now, Jitter: jitter, UpdatableUntil: storage.NeverExpires}
}

// findLive applies the live settings of the message's target. They do not matter if the target is refused.
func (m *message) findLive() {
	e := m.in.Envelope
	if m.Live == nil || e == nil || m.refused() != "" {
		return
	}
	m.live = m.Live(m.in.Call().Target)
	if m.live.Profile != nil {
		m.in.Profile = m.live.Profile(m.in.Profile)
	}
}

// refused returns why the target of the message's envelope must not be called.
func (m message) refused() string {
	call := m.in.Call()
	refused := cmp.Or(m.in.Refused, m.Guard.JudgeCall(call.Target, call.Host))
	if refused == "" && m.in.Profile.IsPlain(call) {
		refused = targets.PlainRefusal
	}
	return refused
}

func (m message) credential() string {
	c := m.in.Profile.CredentialOf(m.in.Call())
	if c == nil {
		return ""
	}
	return text.Printable(c.Name)
}

func (m message) afterCall(started time.Time) (step, otherwise *Step) {
	ended := started.Add(m.Outcome.Took)
	decide := func(jitter float64) decision.Decision {
		w := world(ended, jitter)
		w.Arrived = started
		return m.rules.Decide(&m.in, &decision.Verdict{Outcome: m.Outcome}, w)
	}
	shortest, longest := decide(lowestJitter), decide(highestJitter)
	if shortest.Action != longest.Action || shortest.Reason != longest.Reason {
		first, second := m.step(ended, shortest, m.atDeadline(shortest, ended)), m.step(ended, longest)
		return &first, &second
	}
	both := []decision.Decision{shortest, longest}
	varies := !longest.State.NextAttemptAt.Equal(shortest.State.NextAttemptAt)
	if varies && m.rules.DueCall(&m.in, world(longest.State.NextAttemptAt, 0)).LastAttempt {
		both = append(both, m.atDeadline(shortest, ended)) // the longest wait was cut, but others are as long
	}
	first := m.step(ended, both...)
	return &first, nil
}

// atDeadline returns the decision to reschedule with a wait until the deadline: the waits that fit are shorter.
func (m message) atDeadline(d decision.Decision, now time.Time) decision.Decision {
	d.State.NextAttemptAt, d.Delay = d.State.Expires, d.State.Expires.Sub(now)
	if m.rules.MaxDelay > 0 {
		d.Delay = min(d.Delay, m.rules.MaxDelay)
	}
	return d
}

// step reports decisions that differ only in their waits.
func (m message) step(at time.Time, decisions ...decision.Decision) Step {
	d := decisions[0]
	s := Step{
		At: at, Action: d.Action, Reason: d.Reason, Detail: text.Printable(d.Detail), Rule: d.Rule,
		GivenUp: d.GivenUp, Callback: d.Action == decision.Callback, Limited: d.Limited, Ignored: d.Ignored,
		Writes: m.writes(decisions[len(decisions)-1], at),
	}
	if d.Action == decision.Reschedule {
		s.Next = next(decisions, at)
	}
	return s
}

func next(decisions []decision.Decision, now time.Time) *Next {
	var n Next
	for i, d := range decisions {
		at := d.State.NextAttemptAt
		if at.Before(now) { // interrupted: at once
			at = now.Add(d.Delay)
		}
		if i == 0 || at.Before(n.Earliest) {
			n.Earliest, n.Shortest = at, Seconds(d.Delay)
		}
		if i == 0 || at.After(n.Latest) {
			n.Latest, n.Longest = at, Seconds(d.Delay)
		}
	}
	return &n
}

// writes describes the message that settling the decision would write: its size before encoding, the parts that have no
// room, or why it cannot be written, so that the host would keep the original. It is empty if there is none.
func (m message) writes(d decision.Decision, now time.Time) string {
	if d.Action == decision.Call {
		return ""
	}
	w := m.rules.Compose(m.in, d, m.Queue, now)
	switch {
	case w.Problem != nil:
		return "cannot be written: " + w.Problem.Error()
	case w.Queue == "":
		return ""
	}
	text := fmt.Sprintf("%d of %d bytes to %s, %d left",
		len(w.Content), m.MaxContentBytes, w.Queue, m.MaxContentBytes-len(w.Content))
	if w.LeftOut != "" {
		text += "; left out: " + w.LeftOut
	}
	return text
}

// Envelope is the part of an envelope that may be shown.
type Envelope struct {
	Format    envelope.Format `json:"format"`
	RequestID string          `json:"requestId"`
	// OriginalRequestID is, on a callback, the id of the request that it reports about.
	OriginalRequestID string `json:"originalRequestId,omitempty"`
	Organization      string `json:"organization,omitempty"`
	Environment       string `json:"environment,omitempty"`
	CorrelationID     string `json:"correlationId,omitempty"`
	Method            string `json:"method"`
	// Target and Callback are host and path.
	Target   string `json:"target"`
	Callback string `json:"callback,omitempty"`
	// MovedTo is the host that is called instead, which gets the sender's own headers, query and body; empty if the
	// target has not moved.
	MovedTo string `json:"movedTo,omitempty"`
	// Refused says why the target must not be called, judged by its host and Host header, or because its credential
	// would be sent in the clear; the addresses of a name are judged when it is called.
	Refused string `json:"refused,omitempty"`
	// RefusedIfShort says why the target is refused if its host, a name without a dot, exists only with the search list
	// of the handler.
	RefusedIfShort string `json:"refusedIfShort,omitempty"`
	// Paused says since when, by whom and until when the target is paused; empty if it is not, or that is not known.
	// Set says the same about the limits that are set in the place of those of targets.json.
	Paused string   `json:"paused,omitempty"`
	Set    []string `json:"set,omitempty"`
	// Credential names the credential that authorizes the call; empty if there is none.
	Credential string `json:"credential,omitempty"`
	// SignedWith names the secrets with which the call is signed; empty if it is not.
	SignedWith string `json:"signedWith,omitempty"`
	// Headers are names.
	Headers   []string  `json:"headers,omitempty"`
	BodyBytes int       `json:"bodyBytes"`
	Bytes     int       `json:"bytes"` // of the message
	Attempts  int       `json:"attempts"`
	CreatedAt time.Time `json:"createdAt"`
	// LatestStatus is the status of the target's latest response, or 0.
	LatestStatus envelope.StatusCode `json:"latestStatus"`
	// Due is false while no call may be made. DueAt is the end of that time, or nil if there is none.
	Due      bool       `json:"due"`
	DueAt    *time.Time `json:"dueAt,omitempty"`
	Deadline time.Time  `json:"deadline"`
	// DeadlineLimited is the operator's limit that applies instead of a later deadline; empty if none does.
	DeadlineLimited string `json:"deadlineLimited,omitempty"`
	// Profile describes the profile of the target that applies.
	Profile     string `json:"profile"`
	Policy      string `json:"policy,omitempty"`
	MaxAttempts int    `json:"maxAttempts,omitempty"`
	Limited     string `json:"limited,omitempty"`
	// IfExpired is the action at the deadline.
	IfExpired decision.Action `json:"ifExpired"`
	// MovedBack is the reason of a dead letter that was moved back, without the answer; its envelope starts again.
	MovedBack *envelope.DeadLetter `json:"movedBack,omitempty"`
}

// profileText describes what targets.json says about a target. Of its headers it has the names.
func profileText(p targets.Profile) string {
	parts := []string{p.Pattern}
	add := func(is bool, format string, args ...any) {
		if is {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	if p.Pattern == "" {
		parts = []string{"none, no limits except the share"}
	}
	add(p.Concurrency > 0, "%d calls at a time", p.Concurrency)
	add(p.RateText != "", "%s in bursts of %d", p.RateText, p.Burst)
	add(p.History != "", "history %s", p.History)
	add(p.Timeout > 0, "timeout %s", p.Timeout)
	if p.Retry != nil {
		add(true, "retry policy %s", p.Retry.Name)
	}
	for _, status := range slices.Sorted(maps.Keys(p.Statuses)) {
		add(p.Statuses[status], "retry status %d", status)
		add(!p.Statuses[status], "reject status %d", status)
	}
	if c := p.Certificate; c != nil {
		add(true, "certificate %s", c.Name)
	}
	add(p.Authorities != nil, "authorities of its own")
	for _, name := range slices.Sorted(maps.Keys(p.Headers)) {
		add(true, "header %s", p.Spelling.Of(name))
	}
	add(len(p.Sign) > 0, "signed with %s", p.Sign.Names())
	b := p.Breaker
	add(b.Off, "no circuit breaker")
	add(!b.Off, "circuit breaker after %d failures, %s to %s", b.Failures, b.MinDelay, b.MaxDelay)
	return strings.Join(parts, "; ")
}

func (m message) describe() *Envelope {
	e := m.in.Envelope
	deadline := e.GiveUpAt(m.rules.Expiration)
	due := e.DueAt()
	about := &Envelope{
		Format:            e.Format(),
		RequestID:         e.RequestID,
		OriginalRequestID: text.Printable(e.OriginalRequestID),
		Organization:      text.Printable(e.Tenant.Organization),
		Environment:       text.Printable(e.Tenant.Environment),
		CorrelationID:     e.CorrelationID(),
		Method:            e.Call.Method,
		Target:            Target(e.Call.Target.String()),
		MovedTo:           m.in.MovedTo(),
		Refused:           m.refused(),
		Paused:            m.live.Paused,
		Set:               m.live.Set,
		Credential:        m.credential(),
		SignedWith:        m.in.Profile.SigningKeysOf(m.in.Call()).Names(),
		BodyBytes:         e.Call.Body.Len(),
		Bytes:             len(m.Content),
		Attempts:          e.Attempts,
		CreatedAt:         e.CreatedAt,
		LatestStatus:      envelope.StatusCode(e.LatestStatus()),
		Due:               !due.After(m.Now),
		Deadline:          deadline,
		Profile:           profileText(m.in.Profile),
		Policy:            m.in.Policy.Name,
		MaxAttempts:       m.in.Policy.MaxAttempts,
		Limited:           m.in.Policy.Limited,
		IfExpired:         m.rules.Decide(&decision.Intake{Envelope: e}, nil, world(deadline, 0)).Action,
	}
	if !due.IsZero() {
		about.DueAt = &due
	}
	host := m.in.Call().Target.Hostname()
	if about.Refused == "" && guard.HasNoDot(host) {
		about.RefusedIfShort = m.Guard.JudgeShortName(host)
	}
	if e.Call.Host != "" {
		about.Headers = append(about.Headers, "Host")
	}
	for _, name := range slices.Sorted(maps.Keys(e.Call.Header)) {
		about.Headers = append(about.Headers, e.Call.Spelling.Of(name))
	}
	if e.Callback != nil {
		about.Callback = Target(e.Callback.URL)
	}
	if e.DeadlineLimited {
		about.DeadlineLimited = fmt.Sprintf("at most %v after creation or notBefore", m.rules.MaxDeadline)
	}
	if letter := m.in.Received.DeadLetter; letter != nil {
		shown := *letter
		shown.Answer = nil
		shown.Reason = text.Printable(letter.Reason)
		shown.Detail = text.Printable(letter.Detail)
		shown.Queue = text.Printable(letter.Queue)
		about.MovedBack = &shown
	}
	return about
}

// Target returns the part of a URL that may be shown: host and path.
func Target(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return text.Printable(u.Host + u.EscapedPath())
}

// maxAttempts bounds a [Schedule].
const maxAttempts = 10_000

// Schedule is when the attempts of a message are made if the target never responds.
type Schedule struct {
	// Shortest is the result if every wait is as short as possible, Longest if every wait is as long as possible.
	Shortest Run       `json:"withShortestWaits"`
	Longest  Run       `json:"withLongestWaits"`
	Attempts []Attempt `json:"attempts"`
}

// Attempt is one call of a schedule. Waits count from the previous attempt, times from now. The wait before a last
// attempt is cut, so that the attempt comes before the deadline.
type Attempt struct {
	N            int     `json:"n"`
	ShortestWait Seconds `json:"shortestWaitSeconds"`
	LongestWait  Seconds `json:"longestWaitSeconds"`
	Earliest     Seconds `json:"earliestSeconds"`
	Latest       Seconds `json:"latestSeconds"`
	// Certain says that the attempt is made even with the longest waits. Otherwise Latest is the deadline.
	Certain bool `json:"certain"`
}

// Run is the end of a schedule with the shortest or with the longest waits.
type Run struct {
	Attempts int `json:"attempts"`
	// Last is the time of the last attempt.
	Last Seconds `json:"lastSeconds"`
	// Reason is why there are no more attempts; empty if the schedule was cut because there are too many.
	Reason decision.Reason `json:"reason,omitempty"`
}

// Simulate returns the schedule of a message under the operator's rules. It has no attempts if there is no envelope.
func Simulate(rules decision.Rules, q Question) (s Schedule) {
	in := q.Open(rules)
	if in.Envelope == nil {
		return s
	}
	var short, long []Seconds
	short, s.Shortest = run(rules, in, q.Now, lowestJitter)
	long, s.Longest = run(rules, in, q.Now, highestJitter)
	deadline := Seconds(in.Envelope.GiveUpAt(rules.Expiration).Sub(q.Now))
	for i := range max(len(short), len(long)) {
		_, longest := in.Policy.Bounds(in.Envelope.Attempts + i)
		a := attempt(Seconds(longest), deadline, i, short, long)
		a.N = in.Envelope.Attempts + i + 1
		s.Attempts = append(s.Attempts, a)
	}
	return s
}

// attempt combines the attempt of that index from runs of which one at least made it.
func attempt(longest, deadline Seconds, i int, runs ...[]Seconds) Attempt {
	a := Attempt{ShortestWait: deadline, Earliest: deadline, Certain: true}
	for _, times := range runs {
		if i >= len(times) {
			a.Certain = false
			continue
		}
		at, wait := times[i], times[i]-times[max(i-1, 0)]
		a.Earliest, a.Latest = min(a.Earliest, at), max(a.Latest, at)
		a.ShortestWait, a.LongestWait = min(a.ShortestWait, wait), max(a.LongestWait, wait)
	}
	if !a.Certain {
		a.Latest, a.LongestWait = deadline, max(a.ShortestWait, min(longest, deadline))
	}
	return a
}

// run follows the rules through virtual time, from now to the end. It returns the time of each attempt.
func run(rules decision.Rules, in decision.Intake, begin time.Time, jitter float64) (times []Seconds, end Run) {
	unanswered := decision.Outcome{Failure: decision.FailureConnect} // temporary, whatever statuses are configured
	for now := begin; end.Attempts < maxAttempts; {
		d := rules.Decide(&in, nil, world(now, jitter))
		if d.Action == decision.Call {
			end.Attempts++
			end.Last = Seconds(now.Sub(begin))
			times = append(times, end.Last)
			d = rules.Decide(&in, &decision.Verdict{Outcome: &unanswered}, world(now, jitter))
		}
		if d.Action != decision.Reschedule {
			end.Reason = d.Reason
			break
		}
		now = now.Add(d.Delay)
		d.State.Trail = nil // it takes time and does not influence a decision
		in.Envelope = in.Envelope.WithState(d.State)
	}
	return times, end
}
