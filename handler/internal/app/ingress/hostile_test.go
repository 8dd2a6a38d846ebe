package ingress_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/explain"
	"asynccaller/handler/internal/storage"
)

// hostile is a message that is meant to cause harm, and its expected outcome.
type hostile struct {
	content string
	// malformed is the beginning of the logged detail if the message is malformed; empty for a call.
	malformed string
	// annotated is true if the dead letter is an envelope that contains the reason.
	annotated bool
	// want is the action and the reason for a valid envelope; empty for "finish delivered".
	want string
	// check checks the call.
	check func(t *testing.T, e *envelope.Envelope)
}

// maxContent is the capacity of a message that is encoded as base64.
var maxContent = storage.Base64.MaxContentBytes()

const (
	// maxLoggedDetail is the length of the longest logged detail: names of members, and our own text.
	maxLoggedDetail = 300
	// maxLogLine is the length of the longest line, with all ids.
	maxLogLine = 2 << 10
)

// nativeCall returns a native envelope whose call has a URL and these members.
func nativeCall(members string) string {
	return `{"asyncCaller":1,"requestId":"r1","call":{"url":"http://t.example/"` + members + `}}`
}

// nativeURL returns a native envelope for a URL, which is written as in JSON.
func nativeURL(url string) string {
	return `{"asyncCaller":1,"requestId":"r1","call":{"url":"` + url + `"}}`
}

// nativeWith returns a native envelope with a call and these members.
func nativeWith(members string) string {
	return `{"asyncCaller":1,"requestId":"r1",` + members + `,"call":{"url":"http://t.example/"}}`
}

// nexusCall returns a Nexus envelope for an HTTP request.
func nexusCall(callOut string) string {
	return `{"OriginalRequestId":"r1","RawRequest":{"Id":"r1","CallOut":"` + in64(callOut) + `"}}`
}

// nexusHead returns a Nexus envelope for a GET with these header lines.
func nexusHead(lines string) string {
	return nexusCall("GET / HTTP/1.1\r\nHost: t.example\r\n" + lines + "\r\n")
}

// nexusWith returns a Nexus envelope with a RawRequest and these members.
func nexusWith(members string) string {
	return `{` + members + `,"RawRequest":{"Id":"r1","CallOut":"` + in64(plainCall) + `"}}`
}

// nexusRaw returns a Nexus envelope with these members in its RawRequest.
func nexusRaw(members string) string {
	return `{"RawRequest":{"Id":"r1","CallOut":"` + in64(plainCall) + `",` + members + `}}`
}

const plainCall = "GET / HTTP/1.1\r\nHost: t.example\r\n\r\n"

func in64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// nested returns arrays nested to a depth.
func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

// filled repeats numbered text between head and tail until a message is full.
func filled(head, text, tail string) string {
	var b strings.Builder
	for b.WriteString(head); b.Len()+len(tail)+len(text)+10 < maxContent-2<<10; {
		fmt.Fprintf(&b, text, b.Len())
	}
	return strings.TrimSuffix(b.String(), ",") + tail
}

func wantURL(url string) func(*testing.T, *envelope.Envelope) {
	return func(t *testing.T, e *envelope.Envelope) {
		t.Helper()
		if e.Call.URL != url {
			t.Errorf("called %q, want %q", e.Call.URL, url)
		}
	}
}

func wantBody(body string) func(*testing.T, *envelope.Envelope) {
	return func(t *testing.T, e *envelope.Envelope) {
		t.Helper()
		if string(e.Call.Body) != body {
			t.Errorf("body %.80q, want %.80q", e.Call.Body, body)
		}
	}
}

func wantHeader(name string, values ...string) func(*testing.T, *envelope.Envelope) {
	return func(t *testing.T, e *envelope.Envelope) {
		t.Helper()
		if got := e.Call.Header[name]; fmt.Sprintf("%q", got) != fmt.Sprintf("%q", values) {
			t.Errorf("%s is %.80q, want %.80q", name, got, values)
		}
	}
}

// wantHeaders checks the number of header values.
func wantHeaders(atLeast int) func(*testing.T, *envelope.Envelope) {
	return func(t *testing.T, e *envelope.Envelope) {
		t.Helper()
		n := 0
		for _, values := range e.Call.Header {
			n += len(values)
		}
		if n < atLeast {
			t.Errorf("%d headers, want at least %d", n, atLeast)
		}
	}
}

