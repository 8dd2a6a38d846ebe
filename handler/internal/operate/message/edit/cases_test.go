package edit_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"

	"asynccaller/handler/internal/operate/message/edit"
)

var update = flag.Bool("update", false, "write what the edits of testdata/edits do")

// TestEdits carries out the edits of testdata/edits. The name of a section is a flag with its argument, and the section
// has the bytes that it changes in the text of the latest section named before, or its error. Base64 is decoded. The
// section --edit has what the editor shows, and --edit OLD => NEW replaces a part of it.
func TestEdits(t *testing.T) {
	files, err := filepath.Glob("testdata/edits/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var before []byte
		for n, section := range archive.Files {
			if section.Name == "before" {
				before = bytes.TrimSuffix(section.Data, []byte("\n"))
				continue
			}
			t.Run(filepath.Base(file)+"/"+section.Name, func(t *testing.T) {
				got := outcome(t, string(before), section.Name)
				if got != string(section.Data) && !*update {
					t.Errorf("got\n%s, want\n%s", got, section.Data)
				}
				archive.Files[n].Data = []byte(got)
			})
		}
		if *update {
			if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// outcome returns what an edit changes in a content, or its error. No error quotes a value, such as hunter2.
func outcome(t *testing.T, content, name string) string {
	t.Helper()
	flag, argument, _ := strings.Cut(name, " ")
	laid := string(edit.Editable([]byte(content)))
	var got []byte
	var err error
	switch {
	case name == "--edit":
		return laid
	case flag == "--edit":
		old, replacement, _ := strings.Cut(strings.ReplaceAll(argument, "↵", "\n"), " =>")
		replacement = strings.TrimPrefix(replacement, " ")
		if !strings.Contains(laid, old) {
			t.Errorf("no %s in\n%s", old, laid)
		}
		got, err = edit.Restore([]byte(content), []byte(strings.Replace(laid, old, replacement, 1)))
	default:
		got, err = flags(t, flag, argument).Apply(t.Context(), []byte(content))
	}
	if err == nil {
		return change(readable(content), readable(string(got)))
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%q quotes a value", err)
	}
	return "error: " + err.Error() + "\n"
}

var encoded = regexp.MustCompile(`"[A-Za-z0-9+/]{8,}=*"`)

// readable returns a content with the texts that are in base64.
func readable(content string) string {
	return encoded.ReplaceAllStringFunc(content, func(quoted string) string {
		text, err := base64.StdEncoding.DecodeString(strings.Trim(quoted, `"`))
		if err != nil || !bytes.Contains(text, []byte("\r\n")) {
			return quoted
		}
		return strconv.QuoteToASCII(string(text))
	})
}

// change returns the bytes in which two texts differ, and some beside them.
func change(before, after string) string {
	if before == after {
		return ""
	}
	const beside = 22
	start := 0
	for start < min(len(before), len(after)) && before[start] == after[start] {
		start++
	}
	end := 0
	for end < min(len(before), len(after))-start && before[len(before)-1-end] == after[len(after)-1-end] {
		end++
	}
	start, end = max(0, start-beside), max(0, end-beside)
	for start > 0 && !utf8.RuneStart(before[start]) {
		start--
	}
	for end > 0 && !utf8.RuneStart(before[len(before)-end]) {
		end--
	}
	return "- " + before[start:len(before)-end] + "\n+ " + cmp.Or(after[start:len(after)-end], "nothing") + "\n"
}
