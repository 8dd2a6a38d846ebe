package dotnet_test

import (
	"net/http"
	"testing"

	"asynccaller/handler/internal/dotnet"
)

func TestReadable(t *testing.T) {
	for name, want := range map[string]map[string]bool{
		"Server":           {"nginx/1.25 x": true, "a, b": false, "Apache (Unix)": false},
		"Content-Type":     {"text/plain; charset=utf-8": true, "text": false, "text/plain; charset": false},
		"Retry-After":      {"120": true, "Sat, 31 Jan 2026 12:00:00 GMT": true, "soon": false},
		"Last-Modified":    {"Sat, 31 Jan 2026 12:00:00 GMT": true, "-1": false},
		"Expires":          {"-1": true},
		"Etag":             {"unquoted": true},
		"Age":              {"0": true, "-1": false},
		"Vary":             {"Accept, Origin": true, "*": true, "a b": false},
		"Location":         {"/next?x=%20": true, "/a b": false, "http://[": false},
		"Www-Authenticate": {"Bearer": false},
		"X-Anything":       {"a, b; c=\"": true},
		"Set-Cookie":       {"a=b; Path=/": true},
	} {
		for value, want := range want {
			_, got := dotnet.Readable(http.Header{name: {value}})[name]
			if got != want {
				t.Errorf("%s: %s: kept %v, want %v", name, value, got, want)
			}
		}
	}
	if got := dotnet.Readable(http.Header{"Age": {"1", "2"}}); len(got) != 0 {
		t.Errorf("a header that may appear once is kept twice: %v", got)
	}
}
