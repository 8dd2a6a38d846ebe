package ingress_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"
	"unicode/utf8"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/explain"
	"asynccaller/handler/internal/storage"
)

// maxContent is the capacity of a message that is encoded as base64.
var maxContent = storage.Base64.MaxContentBytes()

const (
	// maxLoggedDetail is the length of the longest logged detail: names of members, and our own text.
	maxLoggedDetail = 300
	// maxLogLine is the length of the longest line, with all ids.
	maxLogLine = 2 << 10
)

// nativeCall returns a native envelope whose call has a URL and these members.
func nativeCall(members ...string) string {
	return `{"asyncCaller":1,"requestId":"r1","call":{"url":"http://t.example/"` + join(members) + `}}`
}

// nativeURL returns a native envelope for a URL, which is written as in JSON.
func nativeURL(url ...string) string {
	return `{"asyncCaller":1,"requestId":"r1","call":{"url":"` + join(url) + `"}}`
}

// nativeWith returns a native envelope with a call and these members.
func nativeWith(members ...string) string {
	return `{"asyncCaller":1,"requestId":"r1",` + join(members) + `,"call":{"url":"http://t.example/"}}`
}

// nexusCall returns a Nexus envelope for an HTTP request.
func nexusCall(callOut ...string) string {
	return `{"OriginalRequestId":"r1","RawRequest":{"Id":"r1","CallOut":"` + in64(callOut...) + `"}}`
}

// nexusHead returns a Nexus envelope for a GET with these header lines.
func nexusHead(lines ...string) string {
	return nexusCall("GET / HTTP/1.1\r\nHost: t.example\r\n" + join(lines) + "\r\n")
}

// nexusWith returns a Nexus envelope with a RawRequest and these members.
func nexusWith(members ...string) string {
	return `{` + join(members) + `,"RawRequest":{"Id":"r1","CallOut":"` + in64(plainCall) + `"}}`
}

// nexusRaw returns a Nexus envelope with these members in its RawRequest.
func nexusRaw(members ...string) string {
	return `{"RawRequest":{"Id":"r1","CallOut":"` + in64(plainCall) + `",` + join(members) + `}}`
}

const plainCall = "GET / HTTP/1.1\r\nHost: t.example\r\n\r\n"

func join(parts []string) string { return strings.Join(parts, "") }

func in64(parts ...string) string { return base64.StdEncoding.EncodeToString([]byte(join(parts))) }

// filled repeats numbered text between head and tail until a message is full.
func filled(head, text, tail string) string {
	var b strings.Builder
	for b.WriteString(head); b.Len()+len(tail)+len(text)+10 < maxContent-2<<10; {
		fmt.Fprintf(&b, text, b.Len())
	}
	return strings.TrimSuffix(b.String(), ",") + tail
}

// contentFunctions are those of the contents in testdata/hostile.
var contentFunctions = template.FuncMap{
	"call": nativeCall, "url": nativeURL, "native": nativeWith, "nexusCall": nexusCall, "nexusHead": nexusHead,
	"nexusWith": nexusWith, "nexusRaw": nexusRaw, "b64": in64, "filled": filled,
	"join":   func(parts ...string) string { return join(parts) },
	"repeat": func(n int, parts ...string) string { return strings.Repeat(join(parts), n) },
	"list":   func(n int, element string) string { return strings.TrimSuffix(strings.Repeat(element, n), ",") },
	"secret": func(scheme, host string) string { return secretEnvelope(scheme, host, "/") },
	"nested": func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) },
}

// hostile is a message that is meant to cause harm, and its expected outcome.
type hostile struct {
	name, content string
	// outcome is the action and the reason of a valid envelope, "malformed" or, if its dead letter is an envelope that
	// contains the reason, "annotated".
	outcome string
	// detail is the beginning of the logged detail of a malformed message. Of a call it is what to check: its url,
	// body, header with a value, or how many headers it has at least.
	detail string
}

// readHostile reads a file of testdata/hostile. A line with a name and a content, which is a template, is followed by
// one with the outcome.
func readHostile(t *testing.T, path string) (rows []hostile) {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(file)) {
		line = strings.TrimSuffix(line, "\n")
		outcome, isOutcome := strings.CutPrefix(line, "\t")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case isOutcome:
			row := &rows[len(rows)-1]
			row.outcome = outcome
			for _, kind := range []string{"malformed ", "annotated ", "finish delivered, "} {
				if detail, found := strings.CutPrefix(outcome, kind); found {
					row.outcome, row.detail = strings.TrimRight(kind, ", "), detail
				}
			}
			row.detail = expanded(t, row.detail)
		default:
			name, content, _ := strings.Cut(line, ": ")
			rows = append(rows, hostile{name: name, content: expanded(t, content)})
		}
	}
	return rows
}

// expanded executes a template.
func expanded(t *testing.T, text string) string {
	t.Helper()
	parsed, err := template.New("").Funcs(contentFunctions).Parse(text)
	var b strings.Builder
	if err == nil {
		err = parsed.Execute(&b, nil)
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return b.String()
}

// TestHostile posts messages that are invalid, expensive or ambiguous, with numbers and times beyond all limits, that
// try to call another target, to inject headers, or to smuggle a request, and with secrets in what the log says about
// them. No message stops the handler, each has the expected outcome, and explain predicts it.
func TestHostile(t *testing.T) {
	files, err := filepath.Glob("testdata/hostile/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no messages: %v", err)
	}
	for _, file := range files {
		for _, row := range readHostile(t, file) {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txt")+"/"+row.name, func(t *testing.T) {
				t.Parallel()
				if len(row.content) > maxContent {
					t.Fatalf("%d bytes fit in no message", len(row.content))
				}
				t.Run("binary", func(t *testing.T) { row.run(t, binary(row.content, goodMetadata)) })
				if utf8.ValidString(row.content) { // the host sends no other text
					t.Run("text", func(t *testing.T) { row.run(t, text(t, row.content, goodMetadata)) })
				}
			})
		}
	}
}

