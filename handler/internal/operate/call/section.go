package call

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/rules/explain"
	"asynccaller/handler/internal/rules/mask"
	"asynccaller/handler/internal/storage"
)

// Section is a part of a page. The title of the first one is empty.
type Section struct {
	Title string
	Lines []Line
}

// Line is a text with a label. A line without a label continues the one before it. Block is a text of several lines,
// such as a body, which is shown below the line as it is; then label and text may be empty.
type Line struct {
	Label, Text string
	Block       string
}

// lines is a list of lines that grows.
type lines []Line

func (l *lines) add(label, layout string, args ...any) {
	*l = append(*l, Line{Label: label, Text: fmt.Sprintf(layout, args...)})
}

// addField adds a line, or nothing if the text is empty.
func (l *lines) addField(label, text string) {
	if text != "" {
		*l = append(*l, Line{Label: label, Text: text})
	}
}

// Sections returns the page in the order in which it is shown, without the timeline, which belongs below the first
// section, and the commands, which belong below the last one.
func (p Page) Sections(now time.Time) []Section {
	var first []Line
	m := p.call.message
	switch {
	case m == nil:
		first = p.endedLines(now)
	case m.scheduled != nil:
		first = p.scheduledLines(m.scheduled.line, now)
	default:
		first = messageLines(m.Message, m.state, now)
	}
	sections := append([]Section{{Lines: first}}, p.contentSections()...)
	switch {
	case p.Requeue != nil:
		sections = append(sections, Section{"if it is requeued now", p.Requeue.lines()})
	case p.isDueLater():
		sections = append(sections, Section{"at its next attempt", deliveryLines(*p.Next)})
	case p.Next != nil:
		sections = append(sections, Section{"when the host delivers it", deliveryLines(*p.Next)})
	}
	return sections
}

// isDueLater reports whether the page is that of a scheduled message, and says what the next attempt does.
func (p Page) isDueLater() bool {
	return p.call.message != nil && p.call.message.scheduled != nil && p.Next != nil
}

// Commands returns the commands for the message of the call, without the name of the program, which a person may copy
// to a shell. There are none for an id or a queue that storage cannot have given, because somebody has forged the row,
// or the account: then the warning says so.
func (p Page) Commands() (commands []string, warning string) {
	target := commandTarget(p.ID, p.Queue)
	switch {
	case p.Requeue != nil:
		commands = nextForPoison(p.ID, p.Queue, *p.Requeue)
	case p.isDueLater():
		commands = []string{"scheduled expedite " + target, "scheduled cancel " + target}
	default:
		return nil, ""
	}
	if !storage.ValidID(p.ID) || !storage.ValidName(p.Queue) {
		return nil, "no commands are shown: storage gives no such id, or has no such queue"
	}
	return commands, ""
}

// scheduledLines returns what the record says of a message.
func (p Page) scheduledLines(line ScheduledLine, now time.Time) []Line {
	var l lines
	l.add("message", "%s on %s", p.ID, p.Queue)
	for _, warning := range p.Warnings {
		l.add("warning", "%s", warning)
	}
	l.addField("request id", p.RequestID)
	l.addField("tenant", TenantText(p.Organization, p.Environment))
	l.add("state", "%s", map[string]string{
		StateScheduled: "scheduled",
		StateDue:       "due: the host receives it after the messages before it",
		StateUnseen:    "unseen: " + notSeen,
		StateStale:     "stale: the message is gone, and only its record is left",
	}[p.State])
	l.add("target", "%s%s", p.Host, p.PathPattern)
	l.add("reason", "%s", p.Reason)
	l.addField("cause", p.Cause)
	l.addField("answer", line.Answer)
	for _, t := range p.Target {
		l.add("target fails", "%s", FailureText(t, now))
	}
	l.add("attempts", "%s", AttemptsText(p.Attempts, line.Status))
	if !p.NextAttemptAt.IsZero() {
		l.add("next attempt", "%s, %s", format.Moment(p.NextAttemptAt), format.FromNow(p.NextAttemptAt, now))
	}
	if line.Repeated {
		l.add("written", "repeatedly, because storage did not answer: there may be a second message of the call")
	}
	if !p.Deadline.IsZero() {
		l.add("deadline", "%s, %s", format.Moment(p.Deadline), format.FromNow(p.Deadline, now))
	}
	return l
}

// messageLines returns what a message on a queue says.
func messageLines(m message.Message, state string, now time.Time) []Line {
	var l lines
	l.add("message", "%s on %s", m.ID, m.Queue)
	if state == StateQueued {
		l.add("state", "waits on its queue, unless the app has received it meanwhile")
	}
	if m.Reason != message.Waiting {
		l.add("reason", "%s", strings.TrimSuffix(m.Reason+": "+m.Detail, ": "))
	}
	l.add("since", "%s, %s ago", format.Moment(m.Since), format.Age(now.Sub(m.Since)))
	if !m.InsertedAt.Equal(m.Since) {
		l.add("enqueued", "%s", format.Moment(m.InsertedAt))
	}
	expires := "never"
	if !m.ExpiresAt.IsZero() {
		expires = format.Moment(m.ExpiresAt) + ", in " + format.Age(m.ExpiresAt.Sub(now)) +
			": storage then deletes it"
		if state == StatePoison {
			expires += "; `async-caller poison keep` prevents that"
		}
	}
	l.add("expires", "%s", expires)
	if m.Main != m.Queue {
		l.add("main queue", "%s", m.Main)
	}
	kind := "no"
	if m.Format != "" {
		kind = "yes, " + string(m.Format)
	}
	l.add("envelope", "%s, %d bytes", kind, m.Bytes)
	l.addField("request id", m.RequestID)
	l.addField("tenant", TenantText(m.Organization, m.Environment))
	attempts := AttemptsText(m.Attempts, m.Status)
	if m.Error != "" {
		attempts += ", latest error " + m.Error
	}
	l.add("attempts", "%s", attempts)
	return l
}

