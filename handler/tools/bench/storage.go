package main

import (
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const accountName = "bench"

// storage speaks just enough of Azure Queue Storage for the handler to settle, and forgets what it is told.
// It answers at once, so that only the handler's own cost shows.
type storage struct {
	server *httptest.Server
	// transactions is how many requests came, received how many bytes their bodies had.
	transactions, received atomic.Int64
	// strange counts requests that it does not know: the run measures something else then.
	strange     atomic.Int64
	connections connections
	// keep is set when the next Put Message is to be looked at; kept has it then.
	keep atomic.Bool
	kept chan put
}

// put is a Put Message.
type put struct {
	// bytes is the size of the request's body.
	bytes int
	// text is the message, still encoded.
	text string
	// delay is how long it stays invisible.
	delay time.Duration
}

func newStorage() *storage {
	s := &storage{kept: make(chan put, 1)}
	s.server = httptest.NewUnstartedServer(s)
	s.server.Config.ConnState = s.connections.watch
	s.server.Start()
	return s
}

// connectionString leads to the account, with a key that opens nothing.
func (s *storage) connectionString() string {
	key := base64.StdEncoding.EncodeToString([]byte("the stub does not look at it"))
	return fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;QueueEndpoint=%s/%s;", accountName, key, s.server.URL, accountName)
}

// messages is the URL that takes a Put Message for the queue.
func (s *storage) messages(queue string) string {
	return s.server.URL + "/" + accountName + "/" + queue + "/messages"
}

func (s *storage) close() { s.server.Close() }

// ServeHTTP knows Create Queue, Put Message and Get Queue Metadata.
func (s *storage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.transactions.Add(1)
	if err := s.read(r); err != nil {
		return // the caller has gone
	}
	queue, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"+accountName+"/"), "/")
	switch {
	case queue != "" && r.Method == http.MethodPost && rest == "messages":
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, enqueued(time.Now()))
	case queue != "" && r.Method == http.MethodPut && rest == "":
		w.WriteHeader(http.StatusCreated)
	case queue != "" && r.Method == http.MethodGet && rest == "":
		w.Header().Set("x-ms-approximate-messages-count", "0")
		w.WriteHeader(http.StatusOK)
	default:
		s.strange.Add(1)
		w.WriteHeader(http.StatusNotImplemented)
	}
}

// read reads a request's body. It keeps none but what [storage.next] asked for, which costs time.
func (s *storage) read(r *http.Request) error {
	if r.Method != http.MethodPost || !s.keep.CompareAndSwap(true, false) {
		n, err := io.Copy(io.Discard, r.Body)
		s.received.Add(n)
		return err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	s.received.Add(int64(len(body)))
	s.kept <- readPut(body, r.URL.Query().Get("visibilitytimeout"))
	return nil
}

// next has the next Put Message that comes. Take it before asking for another.
func (s *storage) next() <-chan put {
	s.keep.Store(true)
	return s.kept
}

// readPut reads a Put Message. What is not one has no text.
func readPut(body []byte, visibilityTimeout string) put {
	var message struct{ MessageText string }
	_ = xml.Unmarshal(body, &message)
	seconds, _ := strconv.Atoi(visibilityTimeout)
	return put{bytes: len(body), text: message.MessageText, delay: time.Duration(seconds) * time.Second}
}

// enqueued is the answer to Put Message.
func enqueued(now time.Time) string {
	at := now.UTC().Format(http.TimeFormat)
	return `<?xml version="1.0" encoding="utf-8"?><QueueMessagesList><QueueMessage>` +
		`<MessageId>5974b586-0df3-4e2d-ad0c-18e3892bfca2</MessageId><InsertionTime>` + at + `</InsertionTime>` +
		`<ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime><PopReceipt>AgAAAAMAAAAAAAAAAgtnj8x+1QE=</PopReceipt>` +
		`<TimeNextVisible>` + at + `</TimeNextVisible></QueueMessage></QueueMessagesList>`
}
