// Package storageproxy provides a proxy between a client of Queue Storage and the service. It forwards every request
// unchanged, so that signatures hold, and calls a watcher twice for each: before storage receives the request, and
// after storage has answered but the client does not know yet. The watcher can interfere both times. An update is
// repeated if Azurite answers with the receipt that the message had before.
package storageproxy

import (
	"bytes"
	"context"
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/program/demo/target"
	"asynccaller/handler/internal/storage"
)

// Operation is the kind of a request to a queue.
type Operation int

// The operations on messages.
const (
	Other Operation = iota
	Put
	Get
	Update
	Delete
)

// Request is a client's request.
type Request struct {
	Operation Operation
	// Queue is the queue; empty for a request to the account.
	Queue string
	// Message is the id of the message to update or delete.
	Message string
	// Text is the text that a put or an update writes, or the body of a request of the kind Other. Delay is how long
	// the message is invisible from then on.
	Text  string
	Delay time.Duration
}

// Answer is storage's answer.
type Answer struct {
	// Status is 0 if storage gave no answer: then it is unknown what storage has done.
	Status int
	// Took is how long storage took.
	Took time.Duration
	// Messages are the messages that storage wrote or returned.
	Messages []Message
	// ClientLeft is true if the client has closed its connection and so never learns the answer.
	ClientLeft bool
}

// Done reports whether storage has carried out the request.
func (a Answer) Done() bool { return a.Status/100 == 2 }

// Message is a message in an answer.
type Message struct {
	ID           string `xml:"MessageId"`
	Text         string `xml:"MessageText"`
	PopReceipt   string
	DequeueCount int64
}

// Order says what to do with a request or an answer. The zero value forwards it.
type Order struct {
	// Hold delays the rest of the order. It ends when the client leaves.
	Hold time.Duration
	// Reset resets the connection.
	Reset bool
	// Status, unless 0, is answered instead of forwarding, with the service's code for an error unless that is empty.
	// An answer without a code is that of another server. Body is its body.
	Status int
	Code   string
	Body   string
}

// Watcher observes requests and interferes with them. Its methods are called by many goroutines at once.
type Watcher interface {
	// Before is called before storage receives the request.
	Before(r Request) Order
	// After is called when storage has answered and the client does not know yet.
	After(r Request, a Answer) Order
}

// Proxy is a running proxy.
type Proxy struct {
	*target.Server
	upstream  *url.URL
	watcher   Watcher
	transport *http.Transport
}

// idleTimeout is below Azurite's keep-alive of 5 s: a request fails if Azurite closes its connection at that moment.
const idleTimeout = 2 * time.Second

// maxBytes is far above the largest request and answer: 32 messages of 64 KiB.
const maxBytes = 8 << 20

// Open starts a proxy in front of a queue endpoint, for example http://127.0.0.1:10001/devstoreaccount1. In front of a
// table endpoint, all requests are of the kind Other.
func Open(ctx context.Context, endpoint string, watcher Watcher) (*Proxy, error) {
	upstream, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		upstream: upstream, watcher: watcher,
		transport: &http.Transport{IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: 64, DisableCompression: true},
	}
	p.Server, err = target.Serve(ctx, p)
	return p, err
}

// Through returns a connection string that leads through the proxy, made from one that leads to the service.
func (p *Proxy) Through(connectionString string) string {
	return strings.Replace(connectionString, p.upstream.String(), "http://"+p.Addr+p.upstream.Path, 1)
}

