package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAsk(t *testing.T) {
	for name, test := range map[string]struct{ typed, want string }{
		"line":      {"yes\n", "yes"},
		"spaces":    {"  412 \r\n", "412"},
		"empty":     {"\n", ""},
		"end":       {"", ""},
		"cut_short": {"y", "y"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			got, err := ask(t.Context(), strings.NewReader(test.typed), &out, "go on?")
			if err != nil || got != test.want {
				t.Errorf("%q, %v; want %q", got, err, test.want)
			}
			if !strings.HasPrefix(out.String(), "go on? ") {
				t.Errorf("asked %q", out.String())
			}
		})
	}
}

// TestAskInterrupted checks that Ctrl-C ends a question without an answer.
func TestAskInterrupted(t *testing.T) {
	in, typed := io.Pipe()
	defer func() { _ = typed.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ask(ctx, in, io.Discard, "?"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestAskUnreadable checks that a read error is not an answer.
func TestAskUnreadable(t *testing.T) {
	broken := errors.New("broken")
	in, typed := io.Pipe()
	_ = typed.CloseWithError(broken)
	if _, err := ask(t.Context(), in, io.Discard, "?"); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

func TestIsYes(t *testing.T) {
	for answer, want := range map[string]bool{
		"y": true, "Y": true, "yes": true, "YES": true, "": false, "n": false, "no": false, "yess": false, "412": false,
	} {
		if isYes(answer) != want {
			t.Errorf("%q: %v", answer, !want)
		}
	}
}

// TestCanAsk checks that only a terminal is asked.
func TestCanAsk(t *testing.T) {
	if (Env{Stdin: strings.NewReader("y\n"), Stderr: io.Discard}).canAsk() {
		t.Error("asks a pipe")
	}
}

func TestProgressLine(t *testing.T) {
	for name, test := range map[string]struct {
		n, total int
		rate     float64
		want     string
	}{
		"unknown_total":      {1200, 0, 60, "sent 1,200, 60/s"},
		"known_total":        {3200, 10000, 450, "sent 3,200 of 10,000, 450/s, 15s left"},
		"more_than_expected": {12, 10, 5, "sent 12 of 12, 5/s, 0s left"},
		"none_yet":           {0, 10, 0, "sent 0 of 10, 0/s"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := progressLine("sent", test.n, test.total, test.rate); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// TestStatus checks that progress appears after two seconds and replaces the previous line, that messages
// have a line of their own, and that each queue is counted separately.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := &progress{out: &out, terminal: true}
		shows := func(want string, change func()) {
			t.Helper()
			out.Reset()
			change()
			if got := out.String(); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		advance := func(d time.Duration, done int) func() {
			return func() {
				s.started, s.shown = s.started.Add(-d), s.shown.Add(-d)
				s.Advanced(done, 2000)
			}
		}
		erased := "\r" + strings.Repeat(" ", len("done 1,500 of 2,000, 250/s, 2s left")) + "\r"
		shows("", advance(0, 1001))
		shows("", advance(time.Second, 1002))
		shows("done 1,500 of 2,000, 250/s, 2s left", advance(time.Second, 1500))
		shows("", advance(100*time.Millisecond, 1501))
		shows(erased+"done 1,999 of 2,000, 250/s, 0s left", advance(1900*time.Millisecond, 1999))
		shows(erased+"100% sure\n", func() { s.Note("100% sure") })
		shows("", s.clear)
		shows("", func() { s.Scanned("a-poison", 1, 10) })
		s.started, s.shown = s.started.Add(-8*time.Second), s.shown.Add(-8*time.Second)
		shows("read 2 of 10, 0/s, 32s left", func() { s.Scanned("a-poison", 2, 10) })
		shows("\r"+strings.Repeat(" ", 27)+"\r", func() { s.Scanned("b-poison", 1, 10) })
	})
}

// TestStatusOnPipe checks that progress is shown only on a terminal.
func TestStatusOnPipe(t *testing.T) {
	var out bytes.Buffer
	s := newProgress(Env{Stderr: &out})
	s.started = time.Now().Add(-time.Hour)
	s.Advanced(1, 10)
	if out.Len() > 0 {
		t.Errorf("%q", out.String())
	}
}

func TestWrap(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "",
		"one two three":               "one two|three",
		"abcdefghijk":                 "abcdefgh|ijk",
		"a bcdefghijkl":               "a|bcdefghi|jkl",
		"日本語日本 日本":                    "日本語日|本 日本",
		"see `async-caller log`, too": "see|`async-caller log`,|too",
		"(`async-caller log`) `a b`":  "(`async-caller log`)|`a b`",
		"`async-caller a long":        "`async-c|aller a|long",
	} {
		if got := strings.Join(wrap(text, 8), "|"); got != want {
			t.Errorf("%q is wrapped as %q, want %q", text, got, want)
		}
	}
}

func TestUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1500 * time.Millisecond: "1.5s", 6*time.Second - 1: "6s", time.Minute - 1: "1m", time.Hour: "1h",
		25*time.Hour + 3*time.Minute: "1d1h", 24*time.Hour + time.Minute: "1d", -time.Hour: "-1h",
		math.MaxInt64: "over 292 years", math.MaxInt64 - 1: "over 292 years", math.MinInt64: "-over 292 years",
		-math.MaxInt64: "-over 292 years", math.MaxInt64 - time.Minute: "106751d23h",
	} {
		if got := units(d, 2); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 999 * time.Millisecond: "0s", 1999 * time.Millisecond: "1s", time.Minute: "1m",
		59*time.Minute + 59*time.Second: "59m",
		time.Hour:                       "1h", 47 * time.Hour: "1d", 7*24*time.Hour - 1: "6d",
		730 * 24 * time.Hour: "730d", math.MaxInt64: "over 292 years", math.MinInt64: "0s",
	} {
		if got := age(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func TestMoment(t *testing.T) {
	for text, want := range map[string]string{
		"2026-01-31T12:00:00.0004Z":      "2026-01-31T12:00:00Z",
		"2026-01-31T11:59:59.9999999Z":   "2026-01-31T12:00:00Z",
		"9999-12-31T23:59:59.999999999Z": "9999-12-31T23:59:59.999Z",
		"2026-01-31T12:00:00+02:00":      "2026-01-31T10:00:00Z",
		"0002-01-01T00:00:00Z":           "0002-01-01T00:00:00Z",
	} {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		if got := moment(at); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{
		0: "0", 999: "999", 1000: "1,000", 12345: "12,345", 999999: "999,999", 1000000: "1,000,000", -5: "-5",
		-123: "-123", -1234: "-1,234",
	} {
		if got := thousands(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
