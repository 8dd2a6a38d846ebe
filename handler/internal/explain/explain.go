// Package explain tells beforehand what the handler would do with a message, and when a policy would make
// its attempts. It knows no rule itself: it runs the code that the handler runs (envelope, decision) with a
// clock and random numbers of its own, and reports what that decided. It is pure, and what it reports is
// fit to be shown: no query string, user info, header value, body or context is in it.
package explain

import (
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/guard"
)

// The ends of the range of random numbers that decision.Rules.AfterCall takes.
const (
	lowestJitter  = 0.0
	highestJitter = 1 - 1.0/(1<<53) // the last number below 1
)

// Question is a message, and what might come of its call.
type Question struct {
	// Queue is where the message stands or would stand.
	Queue string
	// MessageID names the call when the envelope has no request id.
	MessageID string
	Content   []byte
	// Now is when the message would be handed over.
	Now time.Time
	// MaxContentBytes is the size of the largest content that the queue takes; see queue.Encoding.
	MaxContentBytes int
	// Targets say which targets may be called.
	Targets guard.Rules
	// Outcome is what would come of the call, or nil to leave that open.
	Outcome *decision.Outcome
}

// Explanation is what the handler would do.
type Explanation struct {
	// Envelope is nil when the content is none.
	Envelope *Envelope `json:"envelope,omitempty"`
	// Arrival is what happens when the message is handed over.
	Arrival Step `json:"arrival"`
	// AfterCall is what happens after a call with the outcome that the question supposes; nil when it
	// supposes none, or no call is ever made. Where the random part of the wait changes more than the
	// wait, it is for the shortest one, and Otherwise for the longest.
	AfterCall *Step `json:"afterCall,omitempty"`
	Otherwise *Step `json:"otherwise,omitempty"`
}

// Step is a decision, and what it would write.
type Step struct {
	// At is the moment of the decision.
	At     time.Time       `json:"at"`
	Action decision.Action `json:"action"`
	Reason decision.Reason `json:"reason"`
	Detail string          `json:"detail,omitempty"`
	// Rule says which rule judged the outcome.
	Rule     string `json:"rule,omitempty"`
	GivenUp  bool   `json:"givenUp"`
	Callback bool   `json:"callback"`
	// Next is when the message comes back; nil when it does not.
	Next *Next `json:"next,omitempty"`
	// Limited says which of the operator's limits changed the envelope's own policy.
	Limited string   `json:"limited,omitempty"`
	Ignored []string `json:"ignored,omitempty"`
	// Write is the message that is written, or nil.
	Write *Write `json:"write,omitempty"`
}

// Next bounds the moment of the next attempt, and how long the message is invisible: shorter than the wait
// when that is beyond what a queue can do at once.
type Next struct {
	Earliest time.Time     `json:"earliest"`
	Latest   time.Time     `json:"latest"`
	Shortest time.Duration `json:"-"`
	Longest  time.Duration `json:"-"`

	ShortestSeconds float64 `json:"shortestDelaySeconds"`
	LongestSeconds  float64 `json:"longestDelaySeconds"`
}

// Write is a message to be written.
type Write struct {
	Queue string `json:"queue"`
	// Bytes of Max are used, before encoding.
	Bytes int `json:"bytes"`
	Max   int `json:"maxBytes"`
	// LeftOut names what has no room.
	LeftOut string `json:"leftOut,omitempty"`
	// Problem says why it cannot be written at all; the host would then keep the message.
	Problem string `json:"problem,omitempty"`
}

