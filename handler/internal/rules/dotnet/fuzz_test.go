package dotnet_test

import (
	"bytes"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http/httpguts"

	"asynccaller/handler/internal/rules/dotnet"
)

var requestSeeds = []string{
	message("GET / HTTP/1.1", "Host: a"),
	message("POST /a?b=%20 HTTP/1.1", "Host: a.example:81", "User-Agent: x", "User-Agent: (y)", "Content-Type: b/c") +
		"body",
	message("PUT //é HTTP/2.0", "x-y: 1,2", "X-Y: ", "X-Y: 3", "hOST:[::1]", "Cookie: a", "Cookie: ", "allow: d",
		" e") + "\r\n\r\n",
	message("GET @evil/ HTTP/1.1", "Host: a"),
	message("GET / HTTP/1.1", "Host: a,b"),
	message("GET / HTTP/1.1", " Host: a", "Host: b"),
	"GET / HTTP/1.1\r\nHost: a\r\n\n",
	message("GET / HTTP/1.1", "X-A: a"),
	message("GET / HTTP/1.1", "Host: a", "host: b"),
	message("G@T / HTTP/1.1", "Host: a"),
	message("GET /\x1f HTTP/1.1", "Host: a"),
	message("GET /%00 HTTP/1.1", "Host: \xf5"),
	message("GET / HTTP/1.1", "Host: []:"),
	"",
}

var sameSpelling = cmp.Comparer(func(a, b dotnet.Spelling) bool { return maps.Equal(a, b) })

// FuzzRequest checks that the functions for requests agree: ParseRequest reads what ReplaceContent writes as the same
// request. Its headers are written and read as the same headers.
func FuzzRequest(f *testing.F) {
	for _, seed := range requestSeeds {
		f.Add([]byte(seed), "a/b", []byte("new"))
	}
	f.Fuzz(func(t *testing.T, text []byte, contentType string, body []byte) {
		before := bytes.Clone(text)
		request, err := dotnet.ParseRequest(text)
		replaced, replaceErr := dotnet.ReplaceContent(text, contentType, body)
		if !bytes.Equal(before, text) {
			t.Fatal("the message was changed")
		}
		if err != nil {
			if replaceErr == nil || replaceErr.Error() != err.Error() {
				t.Errorf("ParseRequest: %v, ReplaceContent: %v", err, replaceErr)
			}
			return
		}
		if valid := httpguts.ValidHeaderFieldValue(contentType); valid != (replaceErr == nil) {
			t.Fatalf("valid content type %v, ReplaceContent: %v", valid, replaceErr)
		} else if !valid {
			return
		}
		if called, err := url.Parse("http://" + request.Host + request.Target); err == nil &&
			called.Host != request.Host {
			t.Errorf("the URL calls %q, not %q", called.Host, request.Host)
		}
		sameHeader(t, request.Header)
		sameButContent(t, request, replaced, contentType, body)
	})
}

// sameHeader formats and parses headers.
func sameHeader(t *testing.T, want http.Header) {
	t.Helper()
	formatted := dotnet.FormatResponse(dotnet.Response{Status: 200, Header: want})
	got, err := dotnet.ParseResponse(formatted)
	if err != nil {
		t.Fatalf("%q: %v", formatted, err)
	}
	want = joined(want)
	for name, values := range want {
		once := dotnet.Rewritten(name, values)
		again := dotnet.Rewritten(name, once)
		afterwards := dotnet.Rewritten(name, got.Header[name])
		if !slices.Equal(again, once) || !slices.Equal(afterwards, once) {
			t.Errorf("%s: %q is rewritten as %q, then as %q, and once it was written as %q", name, values, once, again,
				afterwards)
		}
	}
	if diff := cmp.Diff(want, got.Header); diff != "" {
		t.Errorf("formatted and parsed (-want +got):\n%s", diff)
	}
}

// sameButContent checks a message whose content ReplaceContent replaced.
func sameButContent(t *testing.T, want dotnet.Request, message []byte, contentType string, body []byte) {
	t.Helper()
	got, err := dotnet.ParseRequest(message)
	if err != nil {
		t.Fatalf("%q: %v", message, err)
	}
	want.Header, want.Spelling = want.Header.Clone(), maps.Clone(want.Spelling)
	for name := range want.Header {
		if dotnet.IsContentHeader(name) {
			delete(want.Header, name)
			delete(want.Spelling, name)
		}
	}
	want.Header.Set("Content-Type", strings.Trim(printable(contentType), " \t"))
	want.Body = append([]byte{}, body...)
	if diff := cmp.Diff(want, got, sameSpelling); diff != "" {
		t.Errorf("replaced and parsed (-want +got):\n%s", diff)
	}
}

