package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestWrap(t *testing.T) {
	for text, want := range map[string]string{
		"":              "",
		"one two three": "one two|three",
		"abcdefghijk":   "abcdefgh|ijk",
		"a bcdefghijkl": "a|bcdefghi|jkl",
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
	} {
		if got := units(d, 2); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 999 * time.Millisecond: "0s", 1999 * time.Millisecond: "1s", time.Minute: "1m", 59*time.Minute + 59*time.Second: "59m",
		time.Hour: "1h", 47 * time.Hour: "1d", 7*24*time.Hour - 1: "6d", 730 * 24 * time.Hour: "730d",
	} {
		if got := age(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{
		0: "0", 999: "999", 1000: "1,000", 12345: "12,345", 999999: "999,999", 1000000: "1,000,000", -5: "-5", -123: "-123", -1234: "-1,234",
	} {
		if got := thousands(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestPrintRow(t *testing.T) {
	for want, cells := range map[string][]any{
		"a        1  rest":     {"a", 1, "rest"},
		"":                     {"", "", ""},
		"a-long-name     1  x": {"a-long-name", 1, "x"},
		"é        ü  ñ":        {"é", "ü", "ñ"},
		"a        1  " + strings.Repeat("é", 87) + "…": {"a", 1, strings.Repeat("é", 150)},
	} {
		var out bytes.Buffer
		printRow(&out, "%-4s  %4v  %s", cells...)
		if got := strings.TrimSuffix(out.String(), "\n"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
