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

// TestEditable lays out what no file should have. The others are in testdata/edits.
func TestEditable(t *testing.T) {
	const unseen = "{\"asyncCaller\":1,\"a\u202eb\":\"\u0085\u200b\U000e0001\x7f\"}"
	const escaped = `"a\u202eb": "\u0085\u200b\udb40\udc01\u007f"`
	for content, want := range map[string]string{
		unseen:                "{\n  \"asyncCaller\": 1,\n  " + escaped + "\n}\n",
		`{"asyncCaller":1,,}`: `{"asyncCaller":1,,}`, ` [1,2]`: ` [1,2]`, "\xff": "\xff", "": "",
	} {
		if diff := cmp.Diff(want, string(edit.Editable([]byte(content)))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", content, diff)
		}
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