// TestHostileJSON: invalid JSON, and JSON that is expensive or ambiguous.
func TestHostileJSON(t *testing.T) {
	runHostile(t, map[string]hostile{
		"empty":            {content: "", malformed: "not JSON: line 1, column 1"},
		"white_space":      {content: " \t\r\n ", malformed: "not JSON: line 2, column"},
		"null":             {content: "null", malformed: "want an object, not null"},
		"array":            {content: "[]", malformed: "want an object, not an array"},
		"string":           {content: `""`, malformed: "want an object, not a string"},
		"number":           {content: "-0", malformed: "want an object, not a number"},
		"two_objects":      {content: nativeCall("") + nativeCall(""), malformed: "not JSON: line 1, column"},
		"byte_order_mark":  {content: "\ufeff" + nativeCall("")},
		"utf16":            {content: "\xff\xfe{\x00}\x00", malformed: "the text is UTF-16: save it as UTF-8"},
		"twice_marked":     {content: "\ufeff\ufeff" + nativeCall(""), malformed: "not JSON: line 1, column 1"},
		"marked_malformed": {content: "\ufeff{}", malformed: "asyncCaller: missing"},
		"wrapped":          {content: in64(nativeCall("")), malformed: "an envelope in base64, not the envelope itself"},
		"nul":              {content: "\x00", malformed: "not JSON: line 1, column 1"},
		"invalid_utf8": {
			content:   nativeCall(`,"body":"` + "\xc3\x28" + `"`),
			malformed: "not JSON: line 1, column",
		},
		"surrogate_as_utf8": {
			content:   nativeCall(`,"body":"` + "\xed\xa0\x80" + `"`),
			malformed: "not JSON: line 1, column",
		},
		"control_in_string": {content: nativeCall(`,"body":"` + "\x01" + `"`), malformed: "not JSON: line 1, column"},
		"unopened":          {content: strings.Repeat("]", maxContent), malformed: "not JSON: line 1, column 1"},
		"bomb_of_arrays":    {content: strings.Repeat("[", maxContent), malformed: "not JSON: line 1, column 10001"},
		"bomb_of_objects":   {content: strings.Repeat(`{"a":`, maxContent/5), malformed: "not JSON: line 1, column"},
		"bomb_of_both":      {content: strings.Repeat(`[{"":`, maxContent/5), malformed: "not JSON: line 1, column"},
		"bomb_of_lines": {
			content:   strings.Repeat("\n", maxContent-1) + "x",
			malformed: fmt.Sprintf("not JSON: line %d, column 1", maxContent),
		},
		"bomb_of_escapes": {
			content:   `{"` + strings.Repeat(`\u0000`, 8000) + `":1}`,
			malformed: "asyncCaller: missing",
		},
		"many_members":     {content: filled(`{`, `"a%d":1,`, `}`), malformed: "asyncCaller: missing"},
		"deep_unknown":     {content: nativeWith(`"x":` + nested(9999))},
		"too_deep_unknown": {content: nativeWith(`"x":` + nested(10000)), malformed: "not JSON: line 1, column"},
		"deep_json":        {content: nativeCall(`,"json":` + nested(9998)), check: wantBody(nested(9998))},
		"deep_json_too":    {content: nativeCall(`,"json":` + nested(9999)), malformed: "not JSON: line 1, column"},
		"deep_context":     {content: nativeWith(`"context":` + nested(1000))},
		"too_deep_context": {
			content:   nativeWith(`"context":` + nested(1001)),
			malformed: "context: nested deeper than 1000 levels",
		},
		"deep_headers": {
			content:   nativeCall(`,"headers":` + nested(5000)),
			malformed: "call.headers: want an object",
		},
		"deep_retry": {
			content: nativeWith(`"retry":` + nested(5000)), malformed: "retry: want",
			annotated: true,
		},
		"deep_trail":       {content: nativeWith(`"trail":` + nested(5000)), malformed: "trail[0]: want an object"},
		"deep_dead_letter": {content: nativeWith(`"deadLetter":` + nested(5000))},
		"duplicate": {
			content:   nativeWith(`"giveUp":"drop","giveUp":"drop"`),
			malformed: "giveUp: appears twice",
		},
		"duplicate_escaped": {
			content:   nativeWith(`"giveUp":"drop","\u0067iveUp":"drop"`),
			malformed: "giveUp: appears twice",
		},
		"duplicate_url": {
			content:   nativeCall(`,"url":"http://evil.example/"`),
			malformed: "call.url: appears twice",
		},
		"duplicate_header": {
			content:   nativeCall(`,"headers":{"X-A":"1","X-A":"2"}`),
			malformed: "call.headers.X-A: appears twice",
		},
		"header_two_cases": {
			content: nativeCall(`,"headers":{"X-A":"1","x-a":"2"}`),
			check:   wantHeader("X-A", "1", "2"),
		},
		"two_hosts": {
			content:   nativeCall(`,"headers":{"Host":"a","host":"b"}`),
			malformed: "call.headers.host: want one host",
		},
		"two_bodies": {
			content:   nativeCall(`,"body":"","json":1`),
			malformed: "call.json: appears together with body",
		},
		"duplicate_in_json": {content: nativeCall(`,"json":{"a":1,"a":2}`), check: wantBody(`{"a":1,"a":2}`)},
		"two_formats": {
			content:   nativeWith(`"rawrequest":{}`),
			malformed: "asyncCaller: appears together with RawRequest",
		},
		"half_pair_in_body": {
			content:   nativeCall(`,"body":"\ud800"`),
			malformed: "call.body: holds half of a surrogate pair",
		},
		"half_pair_in_name": {
			content:   nativeWith(`"\udfff":1`),
			malformed: "a member's name: holds half of a surrogate pair",
		},
		"half_pair_in_value": {
			content:   nativeCall(`,"headers":{"X-A":"\udc00\ud800"}`),
			malformed: "call.headers.X-A: holds half",
		},
		"half_pair_in_url":  {content: nativeURL(`http://t.example/\ud83d`), malformed: "call.url: holds half"},
		"half_pair_unknown": {content: nativeWith(`"x":"\ud800"`)},
		"half_pair_context": {content: nativeWith(`"context":"\ud800"`)},
		"long_name": {content: filled(`{"asyncCaller":1,"call":{"url":"http://t.example/","headers":{"X`,
			`x%d`, `":1}}}`), malformed: "call.headers.Xx"},
		"long_names_nested": {
			content:   nativeWith(`"retry":{"` + strings.Repeat("Bearer-", 50) + `":1}`),
			malformed: "retry.Bearer-", annotated: true,
		},
		"secret_as_name": {
			content:   nativeCall(`,"headers":{"Authorization: Bearer C4nary":"x"}`),
			malformed: "call.headers.Authorization…: not a header name",
		},
	})
}

