package call

import (
	"fmt"
	"time"

	"asynccaller/handler/internal/app/functionapp"
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

// addTime adds a line with a time and how far it is away, or nothing if it is not known.
func (l *lines) addTime(label string, at, now time.Time) {
	if !at.IsZero() {
		l.add(label, "%s, %s", format.Moment(at), format.FromNow(at, now))
	}
}

// Sections returns the page in the order in which it is shown: the summary, the timeline, and the others. The commands
// belong below the last one.
func (p Page) Sections(now time.Time) []Section {
	sections := []Section{{Lines: p.summaryLines(now)}, {"timeline", p.timelineLines(now)}}
	sections = append(sections, p.contentSections()...)
	switch {
	case p.Retry != nil:
		sections = append(sections, Section{"if it is retried now", p.Retry.lines()})
	case p.isDueLater():
		sections = append(sections, Section{"at its next attempt", deliveryLines(*p.Next)})
	case p.Next != nil:
		sections = append(sections, Section{"when the host delivers it", deliveryLines(*p.Next)})
	}
	return sections
}

// isDueLater reports whether the page is that of a scheduled message, and says what the next attempt does.
func (p Page) isDueLater() bool {
	return p.call.row != nil && p.Next != nil
}

// Commands returns the commands for the message of the call, without the name of the program, which a person may copy
// to a shell. There are none for an id or a queue that storage cannot have given, because somebody has forged the row,
// or the account: then the warning says so.
func (p Page) Commands() (commands []string, warning string) {
	target := commandTarget(p.ID, p.Queue)
	switch {
	case p.Retry != nil:
		commands = nextForPoison(p.ID, p.Queue, *p.Retry)
	case p.isDueLater():
		commands = []string{"calls retry " + target, "calls delete " + target}
	default:
		return nil, ""
	}
	if !storage.ValidID(p.ID) || !storage.ValidName(p.Queue) {
		return nil, "no commands are shown: storage gives no such id, or has no such queue"
	}
	return commands, ""
}

// stateText says where the message is, or when the call has ended.
func (p Page) stateText(now time.Time) string {
	return map[string]string{
		StateScheduled: "scheduled",
		StateDue:       "due: the host receives it after the messages before it",
		StateUnseen:    "unseen: " + notSeen,
		StateStale:     "stale: the message is gone, and only its record is left",
		StateQueued:    "waits on its queue, unless the app has received it meanwhile",
		StateEnded:     "ended " + format.AgeAt(p.Since, now) + " ago",
	}[p.State]
}

// summaryLines returns the first section of a page.
func (p Page) summaryLines(now time.Time) []Line {
	var l lines
	l.add("message", "%s on %s", p.ID, p.Queue)
	for _, warning := range p.Warnings {
		l.add("warning", "%s", warning)
	}
	label := "request id"
	if p.call.isCallback() {
		label = "callback"
	}
	l.addField(label, p.RequestID)
	if p.call.end != nil {
		l.addField("reports on", p.call.end.OriginalRequestID)
	}
	l.addField("tenant", TenantText(p.Organization, p.Environment))
	l.addField("state", p.stateText(now))
	switch {
	case p.call.end != nil:
		l.add("result", "%s", ResultText(*p.call.end))
	case p.Reason != message.Waiting:
		l.add("reason", "%s", p.reasonText())
	}
	l.addField("cause", p.Cause)
	l.addField("answer", p.Summary.Answer)
	l.addField("target", p.Host+p.PathPattern)
	l.addField("moved to", p.MovedTo)
	for _, t := range p.Target {
		l.add("target fails", "%s", FailureText(t, now))
	}
	l.add("attempts", "%s", p.attemptsText())
	l.addTime("next attempt", p.NextAttemptAt, now)
	if p.Repeated {
		l.add("written", "repeatedly, because storage did not answer: there may be a second message of the call")
	}
	l.addTime("deadline", p.Deadline, now)
	if p.call.queued != nil {
		p.addQueued(&l, now)
	}
	if p.call.end != nil {
		l.addField("trace id", p.TraceID)
	}
	return l
}

// attemptsText describes the attempts. The content or the history may lack some.
func (p Page) attemptsText() string {
	attempts := AttemptsText(p.Attempts, p.Status)
	if p.Error != "" {
		attempts += ", latest error " + p.Error
	}
	if n := len(p.call.trail); n != p.Attempts {
		attempts += fmt.Sprintf("; %d in the timeline", n)
	}
	return attempts
}

// addQueued adds what only a message on a queue has.
func (p Page) addQueued(l *lines, now time.Time) {
	l.addTime("since", p.Since, now)
	expires := "never"
	if !p.ExpiresAt.IsZero() {
		expires = format.Moment(p.ExpiresAt) + ", in " + format.Age(p.ExpiresAt.Sub(now)) + ": storage then deletes it"
		if p.State == StatePoison {
			expires += ", unless timer " + functionapp.KeeperTimer + " keeps it"
		}
	}
	l.add("expires", "%s", expires)
	if p.Main != p.Queue {
		l.add("main queue", "%s", p.Main)
	}
	kind := "no"
	if p.Format != "" {
		kind = "yes, " + string(p.Format)
	}
	l.add("envelope", "%s, %d bytes", kind, p.Bytes)
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
		l.addField("paused", e.Paused)
		for _, set := range e.Set {
			l.add("set", "%s", set)
		}
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
