//go:build unix

package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"asynccaller/handler/internal/program/demo/target"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/tools/faults/judge"
	"asynccaller/handler/tools/faults/schedule"
)

// script is the plan for the messages of a system, and recognizes them.
type script struct {
	mu       sync.Mutex
	answers  map[string][]string // by id, that of a callback included
	contents map[string]string   // ids of malformed messages by their content
	messages map[string]string   // ids by queue message
	faults   map[place][]*schedule.Fault
}

// place is where a fault waits for its message.
type place struct {
	point schedule.Point
	id    string
}

// reset forgets all messages.
func (s *script) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers, s.contents, s.messages = map[string][]string{}, map[string]string{}, map[string]string{}
}

// add adds a message and its content.
func (s *script) add(m schedule.Message, content []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[m.ID], s.answers[m.ID+schedule.CallbackSuffix] = m.Answers, m.Callbacks
	if m.Outcome == schedule.Malformed {
		s.contents[string(content)] = m.ID
	}
}

// arm makes faults wait for their messages, instead of those that wait now.
func (s *script) arm(faults []schedule.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = map[place][]*schedule.Fault{}
	for _, f := range faults {
		p := place{f.Point, f.ID}
		s.faults[p] = append(s.faults[p], &f)
	}
}

// at returns the fault to inject now that a message has reached a point, or nil.
func (s *script) at(p schedule.Point, id string) *schedule.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := s.faults[place{p, id}]
	if len(waiting) == 0 {
		return nil
	}
	if waiting[0].Skip > 0 {
		waiting[0].Skip--
		return nil
	}
	s.faults[place{p, id}] = waiting[1:]
	return waiting[0]
}

// answer returns the answer to an attempt.
func (s *script) answer(id string, attempt int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	answers := s.answers[id]
	if len(answers) == 0 {
		return "410"
	}
	return answers[min(max(attempt, 1), len(answers))-1]
}

// idOf returns the id of the message with a text; empty if it is unknown.
func (s *script) idOf(text string) string {
	content, err := storage.Base64.Decode(text)
	if err != nil {
		return ""
	}
	s.mu.Lock()
	id, malformed := s.contents[string(content)]
	s.mu.Unlock()
	if malformed {
		return id
	}
	e, err := envelope.Parse(content)
	if err != nil {
		return ""
	}
	if _, id, ok := strings.Cut(e.Call.URL, "/callback/"); ok {
		return id + schedule.CallbackSuffix
	}
	_, id, _ = strings.Cut(e.Call.URL, "/call/")
	return id
}

// learn records the id of a queue message with a text, and returns it.
func (s *script) learn(message, text string) (id string) {
	id = s.idOf(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages[message] = id
	return id
}

// idOfMessage returns the id of a queue message.
func (s *script) idOfMessage(message string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.messages[message]
}

// url returns the URL of a message's call or callback.
func (s *system) url(kind, id string) string {
	return "http://" + s.target.Addr + "/" + kind + "/" + id
}

func (s *system) targetHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/{kind}/{id}", s.serveCall)
	return mux
}

// serveCall answers a call or callback as planned and injects its faults.
func (s *system) serveCall(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if r.PathValue("kind") == "callback" {
		id += schedule.CallbackSuffix
	}
	if s.killedAt(schedule.BeforeCall, id) {
		target.ResetConnection(w)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		target.ResetConnection(w)
		return
	}
	event := judge.Event{Kind: judge.Called, ID: id}
	event.Attempt, _ = strconv.Atoi(r.Header.Get("X-Async-Caller-Attempt")) // no attempt is 0
	if strings.HasSuffix(id, schedule.CallbackSuffix) {
		var callback struct{ StatusCode int }
		_ = json.Unmarshal(body, &callback) // no status is planned as 0
		event.Reported = callback.StatusCode
		event.Report = fmt.Sprintf("%x", sha256.Sum256(body))
	}
	if s.killedAt(schedule.DuringCall, id) {
		s.note(event)
		target.ResetConnection(w)
		return
	}
	event.Answer = s.script.answer(id, event.Attempt)
	s.note(event)
	answer, _ := target.Parse(event.Answer) // a test checks the names that are planned
	answer.Write(w, r)
	if answer.Then == target.Finish {
		_ = http.NewResponseController(w).Flush() // the fault comes after the answer has left
	}
	s.killedAt(schedule.AfterCall, id)
}

// killedAt injects the fault that waits for a call at a point, and reports whether it killed the handler.
func (s *system) killedAt(p schedule.Point, id string) bool {
	f := s.script.at(p, id)
	if f == nil {
		return false
	}
	s.inject(f)
	return f.Action == schedule.KillHandler || f.Action == schedule.KillBoth
}
