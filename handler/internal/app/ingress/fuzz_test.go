package ingress_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"asynccaller/handler/internal/rules/envelope"
)

const callback = `,"callback":{"url":"https://sender.example/"}`

// FuzzInvocation posts any body. The handler never panics, and answers 200 only if it has settled the message.
func FuzzInvocation(f *testing.F) {
	for _, body := range seeds(f) {
		f.Add([]byte(body), uint16(500))
	}
	f.Add([]byte(binary(anEnvelope(""), goodMetadata)), uint16(200))
	f.Add([]byte(binary(anEnvelope(callback), goodMetadata)), uint16(400))
	f.Add([]byte(text(f, anEnvelope(""), `{"Id":{},"DequeueCount":1}`)), uint16(0))
	f.Add([]byte(`{"Data":{"msg":"~"}}`), uint16(200))
	f.Add([]byte(`{"Data":`), uint16(200))
	f.Fuzz(func(t *testing.T, body []byte, status uint16) {
		a := newApp(t, answers(int(status%1000)))
		recorder := a.record(t, string(body))

		if recorder.Code != http.StatusOK {
			if written := append(a.contents(t, mainQueue), a.contents(t, poisonQueue)...); len(written) > 0 {
				t.Errorf("answered %d, but wrote %q", recorder.Code, written)
			}
			return
		}
		content, ok := contentOf(body)
		if !ok {
			t.Fatalf("answered %d to an invalid invocation", recorder.Code)
		}
		a.wantSettled(t, content)
	})
}

// FuzzContent posts any message in either mode of the host.
func FuzzContent(f *testing.F) {
	for _, body := range seeds(f) {
		content, _ := contentOf([]byte(body))
		f.Add([]byte(content), true, uint16(503))
	}
	for _, extra := range []string{
		"", callback, `,"giveUp":"drop"`, `,"giveUp":"fault"`, `,"deadline":"2020-01-01T00:00:00Z"`, `,"deadLett` +
			`er":{}`, `,"trail":[{}]`, `,"retry":{"maxAttempts":1}`, `,"attempts":2147483647`,
		`,"notBefore":"9998-01-01T00:00:00Z","deadline":"9999-01-01T00:00:00Z"`,
		`,"trail":[` + strings.Repeat("{},", 99) + `{"tookMs":86400000}]`, `,"createdAt":"9999-12-31T23:59:59.9Z"`,
		`,"deadline":"0001-01-01T00:00:00-08:00","notBefore":"9999-12-31T23:59:59.9999999-08:00"`,
		`,"deadline":"1582-10-15T00:00:00Z"`, `,"createdAt":"1601-01-01T00:00:00Z"`, `,"RawRequest":null`,
		`,"trail":[null,{"at":null}],"retry":{"schedule":[null,"1s"],"factor":null}`,
	} {
		f.Add([]byte(anEnvelope(extra)), false, uint16(400))
		f.Add([]byte(anEnvelope(extra)), true, uint16(0))
		f.Add([]byte(anEnvelope(extra)), false, uint16(500))
	}
	f.Add([]byte("\xff\x00"), false, uint16(200))
	f.Fuzz(func(t *testing.T, content []byte, asText bool, status uint16) {
		if len(content) > 48<<10 {
			content = content[:48<<10] // the capacity of a message
		}
		body := binary(string(content), goodMetadata)
		if asText {
			content = []byte(strings.ToValidUTF8(string(content), "?")) // the host sends no other text
			body = text(t, string(content), goodMetadata)
		}
		a := newApp(t, answers(int(status%1000)))

		recorder := a.record(t, body)

		if recorder.Code == http.StatusOK {
			a.wantSettled(t, string(content))
			return
		}
		e, err := envelope.Parse(content)
		if err != nil || e.GiveUp != envelope.GiveUpFault {
			t.Errorf("answered %d %s", recorder.Code, recorder.Body)
		}
	})
}

// record posts a body without a network, and checks the properties that every answer has.
func (a *app) record(t *testing.T, body string) *httptest.ResponseRecorder {
	t.Helper()
	recorder := httptest.NewRecorder()
	a.ServeHTTP(recorder, invocation(t, function, body))
	reply{recorder.Code, recorder.Header(), recorder.Body.String()}.wantUsable(t)
	for _, line := range a.lines(t) {
		if line["panic"] != nil {
			t.Fatalf("panic: %v\n%v", line["panic"], line["stack"])
		}
	}
	return recorder
}

// wantSettled checks that nothing is lost of a message that the host may delete.
func (a *app) wantSettled(t *testing.T, content string) {
	t.Helper()
	lines := a.lines(t)
	last := lines[len(lines)-1]
	if last["message"] != "settled" {
		t.Fatalf("answered 200 without a settled line:\n%s", a.log)
	}
	main, poison := a.contents(t, mainQueue), a.contents(t, poisonQueue)
	e, err := envelope.Parse([]byte(content))
	wrongPolicy := err == nil && e.Retry != nil // then the dead letter says so, with the same call
	if err != nil || (last["reason"] == "malformed" && !wrongPolicy) {
		if len(main) != 0 || len(poison) != 1 || poison[0] != content {
			t.Fatalf("%q is malformed: want its bytes on the poison queue, got %q there and %q rescheduled", content,
				poison, main)
		}
		return
	}
	want := map[any][2]int{
		"finish": {0, 0}, "drop": {0, 0}, "reschedule": {1, 0}, "callback": {1, 0}, "dead_letter": {0, 1},
	}[last["action"]]
	if got := [2]int{len(main), len(poison)}; got != want {
		t.Fatalf("action %v wrote %d messages back and %d dead letters", last["action"], got[0], got[1])
	}
	for _, written := range append(main, poison...) {
		if _, err := envelope.Parse([]byte(written)); err != nil {
			t.Fatalf("wrote a malformed message: %v\n%s", err, written)
		}
	}
}

// contentOf reads the content of an invocation by the contract, without the handler's code.
func contentOf(body []byte) (string, bool) {
	var invocation map[string]any
	if json.Unmarshal(body, &invocation) != nil {
		return "", false
	}
	members, _ := invocation["Data"].(map[string]any)
	data, ok := members["msg"].(string)
	if !ok || !utf8.ValidString(data) {
		return "", false
	}
	if strings.HasPrefix(data, `"`) {
		var content string
		err := json.Unmarshal([]byte(data), &content)
		return content, err == nil
	}
	content, err := base64.StdEncoding.DecodeString(data)
	return string(content), err == nil
}

func seeds(f *testing.F) []string {
	f.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", "invocation", "*.json"))
	if err != nil || len(paths) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	var bodies []string
	for _, path := range paths {
		body, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		bodies = append(bodies, string(body))
	}
	return bodies
}
