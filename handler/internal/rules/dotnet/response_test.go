package dotnet_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/rules/dotnet"
)

func TestParseResponse(t *testing.T) {
	tests := map[string]struct {
		message string
		want    dotnet.Response
	}{
		"as_HttpMessageContent_writes_it": {
			message("HTTP/1.1 504 Gateway Time-out", "Server: a, b",
				"Set-Cookie: c=d; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
				"Set-Cookie: e=f", "Content-Type: text/html", "Expires: -1") + "<html>",
			dotnet.Response{
				Status: 504,
				Header: http.Header{
					"Server": {"a, b"}, "Set-Cookie": {"c=d; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "e=f"},
					"Content-Type": {"text/html"}, "Expires": {"-1"},
				},
				Body: []byte("<html>"),
			},
		},
		"no_reason":  {message("HTTP/1.1 204 "), dotnet.Response{Status: 204, Header: http.Header{}}},
		"any_reason": {message("HTTP/2.0 999  a: \tb é\xff\x01 "), dotnet.Response{Status: 999, Header: http.Header{}}},
		"lowest":     {message("HTTP/1.1 100 Continue"), dotnet.Response{Status: 100, Header: http.Header{}}},
		"empty_body": {
			message("HTTP/1.1 200 OK", "expires: 0"),
			dotnet.Response{Status: 200, Header: http.Header{"Expires": {"0"}}, Body: []byte{}},
		},
		"a_response_may_have_a_host": {
			message("HTTP/1.1 200 OK", "Host: a, b", "Host: @"),
			dotnet.Response{Status: 200, Header: http.Header{"Host": {"a, b", "@"}}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := dotnet.ParseResponse([]byte(test.message))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseResponseRefuses(t *testing.T) {
	const start = "HTTP/1.1 200 " + secret
	for _, c := range []struct{ message, want string }{
		{"", "status line: no line end"},
		{start + "\nA: b\n\n", "status line: no line end"},
		{start + "\n" + message("A: b"), "status line: the reason phrase"},
		{start + "\r" + message("A: b"), "status line: the reason phrase"},
		{message("GET /" + secret + " HTTP/1.1"), "status line: the version"},
		{message("HTTP/11 200 OK"), "status line: the version"},
		{message("HTTP/1.1"), "status line: the status"},
		{message("HTTP/1.1  200 OK"), "status line: the status"},
		{message("HTTP/1.1 20 OK"), "status line: the status"},
		{message("HTTP/1.1 2000 OK"), "status line: the status"},
		{message("HTTP/1.1 099 OK"), "status line: the status"},
		{message("HTTP/1.1 +20 OK"), "status line: the status"},
		{message("HTTP/1.1 " + secret), "status line: the status"},
		{message("HTTP/1.1 ٣ OK"), "status line: the status"},
		{start + "\r\nA: b\r\n", "headers: no blank line"},
		{message(start, secret), "header line 1: no colon"},
	} {
		got, err := dotnet.ParseResponse([]byte(c.message))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: got %v, want %q and no secret", c.message, err, c.want)
		}
		if got.Status != 0 || got.Header != nil {
			t.Errorf("%q: a response together with the error: %+v", c.message, got)
		}
	}
}

func TestFormatResponse(t *testing.T) {
	tests := map[string]struct {
		response dotnet.Response
		want     string
	}{
		"reason":         {dotnet.Response{Status: 503}, message("HTTP/1.1 503 Service Unavailable")},
		"without_reason": {dotnet.Response{Status: 599}, message("HTTP/1.1 599 ")},
		"content_last": {
			dotnet.Response{
				Status: 200,
				Header: http.Header{
					"Content-Type": {"a/b"}, "Expires": {"-1"}, "Server": {"c, d", "e"}, "Set-Cookie": {"z", "y"},
					"User-Agent": {"x/1", "(y)"}, "X-Powered-By": {"p", "q"}, "Zeta": {"f"}, "Allow": {}, "X": nil,
				},
				Body: []byte("body"),
			},
			message("HTTP/1.1 200 OK", "Server: c, d, e", "Set-Cookie: z", "Set-Cookie: y", "User-Agent: x/1 (y)",
				"X-Powered-By: p", "X-Powered-By: q", "Zeta: f",
				"Content-Type: a/b", "Expires: -1") + "body",
		},
		"body_without_content_header": {
			dotnet.Response{Status: 502, Header: http.Header{"A": {"b"}}, Body: []byte("c")},
			message("HTTP/1.1 502 Bad Gateway", "A: b", "Content-Type: application/octet-stream") + "c",
		},
		"empty_body_needs_no_header": {
			dotnet.Response{Status: 204, Body: []byte{}},
			message("HTTP/1.1 204 No Content"),
		},
		"nothing_makes_another_line": {
			dotnet.Response{Status: 200, Header: http.Header{"A": {"b\r\n\r\nc"}, "D:\r\nE": {"f"}, "g": {"h\x00"}}},
			message("HTTP/1.1 200 OK", "A: b    c", "g: h "),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, string(dotnet.FormatResponse(test.response))); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}
