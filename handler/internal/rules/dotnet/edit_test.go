package dotnet_test

import (
	"bytes"
	"strings"
	"testing"

	"asynccaller/handler/internal/rules/dotnet"
)

// edited is a request in a form that .NET never writes.
const edited = "put /orders?x=1 HTTP/1.0\r\nX-A:1\r\nhost: old.example\r\nx-a:\t2\r\nX-B: folded\r\n" +
	" over lines\r\nContent-type: text/plain\r\nX-C: 3\r\n\r\nbody\r\n\r\n"

func header(name, value string) func([]byte) ([]byte, error) {
	return func(m []byte) ([]byte, error) { return dotnet.ReplaceHeader(m, name, value) }
}

func remove(name string) func([]byte) ([]byte, error) {
	return func(m []byte) ([]byte, error) { return dotnet.RemoveHeader(m, name) }
}

func body(text, contentType string) func([]byte) ([]byte, error) {
	return func(m []byte) ([]byte, error) { return dotnet.ReplaceBody(m, []byte(text), contentType) }
}

func to(host, target string) func([]byte) ([]byte, error) {
	return func(m []byte) ([]byte, error) { return dotnet.ReplaceURL(m, host, target) }
}

func TestEdit(t *testing.T) {
	withLength := strings.Replace(edited, "X-C: 3", "content-length: 8", 1)
	noContent := "POST / HTTP/1.1\r\nHost: h\r\n\r\nunread"
	for name, test := range map[string]struct {
		message  string
		edit     func([]byte) ([]byte, error)
		old, new string // a part of the message before and after the edit
	}{
		"length_correct": {withLength, dotnet.CorrectLength, "", ""},
		"length_none":    {edited, dotnet.CorrectLength, "", ""},
		"length_wrong": {
			strings.Replace(withLength, "content-length: 8", "Content-Length: 7\r\ncontent-length: 9", 1),
			dotnet.CorrectLength, "Content-Length: 7\r\ncontent-length: 9", "Content-Length: 8",
		},
		"url": {
			edited, to("new.example:8443", "/a?b"), "put /orders?x=1 HTTP/1.0\r\nX-A:1\r\nhost: old.example\r\n",
			"put /a?b HTTP/1.0\r\nX-A:1\r\nHost: new.example:8443\r\n",
		},
		"same_url": {edited, to("old.example", "/orders?x=1"), "", ""},
		"header_of_two": {
			edited, header("x-A", "9"), "X-A:1\r\nhost: old.example\r\nx-a:\t2\r\n",
			"x-A: 9\r\nhost: old.example\r\n",
		},
		"header_that_is_so":  {edited, header("x-b", "folded over lines"), "", ""},
		"first_of_two_is_so": {edited, header("x-a", "1"), "x-a:\t2\r\n", ""},
		"header_folded":      {edited, header("X-B", "flat"), "X-B: folded\r\n over lines\r\n", "X-B: flat\r\n"},
		"new_header":         {edited, header("X-New", "n"), "Content-type", "X-New: n\r\nContent-type"},
		"new_content_header": {
			edited, header("Content-Language", "en"), "X-C: 3\r\n",
			"X-C: 3\r\nContent-Language: en\r\n",
		},
		"content_type":         {edited, header("CONTENT-TYPE", "a/b"), "Content-type: text/plain", "CONTENT-TYPE: a/b"},
		"host":                 {edited, header("Host", "new.example"), "host: old.example", "Host: new.example"},
		"first_content_header": {noContent, header("Content-Type", "a/b"), "\r\n\r\n", "\r\nContent-Type: a/b\r\n\r\n"},
		"remove":               {edited, remove("X-a"), "X-A:1\r\nhost: old.example\r\nx-a:\t2\r\n", "host: old.example\r\n"},
		"remove_what_is_not":   {edited, remove("X-Not"), "", ""},
		"remove_last_content": {
			edited, remove("Content-Type"), "Content-type: text/plain\r\nX-C: 3\r\n",
			"X-C: 3\r\nContent-Length: 8\r\n",
		},
		"remove_one_content": {withLength, remove("Content-Type"), "Content-type: text/plain\r\n", ""},
		"body":               {edited, body("new", "a/b"), "body\r\n\r\n", "new"},
		"body_and_length": {
			withLength, body("new", "a/b"), "content-length: 8\r\n\r\nbody\r\n\r\n",
			"Content-Length: 3\r\n\r\nnew",
		},
		"body_of_none":          {noContent, body("new", "a/b"), "\r\n\r\nunread", "\r\nContent-Type: a/b\r\n\r\nnew"},
		"empty_body":            {edited, body("", "a/b"), "body\r\n\r\n", ""},
		"binary_body":           {edited, body("\x00\xff\r\n", "a/b"), "body\r\n\r\n", "\x00\xff\r\n"},
		"header_value_trimmed":  {edited, header("X-C", " 4\t"), "X-C: 3", "X-C: 4"},
		"header_value_empty":    {edited, header("X-C", ""), "X-C: 3", "X-C: "},
		"header_not_ascii":      {edited, header("X-C", "é"), "X-C: 3", "X-C: é"},
		"same_length_same_body": {withLength, body("body\r\n\r\n", "a/b"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := bytes.Clone([]byte(test.message))
			got, err := test.edit(before)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Replace(test.message, test.old, test.new, 1)
			if string(got) != want {
				t.Errorf("got\n%q, want\n%q", got, want)
			}
			if string(before) != test.message {
				t.Error("the original has changed")
			}
		})
	}
}

