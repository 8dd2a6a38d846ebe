package message

import (
	"net/url"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
)

// Recorded is a call that waits, as its row describes it.
type Recorded struct {
	Message

	Row record.Row
	// Answered is the beginning of the target's latest answer, of a scheduled call.
	Answered string
	// Unseen says that the message of a dead letter is not visible, although all visible ones of its queue are known.
	Unseen bool
}

// FromRow describes the message of a row without its content: it has no Path. Since is when the call of a scheduled
// message was created, so that filters by time select by age. Anyone who can write to the table can have written the
// row.
func FromRow(r record.Row) Recorded {
	m := Recorded{Row: r, Message: Message{
		Queue: text.Line(r.Partition, maxHost), ID: text.Line(r.ID, maxReason), Main: text.Line(r.Partition, maxHost),
		Reason: text.Line(r.Reason, maxReason), Since: r.CreatedAt.UTC(), RequestID: text.Line(r.RequestID, maxTenant),
		Organization: text.Line(r.Organization, maxTenant), Environment: text.Line(r.Environment, maxTenant),
		Attempts: r.Attempts, Status: envelope.StatusCode(r.Status), Method: text.Line(r.Method, maxMethod),
		Host:        text.Line(targets.HostOf(r.TargetHost), maxHost),
		MovedTo:     text.Line(r.MovedTo, maxHost),
		PathPattern: text.Line(r.PathPattern, maxPath), Bytes: len(r.Content),
	}}
	if !r.IsDeadLetter() {
		m.Cause, m.Answered = text.Line(r.Cause, maxError), text.Line(r.Answer, record.MaxAnswer)
		return m
	}
	m.setReason(r.Reason, r.Cause)
	m.Since, m.InsertedAt, m.ExpiresAt = r.Since.UTC(), r.InsertedAt.UTC(), r.ExpiresAt.UTC()
	m.Main, m.Raw = text.Line(r.Main, maxHost), r.Reason == Raw
	m.Format = envelope.Format(text.Line(r.Format, maxReason))
	m.Error, m.Answer = text.Line(r.Error, maxError), text.Line(r.Answer, record.MaxAnswer)
	return m
}

// ToRow returns the row of a message on a poison queue. Its messages have neither the time of their creation nor their
// deadline, which do not matter any more.
func ToRow(m Message, content []byte) record.Row {
	return record.Row{
		Key: storage.Key{Partition: m.Queue, ID: m.ID}, RequestID: m.RequestID, Method: m.Method, TargetHost: m.Host,
		MovedTo:     m.MovedTo,
		PathPattern: m.PathPattern, Reason: m.Reason, Status: int(m.Status), Cause: m.Detail, Answer: m.Answer,
		Attempts: m.Attempts, Organization: m.Organization, Environment: m.Environment, Content: content,
		Since: m.Since, InsertedAt: m.InsertedAt, ExpiresAt: m.ExpiresAt, Main: m.Main, Format: string(m.Format),
		Error: m.Error,
	}
}

// Searched returns the message with the text that a search looks into beside the content.
func (s Recorded) Searched() Message {
	if !s.Row.IsDeadLetter() {
		s.Detail = s.Answered
	}
	return s.Message
}

// DescribeCall completes the description by the content of the row: the path, and the method, which rows of earlier
// versions lack.
func (s *Recorded) DescribeCall() {
	if e, err := envelope.Parse(s.Row.Content); err == nil {
		s.describePath(e)
	}
}

// CheckRow compares the host and the request id of a row, by which an operator chooses it, with its content, which the
// handler will process. It returns a warning for each that differs.
func CheckRow(r record.Row) (warnings []string) {
	e, err := envelope.Parse(r.Content)
	if err != nil {
		return []string{"the content of the row is not an envelope, so that the handler has not written it"}
	}
	host := targets.Host(e.Call.Target)
	if targets.Host(&url.URL{Scheme: e.Call.Target.Scheme, Host: r.TargetHost}) != host {
		warnings = append(warnings, "the message calls "+host+", which is not the target of its row")
	}
	switch {
	case e.RequestID == "":
		warnings = append(warnings, "the message has no request id, although its row has one")
	case e.RequestID != r.RequestID:
		warnings = append(warnings, "the request id of the message is "+e.RequestID+", which is not that of its row")
	}
	return warnings
}
