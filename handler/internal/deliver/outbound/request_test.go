package outbound_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
)

const noContent = "HTTP/1.1 204 No Content\r\n\r\n"

func mustProfiles(tb testing.TB, content string) targets.Profiles {
	tb.Helper()
	profiles, err := targets.Parse([]byte(content), nil, func(string) string { return "theirs" })
	if err != nil {
		tb.Fatal(err)
	}
	return profiles
}

// own are the header lines that each call to a.example has.
var own = []string{
	"Host: a.example", "User-Agent: async-caller", "X-Async-Caller-Attempt: 1", "idempotency-key: request-1",
}

// headerLines returns the header lines of a head, except for those that each call has, and what is missing of these.
func headerLines(head string) string {
	lines := strings.Split(strings.TrimSuffix(head, "\r\n\r\n"), "\r\n")[1:]
	slices.Sort(lines)
	for _, line := range own {
		if i := slices.Index(lines, line); i >= 0 {
			lines = slices.Delete(lines, i, i+1)
		} else {
			lines = append(lines, "no "+line)
		}
	}
	return strings.Join(lines, "|")
}

// TestHeadersOnTheWire: the target receives the headers of the envelope and those of docs/envelope.md, "Call". A
// profile adds what the envelope does not have, in the file's spelling, and only if the call certainly goes to the
// profile's host.
func TestHeadersOnTheWire(t *testing.T) {
	headers := func(more ...any) object {
		all := object{}
		for i := 0; i < len(more); i += 2 {
			all[more[i].(string)] = more[i+1]
		}
		return object{"headers": all}
	}
	const one, key = `"*":{"headers":{"X-A":"1"}}`, `"*":{"headers":{"X-Key":"$KEY"}}`
	const attempt, noAgent = "no X-Async-Caller-Attempt: 1", "no User-Agent: async-caller"
	const noKey = "no idempotency-key: request-1"
	for name, test := range map[string]struct {
		call    object
		profile string
		want    string
	}{
		"get":             {object{}, "", ""},
		"post_nothing":    {object{"method": "POST"}, "", "Content-Length: 0"},
		"post_empty_text": {object{"body": ""}, "", "Content-Length: 0"},
		"get_with_body":   {object{"method": "GET", "body": "hé"}, "", "Content-Length: 3"},
		"json":            {object{"json": []int{1}}, "", "Content-Length: 3|Content-Type: application/json"},
		"fourth_attempt":  {object{"attempts": 3}, "", "X-Async-Caller-Attempt: 4|" + attempt},
		"host":            {headers("host", "b.example:8443"), "", "Host: b.example:8443|no Host: a.example"},
		"own_key":         {headers("idempotency-key", "mine"), "", "idempotency-key: mine|" + noKey},
		"own_agent":       {headers("user-agent", "mine/1"), "", "user-agent: mine/1|" + noAgent},
		"attempt_is_ours": {headers("X-Async-Caller-Attempt", "99"), "", ""},
		"several_values":  {headers("X-Two", []string{"a", "b, c"}), "", "X-Two: a|X-Two: b, c"},
		"empty_value":     {headers("X-Empty", ""), "", "X-Empty: "},
		"two_spellings":   {headers("SOAPAction", "a", "SoapAction", "b"), "", "SOAPAction: a|SOAPAction: b"},
		"capitals": {
			headers("IDEMPOTENCY-KEY", "mine", "X-ASYNC-CALLER-ATTEMPT", "99", "traceparent", "00-1"), "",
			"IDEMPOTENCY-KEY: mine|X-ASYNC-CALLER-ATTEMPT: 1|traceparent: 00-1|" + attempt + "|" + noKey,
		},
		"hop_by_hop_in_capitals": {
			headers("CONNECTION", "x-LISTED", "X-Listed", "1", "te", "trailers", "CONTENT-length", "9"), "", "",
		},
		"hop_by_hop": {
			headers("Connection", []string{"close, X-Listed", "x-also-listed"}, "X-Listed", "1", "X-Also-Listed", "2",
				"Keep-Alive", "timeout=5", "Proxy-Connection", "keep-alive", "Proxy-Authorization", "Basic x",
				"Trailer", "X-T", "Transfer-Encoding", "chunked", "Upgrade", "websocket", "X-Kept", "3"), "",
			"X-Kept: 3",
		},
		"connection_lists_our_key": {headers("Connection", "Idempotency-Key", "Idempotency-Key", "mine"), "", ""},
		"user_info":                {object{"url": "http://u:p@a.example"}, "", "Authorization: Basic dTpw"},
		"user_info_and_own": {
			object{"url": "http://u:p@a.example", "headers": object{"AUTHORIZATION": "a"}}, "", "AUTHORIZATION: a",
		},

		"added": {
			object{},
			`"a.example":{"headers":{"Authorization":"$KEY","SOAPAction":"x","X-Two":["1","2"]}}`,
			"Accept-Encoding: identity|Authorization: theirs|SOAPAction: x|X-Two: 1|X-Two: 2",
		},
		"not_merged": {object{}, `"a.example":{},` + one, ""},
		"other_host": {object{}, `"b.example":{"headers":{"X-A":"1"}}`, ""},
		"envelopes_own": {
			headers("x-a", "mine", "X-B", "mine", "X-C", []string{}), `"*":{"headers":{"X-A":"1","x-b":"1","X-C":"1"}}`,
			"X-B: mine|x-a: mine",
		},
		"named_in_connection": {headers("x-a", "mine", "Connection", "X-A"), one, ""},
		"profiles_agent": {
			object{}, `"*":{"headers":{"user-agent":"theirs"}}`, "user-agent: theirs|" + noAgent,
		},
		"profile_and_user_info": {
			object{"url": "http://u:p@a.example"},
			`"*":{"headers":{"authorization":"$KEY"}}`,
			"Accept-Encoding: identity|Authorization: Basic dTpw",
		},
		"secrets_are_not_coded": {
			headers("accept-encoding", "gzip"), key, "X-Key: theirs|accept-encoding: identity",
		},
		"no_secret_for_others": {
			headers("Host", "b.example", "Accept-Encoding", "gzip"), key,
			"Accept-Encoding: gzip|Host: b.example|no Host: a.example",
		},
		"no_secret": {
			headers("Accept-Encoding", "gzip"), `"*":{"headers":{"X-A":"$REGION"}}`,
			"Accept-Encoding: gzip|X-A: theirs",
		},
		"same_host_header":  {headers("Host", "a.example:80"), one, "Host: a.example:80|X-A: 1|no Host: a.example"},
		"other_port_header": {headers("Host", "a.example:81"), one, "Host: a.example:81|no Host: a.example"},
		"trace":             {object{"method": "trace"}, one, ""},
		"unknown_method":    {object{"method": "PURGE"}, one, ""},
		"known_method":      {object{"method": "options"}, one, "X-A: 1"},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAnswer(t, noContent)
			client := newClient(t, longTimeout).WithProfiles(mustProfiles(t, "{"+test.profile+"}"))
			client.ConnectBy(func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, server.listener.Addr().String())
			})
			more := object{}
			if attempts, ok := test.call["attempts"]; ok {
				more["attempts"] = attempts
				delete(test.call, "attempts")
			}
			call := object{"url": "http://a.example"}
			maps.Copy(call, test.call)
			wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, call, more)), 204)
			want, got := strings.Split(test.want, "|"), strings.Split(headerLines(<-server.heads), "|")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequestLine(t *testing.T) {
	for name, test := range map[string]struct{ url, method, want string }{
		"no_path":          {"", "GET", "GET / HTTP/1.1"},
		"query_only":       {"?a=1", "GET", "GET /?a=1 HTTP/1.1"},
		"escapes_kept":     {"/a%2Fb/c%20d?q=1%202+3&x=%C3%A9", "GET", "GET /a%2Fb/c%20d?q=1%202+3&x=%C3%A9 HTTP/1.1"},
		"escaped":          {"/å/100%/c?q=å&r=\"{b}%", "GET", "GET /%C3%A5/100%25/c?q=%C3%A5&r=%22%7Bb%7D%25 HTTP/1.1"},
		"double_slash":     {"//a//b/../c/", "GET", "GET //a//b/../c/ HTTP/1.1"},
		"without_fragment": {"/a#100%", "GET", "GET /a HTTP/1.1"},
		"lower_case":       {"/", "put", "PUT / HTTP/1.1"},
		"invented_method":  {"/", "Purge", "Purge / HTTP/1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAnswer(t, noContent)
			e := mustEnvelope(t, object{"url": server.url() + test.url, "method": test.method})
			wantAnswer(t, newClient(t, longTimeout).Do(t.Context(), e), 204)
			if line, _, _ := strings.Cut(<-server.heads, "\r\n"); line != test.want {
				t.Errorf("got %q, want %q", line, test.want)
			}
		})
	}
}

