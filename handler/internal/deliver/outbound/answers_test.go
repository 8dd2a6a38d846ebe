package outbound_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/rules/decision"
)

// TestAnswers: what comes of each answer that a target can send, if its body matters. If it does not, a 2xx counts
// whatever is wrong with its body.
func TestAnswers(t *testing.T) {
	const (
		chunked = "Transfer-Encoding: chunked"
		chunks  = "5\r\nwhole\r\n0\r\n\r\n"
		closed  = "200 half... connection: answered 200, but the connection closed before the end of its body"
		chunk   = "connection: answered 200, but its chunks are broken"
		many    = "0 connection: the answer has too many header lines"
		large   = "0 connection: the answer's headers are too large"
		nothing = "0 connection: connection closed before the answer"
		noHTTP  = "0 connection: the answer is not usable HTTP"
		lengths = "Content-Length: 5\r\nContent-Length: 2"
		differ  = "answered 200, but it has two different lengths"
	)
	zipped := coded(t, "gzip", "whole")
	lines := func(n int, line string) string { return strings.TrimSuffix(strings.Repeat(line+"\r\n", n), "\r\n") }
	// A head without a status line is that of a 200.
	for name, test := range map[string]struct{ head, body, want string }{
		"599": {"HTTP/1.1 599 X\r\nContent-Length: 5", "whole", "599 whole"},
		"304": {"HTTP/1.1 304 X\r\nContent-Length: 5", "", "304"},
		"interim": {
			"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nTransfer-Encoding: x\r\nContent-Length: x\r\n\r\n" +
				"HTTP/1.1 201 Created\r\nContent-Length: 5", "whole", "201 whole",
		},
		"60_KiB_of_headers": {
			lines(240, "X: "+strings.Repeat("a", 245)) + "\r\nContent-Length: 5", "whole", "200 whole",
		},

		// The body has only one end, although net/http would refuse the answer.
		"chunked_twice":       {lines(2, chunked), chunks, "200 whole"},
		"chunked_in_1.0":      {"HTTP/1.0 200 OK\r\n" + chunked, chunks, "200 whole"},
		"chunked_and_lengths": {"Content-Length: 1\r\nContent-Length: x\r\n" + chunked, chunks, "200 whole"},
		"until_the_close":     {"HTTP/1.0 200 OK", "whole", "200 whole"},
		"empty_coding":        {"Transfer-Encoding:", "whole", "200 whole"},
		"identity_and_length": {"Transfer-Encoding: identity\r\nContent-Length: 5", "whole and more", "200 whole"},
		"folded":              {"Transfer-Encoding:\r\n chunked,\r\n\tchunked\r\nX: y", chunks, "200 whole"},
		"space_before_colon":  {"Transfer-Encoding : chunked", chunks, "200 whole"},
		"same_length_twice":   {"Content-Length: 5, 5", "whole and more", "200 whole"},
		"line_feeds_only":     {"HTTP/1.1 200 OK\nContent-Length: 5\nContent-Length: 5", "whole and more", "200 whole"},
		"forbidden_trailer":   {"Trailer: Content-Length\r\n" + chunked, chunks, "200 whole"},

		// A transfer coding is decoded like a content coding.
		"gzip_and_chunked": {
			"Transfer-Encoding: x-gzip, chunked",
			fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(zipped), zipped), "200 whole",
		},
		"gzip_not_in_truth": {"Transfer-Encoding: gzip\r\nContent-Length: 5", "whole", "200 whole"},
		"gzip_over_gzip": {
			"Content-Encoding: gzip\r\nTransfer-Encoding: gzip", coded(t, "gzip", zipped), "200 whole",
		},
		"gzip_over_unknown": {"Content-Encoding: br\r\nTransfer-Encoding: gzip", coded(t, "gzip", "\xff"), "200 ..."},

		// The body could have several ends: its status arrived, and the rest counts as broken off.
		"two_lengths":        {lengths, "whole", "200 ... connection: " + differ},
		"two_lengths_of_204": {"HTTP/1.1 204 X\r\n" + lengths, "", "204"},
		"two_lengths_of_304": {"HTTP/1.1 304 X\r\n" + lengths, "", "304"},
		"two_lengths_of_422": {
			"HTTP/1.1 422 X\r\n" + lengths, "", "422 ... connection: " + strings.Replace(differ, "200", "422", 1),
		},
		"folded_length": {
			"Content-Length: 1\r\n 2", "", "200 ... connection: answered 200, but its Content-Length is invalid",
		},
		"unknown_coding": {
			"Transfer-Encoding: " + canary + ", chunked", chunks,
			"200 ... connection: answered 200, but it has an unknown transfer coding",
		},
		"chunked_not_last": {
			"Transfer-Encoding: chunked, gzip", chunks,
			"200 ... connection: answered 200, but chunked is not its last transfer coding",
		},

		// The body breaks off.
		"half":             {"Content-Length: 100", "half", closed},
		"half_a_chunk":     {chunked, "ff\r\nhalf", closed},
		"between_chunks":   {lines(2, chunked), "4\r\nhalf\r\n", closed},
		"none_of_it":       {"Content-Length: 100", "", strings.Replace(closed, "half", "", 1)},
		"size_no_number":   {chunked, "4\r\nhalf\r\n" + canary + "\r\n", "200 half... " + chunk},
		"size_too_large":   {chunked, "fffffffffffffffff\r\nhalf", "200 ... " + chunk},
		"chunk_too_long":   {chunked, "4\r\nhalf0\r\n\r\n", "200 half... " + chunk},
		"half_a_failure":   {"HTTP/1.1 400 X\r\nContent-Length: 9", "half", strings.ReplaceAll(closed, "200", "400")},
		"half_a_redirect":  {"HTTP/1.1 302 X\r\nContent-Length: 9", "half", strings.ReplaceAll(closed, "200", "302")},
		"no_chunks_at_all": {chunked, "half of a text\r\n", "200 ... " + chunk},

		// No status arrives that could count.
		"in_the_status_line": {"HTTP/1.1 20", "-", noHTTP},
		"in_the_headers":     {"HTTP/1.1 200 OK\r\nX-", "-", nothing},
		"other_protocol":     {"HTTP-2.0 " + canary, "", noHTTP},
		"status_no_number":   {"HTTP/1.1 abc " + canary, "", noHTTP},
		"status_099":         {"HTTP/1.1 099 Odd\r\nContent-Length: 2", "ok", noHTTP},
		"status_1000":        {"HTTP/1.1 1000 Odd", "", noHTTP},
		"name_with_zero":     {"Content-Length\x00: 5", "whole", noHTTP},
		"name_without_colon": {"Content-Length ", "whole", noHTTP},
		"name_in_brackets":   {"(Content-Length): 5", "whole", noHTTP},
		"folded_at_first":    {" Transfer-Encoding: chunked", "0\r\n\r\n", noHTTP},
		"interim_only":       {"HTTP/1.1 103 Early Hints", "", nothing},
		"cookies":            {lines(300, "Set-Cookie: a=1"), "", many},
		"many_lengths":       {lines(300, "Content-Length: 2"), "", many},
		"many_folds":         {"X:\r\n" + lines(300, " y"), "", many},
		"many_interim":       {lines(200, "HTTP/1.1 103 Early\r\nX: y\r\n") + "\r\nHTTP/1.1 200 OK", "", many},
		"long_line":          {"X: " + strings.Repeat("x", 70<<10), "", large},
		"long_lines":         {lines(80, "X: "+strings.Repeat("x", 1<<10)), "", large},
		"long_status":        {"HTTP/1.1 200 " + strings.Repeat("x", 70<<10), "", large},
		"long_coding":        {"Transfer-Encoding: " + strings.Repeat("gzip,", 10<<10), "", large},
	} {
		t.Run(name, func(t *testing.T) {
			answer := test.head + "\r\n\r\n" + test.body
			if !strings.HasPrefix(answer, "HTTP") {
				answer = "HTTP/1.1 200 OK\r\n" + answer
			}
			answer = strings.TrimSuffix(answer, "\r\n\r\n-") // the head breaks off
			server, client := newAnswer(t, answer), newClient(t, longTimeout)
			o := client.Do(t.Context(), mustEnvelope(t, object{"url": server.url() + "?code=" + canary}, reported))
			wantNoSecret(t, o)
			if got := summary(o); got != test.want || o.Took <= 0 {
				t.Errorf("got  %s\nwant %s, after %v", got, test.want, o.Took)
			}
			if o.Header.Get("Content-Encoding") != "" {
				t.Errorf("the answer is still coded: %v", o.Header)
			}
			if o.Status/100 == 2 {
				wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, object{"url": server.url()})), o.Status)
			}
		})
	}
}