// check checks the call.
func (h hostile) check(t *testing.T, e *envelope.Envelope) {
	t.Helper()
	what, want, _ := strings.Cut(h.detail, " ")
	got := want
	switch what {
	case "url":
		got = e.Call.URL
	case "body":
		got = string(e.Call.Body.Bytes())
	case "header":
		name, value, _ := strings.Cut(want, ": ")
		want, got = value, strings.Join(e.Call.Header[name], ",")
	case "headers":
		n, values := 0, 0
		for _, of := range e.Call.Header {
			values += len(of)
		}
		_, err := fmt.Sscan(want, &n)
		if err != nil || values < n {
			t.Errorf("%d headers, want at least %s", values, want)
		}
	case "":
	default:
		t.Fatalf("no check %s", what)
	}
	if got != want {
		t.Errorf("%s is %.80q, want %.80q", what, got, want)
	}
}

// run posts an invocation with the message and checks the outcome.
func (h hostile) run(t *testing.T, body string) {
	t.Helper()
	var called []*envelope.Envelope
	a := newApp(t, caller(func(_ context.Context, e *envelope.Envelope) decision.Outcome {
		called = append(called, e)
		return decision.Outcome{Status: http.StatusOK}
	}))

	recorder := a.record(t, body)

	reply{recorder.Code, recorder.Header(), recorder.Body.String()}.wantStatus(t, http.StatusOK)
	if len(recorder.Body.String()) > maxLogLine {
		t.Errorf("the answer has %d bytes", recorder.Body.Len())
	}
	a.wantShortLog(t)
	h.wantExplained(t, a)
	a.wantNoSecret(t, reply{body: recorder.Body.String()})
	if h.outcome != "annotated" {
		a.wantSettled(t, h.content)
	}
	lines := a.lines(t)
	last := lines[len(lines)-1]
	got := fmt.Sprint(last["action"], " ", last["reason"])
	if h.outcome == "malformed" || h.outcome == "annotated" {
		if detail := fmt.Sprint(last["detail"]); got != "dead_letter malformed" ||
			!strings.HasPrefix(detail, h.detail) {
			t.Errorf("%s: %s, want malformed: %s", got, detail, h.detail)
		}
		if len(called) > 0 {
			t.Error("a call was made")
		}
		if h.outcome == "annotated" {
			a.wantAnnotated(t)
		} else {
			a.wantContents(t, poisonQueue, h.content)
		}
		return
	}
	if got != h.outcome {
		t.Fatalf("%s: %v, want %s", got, last["detail"], h.outcome)
	}
	if made := len(called) == 1; made != (h.outcome == "finish delivered") {
		t.Fatalf("%d calls", len(called))
	}
	if len(called) == 1 {
		h.check(t, called[0])
	}
}

// wantExplained checks that explain predicts the same action, and that its result can be written as JSON.
func (h hostile) wantExplained(t *testing.T, a *app) {
	t.Helper()
	x := explain.About(a.deliverer.Rules, explain.Question{
		Queue: mainQueue, MessageID: messageID, Content: []byte(h.content), Now: a.deliverer.Now(),
		MaxContentBytes: maxContent,
		Outcome:         &decision.Outcome{Status: http.StatusServiceUnavailable},
	})
	if _, err := json.Marshal(x); err != nil {
		t.Errorf("explain --json: %v", err)
	}
	want := string(x.Arrival.Action)
	if x.Arrival.Action == decision.Call {
		want = "finish"
	}
	if last := a.lines(t); last[len(last)-1]["action"] != want {
		t.Errorf("explain says %s, the handler did %v", x.Arrival.Action, last[len(last)-1]["action"])
	}
	if len(x.Arrival.Detail) > maxLoggedDetail {
		t.Errorf("explain's detail has %d bytes", len(x.Arrival.Detail))
	}
}

// wantAnnotated checks that the dead letter of an envelope with an invalid policy contains the unchanged call and the
// reason.
func (a *app) wantAnnotated(t *testing.T) {
	t.Helper()
	letters := a.contents(t, poisonQueue)
	if len(letters) != 1 || len(a.contents(t, mainQueue)) > 0 {
		t.Fatalf("%d dead letters, want 1", len(letters))
	}
	e, err := envelope.Parse([]byte(letters[0]))
	if err != nil || e.DeadLetter == nil || e.DeadLetter.Reason != "malformed" || e.Retry == nil {
		t.Errorf("dead letter %.300s: %v", letters[0], err)
	}
	if !strings.Contains(letters[0], `"call":{"url":"http://t.example/"}`) {
		t.Errorf("the call has changed: %.300s", letters[0])
	}
}

// wantShortLog checks that a message cannot make long log lines or break a line.
func (a *app) wantShortLog(t *testing.T) {
	t.Helper()
	for line := range strings.Lines(a.log.String()) {
		if len(line) > maxLogLine {
			t.Errorf("a log line has %d bytes: %.300s…", len(line), line)
		}
		if strings.ContainsAny(strings.TrimSuffix(line, "\n"), "\x00\x1b\r\n\x7f") {
			t.Errorf("a log line holds a control character: %.300q", line)
		}
	}
	for _, line := range a.lines(t) {
		if detail, _ := line["detail"].(string); len(detail) > maxLoggedDetail {
			t.Errorf("a detail has %d bytes: %s", len(detail), detail)
		}
	}
}
