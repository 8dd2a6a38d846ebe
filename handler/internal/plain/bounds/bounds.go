// Package bounds reads times and durations, and values that must lie within bounds, and compares times. It is pure.
package bounds

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"
)

// Range has the lowest and the highest value that are allowed.
type Range[T cmp.Ordered] struct {
	lowest, highest T
}

// New returns the range from the lowest to the highest value, both included.
func New[T cmp.Ordered](lowest, highest T) Range[T] { return Range[T]{lowest, highest} }

// Contains reports whether a value is in the range. NaN is in none.
func (r Range[T]) Contains(value T) bool { return r.lowest <= value && value <= r.highest }

// Parse reads a text with parse. It returns false if parse fails, or if the value is not in the range.
func (r Range[T]) Parse(text string, parse func(string) (T, error)) (T, bool) {
	value, err := parse(text)
	return value, err == nil && r.Contains(value)
}

// String returns the range for an error: "from 1 to 10".
func (r Range[T]) String() string { return fmt.Sprintf("from %v to %v", r.lowest, r.highest) }

// ErrTooLong says that a text is a duration, but longer than the longest that a program can hold, 292 years.
var ErrTooLong = errors.New("the duration is too long: at most 106751d, 292 years")

const number = `(?:\d+\.?\d*|\.\d+)`

var (
	seconds = regexp.MustCompile(`^` + number + `$`)
	// timeSpan matches .NET's TimeSpan, and the same of Python and PostgreSQL. .NET reads 24:00:00 as 24 days.
	timeSpan    = regexp.MustCompile(`^(?:(\d+)(?:\.| days?,? ))?([01]?\d|2[0-3]):([0-5]\d):([0-5]\d(?:\.\d+)?)$`)
	isoDuration = regexp.MustCompile(`^p((?:` + number + `[dw])*)(?:t((?:` + number + `[hms])+))?$`)
	durations   = regexp.MustCompile(`^(?:` + number + ` ?[a-zµμ]+ ?)+$`)
	durationOf  = regexp.MustCompile(`(` + number + `) ?([a-zµμ]+)`)
)

// units has Go's units of durations by their names in lower case and singular, and our d and w.
var units = map[string]string{
	"ns": "ns", "us": "us", "µs": "us", "μs": "us", "ms": "ms", "msec": "ms", "millisecond": "ms",
	"s": "s", "sec": "s", "second": "s", "m": "m", "min": "m", "minute": "m", "h": "h", "hr": "h", "hour": "h",
	"d": "d", "day": "d", "w": "w", "week": "w",
}

// ParseDuration reads a duration of Go, also with days of 24 hours and weeks (90s, 1d12h), of ISO 8601 without months
// and years (PT30S), as a TimeSpan (00:00:30), as a number of seconds, or in words (30 seconds). Letter case does not
// matter. The error is [ErrTooLong] if the text is one but for its length.
func ParseDuration(text string) (time.Duration, error) {
	rest, isNegative := strings.CutPrefix(strings.ToLower(text), "-")
	if !isNegative {
		rest = strings.TrimPrefix(rest, "+")
	}
	if seconds.MatchString(rest) {
		rest += "s"
	}
	if parts := timeSpan.FindStringSubmatch(rest); parts != nil {
		rest = cmp.Or(parts[1], "0") + "d" + parts[2] + "h" + parts[3] + "m" + parts[4] + "s"
	}
	if parts := isoDuration.FindStringSubmatch(rest); parts != nil {
		rest = parts[1] + parts[2]
	}
	if !durations.MatchString(rest) {
		return 0, fmt.Errorf("%.40q is not a duration", text)
	}
	var sum time.Duration
	for _, parts := range durationOf.FindAllStringSubmatch(rest, -1) {
		unit := cmp.Or(units[parts[2]], units[strings.TrimSuffix(parts[2], "s")])
		times := int64(1)
		switch unit {
		case "":
			return 0, fmt.Errorf("%.40q is not a duration", text)
		case "d":
			unit, times = "h", 24
		case "w":
			unit, times = "h", 7*24
		}
		part, err := time.ParseDuration(parts[1] + unit)
		if err != nil || int64(part) > (math.MaxInt64-int64(sum))/times { // the form is right
			return 0, ErrTooLong
		}
		sum += time.Duration(int64(part) * times)
	}
	if isNegative {
		sum = -sum
	}
	return sum, nil
}
