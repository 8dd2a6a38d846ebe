package operation_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"unicode"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/storage"
)

// TestExportImport checks that imported messages equal the exported ones byte for byte, and never expire.
func TestExportImport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mixed(t)
		for _, text := range []string{
			storage.Base64.Encode([]byte("\xff\xfe\x00 not UTF-8")), " AAA=\r\n", "<&>\u2028\u0085\\\"",
			strings.Repeat("\"", storage.MaxTextBytes), "",
			strings.Repeat("\u202e", storage.MaxTextBytes/3), strings.Repeat("\U000e0001", storage.MaxTextBytes/4),
			"\u061c\u200f\ufeff\u009b31m\x7f",
		} {
			put(t, store, poisonQueue, text, 0)
		}
		a := newAccount(t, store)
		var file bytes.Buffer
		if _, err := a.Account.List(t.Context(), account.Source{}, func(f account.Found) {
			if err := operation.WriteRecord(&file, f); err != nil {
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
		restore := operation.Import{To: "restored-poison", Force: true}
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
		execute(t, mustPlan(t)(a.PlanImport(t.Context(), &file, operation.Import{Force: true})))
		if n := len(store.All("other-poison")); n != 2 {
			t.Errorf("%d on the queue from which one was exported", n)
		}
	})
}

func TestImportRefused(t *testing.T) {
	const start = `{"queue":"async-caller-poison",`
	const other = "not a poison queue of the app"
	tooLong := strings.Repeat("x", storage.MaxTextBytes+1)
	const good = start + `"text":"x"}`
	for name, c := range map[string]struct {
		file, to string
		words    []string
	}{
		"empty":     {"\n\n", "", []string{"no message"}},
		"not_json":  {good + "\nhello\n", "", []string{"line 2", "not a line of an export"}},
		"no_text":   {`{"queue":"async-caller-poison"}`, "", []string{"line 1", "text: missing"}},
		"bad_queue": {`{"queue":"../\u001b[31m","text":"x"}`, "", []string{"line 1", "not the name of a queue"}},
		"no_queue":  {`{"text":"x"}`, "", []string{"line 1", "queue"}},
		"live_queue": {
			`{"queue":"async-caller","text":"x"}`, "",
			[]string{"line 1", "a function app reads it", "--force"},
		},
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
			_, err := a.PlanImport(t.Context(), strings.NewReader(c.file), operation.Import{To: c.to})
			wantError(t, err, c.words...)
			if err != nil && (strings.ContainsRune(err.Error(), 0x1b) || strings.Contains(err.Error(), "secret") ||
				len(err.Error()) > 1000) {
				t.Errorf("cannot be shown: %q", err)
			}
			if ids := must(a.Journals.List()); len(ids) > 0 || len(must(store.Names(t.Context(), ""))) != 3 {
				t.Errorf("it has left %q", ids)
			}
		})
	}
	store := newQueues(t, 0)
	p := mustPlan(t)(newAccount(t, store).PlanImport(t.Context(),
		strings.NewReader(`{"queue":"async-caller","text":"x"}`), operation.Import{Force: true}))
	execute(t, p)
	if got := texts(store, mainQueue); !slices.Equal(got, []string{"x"}) {
		t.Errorf("by force: %q", got)
	}
}

// TestDeleteWithoutCopy checks that the journal has the text of a deleted message unless no copy is wanted.
func TestDeleteWithoutCopy(t *testing.T) {
	for name, options := range map[string]operation.Delete{"copy": {}, "no_copy": {NoCopy: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueues(t, 0)
				text := deadLetter("x", mainQueue)
				put(t, store, poisonQueue, text, 0)
				a := newAccount(t, store)
				p := mustPlan(t)(a.PlanDeletePoison(t.Context(), account.Source{}, options))
				if p.Final != options.NoCopy {
					t.Errorf("final: %v", p.Final)
				}
				execute(t, p)
				if left := len(store.All(poisonQueue)); left > 0 {
					t.Errorf("%d are left", left)
				}
				if files := must(os.ReadDir(string(a.Journals))); len(files) != 1 {
					t.Fatalf("files: %v", files)
				}
				journal := must(os.ReadFile(filepath.Join(string(a.Journals), p.Run+".jsonl")))
				if bytes.Contains(journal, []byte(text)) == options.NoCopy {
					t.Errorf("the journal is %s", journal)
				}
			})
		})
	}
}

// TestRecordsOfEditors checks that files that were joined may each begin with a byte order mark, and that UTF-16 is
// named with its line.
func TestRecordsOfEditors(t *testing.T) {
	const record = `{"queue":"a-poison","text":"x"}` + "\n"
	wide := strings.Join(strings.Split(record, ""), "\x00") + "\x00"
	for name, test := range map[string]struct {
		file string
		want int // the number of records
		err  string
	}{
		"mark":         {"\ufeff" + record, 1, ""},
		"mark_alone":   {"\ufeff", 0, ""},
		"joined":       {"\ufeff" + record + "\ufeff" + record + "\ufeff\n" + record, 3, ""},
		"utf16":        {"\xff\xfe" + wide, 0, "line 1: not a line of an export: the text is UTF-16: save it as UTF-8"},
		"utf16_later":  {record + "\xff\xfe" + wide, 1, "line 2: not a line of an export: the text is UTF-16: save it as UTF-8"},
		"mark_in_text": {`{"queue":"a-poison","text":"` + "\ufeff" + `"}`, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := 0
			err := operation.ReadRecords(strings.NewReader(test.file), func(account.Found) error {
				got++
				return nil
			})
			message := ""
			if err != nil {
				message = err.Error()
			}
			if got != test.want || message != test.err {
				t.Errorf("%d records, error %q", got, message)
			}
		})
	}
}

// FuzzReadRecords checks that the error for any file is printable, and that records can be written and read again.
func FuzzReadRecords(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "{}", `{"text":"x","queue":"a-poison"}` + "\n" + `{"text":null}`,
		`{"text":"\ud800"}`, "[1]", "\x00\x1b",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		var again bytes.Buffer
		var want []string
		err := operation.ReadRecords(bytes.NewReader(file), func(r account.Found) error {
			want = append(want, r.Text)
			return operation.WriteRecord(&again, account.Found{Message: r.Message, Text: r.Text})
		})
		if err != nil &&
			(len(err.Error()) > 500 || strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' })) {
			t.Errorf("cannot be shown: %q", err)
		}
		var got []string
		if err := operation.ReadRecords(&again, func(r account.Found) error {
			got = append(got,
				r.Text)
			return nil
		}); err != nil || !slices.Equal(got, want) {
			t.Errorf("wrote %q, read %q, %v", want, got, err)
		}
	})
}
