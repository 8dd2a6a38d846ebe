package envelope_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"asynccaller/handler/internal/rules/dotnet"
	"asynccaller/handler/internal/rules/envelope"
)

func TestParse(t *testing.T) {
	got, err := envelope.Parse([]byte(`{
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
	}`))
	if err != nil {
		t.Fatal(err)
	}
	day := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	want := &envelope.Envelope{
		RequestID: "order-42",
		Call: envelope.Call{
			URL: "https://target.example/orders?x=1", Method: "PUT", Host: "other.example:8080",
			Target:   mustURL(t, "https://target.example/orders?x=1"),
			Header:   http.Header{"X-One": {"1"}, "X-Many": {"a", "b"}, "Content-Type": {"application/json"}},
			Spelling: dotnet.Spelling{"X-One": "x-one"},
			Body:     []byte(`{"a" :  [1,2] }`),
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
			Attempts: 2, CreatedAt: day.Add(10 * time.Hour),
			LatestAttemptAt: day.Add(11*time.Hour + 500*time.Millisecond),
			NextAttemptAt:   day.Add(12*time.Hour + 30*time.Minute),
			Trail: []envelope.Attempt{{
				At: day.Add(11*time.Hour + 500*time.Millisecond), Status: 503,
				Took: 20 * time.Millisecond,
			}},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(envelope.Envelope{}, envelope.Callback{})); diff != "" {
		t.Errorf("envelope (-want +got):\n%s", diff)
	}
}

func TestParseCall(t *testing.T) {
	for name, c := range map[string]struct {
		call, method, body, contentType string
	}{
		"get_without_body":     {`{"url":"http://a"}`, "GET", "", ""},
		"post_with_body":       {`{"url":"http://a","body":"text"}`, "POST", "text", ""},
		"post_with_empty_body": {`{"url":"http://a","body":""}`, "POST", "", ""},
		"escapes":              {`{"url":"http://a","body":"\u00e5\n\ud83d\ude00"}`, "POST", "å\n😀", ""},
		"bytes":                {`{"url":"http://a","bodyBase64":"AP8="}`, "POST", "\x00\xff", ""},
		"json_byte_for_byte": {
			`{"url":"http://a","json":[ 1.0, 1e2 ,"\u00e5"]}`, "POST", `[ 1.0, 1e2 ,"\u00e5"]`,
			"application/json",
		},
		"json_null": {`{"url":"http://a","json":null}`, "POST", "null", "application/json"},
		"json_own_type": {
			`{"url":"http://a","json":1,"headers":{"content-type":"application/x+json"}}`,
			"POST", "1", "application/x+json",
		},
		"null_is_absent":        {`{"url":"http://a","method":null,"headers":null,"body":null}`, "GET", "", ""},
		"unknown_member":        {`{"url":"http://a","later":{"version":2}}`, "GET", "", ""},
		"own_method":            {`{"url":"http://a","method":"PURGE"}`, "PURGE", "", ""},
		"lower_case_method":     {`{"url":"http://a","method":"delete"}`, "DELETE", "", ""},
		"unicode_host_and_port": {`{"url":"https://bücher.example:8443/"}`, "GET", "", ""},
		"ipv6":                  {`{"url":"http://[::1]:80/"}`, "GET", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := envelope.Parse([]byte(`{"asyncCaller":1,"call":` + c.call + `}`))
			if err != nil {
				t.Fatal(err)
			}
			if e.Call.Method != c.method || string(e.Call.Body) != c.body ||
				e.Call.Header.Get("Content-Type") != c.contentType {
				t.Errorf("got %s %q %q, want %s %q %q", e.Call.Method, e.Call.Body, e.Call.Header.Get("Content-Type"),
					c.method, c.body, c.contentType)
			}
		})
	}
}

