// Package ingress serves the HTTP requests of the Functions host: it reads invocations, passes each message to
// delivery, runs the task of each timer, and answers in the form that the host requires.
package ingress

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/decision"
)

const (
	// maxInvocationBytes is more than the host ever sends for one message: 64 KiB of text, at most seven bytes
	// for each in Data and once more in Metadata (docs/host.md, "Message content").
	maxInvocationBytes = 2 << 20
	// maxPathBytes limits what is logged of an unknown path; the name of a function has at most 128 characters.
	maxPathBytes = 200
	// messageKept says what happens after an invocation for a message fails.
	messageKept = "the host keeps the message and delivers it again"
)

// Deliverer delivers one message, from its arrival until the host may delete it.
type Deliverer interface {
	Deliver(ctx context.Context, m delivery.Message) *delivery.Result
}

// Handler returns the handler of the host's requests: GET / at once, and POST /<name> for each function, each task and
// each function for posts, whose names are those of their functions in exactly that case. Tasks may be nil; no two may
// have the same name. The body of every answer is a JSON object, because the host waits until functionTimeout after a
// 2xx answer without one (docs/host.md, "Answers"). It never has the member Logs: the host would log the outcome a
// second time, without the log's fields.
func Handler(
	functions []functionapp.Function, tasks map[string]Task, posts Posts, deliverer Deliverer, log zerolog.Logger,
) http.Handler {
	router := chi.NewRouter()
	router.Get("/", func(w http.ResponseWriter, _ *http.Request) {
		answer{code: http.StatusOK, Status: "ready"}.write(w)
	})
	for _, f := range functions {
		router.Post("/"+f.Name, messageHandler(f, deliverer, log))
	}
	for name, task := range tasks {
		router.Post("/"+name, taskHandler(name, task, log))
	}
	served := newPostServer(posts, log)
	for _, f := range posts.Functions {
		router.Post("/"+f.Name, served.handler(f))
	}
	router.NotFound(func(w http.ResponseWriter, r *http.Request) {
		log.Warn().Str("path", r.URL.Path[:min(len(r.URL.Path), maxPathBytes)]).
			Msg("no such function: add its function.json to the app folder")
		answer{code: http.StatusNotFound, Error: "no such function"}.write(w)
	})
	router.MethodNotAllowed(func(w http.ResponseWriter, _ *http.Request) {
		answer{code: http.StatusMethodNotAllowed, Error: "method not allowed"}.write(w)
	})
	return router
}

func messageHandler(f functionapp.Function, deliverer Deliverer, log zerolog.Logger) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		m := delivery.Message{
			Message:  decision.Message{Function: f.Name, Queue: f.Queue, InvocationID: invocationID(r)},
			IsRouted: f.IsRouted(),
		}
		subject := &logs.Message{Message: m.Message}
		deliver := func(ctx context.Context, body io.Reader) (answer, error) {
			if err := readMessage(&m, body, f.Binding); err != nil {
				return answer{}, err
			}
			subject.Message = m.Message
			delivered := m
			m.Content = nil // delivered has it: m lives longer, and must not keep it in memory
			result := deliverer.Deliver(ctx, delivered)
			if !result.MayDelete() {
				return answer{code: http.StatusInternalServerError}, nil
			}
			return answer{code: http.StatusOK}, nil
		}
		invocation{w, r, m.InvocationID, log, subject, messageKept}.serve(r.Context(), deliver)
	}
}

// invocation is one POST of the host.
type invocation struct {
	w http.ResponseWriter
	r *http.Request
	// id is its id, or empty if the host did not send it.
	id  string
	log zerolog.Logger
	// subject adds fields to log lines about a failure; nil adds none.
	subject zerolog.LogObjectMarshaler
	// onFailure says what the host does after a failure.
	onFailure string
}

// serve checks the invocation, and answers as work says. An error of work means that the host does not send a body
// like this. A panic makes one invocation fail, not the handler; the host moves a message that always panics to the
// poison queue.
func (i invocation) serve(ctx context.Context, work func(ctx context.Context, body io.Reader) (answer, error)) {
	defer func() {
		if cause := recover(); cause != nil {
			i.log.Error().EmbedObject(i.subject).EmbedObject(logs.Panic{Cause: cause}).Msg("panic: " + i.onFailure)
			answer{code: http.StatusInternalServerError, Error: "panic, see the handler's log"}.write(i.w)
		}
	}()
	if err := checkSender(i.r, i.id); err != nil {
		i.refuse(http.StatusForbidden, err)
		return
	}
	done, err := work(ctx, http.MaxBytesReader(i.w, i.r.Body, maxInvocationBytes))
	if err == nil {
		done.write(i.w)
		return
	}
	code := http.StatusBadRequest
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		code = http.StatusRequestEntityTooLarge
	}
	i.refuse(code, fmt.Errorf("read the invocation: %w", err))
}

// refuse answers a request that the host does not send. The host decides what happens next.
func (i invocation) refuse(code int, err error) {
	i.log.Error().EmbedObject(i.subject).Err(err).Int(logs.Status, code).Msg("invocation refused: " + i.onFailure)
	answer{code: code, Error: err.Error()}.write(i.w)
}

