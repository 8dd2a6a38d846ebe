package envelope_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/rules/envelope"
)

// limit is the capacity of a queue message in base64: 64 KiB of text.
const limit = 48 << 10

var arrival = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func TestSuccessorKeepsMembers(t *testing.T) {
	const came = `{ "before" : [1, 2], "asyncCaller":1, "requestId":"r1",
		"call" : { "url":"http://a/?q=%7e", "json":{ "a" : 1.0 } , "later":true},
		"context": {"z":1e3}, "mine":{"k": "v"}, "attempts":1, "createdAt":"2026-01-30T00:00:00Z" }`
	e := accept(t, came)
	state := e.State
	state.Attempts = 2
	state.LatestAttemptAt, state.NextAttemptAt = arrival, arrival.Add(10*time.Second)
	state.Trail = envelope.AppendAttempt(state.Trail,
		envelope.Attempt{At: arrival, Status: 503, Took: 1500 * time.Microsecond})
	got, err := e.WithState(state).Successor(limit)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"asyncCaller":1,"requestId":"r1","before":[1, 2],` +
		`"call":{ "url":"http://a/?q=%7e", "json":{ "a" : 1.0 } , ` +
		`"later":true},"context":{"z":1e3},"mine":{"k": "v"},` +
		`"createdAt":"2026-01-30T00:00:00Z","attempts":2,"latestAttemptAt":"2026-01-31T12:00:00Z",` +
		`"nextAttemptAt":"2026-01-31T12:00:10Z",` +
		`"trace":{"traceparent":"00-e81b981ab20f917807a7254a8f8fd86b-b97e42ac081d7353-01"},` +
		`"trail":[{"at":"2026-01-31T12:00:00Z","status":503,"tookMs":1}]}`
	if diff := cmp.Diff(want, string(got.Bytes)); diff != "" {
		t.Errorf("successor (-want +got):\n%s", diff)
	}
}

func TestFirstMessageGivesRequestID(t *testing.T) {
	e := accept(t, `{"asyncCaller":1,"call":{"url":"http://a"}}`)
	content, err := e.Successor(limit)
	if err != nil {
		t.Fatal(err)
	}
	if again := accept(t, string(content.Bytes)); again.RequestID != "message-1" || !again.CreatedAt.Equal(arrival) {
		t.Errorf("request id %q, created %v", again.RequestID, again.CreatedAt)
	}
}

// TestSizeGuarantee checks that an accepted envelope can be rescheduled and dead-lettered with its call unchanged,
// however full the message is.
func TestSizeGuarantee(t *testing.T) {
	for name, members := range map[string]string{
		"only_a_call":         ``,
		"bounded_by_itself":   `,"requestId":"r","deadline":"2026-12-01T00:00:00Z"`,
		"with_context":        `,"context":"` + strings.Repeat("c", 300) + `"`,
		"with_callback":       `,"callback":{"url":"http://b","headers":{"a":"b"}},"context":{"k":"v"}`,
		"with_unknown_member": `,"mine":"` + strings.Repeat("m", 3000) + `"`,
		"with_long_trail": `,"trail":[` + strings.Repeat(`{"at":"2026-01-01T00:00:00Z","status":503,"tookMs":1},`,
			40) + `{"at":"2026-01-01T00:00:00Z"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			accepted := 0
			for spare := 0; spare <= 1000; spare += 53 {
				content := filled(limit-spare, members)
				e, err := envelope.Parse(content)
				if err != nil {
					t.Fatal(err)
				}
				if err := e.Accept(arrival, "message-1", limit); err != nil {
					if _, ok := errors.AsType[*envelope.TooLargeError](err); !ok || accepted > 0 {
						t.Fatalf("spare %d: %v", spare, err)
					}
					continue
				}
				accepted++
				rescheduleManyTimes(t, e, callOf(t, content), 3)
			}
			if accepted == 0 {
				t.Error("nothing was accepted")
			}
		})
	}
}

// TestTheLargestEnvelope checks that 250 bytes are room enough for the state of any envelope (docs/envelope.md).
func TestTheLargestEnvelope(t *testing.T) {
	content := filled(limit-250, `,"retry":{"schedule":["1s"]}`)
	e, err := envelope.Parse(content)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Accept(arrival.Add(time.Millisecond), strings.Repeat("m", 36), limit); err != nil {
		t.Fatal(err)
	}
	rescheduleManyTimes(t, e, callOf(t, content), 50)
	e.LimitDeadline(2*time.Hour, time.Hour)
	rescheduleManyTimes(t, e, callOf(t, content), 50)
}

