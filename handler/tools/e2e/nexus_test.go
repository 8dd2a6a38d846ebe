package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/storage"
)

// nexusNever is a time that is not set, as the C# SDK writes it.
const nexusNever = "0001-01-01T00:00:00+00:00"

// nexusMessage is a message as the C# SDK writes it. The tests do not use our own encoder, because they check what the
// SDK expects.
type nexusMessage struct {
	id, originalRequestID string
	// callOut, callBack and latestResponse are HTTP messages, context is JSON; empty means null.
	callOut, callBack, latestResponse, context string
	// priority 0 means none; a zero deadline means in two days.
	priority, attempts int
	deadline           time.Time
}

// content returns the RawRequestEnvelope.
func (m nexusMessage) content() []byte {
	now := time.Now()
	if m.deadline.IsZero() {
		m.deadline = now.Add(48 * time.Hour)
	}
	latestAttemptAt := nexusNever
	if m.attempts > 0 {
		latestAttemptAt = nexusTime(now.Add(-time.Minute))
	}
	return fmt.Appendf(nil,
		`{"Organization":"acme","Environment":"test","OriginalRequestId":%q,"Attempts":%d,"CreatedAt":%q,`+
			`"LatestAttemptAt":%q,"LatestResponse":%s,"DeadlineAt":%q,"NextAttemptAt":%q,"RawRequest":%s}`,
		m.originalRequestID, m.attempts, nexusTime(now), latestAttemptAt, nexusBytes(m.latestResponse),
		nexusTime(m.deadline),
		latestAttemptAt, m.rawRequest())
}

// rawRequest returns the part that must not change.
func (m nexusMessage) rawRequest() []byte {
	method, _, _ := strings.Cut(m.callOut, " ")
	priority, callBackScheme := "null", "null"
	if m.priority > 0 {
		priority = strconv.Itoa(m.priority)
	}
	if m.callBack != "" {
		callBackScheme = `"http"`
	}
	return fmt.Appendf(nil, `{"Id":%q,"Title":%q,"Context":%s,"CallOut":%s,"CallOutUriScheme":"http",`+
		`"CallBack":%s,"CallBackUriScheme":%s,"Priority":%s}`,
		m.id, method+" http://target/ ("+m.id+")", nexusBytes(m.context), nexusBytes(m.callOut), nexusBytes(m.callBack),
		callBackScheme, priority)
}

// nexusBytes returns a byte[] as Newtonsoft.Json writes it.
func nexusBytes(content string) string {
	if content == "" {
		return "null"
	}
	return strconv.Quote(base64.StdEncoding.EncodeToString([]byte(content)))
}

// nexusTime returns a DateTimeOffset as Newtonsoft.Json writes it, in another time zone.
func nexusTime(t time.Time) string {
	return t.In(time.FixedZone("CET", 60*60)).Format("2006-01-02T15:04:05.9999999-07:00")
}

// nexusContentType is that of the SDK's JSON bodies.
const nexusContentType = "application/json; charset=utf-8"

// nexusBody is the body of every request in the C# project's tests.
const nexusBody = "{ 'foo': 'bar' }"

// nexusCallOut returns a request with a body as .NET's HttpMessageContent writes it: without Content-Length.
func nexusCallOut(method, path, host, body string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\n\r\n%s", method, path, host, nexusContentType,
		body)
}

// nexusCallBack returns the request of a callback; the handler adds the body.
func nexusCallBack(path, host string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nX-Correlation-ID: corr-1\r\n\r\n", path, host)
}

// nexusScenario is a scenario of the C# project's own tests.
type nexusScenario struct {
	name     string
	priority int
	method   string
	// answers are the target's, one for each expected call.
	answers []answer
	// late: the deadline has passed; latestResponse is the target's last answer before it.
	late           bool
	latestResponse string
	// wantCallback is the content of the callback; nil if the message has none.
	wantCallback map[string]any
	// wantLetter is the reason on the dead letter; empty for none.
	wantLetter string
}

func (s nexusScenario) id() string           { return "id-" + s.name }
func (s nexusScenario) original() string     { return "original-" + s.name }
func (s nexusScenario) path() string         { return "/call/" + s.name }
func (s nexusScenario) callbackPath() string { return "/callback/" + s.name }
func (s nexusScenario) queueName() string    { return queueOf(s.priority) }

func (s nexusScenario) message(host string) nexusMessage {
	m := nexusMessage{
		id: s.id(), originalRequestID: s.original(), context: `{"order":42}`, priority: s.priority,
		latestResponse: s.latestResponse,
		callOut:        nexusCallOut(s.method, s.path()+"?q=%C3%A5%2F", host, nexusBody),
	}
	if s.latestResponse != "" {
		m.attempts = 3
	}
	if s.wantCallback != nil {
		m.callBack = nexusCallBack(s.callbackPath(), host)
	}
	if s.late {
		m.deadline = time.Now().Add(-time.Second)
	}
	return m
}