// TestAnswersWithoutBody: the answer to HEAD has no body, and that of a redirect is not needed, so nothing can be wrong
// with its end.
func TestAnswersWithoutBody(t *testing.T) {
	const twoLengths = "Content-Length: 1\r\nContent-Length: 2\r\n\r\n"
	location := "Location: " + newTestServer(t, nil).URL + "\r\n"
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", "HTTP/1.1 200 OK\r\n" + twoLengths,
		"HTTP/1.1 307 Elsewhere\r\n" + location + twoLengths,
	} {
		server := newAnswer(t, answer)
		e := mustEnvelope(t, object{"url": server.url(), "method": "HEAD"}, reported)
		if got := summary(newClient(t, longTimeout).Do(t.Context(), e)); got != "200" {
			t.Errorf("%q: got %s", answer, got)
		}
	}
}

// TestResetConnections: a reset counts like a connection that closes.
func TestResetConnections(t *testing.T) {
	for _, answer := range []string{"", "HTTP/1.1 200 OK\r\nX-"} {
		server := newRawServer(t, func(c net.Conn) {
			_, _ = io.WriteString(c, answer)
			_ = c.(*net.TCPConn).SetLinger(0)
		})
		if got := summary(call(t, server.url())); got != "0 connection: connection reset" {
			t.Errorf("%q: got %s", answer, got)
		}
	}
}

