package outbound_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/decision"
)

// TestOddFraming: an answer whose body can have only one end is read, although net/http would refuse it. The connection
// is closed after it.
func TestOddFraming(t *testing.T) {
	const chunks = "5\r\nwhole\r\n0\r\n\r\n"
	for name, test := range map[string]struct{ head, body string }{
		"chunked_twice":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked", chunks},
		"chunked_twice_a_line": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked", chunks},
		"in_capitals":          {"HTTP/1.1 200 OK\r\nTRANSFER-ENCODING: Chunked, CHUNKED", chunks},
		"identity":             {"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity", "whole"},
		"identity_and_length": {
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 5", "whole and more",
		},
		"identity_and_chunked": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity, chunked", chunks},
		"empty":                {"HTTP/1.1 200 OK\r\nTransfer-Encoding:", "whole"},
		"chunked_and_lengths": {
			"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: x\r\nTransfer-Encoding: chunked", chunks,
		},
		"chunked_in_1.0":     {"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked", chunks},
		"folded":             {"HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n chunked,\r\n\tchunked\r\nX: y", chunks},
		"space_before_colon": {"HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked", chunks},
		"same_length_twice":  {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5", "whole and more"},
		"lengths_in_a_line":  {"HTTP/1.1 200 OK\r\nContent-Length: 5, 5", "whole and more"},
		"line_feeds_only":    {"HTTP/1.1 200 OK\nContent-Length: 5\nContent-Length: 5", "whole and more"},
		"framing_of_interim": {
			"HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: x\r\nContent-Length: x\r\n\r\n" +
				"HTTP/1.1 200 OK\r\nContent-Length: 5", "whole",
		},
		"forbidden_trailer": {"HTTP/1.1 200 OK\r\nTrailer: Content-Length\r\nTransfer-Encoding: chunked", chunks},
	} {
		t.Run(name, func(t *testing.T) {
			for _, status := range []int{200, 422} {
				head := test.head
				if status == 422 {
					head = strings.Replace(head, "200 OK", "422 Refused", 1)
				}
				server := newRawServer(t, func(c net.Conn) { _, _ = io.WriteString(c, head+"\r\n\r\n"+test.body) })
				o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, object{"url": server.url()}, reported))
				wantAnswer(t, o, status)
				if string(o.Body) != "whole" || o.Truncated {
					t.Errorf("got %q, truncated %v", o.Body, o.Truncated)
				}
			}
		})
	}
}

// TestTransferCodings: a transfer coding is decoded like a content coding.
func TestTransferCodings(t *testing.T) {
	zipped := coded(t, "gzip", "whole")
	chunks := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(zipped), zipped)
	for name, test := range map[string]struct {
		head, body, want string
		truncated        bool
	}{
		"gzip_and_chunked":   {"Transfer-Encoding: x-gzip, chunked", chunks, "whole", false},
		"not_in_truth":       {"Transfer-Encoding: x-gzip, chunked", "5\r\nwhole\r\n0\r\n\r\n", "whole", false},
		"gzip_alone":         {"Transfer-Encoding: gzip", zipped, "whole", false},
		"gzip_and_length":    {"Transfer-Encoding: gzip\r\nContent-Length: 5", "whole", "whole", false},
		"over_a_known_one":   {"Content-Encoding: gzip\r\nTransfer-Encoding: gzip", coded(t, "gzip", zipped), "whole", false},
		"over_an_unknown":    {"Content-Encoding: br\r\nTransfer-Encoding: gzip", coded(t, "gzip", "\xff"), "", true},
		"over_an_untrue_one": {"Content-Encoding: br\r\nTransfer-Encoding: gzip", zipped, "whole", false},
	} {
		t.Run(name, func(t *testing.T) {
			server := newRawServer(t, func(c net.Conn) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+test.head+"\r\n\r\n"+test.body)
			})
			o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, object{"url": server.url()}, reported))
			wantAnswer(t, o, 200)
			if string(o.Body) != test.want || o.Truncated != test.truncated || o.Header.Get("Content-Encoding") != "" {
				t.Errorf("got %q, truncated %v, with %v", o.Body, o.Truncated, o.Header)
			}
		})
	}
}

