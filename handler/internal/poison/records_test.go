package poison_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/queue"
)

// TestExportImport checks that imported messages equal the exported ones byte for byte, and never expire.
func TestExportImport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mixed(t)
		for _, text := range []string{
			queue.Base64.Encode([]byte("\xff\xfe\x00 not UTF-8")), " AAA=\r\n", "<&>\u2028\u0085\\\"", strings.Repeat("\"", queue.MaxTextBytes), "",
			strings.Repeat("\u202e", queue.MaxTextBytes/3), strings.Repeat("\U000e0001", queue.MaxTextBytes/4), "\u061c\u200f\ufeff\u009b31m\x7f",
		} {
			put(t, store, poisonQueue, text, 0)
		}
		a := newAccount(t, store)
		var file bytes.Buffer
		if _, err := a.List(t.Context(), poison.Source{}, func(f poison.Found) {
			if err := poison.WriteRecord(&file, f); err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if at := bytes.IndexFunc(file.Bytes(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); at >= 0 {
			t.Errorf("a terminal would obey %q", file.Bytes()[at:at+8])
		}
		want := append(texts(store, poisonQueue), texts(store, "other-poison")...)
		slices.Sort(want)
		restore := poison.Import{To: "restored-poison", Force: true}
		p := mustPlan(t)(a.PlanImport(t.Context(), bytes.NewReader(file.Bytes()), restore))
		if p.Total != len(want) || p.To["restored-poison"] != len(want) || len(p.From) > 0 {
			t.Errorf("%+v", p)
		}
		execute(t, p)
		if !slices.Equal(texts(store, "restored-poison"), want) {
			t.Errorf("imported\n%q\nexported\n%q", texts(store, "restored-poison"), want)
		}
		for _, m := range store.All("restored-poison") {
			if m.ExpiresAt.Year() != 9999 {
				t.Errorf("%s expires at %v", m.ID, m.ExpiresAt)
			}
		}
		execute(t, mustPlan(t)(a.PlanImport(t.Context(), &file, poison.Import{Force: true})))
		if n := len(store.All("other-poison")); n != 2 {
			t.Errorf("%d on the queue from which one was exported", n)
		}
	})
}

func TestImportRefused(t *testing.T) {
	const start = `{"queue":"async-caller-poison",`
	const other = "not a poison queue of the app"
	tooLong := strings.Repeat("x", queue.MaxTextBytes+1)
	const good = start + `"text":"x"}`
	for name, c := range map[string]struct {
		file, to string
		words    []string
	}{
		"empty":          {"\n\n", "", []string{"no message"}},
		"not_json":       {good + "\nhello\n", "", []string{"line 2", "not a line of an export"}},
		"no_text":        {`{"queue":"async-caller-poison"}`, "", []string{"line 1", "text: missing"}},
		"bad_queue":      {`{"queue":"../\u001b[31m","text":"x"}`, "", []string{"line 1", "not the name of a queue"}},
		"no_queue":       {`{"text":"x"}`, "", []string{"line 1", "queue"}},
		"live_queue":     {`{"queue":"async-caller","text":"x"}`, "", []string{"line 1", "a function app reads it", "--force"}},
		"other_queue":    {`{"queue":"orders","text":"x"}`, "", []string{"line 1", "queue orders", other, "--force"}},
		"other_poison":   {`{"queue":"orders-poison","text":"x"}`, "", []string{"line 1", other}},
		"second_line":    {good + "\n" + `{"queue":"orders","text":"x"}`, "", []string{"line 2", "--force"}},
		"to_other_queue": {good, "parking", []string{other}},
		"to_live_queue":  {good, mainQueue, []string{"a function app reads it"}},
		"too_long":       {start + `"text":"` + tooLong + `"}`, "", []string{"line 1", "text"}},
		"no_xml":         {start + `"text":"\u0000"}`, "", []string{"line 1", "XML"}},
		"endless_line":   {strings.Repeat("x", 2<<20), "", []string{"line 1", "longer than"}},
		"text_no_string": {start + `"text":{"secret":1}}`, "", []string{"line 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			store := newQueues(t, 0)
			a := newAccount(t, store)
			_, err := a.PlanImport(t.Context(), strings.NewReader(c.file), poison.Import{To: c.to})
			wantError(t, err, c.words...)
			if err != nil && (strings.ContainsRune(err.Error(), 0x1b) || strings.Contains(err.Error(), "secret") || len(err.Error()) > 1000) {
				t.Errorf("cannot be shown: %q", err)
			}
			if ids := must(a.Runs.List()); len(ids) > 0 || len(must(store.Names(t.Context(), ""))) != 2 {
				t.Errorf("it has left %q", ids)
			}
		})
	}
	store := newQueues(t, 0)
	p := mustPlan(t)(newAccount(t, store).PlanImport(t.Context(), strings.NewReader(`{"queue":"async-caller","text":"x"}`), poison.Import{Force: true}))
	execute(t, p)
	if got := texts(store, mainQueue); !slices.Equal(got, []string{"x"}) {
		t.Errorf("by force: %q", got)
	}
}

