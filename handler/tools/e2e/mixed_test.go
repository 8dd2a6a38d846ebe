package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
)

// plan is what becomes of a message. Each is made in both formats on each queue.
type plan struct {
	// script has the target's answers, one for each expected call.
	script string
	// callback: the message has one. late: the deadline has passed. malformed: it is not an envelope.
	callback, late, malformed bool
	// want is the end, as seen describes it.
	want string
}

var plans = map[string]plan{
	"delivered":     {script: "200", want: "call 1 200"},
	"retried_503":   {script: "503,200", want: "call 1 503, call 2 200"},
	"retried_429":   {script: "429,200", want: "call 1 429, call 2 200"},
	"retried_404":   {script: "404,200", want: "call 1 404, call 2 200"},
	"reset":         {script: "reset,200", want: "call 1 reset, call 2 200"},
	"told":          {script: "200", callback: true, want: "call 1 200, callback 200"},
	"told_retried":  {script: "503,200", callback: true, want: "call 1 503, call 2 200, callback 200"},
	"told_rejected": {script: "400", callback: true, want: "call 1 400, callback 400"},
	"told_late":     {late: true, callback: true, want: "callback 504"},
	"rejected":      {script: "400", want: "call 1 400, rejected after 1"},
	"late":          {late: true, want: "expired after 0"},
	"malformed":     {malformed: true, want: "untouched"},
}

// mixedMessage is one of the messages.
type mixedMessage struct {
	plan

	id, queue string
	content   []byte
	// kept is the part of the content that the dead letter must have byte for byte.
	kept []byte
}

func (m *mixedMessage) body() string { return "order å " + m.id }

// path is where it is called.
func (m *mixedMessage) path() string {
	if m.script == "" {
		return "/answer/410"
	}
	return "/answer/" + m.script
}

// makeNative makes it an envelope of ours.
func (m *mixedMessage) makeNative(host, sender string) {
	version, members := "1", ""
	if m.malformed {
		version = "3"
	}
	if m.callback {
		members += fmt.Sprintf(`,"callback":{"url":%q},"context":{"n":%q}`, sender, m.id)
	}
	if m.late {
		members += fmt.Sprintf(`,"deadline":%q`, time.Now().Add(-time.Second).UTC().Format(time.RFC3339Nano))
	}
	m.kept = fmt.Appendf(nil, `"call":{"url":"http://%s%s", "method":"POST","body":%q}`, host, m.path(), m.body())
	m.content = fmt.Appendf(nil, `{"asyncCaller":%s,"requestId":%q,%s%s}`, version, m.id, m.kept, members)
}

// makeNexus makes it a message of the C# SDK.
func (m *mixedMessage) makeNexus(host, sender string, priority int) {
	n := nexusMessage{
		id: m.id, priority: priority, context: fmt.Sprintf(`{"n":%q}`, m.id),
		callOut: nexusCallOut(m.path(), host, m.body()),
	}
	if m.malformed {
		n.callOut = "POST / HTTP/1.1\r\nX-Id: " + m.id + "\r\n\r\n" // it has no Host
	}
	if m.callback {
		n.callBack = nexusCallBack("/", strings.TrimPrefix(sender, "http://"))
	}
	if m.late {
		n.deadline = time.Now().Add(-time.Second)
	}
	m.content, m.kept = n.content(), append([]byte(`"RawRequest":`), n.rawRequest()...)
}

// TestMixedRun checks that each of many messages in both formats on all queues ends as planned, once.
func TestMixedRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	queues := f.stageAll()
	sender := startSender(t)
	var messages []*mixedMessage
	for name, plan := range plans {
		for priority, queue := range queues {
			native := &mixedMessage{plan: plan, id: fmt.Sprintf("%s-native-%d", name, priority), queue: queue}
			native.makeNative(f.target.Addr, sender.URL)
			nexus := &mixedMessage{plan: plan, id: fmt.Sprintf("%s-nexus-%d", name, priority), queue: queue}
			nexus.makeNexus(f.target.Addr, sender.URL, priority)
			messages = append(messages, native, nexus)
		}
	}
	f.start(inAFewSeconds)
	for _, m := range messages {
		_, err := f.store.Put(t.Context(), m.queue, storage.Item{Text: storage.Base64.Encode(m.content)})
		f.must(err)
	}
	f.awaitAllEmpty(queues)
	f.mustDeliverOnce()

	letters := map[string][][]byte{}
	for _, queue := range queues {
		letters[queue] = f.drain(queue + storage.PoisonSuffix)
	}
	seen := 0
	for _, m := range messages {
		end, n := f.seen(m, sender.told(m.id), letters[m.queue])
		seen += n
		if end != m.want {
			t.Errorf("%s on %s: %s; want %s", m.id, m.queue, end, m.want)
		}
	}
	if all := len(slices.Concat(slices.Collect(maps.Values(letters))...)); all != seen {
		t.Errorf("%d dead letters, and %d of the messages", all, seen)
	}
}

// sender is told how calls ended.
type sender struct {
	*httptest.Server

	mu        sync.Mutex
	callbacks map[string][]string
}

func startSender(t *testing.T) *sender {
	t.Helper()
	s := &sender{callbacks: map[string][]string{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct {
			ID         string
			Context    struct{ N string }
			StatusCode int
		}
		err := json.NewDecoder(r.Body).Decode(&body)
		event := fmt.Sprintf("callback %d", body.StatusCode)
		attempt := r.Header.Get("X-Async-Caller-Attempt")
		if err != nil || body.Context.N != body.ID || attempt != "1" || r.Method != http.MethodPost {
			event += fmt.Sprintf(" (%s, attempt %s, %+v, %v)", r.Method, attempt, body, err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.callbacks[body.ID] = append(s.callbacks[body.ID], event)
	}))
	t.Cleanup(s.Close)
	return s
}

// told returns the callbacks about a message.
func (s *sender) told(id string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.callbacks[id]
}

// seen describes how a message ended: the calls with their attempts and answers, what its sender was told, and its dead
// letters of all on its poison queue. It includes everything unexpected.
func (f *fixture) seen(m *mixedMessage, told []string, letters [][]byte) (end string, found int) {
	f.t.Helper()
	var events []string
	for _, call := range f.target.Calls(m.id) {
		event := fmt.Sprintf("call %s %s", call.Attempt, call.Answer)
		if call.Method != http.MethodPost || string(call.Body) != m.body() {
			event += fmt.Sprintf(" (%s, body %q)", call.Method, call.Body)
		}
		events = append(events, event)
	}
	events = append(events, told...)
	for _, content := range letters {
		if !bytes.Contains(content, []byte(fmt.Sprintf("%q", m.id))) {
			continue
		}
		found++
		var letter struct {
			DeadLetter struct {
				Reason, Queue string
				Attempts      int
			}
		}
		f.must(json.Unmarshal(content, &letter))
		d := letter.DeadLetter
		event := fmt.Sprintf("%s after %d", d.Reason, d.Attempts)
		switch {
		case bytes.Equal(content, m.content):
			event = "untouched"
		case d.Queue != m.queue || !bytes.Contains(content, m.kept):
			event += fmt.Sprintf(" (%s)", content)
		}
		events = append(events, event)
	}
	return strings.Join(events, ", "), found
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