// answer is the answer to a request of the host.
type answer struct {
	code   int
	Status string `json:"status,omitempty"`
	Error  string `json:"error,omitempty"`
	// Outputs are the answers of an HTTP function to its client, by the names of their bindings.
	Outputs map[string]*output `json:",omitempty"`
}

func (a answer) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", jsonMediaType)
	w.WriteHeader(a.code)
	a.Error = text.Printable(a.Error) // the host may print it
	// The body must never be empty. The only error that remains is that the host has hung up.
	_ = json.NewEncoder(w).Encode(a)
}

// Task is the work of one timer function. Its context is that of the host's request: it ends when the host hangs
// up, but not when the handler stops. It carries the invocation's logger. The handler logs the error or, if there is
// none, the summary, so neither may hold a secret.
//
// A task must tolerate interruption: the host runs a failed task only at its next time. One task never runs twice
// at once in one process, but the hosts of two instances may each run it.
type Task func(ctx context.Context) (summary string, err error)

// runMissed says what happens after an invocation of a timer fails.
const runMissed = "it runs again at its next time"

// taskHandler runs the task for each invocation. It reads the timer's schedule in the body, so that the connection
// can be reused, and ignores it.
func taskHandler(name string, task Task, log zerolog.Logger) http.HandlerFunc {
	var running sync.Mutex
	return func(w http.ResponseWriter, r *http.Request) {
		id := invocationID(r)
		log := log.With().Str(logs.InvocationID, id).Str(logs.Function, name).Logger()
		run := func(ctx context.Context, body io.Reader) (answer, error) {
			if _, err := io.Copy(io.Discard, body); err != nil {
				return answer{}, err
			}
			if !running.TryLock() {
				// This is no failure: the work is in progress.
				log.Warn().Msg("task not started: a run is in progress")
				return answer{code: http.StatusOK}, nil
			}
			defer running.Unlock()
			err := RunTask(ctx, task, log)
			if err != nil {
				return answer{code: http.StatusInternalServerError, Error: err.Error()}, nil
			}
			return answer{code: http.StatusOK}, nil
		}
		invocation{w, r, id, log, nil, runMissed}.serve(r.Context(), run)
	}
}

// RunTask runs a task, and logs how it ended.
func RunTask(ctx context.Context, task Task, log zerolog.Logger) error {
	begin := time.Now()
	summary, err := task(log.WithContext(ctx))
	took := time.Since(begin)
	if err != nil {
		log.Error().Err(err).Int64(logs.Took, logs.Millis(took)).Msg("task failed: " + runMissed)
		return err
	}
	log.Info().Str(logs.Detail, cmp.Or(summary, "done")).Int64(logs.Took, logs.Millis(took)).Msg("task done")
	return nil
}

const (
	// invocationHeader is the header X-Azure-Functions-InvocationId as net/http stores it.
	invocationHeader = "X-Azure-Functions-Invocationid"
	// forwardedHeader and httpInvocationHeader, as net/http stores them, are headers of requests of HTTP functions that
	// the host proxies. A client cannot remove them.
	forwardedHeader      = "X-Forwarded-Host"
	httpInvocationHeader = "X-Ms-Invocation-Id"
	// jsonMediaType is the type of an invocation and of its answer.
	jsonMediaType = "application/json"
)

// invocationID returns the id of an invocation, or nothing if it is not a GUID: then it is not the host's.
func invocationID(r *http.Request) string {
	id := r.Header.Get(invocationHeader)
	if uuid.Validate(id) != nil {
		return ""
	}
	return id
}

// checkSender returns an error if a request differs from an invocation of the Functions host: a POST of JSON to
// 127.0.0.1 and the handler's port with the header X-Azure-Functions-InvocationId (docs/host.md, "Invocation request").
// It keeps out requests of HTTP functions that the host proxies, which have headers of their own. Those that the host
// forwards can look like an invocation, so an app in which it does is in hold mode. It also keeps out requests that
// reach the port by accident or through a web page: a browser sends an Origin and cannot set that header. It does not
// keep out another process on the same machine, which can send all of it: see SECURITY.md.
func checkSender(r *http.Request, id string) error {
	address, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr) // the server sets it
	mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	_, isProxied := r.Header[forwardedHeader]
	_, isHTTP := r.Header[httpInvocationHeader]
	switch {
	case isProxied || isHTTP:
		return errors.New("headers " + forwardedHeader + ", " + httpInvocationHeader + ": " +
			"the Functions host sends them for an HTTP function only")
	case address == nil || r.Host != address.String():
		return errors.New("header Host: not the handler's own address, " +
			"so the request is not an invocation of the Functions host")
	case r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "":
		return errors.New("header Origin: browsers send it, the Functions host does not")
	case id == "":
		return errors.New("header " + invocationHeader + ": missing or not a GUID, " +
			"so the request is not from the Functions host")
	case mediaType != jsonMediaType:
		return errors.New("header Content-Type: want " + jsonMediaType + ", as the Functions host sends")
	}
	return nil
}