// TestAmbiguousFraming: an answer whose body could have several ends counts as one that broke off. Its status arrived.
func TestAmbiguousFraming(t *testing.T) {
	const invalid = "its Content-Length is invalid"
	for name, test := range map[string]struct{ head, detail string }{
		"two_lengths":         {"Content-Length: 5\r\nContent-Length: 2", "it has two different lengths"},
		"two_lengths_a_line":  {"Content-Length: 5, 2", "it has two different lengths"},
		"two_lengths_later":   {"Content-Length: 5\r\nX: y\r\ncontent-length: 2", "it has two different lengths"},
		"negative":            {"Content-Length: -1", invalid},
		"no_number":           {"Content-Length: 5 bytes", invalid},
		"empty_length":        {"Content-Length:", invalid},
		"too_long":            {"Content-Length: 9223372036854775808", invalid},
		"folded":              {"Content-Length: 1\r\n 2", invalid},
		"unknown_coding":      {"Transfer-Encoding: " + canary, "it has an unknown transfer coding"},
		"unknown_and_chunked": {"Transfer-Encoding: " + canary + ", chunked", "it has an unknown transfer coding"},
		"chunked_not_last": {
			"Transfer-Encoding: chunked, gzip", "chunked is not its last transfer coding",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for line, want := range map[string]struct {
				status   int
				reported bool
				kind     decision.Failure
			}{
				"200 OK":         {200, false, ""},
				"201 Created":    {201, true, decision.FailureConnection},
				"422 Refused":    {422, false, decision.FailureConnection},
				"204 No Content": {204, true, ""},
				"304 Not There":  {304, true, ""},
			} {
				server := newRawServer(t, func(c net.Conn) {
					_, _ = io.WriteString(c, "HTTP/1.1 "+line+"\r\n"+test.head+"\r\n\r\nwhole")
				})
				more := object{}
				if want.reported {
					more = reported
				}
				o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, object{"url": server.url()}, more))
				detail := ""
				if want.kind != "" {
					detail = "answered " + line[:3] + ", but " + test.detail
				}
				if o.Failure != want.kind || o.Status != want.status || o.Detail != detail || len(o.Body) != 0 {
					t.Errorf("%s: got %q %q, status %d, body %q", line, o.Failure, o.Detail, o.Status, o.Body)
				}
			}
		})
	}
}

// TestAmbiguousFramingOfNoBody: the answer to HEAD has no body, and so nothing can be wrong with its end. A redirect is
// followed without its body.
func TestAmbiguousFramingOfNoBody(t *testing.T) {
	server := newTestServer(t, nil)
	odd := newRawServer(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n")
	})
	redirect := newRawServer(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 307 Elsewhere\r\nLocation: "+server.URL+
			"\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab")
	})
	for _, call := range []object{
		{"url": odd.url(), "method": "HEAD"},
		{"url": redirect.url(), "method": "POST", "body": "x"},
	} {
		wantAnswer(t, newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, call, reported)), 200)
	}
}

// TestOddFramingClosesTheConnection: what follows an odd answer is not read as another one. Answers without oddities
// keep their connection.
func TestOddFramingClosesTheConnection(t *testing.T) {
	for head, connections := range map[string]int{
		"Content-Length: 2": 1, "content-length:2": 1, "Transfer-Encoding: Chunked": 1,
		"Content-Length: 2\r\nContent-Length: 2": 3, "Transfer-Encoding: identity\r\nContent-Length: 2": 3,
		"Content-Length: 9\r\nTransfer-Encoding: chunked": 3,
	} {
		body := "ok"
		if strings.Contains(strings.ToLower(head), "chunked") {
			body = "2\r\nok\r\n0\r\n\r\n"
		}
		server := newRawServer(t, func(c net.Conn) {
			for err := error(nil); err == nil; _, err = readHead(c) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+head+"\r\n\r\n"+body)
			}
		})
		client := newClient(t, longTimeout)
		for range 3 {
			wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, object{"url": server.url()}, reported)), 200)
		}
		client.Close()
		if n := len(server.heads); n != connections {
			t.Errorf("%q: %d connections, want %d", head, n, connections)
		}
	}
}

