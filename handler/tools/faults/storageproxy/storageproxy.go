// Package storageproxy stands between a client of Queue Storage and the service. It hands every request
// on as it came, so that signatures hold, and lets somebody watch and interfere twice: before storage
// has it, and after storage has done it, when the client does not know yet.
package storageproxy

import (
	"bytes"
	"context"
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"asynccaller/handler/tools/faults/door"
)

// Operation is what a request asks of a queue.
type Operation int

// The operations that matter to a message's life.
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
	Queue     string
	// Message is the id of the message to update or delete.
	Message string
	// Text is what a put or an update writes.
	Text string
}

// Answer is what storage said.
type Answer struct {
	// Status is 0 when storage gave no answer: nobody knows what it has done.
	Status int
	// Messages are those that it put, or received.
	Messages []Message
	// ClientLeft says that the client has closed its connection meanwhile: it will never know.
	ClientLeft bool
}

// Done reports whether storage has done what was asked for.
func (a Answer) Done() bool { return a.Status/100 == 2 }

// Message is a message in an answer.
type Message struct {
	ID   string `xml:"MessageId"`
	Text string `xml:"MessageText"`
}

// Order says what to do with a request, or with its answer. The zero value passes it on.
type Order struct {
	// Hold delays everything else; it ends when the client leaves.
	Hold time.Duration
	// Cut resets the connection.
	Cut bool
	// Status is given as an answer instead of passing the request on, unless 0.
	Status int
}

// Watcher watches and interferes. Its methods are called by many goroutines at once.
type Watcher interface {
	// Before is called before storage has the request.
	Before(r Request) Order
	// After is called when storage has answered and the client does not know yet.
	After(r Request, a Answer) Order
}

// Proxy is a running proxy.
type Proxy struct {
	*door.Door
	upstream  *url.URL
	watcher   Watcher
	transport *http.Transport
}

// idle is below Azurite's keep-alive of 5 s: a request on a connection that it is just closing fails.
const idle = 2 * time.Second

// maxBytes is far above the largest request and answer: 32 messages of 64 KiB.
const maxBytes = 8 << 20

// Open starts a proxy in front of a queue endpoint such as http://127.0.0.1:10001/devstoreaccount1.
func Open(ctx context.Context, endpoint string, watcher Watcher) (*Proxy, error) {
	upstream, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		upstream: upstream, watcher: watcher,
		transport: &http.Transport{IdleConnTimeout: idle, MaxIdleConnsPerHost: 64, DisableCompression: true},
	}
	p.Door, err = door.Open(ctx, p)
	return p, err
}

// Endpoint is the queue endpoint that clients use instead of the one behind.
func (p *Proxy) Endpoint() string { return "http://" + p.Addr + p.upstream.Path }

// Through is a connection string to the service with the proxy's endpoint instead.
func (p *Proxy) Through(connectionString string) string {
	return strings.Replace(connectionString, p.upstream.String(), p.Endpoint(), 1)
}

// Close stops the proxy and closes all its connections.
func (p *Proxy) Close() error {
	err := p.Door.Close()
	p.transport.CloseIdleConnections()
	return err
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBytes))
	if err != nil {
		door.Cut(w)
		return
	}
	request := p.classify(r, body)
	if p.interfere(w, r, p.watcher.Before(request)) {
		return
	}
	// What storage has begun it finishes, whatever becomes of the client.
	status, header, content := p.forward(context.WithoutCancel(r.Context()), r, body)
	answer := Answer{Status: status, Messages: messages(request.Operation, content), ClientLeft: r.Context().Err() != nil}
	if p.interfere(w, r, p.watcher.After(request, answer)) {
		return
	}
	if status == 0 {
		door.Cut(w)
		return
	}
	maps.Copy(w.Header(), header)
	w.WriteHeader(status)
	_, _ = w.Write(content) // the client may have left
}

// interfere carries out an order and reports whether the request is finished with.
func (p *Proxy) interfere(w http.ResponseWriter, r *http.Request, o Order) bool {
	if o.Hold > 0 {
		timer := time.NewTimer(o.Hold)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
		}
	}
	switch {
	case o.Cut:
		door.Cut(w)
		return true
	case o.Status != 0:
		w.WriteHeader(o.Status)
		return true
	}
	return false
}

// forwardLimit ends a request that storage never answers, because it was stopped meanwhile.
const forwardLimit = time.Minute

// forward hands the request on. The status is 0 when storage gave no answer.
func (p *Proxy) forward(ctx context.Context, r *http.Request, body []byte) (status int, header http.Header, content []byte) {
	ctx, cancel := context.WithTimeout(ctx, forwardLimit)
	defer cancel()
	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host = p.upstream.Scheme, p.upstream.Host
	out.RequestURI = ""
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if len(body) == 0 {
		out.Body = http.NoBody
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

// classify reads a request as Queue Storage's REST interface has it:
// /account/queue/messages[/id].
func (p *Proxy) classify(r *http.Request, body []byte) Request {
	path := strings.Split(strings.TrimPrefix(r.URL.Path, p.upstream.Path+"/"), "/")
	if len(path) < 2 || path[1] != "messages" {
		return Request{Queue: path[0]}
	}
	request := Request{Queue: path[0]}
	if len(path) > 2 {
		request.Message = path[2]
	}
	switch {
	case r.Method == http.MethodPost:
		request.Operation, request.Text = Put, text(body)
	case r.Method == http.MethodPut:
		request.Operation, request.Text = Update, text(body)
	case r.Method == http.MethodDelete && request.Message != "":
		request.Operation = Delete
	case r.Method == http.MethodGet && r.URL.Query().Get("peekonly") == "":
		request.Operation = Get
	}
	return request
}

func text(body []byte) string {
	var m Message
	_ = xml.Unmarshal(body, &m) // what cannot be read is nobody's message
	return m.Text
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
