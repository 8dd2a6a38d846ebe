package emulator

import (
	"context"
	"encoding/xml"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// queues is the queue service.
type queues struct{ store *memory.Queues }

func newQueues() *queues { return &queues{memory.New()} }

// messageList is the body of answers with messages, queueList that of names, and messageBody that of requests.
type (
	messageList struct {
		XMLName  xml.Name      `xml:"QueueMessagesList"`
		Messages []messageItem `xml:"QueueMessage"`
	}
	messageItem struct {
		MessageID       string `xml:"MessageId"`
		InsertionTime   string
		ExpirationTime  string
		PopReceipt      string `xml:",omitempty"`
		TimeNextVisible string `xml:",omitempty"`
		DequeueCount    int64
		MessageText     rawXML
	}
	rawXML struct {
		Text string `xml:",innerxml"`
	}
	queueList struct {
		XMLName    xml.Name    `xml:"EnumerationResults"`
		Queues     []queueItem `xml:"Queues>Queue"`
		NextMarker string
	}
	queueItem   struct{ Name string }
	messageBody struct{ MessageText string }
	errorBody   struct {
		XMLName       xml.Name `xml:"Error"`
		Code, Message string
	}
)

// escape escapes a text as the service does: the client for Node.js reads no other characters by their numbers.
var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\r", "&#xD;")

const xmlType = "application/xml"

// describe implements [api].
func (*queues) describe(f *failure) ([]byte, string) {
	return encodeXML(errorBody{Code: f.code, Message: f.message}), xmlType
}

func encodeXML(document any) []byte {
	encoded, _ := xml.Marshal(document) // all of them can be encoded
	return append([]byte(xml.Header), encoded...)
}

// do implements [api].
func (q *queues) do(r *request) (reply, error) {
	operation, n, ok := operationOf(r)
	if !ok {
		return reply{}, errUnsupported
	}
	if err := r.grant.check(n); err != nil {
		return reply{}, err
	}
	status, document, err := operation.do(q, r, n.resource)
	switch {
	case errors.Is(err, storage.ErrNoQueue):
		return reply{}, &failure{http.StatusNotFound, "QueueNotFound", "The specified queue does not exist."}
	case errors.Is(err, storage.ErrStale):
		return reply{}, &failure{http.StatusNotFound, "MessageNotFound", "The specified message does not exist."}
	case errors.Is(err, storage.ErrRefused):
		return reply{}, invalid(err.Error())
	case err != nil:
		return reply{}, err
	case document == nil:
		return reply{status: status}, nil
	}
	return reply{status, xmlType, encodeXML(document)}, nil
}

// operation is an operation on a queue, and the permissions of which a SAS needs one.
type operation struct {
	do    func(q *queues, r *request, queue string) (status int, document any, err error)
	oneOf string
}

var operations = map[string]operation{
	"GET list":               {(*queues).names, "l"},
	"PUT queue":              {(*queues).create, "cw"},
	"GET queue metadata":     {(*queues).count, "r"},
	"HEAD queue metadata":    {(*queues).count, "r"},
	"POST message":           {(*queues).put, "a"},
	"GET message":            {(*queues).receive, "p"},
	"GET message peek":       {(*queues).peek, "r"},
	"PUT message message":    {(*queues).update, "u"},
	"DELETE message message": {(*queues).remove, "dp"},
}

// operationOf returns the operation of a request, and what it needs. It reports false if there is none.
func operationOf(r *request) (o operation, n need, ok bool) {
	segments := strings.Split(r.path, "/")
	n = need{service: queueService, resourceType: "o", resource: segments[0]}
	what := r.Method
	switch {
	case r.path == "":
		n.resourceType = "s"
	case len(segments) == 1:
		what, n.resourceType = what+" queue", "c"
	case len(segments) <= 3 && segments[1] == "messages":
		what += strings.Repeat(" message", len(segments)-1)
	default:
		return o, n, false
	}
	if comp := r.query.Get("comp"); comp != "" {
		what += " " + comp
	}
	if r.query.Get("peekonly") == "true" {
		what += " peek"
	}
	o, ok = operations[what]
	n.oneOf = o.oneOf
	return o, n, ok
}

// maxNames is the length of a page of names.
const maxNames = 5000

func (q *queues) names(r *request, _ string) (int, any, error) {
	names, err := q.store.Names(r.Context(), r.query.Get("prefix"))
	limit, limitErr := number(r, "maxresults", maxNames)
	if limitErr != nil || limit < 1 {
		return 0, nil, invalid("maxresults is not a number from 1 on.")
	}
	first, _ := slices.BinarySearch(names, r.query.Get("marker"))
	l := queueList{}
	for i, name := range names[first:] {
		if i == min(limit, maxNames) {
			l.NextMarker = name
			break
		}
		l.Queues = append(l.Queues, queueItem{name})
	}
	return http.StatusOK, l, err
}

func (q *queues) create(r *request, queue string) (int, any, error) {
	return http.StatusCreated, nil, q.store.Create(r.Context(), queue)
}

func (q *queues) count(r *request, queue string) (int, any, error) {
	n, err := q.store.Count(r.Context(), queue)
	r.header.Set("X-Ms-Approximate-Messages-Count", strconv.Itoa(n))
	return http.StatusOK, nil, err
}

// The service's values for parameters that are missing.
const (
	defaultTTL   = 7 * 24 * time.Hour
	defaultLease = 30 * time.Second
)

func (q *queues) put(r *request, queue string) (int, any, error) {
	text, _, err := messageText(r)
	ttl, ttlErr := seconds(r, "messagettl", defaultTTL)
	delay, delayErr := seconds(r, "visibilitytimeout", 0)
	if err := errors.Join(err, ttlErr, delayErr); err != nil {
		return 0, nil, err
	}
	if ttl == 0 || delay < 0 {
		return 0, nil, storage.ErrRefused
	}
	// A negative time-to-live means never, which is 0 to the store.
	item := storage.Item{Text: text, Delay: delay, TTL: max(ttl, 0)}
	m, err := q.store.Put(r.Context(), queue, item)
	return http.StatusCreated, list(m), err
}

func (q *queues) receive(r *request, queue string) (int, any, error) {
	lease, err := seconds(r, "visibilitytimeout", defaultLease)
	if err != nil {
		return 0, nil, err
	}
	return q.read(r, queue, func(ctx context.Context, name string, limit int) ([]storage.Message, error) {
		return q.store.Receive(ctx, name, limit, lease)
	})
}

func (q *queues) peek(r *request, queue string) (int, any, error) {
	return q.read(r, queue, q.store.Peek)
}

func (*queues) read(
	r *request, queue string, read func(context.Context, string, int) ([]storage.Message, error),
) (int, any, error) {
	limit, err := number(r, "numofmessages", 1)
	if err != nil {
		return 0, nil, err
	}
	messages, err := read(r.Context(), queue, limit)
	return http.StatusOK, list(messages...), err
}

// update changes the visibility, and the text if the request has one.
func (q *queues) update(r *request, queue string) (int, any, error) {
	id := r.path[strings.LastIndexByte(r.path, '/')+1:]
	text, isChanged, err := messageText(r)
	delay, delayErr := seconds(r, "visibilitytimeout", -1)
	if err := errors.Join(err, delayErr); err != nil {
		return 0, nil, err
	}
	if delay < 0 {
		return 0, nil, invalid("visibilitytimeout is missing.")
	}
	if !isChanged {
		for _, m := range q.store.All(queue) {
			if m.ID == id {
				text = m.Text
			}
		}
	}
	receipt, err := q.store.Update(r.Context(), queue, id, r.query.Get("popreceipt"), text, delay)
	r.header.Set("X-Ms-Popreceipt", receipt)
	r.header.Set("X-Ms-Time-Next-Visible", time.Now().Add(delay).UTC().Format(http.TimeFormat))
	return http.StatusNoContent, nil, err
}

func (q *queues) remove(r *request, queue string) (int, any, error) {
	id := r.path[strings.LastIndexByte(r.path, '/')+1:]
	return http.StatusNoContent, nil, q.store.Delete(r.Context(), queue, id, r.query.Get("popreceipt"))
}

// messageText returns the text of a request's body, and whether it has one.
func messageText(r *request) (text string, ok bool, err error) {
	if len(r.content) == 0 {
		return "", false, nil
	}
	var message messageBody
	if xml.Unmarshal(r.content, &message) != nil {
		return "", false, &failure{http.StatusBadRequest, "InvalidXmlDocument", "The body is not XML."}
	}
	return message.MessageText, true, nil
}

// number returns a parameter of the request.
func number(r *request, parameter string, missing int) (int, error) {
	if !r.query.Has(parameter) {
		return missing, nil
	}
	n, err := strconv.ParseInt(r.query.Get(parameter), 10, 32)
	if err != nil {
		return 0, &failure{http.StatusBadRequest, "InvalidQueryParameterValue", parameter + " is not a number."}
	}
	return int(n), nil
}

// seconds returns a parameter of the request that counts seconds.
func seconds(r *request, parameter string, missing time.Duration) (time.Duration, error) {
	n, err := number(r, parameter, math.MinInt)
	if n == math.MinInt {
		return missing, err
	}
	return time.Duration(n) * time.Second, err
}

func list(messages ...storage.Message) (l messageList) {
	for _, m := range messages {
		item := messageItem{
			MessageID: m.ID, PopReceipt: m.PopReceipt, InsertionTime: m.InsertedAt.Format(http.TimeFormat),
			ExpirationTime: m.ExpiresAt.Format(http.TimeFormat), DequeueCount: m.DequeueCount,
			MessageText: rawXML{escape.Replace(m.Text)},
		}
		if !m.NextVisibleAt.IsZero() {
			item.TimeNextVisible = m.NextVisibleAt.Format(http.TimeFormat)
		}
		l.Messages = append(l.Messages, item)
	}
	return l
}
