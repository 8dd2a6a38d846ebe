package dotnet_test

import (
	"testing"

	"asynccaller/handler/internal/rules/dotnet"
)

func TestIsReadable(t *testing.T) {
	for name, want := range map[string]map[string]bool{
		"Server": {"nginx/1.25 x": true, "a, b": false, "Apache (Unix)": false},
		"Content-Type": {
			"text/plain; charset=utf-8": true, "text": false, "text/plain; charset": false, "text/plain;": false,
			"a/b; c=\"d e\";f=g": true, "a/b/c": false, "": false, "a/b; c=\"d": false, "a/b, c/d": false, "a/": false,
		},
		"Retry-After": {
			"120": true, "Sat, 31 Jan 2026 12:00:00 GMT": true, "soon": false, "": false, "-1": false, "1.5": false,
			"9999999999":                    false,
			"Sun, 31 Jan 2026 12:00:00 GMT": false,
		},
		"Last-Modified": {
			"Sat, 31 Jan 2026 12:00:00 GMT": true, "-1": false, "Sun, 31 Jan 2026 12:00:00 GMT": false,
			"Sat, 31 Jan 2026 12:00:00 UTC": false,
			"Mon, 31 Feb 2026 12:00:00 GMT": false, "Saturday, 31-Jan-26 12:00:00 GMT": false, "": false,
		},
		"Date": {
			"Sat, 31 Jan 2026 12:00:00 GMT": true, "Fri, 31 Jan 2026 12:00:00 GMT": false,
			"Sat, 01 Jan 0000 00:00:00 GMT": false,
		},
		"Expires": {"-1": true},
		"Etag": {
			`"33a6"`: true, `W/"33a6"`: true, `""`: true, "33a64df5": false, "": false, "*": false, `"a`: false,
			`w/"a"`: false, `"a"b"`: false, `"a\"`: false, `"a", "b"`: false, `"å"`: false,
		},
		"Age":  {"0": true, "-1": false},
		"Vary": {"Accept, Origin": true, "*": true, "a b": false},
		"Location": {
			"/next?x=%20": true, "/a b": false, "http://[": false, "": false, "/": true, "http://a": true,
			"https://a.example:8080/b?c#d": true, "http://": false, "http:": false, "http:/a": false, "//": false,
			"//a/b": false, `/\a`: false, "http://a:99999/": false, "http://a..b/": false, "http://a_/": false,
			"http://u@a/": false, "http://a@b": false, "/å": false, "a:b": false, "http://a?b": false,
			"http://a:80@b/": false,
		},
		"Content-Location": {"/a": true, "": false, "http://a:b/": false},
		"Alt-Svc":          {"clear": false, "h3=\":443\"": false, "": false},
		"Cookie":           {"a=b; c=d": true, "": false},
		"Accept":           {"*/*": true, "a/b, c/d;q=0.5": true, "text": false, "a/b;": false, "": false},
		"Accept-Language":  {"sv-SE,sv;q=0.9, en;q=0.8": true, "sv;q=": false, "sv;q=1.5": false, "sv en": false},
		"Authorization": {
			"Bearer a.b-c_d~e+/==": true, "Basic YTpi==": true, "token": true, "YTpi/w==": false, "": false,
			`Bearer "a`: false, "Bearer a, =": false,
		},
		"Cache-Control":     {"no-cache, max-age=0": true, "max-age=x": false, "max-age=9999999999": false},
		"If-None-Match":     {`"a", W/"b"`: true, "*": true, "a": false, "": false},
		"If-Modified-Since": {"Sat, 31 Jan 2026 12:00:00 GMT": true, "yesterday": false},
		"Range":             {"bytes=0-1": true, "bytes=-5": true, "bytes": false},
		"User-Agent": {
			"curl/8.1": true, "Mozilla/5.0 (X11; a, b) A/1 B/2": true, "a, b": false, "": false,
			"a (b": false, "a(b)": false,
		},
		"Referer":             {"https://a.example:10443/b?c": true, "": false},
		"Content-Disposition": {"inline": false},
		"Content-Range":       {"bytes 0-1/2": false},
		"Host":                {"a": false},
		"Warning":             {"199 - \"a\"": false},
		"Www-Authenticate":    {"Bearer": false},
		"X-Anything":          {"a, b; c=\"": true},
		"Set-Cookie":          {"a=b; Path=/": true},
	} {
		for value, want := range want {
			if got := dotnet.IsReadable(name, []string{value}); got != want {
				t.Errorf("%s: %s: kept %v, want %v", name, value, got, want)
			}
		}
	}
	for name, want := range map[string]bool{
		"Age": false, "Retry-After": false, "Vary": true, "Cookie": true,
		"User-Agent": true, "X-Y": true,
	} {
		if got := dotnet.IsReadable(name, []string{"1", "2"}); got != want {
			t.Errorf("%s twice: kept %v, want %v", name, got, want)
		}
	}
}
