package edit_test

import (
	"bytes"
	"strings"
	"testing"

	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

func seeds() []string {
	return []string{
		order + state + letter + `}`, order + `,"deadline":"2027-01-31T00:00:00Z"}`, nexusOf(callOut, nexusLetter),
		nexusOf(callOut, ""),
		`{"RawRequest":{"CallOut":"R0VUIC8gSFRUUC8xLjENCkhvc3Q6IGgNCg0K"}}`,
		`{"asyncCaller":1,"call":{"url":"http://h/"}}`,
		"{\"asyncCaller\":1,\"a\u202eb\":\"\u0085\U000e0001\"}",
		`{"RawRequest":{"CallOut":"aGk\u003d","Context":""}}`,
		`{"a":1,"a":2}`, `{"rawrequest":{},"RawRequest":null}`, `[`, `hello`, "\xff", "",
	}
}

// FuzzEdits checks that content without edits keeps its bytes, that an edit without a match changes nothing, and that
// an edit has its effect.
func FuzzEdits(f *testing.F) {
	for _, seed := range seeds() {
		f.Add(seed, "call.url", "https://new.example/", "X-A: 1")
		f.Add(seed, "a[0].b", `{"k":1}`, "Host: h")
	}
	idle := []edit.Edits{flags(f, "--replace-host", "nowhere.invalid:1=new.example"), flags(f, "--jq", ".")}
	f.Fuzz(func(t *testing.T, content, path, value, header string) {
		if got, err := (edit.Edits{}).Apply(t.Context(), []byte(content)); err != nil || string(got) != content {
			t.Errorf("without edits %q became %q, %v", content, got, err)
		}
		for _, edits := range idle {
			if got, err := edits.Apply(t.Context(), []byte(content)); err == nil && string(got) != content {
				t.Errorf("without a match %q became %q", content, got)
			}
		}
		checkLaidOut(t, []byte(content))
		var edits edit.Edits
		if addFlag(&edits, "--set", path+"="+value) != nil || addFlag(&edits, "--set-header", header) != nil {
			return
		}
		once, err := edits.Apply(t.Context(), []byte(content))
		if err != nil {
			return
		}
		if twice, err := edits.Apply(t.Context(), once); err != nil || !bytes.Equal(once, twice) &&
			!strings.Contains(path, ".") {
			t.Errorf("%q became %q, and then %q, %v", content, once, twice, err)
		}
	})
}

// FuzzPrepare checks that a prepared message is a restarted envelope, and that preparing it again changes nothing.
func FuzzPrepare(f *testing.F) {
	for _, seed := range seeds() {
		f.Add(seed, "call.method=POST", true)
		f.Add(seed, "deadline=2027-01-31T00:00:00Z", false)
	}
	f.Fuzz(func(t *testing.T, content, set string, fix bool) {
		options := edit.Options{FixEncoding: fix}
		text := inBase64(content)
		if fix {
			text = content
		}
		rules := mustRules(t)
		plain := prepareOrNot(t, rules, text, options)
		if plain != "" {
			if again := prepareOrNot(t, rules, plain, options); again != plain {
				t.Errorf("%q became %q, and then %q", content, plain, again)
			}
		}
		if addFlag(&options.Edits, "--set", set) == nil {
			prepareOrNot(t, rules, text, options)
		}
	})
}

// prepareOrNot checks the prepared message, if the text is accepted.
func prepareOrNot(tb testing.TB, rules message.Rules, text string, o edit.Options) string {
	tb.Helper()
	prepared, err := edit.Prepare(tb.Context(), rules, text, messageID, o, now)
	if err != nil {
		if prepared != "" {
			tb.Errorf("both %q and %v", prepared, err)
		}
		return ""
	}
	content, err := storage.Base64.Decode(prepared)
	if err != nil {
		tb.Fatal(err)
	}
	e := mustParse(tb, content)
	if e.DeadLetter != nil || e.RequestID == "" {
		tb.Errorf("dead letter %v, request id %q", e.DeadLetter, e.RequestID)
	}
	if e.Attempts != 0 || e.Trail != nil || !e.CreatedAt.Equal(now) {
		tb.Errorf("old state is still there: %+v", e.State)
	}
	if !e.GiveUpAt(expiration).After(now) || e.Format() == envelope.FormatNexus && e.Deadline.IsZero() {
		tb.Errorf("given up at %v", e.GiveUpAt(expiration))
	}
	return prepared
}
