package edit_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/plain/strictjson"
)

func TestEditable(t *testing.T) {
	tests := map[string]struct{ content, want string }{
		"native": {
			`{"asyncCaller":1,"call":{"json":{"n":1.0,"k":"\u00e9é"},"headers":{}},"list":[]}`,
			"{\n  \"asyncCaller\": 1,\n  \"call\": {\n    \"json\": {\n      \"n\": 1.0,\n      \"k\": " +
				"\"\\u00e9é\"\n    },\n    \"headers\": {}\n  },\n  " +
				"\"list\": []\n}\n",
		},
		"nexus": {
			`{"rawRequest":{"CallOut":"` + inBase64("GET / HTTP/1.1\r\nHost: h\r\n\r\na\nb\x1b") +
				`","callback":null,"Context":"` + inBase64(`{"k": 1}`) + `"},"Attempts":1}`,
			"{\n  \"rawRequest\": {\n    \"CallOut\": [\n      \"GET / HTTP/1.1\",\n      \"Host: h\",\n" +
				"      \"\",\n      \"a\\nb\\u001b\"\n    ],\n    \"callback\": null,\n" +
				"    \"Context\": [\n      \"{\\\"k\\\": 1}\"\n    ]\n  },\n  \"Attempts\": 1\n}\n",
		},
		"nexus_no_text": {
			`{"RawRequest":{"CallOut":"/w==","CallBack":"?","Context":["a"]}}`,
			"{\n  \"RawRequest\": {\n    \"CallOut\": \"/w==\",\n    \"CallBack\": \"?\",\n" +
				"    \"Context\": [\n      \"a\"\n    ]\n  }\n}\n",
		},
		"nexus_no_object": {`{"RawRequest":[]}`, "{\n  \"RawRequest\": []\n}\n"},
		"nexus_and_native": {
			`{"asyncCaller":1,"RawRequest":{"CallOut":"aGk="}}`,
			"{\n  \"asyncCaller\": 1,\n  \"RawRequest\": {\n    \"CallOut\": \"aGk=\"\n  }\n}\n",
		},
		"unseen": {
			"{\"asyncCaller\":1,\"a\u202eb\":\"\u0085\u200b\U000e0001\x7f\"}",
			"{\n  \"asyncCaller\": 1,\n  \"a\\u202eb\": " +
				"\"\\u0085\\u200b\\udb40\\udc01\\u007f\"\n}\n",
		},
		"not_json":  {"{\"asyncCaller\":1,,}\n", "{\"asyncCaller\":1,,}\n"},
		"no_object": {` [1,2]`, ` [1,2]`},
		"not_utf8":  {"\xff", "\xff"},
		"nothing":   {"", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, string(edit.Editable([]byte(test.content)))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestEditableIsBounded checks that indentation does not blow up a message of brackets.
func TestEditableIsBounded(t *testing.T) {
	const depth = 5000
	content := []byte(`{"asyncCaller":1,"a":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `}`)
	if text := edit.Editable(content); len(text) > 2*len(content) {
		t.Errorf("%d bytes became %d", len(content), len(text))
	}
}

// TestRestore checks that an edit changes nothing else.
func TestRestore(t *testing.T) {
	native := ` ` + order + letter + `}`
	nexus := nexusOf(callOut, nexusLetter)
	odd := `{"RawRequest": {"CallOut":"aGk\u003d" , "Context":"aGky"},"a":"` + "\u202e" + `"}`
	with := func(old, text string) string {
		return strings.NewReplacer(inBase64(old), inBase64(text), `, "RawRequest": `, `,"RawRequest":`).Replace(nexus)
	}
	tests := map[string]struct{ original, old, new, want string }{
		"nothing":           {native, "", "", native},
		"white_space":       {native, "\n", "\r\n\t", native},
		"nexus_nothing":     {nexus, "", "", nexus},
		"nexus_white_space": {nexus, "\n", "\r\n", nexus},
		"odd_nothing":       {odd, "\n", "\n\n", odd},
		"value":             {native, `"PUT"`, `"POST"`, squeezed(native, `"PUT"`, `"POST"`)},
		"body": {
			native, `"n": 1.0`, `"n": 1.00`,
			squeezed(native, `"json":{"n":1.0, "k"`, `"json":{"n":1.00,"k"`),
		},
		"escape_is_a_change": {
			native, `"k": "\u00e9"`, `"k": "é"`,
			squeezed(native, `"n":1.0, "k":"\u00e9"`, `"n":1.0,"k":"é"`),
		},
		"new_member": {
			native, `"requestId"`, `"giveUp": "drop", "requestId"`,
			squeezed(native, `"requestId"`, `"giveUp":"drop","requestId"`),
		},
		"new_element": {native, `"3"`, `"3", {"a": 1}`, squeezed(native, `"3"`, `"3",{"a":1}`)},
		"nexus_beside": {
			nexus, `"Attempts": 7,`, `"Attempts": 0,`,
			strings.NewReplacer(`"Attempts":7,"Cr`, `"Attempts":0,"Cr`, `, "RawRequest": `, `,"RawRequest":`).
				Replace(nexus),
		},
		"nexus_line": {
			nexus, `"Host: old.example:8443"`, `"Host: new.example"`,
			with(callBack, "POST /done HTTP/1.1\r\nHost: new.example\r\n\r\n"),
		},
		"nexus_new_line": {
			nexus, `"POST /done HTTP/1.1",`, `"POST /done HTTP/1.1", "X-A: 1",`,
			with(callBack, "POST /done HTTP/1.1\r\nX-A: 1\r\nHost: old.example:8443\r\n\r\n"),
		},
		"nexus_body": {
			nexus, `"hello"`, `"hello,", "world\n"`,
			with(callOut, strings.NewReplacer(": 5", ": 14", "hello", "hello,\r\nworld\n").Replace(callOut)),
		},
		"nexus_context":   {nexus, `"{\"k\": [1]}"`, `"{", "}"`, with(`{"k": [1]}`, "{\r\n}")},
		"nexus_no_lines":  {nexus, `"{\"k\": [1]}"`, ``, with(`{"k": [1]}`, "")},
		"nexus_in_base64": {nexus, "[\n      \"{\\\"k\\\": [1]}\"\n    ]", `"e30="`, with(`{"k": [1]}`, "{}")},
		"nexus_new_text": {
			`{"RawRequest":{"a":1}}`, `"a": 1`, `"CallBack": ["GET / HTTP/1.1", "Host: h", "", ""]`,
			`{"RawRequest":{"CallBack":"` + inBase64("GET / HTTP/1.1\r\nHost: h\r\n\r\n") + `"}}`,
		},
		"odd_beside": {
			odd, `"hi2"`, `"17"`, `{"RawRequest":{"CallOut":"aGk\u003d","Context":"MTc="},"a":"` + "\u202e" + `"}`,
		},
		"no_raw_request": {
			`{"RawRequest":{"CallOut":"aGk="}}`,
			"{\n  \"RawRequest\": {\n    \"CallOut\": [\n      \"hi\"\n    ]\n  }\n}",
			`{"asyncCaller":1}`, `{"asyncCaller":1}`,
		},
		"not_json_fixed": {`{"asyncCaller":1,,}`, ",,", "", `{"asyncCaller":1}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			laid := string(edit.Editable([]byte(test.original)))
			edited := strings.ReplaceAll(laid, test.old, test.new)
			if edited == laid && test.old != test.new {
				t.Fatalf("nothing to edit in\n%s", laid)
			}
			got, err := edit.Restore([]byte(test.original), []byte(edited))
			if err != nil || string(got) != test.want {
				t.Errorf("%v, (-want +got):\n%s", err, cmp.Diff(test.want, string(got)))
			}
		})
	}
}

// squeezed removes the white space around an edited member of a native envelope.
func squeezed(content, old, replacement string) string {
	content = strings.Replace(strings.TrimSpace(content), `1, "requestId"`, `1,"requestId"`, 1)
	if !strings.Contains(old, "requestId") {
		content = strings.Replace(content, `" , "method"`, `","method"`, 1)
	}
	return strings.Replace(content, old, replacement, 1)
}

// TestRestoreRefuses checks that the error gives the position of the mistake.
func TestRestoreRefuses(t *testing.T) {
	const password = "hunter2"
	tests := map[string]struct{ original, old, new, want string }{
		"not_json":    {order + `}`, `"asyncCaller"`, password, "not JSON: line 2, column 3"},
		"no_object":   {`x`, `x`, `["` + password + `"]`, "want an object"},
		"twice":       {order + `}`, `"call"`, `"requestId"`, "requestId: appears twice"},
		"inner_twice": {order + `}`, `"method"`, `"url": "` + password + `", "method"`, "call.url: appears twice"},
		"nexus_twice": {
			nexusOf(callOut, ""), `"CallBack"`, `"CallBack":"` + password + `","CallBack"`,
			"RawRequest.CallBack: appears twice",
		},
		"nexus_line_no_text": {
			nexusOf(callOut, ""), `"PUT /orders?code=s%2Fecret`, `1, "` + password,
			"RawRequest.CallOut[0]: want a string",
		},
		"nexus_context_no_json": {
			nexusOf(callOut, ""), `"{\"k\": [1]}"`, `"` + password + `"`, "RawRequest.Context: want lines of JSON",
		},
		"nexus_no_request": {
			nexusOf(callOut, ""), `"POST /done HTTP/1.1"`, `"POST ` + password + `"`,
			"RawRequest.CallBack: request line: not a method",
		},
		"nexus_no_end": {
			nexusOf("GET / HTTP/1.1\r\nHost: h\r\n\r\n", ""), "\"Host: h\",\n      \"\",\n      \"\"", `"Host: h"`,
			"RawRequest.CallOut: headers: no blank line",
		},
		"nexus_body_unread": {
			nexusOf(callOut, ""), "8443\",\n      \"\",\n      \"\"", `8443", "", "` + password + `"`,
			"RawRequest.CallBack: headers: a body needs one such as Content-Type",
		},
		"nexus_no_raw_request": {
			`{"RawRequest":{"a":1}}`, "{\n    \"a\": 1\n  }", `"` + password + `"`,
			"RawRequest.CallOut: is inside a value",
		},
		"still_not_json": {`{,`, `{`, `{"` + password + `"`, "not JSON: line 1, column 11"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			edited := strings.Replace(string(edit.Editable([]byte(test.original))), test.old, test.new, 1)
			got, err := edit.Restore([]byte(test.original), []byte(edited))
			if err == nil {
				t.Fatalf("restored %s", got)
			}
			if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), password) {
				t.Errorf("got %q, want %q", err, test.want)
			}
		})
	}
}

