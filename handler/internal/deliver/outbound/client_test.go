package outbound_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
)

func TestStatuses(t *testing.T) {
	for _, status := range []int{
		200, 201, 202, 204, 206, 300, 304, 400, 401, 404, 409, 410, 418, 429, 500,
		502, 503, 526, 599,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			server := newTestServer(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, object{"url": server.URL}))
			wantAnswer(t, o, status)
			if len(o.Body) != 0 || o.Truncated || o.Took <= 0 {
				t.Errorf("got %+v, want no body and a time that it took", o)
			}
			server.one(t)
		})
	}
}

func TestMediaType(t *testing.T) {
	tests := map[string]struct{ header, want string }{
		"plain":        {"application/json", "application/json"},
		"parameters":   {"text/plain; charset=utf-8", "text/plain"},
		"any_case":     {"Application/Problem+JSON", "application/problem+json"},
		"none":         {"", ""},
		"not_a_type":   {"; charset=utf-8", ""},
		"lone_quote":   {`text/plain; charset="`, "text/plain"},
		"not_accepted": {"text/ plain", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := newTestServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = nil
				if test.header != "" {
					w.Header().Set("Content-Type", test.header)
				}
				_, _ = io.WriteString(w, "answer")
			})
			o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, object{"url": server.URL}, reported))
			if o.Answer().MediaType() != test.want || string(o.Body) != "answer" {
				t.Errorf("got %q with %q, want %q", o.Answer().MediaType(), o.Body, test.want)
			}
		})
	}
}

