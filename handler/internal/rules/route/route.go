// Package route reads routes.json, which gives a queue a fixed call. A message on such a queue is the body of the call,
// byte for byte: its sender chooses the content, and nothing else. The package makes the envelope of that call. Once
// the envelope is on a queue, it is like any other, and knows no route. It is pure.
package route

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"asynccaller/handler/internal/plain/bom"
	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/envelope"
)

// Routes are the routes of an app, by queue.
type Routes map[string]Route

// Queues returns the queues that functions read, in alphabetical order.
func (r Routes) Queues() []string { return r.names(func(r Route) bool { return !r.HTTPOnly }) }

// Posts returns the queues of the routes to which senders may post, in alphabetical order.
func (r Routes) Posts() []string { return r.names(func(r Route) bool { return r.HTTP }) }

func (r Routes) names(has func(Route) bool) (names []string) {
	for name, route := range r {
		if has(route) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Route is the call of a queue. The zero value is none: [Parse] returns routes.
type Route struct {
	// Queue is the queue with the contents, Successors the queue that the envelopes go to if the first call fails.
	Queue, Successors string
	// URL and Method are those of the call; ContentType is empty if it depends on the content.
	URL, Method, ContentType string
	// Deadline is how long after a message was written its call is tried; zero for the setting.
	Deadline time.Duration
	// CloudEvents says that an event in structured mode gives its id to the call.
	CloudEvents bool
	// HTTP says that senders may post contents to the function app, and HTTPOnly that nothing reads the queue.
	HTTP, HTTPOnly bool
	// Kept are the canonical names of the headers of a post that its call has as well.
	Kept []string

	priority        int
	headers         []strictjson.Member
	retry, callback json.RawMessage
}

// Arrival is a message that has arrived on the queue of a route.
type Arrival struct {
	Content []byte
	// MessageID is the queue's id of the message.
	MessageID string
	// InsertedAt is when the message was written, or when it arrived if that is not known.
	InsertedAt time.Time
	// Attempts is the number of calls that were made. It is 0 for a message whose envelope goes to another queue.
	Attempts int

	// The rest is of a post only: the id that its sender gives to the call, its content type, both empty if there is
	// none, the headers that its call has as well, and its trace.
	requestID, contentType  string
	headers                 []strictjson.Member
	traceparent, tracestate string
}

// The content types of a call whose route states none.
const (
	typeEvent  = "application/cloudevents+json"
	typeJSON   = "application/json"
	typeText   = "text/plain; charset=utf-8"
	typeBinary = "application/octet-stream"
)

// Envelope returns the native envelope of the call. It can be larger than a message.
func (r Route) Envelope(a Arrival) []byte {
	id, contentType := a.MessageID, cmp.Or(a.contentType, r.ContentType)
	if contentType == "" {
		contentType = typeOf(a.Content)
	}
	if eventID := r.eventID(a.Content); eventID != "" {
		id, contentType = eventID, typeEvent
	}
	headers := slices.Concat(r.headers, a.headers, []strictjson.Member{text("Content-Type", contentType)})
	call := []strictjson.Member{
		text("url", r.URL), text("method", r.Method),
		{Name: "headers", Value: strictjson.Pack('{', headers)},
		body(a.Content),
	}
	e := []strictjson.Member{
		{Name: "asyncCaller", Value: json.RawMessage("1")},
		text("requestId", cmp.Or(a.requestID, id)),
		{Name: "call", Value: strictjson.Pack('{', call)},
		{Name: "callback", Value: r.callback},
		{Name: "retry", Value: r.retry},
		moment("createdAt", a.InsertedAt),
	}
	if r.priority > 0 {
		e = append(e, number("priority", r.priority))
	}
	if a.Attempts > 0 {
		e = append(e, number("attempts", a.Attempts))
	}
	if r.Deadline > 0 {
		e = append(e, moment("deadline", a.InsertedAt.Add(r.Deadline)))
	}
	if a.traceparent != "" {
		trace := []strictjson.Member{text("traceparent", a.traceparent), text("tracestate", a.tracestate)}
		e = append(e, strictjson.Member{Name: "trace", Value: strictjson.Pack('{', trace)})
	}
	return strictjson.Pack('{', e)
}

// typeOf returns the content type of a content of which nothing is known.
func typeOf(content []byte) string {
	unmarked, _ := bom.Text(content) // UTF-16 is binary
	switch {
	case !utf8.Valid(content):
		return typeBinary
	case json.Valid(unmarked):
		return typeJSON
	}
	return typeText
}

// body returns the member of a call that holds a content in the fewest bytes.
func body(content []byte) strictjson.Member {
	encoded := base64.StdEncoding.EncodedLen(len(content))
	if utf8.Valid(content) {
		asText := text("body", string(content))
		if len(asText.Value) <= encoded+len(`""`)+len("Base64") {
			return asText
		}
	}
	return text("bodyBase64", base64.StdEncoding.EncodeToString(content))
}

// eventID returns the request id of the event that a content is, or "": the id of the event or, if that is no request
// id, its hash. Members beside those that an event must have do not matter
// (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md#required-attributes).
func (r Route) eventID(content []byte) string {
	if !r.CloudEvents {
		return ""
	}
	members, err := strictjson.Object(content)
	if err != nil {
		return ""
	}
	required := map[string]string{"specversion": "", "id": "", "source": "", "type": ""}
	for _, m := range members {
		if _, isRequired := required[m.Name]; isRequired {
			required[m.Name], _ = strictjson.String(m.Value)
		}
	}
	for _, value := range required {
		if value == "" {
			return ""
		}
	}
	id := required["id"]
	if !envelope.ValidRequestID(id) {
		sum := sha256.Sum256([]byte(id))
		return hex.EncodeToString(sum[:])
	}
	return id
}

func text(name, value string) strictjson.Member {
	return strictjson.Member{Name: name, Value: strictjson.AppendString(nil, value)}
}

func number(name string, n int) strictjson.Member {
	return strictjson.Member{Name: name, Value: strconv.AppendInt(nil, int64(n), 10)}
}

func moment(name string, t time.Time) strictjson.Member {
	return text(name, t.UTC().Format(time.RFC3339Nano))
}
