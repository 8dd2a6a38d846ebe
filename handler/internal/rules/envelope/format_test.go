package envelope_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"asynccaller/handler/internal/rules/dotnet"
	"asynccaller/handler/internal/rules/envelope"
)

var (
	arrival = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	// oddArrival has as many digits as a time can have.
	oddArrival = arrival.Add(123456700 * time.Nanosecond)
)

// formats return a message of each format with further members. The letter case of members does not matter in a Nexus
// message.
var formats = map[string]func(members string) string{
	"native": func(members string) string {
		return `{"asyncCaller":1,"requestId":"r1","call":{"url":"http://a"}` + members + `}`
	},
	"nexus": func(members string) string { return `{` + rawRequest(`,"Id":"r1"`) + members + `}` },
}

// plainCall is the smallest CallOut.
const plainCall = "GET /orders HTTP/1.1\r\nHost: target.example\r\n\r\n"

// withCallback are members of a RawRequest that ask for a callback to https://sender.example/done.
var withCallback = `,"CallBack":"` + inBase64("POST /done HTTP/1.1\r\nHost: sender.example\r\n\r\n") +
	`","CallBackUriScheme":"https"`

func inBase64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// nexusMessage returns a message with this CallOut and more members of RawRequest.
func nexusMessage(callOut, more string) string {
	return `{"Organization":"acme","Environment":"prod","OriginalRequestId":"order-42","Attempts":0,` +
		`"CreatedAt":"2026-01-31T11:00:00+00:00","LatestAttemptAt":"0001-01-01T00:00:00+00:00","LatestResponse":null,` +
		`"DeadlineAt":"2026-02-07T11:00:00+00:00","NextAttemptAt":"2026-01-31T11:00:00+00:00",` +
		`"RawRequest":{"Id":"order-42","CallOut":"` + inBase64(callOut) + `"` + more + `}}`
}