// The target receives the headers of the envelope and those of docs/envelope.md, "Call".
func TestHeadersOnTheWire(t *testing.T) {
	const ours = "idempotency-key: request-1|User-Agent: async-caller|X-Async-Caller-Attempt: 1"
	tests := map[string]struct {
		call object
		more object
		want string // sorted, separated by bars
	}{
		"get":             {object{}, nil, ours},
		"delete":          {object{"method": "DELETE"}, nil, ours},
		"post_nothing":    {object{"method": "POST"}, nil, "Content-Length: 0|" + ours},
		"post_empty_text": {object{"body": ""}, nil, "Content-Length: 0|" + ours},
		"post_text":       {object{"body": "héllo"}, nil, "Content-Length: 6|" + ours},
		"get_with_body":   {object{"method": "GET", "body": "x"}, nil, "Content-Length: 1|" + ours},
		"json":            {object{"json": []int{1}}, nil, "Content-Length: 3|Content-Type: application/json|" + ours},
		"json_own_type": {
			object{"json": 1, "headers": object{"content-type": "application/vnd.x+json"}},
			nil,
			"Content-Length: 1|content-type: application/vnd.x+json|" + ours,
		},
		"fourth_attempt": {
			object{},
			object{"attempts": 3},
			"idempotency-key: request-1|User-Agent: async-caller|X-Async-Caller-Attempt: 4",
		},
		"own_key": {
			object{"headers": object{"idempotency-key": "mine"}},
			nil,
			"idempotency-key: mine|User-Agent: async-caller|X-Async-Caller-Attempt: 1",
		},
		"own_agent": {
			object{"headers": object{"user-agent": "mine/1"}},
			nil,
			"idempotency-key: request-1|user-agent: mine/1|X-Async-Caller-Attempt: 1",
		},
		"attempt_is_ours": {object{"headers": object{"X-Async-Caller-Attempt": "99"}}, nil, ours},
		"several_values": {
			object{"headers": object{"X-Two": []string{"a", "b, c"}}},
			nil,
			"idempotency-key: request-1|User-Agent: async-caller|X-Async-Caller-Attempt: 1|X-Two: a|X-Two: b, c",
		},
		"empty_value": {
			object{"headers": object{"X-Empty": ""}},
			nil,
			"idempotency-key: request-1|User-Agent: async-caller|X-Async-Caller-Attempt: 1|X-Empty: ",
		},
		"accepts_encoding": {object{"headers": object{"Accept-Encoding": "br"}}, nil, "Accept-Encoding: br|" + ours},
		"correlation": {
			object{"headers": object{"X-Correlation-ID": "c", "traceparent": "00-1"}},
			nil,
			"idempotency-key: request-1|traceparent: 00-1|User-Agent: async-caller|X-Async-Caller-Attempt: " +
				"1|X-Correlation-ID: c",
		},
		"two_spellings": {
			object{"headers": object{"SOAPAction": "a", "SoapAction": "b"}},
			nil,
			"idempotency-key: request-1|SOAPAction: a|SOAPAction: b|User-Agent: async-caller|X-Async-Caller-Attempt: 1",
		},
		"own_key_in_capitals": {
			object{"headers": object{"IDEMPOTENCY-KEY": "mine", "X-ASYNC-CALLER-ATTEMPT": "99"}},
			nil,
			"IDEMPOTENCY-KEY: mine|User-Agent: async-caller|X-ASYNC-CALLER-ATTEMPT: 1",
		},
		"hop_by_hop_in_capitals": {
			object{"method": "POST", "headers": object{
				"CONNECTION": "x-LISTED", "X-Listed": "1", "te": "trailers",
				"CONTENT-length": "9", "accept-ENCODING": "br",
			}},
			nil,
			"accept-ENCODING: br|Content-Length: 0|" + ours,
		},
		"hop_by_hop": {object{"headers": object{
			"Connection": []string{"close, X-Listed", "x-also-listed"}, "X-Listed": "1", "X-Also-Listed": "2",
			"Keep-Alive":       "timeout=5",
			"Proxy-Connection": "keep-alive", "Proxy-Authenticate": "Basic", "Proxy-Authorization": "Basic x",
			"TE": "trailers", "Trailer": "X-T",
			"Transfer-Encoding": "chunked", "Upgrade": "websocket", "Content-Length": "999", "X-Kept": "3",
		}, "body": "four"}, nil, "Content-Length: 4|idempotency-key: request-1|User-Agent: " +
			"async-caller|X-Async-Caller-Attempt: 1|X-Kept: 3"},
		"connection_lists_our_key": {object{"headers": object{
			"Connection":      "Idempotency-Key",
			"Idempotency-Key": "mine",
		}}, nil, ours},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := newRawServer(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n") })
			test.call["url"] = server.url()
			o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, test.call, test.more))
			wantAnswer(t, o, 204)
			if diff := cmp.Diff(strings.Split(test.want, "|"), headerLines(<-server.heads)); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequestLine(t *testing.T) {
	tests := map[string]struct {
		url, method, want string
	}{
		"no_path":          {"", "GET", "GET / HTTP/1.1"},
		"query_only":       {"?a=1", "GET", "GET /?a=1 HTTP/1.1"},
		"escapes_kept":     {"/a%2Fb/c%20d?q=1%202+3&x=%C3%A9", "GET", "GET /a%2Fb/c%20d?q=1%202+3&x=%C3%A9 HTTP/1.1"},
		"raw_query":        {"/?q=å&r=\"a\"|{b}%C3", "GET", "GET /?q=%C3%A5&r=%22a%22%7C%7Bb%7D%C3 HTTP/1.1"},
		"raw_path":         {"/å/a%2Fb|c?", "GET", "GET /%C3%A5/a%2Fb%7Cc? HTTP/1.1"},
		"percent_in_path":  {"/100%/x%/%zz/blob=aYL%yAdp%2", "GET", "GET /100%25/x%25/%25zz/blob=aYL%25yAdp%252 HTTP/1.1"},
		"percent_in_query": {"/?discount=100%&a=%%41%u00e9&b=%", "GET", "GET /?discount=100%25&a=%25%41%25u00e9&b=%25 HTTP/1.1"},
		"percent_in_part":  {"/a#100%", "GET", "GET /a HTTP/1.1"},
		"double_slash":     {"//a//b/../c/", "GET", "GET //a//b/../c/ HTTP/1.1"},
		"fragment_stays":   {"/a#part", "GET", "GET /a HTTP/1.1"},
		"lower_case":       {"/", "put", "PUT / HTTP/1.1"},
		"invented_method":  {"/", "Purge", "Purge / HTTP/1.1"},
		"options":          {"/", "OPTIONS", "OPTIONS / HTTP/1.1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := newRawServer(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n") })
			o := newClient(t, longTimeout).
				Do(t.Context(), mustEnvelope(t, object{"url": server.url() + test.url, "method": test.method}))
			wantAnswer(t, o, 204)
			if line, _, _ := strings.Cut(<-server.heads, "\r\n"); line != test.want {
				t.Errorf("got %q, want %q", line, test.want)
			}
		})
	}
}

func TestHost(t *testing.T) {
	server := newTestServer(t, nil)
	client := newClient(t, longTimeout)
	client.Do(t.Context(), mustEnvelope(t, object{"url": server.URL}))
	client.Do(t.Context(), mustEnvelope(t, object{"url": server.URL, "headers": object{"host": "tenant.example:8443"}}))
	hosts := []string{server.all()[0].host, server.all()[1].host}
	if diff := cmp.Diff([]string{strings.TrimPrefix(server.URL, "http://"), "tenant.example:8443"}, hosts); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
}