// endedLines returns what the history says of a call.
func (p Page) endedLines(now time.Time) []Line {
	var l lines
	e := shownEntry(p.call.last())
	label := "request id"
	if e.IsCallback() {
		label = "callback"
	}
	l.add(label, "%s", e.RequestID)
	l.addField("reports on", e.OriginalRequestID)
	l.addField("tenant", TenantText(e.Organization, e.Environment))
	l.add("state", "ended %s ago", format.AgeAt(e.EndedAt, now))
	l.add("result", "%s", ResultText(e))
	l.add("target", "%s%s", e.TargetHost, e.PathPattern)
	l.add("message", "%s on %s", e.MessageID, e.Queue)
	attempts := strconv.Itoa(e.Attempts)
	if n := len(e.Trail); n != e.Attempts {
		attempts += fmt.Sprintf(", of which %d are known", n)
	}
	l.add("attempts", "%s", attempts)
	l.addField("trace id", e.TraceID)
	return l
}

// contentSections returns what the page says about the content of the message.
func (p Page) contentSections() (sections []Section) {
	if p.Answer != nil {
		sections = append(sections, Section{"latest answer", answerLines(*p.Answer)})
	}
	if p.Call != nil {
		sections = append(sections, Section{"call", callLines(*p.Call)})
	}
	if p.Content != "" {
		sections = append(sections, Section{"content", []Line{{Block: p.Content}}})
	}
	return sections
}

func callLines(c mask.Call) []Line {
	var l lines
	l.add("request", "%s %s", c.Method, c.URL)
	label := "headers"
	for _, h := range c.Headers {
		l.add(label, "%s: %s", h.Name, h.Value)
		label = ""
	}
	body := bodyText(c.Body)
	if c.Truncated {
		body += ", truncated here"
	}
	l = append(l, Line{"body", body, c.Text})
	l.addField("callback", c.Callback)
	if c.Context != "" {
		l = append(l, Line{"context", "json", c.Context})
	}
	return l
}

func answerLines(a mask.Answer) []Line {
	var l lines
	l.add("status", "%d", a.Status)
	l.addField("media type", a.MediaType)
	body := bodyText(a.Body)
	switch {
	case a.Truncated && a.Bytes == 0:
		body = "not kept: it broke off, or its encoding is not supported"
	case a.Truncated:
		body += ", only the beginning"
	}
	return append(l, Line{"body", body, a.Text})
}

func (r Preview) lines() []Line {
	var l lines
	if r.Refused != "" {
		l.add("refused", "%s", r.Refused)
		return l
	}
	l.add("to", "%s", r.To)
	if r.Explanation != nil {
		l = append(l, deliveryLines(*r.Explanation)...)
	}
	return l
}

// deliveryLines says what the handler does on delivery, and until when it tries.
func deliveryLines(x explain.Explanation) []Line {
	l := lines(StepLines(x.Arrival))
	if e := x.Envelope; e != nil {
		l.add("deadline", "%s; then %s", format.Moment(e.Deadline), Consequence(e.IfExpired))
		l.addField("policy", e.Policy)
	}
	return l
}

// StepLines says what the handler does in a step of an explanation.
func StepLines(s explain.Step) []Line {
	var l lines
	action := fmt.Sprintf("%s (%s)", s.Action, s.Reason)
	if s.Detail != "" {
		action += ": " + s.Detail
	}
	l.add("action", "%s", action)
	if s.GivenUp {
		l.add("given up", "yes: %s", Consequence(s.Action))
	}
	if s.Next != nil {
		l.addNext(s.Next, s.At)
	}
	for _, ignored := range s.Ignored {
		l.add("ignored", "%s", ignored)
	}
	l.addField("writes", s.Writes)
	return l
}

func (l *lines) addNext(n *explain.Next, at time.Time) {
	if n.Earliest.Equal(n.Latest) {
		l.add("next attempt", "%s, in %s", format.Moment(n.Earliest), format.Duration(n.Earliest.Sub(at)))
	} else {
		l.add("next attempt", "%s at the earliest, in %s",
			format.Moment(n.Earliest), format.Duration(n.Earliest.Sub(at)))
		l.add("", "%s at the latest, in %s", format.Moment(n.Latest), format.Duration(n.Latest.Sub(at)))
	}
	if n.Latest.Sub(at) > time.Duration(n.Longest) {
		l.add("", "the message is rescheduled several times, by at most %s", format.Duration(n.Longest))
	}
}
