package route_test

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/route"
)

func deliverable(*envelope.Envelope) error { return nil }

func parse(tb testing.TB, text string) route.Routes {
	tb.Helper()
	routes, err := route.Parse([]byte(text), deliverable)
	if err != nil {
		tb.Fatal(err)
	}
	return routes
}

const whole = `{"orders-in": {"url": "https://shop.example.com/orders", "method": "PUT", "contentType": "text/csv",
	"headers": {"X-Source": "queue", "X-Tags": ["a", "b"]}, "retry": "patient", "deadline": "48h", "priority": 3,
	"callback": {"url": "https://shop.example.com/done"}, "cloudevents": true,
	"http": true, "queue": false, "keepHeaders": ["X-Hub-Signature"]}, "plain": {"url": "http://t.example"}}`

// inserted is when the message of a test was written.
var inserted = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func arrival(content string) route.Arrival {
	return route.Arrival{Content: []byte(content), MessageID: "m-1", InsertedAt: inserted}
}

func envelopeOf(tb testing.TB, r route.Route, content string) *envelope.Envelope {
	tb.Helper()
	e, err := envelope.Parse(r.Envelope(arrival(content)))
	if err != nil {
		tb.Fatalf("%v\n%s", err, r.Envelope(arrival(content)))
	}
	return e
}

func TestParse(t *testing.T) {
	routes := parse(t, whole)
	if got := routes["orders-in"].Successors + " " + routes["plain"].Successors; got != "async-caller-3 async-caller" {
		t.Errorf("envelopes go to %s", got)
	}
	e := envelopeOf(t, routes["orders-in"], "a;b")
	want := http.Header{
		"X-Source": {"queue"}, "X-Tags": {"a", "b"}, "Content-Type": {"text/csv"},
	}
	if diff := cmp.Diff(want, e.Call.Header); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if e.Call.URL != "https://shop.example.com/orders" || e.Call.Method != "PUT" || e.Priority != 3 ||
		e.Callback.URL != "https://shop.example.com/done" || string(e.Retry) != `"patient"` ||
		!e.CreatedAt.Equal(inserted) || !e.Deadline.Equal(inserted.Add(48*time.Hour)) || e.RequestID != "m-1" {
		t.Errorf("%+v", e)
	}
	plain := envelopeOf(t, routes["plain"], "")
	if plain.Call.Method != http.MethodPost || plain.Call.Body.IsNone() || !plain.Deadline.IsZero() ||
		plain.Callback != nil || plain.Retry != nil {
		t.Errorf("%+v", plain)
	}
}

