package reconcile_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"asynccaller/handler/internal/operate/reconcile"
)

// TestReadIDs: which ids a file has, in each of its forms, and what is refused.
func TestReadIDs(t *testing.T) {
	for name, test := range map[string]struct {
		file, column string
		want         string
		repeated     int
		err          string
	}{
		"lines":         {"\ufeffa\r\n\r\n b \nc\na\na", "", "a b c", 2, ""},
		"csv":           {"\ufeff\r\nname,id\r\n\"x, \"\"y\"\"\",a\r\n\r\nz, b \r\n", "id", "a b", 0, ""},
		"json":          {`{"id":"a"}` + "\n" + `{"id":"17","x":{"id":"b"}}`, "id", "a 17", 0, ""},
		"braces":        {"{a}", "", "{a}", 0, ""},
		"empty":         {" \r\n", "", "", 0, "no request ids"},
		"only_head":     {"id,name", "id", "", 0, "no request ids"},
		"no_column":     {"a,b\n1,2", "id", "", 0, "line 1: no column id in a,b"},
		"short_line":    {"a,id\n1,2\n1", "id", "", 0, "line 3: the line is too short"},
		"open_quote":    {"id\n\"a\nb", "id", "", 0, `line 2: extraneous or missing " in quoted-field`},
		"no_member":     {`{"id":"a"}` + "\n{}", "id", "", 0, "line 2: no member id"},
		"not_text":      {`{"id":null}`, "id", "", 0, "line 1: "},
		"not_json":      {`{"id":`, "id", "", 0, "line 1: not JSON"},
		"json_no_flag":  {`{"id":"a"}`, "", "", 0, "line 1: this is JSON: name the member"},
		"empty_cell":    {"id,x\n,1", "id", "", 0, `line 2: "" is no request id`},
		"escape":        {"a\nb\x1b[2Jb", "", "", 0, "line 2: \"b\ufffd[2Jb\" is no request id"},
		"long_id":       {strings.Repeat("a", 129), "", "", 0, "is no request id"},
		"long_line":     {"a\n" + strings.Repeat("a", 2<<20), "", "", 0, "line 2 is longer than 1,048,576 bytes"},
		"utf16":         {"\xff\xfea\x00", "", "", 0, "save it as UTF-8"},
		"escaped_names": {"a,b\x1b[2J\n1,2", "id\x1b", "", 0, "no column id\ufffd in a,b\ufffd[2J"},
	} {
		t.Run(name, func(t *testing.T) {
			ids, repeated, err := reconcile.ReadIDs(strings.NewReader(test.file), test.column)
			if got := strings.Join(ids, " "); got != test.want || repeated != test.repeated {
				t.Errorf("got %q, %d repeated", got, repeated)
			}
			if got := fmt.Sprint(err); (err == nil) != (test.err == "") || !strings.Contains(got, test.err) {
				t.Errorf("error %s, want %s", got, test.err)
			}
		})
	}
}

// lines is a file of n lines, each made when it is read.
type lines struct {
	next, n int
	line    func(int) string
	rest    string
}

func (l *lines) Read(p []byte) (int, error) {
	if l.rest == "" && l.next == l.n {
		return 0, io.EOF
	}
	if l.rest == "" {
		l.rest = l.line(l.next) + "\r\n"
		l.next++
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// TestReadManyIDs: a million lines are read if they have few ids, and are refused at the limit otherwise.
func TestReadManyIDs(t *testing.T) {
	const million = 1_000_000
	ids, repeated, err := reconcile.ReadIDs(&lines{n: million, line: func(i int) string {
		return fmt.Sprintf("id-%d", i%reconcile.MaxIDs)
	}}, "")
	if err != nil || len(ids) != reconcile.MaxIDs || repeated != million-reconcile.MaxIDs || ids[7] != "id-7" {
		t.Errorf("%d ids, %d repeated, %v", len(ids), repeated, err)
	}
	all := &lines{n: million, line: func(i int) string { return fmt.Sprintf("id-%d", i) }}
	_, _, err = reconcile.ReadIDs(all, "")
	want := "line 100001: more than 100,000 different ids: split the file"
	if err == nil || err.Error() != want || all.next > reconcile.MaxIDs+10_000 {
		t.Errorf("%v after %d lines, want %s", err, all.next, want)
	}
}