// TestKeptConnections: what follows an odd answer is not read as another one, so its connection is closed. Answers
// without oddities keep theirs.
func TestKeptConnections(t *testing.T) {
	const chunks = "2\r\nok\r\n0\r\n\r\n"
	for head, test := range map[string]struct {
		body        string
		connections int
	}{
		"content-length:2":                                 {"ok", 1},
		"Transfer-Encoding: Chunked":                       {chunks, 1},
		"Content-Length: 2\r\nContent-Length: 2":           {"ok", 3},
		"Transfer-Encoding: identity\r\nContent-Length: 2": {"ok", 3},
		"Content-Length: 9\r\nTransfer-Encoding: chunked":  {chunks, 3},
	} {
		server := newRawServer(t, func(c net.Conn) {
			for err := error(nil); err == nil; _, err = readHead(c) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+head+"\r\n\r\n"+test.body)
			}
		})
		client := newClient(t, longTimeout)
		for range 3 {
			wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, object{"url": server.url()}, reported)), 200)
		}
		client.Close()
		if n := len(server.heads); n != test.connections {
			t.Errorf("%q: %d connections, want %d", head, n, test.connections)
		}
	}
}

// TestOddHeaderLines: header lines that net/http refuses are ignored, and only those; the connection is closed.
func TestOddHeaderLines(t *testing.T) {
	for name, lines := range map[string]string{
		"zero": "X-Trace: a\x00b", "delete": "Set-Cookie: a=1; domain=shop\x7f\x7f.test", "return": "X-Name: a\rb",
		"return_at_the_end": "X-Name: a\r", "name_in_utf8": "Strict‐Transport‐Security: max-age=63072000",
		"parentheses": "(.*)alpha: beta", "no_name": ": empty name", "tab_in_name": "X\tA: b", "no_colon": "</head>",
		"colon_in_the_next": "X-A\r\n b: c", "folded": "X-Name: a\r\n b\r\n\tc\x00\r\n Content-Length: 5",
		"folded_after_an_odd": "X-Name: \x00\r\n Location: /x", "several": "X-A: \x00\r\nX-B: \x00\r\nX-C\x00: \x00",
	} {
		for place, head := range map[string]string{
			"at_first": "HTTP/1.1 200 OK\r\n" + lines + "\r\nContent-Length: 5\r\nX-Kept: 1",
			"later":    "HTTP/1.1 200 OK\r\nX-Kept: 1\r\nContent-Length: 5\r\n" + lines,
			"interim":  "HTTP/1.1 103 Hints\r\n" + lines + "\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Kept: 1",
		} {
			t.Run(name+"_"+place, func(t *testing.T) {
				server := newRawServer(t, func(c net.Conn) {
					for err := error(nil); err == nil; _, err = readHead(c) {
						_, _ = io.WriteString(c, head+"\r\n\r\nwhole")
					}
				})
				client := newClient(t, longTimeout)
				for range 2 {
					o := client.Do(t.Context(), mustEnvelope(t, object{"url": server.url(), "body": "x"}, reported))
					if got := summary(o); got != "200 whole : header lines that are not HTTP were ignored" {
						t.Errorf("got %s", got)
					}
					delete(o.Header, "Content-Length")
					delete(o.Header, "Connection")
					if len(o.Header) != 1 || o.Header.Get("X-Kept") != "1" {
						t.Errorf("got %v", o.Header)
					}
				}
				client.Close()
				if len(server.heads) != 2 {
					t.Errorf("%d connections, want 2", len(server.heads))
				}
			})
		}
	}
}