// TestCallbackFitsWhateverTheTargetAnswers fills a message with the URL of its callback.
func TestCallbackFitsWhateverTheTargetAnswers(t *testing.T) {
	const form = `{"asyncCaller":1,"requestId":"r","call":{"url":"http://a"},"deadline":"2026-12-01T00:00:00Z",` +
		`"callback":{"url":"http://b/%s"}}`
	for n := limit; ; n-- {
		e, err := envelope.Parse(fmt.Appendf(nil, form, strings.Repeat("u", n)))
		if err != nil {
			t.Fatal(err)
		}
		if e.Accept(arrival, "message-1", limit) == nil {
			content, err := e.CallbackWith(longReport(), limit)
			if err != nil {
				t.Fatal(err)
			}
			checkFits(t, content.Bytes, nil)
			accept(t, string(content.Bytes))
			return
		}
	}
}

func TestTooLargeSaysByHowMuch(t *testing.T) {
	e, err := envelope.Parse(filled(limit, ""))
	if err != nil {
		t.Fatal(err)
	}
	tooLarge, ok := errors.AsType[*envelope.TooLargeError](e.Accept(arrival, "message-1", limit))
	if !ok {
		t.Fatal("accepted without room for its id and its deadline")
	}
	shorter := filled(limit-tooLarge.Excess, "")
	e, err = envelope.Parse(shorter)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Accept(arrival, "message-1", limit); err != nil {
		t.Fatalf("shortened by the %d bytes asked for: %v", tooLarge.Excess, err)
	}
	e.LimitDeadline(2*time.Hour, time.Hour)
	rescheduleManyTimes(t, e, callOf(t, shorter), 3)
}

// rescheduleManyTimes makes attempts; each begins with the content that the one before rescheduled, and with all state
// without which the delivery could not continue.
func rescheduleManyTimes(t *testing.T, e *envelope.Envelope, call []byte, rounds int) {
	t.Helper()
	for n := range rounds {
		state := e.State
		state.Attempts++
		state.LatestAttemptAt = arrival.Add(time.Duration(n) * time.Hour)
		state.NextAttemptAt = state.LatestAttemptAt.Add(time.Minute + time.Millisecond)
		state.Ticket = envelope.MaxTicket
		state.Trail = envelope.AppendAttempt(state.Trail,
			envelope.Attempt{At: state.LatestAttemptAt, Error: "timeout: no answer in time", Took: time.Minute})
		successor, err := e.WithState(state).Successor(limit)
		if err != nil {
			t.Fatalf("reschedule %d: %v", n, err)
		}
		checkFits(t, successor.Bytes, call)
		state.Latest = &envelope.Answer{
			Status: 503, Header: http.Header{"Content-Type": {longMediaType}},
			Body: []byte(strings.Repeat("\"\x00é", 40000)),
		}
		why := envelope.DeadLetter{
			At: arrival, Reason: "certificate", Detail: strings.Repeat("d", 5000),
			Queue: "async-caller",
		}
		dead, err := e.WithState(state).DeadLettered(why, limit)
		if err != nil {
			t.Fatalf("dead letter %d: %v", n, err)
		}
		checkFits(t, dead.Bytes, call)
		if !bytes.Contains(dead.Bytes, []byte(`"reason":"certificate"`)) {
			t.Fatal("the dead letter has no reason")
		}
		if e.Callback != nil {
			report := envelope.Report{
				Status: 200, Payload: strings.Repeat("\"\x00é", 40000), MediaType: longMediaType,
				Reason: "temporary_status", At: arrival,
			}
			callback, err := e.CallbackWith(report, limit)
			if err != nil {
				t.Fatalf("callback %d: %v", n, err)
			}
			checkFits(t, callback.Bytes, nil)
		}
		next := accept(t, string(successor.Bytes))
		checkState(t, e.WithState(state), next)
		e = next
	}
}

// checkState checks that a successor has all state without which the delivery could not continue. Times of Nexus
// envelopes may be cut to seconds.
func checkState(t *testing.T, want, got *envelope.Envelope) {
	t.Helper()
	same := func(a, b time.Time) bool { return a.Sub(b).Abs() < time.Second }
	const week = 7 * 24 * time.Hour
	if got.Attempts != want.Attempts || got.Ticket != want.Ticket || !same(got.CreatedAt, want.CreatedAt) ||
		!same(got.DueAt(), want.DueAt()) || !same(got.GiveUpAt(week), want.GiveUpAt(week)) {
		t.Fatalf("the successor has the state\n%+v, want\n%+v", got.State, want.State)
	}
}

func checkFits(t *testing.T, content, call []byte) {
	t.Helper()
	if len(content) > limit {
		t.Fatalf("%d bytes, the queue takes %d", len(content), limit)
	}
	if call != nil && !bytes.Equal(callOf(t, content), call) {
		t.Fatal("the call has changed")
	}
}