// TestHostileNumbersAndTimes: numbers and times beyond all limits.
func TestHostileNumbersAndTimes(t *testing.T) {
	digits := strings.Repeat("9", 400)
	runHostile(t, map[string]hostile{
		"version_float": {
			content:   `{"asyncCaller":1.1,"call":{"url":"http://t.example/"}}`,
			malformed: "asyncCaller: want 1",
		},
		"version_digits": {
			content:   `{"asyncCaller":` + digits + `,"call":{"url":"http://t.example/"}}`,
			malformed: "asyncCaller: want 1",
		},
		"attempts_exponent": {
			content:   nativeWith(`"attempts":1e999999`),
			malformed: "attempts: want a whole number from 0 to",
		},
		"attempts_digits": {content: nativeWith(`"attempts":` + digits), malformed: "attempts: want a whole number"},
		"attempts_2_63": {
			content:   nativeWith(`"attempts":9223372036854775808`),
			malformed: "attempts: want a whole number",
		},
		"attempts_minus_0": {content: nativeWith(`"attempts":-0`)},
		"attempts_minus_1": {content: nativeWith(`"attempts":-1`), malformed: "attempts: want a whole number"},
		"attempts_largest": {content: nativeWith(`"attempts":1000000000`)},
		"priority_2_40": {
			content:   nativeWith(`"priority":1099511627776`),
			malformed: "priority: want a whole number from 1 to 10",
		},
		"timeout_exponent": {content: nativeCall(`,"timeout":1e999999`), malformed: "call.timeout: the duration is too long"},
		"timeout_digits":   {content: nativeCall(`,"timeout":` + digits), malformed: "call.timeout: the duration is too long"},
		"timeout_minus_0": {
			content:   nativeCall(`,"timeout":-0`),
			malformed: "call.timeout: want a duration above zero",
		},
		"timeout_tiny": {
			content:   nativeCall(`,"timeout":1e-300`),
			malformed: "call.timeout: want a duration above zero",
		},
		"timeout_text": {
			content:   nativeCall(`,"timeout":"` + digits + `h"`),
			malformed: "call.timeout: the duration is too long",
		},
		"timeout_days": {
			content:   nativeCall(`,"timeout":"` + digits + `d"`),
			malformed: "call.timeout: the duration is too long",
		},
		"json_exponent": {
			content: nativeCall(`,"json":[1e999999,-0,` + digits + `]`),
			check:   wantBody(`[1e999999,-0,` + digits + `]`),
		},
		"factor_exponent": {
			content: nativeWith(`"retry":{"factor":1e999999}`), malformed: "retry.factor: ",
			annotated: true,
		},
		"delay_exponent": {
			content: nativeWith(`"retry":{"baseDelay":1e308}`), malformed: "retry.baseDelay: ",
			annotated: true,
		},
		"attempts_asked": {
			content:   nativeWith(`"retry":{"maxAttempts":` + digits + `}`),
			malformed: "retry.maxAttempts: ", annotated: true,
		},
		"long_schedule": {
			content: filled(`{"asyncCaller":1,"call":{"url":"http://t.example/"},"retry":{"schedule":[`, `%d,`,
				`]}}`),
			malformed: "retry.schedule: the list is longer",
			annotated: true,
		},
		"long_policy": {
			content:   nativeWith(`"retry":"` + strings.Repeat("p", 40000) + `"`),
			malformed: "retry: unknown policy", annotated: true,
		},
		"trail_exponent": {
			content:   nativeWith(`"trail":[{"status":1e999999}]`),
			malformed: "trail[0].status: want a whole number",
		},
		"trail_long": {content: nativeWith(`"trail":[` + strings.TrimSuffix(strings.Repeat("{},", 9000),
			",") + `]`), malformed: "trail: holds 9000 attempts"},

		"not_before_last": {
			content: nativeWith(`"notBefore":"9999-12-31T23:59:59.999999999Z"`),
			want:    "reschedule not_due",
		},
		"next_attempt_last": {content: nativeWith(`"nextAttemptAt":"9999-12-31T23:59:59Z",` +
			`"createdAt":"9999-12-31T23:59:59Z"`), want: "reschedule not_due"},
		"created_last":    {content: nativeWith(`"createdAt":"9999-12-31T23:59:59Z"`)},
		"created_first":   {content: nativeWith(`"createdAt":"0001-01-01T00:00:00Z"`)},
		"created_year_2":  {content: nativeWith(`"createdAt":"0002-01-01T00:00:00Z"`), want: "dead_letter expired"},
		"deadline_last":   {content: nativeWith(`"deadline":"9999-12-31T23:59:59Z"`)},
		"deadline_year_2": {content: nativeWith(`"deadline":"0002-01-01T00:00:00Z"`), want: "dead_letter expired"},
		"before_year_1":   {content: nativeWith(`"deadline":"0001-01-01T00:00:00+14:00"`)},
		"year_1_west":     {content: nativeWith(`"deadline":"0001-01-01T00:00:00-08:00"`)},
		"year_1_third":    {content: nativeWith(`"notBefore":"0001-01-03T00:00:00Z"`)},
		"deadline_1601":   {content: nativeWith(`"deadline":"1601-01-01T00:00:00Z"`), want: "dead_letter expired"},
		"created_1582":    {content: nativeWith(`"createdAt":"1582-10-15T00:00:00Z"`), want: "dead_letter expired"},
		"year_0":          {content: nativeWith(`"deadline":"0000-01-01T00:00:00Z"`)},
		"zero_of_mysql":   {content: nativeWith(`"notBefore":"0000-00-00 00:00:00Z"`)},
		"year_10000":      {content: nativeWith(`"deadline":"9999-12-31T23:59:59-14:00"`)},
		"not_before_10000": {
			content: nativeWith(`"notBefore":"9999-12-31T23:59:59.9999999-08:00"`),
			want:    "reschedule not_due",
		},
		"five_digits": {
			content:   nativeWith(`"deadline":"10000-01-01T00:00:00Z"`),
			malformed: "deadline: want a time",
		},
		"leap_second": {content: nativeWith(`"deadline":"2016-12-31t23:59:60z"`), want: "dead_letter expired"},
		"no_leap_second": {
			content:   nativeWith(`"deadline":"2016-12-31T12:00:60Z"`),
			malformed: "deadline: want a time",
		},
		"time_as_number":     {content: nativeWith(`"deadline":1e999999`), malformed: "deadline: want a string"},
		"nexus_created_last": {content: nexusWith(`"CreatedAt":"9999-12-31T23:59:59.9999999+00:00"`)},
		"nexus_all_last": {
			content: nexusWith(
				`"CreatedAt":"9999-12-31T23:59:59.9999999+00:00","DeadlineAt":"9999-12-31T23:59:59.9999999+00:00",` +
					`"NextAttemptAt":"9999-12-31T23:59:59.9999999+00:00"`,
			),
			want: "reschedule not_due",
		},
		"nexus_next_last": {
			content: nexusWith(`"NextAttemptAt":"9999-12-31T23:59:59.9999999+00:00",` +
				`"CreatedAt":"9999-12-31T23:59:59.9999999+00:00"`),
			want: "reschedule not_due",
		},
		"nexus_never": {
			content: nexusWith(`"CreatedAt":"0001-01-01T00:00:00+00:00","DeadlineAt":"0001-01-01T00:00:00",` +
				`"LatestAttemptAt":"0001-01-01T00:00:00-14:00"`),
		},
		"nexus_year_10000": {content: nexusWith(`"DeadlineAt":"9999-12-31T23:59:59.9999999-14:00"`)},
		"nexus_1601":       {content: nexusWith(`"DeadlineAt":"1601-01-01T00:00:00+00:00"`), want: "dead_letter expired"},
		"nexus_2_63": {
			content:   nexusWith(`"Attempts":9223372036854775808`),
			malformed: "Attempts: want a whole number",
		},
		"nexus_exponent":   {content: nexusWith(`"Attempts":1e999999`), malformed: "Attempts: want a whole number"},
		"nexus_priority":   {content: nexusRaw(`"Priority":1099511627776`)},
		"nexus_priority_x": {content: nexusRaw(`"Priority":` + nested(5000))},
	})
}

