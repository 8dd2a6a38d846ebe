package ingress

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

// slowly reads an invocation by encoding/json alone: what parseInvocation must agree with.
func slowly(body []byte, binding string) (content []byte, metadata map[string]json.RawMessage, ok bool) {
	var r struct{ Data, Metadata map[string]json.RawMessage }
	var text string
	if json.Unmarshal(body, &r) != nil || r.Data[binding] == nil || string(r.Data[binding]) == "null" || json.Unmarshal(r.Data[binding], &text) != nil {
		return nil, nil, false
	}
	if strings.HasPrefix(text, `"`) {
		var inner string
		if json.Unmarshal([]byte(text), &inner) != nil {
			return nil, nil, false
		}
		return []byte(inner), r.Metadata, true
	}
	content, err := base64.StdEncoding.DecodeString(text)
	return content, r.Metadata, err == nil
}

// FuzzParseInvocation: what is read is what encoding/json would have read.
func FuzzParseInvocation(f *testing.F) {
	for _, body := range []string{
		string(hostBody(f, 64, false)), string(hostBody(f, 64, true)),
		`{"Data":{"message":"YQ=="},"Data":{"message":"Yg=="}}`,
		`{"Data":{"message":"YQ==","message":"Yg=="}}`,
		`{"Data":{"message":"YQ==","message":"~"}}`,
		`{"Data":{"message":"~"}}`, `{"Data":{"message":""}}`, `{"Data":{"message":null}}`,
		`{"Metadata":{"message":"YQ=="},"Data":{"message":"Yg=="}}`,
		`{"Metadata":{"message":"YQ=="},"Data":{"message":5}}`,
		`{"Data":{"message":"YQ=="},"data":{"message":"Yg=="},"metadata":{"Id":"x"}}`,
		`{"Data":{"message":"YQ=="},"Metadata":{"Id":"x","id":"y","Id":"z"}}`, `{"Data":{"message":"YQ=="},"Metadata":null}`, `{"Data":{"message":"YQ=="},"Metadata":[]}`,
		`{"Data":{"message":"\"\\u00e9\\ud83d\\ude00\\/\\b\\f\\n\\r\\t\u0007\""}}`, `{"Data":{"message":"\"\\ud83d\""}}`, `{"Data":{"message":"\"\\u00EG\""}}`,
		"{\"Data\":{\"message\":\"\\\"\xff\\\"\"}}", `{"Data":{"message":"\"a\"b\""}}`,
		`{"data":{"message":"YQ=="},"METADATA":{"Id":"x"}}`,
		`{"Data":{"x":{"message":"YQ=="},"message":"Yg=="}}`,
		`{"Data":{"x":"\"message\":\"YQ==\"","message" : "Yg=="}}`,
		`{"Data":{"message":"YQ=\u003d"}}`, `{"Data":{"message":"Y\nQ=="}}`, "{\"Data\":{\"message\":\"Y\nQ==\"}}",
		`{"Data":{"message":"\"a\\\\\""}}`, `{"Data":{"message":"YQ=="}} x`, `{"Data":{"message":"YQ=="`, `{"Data":{"message":"a\`,
		`{"Data":{"message":"YQ=="},"Metadata":{"Id":}}`,
	} {
		f.Add([]byte(body), "message")
	}
	f.Fuzz(func(t *testing.T, body []byte, binding string) {
		want, metadata, ok := slowly(body, binding)
		got, err := parseInvocation(body, binding, true)
		if !ok {
			if err == nil {
				t.Fatalf("read %q out of what encoding/json refuses", got.Content)
			}
			return
		}
		if err != nil {
			// Half surrogates, which encoding/json replaces, are refused.
			if strings.Contains(string(body), `\u`) {
				return
			}
			t.Fatalf("refused: %v", err)
		}
		if !bytes.Equal(got.Content, want) || got.MessageID != hintText(metadata["Id"]) || got.DequeueCount != hintNumber(metadata["DequeueCount"]) {
			t.Errorf("read %+v, want %q and %q", got, want, metadata)
		}
		clear(body)
		if !bytes.Equal(got.Content, want) {
			t.Error("the content shares memory with the body, which is used again")
		}
	})
}