func TestTrailKeepsTheFirstAndTheLast(t *testing.T) {
	var trail []envelope.Attempt
	for n := range 200 {
		trail = envelope.AppendAttempt(trail, envelope.Attempt{
			At:     arrival.Add(time.Duration(n) * time.Minute),
			Status: 500, Took: time.Second,
		})
	}
	minutes := func(i int) int { return int(trail[i].At.Sub(arrival).Minutes()) }
	if minutes(0) != 0 || minutes(1) != 1 || minutes(2) != 2 {
		t.Errorf("the first attempts are gone: %v", trail[:3])
	}
	if n := len(trail); minutes(n-1) != 199 || minutes(n-2) != 198 || n < 10 || n > 100 {
		t.Errorf("%d attempts kept, the last is %d", n, minutes(n-1))
	}
	e := accept(t, `{"asyncCaller":1,"call":{"url":"http://a"}}`)
	with, err := e.WithState(envelope.State{Trail: trail}).Successor(limit)
	if err != nil {
		t.Fatal(err)
	}
	without, err := e.WithState(envelope.State{}).Successor(limit)
	if err != nil {
		t.Fatal(err)
	}
	if grown := len(with.Bytes) - len(without.Bytes); grown > 2<<10+len(`,"trail":`) {
		t.Errorf("the trail takes %d bytes", grown)
	}
}

// TestStateKeepsToWhatParseAccepts appends to the longest trail that is accepted, and writes the most attempts.
func TestStateKeepsToWhatParseAccepts(t *testing.T) {
	extreme := []string{
		`{"asyncCaller":1,"call":{"url":"http://a"},"attempts":2147483647,"trail":[%s{}]}`,
		`{"RawRequest":{"CallOut":"R0VUIC8gSFRUUC8xLjENCkhvc3Q6IGENCg0K"},"attempts":2147483647,"Trail":[%s{}]}`,
	}
	for _, form := range extreme {
		e := accept(t, fmt.Sprintf(form, strings.Repeat("{},", 99)))
		for _, took := range []time.Duration{-time.Hour, 25 * time.Hour, math.MaxInt64} {
			state := e.State
			state.Trail = envelope.AppendAttempt(state.Trail, envelope.Attempt{At: arrival, Status: 999, Took: took})
			successor, err := e.WithState(state).Successor(limit)
			if err != nil {
				t.Fatal(err)
			}
			e = accept(t, string(successor.Bytes))
		}
		if e.Attempts != envelope.MaxAttempts || len(e.Trail) > 100 {
			t.Errorf("%d attempts, a trail of %d", e.Attempts, len(e.Trail))
		}
	}
}