// TestHostileCalls: URLs, methods and headers that try to call another target or to inject headers.
func TestHostileCalls(t *testing.T) {
	const noBreak = "holds a line break or another control character"
	runHostile(t, map[string]hostile{
		"user_info": {content: nativeURL("http://u:p@t.example/"), check: wantURL("http://u:p@t.example/")},
		"port_0": {
			content:   nativeURL("http://t.example:0/"),
			malformed: "call.url: the URL's port is not from 1 to 65535",
		},
		"port_65536": {content: nativeURL("http://t.example:65536/"), malformed: "call.url: the URL's port"},
		"port_digits": {
			content:   nativeURL("http://t.example:" + strings.Repeat("0", 40000) + "80/"),
			malformed: "call.url: the URL's host is not a valid name",
		},
		"port_name":     {content: nativeURL("http://t.example:80abc/"), malformed: "call.url: not a URL"},
		"port_negative": {content: nativeURL("http://t.example:-1/"), malformed: "call.url: not a URL"},
		"port_empty":    {content: nativeURL("http://t.example:/"), check: wantURL("http://t.example:/")},
		"unicode_host":  {content: nativeURL("http://bücher.example/"), check: wantURL("http://bücher.example/")},
		"punycode_host": {
			content: nativeURL("http://xn--bcher-kva.example/"),
			check:   wantURL("http://xn--bcher-kva.example/"),
		},
		"host_not_a_name": {
			content:   nativeURL("http://a\u200bü\u2028b/"),
			malformed: "call.url: the URL's host is not a valid name",
		},
		"host_of_numbers": {
			content:   nativeURL("http://0x7f.1/"),
			malformed: "call.url: the URL's host is not a valid name",
		},
		"host_no_unicode": {
			content:   nativeURL("http://%ff.example/"),
			malformed: "call.url: the URL's host is not a valid name",
		},
		"host_no_label": {
			content:   nativeURL("http://a。。example/"),
			malformed: "call.url: the URL's host is not a valid name",
		},
		"host_escaped": {
			content:   nativeURL("http://a%EF%BC%8Fb/"),
			malformed: "call.url: the URL's host is not a valid name",
		},
		"host_long": {
			content:   nativeURL("http://" + strings.Repeat("a.", 20000) + "example/"),
			malformed: "call.url: the URL's host is not a valid name",
		},
		"host_of_commas": {content: nativeURL("http://" + strings.Repeat(",", 40000) + "/"), malformed: "call.url: "},
		"zone":           {content: nativeURL("http://[fe80::1%25eth0]/"), check: wantURL("http://[fe80::1%25eth0]/")},
		"zone_long": {
			content:   nativeURL("http://[fe80::1%25" + strings.Repeat("z", 40000) + "]/"),
			malformed: "call.url: the URL's host is not a valid name",
		},
		"zone_line_break": {content: nativeURL("http://[fe80::1%25%0d%0aX-A:1]/"), malformed: "call.url: "},
		"bracket":         {content: nativeURL("http://[::1"), malformed: "call.url: not a URL"},
		"no_host":         {content: nativeURL("http:///"), malformed: "call.url: the URL has no host"},
		"only_a_port":     {content: nativeURL("http://:80/"), malformed: "call.url: the URL has no host"},
		"no_scheme": {
			content:   nativeURL("//t.example/"),
			malformed: "call.url: want an absolute http or https URL",
		},
		"slashes": {content: nativeURL("//"), malformed: "call.url: want an absolute http or https URL"},
		"opaque":  {content: nativeURL("http:t.example"), malformed: "call.url: the URL has no host"},
		"file": {
			content:   nativeURL("file:///etc/passwd"),
			malformed: "call.url: want an absolute http or https URL",
		},
		"back_slashes":    {content: nativeURL(`http:\\\\t.example\\`), malformed: "call.url: "},
		"back_slash_at":   {content: nativeURL(`http://t.example\\@evil.example/`), malformed: "call.url: not a URL"},
		"at_encoded":      {content: nativeURL("http://t.example%40evil.example/"), malformed: "call.url: not a URL"},
		"slash_encoded":   {content: nativeURL("http://t.example%2f.evil.example/"), malformed: "call.url: not a URL"},
		"host_line_break": {content: nativeURL("http://t.example%0d%0aX-A:1/"), malformed: "call.url: not a URL"},
		"tab":             {content: nativeURL(`http://t.example/\ta`), malformed: "call.url: not a URL"},
		"line_break": {
			content:   nativeURL(`http://t.example/ HTTP/1.1\r\nX-A: b`),
			malformed: "call.url: not a URL",
		},
		"space_before": {content: nativeURL(` http://t.example/`), malformed: "call.url: not a URL"},
		"space_within": {content: nativeURL(`http://t.example/a b`), malformed: "call.url: the URL holds a space"},
		"line_separator": {
			content: nativeURL(`http://t.example/\u2028?\u2029`),
			check:   wantURL("http://t.example/\u2028?\u2029"),
		},
		"url_long": {
			content: nativeURL("http://t.example/" + strings.Repeat("%0a", 14000)),
			check:   wantURL("http://t.example/" + strings.Repeat("%0a", 14000)),
		},
		"url_empty": {content: nativeURL(""), malformed: "call.url: want an absolute http or https URL"},
		"url_array": {
			content:   `{"asyncCaller":1,"call":{"url":["http://t.example/"]}}`,
			malformed: "call.url: want a string, not an array",
		},

		"method_long": {
			content:   nativeCall(`,"method":"` + strings.Repeat("A", 44000) + `"`),
			malformed: "call.method: not an HTTP method",
		},
		"method_request": {
			content:   nativeCall(`,"method":"GET http://evil.example/ HTTP/1.1\r\nA: b\r\n\r\nGET"`),
			malformed: "call.method: not an HTTP method",
		},
		"method_connect": {
			content:   nativeCall(`,"method":"connect"`),
			malformed: "call.method: CONNECT opens a tunnel",
		},
		"method_empty": {content: nativeCall(`,"method":""`), malformed: "call.method: not an HTTP method"},

		"value_line_break": {
			content:   nativeCall(`,"headers":{"X-A":"a\r\nX-B: b"}`),
			malformed: "call.headers.X-A: " + noBreak,
		},
		"value_lf": {
			content:   nativeCall(`,"headers":{"X-A":["a","b\nX-B: b"]}`),
			malformed: "call.headers.X-A[1]: " + noBreak,
		},
		"value_cr": {
			content:   nativeCall(`,"headers":{"X-A":"a\rb"}`),
			malformed: "call.headers.X-A: " + noBreak,
		},
		"value_fold": {
			content:   nativeCall(`,"headers":{"X-A":"a\r\n b"}`),
			malformed: "call.headers.X-A: " + noBreak,
		},
		"value_nul": {
			content:   nativeCall(`,"headers":{"X-A":"a\u0000b"}`),
			malformed: "call.headers.X-A: " + noBreak,
		},
		"value_del": {
			content:   nativeCall(`,"headers":{"X-A":"a\u007fb"}`),
			malformed: "call.headers.X-A: " + noBreak,
		},
		"value_separators": {
			content: nativeCall(`,"headers":{"X-A":"a\u2028b\u2029c\u0085d"}`),
			check:   wantHeader("X-A", "a\u2028b\u2029c\u0085d"),
		},
		"value_long": {
			content: nativeCall(`,"headers":{"X-A":"` + strings.Repeat("v", 44000) + `"}`),
			check:   wantHeader("X-A", strings.Repeat("v", 44000)),
		},
		"value_of_commas": {
			content: nativeCall(`,"headers":{"Connection":"` + strings.Repeat(",", 44000) + `"}`),
			check:   wantHeader("Connection", strings.Repeat(",", 44000)),
		},
		"name_line_break": {
			content:   nativeCall(`,"headers":{"X-A: a\r\nX-B":"b"}`),
			malformed: "call.headers.X-A…: not a header name",
		},
		"name_separator": {
			content:   nativeCall(`,"headers":{"X\u2028A":"b"}`),
			malformed: "call.headers.X…: not a header name",
		},
		"name_nul": {
			content:   nativeCall(`,"headers":{"\u0000":"b"}`),
			malformed: "call.headers.…: not a header name",
		},
		"name_empty": {content: nativeCall(`,"headers":{"":"b"}`), malformed: "call.headers.: not a header name"},
		"name_colon": {
			content:   nativeCall(`,"headers":{"X-A:":"b"}`),
			malformed: "call.headers.X-A…: not a header name",
		},
		"host_injected": {
			content:   nativeCall(`,"headers":{"Host":"a\r\nX-B: b"}`),
			malformed: "call.headers.Host: " + noBreak,
		},
		"host_with_path": {
			content:   nativeCall(`,"headers":{"Host":"a/b c"}`),
			malformed: "call.headers.Host: want one host name",
		},
		"many_headers": {
			content: filled(`{"asyncCaller":1,"requestId":"r1","call":{"url":"http://t.example/","headers":{`,
				`"h%d":"",`, `}}}`),
			check: wantHeaders(4000),
		},
		"many_values": {
			content: filled(`{"asyncCaller":1,"requestId":"r1","call":{"url":"http://t.example/","headers":{"X-A":[`,
				`"%d",`, `]}}}`),
			check: wantHeaders(5000),
		},
		"base64_garbage": {content: nativeCall(`,"bodyBase64":"####"`), malformed: "call.bodyBase64: not base64"},
		"base64_cut":     {content: nativeCall(`,"bodyBase64":"AAA"`), malformed: "call.bodyBase64: not base64"},
		"base64_url":     {content: nativeCall(`,"bodyBase64":"__--"`), malformed: "call.bodyBase64: not base64"},
		"callback_injected": {
			content:   nativeWith(`"callback":{"url":"http://s.example/","headers":{"X-A":"a\r\nb: c"}}`),
			malformed: "callback.headers.X-A: " + noBreak,
		},
		"callback_file": {
			content:   nativeWith(`"callback":{"url":"file:///etc/passwd"}`),
			malformed: "callback.url: want an absolute",
		},
	})
}