func TestUserInfoBecomesBasicAuthorization(t *testing.T) {
	server := newTestServer(t, nil)
	url := strings.Replace(server.URL, "://", "://user:pass@", 1)
	client := newClient(t, longTimeout)
	client.Do(t.Context(), mustEnvelope(t, object{"url": url}))
	client.Do(t.Context(), mustEnvelope(t, object{"url": url, "headers": object{"Authorization": "Bearer mine"}}))
	for i, want := range []string{"Basic " + base64.StdEncoding.EncodeToString([]byte("user:pass")), "Bearer mine"} {
		if got := server.all()[i].header.Get("Authorization"); got != want {
			t.Errorf("call %d: got %q, want %q", i, got, want)
		}
	}
}

func TestBodiesByteForByte(t *testing.T) {
	everyByte := make([]byte, 256)
	for i := range everyByte {
		everyByte[i] = byte(i)
	}
	tests := map[string]struct {
		member, value string
		want          []byte
	}{
		"text":       {"body", `"line\r\nénd\u0000"`, []byte("line\r\nénd\x00")},
		"empty_text": {"body", `""`, nil},
		"base64":     {"bodyBase64", `"` + base64.StdEncoding.EncodeToString(everyByte) + `"`, everyByte},
		"json_as_it_is": {
			"json", `{ "b":1.50, "a":[ 1e2,"\u00e9\/" ] }`,
			[]byte(`{ "b":1.50, "a":[ 1e2,"\u00e9\/" ] }`),
		},
		"json_text": {"json", `"x"`, []byte(`"x"`)},
		"json_null": {"json", `null`, []byte(`null`)},
		"large": {
			"body", `"` + strings.Repeat("0123456789", 6000) + `"`,
			[]byte(strings.Repeat("0123456789", 6000)),
		},
		"looks_like_end": {"body", `"\r\n\r\nGET / HTTP/1.1\r\n\r\n"`, []byte("\r\n\r\nGET / HTTP/1.1\r\n\r\n")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := newTestServer(t, nil)
			content := fmt.Sprintf(`{"asyncCaller":1,"requestId":"r","call":{"url":%q,%q:%s}}`, server.URL, test.member,
				test.value)
			e, err := envelope.Parse([]byte(content))
			if err != nil {
				t.Fatal(err)
			}
			wantAnswer(t, newClient(t, longTimeout).Do(t.Context(), e), 200)
			if got := server.one(t); !bytes.Equal(got.body, test.want) || got.method != http.MethodPost {
				t.Errorf("got %s with %d bytes %.100q, want POST with %d bytes %.100q", got.method, len(got.body),
					got.body, len(test.want), test.want)
			}
		})
	}
}

// Each attempt calls the same envelope again, so a call must not change it.
func TestSameEnvelopeAgain(t *testing.T) {
	server := newTestServer(t, nil)
	client, e := newClient(
		t,
		longTimeout,
	), mustEnvelope(
		t,
		object{"url": server.URL, "body": "text", "headers": object{"X-A": "1", "Connection": "X-B", "X-B": "2"}},
	)
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

func TestAnswerLimit(t *testing.T) {
	const limit = 64 << 10
	tests := map[string]struct {
		size      int
		truncated bool
	}{
		"small":             {5, false},
		"exactly_the_limit": {limit, false},
		"one_more":          {limit + 1, true},
		"a_lot":             {10 << 20, true},
	}
	for name, test := range tests {
		for _, framing := range []string{"length", "chunked"} {
			t.Run(name+"_"+framing, func(t *testing.T) {
				content := make([]byte, test.size)
				_, _ = rand.Read(content)
				server := newTestServer(t, func(w http.ResponseWriter, _ *http.Request) {
					if framing == "length" {
						w.Header().Set("Content-Length", fmt.Sprint(test.size))
					}
					_, _ = w.Write(content)
				})
				o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, object{"url": server.URL}, reported))
				wantAnswer(t, o, 200)
				if !bytes.Equal(o.Body, content[:min(test.size, limit)]) || o.Truncated != test.truncated {
					t.Errorf("got %d of %d bytes, truncated %v", len(o.Body), test.size, o.Truncated)
				}
			})
		}
	}
}

// The client does not wait for the rest of an answer whose length is far above the limit.
func TestGiantAnswerIsNotAwaited(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	beginning := strings.Repeat("x", 64<<10)
	server := newRawServer(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n"+beginning)
		<-release
	})
	o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, object{"url": server.url()}, reported))
	wantAnswer(t, o, 200)
	if string(o.Body) != beginning || !o.Truncated || o.Took > longTimeout/2 {
		t.Errorf("got %d bytes, truncated %v, after %v", len(o.Body), o.Truncated, o.Took)
	}
}

