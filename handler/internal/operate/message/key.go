package message

// RequestKey identifies a call by what its sender says. Senders of different tenants may use the same request id.
type RequestKey struct{ Organization, Environment, RequestID string }

// KeyOf returns the key of a message. It reports false if the message is no envelope, or states no request id.
func KeyOf(m Message) (RequestKey, bool) {
	return RequestKey{m.Organization, m.Environment, m.RequestID}, m.Format != "" && m.RequestID != ""
}