// nexusScenarios returns the table.
func nexusScenarios() (all []nexusScenario) {
	ok := answer{status: 200, mediaType: "application/json", body: "{ 'Status': 'OK' }"}
	add := func(name string, priorities []int, s nexusScenario) {
		for _, s.priority = range priorities {
			s.name = fmt.Sprintf("%s_on_%s", name, queueOf(s.priority))
			if s.method == "" {
				s.method = http.MethodPost
			}
			all = append(all, s)
		}
	}
	standard, three := []int{0}, []int{0, 1, 2}

	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch} {
		add("send_"+method, three, nexusScenario{method: method, answers: []answer{ok}})
	}

	add("status_208", standard, nexusScenario{answers: []answer{{status: 208}}})
	for status, priorities := range map[int][]int{
		404: three, 408: standard, 423: standard, 425: standard,
		429: standard, 500: {0, 1}, 502: standard,
	} {
		add(fmt.Sprintf("status_%d", status), priorities, nexusScenario{answers: []answer{{status: status}, ok}})
	}
	for _, status := range []int{400, 510, 526} {
		add(fmt.Sprintf("status_%d", status), []int{0, 2},
			nexusScenario{answers: []answer{{status: status}}, wantLetter: "rejected"})
	}

	const nexusError = `{"Type":"x","IsRetryMeaningful":%t}`
	add("error_400_retry_meaningful", standard, nexusScenario{
		answers: []answer{{status: 400, mediaType: "application/json", body: fmt.Sprintf(nexusError, true)}, ok},
	})
	add("error_503_retry_meaningless", standard, nexusScenario{
		answers:    []answer{{status: 503, mediaType: "application/json", body: fmt.Sprintf(nexusError, false)}},
		wantLetter: "rejected",
	})

	callback := func(status int, payload, mediaType string) map[string]any {
		return map[string]any{
			"Context": map[string]any{"order": 42.0}, "StatusCode": float64(status), "Payload": payload,
			"PayloadMediaType": mediaType,
		}
	}
	both := []int{0, 1}
	add("callback_200", both,
		nexusScenario{answers: []answer{ok}, wantCallback: callback(200, ok.body, "application/json")})
	add("callback_200_retried", both,
		nexusScenario{answers: []answer{{status: 503}, ok}, wantCallback: callback(200, ok.body, "application/json")})
	add("callback_400", both, nexusScenario{
		answers:      []answer{{status: 400, mediaType: "text/plain; charset=utf-8", body: "no such å"}},
		wantCallback: callback(400, "no such å", "text/plain"),
	})
	add("callback_expired_503", both, nexusScenario{
		late: true, wantCallback: callback(503, "busy", "text/html"),
		latestResponse: "HTTP/1.1 503 Service Unavailable\r\nServer: a, b\r\nContent-Type: text/html\r\nExpires: " +
			"-1\r\n\r\nbusy",
	})
	add("callback_expired_504", both, nexusScenario{late: true, wantCallback: callback(504, "", "application/json")})
	return all
}

// TestNexusScenarios checks that the scenarios of the C# project's own tests end as they do there. Where the C# side
// only logs, we write a dead letter that the C# side can read.
func TestNexusScenarios(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{azurite: true})
	queues := f.stageAll()
	p := newPartner(t)
	host := p.Listener.Addr().String()
	scenarios := nexusScenarios()
	sent := map[string]nexusMessage{}
	for _, s := range scenarios {
		p.script(s.path(), s.answers...)
		p.script(s.callbackPath(), answer{status: 204})
		m := s.message(host)
		sent[s.name] = m
		f.putOn(s.queueName(), m.content())
	}
	f.start(inAFewSeconds)
	f.awaitAllEmpty(queues)
	f.mustDeliverOnce()

	letters := f.nexusLetters(queues)
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			s.checkCalls(t, p.received(s.path()))
			s.checkCallbacks(t, p.received(s.callbackPath()))
			s.checkLetters(t, letters[s.id()], sent[s.name])
		})
	}
	if n := p.unexpectedCalls(); n > 0 {
		t.Errorf("%d unexpected calls", n)
	}
}

func (s nexusScenario) checkCalls(t *testing.T, calls []received) {
	t.Helper()
	if len(calls) != len(s.answers) {
		t.Fatalf("the target saw %d calls, want %d", len(calls), len(s.answers))
	}
	for n, call := range calls {
		if call.method != s.method || call.target != s.path()+"?q=%C3%A5%2F" || call.body != nexusBody {
			t.Errorf("call %d: %s %s with body %q", n+1, call.method, call.target, call.body)
		}
		if got := call.header.Get("Content-Type"); got != nexusContentType {
			t.Errorf("call %d: Content-Type %q", n+1, got)
		}
		if got := call.header.Get("Idempotency-Key"); got != s.id() || call.attempt != n+1 {
			t.Errorf("call %d: Idempotency-Key %q, attempt %d", n+1, got, call.attempt)
		}
	}
}