func TestBodiesByteForByte(t *testing.T) {
	everyByte := make([]byte, 256)
	for i := range everyByte {
		everyByte[i] = byte(i)
	}
	long := strings.Repeat("0123456789", 6000)
	for name, test := range map[string]struct{ member, value, want string }{
		"text":   {"body", `"line\r\nénd\u0000"`, "line\r\nénd\x00"},
		"base64": {"bodyBase64", `"` + base64.StdEncoding.EncodeToString(everyByte) + `"`, string(everyByte)},
		"json":   {"json", `{ "b":1.50, "a":[ 1e2,"\u00e9\/" ] }`, `{ "b":1.50, "a":[ 1e2,"\u00e9\/" ] }`},
		"null":   {"json", `null`, `null`},
		"large":  {"body", `"` + long + `"`, long},
	} {
		t.Run(name, func(t *testing.T) {
			server := newTestServer(t, nil)
			content := fmt.Sprintf(`{"asyncCaller":1,"requestId":"r","call":{"url":%q,%q:%s}}`, server.URL, test.member,
				test.value)
			e, err := envelope.Parse([]byte(content))
			if err != nil {
				t.Fatal(err)
			}
			wantAnswer(t, newClient(t, longTimeout).Do(t.Context(), e), 200)
			if got := server.one(t); !bytes.Equal(got.body, []byte(test.want)) || got.method != http.MethodPost {
				t.Errorf("got %s with %d bytes %.100q, want POST with %d bytes %.100q", got.method, len(got.body),
					got.body, len(test.want), test.want)
			}
		})
	}
}

// TestSameEnvelopeAgain: each attempt calls the same envelope again, so a call must not change it.
func TestSameEnvelopeAgain(t *testing.T) {
	server := newTestServer(t, nil)
	client := newClient(t, longTimeout)
	e := mustEnvelope(t, object{
		"url": server.URL, "body": "text", "headers": object{"X-A": "1", "Connection": "X-B", "X-B": "2"},
	})
	client.Do(t.Context(), e)
	client.Do(t.Context(), e)
	first, second := server.all()[0], server.all()[1]
	if diff := cmp.Diff(first, second, cmp.AllowUnexported(seen{})); diff != "" {
		t.Errorf("the second call differs (-first +second):\n%s", diff)
	}
	if e.Call.Header.Get("X-B") != "2" {
		t.Error("the call removed a header from the envelope")
	}
}
