package functionshost

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type writes struct {
	got []string
	err error
}

func (w *writes) Write(p []byte) (int, error) {
	w.got = append(w.got, string(p))
	return len(p), w.err
}

func TestLineWriter(t *testing.T) {
	for name, test := range map[string]struct{ in, want []string }{
		"lines":         {[]string{"one\ntwo\n"}, []string{"one\n", "two\n"}},
		"pieces":        {[]string{"o", "ne", "\nt", "wo\n"}, []string{"one\n", "two\n"}},
		"empty_line":    {[]string{"\n\n"}, []string{"\n", "\n"}},
		"crlf":          {[]string{"one\r\n"}, []string{"one\n"}},
		"no_end":        {[]string{"one\ntwo"}, []string{"one\n", "two\n"}},
		"nothing":       {nil, nil},
		"nothing_twice": {[]string{"", ""}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dst := &writes{err: errors.New("closed")}
			w := &lineWriter{mu: new(sync.Mutex), dst: dst}
			for _, p := range test.in {
				if n, err := w.Write([]byte(p)); n != len(p) || err != nil {
					t.Fatalf("Write = %d, %v, want %d, nil", n, err, len(p))
				}
			}
			w.flush()
			if diff := cmp.Diff(test.want, dst.got); diff != "" {
				t.Errorf("lines (-want +got):\n%.300s", diff)
			}
		})
	}
}

func TestLastLines(t *testing.T) {
	w := &lineWriter{mu: new(sync.Mutex), dst: &writes{}}
	for _, p := range []string{"1\n", "2\n3\n", "4\n", "5"} {
		if _, err := w.Write([]byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	w.flush()
	if diff := cmp.Diff([]string{"3", "4", "5"}, w.last); diff != "" {
		t.Errorf("last lines (-want +got):\n%s", diff)
	}
}