func TestEditRefuses(t *testing.T) {
	for _, c := range []struct {
		message string
		edit    func(message []byte) ([]byte, error)
		want    string
	}{
		{"", dotnet.CorrectLength, "request line"},
		{message("GET / HTTP/1.1", "Host: h") + secret, dotnet.CorrectLength, "headers: a body needs one such as"},
		{message("GET / HTTP/1.1"), remove("X"), "Host"},
		{edited, to("h", "@"+secret), "slash"},
		{edited, to("h", "/a "+secret), "request line"},
		{edited, to("h", "/ HTTP/1.1\r\nX: "), "request line"},
		{edited, to("a,"+secret, "/"), "Host"},
		{edited, header("Host", "a/"+secret), "Host"},
		{edited, remove("Host"), "Host"},
		{edited, header("X-A", secret+"\r\nX-B: 1"), "control"},
		{edited, header("X A", secret), "token"},
		{message("GET / HTTP/1.1", "Host: h"), body(secret, "a\nb"), "control"},
	} {
		got, err := c.edit([]byte(c.message))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%q became %q, %v, want an error with %q", c.message, got, err, c.want)
		}
	}
}

// FuzzEdit checks that an edited request can be read, and differs only in the edited part.
func FuzzEdit(f *testing.F) {
	f.Add([]byte(edited), "X-A", "1", []byte("b"))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: h\r\n\r\nunread"), "Content-Type", "a/b", []byte(nil))
	f.Add([]byte("POST / HTTP/1.1\r\nAllow: a\r\nHost: h\r\n\r\n"), "allow", "", []byte("\r\n"))
	f.Fuzz(func(t *testing.T, message []byte, name, value string, body []byte) {
		before, err := dotnet.ParseRequest(message)
		if err != nil {
			return
		}
		if got, err := dotnet.ReplaceHeader(message, name, value); err == nil {
			after := mustParseRequest(t, got)
			if strings.EqualFold(name, "Host") {
				after.Host = before.Host
			} else if values := after.Header.Values(name); len(values) != 1 || values[0] != strings.Trim(value, " \t") {
				t.Errorf("%s became %q, not %q", name, values, value)
			}
			if after.Method != before.Method || after.Target != before.Target || after.Host != before.Host {
				t.Errorf("%q became %q", message, got)
			}
		}
		if got, err := dotnet.RemoveHeader(message, name); err == nil {
			after := mustParseRequest(t, got)
			if !bytes.Equal(after.Body, before.Body) {
				t.Errorf("without %s, body %q became %q", name, before.Body, after.Body)
			}
		}
		got, err := dotnet.ReplaceBody(message, body, "a/b")
		if err != nil {
			t.Fatalf("body: %v", err)
		}
		if after := mustParseRequest(t, got); !bytes.Equal(after.Body, body) {
			t.Errorf("body %q became %q", body, after.Body)
		}
	})
}

func mustParseRequest(tb testing.TB, message []byte) dotnet.Request {
	tb.Helper()
	r, err := dotnet.ParseRequest(message)
	if err != nil {
		tb.Fatalf("%v in %q", err, message)
	}
	return r
}