// Close stops the proxy and closes all its connections.
func (p *Proxy) Close() {
	p.Server.Close()
	p.transport.CloseIdleConnections()
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBytes))
	if err != nil {
		target.ResetConnection(w)
		return
	}
	request := p.classify(r, body)
	if interfere(w, r, p.watcher.Before(request)) {
		return
	}
	// Storage finishes what it has begun, even if the client leaves.
	began := time.Now()
	status, header, content := p.forward(context.WithoutCancel(r.Context()), r, body)
	for n := 0; n < maxSame && request.Operation == Update && header.Get("X-Ms-Popreceipt") == receipt(r); n++ {
		status, header, content = p.forward(context.WithoutCancel(r.Context()), r, body)
	}
	answer := Answer{
		Status: status, Took: time.Since(began), Messages: messages(request.Operation, content),
		ClientLeft: r.Context().Err() != nil,
	}
	order := p.watcher.After(request, answer)
	if interfere(w, r, order) {
		return
	}
	if status == 0 {
		target.ResetConnection(w)
		return
	}
	maps.Copy(w.Header(), header)
	w.WriteHeader(status)
	_, _ = w.Write(content) // the client may have left
}

// maxSame is how often an update is repeated because its receipt is the one before. Azurite makes a receipt of the
// second and 16 random bits, so that the old one stays valid now and then: the host's delete then removes a message
// that the handler has rescheduled.
const maxSame = 4

// receipt returns the receipt with which a request updates a message.
func receipt(r *http.Request) string { return r.URL.Query().Get("popreceipt") }

// interfere carries out an order and reports whether the request is finished.
func interfere(w http.ResponseWriter, r *http.Request, o Order) bool {
	storage.Sleep(r.Context(), o.Hold)
	if o.Reset {
		target.ResetConnection(w)
	} else if o.Status != 0 {
		if o.Code != "" {
			w.Header().Set("X-Ms-Error-Code", o.Code)
		}
		w.WriteHeader(o.Status)
		_, _ = io.WriteString(w, o.Body) // the client may have left
	}
	return o.Reset || o.Status != 0
}

// forwardLimit ends a request that storage does not answer because it was stopped meanwhile.
const forwardLimit = time.Minute

// forward forwards the request. The status is 0 if storage gave no answer.
func (p *Proxy) forward(
	ctx context.Context, r *http.Request, body []byte,
) (status int, header http.Header, content []byte) {
	ctx, cancel := context.WithTimeout(ctx, forwardLimit)
	defer cancel()
	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host, out.Host = p.upstream.Scheme, p.upstream.Host, p.upstream.Host
	out.RequestURI = ""
	out.Body, out.ContentLength = http.NoBody, int64(len(body))
	if len(body) > 0 {
		out.Body = io.NopCloser(bytes.NewReader(body))
	}
	response, err := p.transport.RoundTrip(out)
	if err != nil {
		return 0, nil, nil
	}
	defer response.Body.Close()
	content, err = io.ReadAll(io.LimitReader(response.Body, maxBytes))
	if err != nil {
		return 0, nil, nil
	}
	return response.StatusCode, response.Header, content
}

// classify reads a request of Queue Storage's REST interface: /account/queue/messages[/id].
func (p *Proxy) classify(r *http.Request, body []byte) Request {
	path := strings.Split(strings.TrimPrefix(r.URL.Path, p.upstream.Path+"/"), "/")
	request := Request{Queue: path[0]}
	if len(path) < 2 || path[1] != "messages" {
		request.Text = string(body)
		return request
	}
	if len(path) > 2 {
		request.Message = path[2]
	}
	switch {
	case r.Method == http.MethodPost:
		request.Operation = Put
	case r.Method == http.MethodPut:
		request.Operation = Update
	case r.Method == http.MethodDelete && request.Message != "":
		request.Operation = Delete
	case r.Method == http.MethodGet && r.URL.Query().Get("peekonly") == "":
		request.Operation = Get
	}
	var m Message
	_ = xml.Unmarshal(body, &m) // a body that is no message has no text
	request.Text = m.Text
	seconds, _ := strconv.Atoi(r.URL.Query().Get("visibilitytimeout")) // without it, a message is visible at once
	request.Delay = time.Duration(seconds) * time.Second
	return request
}

func messages(operation Operation, content []byte) []Message {
	if operation != Put && operation != Get {
		return nil
	}
	var list struct {
		Messages []Message `xml:"QueueMessage"`
	}
	_ = xml.Unmarshal(content, &list) // an error's answer lists none
	return list.Messages
}
