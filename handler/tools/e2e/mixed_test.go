package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
)

// plan is the answers of a message's target, and the end that they must lead to.
type plan struct {
	count int
	// answers are the target's, one for each expected call.
	answers []int
	// callback: the message has one. late: the deadline has passed. malformed: it is not an envelope.
	callback, late, malformed bool
	// want is the end, as [mixedRun.seen] describes it; %s is the message's queue.
	want string
}

// plans are those of the messages, of which a third fail once.
var plans = []plan{
	{count: 70, answers: []int{200}, want: "call 1 200"},
	{count: 20, answers: []int{503, 200}, want: "call 1 503, call 2 200"},
	{count: 20, answers: []int{429, 200}, want: "call 1 429, call 2 200"},
	{count: 20, answers: []int{404, 200}, want: "call 1 404, call 2 200"},
	{count: 20, answers: []int{reset, 200}, want: "call 1 reset, call 2 200"},
	{count: 30, answers: []int{200}, callback: true, want: "call 1 200, callback 200 with its answer"},
	{count: 22, answers: []int{400}, callback: true, want: "call 1 400, callback 400 with its answer"},
	{count: 12, late: true, callback: true, want: "callback 504"},
	{count: 16, answers: []int{400}, want: "call 1 400, rejected after 1 on %s-poison"},
	{count: 12, late: true, want: "expired after 0 on %s-poison"},
	{count: 8, malformed: true, want: "untouched on %s-poison"},
}

// mixedMessage is one of the messages.
type mixedMessage struct {
	plan
	id, queue, format string
	content           []byte
	// kept is the part of the content that the dead letter must have byte for byte.
	kept []byte
}

func (m mixedMessage) path() string         { return "/call/" + m.id }
func (m mixedMessage) callbackPath() string { return "/callback/" + m.id }
func (m mixedMessage) body() string         { return "order å " + m.id }

// planMixed returns the messages, always the same, evenly over queues and formats.
func planMixed(queues []string, host string) (messages []mixedMessage) {
	for _, planned := range plans {
		for range planned.count {
			messages = append(messages, mixedMessage{plan: planned})
		}
	}
	random := rand.New(rand.NewPCG(2026, 11))
	random.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	for i := range messages {
		m := &messages[i]
		m.id = fmt.Sprintf("m%04d", i)
		m.queue = queues[i%len(queues)]
		switch i / len(queues) % 2 {
		case 0:
			m.format = "native"
			m.makeNative(host)
		case 1:
			m.format = "nexus"
			m.makeNexus(host, i%len(queues))
		}
	}
	return messages
}

func (m *mixedMessage) makeNative(host string) {
	version, members := "1", ""
	if m.malformed {
		version = "2"
	}
	if m.callback {
		members += fmt.Sprintf(`,"callback":{"url":"http://%s%s"},"context":{"n":%q}`, host, m.callbackPath(), m.id)
	}
	if m.late {
		members += fmt.Sprintf(`,"deadline":%q`, time.Now().Add(-time.Second).UTC().Format(time.RFC3339Nano))
	}
	m.kept = fmt.Appendf(nil, `"call":{"url":"http://%s%s", "method":"POST","body":%q}`, host, m.path(), m.body())
	m.content = fmt.Appendf(nil, `{"asyncCaller":%s,"requestId":%q,%s%s}`, version, m.id, m.kept, members)
}

func (m *mixedMessage) makeNexus(host string, priority int) {
	n := nexusMessage{
		id: m.id, priority: priority, context: fmt.Sprintf(`{"n":%q}`, m.id),
		callOut: nexusCallOut(m.path(), host, m.body()),
	}
	if m.malformed {
		n.callOut = "POST / HTTP/1.1\r\nX-Id: " + m.id + "\r\n\r\n" // it has no Host
	}
	if m.callback {
		n.callBack = nexusCallBack(m.callbackPath(), host)
	}
	if m.late {
		n.deadline = time.Now().Add(-time.Second)
	}
	m.content, m.kept = n.content(), append([]byte(`"RawRequest":`), n.rawRequest()...)
}

func (m mixedMessage) wanted() string {
	if strings.Contains(m.want, "%s") {
		return fmt.Sprintf(m.want, m.queue)
	}
	return m.want
}