// TestMalformedHosts checks that a Host header is a host with at most a port, and nothing that programs read
// differently.
func TestMalformedHosts(t *testing.T) {
	parse := func(host string) (*envelope.Envelope, error) {
		return envelope.Parse(fmt.Appendf(nil, `{"asyncCaller":1,"call":{"url":"http://a","headers":{"hOsT":[%q]}}}`,
			host))
	}
	for _, host := range []string{
		"", " ", "b.example:80:80", "b.example:", "b.example:x", "b.example:0", "b.example:65536", "b.example:-1",
		"b.example:+80", ":80", "b%2eexample",
		"b%2Eexample", "%62.example", "b.example%00", "b .example", " b.example", "b.example ", "b.example\t",
		"b..example", ".b.example", "b.example..", ".",
		"u@b.example", "u:p@b.example", "b.example/", "b.example/path", "b.example?q", "b.example#f", "b.example\\x",
		"b.example,c.example", "b.example;c",
		"http://b.example", "[b.example]", "[::1", "::1", "[::1]80", "[::1%25eth0]", "[::1%eth0]", "[127.0.0.1]",
		"[[::1]]", "[]", "b。example", "bücher.example",
		"*.example", "b!example", "(b)", "0x7f.1", "127.1", "0177.0.0.1", "2130706433", strings.Repeat("a", 64),
		strings.Repeat("a.", 128),
	} {
		if e, err := parse(host); err == nil {
			t.Errorf("%q was accepted: %q", host, e.Call.Host)
		} else if !strings.Contains(err.Error(), "call.headers.hOsT: ") {
			t.Errorf("%q: the error is %v", host, err)
		}
	}
	for _, host := range []string{
		"b.example", "B.Example.:8080", "my_host", "xn--bcher-kva.example", "10.0.0.1:80",
		"[::1]", "[2001:DB8::1]:443",
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
			`"url":"http://u@` + host + `/p?q"`: `{"asyncCaller":1,"requestId":"r","call":{"url":"http://u@` + host +
				`/p?q"}}`,
			inBase64(callOut): nexusMessage(callOut, ""),
		} {
			e, err := envelope.Parse([]byte(content))
			if err != nil {
				t.Fatal(err)
			}
			if e.Call.Target.Host != want || e.Call.Target.RequestURI() != "/p?q" {
				t.Errorf("%s is called as %s", host, e.Call.Target)
			}
			if written, err := e.Successor(1 << 16); err != nil || !strings.Contains(string(written.Bytes), kept) {
				t.Errorf("%s was written as %s: %v", content, written.Bytes, err)
			}
		}
	}
}

