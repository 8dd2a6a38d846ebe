package cli

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/inspect"
)

func TestShortIDs(t *testing.T) {
	batch := []inspect.Message{{ID: "AAAAAAAA-1"}, {ID: "bbbbbbbb-1"}, {ID: "aaaaaaaa-2"}, {ID: "short"}}
	if got, want := shortIDs(batch), []string{"AAAAAAAA-1", "bbbbbbbb", "aaaaaaaa-2", "short"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestMessageRows checks that rows are printed in batches, with titles for each queue.
func TestMessageRows(t *testing.T) {
	s := newTestSession(t)
	r := s.newRows(poison.Source{})
	for i := range rowsAtOnce + 1 {
		r.add(inspect.Message{Queue: "a-poison", ID: fmt.Sprintf("%08d", i), Since: atNoon})
	}
	if n := strings.Count(s.stdout.String(), "\n"); n != rowsAtOnce+2 {
		t.Errorf("%d lines, want the name of the queue, the titles and %d rows", n, rowsAtOnce)
	}
	r.add(inspect.Message{Queue: "b-poison", ID: "last", Since: atNoon})
	r.flush()
	out := s.stdout.String()
	if got := strings.Count(out, "ID "); got != 2 {
		t.Errorf("%d times titles, want 2", got)
	}
	if !strings.HasPrefix(out, "a-poison\nID ") || !strings.Contains(out, "\n\nb-poison\nID ") {
		t.Error(out)
	}
}

// TestPrintMessage checks that a message keeps to its columns, whatever it contains.
func TestPrintMessage(t *testing.T) {
	long := strings.Repeat("x", 300)
	for name, test := range map[string]struct {
		message inspect.Message
		want    string
	}{
		"call": {
			inspect.Message{Format: envelope.FormatNative, Method: "POST", Host: "t.example", Path: "/a", Reason: "expired", Status: 503, Attempts: 9},
			"id          3h  expired            503     9  POST t.example/a",
		},
		"no_envelope": {
			inspect.Message{Reason: "malformed", Detail: "not JSON"},
			"id          3h  malformed            -     0  not JSON",
		},
		"large": {
			inspect.Message{Format: envelope.FormatNative, Method: long, Host: long, Path: long, Reason: long, Status: 999, Attempts: 1 << 40},
			"id          3h  " + long[:13] + "…     999  109…  " + long[:53] + "…",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			test.message.Since = time.Now().Add(-3 * time.Hour)
			printMessage(&out, "id", test.message)
			got := strings.TrimSuffix(out.String(), "\n")
			if got != test.want {
				t.Errorf("\n%s, want\n%s", got, test.want)
			}
			if width := utf8.RuneCountInString(got); width > textColumns {
				t.Errorf("%d columns", width)
			}
		})
	}
}

func TestReasonsText(t *testing.T) {
	many := make([]poison.ReasonCount, 1000)
	for i := range many {
		many[i] = poison.ReasonCount{Reason: fmt.Sprint("r", i), Count: 1200}
	}
	for want, counts := range map[string][]poison.ReasonCount{
		"-":                     nil,
		"rejected 2, expired 1": {{Reason: "rejected", Count: 2}, {Reason: "expired", Count: 1}},
		"r0 1,200, r1 1,200, r2 1,200, r3 1,200, r4 1,200, 995 others": many,
	} {
		if got := reasonsText(counts); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