// nexusWith returns a Nexus message with further members of the envelope, and of its RawRequest.
func nexusWith(members, raw string) string {
	return strings.TrimSuffix(nexusMessage(plainCall, raw), "}") + members + "}"
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

// written returns a content.
func written(t *testing.T) func(envelope.Content, error) envelope.Content {
	t.Helper()
	return func(c envelope.Content, err error) envelope.Content {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestParse reads an envelope with all members in each format.
func TestParse(t *testing.T) {
	day := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	half := 500 * time.Millisecond
	trail := func(status int) []envelope.Attempt {
		return []envelope.Attempt{{At: day.Add(11*time.Hour + half), Status: status, Took: 20 * time.Millisecond}}
	}
	for format, c := range map[envelope.Format]struct {
		content string
		want    envelope.Envelope
	}{
		envelope.FormatNative: {
			`{
				"asyncCaller": 1.0,
				"requestId": "order-42",
				"call": {
					"url": "https://target.example/orders?x=1", "method": "put",
					"headers": {"x-one": "1", "X-Many": ["a", "b"], "Host": "other.example:8080"},
					"json": {"a" :  [1,2] }, "timeout": "PT30S"
				},
				"callback": {"url": "https://sender.example/done"},
				"context": {"k": [null]},
				"priority": 3.0,
				"notBefore": "2026-01-31 13:00:00+0100", "deadline": "2026-02-01T00:00Z",
				"retry": {"schedule": ["5s", 60], "maxAttempts": 4},
				"giveUp": "drop",
				"attempts": 2e0, "createdAt": "2026-01-31T10:00:00Z",
				"latestAttemptAt": "2026-01-31T11:00:00.5Z", "nextAttemptAt": "2026-01-31T12:30:00Z",
				"trail": [{"at": "2026-01-31T11:00:00.5Z", "status": 503, "tookMs": 20}]
			}`,
			envelope.Envelope{
				RequestID: "order-42",
				Call: envelope.Call{
					URL: "https://target.example/orders?x=1", Method: "PUT", Host: "other.example:8080",
					Target:   mustURL(t, "https://target.example/orders?x=1"),
					Header:   http.Header{"X-One": {"1"}, "X-Many": {"a", "b"}, "Content-Type": {"application/json"}},
					Spelling: dotnet.Spelling{"X-One": "x-one"},
					Body:     envelope.BodyOf([]byte(`{"a" :  [1,2] }`)),
					Timeout:  30 * time.Second,
				},
				Callback:  &envelope.Callback{URL: "https://sender.example/done"},
				Context:   json.RawMessage(`{"k": [null]}`),
				Priority:  3,
				NotBefore: day.Add(12 * time.Hour),
				Deadline:  day.Add(24 * time.Hour),
				Retry:     json.RawMessage(`{"schedule": ["5s", 60], "maxAttempts": 4}`),
				GiveUp:    envelope.GiveUpDrop,
				State: envelope.State{
					Attempts: 2, CreatedAt: day.Add(10 * time.Hour), LatestAttemptAt: day.Add(11*time.Hour + half),
					NextAttemptAt: day.Add(12*time.Hour + 30*time.Minute), Trail: trail(503),
				},
			},
		},
		envelope.FormatNexus: {
			`{"Organization":"acme","Environment":"prod","OriginalRequestId":"the-first-one","Attempts":2,
				"CreatedAt":"2026-01-31T11:00:00.1234567+01:00","LatestAttemptAt":"2026-01-31T11:00:00.5Z",
				"LatestResponse":"` + inBase64("HTTP/1.1 504 No\r\nServer: a, b\r\nExpires: -1\r\n\r\ntoo late") + `",
				"DeadlineAt":"2026-02-01T00:00:00","NextAttemptAt":"2026-01-31T12:30:00+00:00",
				"RawRequest":{"Id":"order-42","Title":"t","Context":"` + inBase64(`{"k": [1]}`) + `",
				"CallOut":"` + inBase64("PUT /a%2Fb?x=1+2 HTTP/1.1\r\nHost: target.example:8443\r\nAccept: a, b\r\n"+
				"Cookie: c=1\r\nCookie: d=2\r\nContent-Type: text/plain\r\n\r\nhello") + `","CallOutUriScheme":"HTTPS",
				"CallBack":"` + inBase64("POST /done HTTP/1.1\r\nHost: s.example\r\n\r\n") + `",
				"CallBackUriScheme":"","Priority":10},
				"Trail":[{"At":"2026-01-31T11:00:00.5Z","Status":504,"TookMs":20}]}`,
			envelope.Envelope{
				RequestID: "order-42", OriginalRequestID: "the-first-one",
				Tenant: envelope.Tenant{Organization: "acme", Environment: "prod"},
				Call: envelope.Call{
					URL: "https://target.example:8443/a%2Fb?x=1+2", Method: "PUT",
					Target: mustURL(t, "https://target.example:8443/a%2Fb?x=1+2"),
					Header: http.Header{"Accept": {"a, b"}, "Cookie": {"c=1", "d=2"}, "Content-Type": {"text/plain"}},
					Body:   envelope.BodyOf([]byte("hello")),
				},
				Callback: &envelope.Callback{URL: "http://s.example/done"},
				Context:  json.RawMessage(`{"k": [1]}`),
				Priority: 10,
				Deadline: day.Add(24 * time.Hour),
				State: envelope.State{
					Attempts: 2, CreatedAt: day.Add(10*time.Hour + 123456700),
					LatestAttemptAt: day.Add(11*time.Hour + half),
					NextAttemptAt:   day.Add(12*time.Hour + 30*time.Minute), Trail: trail(504),
					Latest: &envelope.Answer{
						Status: 504, Body: []byte("too late"),
						Header: http.Header{"Server": {"a, b"}, "Expires": {"-1"}},
					},
				},
			},
		},
	} {
		t.Run(string(format), func(t *testing.T) {
			got, err := envelope.Parse([]byte(c.content))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&c.want, got, wholeBody, cmpopts.IgnoreUnexported(envelope.Envelope{})); diff != "" {
				t.Errorf("envelope (-want +got):\n%s", diff)
			}
			if got.Format() != format {
				t.Errorf("format %q", got.Format())
			}
		})
	}
}

// TestRefuses checks that errors say where the mistake is, and never contain C4nary, which is in every value that may
// be secret. What an HTTP request of a Nexus message must be is in package dotnet.
func TestRefuses(t *testing.T) {
	native, top := formats["native"], formats["nexus"]
	call := func(members string) string { return `{"asyncCaller":1,"call":{"url":"http://a",` + members + `}}` }
	at := func(target string) string { return fmt.Sprintf(`{"asyncCaller":1,"call":{"url":%q}}`, target) }
	header := func(members string) string { return call(`"headers":{` + members + `}`) }
	raw := func(members string) string { return nexusMessage(plainCall, members) }
	callOut := func(message string) string { return nexusMessage(message, `,"Title":"C4nary"`) }
	callBack := func(message string) string { return raw(`,"CallBack":"` + inBase64(message) + `"`) }
	for _, c := range []struct{ content, want string }{
		{``, "not JSON: line 1, column 1"},
		{`hello`, "not JSON: line 1, column 1"},
		{"{\n \"asyncCaller\": 1,\n \"call\": x}", "not JSON: line 3, column 10"},
		{`{"asyncCaller":1} x`, "not JSON: line 1, column 19"},
		{"{\"asyncCaller\":1,\"x\":\"\xff\"}", "not JSON: line 1, column 23: invalid UTF-8"},
		{`{/* C4nary */"RawRequest":{}}`, "not JSON: line 1, column 2"},
		{`[]`, "want an object, not an array"},
		{`1`, "want an object, not a number"},
		// The marker of the format.
		{`{"call":{"url":"http://a"}}`, "asyncCaller: missing"},
		{`{"asyncCaller":null,"call":{"url":"https://t.example/"}}`, "asyncCaller: missing"},
		{`{"RawRequest":null,"x":"C4nary"}`, "asyncCaller: missing, and so is RawRequest"},
		{`{"asyncCaller":3}`, "asyncCaller: want 1 or 2"},
		{`{"asyncCaller":"1"}`, "asyncCaller: want 1 or 2"},
		{`{"asyncCaller":1,"rawrequest":{}}`, "asyncCaller: appears together with RawRequest"},
		// Members that appear twice.
		{native(`,"call":{"url":"http://b"}`), "call: appears twice"},
		{call(`"body":"x","body":"y"`), "call.body: appears twice"},
		{top(`,"attempts":1,"Attempts":1`), "Attempts: appears twice"},
		{top(`,"rawRequest":{}`), "RawRequest: appears twice"},
		{raw(`,"ID":"C4nary"`), "RawRequest.Id: appears twice"},
		// The call.
		{`{"asyncCaller":1}`, "call: missing"},
		{`{"asyncCaller":1,"Call":{"url":"http://a"}}`, "call: missing"},
		{`{"asyncCaller":1,"call":"GET /"}`, "call: want an object, not a string"},
		{`{"asyncCaller":1,"call":{}}`, "call.url: missing"},
		{`{"asyncCaller":1,"call":{"url":1}}`, "call.url: want a string, not a number"},
		{at("/C4nary"), "call.url: want an absolute http or https URL"},
		{at("ftp://C4nary"), "call.url: want an absolute http or https URL"},
		{at("http:///C4nary"), "call.url: the URL has no host"},
		{at("http://a:99999/C4nary"), "call.url: the URL's port"},
		{at("http://a/?C4nary x"), "call.url: the URL holds a space: write it as %20"},
		{at("http://[C4nary"), "call.url: not a URL"},
		{at("http://a/\nC4nary"), "call.url: not a URL"},
		{call(`"method":"GET /C4nary"`), "call.method: not an HTTP method"},
		{call(`"method":"` + strings.Repeat("X", 33) + `"`), "call.method: not an HTTP method"},
		{call(`"method":"connect"`), "call.method: CONNECT"},
		{header(`"a b":"C4nary"`), `call.headers.a…: not a header name`},
		{header(`"a":"x\r\nC4nary: 1"`), "call.headers.a: holds a line break"},
		{header(`"a":["x","C4nary\u0000"]`), "call.headers.a[1]: holds a line break"},
		{header(`"a":1`), "call.headers.a: want a string or an array of strings"},
		{header(`"host":["a","b"]`), "call.headers.host: want one host name"},
		{header(`"host":"a","Host":"a"`), "call.headers.Host: want one host name"},
		{call(`"body":"C4nary","json":{}`), "call.json: appears together with body"},
		{call(`"bodyBase64":"C4nary!"`), "call.bodyBase64: not base64"},
		{call(`"body":"C4nary\ud800"`), "call.body: holds half of a surrogate pair"},
		{call(`"timeout":0`), "call.timeout: want a duration above zero"},
		{call(`"timeout":"soon"`), "call.timeout: want a duration"},
		{call(`"timeout":"-1s"`), "call.timeout: a duration cannot be negative"},
		{`{"RawRequest":42}`, "RawRequest: want an object, not a number"},
		{`{"RawRequest":{"CallOut":null,"Title":"C4nary"}}`, "RawRequest.CallOut: missing"},
		{`{"RawRequest":{"CallOut":42}}`, "RawRequest.CallOut: want a string, not a number"},
		{`{"RawRequest":{"CallOut":"C4nary!"}}`, "RawRequest.CallOut: not base64"},
		{`{"RawRequest":{"CallOut":"C4nary7"}}`, "RawRequest.CallOut: not base64"},
		{`{"RawRequest":{"CallOut":""}}`, "RawRequest.CallOut: request line: "},
		{callOut("GET /C4nary HTTP/1.1\nHost: a\n\n"), "RawRequest.CallOut: request line: no line end"},
		{callOut("CONNECT /C4nary HTTP/1.1\r\nHost: a\r\n\r\n"), "RawRequest.CallOut: request line: CONNECT"},
		{callOut("GET /C4nary HTTP/1.1\r\n\r\n"), "RawRequest.CallOut: header Host: missing"},
		{callOut("GET /C4nary HTTP/1.1\r\nHost: a:99999\r\n\r\n"), "RawRequest.CallOut: the URL's port"},
		{callOut("GET / HTTP/1.1\r\nHost: a%zzC4nary.example\r\n\r\n"), "RawRequest.CallOut: "},
		{raw(`,"CallOutUriScheme":"ftp"`), `RawRequest.CallOutUriScheme: want "http" or "https"`},
		{raw(`,"CallOutUriScheme":1`), "RawRequest.CallOutUriScheme: want a string"},
		// The callback.
		{native(`,"callback":{"url":"C4nary"}`), "callback.url: want an absolute"},
		{native(`,"callback":{}`), "callback.url: missing"},
		{native(`,"callback":{"url":"http://a","headers":{"a":"\n"}}`), "callback.headers.a: holds a line break"},
		{native(`,"callback":{"url":"http://a","headers":{"Host":"C4nary:1:1"}}`), "callback.headers.Host: want one"},
		{raw(`,"CallBack":"C4nary!"`), "RawRequest.CallBack: not base64"},
		{callBack("GET / HTTP/1.1\r\nHost: a\r\nC4nary\r\n\r\n"), "RawRequest.CallBack: header line 2: no colon"},
		{callBack("CONNECT /C4nary HTTP/1.1\r\nHost: a\r\n\r\n"), "RawRequest.CallBack: request line: CONNECT"},
		{raw(`,"CallBackUriScheme":"ftp"`), `RawRequest.CallBackUriScheme: want "http" or "https"`},
		// The other members.
		{`{"asyncCaller":1,"requestId":""}`, "requestId: want 1 to 128 visible ASCII characters"},
		{`{"asyncCaller":1,"requestId":"a b"}`, "requestId: want 1 to 128"},
		{`{"asyncCaller":1,"requestId":"` + strings.Repeat("x", 129) + `"}`, "requestId: want 1 to 128"},
		{native(`,"priority":11`), "priority: want a whole number from 1 to 10"},
		{native(`,"priority":1.5`), "priority: want a whole number"},
		{native(`,"notBefore":"tomorrow"`), "notBefore: want a time"},
		{native(`,"notBefore":"2026-02-01T00:00Z","deadline":"2026-02-01T00:00Z"`), "deadline: is not after"},
		{native(`,"giveUp":"never"`), `giveUp: want "dead-letter", "drop" or "fault"`},
		{native(`,"attempts":-1`), "attempts: want a whole number from 0"},
		{native(`,"trail":{}`), "trail: want an array, not an object"},
		{native(`,"trail":[{"at":"x"}]`), "trail[0].at: want a time"},
		{native(`,"context":` + strings.Repeat("[", 1001) + strings.Repeat("]", 1001)), "context: nested deeper"},
		{raw(`,"Context":"C4nary!"`), "RawRequest.Context: not base64"},
		{raw(`,"Context":{"a":"C4nary"}`), "RawRequest.Context: want a string, not an object"},
		{`{"RawRequest":{"Id":42}}`, "RawRequest.Id: want a string, not a number"},
		{top(`,"Attempts":"C4nary"`), "Attempts: want a whole number"},
		{top(`,"Attempts":-1`), "Attempts: want a whole number"},
		{top(`,"CreatedAt":"C4nary"`), "CreatedAt: not a date"},
		{top(`,"CreatedAt":1`), "CreatedAt: want a string"},
		{top(`,"DeadlineAt":"2026-02-30T11:00:00"`), "DeadlineAt: not a date"},
		{top(`,"NextAttemptAt":"31/01/2026"`), "NextAttemptAt: not a date"},
		{top(`,"LatestResponse":"C4nary!"`), "LatestResponse: not base64"},
		{top(`,"Organization":42`), "Organization: want a string, not a number"},
		{top(`,"Trail":"C4nary"`), "Trail: want an array, not a string"},
		{top(`,"Trail":[{"Status":"C4nary"}]`), "Trail[0].Status: want a whole number"},
	} {
		_, err := envelope.Parse([]byte(c.content))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "C4nary") {
			t.Errorf("%s: error %v, want %q and no secret", c.content, err, c.want)
		}
	}
}

func TestParseCall(t *testing.T) {
	const asJSON = "application/json"
	for _, c := range []struct{ members, method, body, contentType string }{
		{``, "GET", "", ""},
		{`,"body":"text"`, "POST", "text", ""},
		{`,"body":""`, "POST", "", ""},
		{`,"body":"\u00e5\n\ud83d\ude00"`, "POST", "å\n😀", ""},
		{`,"bodyBase64":"AP8="`, "POST", "\x00\xff", ""},
		{`,"json":[ 1.0, 1e2 ,"\u00e5"]`, "POST", `[ 1.0, 1e2 ,"\u00e5"]`, asJSON},
		{`,"json":null`, "POST", "null", asJSON},
		{`,"json":1,"headers":{"content-type":"application/x+json"}`, "POST", "1", "application/x+json"},
		{`,"later":{"version":2}`, "GET", "", ""},
		{`,"method":"PURGE"`, "PURGE", "", ""},
		{`,"method":"delete"`, "DELETE", "", ""},
	} {
		call := accept(t, `{"asyncCaller":1,"call":{"url":"http://a"`+c.members+`}}`).Call
		got := call.Header.Get("Content-Type")
		if call.Method != c.method || string(call.Body.Bytes()) != c.body || got != c.contentType {
			t.Errorf("%s: %s %q %q, want %s %q %q", c.members, call.Method, call.Body.Bytes(), got, c.method, c.body,
				c.contentType)
		}
	}
}

// TestMalformedHosts checks that a Host header is a host with at most a port, and nothing that programs read
// differently.
func TestMalformedHosts(t *testing.T) {
	parse := func(host string) (*envelope.Envelope, error) {
		const form = `{"asyncCaller":1,"call":{"url":"http://a","headers":{"hOsT":[%q]}}}`
		return envelope.Parse(fmt.Appendf(nil, form, host))
	}
	for _, host := range []string{
		"", " ", "b.example:80:80", "b.example:", "b.example:x", "b.example:0", "b.example:65536", "b.example:-1",
		"b.example:+80", ":80", "b%2eexample", "%62.example", "b.example%00", "b .example", " b.example", "b.example\t",
		"b..example", ".b.example", "b.example..", ".", "u@b.example", "u:p@b.example", "b.example/", "b.example?q",
		"b.example#f", "b.example\\x", "b.example,c.example", "b.example;c", "http://b.example", "[b.example]", "[::1",
		"::1", "[::1]80", "[::1%25eth0]", "[::1%eth0]", "[127.0.0.1]", "[[::1]]", "[]", "b。example", "bücher.example",
		"*.example", "0x7f.1", "0177.0.0.1", "2130706433", strings.Repeat("a", 64), strings.Repeat("a.", 128),
	} {
		if e, err := parse(host); err == nil {
			t.Errorf("%q was accepted: %q", host, e.Call.Host)
		} else if !strings.Contains(err.Error(), "call.headers.hOsT: ") {
			t.Errorf("%q: the error is %v", host, err)
		}
	}
	for _, host := range []string{
		"b.example", "B.Example.:8080", "my_host", "xn--bcher-kva.example", "10.0.0.1:80", "[::1]", "[2001:DB8::1]:443",
	} {
		if e, err := parse(host); err != nil || e.Call.Host != host {
			t.Errorf("%q: %v", host, err)
		}
	}
}

// TestHostsInUnicode checks that the host of a call is in ASCII and that the envelope keeps its bytes.
func TestHostsInUnicode(t *testing.T) {
	for host, want := range map[string]string{
		"x。a.example": "x.a.example", "bücher.example:8443": "xn--bcher-kva.example:8443", "１２７.0.0.1": "127.0.0.1",
		"A.Example:80": "A.Example:80",
	} {
		callOut := "GET /p?q HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
		for kept, content := range map[string]string{
			`"url":"http://u@` + host + `/p?q"`: `{"asyncCaller":1,"call":{"url":"http://u@` + host + `/p?q"}}`,
			inBase64(callOut):                   nexusMessage(callOut, ""),
		} {
			e := accept(t, content)
			if e.Call.Target.Host != want || e.Call.Target.RequestURI() != "/p?q" {
				t.Errorf("%s is called as %s", host, e.Call.Target)
			}
			if successor := written(t)(e.Successor(limit)); !strings.Contains(string(successor.Bytes), kept) {
				t.Errorf("%s was written as %s", content, successor.Bytes)
			}
		}
	}
}

// TestNullIsAbsent: an envelope with null in a place means the same as one without it, and keeps its bytes.
func TestNullIsAbsent(t *testing.T) {
	native, nexus := formats["native"], formats["nexus"]
	call := func(members string) string { return `{"asyncCaller":1,"call":{"url":"http://a"` + members + `}}` }
	for _, c := range []struct{ with, without string }{
		{call(`,"headers":{"X-Correlation-ID":null,"A":"b"}`), call(`,"headers":{"A":"b"}`)},
		{call(`,"headers":{"Host":null}`), call(``)},
		{call(`,"headers":{"json":null,"not a name":null}`), call(``)},
		{call(`,"headers":{"Content-Type":null},"json":null`), call(`,"json":null`)},
		{call(`,"headers":{"A":[null,"b",null,"c"]}`), call(`,"headers":{"A":["b","c"]}`)},
		{call(`,"headers":{"A":[null]}`), call(`,"headers":{"A":[]}`)},
		{call(`,"method":null,"headers":null,"body":null,"bodyBase64":null,"timeout":null`), call(``)},
		{
			native(`,"callback":{"url":"http://b","method":null,"headers":{"A":null}}`),
			native(`,"callback":{"url":"http://b"}`),
		},
		{native(`,"trace":{"traceparent":null}`), native(``)},
		{
			native(`,"trail":[null,{"at":null,"status":503,"error":null,"tookMs":null},null]`),
			native(`,"trail":[{"status":503}]`),
		},
		{
			native(`,"deadLetter":{"at":null,"reason":"expired","detail":null,"attempts":null,"answer":null}`),
			native(`,"deadLetter":{"reason":"expired"}`),
		},
		{
			native(`,"callback":null,"priority":null,"notBefore":null,"deadline":null,"retry":null,"giveUp":null,` +
				`"attempts":null,"createdAt":null,"latestAttemptAt":null,"nextAttemptAt":null,"trail":null,` +
				`"run":null,"reserved":null,"trace":null,"deadLetter":null,"rawRequest":null`),
			native(``),
		},
		{
			nexus(`,"Organization":null,"CreatedAt":null,"Trail":[null,{"At":null,"Status":500}],"DeadLetter":null,` +
				`"asyncCaller":null`),
			nexus(`,"Trail":[{"Status":500}]`),
		},
		{
			nexusMessage(plainCall, `,"Context":null,"CallBack":null,"Title":null,"Priority":null`),
			nexusMessage(plainCall, ""),
		},
	} {
		got, err := envelope.Parse([]byte(c.with))
		want, wantErr := envelope.Parse([]byte(c.without))
		if err != nil || wantErr != nil {
			t.Fatalf("%s: %v, %v", c.with, err, wantErr)
		}
		options := cmp.Options{wholeBody, cmpopts.IgnoreUnexported(envelope.Envelope{}), cmpopts.EquateEmpty()}
		if diff := cmp.Diff(want, got, options); diff != "" {
			t.Errorf("%s: -without +with:\n%s", c.with, diff)
		}
		successor := written(t)(accept(t, c.with).Successor(limit))
		if callIn(string(successor.Bytes)) != callIn(c.with) {
			t.Errorf("%s: the call is not the same in %s", c.with, successor.Bytes)
		}
		accept(t, string(successor.Bytes))
	}
}

// TestOwnMembers checks what the members of a run and of a ticket mean in each format: a value of their form survives
// rescheduling and ends when the message starts again, and no value makes a message malformed.
func TestOwnMembers(t *testing.T) {
	for _, c := range []struct {
		member, run string
		ticket      int64
	}{
		{`"run":"T0KEN-1"`, "T0KEN-1", 0},
		{`"run":"` + strings.Repeat("x", 64) + `"`, strings.Repeat("x", 64), 0},
		{`"run":"` + strings.Repeat("x", 65) + `"`, "", 0},
		{`"run":""`, "", 0},
		{`"run":"a b"`, "", 0},
		{`"run":"å"`, "", 0},
		{`"run":17`, "", 0},
		{`"run":{"a":[1, 2]}`, "", 0},
		{`"run":"\u0041"`, "A", 0},
		{`"run":null`, "", 0},
		{`"reserved":281474976710656`, "", 281474976710656},
		{`"reserved":9007199254740991`, "", envelope.MaxTicket},
		{`"reserved":9007199254740992`, "", 0},
		{`"reserved":99999999999999999999`, "", 0},
		{`"reserved":-17`, "", 0},
		{`"reserved":1.5`, "", 0},
		{`"reserved":"1769860000000.7.1769860060000.c2VhbA"`, "", 0},
		{`"reserved":{"at":[1, 2]}`, "", 0},
	} {
		for name, format := range formats {
			e := accept(t, format(","+c.member))
			successor := string(written(t)(e.Successor(limit)).Bytes)
			for _, e := range []*envelope.Envelope{e, accept(t, successor)} {
				if e.Run != c.run || e.Ticket != c.ticket {
					t.Errorf("%s, %s: run %q, ticket %d, want %q, %d", name, c.member, e.Run, e.Ticket, c.run, c.ticket)
				}
			}
			isRun := strings.HasPrefix(c.member, `"run"`)
			if kept := strings.Contains(successor, c.member); kept != (isRun || c.ticket != 0) {
				t.Errorf("%s, %s: is kept: %v, in %s", name, c.member, kept, successor)
			}
			dead := string(written(t)(e.DeadLettered(envelope.DeadLetter{Reason: "rejected"}, limit)).Bytes)
			moved := accept(t, dead)
			if moved.Run != "" || moved.Ticket != 0 || strings.Contains(dead, "reserved") {
				t.Errorf("%s, %s: after it was moved back by hand: run %q, ticket %d", name, c.member, moved.Run,
					moved.Ticket)
			}
		}
	}
	e := accept(t, formats["nexus"](`,"Run":"one","run":"two","Reserved":1,"reserved":2`))
	successor := string(written(t)(e.Successor(limit)).Bytes)
	if e.Run != "one" || e.Ticket != 1 || !strings.Contains(successor, `"run":"two"`) {
		t.Errorf("in two spellings: run %q, ticket %d, and then %s", e.Run, e.Ticket, successor)
	}
}

// TestOwnMembersAreChanged checks that a message can get another run or ticket, or none, and that nothing else changes.
func TestOwnMembersAreChanged(t *testing.T) {
	for name, format := range formats {
		plain := string(written(t)(accept(t, format("")).Successor(limit)).Bytes)
		for _, came := range []string{"", `,"run":"old","reserved":3`, `,"run":[1],"reserved":[1]`} {
			e := accept(t, format(came))
			e.Run, e.Ticket = "new", 7
			successor := string(written(t)(e.Successor(limit)).Bytes)
			e = accept(t, successor)
			if e.Run != "new" || e.Ticket != 7 || strings.Count(strings.ToLower(successor), `"run"`) != 1 {
				t.Errorf("%s %s: %s", name, came, successor)
			}
			e.Run, e.Ticket = "", 0
			if got := string(written(t)(e.Successor(limit)).Bytes); got != plain {
				t.Errorf("%s %s: without them %s, want %s", name, came, got, plain)
			}
		}
	}
}

// TestNexusLatestResponse2xx: a message that is still on its way was not delivered, so its 2xx broke off. It stays
// in the message, but nobody is told of it.
func TestNexusLatestResponse2xx(t *testing.T) {
	for status, want := range map[string]int{
		"200 OK": 0, "299 ": 0, "302 Found": 302, "500 Oops": 500, " 500 Oops": 0,
	} {
		latest := `"LatestResponse":"` + inBase64("HTTP/1.1 "+status+"\r\nContent-Length: 4\r\n\r\nhalf") + `"`
		e := accept(t, formats["nexus"](","+latest))
		if got := e.LatestStatus(); got != want || (e.Latest != nil) != (want != 0) {
			t.Errorf("%s: latest status %d, answer %+v, want %d", status, got, e.Latest, want)
		}
		if content := written(t)(e.Successor(limit)); !strings.Contains(string(content.Bytes), latest) {
			t.Errorf("%s: the successor is %s", status, content.Bytes)
		}
	}
}

func TestNexusPriorityAndScheme(t *testing.T) {
	for value, want := range map[string]int{
		`1`: 1, `10`: 10, `11`: 0, `0`: 0, `-1`: 0, `"3"`: 0, `2.5`: 0, `1e400`: 0, `[]`: 0,
	} {
		if got := accept(t, nexusMessage(plainCall, `,"Priority":`+value)).Priority; got != want {
			t.Errorf("%s: got %d, want %d", value, got, want)
		}
	}
	for scheme, want := range map[string]string{"http": "http", "HTTPS": "https", " https ": "https", "": "http"} {
		e := accept(t, nexusMessage(plainCall, `,"CallOutUriScheme":"`+scheme+`"`))
		if e.Call.URL != want+"://target.example/orders" {
			t.Errorf("%q: %s", scheme, e.Call.URL)
		}
	}
}

// TestNexusContext checks that a context that is not JSON is returned as text, because it must not prevent the call.
func TestNexusContext(t *testing.T) {
	deep := strings.Repeat("[", 2000) + strings.Repeat("]", 2000)
	for context, want := range map[string]string{
		`{"a" : 1.0}`: `{"a" : 1.0}`, `[1,2]`: `[1,2]`, `"å"`: `"å"`, `42`: `42`, `null`: `null`,
		"\xef\xbb\xbf{}": `{}`, "": `null`, " \r\n": `null`, `see "this"`: `"see \"this\""`,
		"\"f\xf6r\"": `"\"f` + "\ufffd" + `r\""`, deep: `"` + deep + `"`,
	} {
		e := accept(t, nexusMessage(plainCall, withCallback+`,"Context":"`+inBase64(context)+`"`))
		content := written(t)(e.CallbackWith(envelope.Report{Status: 200, At: arrival}, limit))
		if got := string(reportIn(t, content.Bytes).Context); got != want {
			t.Errorf("%s: got %s, want %s", context, got, want)
		}
	}
}

// TestNexusLargeContext checks from which size of a message on its context does not fit into the callback
// (docs/nexus.md).
func TestNexusLargeContext(t *testing.T) {
	message := fullMessages["nexus/callback_and_context"]
	for size, fits := range map[int]bool{48_600: true, 48_900: false, limit - 150: false} {
		content := message((size-len(message(0)))/4*3 - 2)
		report := envelope.Report{Status: 200, Payload: "p", At: arrival, Deadline: arrival}
		callback := written(t)(accept(t, content).CallbackWith(report, limit))
		if got := string(reportIn(t, callback.Bytes).Context) != "null"; got != fits {
			t.Errorf("%d bytes: the callback has the context: %v", len(content), got)
		}
	}
}

// report is the body of a callback.
type report struct {
	ID               string `json:"Id"`
	Context          json.RawMessage
	StatusCode       int
	Payload          string
	PayloadMediaType string
	PayloadTruncated bool
}

// reportIn returns the body of the callback that a message holds.
func reportIn(t *testing.T, content []byte) report {
	t.Helper()
	var body report
	if err := json.Unmarshal(accept(t, string(content)).Call.Body.Bytes(), &body); err != nil {
		t.Fatal(err)
	}
	return body
}

// TestNexusRequestID checks that an id that no header can hold is replaced by another one, always the same.
func TestNexusRequestID(t *testing.T) {
	parse := func(id string) string {
		return accept(t, strings.Replace(nexusMessage(plainCall, ""), `"Id":"order-42"`, `"Id":`+id, 1)).RequestID
	}
	var ids []string
	for _, id := range []string{`"två ord"`, `"a b"`, `"a\nb"`, `"` + strings.Repeat("x", 129) + `"`, `"å"`, `"ä"`} {
		got := parse(id)
		if !envelope.ValidRequestID(got) || got != parse(id) || slices.Contains(ids, got) {
			t.Errorf("%s: %q", id, got)
		}
		ids = append(ids, got)
	}
	for id, want := range map[string]string{`"order-1"`: "order-1", `null`: "order-42", `""`: "order-42"} {
		if got := parse(id); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
}
