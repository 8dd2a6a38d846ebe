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

func TestNexusParse(t *testing.T) {
	got, err := envelope.Parse([]byte(`{"Organization":"acme","Environment":"prod","OriginalRequestId":"the-first-one","Attempts":2,
		"CreatedAt":"2026-01-31T12:00:00.1234567+01:00","LatestAttemptAt":"2026-01-31T11:30:00Z","LatestResponse":"` +
		inBase64("HTTP/1.1 504 Gateway Time-out\r\nServer: a, b\r\nExpires: -1\r\n\r\ntoo late") + `",
		"DeadlineAt":"2026-02-02T11:00:00","NextAttemptAt":"2026-01-31T12:00:00+00:00",
		"RawRequest":{"Id":"order-42","Title":"t","Context":"` + inBase64(`{"k": [1]}`) + `",
		"CallOut":"` + inBase64("PUT /a%2Fb?x=1+2 HTTP/1.1\r\nHost: target.example:8443\r\nAccept: a, b\r\n"+
		"Cookie: c=1\r\nCookie: d=2\r\nContent-Type: text/plain\r\n\r\nhello") + `",
		"CallOutUriScheme":"HTTPS","CallBack":"` + inBase64("POST /done HTTP/1.1\r\nHost: sender.example\r\n\r\n") + `","CallBackUriScheme":"","Priority":10},
		"Trail":[{"At":"2026-01-31T11:30:00Z","Status":504,"TookMs":20}]}`))
	if err != nil {
		t.Fatal(err)
	}
	noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	want := &envelope.Envelope{
		RequestID: "order-42", OriginalRequestID: "the-first-one",
		Tenant: envelope.Tenant{Organization: "acme", Environment: "prod"},
		Call: envelope.Call{
			URL: "https://target.example:8443/a%2Fb?x=1+2", Method: "PUT",
			Target: mustURL(t, "https://target.example:8443/a%2Fb?x=1+2"),
			Header: http.Header{"Accept": {"a, b"}, "Cookie": {"c=1", "d=2"}, "Content-Type": {"text/plain"}},
			Body:   []byte("hello"),
		},
		Callback: &envelope.Callback{URL: "http://sender.example/done"},
		Context:  json.RawMessage(`{"k": [1]}`),
		Priority: 10,
		Deadline: noon.Add(47 * time.Hour),
		State: envelope.State{
			Attempts: 2, CreatedAt: noon.Add(-time.Hour + 123456700), LatestAttemptAt: noon.Add(-30 * time.Minute),
			NextAttemptAt: noon,
			Latest: &envelope.Answer{
				Status: 504, Header: http.Header{"Server": {"a, b"}, "Expires": {"-1"}},
				Body: []byte("too late"),
			},
			Trail: []envelope.Attempt{{At: noon.Add(-30 * time.Minute), Status: 504, Took: 20 * time.Millisecond}},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(envelope.Envelope{})); diff != "" {
		t.Errorf("envelope (-want +got):\n%s", diff)
	}
	if got.Format() != envelope.FormatNexus {
		t.Errorf("format %q", got.Format())
	}
}

// TestNexusLatestResponse2xx: a message that is still on its way was not delivered, so its 2xx broke off. It stays
// in the message, but nobody is told of it.
func TestNexusLatestResponse2xx(t *testing.T) {
	for status, want := range map[string]int{
		"200 OK": 0, "299 ": 0, "302 Found": 302, "500 Oops": 500, " 500 Oops": 0,
	} {
		latest := `"LatestResponse":"` + inBase64("HTTP/1.1 "+status+"\r\nContent-Length: 4\r\n\r\nhalf") + `"`
		e := accept(t, strings.Replace(nexusMessage(plainCall, ""), `"LatestResponse":null`, latest, 1))
		if got := e.LatestStatus(); got != want || (e.Latest != nil) != (want != 0) {
			t.Errorf("%s: latest status %d, answer %+v, want %d", status, got, e.Latest, want)
		}
		content, err := e.Successor(limit)
		if err != nil || !strings.Contains(string(content.Bytes), latest) {
			t.Errorf("%s: the successor is %s, %v", status, content.Bytes, err)
		}
	}
}

func TestNexusPriority(t *testing.T) {
	for value, want := range map[string]int{
		`1`: 1, `10`: 10, `11`: 0, `0`: 0, `-1`: 0, `null`: 0, `"3"`: 0, `2.5`: 0, `1e400`: 0, `[]`: 0,
	} {
		if got := accept(t, nexusMessage(plainCall, `,"Priority":`+value)).Priority; got != want {
			t.Errorf("%s: got %d, want %d", value, got, want)
		}
	}
}

func TestNexusScheme(t *testing.T) {
	for value, want := range map[string]string{
		`"http"`: "http", `"https"`: "https", `"HTTPS"`: "https", `" https "`: "https", `""`: "http", `null`: "http",
	} {
		if got := accept(t, nexusMessage(plainCall, `,"CallOutUriScheme":`+value)).
			Call.URL; got != want+"://target.example/orders" {
			t.Errorf("%s: %s", value, got)
		}
	}
}

// TestNexusContext checks that a context that is not JSON is returned as text, because it must not prevent the call.
func TestNexusContext(t *testing.T) {
	for name, c := range map[string]struct{ content, want string }{
		"object":   {`{"a" : 1.0}`, `{"a" : 1.0}`},
		"array":    {`[1,2]`, `[1,2]`},
		"string":   {`"å"`, `"å"`},
		"number":   {`42`, `42`},
		"null":     {`null`, `null`},
		"mark":     {"\xef\xbb\xbf{}", `{}`},
		"empty":    {"", `null`},
		"blank":    {" \r\n", `null`},
		"text":     {`see "this"`, `"see \"this\""`},
		"not_utf8": {"\"f\xf6r\"", `"\"f` + "\ufffd" + `r\""`},
		"too_deep": {
			strings.Repeat("[", 2000) + strings.Repeat("]", 2000),
			`"` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := accept(t, nexusMessage(plainCall, withCallback+`,"Context":"`+inBase64(c.content)+`"`))
			content, err := e.CallbackWith(envelope.Report{Status: 200, At: arrival}, limit)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(reportIn(t, content.Bytes).Context); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestNexusLargeContext checks from which size of a message on its context does not fit into the callback
// (docs/nexus.md).
func TestNexusLargeContext(t *testing.T) {
	for size, fits := range map[int]bool{48_600: true, 48_900: false, limit - 150: false} {
		message := func(n int) string {
			return nexusMessage(plainCall, withCallback+`,"Context":"`+inBase64(`"`+strings.Repeat("c", n)+`"`)+`"`)
		}
		content := message((size-len(message(0)))/4*3 - 2)
		callback, err := accept(t, content).
			CallbackWith(envelope.Report{Status: 200, Payload: "p", At: arrival, Deadline: arrival}, limit)
		if err != nil {
			t.Fatal(err)
		}
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
	if err := json.Unmarshal(accept(t, string(content)).Call.Body, &body); err != nil {
		t.Fatal(err)
	}
	return body
}

// TestNexusRequestID checks that an id that no header can hold is replaced by another one, always the same.
func TestNexusRequestID(t *testing.T) {
	parse := func(id string) *envelope.Envelope {
		return accept(t, strings.Replace(nexusMessage(plainCall, ""), `"Id":"order-42"`, `"Id":`+id, 1))
	}
	for _, id := range []string{`"två ord"`, `"a b"`, `"a\nb"`, `"` + strings.Repeat("x", 129) + `"`} {
		if got := parse(id).RequestID; !envelope.ValidRequestID(got) || got != parse(id).RequestID {
			t.Errorf("%s: %q", id, got)
		}
	}
	if parse(`"å"`).RequestID == parse(`"ä"`).RequestID {
		t.Error("two ids became one")
	}
	for id, want := range map[string]string{`"order-1"`: "order-1", `null`: "order-42", `""`: "order-42"} {
		if got := parse(id).RequestID; got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
}

// TestNexusNamesTheMember checks that errors say where the mistake is, and never contain C4nary, which is in every
// value that may be secret.
func TestNexusNamesTheMember(t *testing.T) {
	message := func(callOut string) string { return nexusMessage(callOut, `,"Title":"C4nary"`) }
	request := func(line string, headers ...string) string {
		return message(line + "\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\nC4nary")
	}
	const line, host, secret = "POST /C4nary?key=C4nary HTTP/1.1", "Host: target.example", "Authorization: C4nary"
	good := request(line, host, secret, "Content-Type: text/plain")
	with := func(old, replacement string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%s is not in the message", old)
		}
		return strings.Replace(good, old, replacement, 1)
	}
	callback := func(text string) string { return with(`"Title"`, `"CallBack":"`+inBase64(text)+`","Title"`) }
	accept(t, good)
	accept(t, request("POST /C4nary HTTP/2.0", host))
	for name, c := range map[string]struct{ content, want string }{
		"both_markers": {
			with(`{"Org`, `{"asyncCaller":1,"Org`),
			"asyncCaller: appears together with RawRequest",
		},
		"both_markers_any_case": {
			`{"asyncCaller":1,"rawrequest":{}}`,
			"asyncCaller: appears together with RawRequest",
		},
		"comment":            {with(`{"Org`, `{/* C4nary */"Org`), "not JSON: line 1, column 2"},
		"neither_marker":     {`{"Organization":"C4nary"}`, "RawRequest"},
		"raw_null":           {`{"RawRequest":null,"x":"C4nary"}`, "asyncCaller: missing, and so is RawRequest"},
		"raw_number":         {`{"RawRequest":42}`, "RawRequest: want an object, not a number"},
		"raw_string":         {`{"RawRequest":"C4nary"}`, "RawRequest: want an object, not a string"},
		"raw_array":          {`{"RawRequest":["C4nary"]}`, "RawRequest: want an object, not an array"},
		"raw_empty":          {`{"RawRequest":{}}`, "RawRequest.CallOut: missing"},
		"callout_null":       {`{"RawRequest":{"CallOut":null,"Title":"C4nary"}}`, "RawRequest.CallOut: missing"},
		"callout_number":     {`{"RawRequest":{"CallOut":42}}`, "RawRequest.CallOut: want a string, not a number"},
		"callout_no_base64":  {`{"RawRequest":{"CallOut":"C4nary!"}}`, "RawRequest.CallOut: not base64"},
		"callout_no_padding": {`{"RawRequest":{"CallOut":"C4nary7"}}`, "RawRequest.CallOut: not base64"},
		"callout_empty":      {`{"RawRequest":{"CallOut":""}}`, "RawRequest.CallOut: request line: "},
		"callout_no_http":    {message("C4nary"), "RawRequest.CallOut: request line: "},
		"names_twice":        {with(`"Attempts"`, `"attempts":1,"Attempts"`), "Attempts: appears twice"},
		"marker_twice":       {with(`"RawRequest"`, `"rawRequest":{},"RawRequest"`), "RawRequest: appears twice"},
		"raw_names_twice":    {with(`"Id"`, `"ID":"C4nary","Id"`), "RawRequest.Id: appears twice"},
		"scheme_ftp": {
			with(`"Title"`, `"CallOutUriScheme":"ftp","Title"`),
			`RawRequest.CallOutUriScheme: want "http" or "https"`,
		},
		"scheme_number": {
			with(`"Title"`, `"CallOutUriScheme":1,"Title"`),
			"RawRequest.CallOutUriScheme: want a string",
		},
		"callback_scheme_ftp": {
			with(`"Title"`, `"CallBackUriScheme":"ftp","Title"`),
			`RawRequest.CallBackUriScheme: want "http" or "https"`,
		},
		"target_other_host": {request("GET @C4nary/ HTTP/1.1", host), "RawRequest.CallOut: request line: "},
		"target_port":       {request("GET :81/C4nary HTTP/1.1", host), "RawRequest.CallOut: request line: "},
		"target_url":        {request("GET http://C4nary/ HTTP/1.1", host), "RawRequest.CallOut: request line: "},
		"host_bad_escape":   {request("GET / HTTP/1.1", "Host: a%zzC4nary.example"), "RawRequest.CallOut: "},
		"target_with_space": {request("GET /a C4nary HTTP/1.1", host), "RawRequest.CallOut: request line: "},
		"no_version":        {request("GET /C4nary", host), "RawRequest.CallOut: request line: "},
		"http_2":            {request("GET /C4nary HTTP/2", host), "RawRequest.CallOut: request line: "},
		"two_spaces":        {request("GET  /C4nary HTTP/1.1", host), "RawRequest.CallOut: request line: "},
		"connect": {
			request("CONNECT /C4nary HTTP/1.1", host),
			"RawRequest.CallOut: request line: CONNECT",
		},
		"method_no_token": {request("GE(C4nary) / HTTP/1.1", host), "RawRequest.CallOut: request line: "},
		"method_too_long": {
			request("C4nary"+strings.Repeat("X", 40)+" / HTTP/1.1", host),
			"RawRequest.CallOut: request line: ",
		},
		"no_host": {request(line, secret), "RawRequest.CallOut: header Host: missing"},
		"two_hosts": {
			request(line, host, secret, host),
			"RawRequest.CallOut: header Host: appears more than once",
		},
		"two_hosts_any_case": {
			request(line, host, "host: C4nary"),
			"RawRequest.CallOut: header Host: appears more than once",
		},
		"two_hosts_joined":    {request(line, "Host: target.example, C4nary"), "RawRequest.CallOut: header Host: "},
		"host_with_user":      {request(line, "Host: C4nary@target.example"), "RawRequest.CallOut: header Host: "},
		"host_with_path":      {request(line, "Host: target.example/C4nary"), "RawRequest.CallOut: header Host: "},
		"host_empty":          {request(line, "Host:", secret), "RawRequest.CallOut: header Host: "},
		"host_port_too_large": {request(line, "Host: target.example:99999"), "RawRequest.CallOut: the URL's port"},
		"no_colon":            {request(line, host, secret, "C4nary"), "RawRequest.CallOut: header line 3: no colon"},
		"bad_header_name":     {request(line, host, "C4 nary: x"), "RawRequest.CallOut: header line 2: the name"},
		"control_character": {
			request(line, host, secret, "X: C4nary\x00"),
			"RawRequest.CallOut: header line 3: the value",
		},
		"lone_line_feeds": {
			message("GET /C4nary HTTP/1.1\nHost: target.example\n\n"),
			"RawRequest.CallOut: request line: no line end",
		},
		"no_blank_line": {
			message("GET /C4nary HTTP/1.1\r\nHost: target.example\r\n"),
			"RawRequest.CallOut: headers: no blank line",
		},
		"callback_no_base64": {with(`"Title"`, `"CallBack":"C4nary!","Title"`), "RawRequest.CallBack: not base64"},
		"callback_empty":     {with(`"Title"`, `"CallBack":"","Title"`), "RawRequest.CallBack: request line: "},
		"callback_no_colon": {
			callback(line + "\r\n" + host + "\r\nC4nary\r\n\r\n"),
			"RawRequest.CallBack: header line 2: no colon",
		},
		"callback_no_host": {
			callback(line + "\r\n" + secret + "\r\n\r\n"),
			"RawRequest.CallBack: header Host: missing",
		},
		"callback_connect": {
			callback("CONNECT /C4nary HTTP/1.1\r\n" + host + "\r\n\r\n"),
			"RawRequest.CallBack: request line: CONNECT",
		},
		"context_no_base64": {with(`"Title"`, `"Context":"C4nary!","Title"`), "RawRequest.Context: not base64"},
		"context_object": {
			with(`"Title"`, `"Context":{"a":"C4nary"},"Title"`),
			"RawRequest.Context: want a string, not an object",
		},
		"id_number":         {with(`"Id":"order-42"`, `"Id":42`), "RawRequest.Id: want a string, not a number"},
		"attempts_text":     {with(`"Attempts":0`, `"Attempts":"C4nary"`), "Attempts: want a whole number"},
		"attempts_negative": {with(`"Attempts":0`, `"Attempts":-1`), "Attempts: want a whole number"},
		"created_no_date": {
			with(`"CreatedAt":"2026-01-31T11:00:00+00:00"`, `"CreatedAt":"C4nary"`),
			"CreatedAt: not a date",
		},
		"created_number": {
			with(`"CreatedAt":"2026-01-31T11:00:00+00:00"`, `"CreatedAt":1`),
			"CreatedAt: want a string",
		},
		"deadline_no_date": {with(`"DeadlineAt":"2026-02-07T11:00:00+00:00"`,
			`"DeadlineAt":"2026-02-30T11:00:00"`), "DeadlineAt: not a date"},
		"next_no_date": {
			with(`"NextAttemptAt":"2026-01-31T11:00:00+00:00"`, `"NextAttemptAt":"31/01/2026"`),
			"NextAttemptAt: not a date",
		},
		"response_no_base64": {
			with(`"LatestResponse":null`, `"LatestResponse":"C4nary!"`),
			"LatestResponse: not base64",
		},
		"organization_number": {with(`"acme"`, `42`), "Organization: want a string, not a number"},
		"trail_no_array": {
			with(`"Attempts":0`, `"Attempts":0,"Trail":"C4nary"`),
			"Trail: want an array, not a string",
		},
		"trail_bad_status": {
			with(`"Attempts":0`, `"Attempts":0,"Trail":[{"Status":"C4nary"}]`),
			"Trail[0].Status: want a whole number",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := envelope.Parse([]byte(c.content))
			if err == nil {
				t.Fatal("it is an envelope")
			}
			if text := err.Error(); !strings.Contains(text, c.want) ||
				(!strings.HasPrefix(text, c.want) && name != "neither_marker") {
				t.Errorf("got %q, want %q", text, c.want)
			}
			if strings.Contains(err.Error(), "C4nary") {
				t.Errorf("the error contains a secret: %v", err)
			}
		})
	}
}