// countConnections returns a counter of the connections to a server that is not started.
func countConnections(s *testServer) *atomic.Int32 {
	var connections atomic.Int32
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	return &connections
}

// TestManyHeadersOnAKeptConnection: too many lines make one call fail, and net/http must not repeat it on other
// connections.
func TestManyHeadersOnAKeptConnection(t *testing.T) {
	server := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		for n := range 300 {
			if r.URL.Path == "/many" {
				w.Header().Set("X-"+strconv.Itoa(n), "1")
			}
		}
	})
	client := newClient(t, longTimeout)
	wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, object{"url": server.URL})), http.StatusOK)
	wantFailure(t, client.Do(t.Context(), mustEnvelope(t, object{"url": server.URL + "/many"})),
		decision.FailureConnection)
	if n := len(server.all()); n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
}

// TestBeginningOnAKeptConnection: net/http repeats a GET if no byte of an answer arrives on a kept connection. A single
// byte means that the target has the call.
func TestBeginningOnAKeptConnection(t *testing.T) {
	for name, beginning := range map[string]string{
		"first_byte": "H", "long_status": "HTTP/1.1 200 " + strings.Repeat("x", 70<<10),
	} {
		t.Run(name, func(t *testing.T) {
			server := newRawServer(t, func(c net.Conn) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				if _, err := readHead(c); err == nil {
					_, _ = io.WriteString(c, beginning)
				}
			})
			client := newClient(t, longTimeout)
			wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, object{"url": server.url()})), http.StatusOK)
			o := client.Do(t.Context(), mustEnvelope(t, object{"url": server.url()}))
			wantFailure(t, o, decision.FailureConnection)
		})
	}
}

// TestLinesOfLaterAnswers: the lines of all answers on one connection may be many.
func TestLinesOfLaterAnswers(t *testing.T) {
	server := newTestServer(t, func(w http.ResponseWriter, _ *http.Request) {
		for n := range 100 {
			w.Header().Set("X-"+strconv.Itoa(n), "1")
		}
		_, _ = io.WriteString(w, strings.Repeat("\n", 1000))
	})
	client := newClient(t, longTimeout)
	for range 5 {
		wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, object{"url": server.URL})), http.StatusOK)
	}
}

func TestAnswerLimit(t *testing.T) {
	const limit = 64 << 10
	tests := map[string]struct {
		size      int
		truncated bool
	}{
		"exactly_the_limit": {limit, false},
		"one_more":          {limit + 1, true},
		"a_lot":             {1 << 20, true},
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

func TestConnectionsAreReused(t *testing.T) {
	tests := map[string]struct {
		status, size int
		more         object
	}{
		"no_content":   {204, 0, reported},
		"not_needed":   {200, 100, nil},
		"failure":      {503, 100, nil},
		"cut_short":    {200, 200 << 10, reported},
		"unread_chunk": {200, 64<<10 + 1, reported},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := newUnstartedServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				_, _ = w.Write(make([]byte, test.size))
			})
			connections := countConnections(server)
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
	connections := countConnections(server)
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

// What an answer says about retrying counts behind the part of its body that is kept, unless the body breaks off.
func TestSignalInALongBody(t *testing.T) {
	tests := map[string]struct {
		status int
		behind string
		length int
		want   decision.Failure
		says   bool
	}{
		"whole":           {500, `","IsRetryMeaningful":false}`, 0, "", true},
		"breaks_off":      {400, `","IsRetryMeaningful":false}`, 1, decision.FailureConnection, false},
		"no_object":       {500, `"]`, 0, "", false},
		"of_a_2xx":        {200, `","IsRetryMeaningful":false}`, 0, "", false},
		"2xx_breaks_off":  {200, `"}`, 1, "", false}, // behind what a callback can hold
		"breaks_off_late": {400, `","IsRetryMeaningful":false,"x":"` + strings.Repeat("x", 1<<20), 1, "", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			body := `{"Type":"x","StackTrace":"` + strings.Repeat("x", 70_000) + test.behind
			server := newRawServer(t, func(c net.Conn) {
				_, _ = fmt.Fprintf(c, "HTTP/1.1 %d Answer\r\nContent-Length: %d\r\n\r\n%s", test.status,
					len(body)+test.length, body)
			})
			o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, object{"url": server.url()}, reported))
			wantFailure(t, o, test.want)
			if says := o.Signal.IsRetryMeaningful != nil; says != test.says || o.Status != test.status ||
				!o.Truncated || len(o.Body) != 64<<10 {
				t.Errorf("status %d, signal %v, %d bytes, truncated %v", o.Status, says, len(o.Body), o.Truncated)
			}
		})
	}
}
