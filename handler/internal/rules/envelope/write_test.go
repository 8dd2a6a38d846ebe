package envelope_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/rules/envelope"
)

// TestWrites checks the bytes of each content that we write.
func TestWrites(t *testing.T) {
	const trace = `"trace":{"traceparent":"00-1a0e202a713161ab4f0a36849226ce89-a600567a8da2d840-01"}`
	successor := func(e *envelope.Envelope) (envelope.Content, error) { return e.Successor(limit) }
	tried := func(e *envelope.Envelope) (envelope.Content, error) {
		state := e.State
		state.Attempts = 2
		state.LatestAttemptAt, state.NextAttemptAt = arrival, arrival.Add(10*time.Second)
		state.Trail = envelope.AppendAttempt(state.Trail,
			envelope.Attempt{At: arrival, Status: 503, Took: 1500 * time.Microsecond})
		return e.WithState(state).Successor(limit)
	}
	dead := func(e *envelope.Envelope) (envelope.Content, error) {
		return e.DeadLettered(envelope.DeadLetter{
			At: arrival, Reason: "expired", Detail: "answered 503", Queue: "async-caller-3", Attempts: 3,
		}, limit)
	}
	callback := func(e *envelope.Envelope) (envelope.Content, error) {
		return e.CallbackWith(envelope.Report{
			Status: 200, Payload: `{"ok":"<yes>"}`, Attempts: 2, Reason: "delivered", At: arrival,
		}, limit)
	}
	nexus := nexusMessage(plainCall, "")
	for name, c := range map[string]struct {
		content string
		write   func(e *envelope.Envelope) (envelope.Content, error)
		want    string
	}{
		"successor": {
			`{ "before" : [1, 2], "asyncCaller":1, "requestId":"r1",
				"call" : { "url":"http://a/?q=%7e", "json":{ "a" : 1.0 } , "later":true},
				"context": {"z":1e3}, "mine":{"k": "v"}, "attempts":1, "createdAt":"2026-01-30T00:00:00Z" }`,
			tried,
			`{"asyncCaller":1,"requestId":"r1","before":[1, 2],` +
				`"call":{ "url":"http://a/?q=%7e", "json":{ "a" : 1.0 } , "later":true},` +
				`"context":{"z":1e3},"mine":{"k": "v"},"createdAt":"2026-01-30T00:00:00Z","attempts":2,` +
				`"latestAttemptAt":"2026-01-31T12:00:00Z","nextAttemptAt":"2026-01-31T12:00:10Z",` + trace +
				`,"trail":[{"at":"2026-01-31T12:00:00Z","status":503,"tookMs":1}]}`,
		},
		"request_id_of_the_message": {
			`{"asyncCaller":1,"call":{"url":"http://a"},"trace":{"traceparent":"` + traceparent + `"}}`,
			successor,
			`{"asyncCaller":1,"requestId":"message-1","call":{"url":"http://a"},"createdAt":"2026-01-31T12:00:00Z",` +
				`"trace":{"traceparent":"` + traceparent + `"}}`,
		},
		"moved_back_by_hand": {
			`{"asyncCaller":1,"requestId":"r1","call":{"url":"http://a"},
				"deadline":"2026-01-01T00:00:00Z","attempts":9,"createdAt":"2025-12-01T00:00:00Z",
				"nextAttemptAt":"2026-12-01T00:00:00Z","run":"T0KEN",
				"trail":[{"at":"2025-12-01T00:00:00Z","status":500,"tookMs":1}],
				"deadLetter":{"at":"2026-01-01T00:00:00Z","reason":"expired","attempts":9},"mine":1}`,
			successor,
			`{"asyncCaller":1,"requestId":"r1","call":{"url":"http://a"},"mine":1,"createdAt":"2026-01-31T12:00:00Z",` +
				`"trace":{"traceparent":"00-2bff813af25666de8e8b390e0e8c8ba4-cde48284a6e20821-01"}}`,
		},
		"dead_letter": {
			formats["native"](`,"createdAt":"2026-01-30T00:00:00Z","attempts":3`),
			dead,
			`{"asyncCaller":1,"requestId":"r1","call":{"url":"http://a"},"createdAt":"2026-01-30T00:00:00Z",` +
				`"attempts":3,` + trace + `,"deadLetter":{"at":"2026-01-31T12:00:00Z","reason":"expired",` +
				`"detail":"answered 503","queue":"async-caller-3","attempts":3}}`,
		},
		"nexus_dead_letter": {
			nexus,
			dead,
			strings.TrimSuffix(nexus, "}") + `,"DeadLetter":{"At":"2026-01-31T12:00:00+00:00","Reason":"expired",` +
				`"Detail":"answered 503","Queue":"async-caller-3","Attempts":3}}`,
		},
		"callback": {
			`{"asyncCaller":1,"requestId":"r1","call":{"url":"http://a"},"context":{ "order": 42 },
				"trace":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-00","tracestate":"a=1"},
				"callback":{"url":"https://sender.example/done?x=1","method":"PUT","headers":{"x-key":["1"]}}}`,
			callback,
			`{"asyncCaller":1,"requestId":"r1.callback","createdAt":"2026-01-31T12:00:00Z","trace":{` +
				`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-5777797f30b035a7-00","tracestate":"a=1"},` +
				`"call":{"url":"https://sender.example/done?x=1","method":"PUT","headers":{"x-key":["1"]},"json":` +
				`{"Id":"r1","Context":{ "order": 42 },"StatusCode":200,"Payload":"{\"ok\":\"<yes>\"}",` +
				`"PayloadMediaType":"application/json","Attempts":2,"Reason":"delivered","PayloadTruncated":false}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := written(t)(c.write(accept(t, c.content)))
			if diff := cmp.Diff(c.want, string(got.Bytes)); diff != "" {
				t.Errorf("content (-want +got):\n%s", diff)
			}
		})
	}
}

// TestIsCallbackOf checks that a callback is an envelope of its own, and that it is told from another call with its
// request id.
func TestIsCallbackOf(t *testing.T) {
	e := accept(t, `{"asyncCaller":1,"requestId":"r1","call":{"url":"http://a"},"callback":{"url":"http://b"}}`)
	callback := accept(t, string(written(t)(e.CallbackWith(envelope.Report{Status: 200, At: arrival}, limit)).Bytes))
	if callback.Callback != nil || callback.Call.Header.Get("Content-Type") != "application/json" {
		t.Errorf("the callback is %+v", callback)
	}
	foreign := accept(t, `{"asyncCaller":1,"requestId":"r1.callback","call":{"url":"http://a","json":{"Id":"r2"}}}`)
	if !callback.IsCallbackOf("r1") || callback.IsCallbackOf("r1.callback") || foreign.IsCallbackOf("r1") {
		t.Error("the callback is not told from another call with its request id")
	}
}

// TestNexusCallbackIsTheSameTwice checks that the receiver can recognize a duplicate callback by its id.
func TestNexusCallbackIsTheSameTwice(t *testing.T) {
	id := func(message string) string {
		t.Helper()
		content := written(t)(accept(t, message).CallbackWith(envelope.Report{Status: 200, At: arrival}, limit))
		return accept(t, string(content.Bytes)).RequestID
	}
	first := nexusMessage(plainCall, withCallback)
	if again := id(first); again != id(first) {
		t.Error("the callback of one call has two ids")
	}
	if id(first) == id(strings.Replace(first, `"Id":"order-42"`, `"Id":"order-43"`, 1)) {
		t.Error("the callbacks of two calls have one id")
	}
}

// TestCallbackPayload checks that the payload is cut to the available space, and not more.
func TestCallbackPayload(t *testing.T) {
	envelopes := map[envelope.Format]*envelope.Envelope{
		envelope.FormatNative: accept(t,
			`{"asyncCaller":1,"requestId":"order-42","call":{"url":"http://a"},"callback":{"url":"http://b"}}`),
		envelope.FormatNexus: accept(t, nexusMessage(plainCall, withCallback)),
	}
	room := map[envelope.Format]int{envelope.FormatNative: limit - 1000, envelope.FormatNexus: limit*3/4 - 1500}
	for name, c := range map[string]struct {
		payload, want string
		// share is the share of the available space that a cut payload must fill at least, in percent.
		share int
	}{
		"whole":       {"text", "text", 0},
		"not_utf8":    {"a\xffb", "a\ufffdb", 0},
		"not_in_xml":  {"a\uffffb", "a\ufffdb", 0},
		"long_ascii":  {strings.Repeat("a", 100_000), "", 100},
		"long_quotes": {strings.Repeat(`"`, 100_000), "", 49},
		"long_emoji":  {strings.Repeat("😀", 30_000), "", 100},
	} {
		for format, e := range envelopes {
			t.Run(name+"/"+string(format), func(t *testing.T) {
				report := envelope.Report{Status: 200, Payload: c.payload, MediaType: "text/plain", At: arrival}
				content := written(t)(e.CallbackWith(report, limit))
				if len(content.Bytes) > limit {
					t.Fatalf("%d bytes, the queue takes %d", len(content.Bytes), limit)
				}
				got := reportIn(t, content.Bytes)
				if c.share == 0 && (got.Payload != c.want || content.LeftOut != "" || got.PayloadTruncated) {
					t.Errorf("got %q, left out %q", got.Payload, content.LeftOut)
				}
				least := room[format] * c.share / 100
				if c.share > 0 && (len(got.Payload) < least || !strings.HasPrefix(c.payload, got.Payload) ||
					content.LeftOut != "the end of the payload" || !got.PayloadTruncated) {
					t.Errorf("%d bytes, left out %q, truncated %v", len(got.Payload), content.LeftOut,
						got.PayloadTruncated)
				}
				if got.ID != "order-42" || got.StatusCode != 200 || got.PayloadMediaType != "text/plain" {
					t.Errorf("report %+v", got)
				}
			})
		}
	}
}

// TestDeadline checks when an envelope is given up, after it was limited to a month.
func TestDeadline(t *testing.T) {
	const week, month = 7 * 24 * time.Hour, 30 * 24 * time.Hour
	const (
		created = `"createdAt":"2026-01-01T00:00:00Z",`
		early   = `"createdAt":"2026-01-01T00:00:00.5Z",`
		now     = `"createdAt":"2026-01-31T12:00:00Z",`
		future  = `"createdAt":"9999-01-01T00:00:00Z",`
		late    = `"deadline":"9999-12-01T00:00:00Z",`
	)
	for name, c := range map[string]struct {
		members, want string
		limited       bool
	}{
		"from_creation":    {created, "2026-01-08T00:00:00Z", false},
		"own":              {created + `"deadline":"2026-01-01T00:00:05Z",`, "2026-01-01T00:00:05Z", false},
		"from_not_before":  {created + `"notBefore":"2026-01-31T00:00:00Z",`, "2026-02-07T00:00:00Z", false},
		"first_arrival":    {``, "2026-02-07T12:00:00Z", false},
		"latest":           {early + `"deadline":"2026-01-31T00:00:00.5Z",`, "2026-01-31T00:00:00Z", false},
		"too_late":         {early + `"deadline":"2026-01-31T00:00:00.6Z",`, "2026-01-31T00:00:00Z", true},
		"end_of_time":      {`"deadline":"9999-12-31T23:59:59.999999999Z",`, "2026-03-02T12:00:00Z", true},
		"after_not_before": {`"notBefore":"2026-02-10T12:00:00Z",` + late, "2026-03-12T12:00:00Z", true},
		"late_not_before":  {now + `"notBefore":"2027-03-02T12:00:00Z",`, "2027-03-03T12:00:00Z", true},
		"in_future":        {future, "2026-02-07T12:00:00Z", false},
		"all_in_future":    {future + `"nextAttemptAt":"9999-01-01T00:00:00Z",` + late, "2026-03-02T12:00:00Z", true},
		"moved_back":       {`"deadLetter":{},` + late, "2026-02-07T12:00:00Z", false},
	} {
		t.Run(name, func(t *testing.T) {
			e := accept(t, `{"asyncCaller":1,`+c.members+`"call":{"url":"http://a"}}`)
			e.LimitDeadline(week, month)
			if got := e.GiveUpAt(week).Format(time.RFC3339); got != c.want || e.DeadlineLimited != c.limited {
				t.Errorf("deadline %s, limited %v, want %s", got, e.DeadlineLimited, c.want)
			}
			successor := string(written(t)(e.Successor(limit)).Bytes)
			if got := accept(t, successor).GiveUpAt(week).Format(time.RFC3339); got != c.want {
				t.Errorf("the successor's deadline is %s, want %s: %s", got, c.want, successor)
			}
		})
	}
}

// TestNexusDeadlineIsLimited checks that a limited deadline stays the same over the attempts of a message that begins
// late.
func TestNexusDeadlineIsLimited(t *testing.T) {
	const month = 30 * 24 * time.Hour
	e := accept(t, `{"CreatedAt":"9999-01-01T00:00:00Z","NextAttemptAt":"2026-03-12T12:00:00Z",`+
		`"DeadlineAt":"9999-12-31T23:59:59Z",`+rawRequest("")+`}`)
	want := time.Date(2026, 4, 11, 12, 0, 0, 0, time.UTC) // 40 and 30 days after its arrival
	for n, next := range []time.Time{
		e.NextAttemptAt, e.NextAttemptAt.Add(time.Hour), e.NextAttemptAt.Add(month - time.Second),
	} {
		e.NextAttemptAt = next
		e.LimitDeadline(month, month)
		if !e.Deadline.Equal(want) || e.DeadlineLimited != (n == 0) {
			t.Fatalf("attempt %d: deadline %v, limited %v", n+1, e.Deadline, e.DeadlineLimited)
		}
		e = accept(t, string(written(t)(e.Successor(limit)).Bytes))
	}
}

// TestBrokenDeadLetter checks that a member that is only an explanation never prevents a call.
func TestBrokenDeadLetter(t *testing.T) {
	for _, member := range []string{`"by hand"`, `{"attempts":"many"}`, `[]`} {
		if e := accept(t, formats["native"](`,"attempts":9,"deadLetter":`+member)); e.Attempts != 0 {
			t.Errorf("%s: attempts %d", member, e.Attempts)
		}
	}
}