// About explains a message under the operator's rules.
func About(rules decision.Rules, q Question) Explanation {
	in := rules.Open(q.Content, q.MessageID, q.MaxContentBytes, q.Now)
	arrival := rules.BeforeCall(in, q.Now)
	explanation := Explanation{Arrival: q.step(rules, in, []decision.Decision{arrival}, q.Now)}
	if in.Envelope != nil {
		explanation.Envelope = describe(rules, in, q)
	}
	if q.Outcome == nil || in.Malformed != nil {
		return explanation
	}
	at := q.Now
	if arrival.Action == decision.Reschedule { // several delays may make up the wait
		at = arrival.State.NextAttemptAt
		in.Envelope = in.Envelope.WithState(arrival.State)
		arrival = rules.BeforeCall(in, at)
	}
	if arrival.Action == decision.Call {
		explanation.AfterCall, explanation.Otherwise = q.afterCall(rules, in, at)
	}
	return explanation
}

func (q Question) afterCall(rules decision.Rules, in decision.Intake, started time.Time) (step, otherwise *Step) {
	ended := started.Add(q.Outcome.Took)
	decide := func(jitter float64) decision.Decision {
		return rules.AfterCall(in, *q.Outcome, started, ended, jitter)
	}
	shortest, longest := decide(lowestJitter), decide(highestJitter)
	extremes := []decision.Decision{shortest, brink(decide, longest), longest}
	if !sameEnd(shortest, longest) {
		other := q.step(rules, in, extremes[2:], ended)
		otherwise, extremes = &other, extremes[:2]
	}
	both := q.step(rules, in, extremes, ended)
	return &both, otherwise
}

func sameEnd(a, b decision.Decision) bool { return a.Action == b.Action && a.Reason == b.Reason }

// brink is the decision for the largest random number that does not yet lead to the given one, which is
// that of the highest: where a wait that grows past the deadline is cut, or ends it all.
func brink(decide func(float64) decision.Decision, highest decision.Decision) decision.Decision {
	low, high := lowestJitter, highestJitter
	for range 60 { // as many as the number has digits, and some
		middle := (low + high) / 2
		if d := decide(middle); sameEnd(d, highest) && d.State.NextAttemptAt.Equal(highest.State.NextAttemptAt) {
			high = middle
		} else {
			low = middle
		}
	}
	return decide(low)
}

// step reports decisions that differ in their wait at most.
func (q Question) step(rules decision.Rules, in decision.Intake, extremes []decision.Decision, at time.Time) Step {
	d := extremes[0]
	s := Step{
		At: at, Action: d.Action, Reason: d.Reason, Detail: Printable(d.Detail), Rule: d.Rule,
		GivenUp: d.GivenUp, Callback: d.Action == decision.Callback, Limited: d.Limited, Ignored: d.Ignored,
		Write: q.write(rules, in, extremes[len(extremes)-1], at),
	}
	if d.Action == decision.Reschedule {
		s.Next = next(extremes, at)
	}
	return s
}

func next(extremes []decision.Decision, now time.Time) *Next {
	var n Next
	for i, d := range extremes {
		at := d.State.NextAttemptAt
		if at.IsZero() { // interrupted: at once
			at = now.Add(d.Delay)
		}
		if i == 0 || at.Before(n.Earliest) {
			n.Earliest, n.Shortest = at, d.Delay
		}
		if i == 0 || at.After(n.Latest) {
			n.Latest, n.Longest = at, d.Delay
		}
	}
	n.ShortestSeconds, n.LongestSeconds = n.Shortest.Seconds(), n.Longest.Seconds()
	return &n
}

// write returns the message that settling the decision would write, or nil if there is none.
func (q Question) write(rules decision.Rules, in decision.Intake, d decision.Decision, now time.Time) *Write {
	composed := rules.Compose(in, d, q.Queue, now)
	if composed.Queue == "" && composed.Problem == nil || d.Action == decision.Call {
		return nil
	}
	w := &Write{Queue: composed.Queue, Bytes: len(composed.Content), Max: q.MaxContentBytes, LeftOut: composed.LeftOut}
	if composed.Problem != nil {
		w.Problem = composed.Problem.Error()
	}
	return w
}

