package dotnet_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/rules/dotnet"
)

// secret is in every place that an error could quote. No error may contain it.
const secret = "S3CRET"

// message returns the lines of a head with their ends, and the blank line.
func message(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n\r\n" }

// get returns a request of GET / to a, with these headers.
func get(header http.Header) dotnet.Request {
	return dotnet.Request{Method: "GET", Target: "/", Host: "a", Header: header}
}

// put returns a request of PUT / to a, with these headers and this body.
func put(header http.Header, body string) dotnet.Request {
	return dotnet.Request{Method: "PUT", Target: "/", Host: "a", Header: header, Body: []byte(body)}
}

func TestParseRequest(t *testing.T) {
	type values = http.Header
	const start, host = "GET / HTTP/1.1", "Host: a"
	with := func(r dotnet.Request, change func(r *dotnet.Request)) dotnet.Request {
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		message string
		want    dotnet.Request
	}{
		"as_HttpMessageContent_writes_it": {
			message("POST /orders?id=1 HTTP/1.1", "Host: api.example", "Accept: a/b, c/d", "User-Agent: x/1 (y)",
				"Content-Type: application/json; charset=utf-8") + `{"a":1}`,
			dotnet.Request{
				Method: "POST", Target: "/orders?id=1", Host: "api.example",
				Header: http.Header{
					"Accept": {"a/b, c/d"}, "User-Agent": {"x/1 (y)"},
					"Content-Type": {"application/json; charset=utf-8"},
				},
				Body: []byte(`{"a":1}`),
			},
		},
		"no_headers_no_body": {message(start, host), get(values{})},
		"body_without_content_header_is_no_body": {
			message(start, host, "X-Content-Type: b", "Content-Version: 2") + "body",
			get(values{"X-Content-Type": {"b"}, "Content-Version": {"2"}}),
		},
		"content_header_makes_an_empty_body": {
			message("PUT / HTTP/1.1", host, "content-type: b"),
			with(put(values{"Content-Type": {"b"}}, ""), func(r *dotnet.Request) {
				r.Spelling = dotnet.Spelling{"Content-Type": "content-type"}
			}),
		},
		"allow_is_a_content_header": {
			message("PUT / HTTP/1.1", host, "Allow: GET") + "b", put(values{"Allow": {"GET"}}, "b"),
		},
		"length_does_not_limit_the_body": {
			message("PUT / HTTP/1.1", host, "Content-Length: 2") + "123", put(values{"Content-Length": {"2"}}, "123"),
		},
		"chunked_is_not_believed": {
			message("PUT / HTTP/1.1", host, "Transfer-Encoding: chunked", "Content-Type: b") + "1\r\nx",
			put(values{"Transfer-Encoding": {"chunked"}, "Content-Type": {"b"}}, "1\r\nx"),
		},
		"blank_lines_and_nul_in_the_body": {
			message("PUT / HTTP/1.1", host, "Content-Type: b") + "\r\n\r\n\x00\xff\n",
			put(values{"Content-Type": {"b"}}, "\r\n\r\n\x00\xff\n"),
		},
		"own_host_among_the_others": {
			message("GET / HTTP/2.0", "Accept: b", "hOST:a.example:8080", "X-Y: z"),
			with(get(values{"Accept": {"b"}, "X-Y": {"z"}}), func(r *dotnet.Request) { r.Host = "a.example:8080" }),
		},
		"host_with_port_6": {
			message(start, "Host: [::1]:80"), with(get(values{}), func(r *dotnet.Request) { r.Host = "[::1]:80" }),
		},
		"international_host": {
			message(start, "Host: bücher.example:"),
			with(get(values{}), func(r *dotnet.Request) { r.Host = "bücher.example:" }),
		},
		"names_become_canonical_the_first_spelling_counts_values_are_trimmed": {
			message(start, "Host:\t a \t", "x-y:  a  b\t", "X-Y:", "ETAG:x:y"),
			with(get(values{"X-Y": {"a  b", ""}, "Etag": {"x:y"}}), func(r *dotnet.Request) {
				r.Spelling = dotnet.Spelling{"X-Y": "x-y", "Etag": "ETAG"}
			}),
		},
		"text_in_UTF8_and_other_bytes": {message(start, host, "X-Y: Åsa \xff"), get(values{"X-Y": {"Åsa \xff"}})},
		"folded": {
			message(start, "Host:", "  a", "X-Y: b \t", " \t c: d", "\t", " e", "Z: z"),
			get(values{"X-Y": {"b c: d  e"}, "Z": {"z"}}),
		},
		"line_of_spaces_is_not_the_blank_line": {
			message("PUT / HTTP/1.1", host, " ", "Content-Type: b") + "c", put(values{"Content-Type": {"b"}}, "c"),
		},
		"target_unchanged": {
			message("GET //a/%2F/../é?q=%20&r=http://b/@c#d HTTP/1.1", host),
			with(get(values{}), func(r *dotnet.Request) { r.Target = "//a/%2F/../é?q=%20&r=http://b/@c#d" }),
		},
		"method_as_it_came": {
			message("pAtch!~ / HTTP/0.9", host), with(get(values{}), func(r *dotnet.Request) { r.Method = "pAtch!~" }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := dotnet.ParseRequest([]byte(c.message))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, sameSpelling); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRequestRefuses(t *testing.T) {
	const start, host = "POST /" + secret + " HTTP/1.1", "Host: " + secret
	line := func(requestLine string) string { return message(requestLine, host) }
	for _, c := range []struct{ message, want string }{
		{"", "request line: no line end"},
		{start + "\n" + host + "\n\n", "request line: no line end"},
		{"\r\n" + message(start, host), "request line: not a method"},
		{line("GET /" + secret), "request line: not a method"},
		{line("GET /" + secret + " b HTTP/1.1"), "request line: not a method"},
		{line("GET  / HTTP/1.1"), "request line: not a method"},
		{line("GET / HTTP/1.1 "), "request line: not a method"},
		{line(" / HTTP/1.1"), "request line: the method"},
		{line(secret + "(x) / HTTP/1.1"), "request line: the method"},
		{line("GÉT / HTTP/1.1"), "request line: the method"},
		{line("GET @" + secret + "/ HTTP/1.1"), "request line: the target does not begin"},
		{line("GET :81/ HTTP/1.1"), "request line: the target does not begin"},
		{line("GET .evil.example/ HTTP/1.1"), "request line: the target does not begin"},
		{line("GET http://" + secret + "/ HTTP/1.1"), "request line: the target does not begin"},
		{line(`GET \a HTTP/1.1`), "request line: the target does not begin"},
		{line("GET  HTTP/1.1"), "request line: the target does not begin"},
		{line("GET /" + secret + "\t HTTP/1.1"), "request line: the target holds"},
		{line("GET /" + secret + "\n HTTP/1.1"), "request line: the target holds"},
		{line("GET /\x7f HTTP/1.1"), "request line: the target holds"},
		{line("GET / http/1.1"), "request line: the version"},
		{line("GET / HTTP/1"), "request line: the version"},
		{line("GET / HTTP/1.10"), "request line: the version"},
		{line("GET / HTTP/x.y"), "request line: the version"},
		{start + "\r" + message("", host), "request line: the version"},
		{start + "\r\n" + host + "\r\n", "headers: no blank line"},
		{start + "\r\n" + host + "\r\n b", "headers: no blank line"},
		{start + "\r\n" + host + "\r\n\n" + secret, "headers: no blank line"},
		{message(start, " "+host), "header line 1: begins with a space"},
		{message(start, "\t", host), "header line 1: begins with a space"},
		{message(start, host, "A: b", secret), "header line 3: no colon"},
		{message(start, host, ": "+secret), "header line 2: the name"},
		{message(start, host, secret+" : b"), "header line 2: the name"},
		{message(start, host, "A", " "+secret+": b"), "header line 2: the name"},
		{message(start, host, "A: b", " c", " d", "E: \x01"+secret), "header line 5: the value"},
		{message(start, host, "A: "+secret+"\nB: c"), "header line 2: the value"},
		{message(start, host, "A: "+secret+"\r"), "header line 2: the value"},
		{message(start, host, "A: \x7f"+secret), "header line 2: the value"},
		{message(start, "X-Host: a"), "header Host: missing"},
		{message(start, host, "HOST: "+secret), "header Host: appears more than once"},
		{message(start, host+",b"), "header Host: not one"},
		{message(start, host, " b"), "header Host: not one"},
		{message(start, "Host: "), "header Host: not one"},
		{message(start, "Host: :80"), "header Host: not one"},
		{message(start, "Host: a:"+secret), "header Host: not one"},
		{message(start, "Host: a:80:81"), "header Host: not one"},
		{message(start, "Host: "+secret+"@a"), "header Host: not one"},
		{message(start, host+"/b"), "header Host: not one"},
		{message(start, host+"?b"), "header Host: not one"},
		{message(start, host+"#b"), "header Host: not one"},
		{message(start, host+`\b`), "header Host: not one"},
		{message(start, host+"%2fb"), "header Host: not one"},
		{message(start, "Host: \xff"), "header Host: not one"},
		{message(start, "Host: [::1"), "header Host: not one"},
		{message(start, "Host: [::1]"+secret), "header Host: not one"},
	} {
		got, err := dotnet.ParseRequest([]byte(c.message))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: got %v, want %q and no secret", c.message, err, c.want)
		}
		if got.Method != "" || got.Header != nil {
			t.Errorf("%q: a request together with the error: %+v", c.message, got)
		}
	}
}

// The body shares the message's memory, so appending to it must not overwrite the bytes after it.
func TestGrownBodyLeavesTheMemoryAlone(t *testing.T) {
	memory := []byte(message("PUT / HTTP/1.1", "Host: a", "Content-Type: b") + "bodyX")
	request, err := dotnet.ParseRequest(memory[:len(memory)-1])
	if err != nil {
		t.Fatal(err)
	}
	_ = append(request.Body, 'Y')
	if memory[len(memory)-1] != 'X' {
		t.Error("the byte after the message was changed")
	}
}

// TestReplaceContent checks the bytes of a message with another content. FuzzRequest checks what it refuses.
func TestReplaceContent(t *testing.T) {
	for _, c := range []struct{ message, body, want string }{
		{
			message("POST /a?b=%20 HTTP/2.0", "Host: a", "Content-Type: text/plain", "Content-Length: 3") + "old", `{}`,
			message("POST /a?b=%20 HTTP/2.0", "Host: a", "Content-Type: a/b") + `{}`,
		},
		{
			message("POST / HTTP/1.1", "x-z:  1,2", "EXPIRES: -1", "hOsT:a ", "X-A: b\t", "\tc", "allow: d", " e",
				"last-modified: f", "Transfer-Encoding: chunked", "x-z: 3", "Content-Version: 2", "CONTENT-md5: g") +
				"old",
			"new",
			message("POST / HTTP/1.1", "x-z:  1,2", "hOsT:a ", "X-A: b\t", "\tc",
				"Transfer-Encoding: chunked", "x-z: 3", "Content-Version: 2", "Content-Type: a/b") + "new",
		},
		{
			message("GET / HTTP/1.1", "Host: a") + "ignored", "new",
			message("GET / HTTP/1.1", "Host: a", "Content-Type: a/b") + "new",
		},
	} {
		got, err := dotnet.ReplaceContent([]byte(c.message), "a/b", []byte(c.body))
		if err != nil || string(got) != c.want {
			t.Errorf("%q became\n%q, want\n%q, %v", c.message, got, c.want, err)
		}
	}
}
