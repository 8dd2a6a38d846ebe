package dotnet

import (
	"errors"
	"strings"
	"time"
)

// Bounds of DateTimeOffset, whose year is one of four digits in UTC as well.
const (
	never     = "0001-01-01T00:00:00+00:00"         // DateTimeOffset.MinValue, its default
	latest    = "9999-12-31T23:59:59.9999999+00:00" // DateTimeOffset.MaxValue
	maxYear   = 9999
	maxOffset = 14 * time.Hour
)

var errTime = errors.New("not a date as .NET writes it, like 2021-01-28T14:34:50.1234567+01:00")

// ParseTime reads a moment as .NET reads it from ISO 8601, in UTC: with or without a fraction of a second
// (nanoseconds, the rest is cut off) and with the offset "Z", "+hh:mm", "+hhmm", "+hh" or none, which is
// UTC because the clocks of Azure's servers are. Every moment of the year 1, whatever its offset, is the
// zero time: .NET's default value means "never".
func ParseTime(text string) (time.Time, error) {
	const clock = "2006-01-02T15:04:05"
	// time.Parse would take one digit for the hour and a comma before the fraction.
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

// FormatTime writes a moment in UTC as Newtonsoft.Json writes a DateTimeOffset: in steps of 100 ns, the
// rest cut off, without trailing zeros. What .NET cannot hold becomes its nearest value; the whole year 1
// is "never", as [ParseTime] reads it.
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

// bounded refuses what DateTimeOffset cannot hold and finds "never".
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
