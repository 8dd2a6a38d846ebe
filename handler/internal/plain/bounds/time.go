package bounds

import (
	"cmp"
	"errors"
	"regexp"
	"strings"
	"time"
)

// lastMoment is the last time of the year 9999 that .NET has: DateTimeOffset.MaxValue.
var lastMoment = time.Date(9999, time.December, 31, 23, 59, 59, 999_999_900, time.UTC)

// timestamps matches the forms that [ParseTime] reads, in upper case, except for the days of a month and the hours.
// time.Parse and UnmarshalText accept more of RFC 3339: an hour of one digit, a comma before the fraction.
var timestamps = regexp.MustCompile(`^(\d{4})(-\d\d-\d\d)[T ](\d\d:\d\d)(?::(\d\d)(\.\d+)?)?` +
	` ?(?:Z|UTC|GMT|([+-](?:[01]\d|2[0-3]))(?::?([0-5]\d))?)$`)

var errTime = errors.New(`want a time such as "2026-01-31T12:00:00Z"`)

// ParseTime reads a time in the format of RFC 3339, of which it keeps nanoseconds and the offset. Letters may be in
// lower case. It also reads a space for T and before the offset, an offset without colon or minutes, UTC or GMT as
// offset, and no seconds. A leap second at the end of a month is the second after it.
//
// A time in the year 0 or 1, where it was written or in UTC, is the zero time: many serializers write their default
// date instead of nothing, with the offset of their machine. A time that is in the year 10000 in UTC, such as .NET's
// DateTime.MaxValue in the west, is the end of the year 9999 in UTC. So every program can read the times that we write.
func ParseTime(text string) (time.Time, error) {
	parts := timestamps.FindStringSubmatch(strings.ToUpper(text))
	if parts == nil {
		return time.Time{}, errTime
	}
	year, day, minute, second, fraction := parts[1], parts[2], parts[3], cmp.Or(parts[4], "00"), parts[5]
	if year == "0000" { // MySQL writes day 0 of month 0
		return time.Time{}, nil
	}
	isLeap := second == "60"
	if isLeap {
		second = "59"
	}
	offset := cmp.Or(parts[6], "+00") + ":" + cmp.Or(parts[7], "00")
	t, err := time.Parse(time.RFC3339, year+day+"T"+minute+":"+second+fraction+offset)
	if isLeap {
		t = t.Add(time.Second)
	}
	utc := t.UTC()
	isMonthEnd := utc.Day() == 1 && utc.Hour() == 0 && utc.Minute() == 0 && utc.Second() == 0
	switch {
	case err != nil || isLeap && !isMonthEnd:
		return time.Time{}, errTime
	case year == "0001" || utc.Year() == 1:
		return time.Time{}, nil
	case utc.Year() > lastMoment.Year():
		return lastMoment, nil
	}
	return t, nil
}

// Earlier returns the earlier of two times.
func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Earliest returns the earlier of two times in UTC. Zero means that a time is not known.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b.UTC()
	}
	return a.UTC()
}

// Seconds returns a number of seconds as a duration of at most ten years, so that sums do not overflow.
func Seconds(s float64) time.Duration {
	const longest = 10 * 365 * 24 * time.Hour
	return time.Duration(min(max(s, -longest.Seconds()), longest.Seconds()) * float64(time.Second))
}
