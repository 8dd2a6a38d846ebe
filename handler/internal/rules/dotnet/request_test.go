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

func TestParseRequest(t *testing.T) {
	tests := map[string]struct {
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
		"no_headers_no_body": {
			message("GET / HTTP/1.1", "Host: a"),
			dotnet.Request{Method: "GET", Target: "/", Host: "a", Header: http.Header{}},
		},
		"body_without_content_header_is_no_body": {
			message("POST / HTTP/1.1", "Host: a", "X-Content-Type: b", "Content-Version: 2") + "body",
			dotnet.Request{
				Method: "POST", Target: "/", Host: "a",
				Header: http.Header{"X-Content-Type": {"b"}, "Content-Version": {"2"}},
			},
		},
		"content_header_makes_an_empty_body": {
			message("POST / HTTP/1.1", "Host: a", "content-type: b"),
			dotnet.Request{
				Method: "POST", Target: "/", Host: "a", Header: http.Header{"Content-Type": {"b"}}, Body: []byte{},
				Spelling: dotnet.Spelling{"Content-Type": "content-type"},
			},
		},
		"allow_is_a_content_header": {
			message("PUT / HTTP/1.1", "Host: a", "ALLOW: GET") + "b",
			dotnet.Request{
				Method: "PUT", Target: "/", Host: "a", Header: http.Header{"Allow": {"GET"}},
				Spelling: dotnet.Spelling{"Allow": "ALLOW"}, Body: []byte("b"),
			},
		},
		"length_does_not_limit_the_body": {
			message("PUT / HTTP/1.1", "Host: a", "Content-Length: 2") + "12345",
			dotnet.Request{
				Method: "PUT", Target: "/", Host: "a", Header: http.Header{"Content-Length": {"2"}},
				Body: []byte("12345"),
			},
		},
		"chunked_is_not_believed": {
			message("PUT / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", "Content-Type: b") + "1\r\nx",
			dotnet.Request{
				Method: "PUT", Target: "/", Host: "a",
				Header: http.Header{"Transfer-Encoding": {"chunked"}, "Content-Type": {"b"}}, Body: []byte("1\r\nx"),
			},
		},
		"blank_lines_and_nul_in_the_body": {
			message("PUT / HTTP/1.1", "Host: a", "Content-Type: b") + "\r\n\r\n\x00\xff\n",
			dotnet.Request{
				Method: "PUT", Target: "/", Host: "a", Header: http.Header{"Content-Type": {"b"}},
				Body: []byte("\r\n\r\n\x00\xff\n"),
			},
		},
		"own_host_among_the_others": {
			message("GET / HTTP/2.0", "Accept: b", "hOST:a.example:8080", "X-Y: z"),
			dotnet.Request{
				Method: "GET", Target: "/", Host: "a.example:8080", Header: http.Header{"Accept": {"b"}, "X-Y": {"z"}},
			},
		},
		"host_with_port_6": {
			message("GET / HTTP/1.1", "Host: [::1]:80"),
			dotnet.Request{Method: "GET", Target: "/", Host: "[::1]:80", Header: http.Header{}},
		},
		"international_host": {
			message("GET / HTTP/1.1", "Host: bücher.example:81"),
			dotnet.Request{Method: "GET", Target: "/", Host: "bücher.example:81", Header: http.Header{}},
		},
		"host_with_empty_port": {
			message("GET / HTTP/1.1", "Host: a:"),
			dotnet.Request{Method: "GET", Target: "/", Host: "a:", Header: http.Header{}},
		},
		"names_become_canonical_the_first_spelling_counts_values_are_trimmed": {
			message("GET / HTTP/1.1", "Host:\t a \t", "x-y:  a  b\t", "X-Y:", "ETAG:x:y"),
			dotnet.Request{
				Method: "GET", Target: "/", Host: "a", Header: http.Header{"X-Y": {"a  b", ""}, "Etag": {"x:y"}},
				Spelling: dotnet.Spelling{"X-Y": "x-y", "Etag": "ETAG"},
			},
		},
		"text_in_UTF8_and_other_bytes": {
			message("GET / HTTP/1.1", "Host: a", "X-Y: Åsa \xff"),
			dotnet.Request{Method: "GET", Target: "/", Host: "a", Header: http.Header{"X-Y": {"Åsa \xff"}}},
		},
		"folded": {
			message("GET / HTTP/1.1", "Host:", "  a", "X-Y: b \t", " \t c: d", "\t", " e", "Z: z"),
			dotnet.Request{
				Method: "GET", Target: "/", Host: "a",
				Header: http.Header{"X-Y": {"b c: d  e"}, "Z": {"z"}},
			},
		},
		"line_of_spaces_is_not_the_blank_line": {
			message("GET / HTTP/1.1", "Host: a", " ", "Content-Type: b") + "c",
			dotnet.Request{
				Method: "GET", Target: "/", Host: "a", Header: http.Header{"Content-Type": {"b"}}, Body: []byte("c"),
			},
		},
		"target_unchanged": {
			message("GET //a/%2F/../é?q=%20&r=http://b/@c#d HTTP/1.1", "Host: a"),
			dotnet.Request{
				Method: "GET", Target: "//a/%2F/../é?q=%20&r=http://b/@c#d", Host: "a",
				Header: http.Header{},
			},
		},
		"method_as_it_came": {
			message("pAtch!~ / HTTP/0.9", "Host: a"),
			dotnet.Request{Method: "pAtch!~", Target: "/", Host: "a", Header: http.Header{}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := dotnet.ParseRequest([]byte(test.message))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, sameSpelling); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRequestRefuses(t *testing.T) {
	const start = "POST /" + secret + " HTTP/1.1"
	const host = "Host: " + secret
	line := func(requestLine string) string { return message(requestLine, host) }
	tests := map[string]struct{ message, want string }{
		"empty":                 {"", "request line: no line end"},
		"no_line_end":           {start, "request line: no line end"},
		"unix_line_ends":        {start + "\n" + host + "\n\n", "request line: no line end"},
		"blank_request_line":    {"\r\n" + message(start, host), "request line: not a method"},
		"no_version":            {line("GET /" + secret), "request line: not a method"},
		"space_in_target":       {line("GET /" + secret + " b HTTP/1.1"), "request line: not a method"},
		"two_spaces":            {line("GET  / HTTP/1.1"), "request line: not a method"},
		"space_before_version":  {line("GET /  HTTP/1.1"), "request line: not a method"},
		"space_after_version":   {line("GET / HTTP/1.1 "), "request line: not a method"},
		"no_method":             {line(" / HTTP/1.1"), "request line: the method"},
		"no_token":              {line(secret + "(x) / HTTP/1.1"), "request line: the method"},
		"method_not_ascii":      {line("GÉT / HTTP/1.1"), "request line: the method"},
		"target_other_host":     {line("GET @" + secret + "/ HTTP/1.1"), "request line: the target does not begin"},
		"target_other_port":     {line("GET :81/ HTTP/1.1"), "request line: the target does not begin"},
		"target_more_host":      {line("GET .evil.example/ HTTP/1.1"), "request line: the target does not begin"},
		"target_absolute":       {line("GET http://" + secret + "/ HTTP/1.1"), "request line: the target does not begin"},
		"target_star":           {line("OPTIONS * HTTP/1.1"), "request line: the target does not begin"},
		"target_backslash":      {line(`GET \a HTTP/1.1`), "request line: the target does not begin"},
		"target_empty":          {line("GET  HTTP/1.1"), "request line: the target does not begin"},
		"target_tab":            {line("GET /" + secret + "\t HTTP/1.1"), "request line: the target holds"},
		"target_lone_LF":        {line("GET /" + secret + "\n HTTP/1.1"), "request line: the target holds"},
		"target_DEL":            {line("GET /\x7f HTTP/1.1"), "request line: the target holds"},
		"target_NUL":            {line("GET /\x00 HTTP/1.1"), "request line: the target holds"},
		"version_lower":         {line("GET / http/1.1"), "request line: the version"},
		"version_short":         {line("GET / HTTP/1"), "request line: the version"},
		"version_long":          {line("GET / HTTP/1.10"), "request line: the version"},
		"version_letters":       {line("GET / HTTP/x.y"), "request line: the version"},
		"version_lone_LF":       {line("GET / HTTP/1.1\n"), "request line: the version"},
		"version_lone_CR":       {start + "\r" + message("", host), "request line: the version"},
		"nothing_after":         {start + "\r\n", "headers: no blank line"},
		"no_blank_line":         {start + "\r\n" + host + "\r\n", "headers: no blank line"},
		"header_cut":            {start + "\r\n" + host, "headers: no blank line"},
		"fold_cut":              {start + "\r\n" + host + "\r\n b", "headers: no blank line"},
		"unix_blank_line":       {start + "\r\n" + host + "\r\n\n" + secret, "headers: no blank line"},
		"folds_the_first":       {message(start, " "+host), "header line 1: begins with a space"},
		"folds_the_first_blank": {message(start, "\t", host), "header line 1: begins with a space"},
		"no_colon":              {message(start, host, "A: b", secret), "header line 3: no colon"},
		"no_name":               {message(start, host, ": "+secret), "header line 2: the name"},
		"space_in_name":         {message(start, host, secret+" : b"), "header line 2: the name"},
		"name_not_ascii":        {message(start, host, secret+"é: b"), "header line 2: the name"},
		"colon_in_fold":         {message(start, host, "A", " "+secret+": b"), "header line 2: the name"},
		"lines_count_folds":     {message(start, host, "A: b", " c", " d", "E: \x01"+secret), "header line 5: the value"},
		"lone_LF":               {message(start, host, "A: "+secret+"\nB: c"), "header line 2: the value"},
		"lone_CR":               {message(start, host, "A: "+secret+"\rB: c"), "header line 2: the value"},
		"two_CR":                {message(start, host, "A: "+secret+"\r"), "header line 2: the value"},
		"NUL":                   {message(start, host, "A: "+secret+"\x00"), "header line 2: the value"},
		"DEL":                   {message(start, host, "A: \x7f"+secret), "header line 2: the value"},
		"no_host":               {message(start, "X-Host: a"), "header Host: missing"},
		"two_hosts":             {message(start, host, "HOST: "+secret), "header Host: appears more than once"},
		"same_host_twice":       {message(start, "Host: a", "A: b", "Host: a"), "header Host: appears more than once"},
		"joined_hosts":          {message(start, host+", b"), "header Host: not one"},
		"joined_without_space":  {message(start, host+",b"), "header Host: not one"},
		"folded_hosts":          {message(start, host, " b"), "header Host: not one"},
		"empty_host":            {message(start, "Host: "), "header Host: not one"},
		"only_a_port":           {message(start, "Host: :80"), "header Host: not one"},
		"port_no_number":        {message(start, "Host: a:"+secret), "header Host: not one"},
		"two_ports":             {message(start, "Host: a:80:81"), "header Host: not one"},
		"host_with_user":        {message(start, "Host: "+secret+"@a"), "header Host: not one"},
		"host_with_path":        {message(start, host+"/b"), "header Host: not one"},
		"host_with_query":       {message(start, host+"?b"), "header Host: not one"},
		"host_with_fragment":    {message(start, host+"#b"), "header Host: not one"},
		"host_with_backslash":   {message(start, host+`\b`), "header Host: not one"},
		"host_escaped":          {message(start, host+"%2fb"), "header Host: not one"},
		"host_not_utf8":         {message(start, "Host: \xff"), "header Host: not one"},
		"half_bracket":          {message(start, "Host: [::1"), "header Host: not one"},
		"more_after_bracket":    {message(start, "Host: [::1]"+secret), "header Host: not one"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := dotnet.ParseRequest([]byte(test.message))
			if err == nil {
				t.Fatalf("accepted: %+v", got)
			}
			if !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %q, want it to begin with %q", err, test.want)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%q quotes the message", err)
			}
			if diff := cmp.Diff(dotnet.Request{}, got); diff != "" {
				t.Errorf("a request together with the error (-want +got):\n%s", diff)
			}
			_, again := dotnet.ReplaceContent([]byte(test.message), "a/b", nil)
			if again == nil || again.Error() != err.Error() {
				t.Errorf("ReplaceContent: got %v, want %v", again, err)
			}
		})
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

func TestReplaceContent(t *testing.T) {
	tests := map[string]struct{ message, body, want string }{
		"json": {
			message("POST /a?b=%20 HTTP/2.0", "Host: a", "Content-Type: text/plain", "Content-Length: 3") + "old",
			`{}`,
			message("POST /a?b=%20 HTTP/2.0", "Host: a", "Content-Type: a/b") + `{}`,
		},
		"others_byte_for_byte": {
			message("POST / HTTP/1.1", "x-z:  1,2", "EXPIRES: -1", "hOsT:a ", "X-A: b\t", "\tc", "allow: d", " e",
				"last-modified: f", "Transfer-Encoding: chunked", "x-z: 3", "Content-Version: 2", "CONTENT-md5: g") +
				"old",
			"new",
			message("POST / HTTP/1.1", "x-z:  1,2", "hOsT:a ", "X-A: b\t", "\tc",
				"Transfer-Encoding: chunked", "x-z: 3", "Content-Version: 2", "Content-Type: a/b") + "new",
		},
		"no_content_before": {
			message("GET / HTTP/1.1", "Host: a") + "ignored",
			"new",
			message("GET / HTTP/1.1", "Host: a", "Content-Type: a/b") + "new",
		},
		"empty_body": {
			message("GET / HTTP/1.1", "Host: a"),
			"",
			message("GET / HTTP/1.1", "Host: a", "Content-Type: a/b"),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			original := []byte(test.message)
			got, err := dotnet.ReplaceContent(original, "a/b", []byte(test.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
			if string(original) != test.message {
				t.Errorf("the original became %q", original)
			}
		})
	}
}

func TestReplaceContentRefusesATypeOfTwoLines(t *testing.T) {
	got, err := dotnet.ReplaceContent([]byte(message("GET / HTTP/1.1", "Host: a")), "a/b\r\nEvil: c", nil)
	if err == nil {
		t.Errorf("got %q, want an error", got)
	}
}
