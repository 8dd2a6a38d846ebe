// Package bounds reads times and durations, and values that must lie within bounds, and compares times. It is pure.
package bounds

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
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
var ErrTooLong = errors.New("the duration is too long: at most 106750d, 292 years")

// goDuration matches a part of a Go duration, and durations the form of a duration, whatever its length.
const goDuration = `(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h)`

var durations = regexp.MustCompile(`^[+-]?(?:\d+d|` + goDuration + `)(?:` + goDuration + `)*$`)

// ParseDuration reads a Go duration that may begin with days of 24 hours, as our output does: 7d, 1d12h. Envelopes, our
// files, settings and flags have such durations. The error is [ErrTooLong] if the text is one but for its length.
func ParseDuration(text string) (time.Duration, error) {
	const day = 24 * time.Hour
	days, rest, found := strings.Cut(text, "d")
	if !found {
		d, err := time.ParseDuration(text)
		if err != nil && durations.MatchString(text) {
			err = ErrTooLong
		}
		return d, err
	}
	const most = int(math.MaxInt64/day) - 1 // leaves room for the rest
	n, valid := New(-most, most).Parse(days, strconv.Atoi)
	if !valid && durations.MatchString(text) {
		return 0, ErrTooLong
	}
	part := time.Duration(0)
	if rest != "" {
		var err error
		part, err = time.ParseDuration(rest)
		hasSign := strings.ContainsAny(rest, "+-")
		valid = valid && err == nil && part < day && !hasSign
	}
	if !valid {
		return 0, fmt.Errorf("%.40q is not a duration", text)
	}
	if strings.HasPrefix(days, "-") {
		part = -part
	}
	return time.Duration(n)*day + part, nil
}