// TestHostileNexus: HTTP messages that contain another request, and ambiguous ones.
func TestHostileNexus(t *testing.T) {
	const smuggled = "GET /evil HTTP/1.1\r\nHost: evil.example\r\n\r\n"
	body := func(head string) string {
		return nexusCall("POST / HTTP/1.1\r\nHost: t.example\r\n" + head + "\r\n" + smuggled)
	}
	const callOut = "RawRequest.CallOut: "
	runHostile(t, map[string]hostile{
		"second_request":       {content: body(""), check: wantBody("")},
		"second_behind_length": {content: body("Content-Length: 0\r\n"), check: wantBody(smuggled)},
		"second_behind_chunked": {
			content: body("Transfer-Encoding: chunked\r\nContent-Type: a/b\r\n"),
			check:   wantBody(smuggled),
		},
		"line_feed": {
			content:   nexusHead("X-A: a\nX-B: b\r\n"),
			malformed: callOut + "header line 2: the value holds a control character",
		},
		"carriage_return": {
			content:   nexusHead("X-A: a\rX-B: b\r\n"),
			malformed: callOut + "header line 2: the value holds a control character",
		},
		"nul": {
			content:   nexusHead("X-A: a\x00b\r\n"),
			malformed: callOut + "header line 2: the value holds a control character",
		},
		"fold": {content: nexusHead("X-A: a\r\n\tb\r\n"), check: wantHeader("X-A", "a b")},
		"fold_first": {
			content:   nexusCall("GET / HTTP/1.1\r\n X-A: a\r\nHost: t.example\r\n\r\n"),
			malformed: callOut + "header line 1: begins with a space",
		},
		"folded_host": {
			content:   nexusCall("GET / HTTP/1.1\r\nHost: t.example\r\n evil.example\r\n\r\n"),
			malformed: callOut + "header Host: not one host",
		},
		"separators": {
			content: nexusHead("X-A: a\u2028b\u0085c\r\n"),
			check:   wantHeader("X-A", "a\u2028b\u0085c"),
		},
		"invalid_utf8": {content: nexusHead("X-A: \xc3\x28\r\n"), check: wantHeader("X-A", "\xc3\x28")},
		"name_with_space": {
			content:   nexusHead("X-A : a\r\n"),
			malformed: callOut + "header line 2: the name is not a token",
		},
		"no_colon": {content: nexusHead("X-A\r\n"), malformed: callOut + "header line 2: no colon"},
		"two_hosts": {
			content:   nexusHead("HOST: evil.example\r\n"),
			malformed: callOut + "header Host: appears more than once",
		},
		"joined_hosts": {
			content:   nexusCall("GET / HTTP/1.1\r\nHost: t.example, evil.example\r\n\r\n"),
			malformed: callOut + "header Host: not one host",
		},
		"host_user_info": {
			content:   nexusCall("GET / HTTP/1.1\r\nHost: t.example@evil.example\r\n\r\n"),
			malformed: callOut + "header Host: not one host",
		},
		"host_path": {
			content:   nexusCall("GET / HTTP/1.1\r\nHost: evil.example/?\r\n\r\n"),
			malformed: callOut + "header Host: not one host",
		},
		"host_back_slash": {
			content:   nexusCall("GET / HTTP/1.1\r\nHost: t.example\\evil\r\n\r\n"),
			malformed: callOut + "header Host: not one host",
		},
		"host_port": {
			content:   nexusCall("GET / HTTP/1.1\r\nHost: t.example:65536\r\n\r\n"),
			malformed: callOut + "the URL's port",
		},
		"host_long": {
			content:   nexusCall("GET / HTTP/1.1\r\nHost: " + strings.Repeat("a.", 15000) + "example\r\n\r\n"),
			malformed: callOut + "the URL's host is not a valid name",
		},
		"target_at": {
			content:   nexusCall("GET @evil.example/ HTTP/1.1\r\nHost: t.example\r\n\r\n"),
			malformed: callOut + "request line: the target does not begin with a slash",
		},
		"target_absolute": {
			content:   nexusCall("GET http://evil.example/ HTTP/1.1\r\nHost: t.example\r\n\r\n"),
			malformed: callOut + "request line: the target does not begin",
		},
		"target_slashes": {
			content: nexusCall("GET //evil.example/ HTTP/1.1\r\nHost: t.example\r\n\r\n"),
			check:   wantURL("http://t.example//evil.example/"),
		},
		"target_space": {
			content:   nexusCall("GET /a b HTTP/1.1\r\nHost: t.example\r\n\r\n"),
			malformed: callOut + "request line: not a method",
		},
		"method_long": {
			content:   nexusCall(strings.Repeat("A", 30000) + " / HTTP/1.1\r\nHost: t.example\r\n\r\n"),
			malformed: callOut + "request line: not an HTTP method",
		},
		"method_connect": {
			content:   nexusCall("CONNECT / HTTP/1.1\r\nHost: t.example\r\n\r\n"),
			malformed: callOut + "request line: CONNECT opens a tunnel",
		},
		"version": {
			content:   nexusCall("GET / HTTP/1.1x\r\nHost: t.example\r\n\r\n"),
			malformed: callOut + "request line: the version",
		},
		"many_headers": {content: nexusHead(strings.Repeat("a:\r\n", 8500)), check: wantHeaders(8500)},
		"many_folds": {
			content: nexusHead("X-A: a\r\n" + strings.Repeat(" \r\n", 10000)),
			check:   func(*testing.T, *envelope.Envelope) {},
		},
		"value_long": {
			content: nexusHead("X-A: " + strings.Repeat("v", 33000) + "\r\n"),
			check:   wantHeader("X-A", strings.Repeat("v", 33000)),
		},
		"no_blank_line": {content: nexusCall(strings.Repeat("x: y\r\n", 5000)), malformed: callOut},
		"scheme": {
			content:   nexusRaw(`"CallOutUriScheme":"file"`),
			malformed: `RawRequest.CallOutUriScheme: want "http" or "https"`,
		},
		"scheme_injected": {
			content:   nexusRaw(`"CallOutUriScheme":"http://evil.example/?"`),
			malformed: "RawRequest.CallOutUriScheme: want",
		},

		"call_out_garbage": {content: `{"RawRequest":{"CallOut":"####"}}`, malformed: callOut + "not base64"},
		"call_out_noise": {
			content:   `{"RawRequest":{"CallOut":"` + in64("\x00\xff\x01noise") + `"}}`,
			malformed: callOut + "request line: no line end",
		},
		"call_out_null":      {content: `{"RawRequest":{"CallOut":null}}`, malformed: callOut + "missing"},
		"call_out_number":    {content: `{"RawRequest":{"CallOut":1e999999}}`, malformed: callOut + "want a string"},
		"call_out_empty":     {content: `{"RawRequest":{"CallOut":""}}`, malformed: callOut},
		"raw_request_null":   {content: `{"RawRequest":null}`, malformed: "asyncCaller: missing"},
		"raw_request_nested": {content: `{"RawRequest":` + nexusCall(plainCall) + `}`, malformed: callOut + "missing"},
		"raw_request_deep": {
			content:   strings.Repeat(`{"RawRequest":`, 3000) + "1" + strings.Repeat("}", 3000),
			malformed: callOut + "missing",
		},
		"raw_request_twice": {content: `{"RawRequest":{},"rawrequest":{}}`, malformed: "RawRequest: appears twice"},
		"response_garbage":  {content: nexusWith(`"LatestResponse":"` + in64("\x00garbage\xff") + `"`)},
		"response_status": {content: nexusWith(`"LatestResponse":"` +
			in64("HTTP/1.1 99999999999999999999 x\r\n\r\n") + `"`)},
		"response_no_base64": {content: nexusWith(`"LatestResponse":"####"`), malformed: "LatestResponse: not base64"},
		"response_headers": {content: nexusWith(`"LatestResponse":"` +
			in64("HTTP/1.1 500 x\r\n"+strings.Repeat("a:\r\n", 8000)+"\r\n") + `"`)},
		"context_deep":      {content: nexusRaw(`"Context":"` + in64(nested(9000)) + `"`)},
		"context_garbage":   {content: nexusRaw(`"Context":"` + in64("\xff\xfe\x00") + `"`)},
		"context_no_base64": {content: nexusRaw(`"Context":"####"`), malformed: "RawRequest.Context: not base64"},
		"title_long":        {content: nexusRaw(`"Title":"` + strings.Repeat("t", 40000) + `"`)},
		"title_object":      {content: nexusRaw(`"Title":` + nested(5000))},
		"id_long": {content: `{"RawRequest":{"Id":"` + strings.Repeat("i", 40000) + `","CallOut":"` +
			in64(plainCall) + `"}}`},
		"id_injected": {content: `{"RawRequest":{"Id":"a\r\nX-B: b\u0000","CallOut":"` + in64(plainCall) +
			`"}}`},
		"original_long": {content: nexusWith(`"OriginalRequestId":"` + strings.Repeat(`\u0000\u2028`, 3000) +
			`"`)},
		"tenant_long": {content: nexusWith(`"Organization":"` + strings.Repeat(`\u001b[31må`, 2500) +
			`","Environment":"` + strings.Repeat("e", 9000) + `"`)},
		"correlation_long": {content: nexusHead("X-Correlation-ID: " + strings.Repeat("c", 30000) + "\r\n")},
		"callback_smuggled": {
			content: nexusRaw(`"CallBack":"` + in64("POST / HTTP/1.1\r\nHost: s.example\r\nX-A: a\nX-B: b\r\n\r\n") +
				`"`),
			malformed: "RawRequest.CallBack: header line 2: the value holds a control character",
		},
		"callback_no_room": {
			content: nexusRaw(`"CallBack":"` +
				in64("POST /"+strings.Repeat("a", 30000)+" HTTP/1.1\r\nHost: s.example\r\n\r\n") + `"`),
			malformed: "the envelope has ",
		},
	})
}

func runHostile(t *testing.T, rows map[string]hostile) {
	t.Helper()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
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
	if !h.annotated {
		a.wantSettled(t, h.content)
	}
	lines := a.lines(t)
	last := lines[len(lines)-1]
	got := fmt.Sprint(last["action"], " ", last["reason"])
	if h.malformed != "" {
		if detail := fmt.Sprint(last["detail"]); got != "dead_letter malformed" ||
			!strings.HasPrefix(detail, h.malformed) {
			t.Errorf("%s: %s, want malformed: %s", got, detail, h.malformed)
		}
		if len(called) > 0 {
			t.Error("a call was made")
		}
		if h.annotated {
			a.wantAnnotated(t)
		} else {
			a.wantContents(t, poisonQueue, h.content)
		}
		return
	}
	want := h.want
	if want == "" {
		want = "finish delivered"
	}
	if got != want {
		t.Fatalf("%s: %v, want %s", got, last["detail"], want)
	}
	if made := len(called) == 1; made != (h.want == "") {
		t.Fatalf("%d calls", len(called))
	}
	if h.check != nil {
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