// TestMixedRun checks that each of many messages in both formats on all queues ends as planned, once.
func TestMixedRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	queues := f.stageAll()
	p := newPartner(t)
	messages := planMixed(queues, p.Listener.Addr().String())
	for _, m := range messages {
		var answers []answer
		for _, status := range m.answers {
			answers = append(answers,
				answer{status: status, mediaType: "text/plain", body: fmt.Sprintf("%s answered %d", m.id, status)})
		}
		p.script(m.path(), answers...)
		p.script(m.callbackPath(), answer{status: 204})
	}
	f.start(inAFewSeconds)
	for _, m := range messages {
		_, err := f.store.Put(t.Context(), m.queue, storage.Item{Text: storage.Base64.Encode(m.content)})
		f.must(err)
	}
	f.awaitAllEmpty(queues)
	f.mustDeliverOnce()

	r := mixedRun{partner: p, letters: f.mixedLetters(queues, messages)}
	for _, m := range messages {
		if got := r.seen(m); got != m.wanted() {
			t.Errorf("%s, %s on %s: %s; want %s", m.id, m.format, m.queue, got, m.wanted())
		}
	}
	if n := p.unexpectedCalls(); n > 0 || len(r.letters[""]) > 0 {
		t.Errorf("%d unexpected calls, unknown dead letters: %q", n, r.letters[""])
	}
	for _, name := range queues {
		if n := f.count(name); n != 0 {
			t.Errorf("%d messages on %s", n, name)
		}
	}
}

// mixedRun is the state at the end.
type mixedRun struct {
	partner *partner
	// letters describes the dead letters by message id; unknown ones have the id "".
	letters map[string][]string
}

// seen describes how a message ended: the calls with their attempts and answers, the callback, and the dead letter. It
// includes everything unexpected.
func (r mixedRun) seen(m mixedMessage) string {
	var events []string
	for _, call := range r.partner.received(m.path()) {
		event := fmt.Sprintf("call %d %d", call.attempt, call.status)
		if call.status == reset {
			event = fmt.Sprintf("call %d reset", call.attempt)
		}
		if call.method != http.MethodPost || call.body != m.body() || call.header.Get("Idempotency-Key") != m.id {
			event += fmt.Sprintf(" (%s, body %q, key %q)", call.method, call.body, call.header.Get("Idempotency-Key"))
		}
		events = append(events, event)
	}
	for _, callback := range r.partner.received(m.callbackPath()) {
		events = append(events, describeCallback(m, callback))
	}
	return strings.Join(append(events, r.letters[m.id]...), ", ")
}

// describeCallback describes a callback.
func describeCallback(m mixedMessage, callback received) string {
	var body struct {
		ID, Payload, PayloadMediaType string
		Context                       struct{ N string }
		StatusCode                    int
	}
	if err := json.Unmarshal([]byte(callback.body), &body); err != nil {
		return "callback " + err.Error()
	}
	event := fmt.Sprintf("callback %d", body.StatusCode)
	switch {
	case body.ID != m.id || body.Context.N != m.id || callback.attempt != 1 || callback.method != http.MethodPost:
		return event + fmt.Sprintf(" (%s, attempt %d, %s)", callback.method, callback.attempt, callback.body)
	case body.Payload == fmt.Sprintf("%s answered %d", m.id, body.StatusCode) && body.PayloadMediaType == "text/plain":
		return event + " with its answer"
	case body.Payload == "" && body.PayloadMediaType == "application/json":
		return event
	}
	return event + fmt.Sprintf(" (%s)", callback.body)
}

// mixedLetters receives all dead letters and describes them by message id.
func (f *fixture) mixedLetters(queues []string, messages []mixedMessage) map[string][]string {
	f.t.Helper()
	byID, malformed := map[string]mixedMessage{}, map[string]string{}
	for _, m := range messages {
		byID[m.id] = m
		if m.malformed {
			malformed[string(m.content)] = m.id
		}
	}
	letters := map[string][]string{}
	for _, name := range queues {
		for _, content := range f.drain(name + "-poison") {
			if id, ok := malformed[string(content)]; ok {
				letters[id] = append(letters[id], "untouched on "+name+"-poison")
				continue
			}
			id, event := describeLetter(content, byID)
			letters[id] = append(letters[id], event+" on "+name+"-poison")
		}
	}
	return letters
}

