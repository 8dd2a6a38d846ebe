package dotnet

import (
	"errors"
	"strings"
	"time"
)

// Bounds of DateTimeOffset. Its year has four digits, in UTC too.
const (
	never     = "0001-01-01T00:00:00+00:00"         // DateTimeOffset.MinValue, its default
	latest    = "9999-12-31T23:59:59.9999999+00:00" // DateTimeOffset.MaxValue
	maxYear   = 9999
	maxOffset = 14 * time.Hour
)

var errTime = errors.New("not a date as .NET writes it, like 2021-01-28T14:34:50.1234567+01:00")

// ParseTime reads a time in ISO 8601 as .NET does, and returns it in UTC. It accepts a fraction of a second, of which it
// keeps nanoseconds, and the offsets "Z", "+hh:mm", "+hhmm", "+hh" and none. None means UTC, because the clocks of Azure's
// servers are in UTC. A time in the year 1, with any offset, is the zero time: .NET's default value means "never".
func ParseTime(text string) (time.Time, error) {
	const clock = "2006-01-02T15:04:05"
	// time.Parse would accept an hour of one digit, and a comma before the fraction.
	if len(text) < len(clock) || text[len("2006-01-02T15")] != ':' || strings.Contains(text, ",") {
		return time.Time{}, errTime
	}
	for _, offset := range []string{"Z07:00", "Z0700", "Z07", ""} {
		if parsed, err := time.Parse(clock+offset, text); err == nil {
			return bounded(parsed)
		}
	}
	return time.Time{}, errTime
}

// FormatTime writes a time in UTC as Newtonsoft.Json writes a DateTimeOffset: cut to 100 ns, without trailing zeros. A
// time that .NET cannot represent becomes the nearest one that it can. The year 1 means "never", as in [ParseTime].
func FormatTime(t time.Time) string {
	t = t.UTC()
	switch {
	case t.Year() <= 1:
		return never
	case t.Year() > maxYear:
		return latest
	}
	return t.Format("2006-01-02T15:04:05.9999999") + "+00:00"
}

// bounded refuses a time that DateTimeOffset cannot represent, and returns the zero time for "never".
func bounded(t time.Time) (time.Time, error) {
	_, seconds := t.Zone()
	utc := t.UTC()
	switch offset := time.Duration(seconds) * time.Second; {
	case offset.Abs() > maxOffset || t.Year() < 1 || utc.Year() > maxYear:
		return time.Time{}, errTime
	case t.Year() == 1 || utc.Year() == 1:
		return time.Time{}, nil
	}
	return utc, nil
}
