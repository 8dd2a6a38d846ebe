package format

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	const day = 24 * time.Hour
	for d, want := range map[time.Duration]string{
		0: "0s", 1: "<100ms", 49 * time.Millisecond: "<100ms", 50 * time.Millisecond: "100ms",
		285 * time.Millisecond: "300ms", 1500 * time.Millisecond: "1.5s", 6*time.Second - 1: "6s",
		9949 * time.Millisecond: "9.9s", 9950 * time.Millisecond: "10s", 10499 * time.Millisecond: "10s",
		59500*time.Millisecond - 1: "59s", time.Minute - 1: "1m", 4*time.Minute + 56*time.Second: "4m56s",
		time.Hour - time.Second: "59m59s", time.Hour - 1: "1h", time.Hour: "1h", 90 * time.Minute: "1h30m",
		2*time.Hour - time.Second: "2h", 2*time.Hour - time.Minute: "1h59m", time.Hour + 29*time.Second: "1h",
		day - 31*time.Second: "23h59m", day - 30*time.Second: "1d", 25*time.Hour + 3*time.Minute: "1d1h",
		day + 29*time.Minute: "1d", 3*day + 4*time.Hour: "3d4h", 7*day - time.Minute: "7d", 730 * day: "730d",
		-time.Hour: "-1h", -1: "-<100ms",
		math.MaxInt64: "over 292 years", math.MaxInt64 - time.Minute: "over 292 years",
		math.MinInt64: "-over 292 years", -math.MaxInt64: "-over 292 years", math.MaxInt64 - time.Hour: "106751d23h",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
	// Two units at most, and nothing positive becomes zero.
	for d := time.Duration(1); d < 1<<62; d += d/7 + 1 {
		text := Duration(d)
		units := strings.FieldsFunc(text, func(r rune) bool { return r >= '0' && r <= '9' || r == '.' || r == '<' })
		if len(units) > 2 || text == "0s" {
			t.Errorf("%v: %s", d, text)
		}
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 1: "1s", 999 * time.Millisecond: "1s", 1499 * time.Millisecond: "1s",
		1999 * time.Millisecond: "2s", 59*time.Minute + 59*time.Second: "59m59s", 47 * time.Hour: "1d23h",
		math.MaxInt64: "over 292 years", math.MinInt64: "0s",
	} {
		if got := Age(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func TestRange(t *testing.T) {
	for want, r := range map[string][2]time.Duration{
		"4s - 6s": {4 * time.Second, 6*time.Second - 1}, "1h": {time.Hour, time.Hour + 1},
	} {
		if got := Range(r[0], r[1]); got != want {
			t.Errorf("%v: %q, want %q", r, got, want)
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