// describeLetter returns the message id of a dead letter and a description.
func describeLetter(content []byte, byID map[string]mixedMessage) (id, event string) {
	var letter struct {
		RequestID  string
		RawRequest struct{ ID string }
		DeadLetter struct {
			Reason, Queue string
			Attempts      int
		}
	}
	if err := json.Unmarshal(content, &letter); err != nil {
		return "", string(content)
	}
	id, format := letter.RequestID, "native"
	if id == "" {
		id, format = letter.RawRequest.ID, "nexus"
	}
	m, ok := byID[id]
	if !ok {
		return "", string(content)
	}
	event = fmt.Sprintf("%s after %d", letter.DeadLetter.Reason, letter.DeadLetter.Attempts)
	if format != m.format || letter.DeadLetter.Queue != m.queue || !bytes.Contains(content, m.kept) {
		event += fmt.Sprintf(" (%s)", content)
	}
	return id, event
}

// partner is an HTTP server that acts as the targets and the senders. Each path has its own answers, and all calls are
// recorded.
type partner struct {
	*httptest.Server

	mu      sync.Mutex
	scripts map[string][]answer
	calls   map[string][]received
}

// answer is the answer of a path to one attempt.
type answer struct {
	status          int // or reset
	mediaType, body string
}

// reset closes the connection without an answer.
const reset = 0

// received is a call and the status that it was answered with.
type received struct {
	method, target, body string
	header               http.Header
	attempt, status      int
}

func newPartner(t *testing.T) *partner {
	t.Helper()
	p := &partner{scripts: map[string][]answer{}, calls: map[string][]received{}}
	p.Server = httptest.NewServer(http.HandlerFunc(p.answer))
	t.Cleanup(p.Close)
	return p
}

// script sets the answers of a path to the first attempt, the second and so on; the last one repeats.
func (p *partner) script(path string, answers ...answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.scripts[path] = answers
}

// received returns the calls of a path, in order.
func (p *partner) received(path string) []received {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls[path])
}

// unexpectedCalls returns the number of calls without a script.
func (p *partner) unexpectedCalls() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for path, calls := range p.calls {
		if len(p.scripts[path]) == 0 {
			n += len(calls)
		}
	}
	return n
}

func (p *partner) answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	a := p.record(r, string(body))
	if a.status == reset {
		panic(http.ErrAbortHandler) // net/http closes the connection
	}
	if a.mediaType != "" {
		w.Header().Set("Content-Type", a.mediaType)
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

func (p *partner) record(r *http.Request, body string) answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	attempt, _ := strconv.Atoi(r.Header.Get("X-Async-Caller-Attempt"))
	a := answer{status: http.StatusGone}
	if script := p.scripts[r.URL.Path]; len(script) > 0 {
		a = script[min(max(attempt, 1), len(script))-1]
	}
	p.calls[r.URL.Path] = append(p.calls[r.URL.Path], received{
		method: r.Method, target: r.RequestURI, body: body, header: r.Header.Clone(), attempt: attempt,
		status: a.status,
	})
	return a
}

// inAFewSeconds makes the policy of the app's retry.json the default. A Nexus message cannot choose a policy.
var inAFewSeconds = []string{"ASYNC_CALLER_RETRY=fast"}

var queueNamePattern = regexp.MustCompile(`"queueName": "([^"]+)"`)

// stageAll adds the project's other functions and a fast retry policy to the app folder, and creates the queues. It
// returns their names: the standard one first, then by priority.
func (f *fixture) stageAll() (queues []string) {
	f.t.Helper()
	const functions = "../../../functions"
	f.must(os.WriteFile(filepath.Join(f.app, "retry.json"), []byte(`{"fast":{"schedule":["1s"]}}`), 0o600))
	entries, err := os.ReadDir(functions)
	f.must(err)
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(functions, entry.Name(), "function.json"))
		f.must(err)
		name := queueNamePattern.FindSubmatch(content)
		if name == nil { // the poison keeper has a timer
			continue
		}
		f.must(os.MkdirAll(filepath.Join(f.app, entry.Name()), 0o700))
		f.must(os.WriteFile(filepath.Join(f.app, entry.Name(), "function.json"), content, 0o600))
		f.must(f.store.Create(f.t.Context(), string(name[1])))
		queues = append(queues, string(name[1]))
	}
	slices.SortFunc(queues, func(x, y string) int { return len(x)*100 - len(y)*100 + strings.Compare(x, y) })
	if len(queues) != 11 {
		f.t.Fatalf("queues %v, want 11", queues)
	}
	return queues
}

// awaitAllEmpty waits until no queue has a message, visible or not. Successors and callbacks are written before the
// original is deleted, so then everything has ended.
func (f *fixture) awaitAllEmpty(queues []string) {
	f.t.Helper()
	f.await("all queues to be empty", func() bool {
		return !slices.ContainsFunc(queues, func(name string) bool { return f.count(name) != 0 })
	})
}
