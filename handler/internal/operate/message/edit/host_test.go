package edit_test

import (
	"strings"
	"testing"
)

func TestReplaceHost(t *testing.T) {
	tests := map[string]struct{ argument, url, want string }{
		"host":             {"old.example=new.example", "http://old.example/a", "http://new.example/a"},
		"letter_case":      {"Old.example=New.example", "http://oLD.example/a", "http://New.example/a"},
		"keeps_port":       {"old.example=new.example", "http://old.example:8080", "http://new.example:8080"},
		"new_port":         {"old.example=new.example:81", "http://old.example:8080?q", "http://new.example:81?q"},
		"only_this_port":   {"old.example:8080=new.example", "http://old.example:8080/", "http://new.example:8080/"},
		"not_other_port":   {"old.example:8080=new.example", "http://old.example:81/", "http://old.example:81/"},
		"not_without_port": {"old.example:80=new.example", "http://old.example/", "http://old.example/"},
		"scheme":           {"old.example=https://new.example", "http://old.example/", "https://new.example/"},
		"scheme_and_port": {
			"old.example=HTTPS://new.example:8443", "http://old.example:80/",
			"https://new.example:8443/",
		},
		"user_stays": {"old.example=new.example", "http://u:p%40@old.example/", "http://u:p%40@new.example/"},
		"user_is_no_host": {
			"old.example=new.example", "http://old.example@h.example/",
			"http://old.example@h.example/",
		},
		"path_is_no_host": {
			"old.example=new.example", "http://h.example/@old.example/",
			"http://h.example/@old.example/",
		},
		"query_is_no_host": {
			"old.example=new.example", "http://h.example?//old.example",
			"http://h.example?//old.example",
		},
		"spelling_stays": {
			"old.example=new.example", "HTTP://old.example/%7e/../a?b=%2F&&c#d",
			"HTTP://new.example/%7e/../a?b=%2F&&c#d",
		},
		"part_of_a_name":    {"example=new.example", "http://old.example/", "http://old.example/"},
		"longer_name":       {"old.example=new.example", "http://old.example.org/", "http://old.example.org/"},
		"ipv4":              {"10.0.0.1=10.0.0.2", "http://10.0.0.1:80/", "http://10.0.0.2:80/"},
		"ipv6":              {"[fd00::1]=[fd00::2]", "http://[FD00::1]:80/", "http://[fd00::2]:80/"},
		"ipv6_to_name":      {"[fd00::1]:80=new.example:81", "http://[fd00::1]:80/", "http://new.example:81/"},
		"as_in_the_log":     {"xn--bcher-kva.example=new.example", "http://bücher。example/", "http://new.example/"},
		"international":     {"bücher.example=new.example", "http://bücher.example/", "http://new.example/"},
		"no_url":            {"old.example=new.example", "old.example", "old.example"},
		"scheme_of_no_host": {"old.example=https://new.example", "http://h.example/", "http://h.example/"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			content := `{"asyncCaller":1, "call":{"url":"` + test.url + `"}}`
			got, err := flags(t, "--replace-host", test.argument).Apply(t.Context(), []byte(content))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(got), `"url":"`+test.want+`"`) {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if test.url == test.want && string(got) != content {
				t.Errorf("nothing was to change, got %s", got)
			}
		})
	}
}

// TestReplaceHostEverywhere checks that the Host header and the URL of the callback change too, each only if it names
// the old host.
func TestReplaceHostEverywhere(t *testing.T) {
	edits := flags(t, "--replace-host", "old.example=new.example")
	tests := map[string]struct{ before, after string }{
		"host_header": {
			`"call":{"url":"http://10.0.0.1/","headers":{"host":"OLD.example:80"}}`,
			`"call":{"url":"http://10.0.0.1/",` +
				`"headers":{"host":"new.example:80"}}`,
		},
		"other_header": {
			`"call":{"url":"http://old.example/","headers":{"Host":"h","Referer":"old.example"}}`,
			`"call":{"url":"http://new.example/",` +
				`"headers":{"Host":"h","Referer":"old.example"}}`,
		},
		"callback": {
			`"call":{"url":"http://h/"},"callback":{"url":"http://old.example/"}`,
			`"call":{"url":"http://h/"},` +
				`"callback":{"url":"http://new.example/"}`,
		},
		"callback_host": {
			`"callback":{"url":"http://h/","headers":{"Host":"old.example"}}`,
			`"callback":{"url":"http://h/","headers":{"Host":"new.example"}}`,
		},
		"host_in_array": {`"call":{"headers":{"Host":["old.example"]}}`, `"call":{"headers":{"Host":["new.example"]}}`},
		"other_array":   {`"call":{"headers":{"Host":["h", "h"]}}`, `"call":{"headers":{"Host":["h", "h"]}}`},
		"no_text":       {`"call":{"url":1,"headers":{"Host":[1, {}]}}`, `"call":{"url":1,"headers":{"Host":[1, {}]}}`},
		"nothing":       {`"call":null`, `"call":null`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := edits.Apply(t.Context(), []byte(`{"asyncCaller":1,`+test.before+`}`))
			if want := `{"asyncCaller":1,` + test.after + `}`; err != nil || string(got) != want {
				t.Errorf("got %s, %v, want %s", got, err, want)
			}
		})
	}
	broken := nexusOf("no request", "")
	got, err := edits.Apply(t.Context(), []byte(broken))
	if err != nil || rawMember(t, got, "CallOut") != "no request" ||
		!strings.Contains(rawMember(t, got, "CallBack"), "new.example:8443") {
		t.Errorf("nexus: got %s, %v", got, err)
	}
}
