// Package format formats times, durations, numbers and words of a shell for a person. It is pure.
package format

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Moment formats a time to the millisecond. The last one of the year 9999 is not rounded up.
func Moment(t time.Time) string {
	t = t.UTC()
	rounded := t.Round(time.Millisecond)
	if rounded.Year() <= 9999 {
		t = rounded
	}
	return t.Format("2006-01-02T15:04:05.999Z07:00")
}

// Duration formats a duration in its two largest units, to the nearest: 3d4h, 1h30m, 4m56s. Below ten seconds it has
// tenths.
func Duration[D ~int64](duration D) string {
	d := time.Duration(duration)
	precision := time.Second
	switch {
	case d > math.MaxInt64-time.Hour: // the largest result of time.Time.Sub
		return "over 292 years"
	case d < 0:
		return "-" + Duration(-max(d, -math.MaxInt64)) // the shortest duration has no opposite
	case d > 0 && d < tenth/2:
		return "<" + tenth.String()
	case d.Round(tenth) < 10*time.Second:
		precision = tenth
	case d.Round(time.Minute) >= day:
		precision = time.Hour
	case d.Round(time.Second) >= time.Hour:
		precision = time.Minute
	}
	d = d.Round(precision)
	if d < time.Minute {
		return d.String() // 0s, 300ms, 1.5s
	}
	var text strings.Builder
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if n := int(d / unit.size); n > 0 {
			text.WriteString(strconv.Itoa(n) + unit.name)
		}
		d %= unit.size
	}
	return text.String()
}

const (
	tenth = 100 * time.Millisecond
	day   = 24 * time.Hour
)

// Age is [Duration] in whole seconds, at least one. A negative duration, of clocks that differ, is 0s.
func Age(d time.Duration) string {
	if d > 0 && d < time.Second {
		d = time.Second
	}
	return Duration(max(d, 0).Round(time.Second))
}

// AgeAt formats how long ago a time was that may be unknown.
func AgeAt(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return Age(now.Sub(at))
}

// FromNow says how far a time is away.
func FromNow(at, now time.Time) string {
	if at.After(now) {
		return "in " + Age(at.Sub(now))
	}
	return Age(now.Sub(at)) + " ago"
}

// Range formats a range of durations.
func Range[D ~int64](from, to D) string {
	first, last := Duration(from), Duration(to)
	if first == last {
		return first
	}
	return first + " - " + last
}

// Number formats a number with thousands separators.
func Number(n int) string {
	digits := strconv.Itoa(n)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// Plural formats a number with a noun.
func Plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return Number(n) + " " + noun
}

// Messages formats a number of messages.
func Messages(n int) string { return Plural(n, "message") }

// plain are the characters that no shell treats specially, beside letters and digits, and quotable those that no shell
// treats specially within double quotes.
const (
	plain    = "-_./:=+"
	quotable = plain + " ,@#*?()[]{}~…"
)

// hasOnly reports whether a text has only letters and digits without marks, and others. Unicode has quotes and
// letter-like quotes that PowerShell, or the conversion of a text on Windows, reads as the quotes of ASCII.
func hasOnly(text, others string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.In(r, unicode.Lu, unicode.Ll, unicode.Lt, unicode.Lo, unicode.Nd) &&
			!strings.ContainsRune(others, r)
	})
}

// IsShellSafe reports whether [ShellWord] gives a word that every shell reads as the text: POSIX shells, fish,
// PowerShell and cmd. No command for copying has another text from elsewhere.
func IsShellSafe(text string) bool { return utf8.ValidString(text) && hasOnly(text, quotable) }

// ShellWord quotes a text for a shell if necessary. Only POSIX shells can read the word of a text that is not safe.
func ShellWord(text string) string {
	switch {
	case text != "" && hasOnly(text, plain):
		return text
	case IsShellSafe(text):
		return `"` + text + `"`
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// PerMinute formats a number of calls in some minutes as a number per minute. AtLeast says that there can be more.
func PerMinute(calls, minutes int, atLeast bool) string {
	average := float64(calls) / float64(minutes)
	number := Number(int(math.Round(average)))
	switch {
	case calls == 0:
	case average < 0.05 && !atLeast:
		number = "<0.1"
	case average >= 0.05 && average < 9.95:
		number = fmt.Sprintf("%.1f", average)
	}
	if atLeast {
		number = "≥" + number
	}
	return number
}