// TestMemoryOfAnAnswer: an answer that is huge, or of unknown length, takes the memory of what is kept of it, and
// leaves no garbage.
func TestMemoryOfAnAnswer(t *testing.T) {
	const most = 66 << 10
	content := make([]byte, 63<<10)
	for name, length := range map[string]int64{"length": 1 << 30, "chunks": -1} {
		t.Run(name, func(t *testing.T) {
			least := uint64(math.MaxUint64)
			for range 5 { // other goroutines allocate as well
				o := decision.Outcome{Status: 503}
				body := iotest.OneByteReader(bytes.NewReader(content))
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := outbound.ReadAnswer(&o, body, length, func() {})
				runtime.ReadMemStats(&after)
				if err != nil || len(o.Body) != len(content) {
					t.Fatalf("read %d bytes, error %v", len(o.Body), err)
				}
				least = min(least, after.TotalAlloc-before.TotalAlloc)
			}
			if least > most {
				t.Errorf("allocated %d bytes, want at most %d", least, most)
			}
		})
	}
}

// The client does not decompress an answer.
func TestAnswerIsNotDecompressed(t *testing.T) {
	server := newTestServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, "not really gzip")
	})
	o := newClient(t, longTimeout).Do(t.Context(),
		mustEnvelope(t, object{"url": server.URL, "headers": object{"Accept-Encoding": "gzip"}}, reported))
	wantAnswer(t, o, 200)
	if string(o.Body) != "not really gzip" {
		t.Errorf("got %q", o.Body)
	}
}

func TestHeadHasNoBody(t *testing.T) {
	server := newTestServer(t,
		func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "1000") })
	o := newClient(t, longTimeout).
		Do(t.Context(), mustEnvelope(t, object{"url": server.URL, "method": "HEAD"}, reported))
	wantAnswer(t, o, 200)
	if len(o.Body) != 0 || o.Truncated {
		t.Errorf("got %d bytes, truncated %v", len(o.Body), o.Truncated)
	}
}

// Interim answers are ignored.
func TestEarlyHints(t *testing.T) {
	server := newRawServer(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 "+
			"201 Created\r\nContent-Length: 2\r\n\r\nok")
	})
	o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, object{"url": server.url(), "body": "x"}, reported))
	wantAnswer(t, o, 201)
	if string(o.Body) != "ok" {
		t.Errorf("got %q", o.Body)
	}
}

func TestConnectionsAreReused(t *testing.T) {
	tests := map[string]struct {
		status, size int
		more         object
	}{
		"no_content":   {204, 0, reported},
		"small":        {200, 100, reported},
		"not_needed":   {200, 100, nil},
		"long":         {200, 200 << 10, nil},
		"failure":      {503, 100, nil},
		"limit":        {200, 64 << 10, reported},
		"cut_short":    {200, 200 << 10, reported},
		"unread_chunk": {200, 64<<10 + 1, reported},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := newUnstartedServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				_, _ = w.Write(make([]byte, test.size))
			})
			var connections atomic.Int32
			server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					connections.Add(1)
				}
			}
			server.Start()
			client := newClient(t, longTimeout)
			for range 5 {
				wantAnswer(t, client.Do(t.Context(),
					mustEnvelope(t, object{"url": server.URL, "body": "x"}, test.more)), test.status)
			}
			if n := connections.Load(); n != 1 {
				t.Errorf("5 calls took %d connections", n)
			}
		})
	}
}

// The client keeps the connections of many simultaneous calls, not only two.
func TestConnectionsOfManyCallsAreReused(t *testing.T) {
	const calls = 50
	var arrived sync.WaitGroup
	server := newUnstartedServer(t, func(http.ResponseWriter, *http.Request) {
		arrived.Done()
		arrived.Wait() // until all have arrived, so that each needs its own connection
	})
	var connections atomic.Int32
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	client := newClient(t, longTimeout)
	for range 3 {
		arrived.Add(calls)
		var done sync.WaitGroup
		for range calls {
			done.Go(func() { wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, object{"url": server.URL})), 200) })
		}
		done.Wait()
	}
	if n := connections.Load(); n != calls {
		t.Errorf("3 times %d calls at once took %d connections", calls, n)
	}
}

func TestAnswerOfTheTargetIsKept(t *testing.T) {
	body, err := json.Marshal(object{"Type": "Xlent.Conflict", "IsRetryMeaningful": false})
	if err != nil {
		t.Fatal(err)
	}
	server := newTestServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write(body)
	})
	o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, object{"url": server.URL}))
	wantAnswer(t, o, 500)
	if !bytes.Equal(o.Body, body) || o.Answer().MediaType() != "application/json" {
		t.Errorf("got %s of type %q", o.Body, o.Answer().MediaType())
	}
}
