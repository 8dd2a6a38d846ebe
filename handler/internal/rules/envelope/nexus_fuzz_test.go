package envelope_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"asynccaller/handler/internal/rules/envelope"
)

// FuzzNexus checks that every accepted envelope can be rescheduled, keeps its RawRequest byte for byte, and parses to
// the same again, and that its dead letter and its callback are envelopes. The parts in base64 are parameters of their
// own, so that the fuzzer can change them: {{callout}} and so on in the message.
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
		replacer := strings.NewReplacer("{{callout}}", in(callOut), "{{callback}}", in(callBack), "{{context}}",
			in(context), "{{latest}}", in(latest))
		content := []byte(replacer.Replace(message))
		if len(content) > limit {
			return
		}
		e, err := arrive(string(content))
		if err != nil || e.Format() != envelope.FormatNexus {
			return
		}
		first, err := e.Successor(limit)
		if err != nil {
			t.Fatalf("accepted, but cannot be rescheduled: %v", err)
		}
		again := checkSameEnvelope(t, e, content, first.Bytes)
		second, err := again.Successor(limit)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first.Bytes, second.Bytes) {
			t.Fatalf("not stable:\n%s\n%s", first.Bytes, second.Bytes)
		}
		tried := e.WithState(nextState(e, len(message)))
		for _, from := range []*envelope.Envelope{e, tried} {
			checkEnds(t, from, content)
		}
		if third, err := tried.Successor(limit); err != nil {
			t.Fatalf("cannot be rescheduled after a call: %v", err)
		} else {
			checkState(t, tried, checkSameCall(t, e, content, third.Bytes))
		}
	})
}

// checkSameEnvelope checks that a reschedule without a call leaves the envelope unchanged, and returns the successor.
func checkSameEnvelope(t *testing.T, e *envelope.Envelope, came, content []byte) *envelope.Envelope {
	t.Helper()
	again := checkSameCall(t, e, came, content)
	options := cmp.Options{
		cmpopts.IgnoreUnexported(envelope.Envelope{}),
		cmpopts.IgnoreFields(envelope.State{}, "Trail"), // its times are cut to milliseconds
		cmpopts.IgnoreFields(envelope.Attempt{}, "At"),
		cmpopts.EquateEmpty(),
	}
	if diff := cmp.Diff(e, again, options); diff != "" {
		t.Fatalf("not the same envelope:\n%s", diff)
	}
	if len(e.Trail) != len(again.Trail) {
		t.Fatalf("%d attempts in the trail, %d came", len(again.Trail), len(e.Trail))
	}
	return again
}

// checkSameCall checks that the content has the same call, and returns its envelope.
func checkSameCall(t *testing.T, e *envelope.Envelope, came, content []byte) *envelope.Envelope {
	t.Helper()
	if len(content) > limit {
		t.Fatalf("%d bytes, the queue takes %d", len(content), limit)
	}
	again, err := arrive(string(content))
	if err != nil {
		t.Fatalf("%v:\n%s", err, content)
	}
	if diff := cmp.Diff(e.Call, again.Call); diff != "" {
		t.Fatalf("the call has changed:\n%s", diff)
	}
	if again.RequestID != e.RequestID || again.OriginalRequestID != e.OriginalRequestID {
		t.Fatalf("ids %q, %q became %q, %q", e.RequestID, e.OriginalRequestID, again.RequestID, again.OriginalRequestID)
	}
	if !bytes.Equal(rawRequestIn(t, came), rawRequestIn(t, content)) {
		t.Fatalf("RawRequest has changed:\n%s\n%s", came, content)
	}
	return again
}

// checkEnds checks the dead letter and the callback.
func checkEnds(t *testing.T, e *envelope.Envelope, came []byte) {
	t.Helper()
	dead, err := e.DeadLettered(envelope.DeadLetter{
		At: oddArrival, Reason: "temporary_status", Detail: strings.Repeat("\"", 400), Queue: "async-caller-10",
		Attempts: e.Attempts,
	}, limit)
	if err != nil {
		t.Fatalf("accepted, but no dead letter can be written: %v", err)
	}
	if back := checkSameCall(t, e, came, dead.Bytes); back.Attempts != 0 || back.Trail != nil ||
		!back.CreatedAt.Equal(oddArrival) {
		t.Fatalf("an envelope that was moved back does not start again: %+v", back.State)
	}
	if e.Callback == nil {
		return
	}
	content, err := e.CallbackWith(longReport(), limit)
	if err != nil {
		t.Fatalf("accepted, but no callback can be written: %v", err)
	}
	callback, err := arrive(string(content.Bytes))
	if err != nil {
		t.Fatalf("the callback is not an envelope: %v", err)
	}
	if !json.Valid(callback.Call.Body) || callback.Callback != nil || callback.Call.URL != e.Callback.URL {
		t.Fatalf("callback to %s, wanted to %s: %s", callback.Call.URL, e.Callback.URL, callback.Call.Body)
	}
}

// rawRequestIn returns the text of the member RawRequest, in any letter case.
func rawRequestIn(t *testing.T, content []byte) json.RawMessage {
	t.Helper()
	var message struct{ RawRequest json.RawMessage }
	if err := json.Unmarshal(content, &message); err != nil {
		t.Fatal(err)
	}
	return message.RawRequest
}
