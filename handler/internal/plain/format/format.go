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

// Duration formats a duration to the second.
func Duration[D ~int64](d D) string { return units(time.Duration(d), 4) }

// Age formats a duration in its largest unit.
func Age(d time.Duration) string { return units(max(d, 0).Truncate(time.Second), 1) }

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

// Range formats a range of durations with at most the given number of units.
func Range[D ~int64](from, to D, most int) string {
	first, last := units(time.Duration(from), most), units(time.Duration(to), most)
	if first == last {
		return first
	}
	return first + " - " + last
}

// units formats a duration with at most the given number of units. It cuts the rest and does not round.
func units(d time.Duration, most int) string {
	if d >= time.Duration(math.MaxInt64).Truncate(time.Second) { // the largest result of time.Time.Sub
		return "over 292 years"
	}
	d = d.Round(100 * time.Millisecond) // the largest jitter is some nanoseconds short of its bound
	switch {
	case d < 0:
		return "-" + units(-max(d, -math.MaxInt64), most) // the shortest duration has no opposite
	case d < time.Minute:
		return d.String() // 0s, 1.5s
	}
	text := ""
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		n := int(d / unit.size)
		isLeading := n == 0 && text == ""
		if most == 0 || isLeading {
			continue
		}
		d %= unit.size
		if n > 0 {
			text += strconv.Itoa(n) + unit.name
		}
		most--
	}
	return text
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