// TestOddHeaderLines: header lines that net/http refuses are ignored, and only those; the connection is closed.
func TestOddHeaderLines(t *testing.T) {
	for name, lines := range map[string]string{
		"zero": "X-Trace: a\x00b", "escape": "X-Name: \x1b[1m", "delete": "Set-Cookie: a=1; domain=shop\x7f\x7f.test",
		"return": "X-Name: a\rb", "return_at_the_end": "X-Name: a\r", "vertical_tab": "X-Name:\x0b1", "one": "X-Trace: a\x01b",
		"name_in_utf8": "Strict‐Transport‐Security: max-age=63072000", "name_with_return": "X\r-A: b",
		"parentheses": "(.*)alpha: beta", "no_name": ": empty name", "brackets": "X-Array[0]: x", "quoted": `"quoted": x`,
		"tab_in_name": "X\tA: b", "tab_before_colon": "X-A\t: b", "no_colon": "</head>", "colon_in_the_next": "X-A\r\n b: c",
		"folded":              "X-Name: a\r\n b\r\n\tc\x00\r\n Content-Length: 5",
		"folded_after_an_odd": "X-Name: \x00\r\n Location: /x",
		"several":             "X-A: \x00\r\nX-B: \x00\r\nX-C\x00: \x00",
	} {
		t.Run(name, func(t *testing.T) {
			for _, place := range []string{"at_first", "later", "interim"} {
				head := "X-Kept: 1\r\nContent-Length: 5\r\n" + lines
				before := ""
				switch place {
				case "at_first":
					head = lines + "\r\nContent-Length: 5\r\nX-Kept: 1"
				case "interim":
					before, head = "HTTP/1.1 103 Hints\r\n"+lines+"\r\n\r\n", "Content-Length: 5\r\nX-Kept: 1"
				}
				server := newRawServer(t, func(c net.Conn) {
					for err := error(nil); err == nil; _, err = readHead(c) {
						_, _ = io.WriteString(c, before+"HTTP/1.1 200 OK\r\n"+head+"\r\n\r\nwhole")
					}
				})
				client := newClient(t, longTimeout)
				for range 2 {
					o := client.Do(t.Context(), mustEnvelope(t, object{"url": server.url(), "body": "x"}, reported))
					wantAnswer(t, o, 200)
					delete(o.Header, "Content-Length")
					delete(o.Header, "Connection")
					if string(o.Body) != "whole" || len(o.Header) != 1 || o.Header.Get("X-Kept") != "1" {
						t.Errorf("%s: got %q with %v", place, o.Body, o.Header)
					}
					if o.Detail != "header lines that are not HTTP were ignored" {
						t.Errorf("%s: detail %q", place, o.Detail)
					}
				}
				client.Close()
				if len(server.heads) != 2 {
					t.Errorf("%s: %d connections, want 2", place, len(server.heads))
				}
			}
		})
	}
}

// TestFoldedAtFirst: a line that continues none, and all that continue it, are ignored, by https as well.
func TestFoldedAtFirst(t *testing.T) {
	client, _ := newSecureNetwork(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 404 Gone\r\n X-First: folded\r\n\tmore\r\nX-A: b\r\n\r\nwhole")
			_ = c.Close()
		}
	})
	o := client.Do(t.Context(), mustEnvelope(t, object{"url": "https://a.example"}))
	wantAnswer(t, o, 404)
	if string(o.Body) != "whole" || o.Header.Get("X-A") != "b" || o.Summary() != "answered 404, "+o.Detail {
		t.Errorf("%q, got %q with %v", o.Summary(), o.Body, o.Header)
	}
}

// TestUnknownCodingOfNoBody: where the body is not needed, it does not matter how it is coded.
func TestUnknownCodingOfNoBody(t *testing.T) {
	for _, coding := range []string{"x", "br, chunked", "chunked;q=1", "chunked, gzip", "chunked\x00", `"chunked"`} {
		server := newRawServer(t, func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: "+coding+"\r\nX-Odd: \x00\r\n\r\nwhole")
		})
		o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, object{"url": server.url(), "body": "x"}))
		wantAnswer(t, o, 200)
	}
}

