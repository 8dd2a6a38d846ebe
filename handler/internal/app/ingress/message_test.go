package ingress

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/rules/envelope"
)

// reference reads an invocation with encoding/json, by the exact names of its members.
func reference(body []byte, binding string) (content []byte, id string, ok bool) {
	var whole, data, metadata map[string]json.RawMessage
	var text string
	if json.Unmarshal(body, &whole) != nil || whole["Data"] == nil || json.Unmarshal(whole["Data"], &data) != nil ||
		whole["Metadata"] != nil && json.Unmarshal(whole["Metadata"], &metadata) != nil ||
		data[binding] == nil || string(data[binding]) == "null" || json.Unmarshal(data[binding], &text) != nil {
		return nil, "", false
	}
	var outer, inner string
	_ = json.Unmarshal(metadata["Id"], &outer)
	id = outer
	if json.Unmarshal([]byte(outer), &inner) == nil {
		id = inner
	}
	if !envelope.ValidRequestID(id) {
		id = ""
	}
	if strings.HasPrefix(text, `"`) {
		inner = ""
		err := json.Unmarshal([]byte(text), &inner)
		return []byte(inner), id, err == nil && jsontext.Value(text).IsValid()
	}
	content, err := base64.StdEncoding.DecodeString(text)
	return content, id, err == nil
}

// FuzzReadMessage compares with encoding/json. Only JSON that is ambiguous or not UTF-8 may be refused.
func FuzzReadMessage(f *testing.F) {
	for _, body := range []string{
		string(hostBody(f, 64, false)), string(hostBody(f, 64, true)),
		`{"Data":{"message":"YQ=="},"Data":{"message":"Yg=="}}`,
		`{"Data":{"message":"YQ==","message":"Yg=="}}`,
		`{"Data":{"message":"YQ==","message":"~"}}`,
		`{"Data":{"message":"~"}}`, `{"Data":{"message":""}}`, `{"Data":{"message":null}}`,
		`{"Metadata":{"message":"YQ=="},"Data":{"message":"Yg=="}}`,
		`{"Metadata":{"message":"YQ=="},"Data":{"message":5}}`,
		`{"Data":{"message":"YQ=="},"data":{"message":"Yg=="},"metadata":{"Id":"x"}}`,
		`{"Data":{"message":"YQ=="},"Metadata":{"Id":"x","id":"y","Id":"z"}}`,
		`{"Data":{"message":"YQ=="},"Metadata":null}`, `{"Data":{"message":"YQ=="},"M` +
			`etadata":[]}`,
		`{"Data":{"message":"\"\\u00e9\\ud83d\\ude00\\/\\b\\f\\n\\r\\t\u0007\""}}`,
		`{"Data":{"message":"\"\\ud83d\""}}`, `{"Data":{"message":"\"\\u00EG\""}}`,
		"{\"Data\":{\"message\":\"\\\"\xff\\\"\"}}", `{"Data":{"message":"\"a\"b\""}}`,
		`{"data":{"message":"YQ=="},"METADATA":{"Id":"x"}}`,
		`{"Data":{"x":{"message":"YQ=="},"message":"Yg=="}}`,
		`{"Data":{"x":"\"message\":\"YQ==\"","message" : "Yg=="}}`,
		`{"Data":{"message":"YQ=\u003d"}}`, `{"Data":{"message":"Y\nQ=="}}`, "{\"Data\":{\"message\":\"Y\nQ==\"}}",
		`{"Data":{"message":"\"a\\\\\""}}`, `{"Data":{"message":"YQ=="}} x`, `{"Data":{"message":"YQ=="`,
		`{"Data":{"message":"a\`,
		`{"Data":{"message":"YQ=="},"Metadata":{"Id":}}`,
	} {
		f.Add([]byte(body), "message")
	}
	f.Fuzz(func(t *testing.T, body []byte, binding string) {
		want, id, ok := reference(body, binding)
		var got delivery.Message
		err := readMessage(&got, bytes.NewReader(body), binding)
		switch {
		case err != nil && ok && jsontext.Value(body).IsValid():
			t.Fatalf("refused: %v", err)
		case err == nil && !ok:
			t.Fatalf("read %q, which encoding/json refuses", got.Content)
		case err == nil && (!bytes.Equal(got.Content, want) || got.ID != id):
			t.Errorf("read %q with id %q, want %q and %q", got.Content, got.ID, want, id)
		}
	})
}