// Envelope is what may be shown of an envelope.
type Envelope struct {
	Format    envelope.Format `json:"format"`
	RequestID string          `json:"requestId"`
	// OriginalRequestID is, on a callback, the request that it reports about.
	OriginalRequestID string `json:"originalRequestId,omitempty"`
	Organization      string `json:"organization,omitempty"`
	Environment       string `json:"environment,omitempty"`
	CorrelationID     string `json:"correlationId,omitempty"`
	Method            string `json:"method"`
	// Target and Callback are host and path.
	Target   string `json:"target"`
	Callback string `json:"callback,omitempty"`
	// Refused says why the target must not be called, as far as its host tells: what a name resolves to
	// is judged when it is called.
	Refused string `json:"refused,omitempty"`
	// Headers are names.
	Headers   []string  `json:"headers,omitempty"`
	BodyBytes int       `json:"bodyBytes"`
	Bytes     int       `json:"bytes"`
	Attempts  int       `json:"attempts"`
	CreatedAt time.Time `json:"createdAt"`
	// LatestStatus is the target's latest answer, or 0.
	LatestStatus int `json:"latestStatus,omitempty"`
	// Due is false while no call may be made; DueAt is when that ends, nil where nothing was set.
	Due         bool       `json:"due"`
	DueAt       *time.Time `json:"dueAt,omitempty"`
	Deadline    time.Time  `json:"deadline"`
	Policy      string     `json:"policy,omitempty"`
	MaxAttempts int        `json:"maxAttempts,omitempty"`
	Limited     string     `json:"limited,omitempty"`
	// IfExpired is what happens at the deadline.
	IfExpired decision.Action `json:"ifExpired"`
	// MovedBack is set for a dead letter: it starts again.
	MovedBack *DeadLetter `json:"movedBack,omitempty"`
}

// DeadLetter is why an envelope was given up before.
type DeadLetter struct {
	Reason   string `json:"reason"`
	Detail   string `json:"detail,omitempty"`
	Attempts int    `json:"attempts"`
}

func describe(rules decision.Rules, in decision.Intake, q Question) *Envelope {
	e := in.Envelope
	deadline := e.GiveUpAt(rules.Expiration)
	about := &Envelope{
		Format: e.Format(), RequestID: e.RequestID, OriginalRequestID: Printable(e.OriginalRequestID),
		Organization: Printable(e.Tenant.Organization), Environment: Printable(e.Tenant.Environment),
		CorrelationID: e.CorrelationID(), LatestStatus: e.LatestStatus(), Method: e.Call.Method, Target: Target(e.Call.URL),
		Headers: slices.Sorted(maps.Keys(e.Call.Header)), BodyBytes: len(e.Call.Body), Bytes: len(q.Content),
		Attempts: e.Attempts, CreatedAt: e.CreatedAt, Deadline: deadline,
		Policy: in.Policy.Name, MaxAttempts: in.Policy.MaxAttempts, Limited: in.Policy.Limited,
		IfExpired: rules.BeforeCall(decision.Intake{Envelope: e}, deadline).Action,
		Refused:   q.Targets.Judge(e.Call.Target.Hostname(), netip.Addr{}).Detail,
	}
	if e.Call.Host != "" {
		about.Headers = append([]string{"Host"}, about.Headers...)
	}
	if e.Callback != nil {
		about.Callback = Target(e.Callback.URL)
	}
	if letter := in.Received.DeadLetter; letter != nil {
		about.MovedBack = &DeadLetter{Reason: Printable(letter.Reason), Detail: Printable(letter.Detail), Attempts: letter.Attempts}
	}
	due := e.DueAt()
	if about.Due = !due.After(q.Now); !due.IsZero() {
		about.DueAt = &due
	}
	return about
}

// Target is what may be shown of a URL: host and path.
func Target(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return Printable(u.Host + u.EscapedPath())
}

// Printable takes out of a text what could do more to a terminal than be shown.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