// TestFixInEditor turns a malformed Nexus message into one that can be sent.
func TestFixInEditor(t *testing.T) {
	original := []byte(nexusOf("PUT /orders\r\nHost: old.example\r\n\r\n", ""))
	edited := bytes.Replace(edit.Editable(original), []byte(`PUT /orders"`), []byte(`PUT /orders HTTP/1.1"`), 1)
	content, err := edit.Restore(original, edited)
	if err != nil {
		t.Fatal(err)
	}
	got := prepare(t, string(original), edit.Options{Edited: content})
	if got.Call.URL != "https://old.example/orders" {
		t.Errorf("calls %s", got.Call.URL)
	}
}

// checkLaidOut checks that unedited content is restored, even if the editor writes other line ends.
func checkLaidOut(tb testing.TB, content []byte) {
	tb.Helper()
	laid := edit.Editable(content)
	_, problem := strictjson.Object(content)
	if problem == nil && !utf8.Valid(laid) {
		tb.Errorf("not UTF-8: %q", laid)
	}
	for _, edited := range [][]byte{laid, append(bytes.ReplaceAll(laid, []byte("\n"), []byte("\n\t\r\n")), "\n\n"...)} {
		got, err := edit.Restore(content, edited)
		if problem != nil && err != nil {
			continue // it is still broken
		}
		if err != nil || !bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(content)) {
			tb.Errorf("%q was laid out as\n%s and restored as\n%q, %v", content, edited, got, err)
		}
	}
}