func TestDeadLetterSaysWhy(t *testing.T) {
	e := accept(t,
		`{"asyncCaller":1,"requestId":"r1","call":{"url":"http://a"},"createdAt":"2026-01-30T00:00:00Z","attempts":3}`)
	got, err := e.DeadLettered(envelope.DeadLetter{
		At: arrival, Reason: "expired", Detail: "answered 503",
		Queue: "async-caller-3", Attempts: 3,
	}, limit)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"asyncCaller":1,"requestId":"r1","call":{"url":"http://a"},"createdAt":"2026-01-30T00:00:00Z",` +
		`"attempts":3,` +
		`"trace":{"traceparent":"00-e81b981ab20f917807a7254a8f8fd86b-b97e42ac081d7353-01"},` +
		`"deadLetter":{"at":"2026-01-31T12:00:00Z","reason":"expired","detail":"answered ` +
		`503","queue":"async-caller-3","attempts":3}}`
	if diff := cmp.Diff(want, string(got.Bytes)); diff != "" {
		t.Errorf("dead letter (-want +got):\n%s", diff)
	}
}

func TestCallback(t *testing.T) {
	e := accept(t, `{"asyncCaller":1,"requestId":"r1","call":{"url":"http://a"},"context":{ "order": 42 },
		"trace":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-00","tracestate":"a=1"},
		"callback":{"url":"https://sender.example/done?x=1","method":"PUT","headers":{"x-key":["1"]}}}`)
	got, err := e.CallbackWith(envelope.Report{
		Status: 200, Payload: `{"ok":"<yes>"}`, Attempts: 2, Reason: "delivered",
		At: arrival,
	}, limit)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"asyncCaller":1,"requestId":"r1.callback","createdAt":"2026-01-31T12:00:00Z",` +
		`"trace":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-` + e.Trace.SpanID + `-00","tracestate":"a=1"},` +
		`"call":{"url":"https://sender.example/done?x=1","method":"PUT","headers":{"x-key":["1"]},"json":` +
		`{"Id":"r1","Context":{ "order": 42 ` +
		`},"StatusCode":200,"Payload":"{\"ok\":\"<yes>\"}","PayloadMediaType":"application/json",` +
		`"Attempts":2,"Reason":"delivered","PayloadTruncated":false}}}`
	if diff := cmp.Diff(want, string(got.Bytes)); diff != "" {
		t.Fatalf("callback (-want +got):\n%s", diff)
	}
	callback := accept(t, string(got.Bytes))
	if callback.Callback != nil || callback.Attempts != 0 || callback.Call.Method != "PUT" ||
		callback.Call.Header.Get("Content-Type") != "application/json" {
		t.Errorf("the callback is not an envelope of its own: %+v", callback)
	}
	foreign := accept(t, `{"asyncCaller":1,"requestId":"r1.callback","call":{"url":"http://a","json":{"Id":"r2"}}}`)
	if !callback.IsCallbackOf("r1") || callback.IsCallbackOf("r1.callback") || foreign.IsCallbackOf("r1") {
		t.Error("the callback is not told from another call with its request id")
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
		"whole":       {payload: "text", want: "text"},
		"not_utf8":    {payload: "a\xffb", want: "a\ufffdb"},
		"not_in_xml":  {payload: "a\uffffb", want: "a\ufffdb"},
		"long_ascii":  {payload: strings.Repeat("a", 100_000), share: 100},
		"long_quotes": {payload: strings.Repeat(`"`, 100_000), share: 49},
		"long_emoji":  {payload: strings.Repeat("😀", 30_000), share: 100},
	} {
		for format, e := range envelopes {
			t.Run(name+"/"+string(format), func(t *testing.T) {
				content, err := e.CallbackWith(envelope.Report{
					Status: 200, Payload: c.payload, MediaType: "text/plain",
					At: arrival,
				}, limit)
				if err != nil {
					t.Fatal(err)
				}
				checkFits(t, content.Bytes, nil)
				got := reportIn(t, content.Bytes)
				if c.share == 0 && (got.Payload != c.want || content.LeftOut != "" || got.PayloadTruncated) {
					t.Errorf("got %q, left out %q", got.Payload, content.LeftOut)
				}
				least := room[format] * c.share / 100
				if c.share > 0 && (len(got.Payload) < least || !strings.HasPrefix(c.payload, got.Payload) ||
					content.LeftOut != "the end of the payload") {
					t.Errorf("%d bytes, left out %q", len(got.Payload), content.LeftOut)
				}
				if got.PayloadTruncated != (c.share > 0) {
					t.Errorf("truncated %v", got.PayloadTruncated)
				}
				if got.ID != "order-42" || got.StatusCode != 200 || got.PayloadMediaType != "text/plain" {
					t.Errorf("report %+v", got)
				}
			})
		}
	}
}

// FuzzEnvelope checks that every accepted envelope can be rescheduled, keeps its call, and parses to the same again.
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
	f.Fuzz(func(t *testing.T, content []byte) {
		e, err := envelope.Parse(content)
		if err != nil || e.Accept(arrival, "message-1", limit) != nil {
			return
		}
		e.LimitDeadline(time.Hour, 2*time.Hour)
		if e.DeadlineLimited && !e.NotBefore.Before(e.Deadline) {
			return // it is given up at once
		}
		first, err := e.Successor(limit)
		if err != nil {
			t.Fatalf("accepted, but cannot be rescheduled: %v", err)
		}
		again := accept(t, string(first.Bytes))
		if again.LimitDeadline(time.Hour, 2*time.Hour); again.DeadlineLimited {
			t.Fatalf("the deadline was limited twice: %s", first.Bytes)
		}
		if diff := cmp.Diff(e.Call, again.Call); diff != "" {
			t.Fatalf("the call has changed:\n%s", diff)
		}
		second, err := again.Successor(limit)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first.Bytes, second.Bytes) {
			t.Fatalf("not stable:\n%s\n%s", first.Bytes, second.Bytes)
		}
		rescheduleManyTimes(t, e, callOf(t, content), 1)
		if e.Callback == nil {
			return
		}
		callback, err := e.CallbackWith(envelope.Report{Status: 200, Payload: string(content), At: arrival}, limit)
		if err != nil {
			t.Fatalf("accepted, but its callback cannot be written: %v", err)
		}
		accept(t, string(callback.Bytes))
	})
}

func accept(t *testing.T, content string) *envelope.Envelope {
	t.Helper()
	e, err := envelope.Parse([]byte(content))
	if err != nil {
		t.Fatalf("parse: %v\n%.500s", err, content)
	}
	if err := e.Accept(arrival, "message-1", limit); err != nil {
		t.Fatal(err)
	}
	return e
}

// filled returns an envelope of exactly size bytes.
func filled(size int, members string) []byte {
	const form = `{"asyncCaller":1,"call":{"url":"http://target.example/","body":"%s"}%s}`
	empty := len(fmt.Sprintf(form, "", members))
	return fmt.Appendf(nil, form, strings.Repeat("b", size-empty), members)
}

func callOf(t *testing.T, content []byte) []byte {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(content, &members); err != nil {
		t.Fatal(err)
	}
	return members["call"]
}
