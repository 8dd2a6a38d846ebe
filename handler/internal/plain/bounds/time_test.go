package bounds_test

import (
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/plain/bounds"
)

func TestParseTime(t *testing.T) {
	at := func(year, month, day int) time.Time {
		return time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	}
	noon, newYear, never := at(2026, 1, 31).Add(12*time.Hour), at(2017, 1, 1), time.Time{}
	end := at(9999, 12, 31).Add(24*time.Hour - 100)
	for text, want := range map[string]time.Time{
		"2026-01-31t12:00:00z":                                 noon,
		"2026-01-31t14:30:00+02:30":                            noon,
		"2026-01-31T12:00:00-00:00":                            noon,
		"2026-02-01T11:59:00+23:59":                            noon,
		"2026-01-31T12:00:00.25Z":                              noon.Add(250 * time.Millisecond),
		"2026-01-31T12:00:00." + strings.Repeat("0", 60) + "Z": noon,
		"2026-01-31T13:00:00+0100":                             noon,
		"2026-01-31T13:00:00.0+01":                             noon,
		"2026-01-31 12:00:00Z":                                 noon,
		"2026-01-31 07:30:00 -0430":                            noon,
		"2026-01-31 12:00:00 UTC":                              noon,
		"2026-01-31T13:00+01:00":                               noon, // java.time

		"2016-12-31t23:59:60z":      newYear,
		"2017-01-01T05:29:60+05:30": newYear,
		"2016-12-31T15:59:60-08:00": newYear,
		"2017-01-01 05:29:60 +0530": newYear,
		"2016-12-31T23:59:60.5Z":    newYear.Add(500 * time.Millisecond),
		"1997-06-30T23:59:60Z":      at(1997, 7, 1),
		"2028-02-29T23:59:60Z":      at(2028, 3, 1),

		"0000-06-01T00:00:00Z":                never,
		"0000-12-31T23:59:59-01:00":           never,
		"0000-01-01T00:00:00+23:59":           never,
		"0000-00-00 00:00:00Z":                never, // MySQL
		"0000-01-01 00:00+00":                 never,
		"0001-01-01T00:00:00Z":                never,
		"0001-01-01T00:00:00-08:00":           never,
		"0001-01-01T00:00:00+23:59":           never, // the year 0 in UTC
		"0001-01-03T00:00:00Z":                never, // of the Julian calendar: Java, ODBC
		"0001-12-31T23:59:59.999999999-08:00": never,
		"0002-01-01T00:00:00+01:00":           never,
		"0002-01-01T00:00:00Z":                at(2, 1, 1),
		"1582-10-15T00:00:00Z":                at(1582, 10, 15),

		"9999-12-31T23:59:59.9999999Z":      end,
		"9999-12-31T23:59:59.9999999-08:00": end,
		"9999-12-31T23:59:59.9999999+02:00": end.Add(-2 * time.Hour),
		"9999-12-31T00:00:00-23:59":         end.Truncate(time.Minute),
		"9999-12-31T23:59:60Z":              end,
	} {
		if got, err := bounds.ParseTime(text); err != nil || got.UTC() != want {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestParseTimeRefuses(t *testing.T) {
	const want = `want a time such as "2026-01-31T12:00:00Z"`
	for _, text := range []string{
		"", "2026-01-31T12:00:00", "2026-01-31 12:00:00", "2026-01-31  12:00:00Z", "2026-01-31\t12:00:00Z",
		"0000-00-00 00:00:00", "2026-01-31", "2026-02-29T00:00:00Z", "2026-01-31T24:00:00Z", "2026-01-31T1:00:00Z",
		"2026-01-31T12:00.5Z", "2016-12-31T23:59:61Z", "2016-12-30T23:59:60Z", "2016-12-31T12:00:60Z",
		"2016-12-31T23:59:60-08:00", "2016-12-31T23:59:60", "2026-01-31T12:00:00,5Z", "2026-01-31T12:00:00.Z",
		"2026-01-31T12:00:00+24:00", "2026-01-31T12:00:00+1", "2026-01-31T12:00:00 CET", "10000-01-01T00:00:00Z",
		"-0001-01-01T00:00:00Z", "2026-01-31T12:00:00Z ", "2026-01-31T12:00:00ſ", strings.Repeat("2", 64<<10),
	} {
		if got, err := bounds.ParseTime(text); err == nil || err.Error() != want {
			t.Errorf("%.100q: got %v, %v", text, got, err)
		}
	}
}

// FuzzParseTime reads what it has read again as it is written, and returns no time that cannot be written.
func FuzzParseTime(f *testing.F) {
	for _, seed := range []string{
		"2026-01-31T12:00:00.25Z", "2026-01-31 13:00+01", "2016-12-31t23:59:60z", "0000-00-00 00:00:00 UTC",
		"9999-12-31T23:59:59.9999999-08:00", "0001-01-01T00:00:00+2359", "2026-01-31T12:00:00", "x",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := bounds.ParseTime(text)
		if err != nil {
			return
		}
		if year := got.UTC().Year(); year < 1 || year > 9999 {
			t.Errorf("%q: %v", text, got)
		}
		again, err := bounds.ParseTime(got.UTC().Format(time.RFC3339Nano))
		if err != nil || !again.Equal(got) {
			t.Errorf("%q: %v is read as %v, %v", text, got, again, err)
		}
	})
}

func TestEarlierAndLater(t *testing.T) {
	noon := time.Date(2026, time.January, 31, 12, 0, 0, 0, time.FixedZone("", 3600))
	evening := noon.Add(8 * time.Hour)
	for _, pair := range [][2]time.Time{{noon, evening}, {evening, noon}} {
		earlier, later := bounds.Earlier(pair[0], pair[1]), bounds.Later(pair[0], pair[1])
		earliest := bounds.Earliest(pair[0], pair[1])
		if earlier != noon || later != evening || earliest != noon.UTC() {
			t.Errorf("earlier: %v, later: %v, earliest: %v", earlier, later, earliest)
		}
	}
	for _, pair := range [][2]time.Time{{noon, {}}, {{}, noon}} {
		if got := bounds.Earliest(pair[0], pair[1]); got != noon.UTC() {
			t.Errorf("earliest of %v, one of which is unknown: %v", pair, got)
		}
	}
}