// joined returns a header as it is after writing: one value per name, except where .NET writes a line for each value.
func joined(header http.Header) http.Header {
	result := http.Header{}
	for name, values := range header {
		switch name {
		case "Cookie", "Set-Cookie", "X-Powered-By":
			result[name] = values
		case "User-Agent":
			result[name] = []string{strings.Trim(strings.Join(values, " "), " \t")}
		default:
			result[name] = []string{strings.Trim(strings.Join(values, ", "), " \t")}
		}
	}
	return result
}

func printable(text string) string {
	result := []byte(text)
	for i, c := range result {
		if (c < ' ' && c != '\t') || c == 0x7f {
			result[i] = ' '
		}
	}
	return string(result)
}

// FuzzResponse formats parsed responses and parses them again. It also formats arbitrary ones.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		message("HTTP/1.1 504 Gateway Time-out", "Expires: -1", "Server: a, b", "Server: c") + "body",
		message("HTTP/1.1 204"), message("HTTP/2.0 999 ", "Set-Cookie: a", "Set-Cookie:", "user-agent: x",
			"user-agent: y"),
		message("HTTP/1.1 200 OK", "A: b", "\tc", "Content-Length: 1"), "HTTP/1.1 200 OK\n\r\n\r\n", "",
	} {
		f.Add([]byte(seed), 200, "Name", "value")
	}
	f.Add([]byte(message("HTTP/1.1 99 Low")), 100, "", "value")
	f.Add([]byte(nil), 999, "Name", "a\r\nb: c\x7f")
	f.Fuzz(func(t *testing.T, text []byte, status int, name, value string) {
		made := dotnet.Response{
			Status: 100 + int(uint(status)%900), Header: http.Header{name: {value, value}},
			Body: text,
		}
		read, err := dotnet.ParseResponse(dotnet.FormatResponse(made))
		if err != nil {
			t.Fatal(err)
		}
		if read.Status != made.Status || !bytes.Equal(read.Body, made.Body) || len(read.Header) > 2 {
			t.Errorf("got %+v, want %+v", read, made)
		}

		want, err := dotnet.ParseResponse(text)
		if err != nil {
			return
		}
		formatted := dotnet.FormatResponse(want)
		got, err := dotnet.ParseResponse(formatted)
		if err != nil {
			t.Fatalf("%q: %v", formatted, err)
		}
		want.Header = joined(want.Header)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("formatted and parsed (-want +got):\n%s", diff)
		}
	})
}

// FuzzTime formats parsed times and parses them again. It does the same with arbitrary times.
func FuzzTime(f *testing.F) {
	for _, seed := range []string{
		"2021-01-28T14:34:50.1234567+01:00", "0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59.9999999+00:00",
		"0002-01-01T00:00:00+01:00", "2021-01-28T14:34:50.123456789-0530", "2021-01-28T14:34:50Z",
		"2021-01-28T14:34:50+14", "x",
	} {
		f.Add(seed, int64(1611840890), int64(123456789))
	}
	f.Fuzz(func(t *testing.T, text string, seconds, nanoseconds int64) {
		written := dotnet.FormatTime(time.Unix(seconds, nanoseconds))
		read, err := dotnet.ParseTime(written)
		if err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		if again := dotnet.FormatTime(read); again != written {
			t.Errorf("formatted again: got %s, want %s", again, written)
		}

		want, err := dotnet.ParseTime(text)
		if err != nil {
			return
		}
		if want.Location() != time.UTC || want.Year() < 1 || want.Year() > 9999 {
			t.Errorf("%v is not within .NET's years in UTC", want)
		}
		got, err := dotnet.ParseTime(dotnet.FormatTime(want))
		if err != nil {
			t.Fatal(err)
		}
		want = want.Truncate(100 * time.Nanosecond)
		if got != want {
			t.Errorf("formatted and parsed: got %v, want %v", got, want)
		}
	})
}
