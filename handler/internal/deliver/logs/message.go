package logs

import (
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
)

// Message has the fields that say which message a line is about.
type Message struct {
	decision.Message
	// Identity is that of the envelope; nil if there is none. Tenant is the sender, and RequestID the id that it gave,
	// as far as they are known.
	Identity  *decision.Identity
	Tenant    envelope.Tenant
	RequestID string
}

// maxSenderText limits the texts that the sender can choose freely.
const maxSenderText = 128

// MarshalZerologObject adds the fields.
func (m *Message) MarshalZerologObject(event *zerolog.Event) {
	event.Str(Function, m.Function).Str(Queue, m.Queue)
	Text(event, InvocationID, m.InvocationID) // a worker has none
	if m.ID != "" {
		event.Str(MessageID, m.ID).Int64(DequeueCount, m.DequeueCount)
	}
	if e := m.Identity; e != nil {
		event.Str(RequestID, e.RequestID).Str(TargetHost, e.TargetHost).
			Str(TraceID, e.Trace.ID).Str(SpanID, e.Trace.SpanID)
		Text(event, MovedTo, e.MovedTo)
		Text(event, OriginalID, text.Clip(e.OriginalRequestID, maxSenderText))
		Text(event, CorrelationID, text.Clip(e.CorrelationID, maxSenderText))
	} else {
		Text(event, RequestID, m.RequestID)
	}
	Text(event, Organization, text.Clip(m.Tenant.Organization, maxSenderText))
	Text(event, Environment, text.Clip(m.Tenant.Environment, maxSenderText))
}

// Text adds a field, unless it is empty.
func Text(event *zerolog.Event, name, value string) {
	if value != "" {
		event.Str(name, value)
	}
}
