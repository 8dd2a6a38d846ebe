package dotnet_test

import (
	"math"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/dotnet"
)

// TestParseTime checks what .NET writes beside the forms of package bounds: times without an offset, and no offset
// beyond 14 hours.
func TestParseTime(t *testing.T) {
	at := func(nanoseconds int) time.Time { return time.Date(2021, 1, 28, 13, 34, 50, nanoseconds, time.UTC) }
	latest := time.Date(9999, 12, 31, 23, 59, 59, 999999900, time.UTC)
	newYear := time.Date(2017, 1, 1, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2021-01-28T14:34:50.1234567+01:00": at(123456700), // as Newtonsoft writes it
		"2021-01-28T13:34:50.12Z":           at(120000000),
		"2021-01-28T13:34:50.1":             at(100000000),
		"2021-01-28 13:34:50":               at(0),
		"2021-01-29T03:34:50+14:00":         at(0),
		"2021-01-27T23:34:50-14:00":         at(0),
		"2021-01-28T14:34+01:00":            at(-50_000_000_000),
		"0001-01-01T00:00:00+00:00":         {},
		"0001-01-01T00:00:00":               {},
		"0001-01-01T00:00:00-08:00":         {},
		"0000-00-00 00:00:00":               {},
		"9999-12-31T23:59:59.9999999-08:00": latest,
		"9999-12-31T23:59:59-08":            latest,
		"2016-12-31T23:59:60":               newYear,
		"2016-12-31T15:59:60-0800":          newYear,
	} {
		if got, err := dotnet.ParseTime(text); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", secret, "2021-01-28", "2021-01-28T24:00:00Z", "2021-01-28T14:34:50+14:01", "2021-01-28T14:34:50+1401",
		"2021-01-28T14:34-15", "2021-01-28T14:34:50-15:00", "2021-01-28T14:34:50+24:00", "2021-01-28T14:34:50Z+01:00",
		"2021-01-28T14:34:50Z00", "9999-12-31T23:59:59-15:00", "/Date(1611840890123+0100)/",
	} {
		const want = "not a date as .NET writes it, like 2021-01-28T14:34:50.1234567+01:00"
		if got, err := dotnet.ParseTime(text); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
}

func TestFormatTime(t *testing.T) {
	at := func(nanoseconds int) time.Time { return time.Date(2021, 1, 28, 13, 34, 50, nanoseconds, time.UTC) }
	year := func(year int) time.Time { return time.Date(year, 1, 28, 13, 34, 50, 5, time.UTC) }
	const never, latest = "0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59.9999999+00:00"
	for _, c := range []struct {
		time time.Time
		want string
	}{
		{at(123456799), "2021-01-28T13:34:50.1234567+00:00"},
		{at(999999999), "2021-01-28T13:34:50.9999999+00:00"},
		{at(120000000), "2021-01-28T13:34:50.12+00:00"},
		{at(99), "2021-01-28T13:34:50+00:00"},
		{at(0).In(time.FixedZone("", 3600)), "2021-01-28T13:34:50+00:00"},
		{year(2), "0002-01-28T13:34:50+00:00"},
		{time.Time{}.In(time.FixedZone("", -3600)), never},
		{year(1), never},
		{year(-5), never},
		{time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC), latest},
		{year(10000), latest},
		{time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -7200)), latest},
		{time.Unix(math.MaxInt64/2, 0), latest},
	} {
		if got := dotnet.FormatTime(c.time); got != c.want {
			t.Errorf("%v: got %s, want %s", c.time, got, c.want)
		}
	}
}
