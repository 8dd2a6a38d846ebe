// Package storageserver provides a Queue Storage account in this process, for tests with many messages. It checks no
// signature. Azurite scans all messages of a queue: with 10,000, a receive takes it more than 60 ms of processor time.
// The service answers in the same time however long the queue is.
package storageserver

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"net/http"
	"strconv"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/target"
)

// Server is a running account, with the name and the key of Azurite's.
type Server struct {
	*target.Server
	// ConnectionString reaches the account.
	ConnectionString string
	// Latency is how long each request takes at least. Set it before the first one.
	Latency time.Duration
	// Endpoint is the URL of the account's queue service, without a slash at the end.
	Endpoint string

	store *memory.Queues
}

// Start starts an account. The caller closes it.
func Start(ctx context.Context) (s *Server, err error) {
	s = &Server{store: memory.New()}
	const account = "/" + azurite.AccountName
	const messages = account + "/{queue}/messages"
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+account, s.serve(s.names))
	mux.HandleFunc("PUT "+account+"/{queue}", s.serve(s.create))
	mux.HandleFunc("GET "+account+"/{queue}", s.serve(s.count))
	mux.HandleFunc("POST "+messages, s.serve(s.put))
	mux.HandleFunc("GET "+messages, s.serve(s.receive))
	mux.HandleFunc("PUT "+messages+"/{id}", s.serve(s.update))
	mux.HandleFunc("DELETE "+messages+"/{id}", s.serve(s.remove))
	s.Server, err = target.Serve(ctx, mux)
	if err != nil {
		return nil, err
	}
	s.Endpoint = "http://" + s.Addr + account
	s.ConnectionString = "DefaultEndpointsProtocol=http;AccountName=" + azurite.AccountName + ";AccountKey=" +
		azurite.AccountKey +
		";QueueEndpoint=" + s.Endpoint + ";"
	return s, nil
}

// messageList is the body of answers with messages, queueList that of names, and messageBody that of requests.
type (
	messageList struct {
		XMLName  xml.Name      `xml:"QueueMessagesList"`
		Messages []messageItem `xml:"QueueMessage"`
	}
	messageItem struct {
		MessageID       string `xml:"MessageId"`
		PopReceipt      string `xml:",omitempty"`
		InsertionTime   string
		ExpirationTime  string
		TimeNextVisible string `xml:",omitempty"`
		DequeueCount    int64
		MessageText     string
	}
	queueList struct {
		XMLName xml.Name    `xml:"EnumerationResults"`
		Queues  []queueItem `xml:"Queues>Queue"`
	}
	queueItem   struct{ Name string }
	messageBody struct{ MessageText string }
)

// serve answers with what an operation returns. Status and body are those of the service.
func (s *Server) serve(operation func(http.Header, *http.Request) (status int, body any, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Ms-Request-Id", "1")
		w.Header().Set("X-Ms-Version", r.Header.Get("X-Ms-Version"))
		storage.Sleep(r.Context(), s.Latency)
		status, body, err := operation(w.Header(), r)
		switch {
		case errors.Is(err, storage.ErrNoQueue):
			w.Header().Set("X-Ms-Error-Code", "QueueNotFound")
			status = http.StatusNotFound
		case errors.Is(err, storage.ErrStale):
			w.Header().Set("X-Ms-Error-Code", "MessageNotFound")
			status = http.StatusNotFound
		case err != nil:
			w.Header().Set("X-Ms-Error-Code", "InvalidInput")
			status = http.StatusBadRequest
		}
		w.WriteHeader(status)
		if body != nil && err == nil {
			_ = xml.NewEncoder(w).Encode(body) // the client may have left
		}
	}
}

func (s *Server) names(_ http.Header, r *http.Request) (int, any, error) {
	names, err := s.store.Names(r.Context(), r.FormValue("prefix"))
	var l queueList
	for _, name := range names {
		l.Queues = append(l.Queues, queueItem{name})
	}
	return http.StatusOK, l, err
}

func (s *Server) create(_ http.Header, r *http.Request) (int, any, error) {
	return http.StatusCreated, nil, s.store.Create(r.Context(), r.PathValue("queue"))
}

func (s *Server) count(h http.Header, r *http.Request) (int, any, error) {
	n, err := s.store.Count(r.Context(), r.PathValue("queue"))
	h.Set("X-Ms-Approximate-Messages-Count", strconv.Itoa(n))
	return http.StatusOK, nil, err
}

func (s *Server) put(_ http.Header, r *http.Request) (int, any, error) {
	var body messageBody
	if err := xml.NewDecoder(r.Body).Decode(&body); err != nil {
		return 0, nil, err
	}
	ttl := seconds(r, "messagettl")
	if ttl == 0 {
		return 0, nil, storage.ErrRefused
	}
	// -1 means never, which is 0 to the store.
	item := storage.Item{Text: body.MessageText, Delay: seconds(r, "visibilitytimeout"), TTL: max(ttl, 0)}
	m, err := s.store.Put(r.Context(), r.PathValue("queue"), item)
	return http.StatusCreated, list(m), err
}

func (s *Server) receive(_ http.Header, r *http.Request) (int, any, error) {
	read := func(ctx context.Context, name string, limit int) ([]storage.Message, error) {
		return s.store.Receive(ctx, name, limit, seconds(r, "visibilitytimeout"))
	}
	if r.FormValue("peekonly") != "" {
		read = s.store.Peek
	}
	limit, _ := strconv.Atoi(cmp.Or(r.FormValue("numofmessages"), "1")) // the store refuses 0
	messages, err := read(r.Context(), r.PathValue("queue"), limit)
	return http.StatusOK, list(messages...), err
}

func (s *Server) update(h http.Header, r *http.Request) (int, any, error) {
	var body messageBody
	if err := xml.NewDecoder(r.Body).Decode(&body); err != nil {
		return 0, nil, err
	}
	receipt, err := s.store.Update(r.Context(), r.PathValue("queue"), r.PathValue("id"), r.FormValue("popreceipt"),
		body.MessageText, seconds(r, "visibilitytimeout"))
	h.Set("X-Ms-Popreceipt", receipt)
	return http.StatusNoContent, nil, err
}

func (s *Server) remove(_ http.Header, r *http.Request) (int, any, error) {
	return http.StatusNoContent, nil, s.store.Delete(r.Context(), r.PathValue("queue"), r.PathValue("id"),
		r.FormValue("popreceipt"))
}

// seconds returns a parameter of the request; without it, 0.
func seconds(r *http.Request, parameter string) time.Duration {
	n, _ := strconv.Atoi(r.FormValue(parameter))
	return time.Duration(n) * time.Second
}

func list(messages ...storage.Message) (l messageList) {
	for _, m := range messages {
		item := messageItem{
			MessageID: m.ID, PopReceipt: m.PopReceipt, InsertionTime: m.InsertedAt.Format(http.TimeFormat),
			ExpirationTime: m.ExpiresAt.Format(http.TimeFormat), DequeueCount: m.DequeueCount, MessageText: m.Text,
		}
		if !m.NextVisibleAt.IsZero() {
			item.TimeNextVisible = m.NextVisibleAt.Format(http.TimeFormat)
		}
		l.Messages = append(l.Messages, item)
	}
	return l
}
