package envelope_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"asynccaller/handler/internal/rules/envelope"
)

// FuzzEnvelope checks what every accepted envelope promises.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte(`{"asyncCaller":1,"call":{"url":"http://a","body":"x"}}`))
	f.Add([]byte(`{"asyncCaller":1,"requestId":"r","call":{"url":"https://a/","headers":{"a":["b"]},"json":[1]},` +
		`"callback":{"url":"http://b"},"context":1,"x":null}`))
	f.Add([]byte(`{"asyncCaller":1,"call":{"url":"http://a"},"attempts":3,"trail":[{"at":"2026-01-01T00:00:00Z",` +
		`"error":"dns","tookMs":5}],"deadLetter":{}}`))
	f.Add([]byte(`{"asyncCaller":1,"call":{"url":"http://a"},"deadline":"9999-12-31T23:59:59.9Z",` +
		`"createdAt":"9999-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"asyncCaller":1,"call":{"url":"http://a"},"retry":{"schedule":["1s"]},` +
		`"notBefore":"2026-01-01T00:00:00+23:00","priority":1}`))
	f.Add([]byte(`{"asyncCaller":1,"call":{"url":"http://a","headers":{"a":null,"b":[null,"c"]},"body":null},` +
		`"RawRequest":null,"trail":[null,{"at":null,"status":null}],"deadline":"0001-01-01T00:00:00-08:00"}`))
	f.Add([]byte(`{"asyncCaller":1,"call":{"url":"http://a"},"createdAt":"1582-10-15T00:00:00Z",` +
		`"notBefore":"9999-12-31t23:59:59.9999999-08:00","callback":{"url":"http://b","headers":{"c":null}}}`))
	f.Add([]byte(`{"asyncCaller":1,"call":{"url":"http://a"},"reserved":"\u0001\u0041","createdAt":null}`))
	f.Add([]byte(`{"asyncCaller":null,"call":{"url":"http://a"}}`))
	f.Add([]byte(`{"asyncCaller":1,`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, content []byte) { checkPromises(t, string(content)) })
}

// FuzzNexus is [FuzzEnvelope] for Nexus messages. The parts in base64 are parameters of their own, so that the fuzzer
// can change them: {{callout}} and so on in the message.
func FuzzNexus(f *testing.F) {
	const (
		members = `"Organization":"acme","Environment":"prod","OriginalRequestId":"order-42","Attempts":2,` +
			`"CreatedAt":"2026-01-31T12:00:00.1234567+01:00",` +
			`"LatestAttemptAt":"0001-01-01T00:00:00+00:00","LatestResponse":"{{latest}}",` +
			`"DeadlineAt":"2026-02-07T11:00:00Z","NextAttemptAt":"2026-01-31T11:00:00",`
		raw = `"RawRequest":{"Id":"order-42","Title":"GET","Context":"{{context}}","CallOut":"{{callout}}",` +
			`"CallOutUriScheme":"http",` +
			`"CallBack":"{{callback}}","CallBackUriScheme":"https","Priority":3}`
		callback = "PUT //done HTTP/1.0\r\nx-own:  two  spaces\r\nContent-Length: 3\r\nHost: " +
			"sender.example:8080\r\nExpires: -1\r\n\r\nold"
		latest = "HTTP/1.1 504 Gateway Time-out\r\nServer: Apache/2.4.6, (CentOS)\r\nExpires: -1\r\n\r\ntoo late"
	)
	add := func(message, callOut string) {
		f.Add(message, []byte(callOut), []byte(callback), []byte(`{"k":[1]}`), []byte(latest))
	}
	add(`{`+members+raw+`}`,
		"POST /a%2Fb?x=1+2 HTTP/1.1\r\nHost: target.example\r\nContent-Type: text/plain\r\n\r\nhello\r\n\r\nthere")
	add(`{`+raw+`}`, plainCall)
	add(`{"RawRequest":{"CallOut":"{{callout}}"}}`, "GET /%e5? HTTP/1.1\r\nAccept: a, b\r\nCookie: a\r\nCookie: b\r\n"+
		"host: [::1]:80\r\nTransfer-Encoding: chunked\r\n\r\n")
	add(`{"rawRequest":{"id":"r","callout":"{{callout}}","Context":null},"attempts":1,`+
		`"later":{"a": 1.0},"createdat":null,"deadlineAt":"0001-01-01T00:00:00"}`, plainCall)
	add(`{`+members+raw+`,"Trail":[{"At":"2026-01-31T11:00:00.5Z","Status":503,"TookMs":5}],`+
		`"DeadLetter":{"Reason":"expired"}}`, plainCall)
	add(`{"asyncCaller":null,"Organization":null,"CreatedAt":"0001-01-01T00:00:00-08:00",`+
		`"DeadlineAt":"9999-12-31T23:59:59.9999999-08:00","NextAttemptAt":"1601-01-01T00:00:00+02",`+
		`"Trail":[null,{"At":null}],`+raw+`}`, plainCall)
	f.Fuzz(func(t *testing.T, message string, callOut, callBack, context, latest []byte) {
		in := base64.StdEncoding.EncodeToString
		checkPromises(t, strings.NewReplacer("{{callout}}", in(callOut), "{{callback}}", in(callBack), "{{context}}",
			in(context), "{{latest}}", in(latest)).Replace(message))
	})
}

// checkPromises checks that an accepted envelope can be rescheduled, keeps its call byte for byte, and parses to the
// same again, and that its dead letter and its callback are envelopes.
func checkPromises(t *testing.T, content string) {
	t.Helper()
	e, err := arrive(content)
	if err != nil {
		return
	}
	first := written(t)(e.Successor(limit))
	again := mustArrive(t, 0, string(first.Bytes), nil)
	if callIn(string(first.Bytes)) != callIn(content) {
		t.Fatalf("the call has changed:\n%s\n%s", content, first.Bytes)
	}
	options := cmp.Options{
		wholeBody,
		cmpopts.IgnoreUnexported(envelope.Envelope{}),
		cmpopts.EquateApproxTime(time.Millisecond), // to which our own times are cut
		cmpopts.EquateEmpty(),
	}
	if diff := cmp.Diff(e, again, options); diff != "" && first.LeftOut == "" {
		t.Fatalf("not the same envelope:\n%s", diff)
	}
	if second := written(t)(again.Successor(limit)); string(first.Bytes) != string(second.Bytes) {
		t.Fatalf("not stable:\n%s\n%s", first.Bytes, second.Bytes)
	}
	if e.Callback != nil {
		report := envelope.Report{Status: http.StatusOK, Payload: content, At: arrival}
		callback := mustArrive(t, 0, string(written(t)(e.CallbackWith(report, limit)).Bytes), nil)
		if !json.Valid(callback.Call.Body.Bytes()) || callback.Callback != nil || callback.Call.URL != e.Callback.URL {
			t.Fatalf("callback to %s, want to %s: %s", callback.Call.URL, e.Callback.URL, callback.Call.Body.Bytes())
		}
	}
	e.LimitDeadline(2*time.Hour, time.Hour)
	if e.DeadlineLimited && !e.NotBefore.Before(e.Deadline) {
		return // it is given up at once
	}
	again = mustArrive(t, 0, string(written(t)(e.Successor(limit)).Bytes), nil)
	again.LimitDeadline(2*time.Hour, time.Hour)
	if again.DeadlineLimited {
		t.Fatalf("the deadline was limited twice: %s", content)
	}
	liveAndDie(t, content, 0, 1)
}
