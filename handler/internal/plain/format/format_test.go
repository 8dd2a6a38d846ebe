package format

import (
	"math"
	"strings"
	"testing"
	"time"
)

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
		if got := Age(d); got != want {
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
		if got := Moment(at); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestNumber(t *testing.T) {
	for n, want := range map[int]string{
		0: "0", 999: "999", 1000: "1,000", 12345: "12,345", 999999: "999,999", 1000000: "1,000,000", -5: "-5",
		-123: "-123", -1234: "-1,234",
	} {
		if got := Number(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestShellWord(t *testing.T) {
	for text, want := range map[string]string{
		"reason=expired": "reason=expired", "": `""`, "path=/orders/{n}": `"path=/orders/{n}"`, "it's": `'it'\''s'`,
		"$(reboot)": "'$(reboot)'", "a b": `"a b"`, "`x`": "'`x`'", "a,--yes": `"a,--yes"`, "@x": `"@x"`, "é": "é",
	} {
		if got := ShellWord(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	unsafe := []string{
		"\x00", "\n", "\x1b", "\xff", "“", "”", "„", "‘", "’", "‛", "\u2028", "\u202e", "ʺ", "＂", "\u00a0", "\u0301",
	}
	for _, part := range append(unsafe, strings.Split("'\"\\`$%!&|<>^;", "")...) {
		if IsShellSafe("a" + part + "b") {
			t.Errorf("%q counts as safe", part)
		}
	}
}

func TestTimesFromNow(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for at, want := range map[time.Time][2]string{
		now:                     {"0s", "0s ago"},
		now.Add(-2 * time.Hour): {"2h", "2h ago"},
		now.Add(3 * time.Hour):  {"0s", "in 3h"},
		{}:                      {"-", "over 292 years ago"},
	} {
		if got := [2]string{AgeAt(at, now), FromNow(at, now)}; got != want {
			t.Errorf("%v: %q, want %q", at, got, want)
		}
	}
}