// TestParseNamesTheMember checks that errors say where the mistake is, and do not quote anything that may be secret.
func TestParseNamesTheMember(t *testing.T) {
	inCall := func(members string) string { return `{"asyncCaller":1,"call":{"url":"http://a",` + members + `}}` }
	with := func(members string) string { return `{"asyncCaller":1,"call":{"url":"http://a"},` + members + `}` }
	for name, c := range map[string]struct{ content, want string }{
		"empty":          {``, "not JSON: line 1, column 1"},
		"text":           {`hello`, "not JSON: line 1, column 1"},
		"position":       {"{\n \"asyncCaller\": 1,\n \"call\": x}", "not JSON: line 3, column 10"},
		"trailing_text":  {`{"asyncCaller":1} x`, "not JSON: line 1, column 19"},
		"array":          {`[]`, "want an object, not an array"},
		"number":         {`1`, "want an object, not a number"},
		"no_marker":      {`{"call":{"url":"http://a"}}`, "asyncCaller: missing"},
		"other_version":  {`{"asyncCaller":2}`, "asyncCaller: want 1"},
		"marker_as_text": {`{"asyncCaller":"1"}`, "asyncCaller: want 1"},
		"twice": {
			`{"asyncCaller":1,"call":{"url":"http://a"},"call":{"url":"http://b"}}`,
			"call: appears twice",
		},
		"twice_inside":       {inCall(`"body":"x","body":"y"`), "call.body: appears twice"},
		"no_call":            {`{"asyncCaller":1}`, "call: missing"},
		"call_in_other_case": {`{"asyncCaller":1,"Call":{"url":"http://a"}}`, "call: missing"},
		"call_as_text":       {`{"asyncCaller":1,"call":"GET /"}`, "call: want an object, not a string"},
		"no_url":             {`{"asyncCaller":1,"call":{}}`, "call.url: missing"},
		"url_not_text":       {`{"asyncCaller":1,"call":{"url":1}}`, "call.url: want a string, not a number"},
		"url_relative": {
			`{"asyncCaller":1,"call":{"url":"/SECRET"}}`,
			"call.url: want an absolute http or https URL",
		},
		"url_ftp": {
			`{"asyncCaller":1,"call":{"url":"ftp://SECRET"}}`,
			"call.url: want an absolute http or https URL",
		},
		"url_without_host": {`{"asyncCaller":1,"call":{"url":"http:///SECRET"}}`, "call.url: the URL has no host"},
		"url_port": {
			`{"asyncCaller":1,"call":{"url":"http://a:99999/SECRET"}}`,
			"call.url: the URL's port",
		},
		"url_space": {
			`{"asyncCaller":1,"call":{"url":"http://a/?SECRET x"}}`,
			"call.url: the URL holds a space: write it as %20",
		},
		"url_broken":       {`{"asyncCaller":1,"call":{"url":"http://[SECRET"}}`, "call.url: not a URL"},
		"url_control":      {`{"asyncCaller":1,"call":{"url":"http://a/\nSECRET"}}`, "call.url: not a URL"},
		"method":           {inCall(`"method":"GET /SECRET"`), "call.method: not an HTTP method"},
		"connect":          {inCall(`"method":"connect"`), "call.method: CONNECT"},
		"header_name":      {inCall(`"headers":{"a b":"SECRET"}`), `call.headers.a…: not a header name`},
		"header_injection": {inCall(`"headers":{"a":"x\r\nSECRET: 1"}`), "call.headers.a: holds a line break"},
		"header_in_list": {
			inCall(`"headers":{"a":["x","SECRET\u0000"]}`),
			"call.headers.a[1]: holds a line break",
		},
		"header_number":    {inCall(`"headers":{"a":1}`), "call.headers.a: want a string or an array of strings"},
		"two_hosts":        {inCall(`"headers":{"host":["a","b"]}`), "call.headers.host: want one host name"},
		"two_host_headers": {inCall(`"headers":{"host":"a","Host":"a"}`), "call.headers.Host: want one host name"},
		"two_bodies":       {inCall(`"body":"SECRET","json":{}`), "call.json: appears together with body"},
		"callback_host": {
			with(`"callback":{"url":"http://a","headers":{"Host":"SECRET:80:80"}}`),
			"callback.headers.Host: want one host name",
		},
		"base64":               {inCall(`"bodyBase64":"SECRET!"`), "call.bodyBase64: not base64"},
		"half_surrogate":       {inCall(`"body":"SECRET\ud800"`), "call.body: holds half of a surrogate pair"},
		"timeout_zero":         {inCall(`"timeout":0`), "call.timeout: want a duration above zero"},
		"timeout_text":         {inCall(`"timeout":"soon"`), "call.timeout: want a duration"},
		"timeout_negative":     {inCall(`"timeout":"-1s"`), "call.timeout: a duration cannot be negative"},
		"timeout_days":         {inCall(`"timeout":"1d1y"`), "call.timeout: want a duration"},
		"request_id_empty":     {with(`"requestId":""`), "requestId: want 1 to 128 visible ASCII characters"},
		"request_id_space":     {with(`"requestId":"a b"`), "requestId: want 1 to 128"},
		"request_id_long":      {with(`"requestId":"` + strings.Repeat("x", 129) + `"`), "requestId: want 1 to 128"},
		"callback_url":         {with(`"callback":{"url":"SECRET"}`), "callback.url: want an absolute"},
		"callback_without_url": {with(`"callback":{}`), "callback.url: missing"},
		"callback_header": {
			with(`"callback":{"url":"http://a","headers":{"a":"\n"}}`),
			"callback.headers.a: holds a line break",
		},
		"priority":          {with(`"priority":11`), "priority: want a whole number from 1 to 10"},
		"priority_fraction": {with(`"priority":1.5`), "priority: want a whole number"},
		"not_before":        {with(`"notBefore":"tomorrow"`), "notBefore: want a time"},
		"deadline_first": {
			with(`"notBefore":"2026-02-01T00:00:00Z","deadline":"2026-01-01T00:00:00Z"`),
			"deadline: is not after notBefore",
		},
		"give_up":  {with(`"giveUp":"never"`), `giveUp: want "dead-letter", "drop" or "fault"`},
		"attempts": {with(`"attempts":-1`), "attempts: want a whole number from 0"},
		"trail":    {with(`"trail":{}`), "trail: want an array, not an object"},
		"context_depth": {
			with(`"context":` + strings.Repeat("[", 1001) + strings.Repeat("]", 1001)),
			"context: nested deeper than 1000 levels",
		},
		"trail_entry":  {with(`"trail":[{"at":"x"}]`), "trail[0].at: want a time"},
		"invalid_utf8": {"{\"asyncCaller\":1,\"x\":\"\xff\"}", "not JSON: line 1, column 23: invalid UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := envelope.Parse([]byte(c.content))
			if err == nil {
				t.Fatal("it parsed")
			}
			if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("error %q, want %q and no secret", err, c.want)
			}
		})
	}
}