func (s nexusScenario) checkCallbacks(t *testing.T, callbacks []received) {
	t.Helper()
	if s.wantCallback == nil {
		if len(callbacks) > 0 {
			t.Errorf("%d callbacks, want none", len(callbacks))
		}
		return
	}
	if len(callbacks) != 1 {
		t.Fatalf("%d callbacks, want 1", len(callbacks))
	}
	var body map[string]any
	if err := json.Unmarshal([]byte(callbacks[0].body), &body); err != nil {
		t.Fatal(err)
	}
	s.wantCallback["Id"] = s.original()
	if diff := cmp.Diff(s.wantCallback, body); diff != "" {
		t.Errorf("the callback's body (-want +got):\n%s", diff)
	}
	header := callbacks[0].header
	if got := header.Get("Content-Type"); got != nexusContentType || header.Get("X-Correlation-ID") != "corr-1" {
		t.Errorf("Content-Type %q, X-Correlation-ID %q", got, header.Get("X-Correlation-ID"))
	}
}

// nexusLetter is a dead letter and its queue.
type nexusLetter struct {
	queue   string
	content []byte
}

// nexusLetters receives the dead letters of all queues, by request id.
func (f *fixture) nexusLetters(queues []string) map[string][]nexusLetter {
	f.t.Helper()
	letters := map[string][]nexusLetter{}
	for _, name := range queues {
		for _, content := range f.drain(name + "-poison") {
			var letter struct{ RawRequest struct{ ID string } }
			f.must(json.Unmarshal(content, &letter))
			letters[letter.RawRequest.ID] = append(letters[letter.RawRequest.ID],
				nexusLetter{name + "-poison", content})
		}
	}
	return letters
}

func (s nexusScenario) checkLetters(t *testing.T, letters []nexusLetter, sent nexusMessage) {
	t.Helper()
	if s.wantLetter == "" {
		if len(letters) > 0 {
			t.Errorf("%d dead letters, want none", len(letters))
		}
		return
	}
	if len(letters) != 1 {
		t.Fatalf("%d dead letters, want 1", len(letters))
	}
	content := letters[0].content
	if want := s.queueName() + "-poison"; letters[0].queue != want {
		t.Errorf("on %s, want %s", letters[0].queue, want)
	}
	if raw := append([]byte(`"RawRequest":`), sent.rawRequest()...); !bytes.Contains(content, raw) {
		t.Errorf("RawRequest has changed: %s", content)
	}
	if want := append(memberNames(t, sent.content()), "Trail", "DeadLetter"); !slices.Equal(memberNames(t, content),
		want) {
		t.Errorf("members %v, want %v", memberNames(t, content), want)
	}
	var letter struct {
		OriginalRequestID string
		Attempts          int
		LatestResponse    []byte
		DeadLetter        struct {
			Reason, Queue string
			Attempts      int
		}
	}
	if err := json.Unmarshal(content, &letter); err != nil {
		t.Fatal(err)
	}
	statusLine := fmt.Sprintf("HTTP/1.1 %d ", s.answers[0].status)
	if letter.OriginalRequestID != s.original() || letter.Attempts != 1 ||
		!strings.HasPrefix(string(letter.LatestResponse), statusLine) {
		t.Errorf("OriginalRequestId %q, Attempts %d, LatestResponse %q", letter.OriginalRequestID, letter.Attempts,
			letter.LatestResponse)
	}
	if d := letter.DeadLetter; d.Reason != s.wantLetter || d.Queue != s.queueName() || d.Attempts != 1 {
		t.Errorf("DeadLetter %+v", d)
	}
}

// memberNames returns the names of an object's members, in order.
func memberNames(t *testing.T, object []byte) (names []string) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(object))
	if _, err := decoder.Token(); err != nil {
		t.Fatal(err)
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			t.Fatal(err)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			t.Fatal(err)
		}
		names = append(names, fmt.Sprint(name))
	}
	return names
}

// queueOf returns the queue of a priority; 0 means none.
func queueOf(priority int) string {
	if priority == 0 {
		return mainQueue
	}
	return fmt.Sprintf("%s-%d", mainQueue, priority)
}

// putOn puts content on a queue.
func (f *fixture) putOn(name string, content []byte) {
	f.t.Helper()
	_, err := f.store.Put(f.t.Context(), name, storage.Item{Text: storage.Base64.Encode(content)})
	f.must(err)
}
