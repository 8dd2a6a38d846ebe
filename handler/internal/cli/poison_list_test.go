package cli

import (
	"bufio"
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

// TestRows: rows come some at a time, with a heading when the queue changes and only then.
func TestRows(t *testing.T) {
	var out bytes.Buffer
	cleared := 0
	r := &rows{out: bufio.NewWriter(&out), now: atNoon, headings: true, before: func() { cleared++ }}
	for i := range rowsAtOnce + 1 {
		r.add(inspect.Message{Queue: "a-poison", ID: fmt.Sprintf("%08d", i), Since: atNoon})
	}
	if n := strings.Count(out.String(), "\n"); n != rowsAtOnce+2 {
		t.Errorf("%d lines are out before the end, want a heading, the titles and %d rows", n, rowsAtOnce)
	}
	r.add(inspect.Message{Queue: "b-poison", ID: "last", Since: atNoon})
	r.write()
	if got := strings.Count(out.String(), "ID "); got != 2 {
		t.Errorf("%d times titles, want 2", got)
	}
	if !strings.HasPrefix(out.String(), "a-poison\nID ") || !strings.Contains(out.String(), "\n\nb-poison\nID ") {
		t.Error(out.String())
	}
	if cleared != 3 {
		t.Errorf("the line of progress was cleared %d times, want 3", cleared)
	}
}

// TestMessageCells: hostile messages keep to their columns.
func TestMessageCells(t *testing.T) {
	long := strings.Repeat("x", 300)
	for name, test := range map[string]struct {
		message inspect.Message
		want    string
	}{
		"call": {
			inspect.Message{Format: envelope.FormatNative, Method: "POST", Host: "t.example", Path: "/a", Reason: "expired", Status: 503, Attempts: 9, Since: atNoon.Add(-3 * time.Hour)},
			"id          3h  expired            503     9  POST t.example/a",
		},
		"no_envelope": {
			inspect.Message{Reason: "malformed", Detail: "not JSON", Since: atNoon},
			"id          0s  malformed            -     0  not JSON",
		},
		"large": {
			inspect.Message{Format: envelope.FormatNative, Method: long, Host: long, Path: long, Reason: long, Status: 999, Attempts: 1 << 40, Since: atNoon.AddDate(-2000, 0, 0)},
			"id        292y  " + long[:13] + "…     999  109…  " + long[:53] + "…",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			messageTable(&out).row(messageCells(test.message, "id", atNoon)...)
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