// TestDetailOfABrokenBody: the detail says why a body has no end.
func TestDetailOfABrokenBody(t *testing.T) {
	const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	const closed, broken = "the connection closed before the end of its body", "its chunks are broken"
	for name, test := range map[string]struct{ answer, detail string }{
		"length":           {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", closed},
		"in_a_chunk":       {chunked + "ff\r\nhalf", closed},
		"between_chunks":   {chunked + "4\r\nhalf\r\n", closed},
		"no_chunks":        {chunked, closed},
		"size_no_number":   {chunked + "4\r\nhalf\r\n" + canary + "\r\n", broken},
		"size_negative":    {chunked + "-4\r\nhalf\r\n0\r\n\r\n", broken},
		"size_too_large":   {chunked + "fffffffffffffffff\r\nhalf", broken},
		"missing_crlf":     {chunked + "4\r\nhalf0\r\n\r\n", broken},
		"line_feeds_only":  {chunked + "4\nhalf\n0\n\n", broken},
		"no_chunks_at_all": {chunked + "half of a text\r\n", broken},
		"twice":            {strings.Replace(chunked, "chunked", "chunked,chunked", 1) + "4\r\nhalf\r\n", closed},
	} {
		t.Run(name, func(t *testing.T) {
			server := newRawServer(t, func(c net.Conn) { _, _ = io.WriteString(c, test.answer) })
			o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, object{"url": server.url()}, reported))
			wantFailure(t, o, decision.FailureConnection)
			if o.Status != 200 || o.Detail != "answered 200, but "+test.detail {
				t.Errorf("got %d %q", o.Status, o.Detail)
			}
		})
	}
	t.Run("timeout", func(t *testing.T) {
		server := newRawServer(t, func(c net.Conn) {
			_, _ = io.WriteString(c, chunked)
			hang(c)
		})
		o := newClient(t, 100*time.Millisecond).Do(t.Context(), mustEnvelope(t, object{"url": server.url()}, reported))
		wantFailure(t, o, decision.FailureTimeout)
		if o.Detail != "answered 200, but the body did not end" {
			t.Errorf("got %q", o.Detail)
		}
	})
}

// TestDetailOfALargeHead: the detail says what the answer has too much of.
func TestDetailOfALargeHead(t *testing.T) {
	const lines, large = "the answer has too many header lines", "the answer's headers are too large"
	for name, test := range map[string]struct{ answer, detail string }{
		"cookies":     {"HTTP/1.1 200 OK\r\n" + strings.Repeat("Set-Cookie: a=1\r\n", 300), lines},
		"empty":       {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X:\r\n", 300), lines},
		"line_feeds":  {"HTTP/1.1 200 OK\n" + strings.Repeat("X: y\n", 300), lines},
		"lengths":     {"HTTP/1.1 200 OK\r\n" + strings.Repeat("Content-Length: 2\r\n", 300), lines},
		"folds":       {"HTTP/1.1 200 OK\r\nX:\r\n" + strings.Repeat(" y\r\n", 300), lines},
		"interim":     {strings.Repeat("HTTP/1.1 103 Early\r\nX: y\r\n\r\n", 200) + "HTTP/1.1 200 OK\r\n", lines},
		"long_line":   {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 70<<10) + "\r\n", large},
		"long_lines":  {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("x", 1<<10)+"\r\n", 80), large},
		"long_name":   {"HTTP/1.1 200 OK\r\n" + strings.Repeat("x", 70<<10) + ": x\r\n", large},
		"long_status": {"HTTP/1.1 200 " + strings.Repeat("x", 70<<10) + "\r\n", large},
		"long_coding": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + strings.Repeat("gzip,", 10<<10) + "\r\n", large},
	} {
		t.Run(name, func(t *testing.T) {
			server := newRawServer(t, func(c net.Conn) { _, _ = io.WriteString(c, test.answer+"\r\n") })
			o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, object{"url": server.url()}))
			wantFailure(t, o, decision.FailureConnection)
			if o.Status != 0 || o.Detail != test.detail {
				t.Errorf("got %d %q, want %q", o.Status, o.Detail, test.detail)
			}
		})
	}
}
