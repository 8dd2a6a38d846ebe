package message

// MaxRequestIDs is how many request ids [RequestIDs] remembers, which takes about 20 MiB.
const MaxRequestIDs = 50_000

// RequestIDs finds messages that share a request id. The zero value knows none.
type RequestIDs struct {
	// Shared counts the messages with the request id of an earlier one.
	Shared int
	// Full says that there was no room for a further request id.
	Full bool

	// first has the id of the first message with each request id.
	first map[RequestKey]string
}

// Earlier adds a message and returns the id of the first message with its request id. It is empty if that is the
// message itself, or if the message has no request id.
func (r *RequestIDs) Earlier(m Message) string {
	key, ok := KeyOf(m)
	if !ok {
		return ""
	}
	if id, known := r.first[key]; known {
		r.Shared++
		return id
	}
	if len(r.first) == MaxRequestIDs {
		r.Full = true
		return ""
	}
	if r.first == nil {
		r.first = map[RequestKey]string{}
	}
	r.first[key] = m.ID
	return ""
}
