package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"
)

const accountName = "bench"

// storage speaks just enough of Azure Queue Storage for the handler to settle, and forgets what it is told.
// It answers at once, so that only the handler's own cost shows.
type storage struct {
	server       *httptest.Server
	transactions atomic.Int64
	// strange counts requests that it does not know: the run measures something else then.
	strange     atomic.Int64
	connections connections
}

func newStorage() *storage {
	s := &storage{}
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

func (s *storage) close() { s.server.Close() }

// ServeHTTP knows Create Queue, Put Message and Get Queue Metadata.
func (s *storage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.transactions.Add(1)
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
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

// enqueued is the answer to Put Message.
func enqueued(now time.Time) string {
	at := now.UTC().Format(http.TimeFormat)
	return `<?xml version="1.0" encoding="utf-8"?><QueueMessagesList><QueueMessage>` +
		`<MessageId>5974b586-0df3-4e2d-ad0c-18e3892bfca2</MessageId><InsertionTime>` + at + `</InsertionTime>` +
		`<ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime><PopReceipt>AgAAAAMAAAAAAAAAAgtnj8x+1QE=</PopReceipt>` +
		`<TimeNextVisible>` + at + `</TimeNextVisible></QueueMessage></QueueMessagesList>`
}
