package edit_test

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/rules/envelope"
)

// TestEditGzip: a body that is gzip is edited like any other, and is gzip again if it has no room otherwise.
func TestEditGzip(t *testing.T) {
	pad := strings.Repeat(`{"k":"v"},`, 20_000)
	body := func(n string) string { return `{"n":` + n + `,"pad":[` + pad + `0]}` }
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(body("1.0")))
	if err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	member := `"gzipBody":"` + inBase64(b.String()) + `"`
	content := `{"asyncCaller":2,"requestId":"r","call":{"url":"https://h.example/",` +
		`"headers":{"Content-Type":"application/json"},` + member + `}}`
	inEditor := func(old, replacement string) edit.Options {
		edited := strings.Replace(string(edit.Editable([]byte(content))), old, replacement, 1)
		restored, err := edit.Restore([]byte(content), []byte(edited))
		if err != nil {
			t.Fatal(err)
		}
		return edit.Options{Edited: restored}
	}
	for name, test := range map[string]struct {
		options    edit.Options
		body       string
		isOriginal bool
	}{
		"nothing":     {edit.Options{}, body("1.0"), true},
		"header":      {edit.Options{Edits: flags(t, "--set-header", "X-A: 1")}, body("1.0"), true},
		"url":         {edit.Options{Edits: flags(t, "--set", "call.url=https://i.example/")}, body("1.0"), true},
		"set":         {edit.Options{Edits: flags(t, "--set", "call.json.n=2.0")}, body("2.0"), false},
		"jq":          {edit.Options{Edits: flags(t, "--jq", ".call.json.n = 2")}, body("2"), false},
		"jq_other":    {edit.Options{Edits: flags(t, "--jq", ".priority = 2")}, body("1.0"), true},
		"other":       {edit.Options{Edits: flags(t, "--set", "call.body=x")}, "x", false},
		"editor":      {inEditor(`"n": 1.0`, `"n": 2.0`), body("2.0"), false},
		"editor_url":  {inEditor(`h.example`, `i.example`), body("1.0"), true},
		"editor_none": {inEditor(`nothing of this`, ``), body("1.0"), true},
	} {
		text, err := edit.Prepare(t.Context(), mustRules(t), inBase64(content), messageID, test.options, now)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		written := mustRules(t).Content(text)
		e, err := envelope.Parse(written)
		isOriginal := bytes.Contains(written, []byte(member))
		if err != nil || string(e.Call.Body.Bytes()) != test.body || isOriginal != test.isOriginal {
			t.Errorf("%s: %v, body %.40q, written %.300s", name, err, e.Call.Body.Bytes(), written)
		}
	}
}