// TestBackup checks that messages are exported to a private file before they are deleted, and that an existing file
// is not overwritten.
func TestBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store := newQueues(t, 10)
		want := texts(store, poisonQueue)
		a := newAccount(t, store)
		path := filepath.Join(t.TempDir(), "backup")
		p := mustPlan(t)(a.PlanDelete(ctx, poison.Source{}, poison.Backup{Path: path}))
		if about, err := os.Stat(path); err != nil || about.Mode() != 0o600 || p.Backup != path {
			t.Errorf("%v, %v, reported %q", about, err, p.Backup)
		}
		p.Discard(ctx)
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file of a discarded plan: %v", err)
		}
		advance(10 * time.Second)
		r := execute(t, mustPlan(t)(a.PlanDelete(ctx, poison.Source{}, poison.Backup{Path: path})))
		if len(store.All(poisonQueue)) > 0 || r.Done != 10 {
			t.Errorf("%d are left, %+v", len(store.All(poisonQueue)), r)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		if err := poison.ReadRecords(bytes.NewReader(content), func(r poison.Found) error { got = append(got, r.Text); return nil }); err != nil {
			t.Error(err)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%d of 10 are in the file", len(got))
		}
		put(t, store, poisonQueue, deadLetter("x", mainQueue), 0)
		if _, err := a.PlanDelete(ctx, poison.Source{}, poison.Backup{Path: path}); !errors.Is(err, os.ErrExist) {
			t.Errorf("an existing file: %v", err)
		}
		if after := must(os.ReadFile(path)); !bytes.Equal(after, content) {
			t.Error("the file has changed")
		}
		p = mustPlan(t)(a.PlanDelete(ctx, poison.Source{}, poison.Backup{None: true}))
		execute(t, p)
		if p.Backup != "" || len(glob(t, string(a.Runs), "*.export")) > 0 {
			t.Errorf("an unwanted backup: %q", p.Backup)
		}
		for _, journal := range glob(t, string(a.Runs), "*-delete-*.jsonl") {
			if strings.Contains(journal, p.Run) && bytes.Contains(must(os.ReadFile(journal)), []byte(deadLetter("x", mainQueue))) {
				t.Error("the journal has an unwanted copy")
			}
		}
	})
}

// FuzzReadRecords checks that the error for any file is printable, and that records can be written and read again.
func FuzzReadRecords(f *testing.F) {
	for _, seed := range []string{"", "\n", "{}", `{"text":"x","queue":"a-poison"}` + "\n" + `{"text":null}`, `{"text":"\ud800"}`, "[1]", "\x00\x1b"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		var again bytes.Buffer
		var want []string
		err := poison.ReadRecords(bytes.NewReader(file), func(r poison.Found) error {
			want = append(want, r.Text)
			return poison.WriteRecord(&again, poison.Found{Message: r.Message, Text: r.Text})
		})
		if err != nil && (len(err.Error()) > 500 || strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' })) {
			t.Errorf("cannot be shown: %q", err)
		}
		var got []string
		if err := poison.ReadRecords(&again, func(r poison.Found) error { got = append(got, r.Text); return nil }); err != nil || !slices.Equal(got, want) {
			t.Errorf("wrote %q, read %q, %v", want, got, err)
		}
	})
}
