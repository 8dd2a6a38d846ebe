// Package ingress is the handler's side of the Functions host's HTTP: it takes invocations, hands each
// message to its delivery, runs the task of each timer, and answers as the host needs it answered.
package ingress

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/go-chi/chi/v5"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/delivery"
	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/logs"
	"asynccaller/handler/internal/strictjson"
)

// maxInvocationBytes is more than the host ever sends for one message: 64 KiB of text, each byte up to
// seven on the wire and once more in Metadata.
const maxInvocationBytes = 2 << 20

// invocationHeader is X-Azure-Functions-InvocationId in the letter case that net/http knows headers by.
const invocationHeader = "X-Azure-Functions-Invocationid"

// messageKept is what follows when an invocation for a message fails.
const messageKept = "the host keeps the message and delivers it again"

// Handler answers the host: GET / at once, and POST /<function> for each function and for each task,
// which are named as their functions and in exactly that case. Tasks may be nil; no task may have the name
// of a function. Whatever else happens, a 2xx answer is a JSON object that is not empty, because the host
// waits for ever on an empty one.
func Handler(functions []functionapp.Function, tasks map[string]Task, deliverer *delivery.Deliverer, log zerolog.Logger) http.Handler {
	router := chi.NewRouter()
	router.Get("/", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "ready"})
	})
	messages := make(map[string]http.HandlerFunc, len(functions))
	for _, f := range functions {
		path := "/" + f.Name
		messages[path] = invocationHandler(f, deliverer, log)
		router.Post(path, messages[path])
	}
	for name, task := range tasks {
		router.Post("/"+name, taskHandler(name, task, log))
	}
	router.NotFound(func(w http.ResponseWriter, r *http.Request) {
		log.Warn().Str("path", r.URL.Path).Msg("no such function: is there a function.json for it in the app folder?")
		answer(w, http.StatusNotFound, map[string]string{"error": "no such function"})
	})
	router.MethodNotAllowed(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusMethodNotAllowed, map[string]string{"error": "method not allowed"})
	})
	return &messagesFirst{messages, router}
}

// messagesFirst finds what takes messages without the router, which makes a copy of every request that it
// routes. The router knows their paths too, to refuse other methods.
type messagesFirst struct {
	messages map[string]http.HandlerFunc // by path
	router   http.Handler
}

func (h *messagesFirst) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if handle := h.messages[r.URL.Path]; handle != nil && r.Method == http.MethodPost {
		handle(w, r)
		return
	}
	h.router.ServeHTTP(w, r)
}

func invocationHandler(f functionapp.Function, deliverer *delivery.Deliverer, log zerolog.Logger) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		m := delivery.Message{Function: f.Name, Queue: f.Queue, InvocationID: header(r, invocationHeader)}
		defer func() {
			if cause := recover(); cause != nil {
				panicked(w, log.Error().EmbedObject(&m), cause, messageKept)
			}
		}()
		if err := checkDoor(r); err != nil {
			refuse(w, log.Error().EmbedObject(&m), http.StatusForbidden, err, messageKept)
			return
		}
		in, err := readInvocation(w, r, f.Binding, deliverer.Settler.NeedsLease())
		if err != nil {
			refuse(w, log.Error().EmbedObject(&m), bodyStatus(err), err, messageKept)
			return
		}
		m.ID, m.DequeueCount = callID(in.MessageID, m.InvocationID), in.DequeueCount
		m.Content, m.Lease = in.Content, in.Lease
		result := deliverer.Deliver(r.Context(), m)
		answerLogs(w, status(&result), result.Summary())
	}
}

// status tells the host whether it may delete the message: only when all that must exist does.
func status(r *delivery.Result) int {
	if r.Err != nil || r.Action == decision.Fault {
		return http.StatusInternalServerError
	}
	return http.StatusOK
}

func bodyStatus(err error) int {
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusBadRequest
}

// refuse leaves it to the host what follows: what came was not what the host sends. The event says what it is
// about.
func refuse(w http.ResponseWriter, event *zerolog.Event, status int, err error, follows string) {
	event.Err(err).Int(logs.Status, status).Msg("invocation refused: " + follows)
	answer(w, status, map[string]string{"error": err.Error()})
}

// panicked makes a panic fail one invocation, not the handler. A message that panics every time is moved to
// the poison queue by the host.
func panicked(w http.ResponseWriter, event *zerolog.Event, cause any, follows string) {
	event.Str("panic", fmt.Sprint(cause)).Str(logs.Stack, string(debug.Stack())).Msg("panic: " + follows)
	answer(w, http.StatusInternalServerError, map[string]string{"error": "panic, see the handler's log"})
}

func answer(w http.ResponseWriter, status int, body map[string]string) {
	text, _ := json.Marshal(body) // text always can be
	write(w, status, text)
}

// answerLogs answers with a line that the host prints among the app's own.
func answerLogs(w http.ResponseWriter, status int, line string) {
	const before, after = `{"Logs":[`, `]}`
	text := make([]byte, 0, len(before)+len(line)+len(`""`)+len(after))
	text = append(text, before...)
	text = strictjson.AppendString(text, line)
	write(w, status, append(text, after...))
}

// contentType is that of every answer; nobody changes it.
var contentType = []string{"application/json"}

func write(w http.ResponseWriter, status int, body []byte) {
	w.Header()["Content-Type"] = contentType
	w.WriteHeader(status)
	_, _ = w.Write(body) // a host that hung up has nobody to tell
}