func TestParseErrors(t *testing.T) {
	kept := func(names string) string { return `{"q-1":{"url":"https://t.example","keepHeaders":[` + names + `]}}` }
	for name, c := range map[string]struct{ text, want string }{
		"not_JSON":        {`{`, "line 1"},
		"array":           {`[]`, "object"},
		"twice":           {`{"q-1":{"url":"https://t.example"},"q-1":{"url":"https://u.example"}}`, "q-1"},
		"no_object":       {`{"q-1":"https://t.example"}`, `"q-1": `},
		"no_url":          {`{"q-1":{}}`, `"q-1": url: is missing`},
		"bad_url":         {`{"q-1":{"url":"ftp://t.example"}}`, `"q-1": url: want an absolute`},
		"bad_method":      {`{"q-1":{"url":"https://t.example","method":"A B"}}`, `"q-1": method: `},
		"bad_type":        {`{"q-1":{"url":"https://t.example","contentType":"a\nb"}}`, `"q-1": contentType: `},
		"empty_type":      {`{"q-1":{"url":"https://t.example","contentType":""}}`, `"q-1": contentType: is empty`},
		"bad_header":      {`{"q-1":{"url":"https://t.example","headers":{"X Y":"1"}}}`, `"q-1": headers.`},
		"secret_header":   {`{"q-1":{"url":"https://t.example","headers":{"X":"sec\nret"}}}`, `"q-1": headers.X: `},
		"type_in_headers": {`{"q-1":{"url":"https://t.example","headers":{"content-type":"a/b"}}}`, "contentType"},
		"key_in_headers":  {`{"q-1":{"url":"https://t.example","headers":{"idempotency-key":"1"}}}`, "is the request id"},
		"bad_callback":    {`{"q-1":{"url":"https://t.example","callback":{"url":"x"}}}`, `"q-1": callback.url: `},
		"callback_member": {
			`{"q-1":{"url":"https://t.example","callback":{"url":"https://t.example","headrs":{}}}}`, "callback.headrs",
		},
		"bad_retry":       {`{"q-1":{"url":"https://t.example","retry":"refused"}}`, `"q-1": retry: refused`},
		"bad_deadline":    {`{"q-1":{"url":"https://t.example","deadline":"2027-01-01"}}`, `"q-1": deadline: `},
		"short_deadline":  {`{"q-1":{"url":"https://t.example","deadline":"1ms"}}`, `"q-1": deadline: want`},
		"bad_priority":    {`{"q-1":{"url":"https://t.example","priority":11}}`, `"q-1": priority: `},
		"bad_cloudevents": {`{"q-1":{"url":"https://t.example","cloudevents":"yes"}}`, `"q-1": cloudevents: want true`},
		"bad_http":        {`{"q-1":{"url":"https://t.example","http":null}}`, `"q-1": http: want true`},
		"queue_member":    {`{"q-1":{"url":"https://t.example","queue":0}}`, `"q-1": queue: want true`},
		"neither":         {`{"q-1":{"url":"https://t.example","queue":false}}`, `"q-1": queue: without the queue`},
		"kept_of_none":    {kept(`"X"`), `"q-1": keepHeaders: only posts`},
		"kept_and_set": {
			`{"q-1":{"url":"https://t.example","http":true,"headers":{"x-a":"1"},"keepHeaders":["X-A"]}}`,
			`"q-1": keepHeaders: headers has x-a`,
		},
		"kept_no_array":    {`{"q-1":{"url":"https://t.example","keepHeaders":"X"}}`, `keepHeaders: want an array`},
		"kept_no_name":     {kept(`"X","a b"`), `keepHeaders[1]: not a`},
		"kept_twice":       {kept(`"X","x"`), `keepHeaders[1]: names a`},
		"kept_secret":      {kept(`"authorization"`), `keepHeaders[0]: Auth`},
		"kept_key":         {kept(`"x-functions-key"`), `keepHeaders[0]: X-`},
		"kept_platform":    {kept(`"X-MS-Client-Principal"`), `X-Ms-Client`},
		"kept_hop":         {kept(`"TE"`), `keepHeaders[0]: Te`},
		"unknown_member":   {`{"q-1":{"url":"https://t.example","dedline":"1h"}}`, "did you mean deadline?"},
		"bad_queue":        {`{"Orders":{"url":"https://t.example"}}`, "not the name of a queue"},
		"poison_queue":     {`{"q-1-poison":{"url":"https://t.example"}}`, "poison queue"},
		"queue_of_ours":    {`{"async-caller-3":{"url":"https://t.example"}}`, "queue of envelopes"},
		"later_in_another": {`{"q-1":{"url":"https://t.example"},"q-2":{"url":1}}`, `"q-2": url: `},
	} {
		_, err := route.Parse([]byte(c.text), func(e *envelope.Envelope) error {
			if string(e.Retry) == `"refused"` {
				return strictjson.In("retry", errors.New("refused by the rules"))
			}
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "ret\"") {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// TestFunctionsWithVariables: which functions a route needs is known without the values of variables.
func TestFunctionsWithVariables(t *testing.T) {
	routes, err := route.Parse([]byte(`{"q-1":{"url":"${URL}","http":true,"queue":false},"q-2":{"url":"${URL}"}}`), nil)
	if err != nil || strings.Join(routes.Posts(), " ") != "q-1" || strings.Join(routes.Queues(), " ") != "q-2" {
		t.Errorf("posts %q, queues %q, %v", routes.Posts(), routes.Queues(), err)
	}
}

func TestContentType(t *testing.T) {
	routes := parse(t, `{"q-1":{"url":"https://t.example"},"events":{"url":"https://t.example","cloudevents":true}}`)
	const event = `{"specversion":"1.0","id":"A 1","source":"/s","type":"t","data":{"id":2}}`
	for name, c := range map[string]struct{ queue, content, contentType, id string }{
		"empty":         {"q-1", "", "text/plain; charset=utf-8", "m-1"},
		"object":        {"q-1", `{"a":1,"a":2}`, "application/json", "m-1"},
		"number":        {"q-1", " 1\n", "application/json", "m-1"},
		"marked_object": {"q-1", "\ufeff{\"a\":1}", "application/json", "m-1"},
		"marked_text":   {"q-1", "\ufeff{a}", "text/plain; charset=utf-8", "m-1"},
		"mark":          {"q-1", "\ufeff", "text/plain; charset=utf-8", "m-1"},
		"marked_event":  {"events", "\ufeff" + strings.Replace(event, "A 1", "A-1", 1), "application/cloudevents+json", "A-1"},
		"text":          {"q-1", "{a}", "text/plain; charset=utf-8", "m-1"},
		"binary":        {"q-1", "\xff\xfe{\x00}\x00", "application/octet-stream", "m-1"},
		"no_events":     {"q-1", event, "application/json", "m-1"},
		"event":         {"events", strings.Replace(event, "A 1", "A-1", 1), "application/cloudevents+json", "A-1"},
		"odd_event_id":  {"events", event, "application/cloudevents+json", hashOfA1},
		"no_event":      {"events", `{"id":"A-1","specversion":"1.0","type":"t"}`, "application/json", "m-1"},
		"empty_id":      {"events", strings.Replace(event, "A 1", "", 1), "application/json", "m-1"},
		"id_twice":      {"events", strings.Replace(event, `"id"`, `"id":"x","id"`, 1), "application/json", "m-1"},
		"binary_events": {"events", "\xff", "application/octet-stream", "m-1"},
	} {
		e := envelopeOf(t, routes[c.queue], c.content)
		if got := e.Call.Header.Get("Content-Type"); got != c.contentType || e.RequestID != c.id {
			t.Errorf("%s: %s, id %s, want %s, id %s", name, got, e.RequestID, c.contentType, c.id)
		}
	}
}

// hashOfA1 is the SHA-256 of "A 1".
const hashOfA1 = "937bb40e8164065f6b7bed3ca1f82d44c2b04aafa7e40fe91948f417f0404692"

// FuzzEnvelope: whatever the content is, it is the body of the call byte for byte, and changes nothing else than the
// content type and, with cloudevents, the request id.
func FuzzEnvelope(f *testing.F) {
	for _, seed := range []string{
		"", "text", "\x00\x01\u2028\ufffd\"\\", "\xed\xa0\x80", "\xff\xfe",
		`"},"callback":{"url":"https://evil.example"},"x":"`,
		`{"asyncCaller":1,"call":{"url":"https://evil.example"},"callback":{"url":"https://evil.example"}}`,
		`{"RawRequest":"R0VUIC8="}`,
		`{"specversion":"1.0","id":"` + strings.Repeat("x", 200) + `","source":"/","type":"t"}`,
	} {
		f.Add([]byte(seed))
	}
	routes := parse(f, whole)
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, name := range []string{"orders-in", "plain"} {
			e, none := envelopeOf(t, routes[name], string(content)), envelopeOf(t, routes[name], "")
			if !bytes.Equal(e.Call.Body.Bytes(), content) {
				t.Fatalf("the body is %q", e.Call.Body.Bytes())
			}
			if name == "plain" && e.RequestID != "m-1" || !envelope.ValidRequestID(e.RequestID) {
				t.Fatalf("request id %q", e.RequestID)
			}
			e.Call.Body, none.Call.Body = envelope.Body{}, envelope.Body{}
			e.RequestID = none.RequestID
			e.Call.Header.Del("Content-Type")
			none.Call.Header.Del("Content-Type")
			same := cmp.Equal(e.Call.Header, none.Call.Header) && e.Call.URL == none.Call.URL &&
				e.Call.Method == none.Call.Method && e.Call.Host == none.Call.Host &&
				cmp.Equal(e.Callback, none.Callback) && cmp.Equal(e.Retry, none.Retry) &&
				cmp.Equal(e.State, none.State) && e.Deadline.Equal(none.Deadline) &&
				e.Priority == none.Priority && e.NotBefore.IsZero() && e.Run == "" &&
				e.DeadLetter == nil && e.GiveUp == "" && e.Context == nil
			if !same {
				t.Fatalf("the content has changed the envelope: %+v", e)
			}
		}
	})
}

// TestPostedType: a call has the content type of its post, unless that only says that the bytes must not change.
func TestPostedType(t *testing.T) {
	const octets = "application/octet-stream"
	for _, c := range []struct{ ofRoute, posted, want string }{
		{`,"contentType":"text/csv"`, "application/xml", "application/xml"},
		{`,"contentType":"text/csv"`, octets, "text/csv"},
		{`,"contentType":"text/csv"`, "", "text/csv"},
		{"", octets, octets},
		{"", "", "text/plain; charset=utf-8"},
	} {
		routes, err := route.Parse([]byte(`{"q-1":{"url":"https://t.example","http":true`+c.ofRoute+`}}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		post := route.Post{Header: http.Header{"Content-Length": {"3"}}, Body: []byte("YWJj")}
		if c.posted != octets {
			post.Body = []byte("abc")
		}
		if c.posted != "" {
			post.Header.Set("Content-Type", c.posted)
		}
		arrival, refusal := routes["q-1"].Accept(post, "id", time.Now())
		e, err := envelope.Parse(routes["q-1"].Envelope(arrival))
		if err != nil || refusal != nil || e.Call.Header.Get("Content-Type") != c.want {
			t.Errorf("%+v: %+v, %v, %v", c, refusal, e, err)
		}
	}
}