func TestMovedBackByHandStartsAgain(t *testing.T) {
	e, err := envelope.Parse([]byte(`{"asyncCaller":1,"requestId":"r1","call":{"url":"http://a"},
		"deadline":"2026-01-01T00:00:00Z","attempts":9,"createdAt":"2025-12-01T00:00:00Z","nextAttemptAt":"2026-12-01T00:00:00Z",
		"trail":[{"at":"2025-12-01T00:00:00Z","status":500,"tookMs":1}],
		"deadLetter":{"at":"2026-01-01T00:00:00Z","reason":"expired","queue":"async-caller","attempts":9},"mine":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if e.DeadLetter == nil || e.DeadLetter.Reason != "expired" || e.DeadLetter.Attempts != 9 {
		t.Errorf("dead letter %+v", e.DeadLetter)
	}
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	if err := e.Accept(now, "m1", 1<<16); err != nil {
		t.Fatal(err)
	}
	content, err := e.Successor(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"asyncCaller":1,"requestId":"r1","call":{"url":"http://a"},"mine":1,"createdAt":"2026-01-31T12:00:00Z",` +
		`"trace":{"traceparent":"00-6cc3e66b30898f7a13a803099c99abeb-1255e0ffd876c04a-01"}}`
	if string(content.Bytes) != want {
		t.Errorf("reschedule\n%s\nwant\n%s", content.Bytes, want)
	}
	if got := e.GiveUpAt(time.Hour); !got.Equal(now.Add(time.Hour)) {
		t.Errorf("deadline %v, want an hour from now", got)
	}
}

func TestABrokenDeadLetterMemberNeverStopsACall(t *testing.T) {
	for _, member := range []string{`"by hand"`, `{"attempts":"many"}`, `[]`} {
		e, err := envelope.Parse([]byte(`{"asyncCaller":1,"attempts":9,"call":{"url":"http://a"},"deadLetter":` +
			member + `}`))
		if err != nil {
			t.Fatalf("%s: %v", member, err)
		}
		if err := e.Accept(time.Now(), "m1", 1<<16); err != nil || e.Attempts != 0 {
			t.Errorf("%s: attempts %d, error %v", member, e.Attempts, err)
		}
	}
}

func TestDeadline(t *testing.T) {
	const week, month = 7 * 24 * time.Hour, 30 * 24 * time.Hour
	for name, c := range map[string]struct {
		members, want string
		limited       bool
	}{
		"from_creation": {`"createdAt":"2026-01-01T00:00:00Z"`, "2026-01-08T00:00:00Z", false},
		"own": {
			`"createdAt":"2026-01-01T00:00:00Z","deadline":"2026-01-01T00:00:05Z"`,
			"2026-01-01T00:00:05Z", false,
		},
		"from_not_before": {
			`"createdAt":"2026-01-01T00:00:00Z","notBefore":"2026-01-31T00:00:00Z"`,
			"2026-02-07T00:00:00Z", false,
		},
		"first_arrival": {`"x":1`, "2026-02-07T12:00:00Z", false},
		"latest": {
			`"createdAt":"2026-01-01T00:00:00.5Z","deadline":"2026-01-31T00:00:00.5Z"`,
			"2026-01-31T00:00:00Z", false,
		},
		"too_late": {
			`"createdAt":"2026-01-01T00:00:00.5Z","deadline":"2026-01-31T00:00:00.6Z"`,
			"2026-01-31T00:00:00Z", true,
		},
		"end_of_time": {`"deadline":"9999-12-31T23:59:59.999999999Z"`, "2026-03-02T12:00:00Z", true},
		"after_not_before": {
			`"notBefore":"2026-02-10T12:00:00Z","deadline":"2027-01-01T00:00:00Z"`,
			"2026-03-12T12:00:00Z", true,
		},
		"late_not_before": {
			`"createdAt":"2026-01-31T12:00:00Z","notBefore":"2027-03-02T12:00:00Z"`,
			"2027-03-03T12:00:00Z", true,
		},
		"created_in_future": {`"createdAt":"9999-01-01T00:00:00Z"`, "2026-02-07T12:00:00Z", false},
		"all_in_future": {
			`"createdAt":"9999-01-01T00:00:00Z","nextAttemptAt":"9999-01-01T00:00:00Z",` +
				`"deadline":"9999-12-01T00:00:00Z"`, "2026-03-02T12:00:00Z", true,
		},
		"moved_back": {`"deadLetter":{},"deadline":"9999-12-01T00:00:00Z"`, "2026-02-07T12:00:00Z", false},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := envelope.Parse([]byte(`{"asyncCaller":1,"call":{"url":"http://a"},` + c.members + `}`))
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Accept(time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC), "m1", 1<<16); err != nil {
				t.Fatal(err)
			}
			e.LimitDeadline(week, month)
			if got := e.GiveUpAt(week).Format(time.RFC3339); got != c.want || e.DeadlineLimited != c.limited {
				t.Errorf("deadline %s, limited %v, want %s", got, e.DeadlineLimited, c.want)
			}
			successor, err := e.Successor(1 << 16)
			if err != nil {
				t.Fatal(err)
			}
			again, err := envelope.Parse(successor.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			if got := again.GiveUpAt(week).Format(time.RFC3339); got != c.want {
				t.Errorf("the successor's deadline is %s, want %s: %s", got, c.want, successor.Bytes)
			}
		})
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
