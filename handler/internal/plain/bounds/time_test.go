package bounds_test

import (
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/plain/bounds"
)

func TestParseTime(t *testing.T) {
	noon := time.Date(2026, time.January, 31, 12, 0, 0, 0, time.UTC)
	newYear := time.Date(2017, time.January, 1, 0, 0, 0, 0, time.UTC)
	end := time.Date(9999, time.December, 31, 23, 59, 59, 999_999_900, time.UTC)
	tests := map[string]struct {
		text string
		want time.Time
	}{
		"utc":                     {"2026-01-31T12:00:00Z", noon},
		"lower_case":              {"2026-01-31t12:00:00z", noon},
		"lower_case_t_and_offset": {"2026-01-31t14:30:00+02:30", noon},
		"unknown_offset":          {"2026-01-31T12:00:00-00:00", noon},
		"longest_offset":          {"2026-02-01T11:59:00+23:59", noon},
		"fraction":                {"2026-01-31T12:00:00.25Z", noon.Add(250 * time.Millisecond)},
		"many_digits":             {"2026-01-31T12:00:00." + strings.Repeat("0", 60) + "Z", noon},

		"leap_second":           {"2016-12-31T23:59:60Z", newYear},
		"leap_second_lower":     {"2016-12-31t23:59:60z", newYear},
		"leap_second_east":      {"2017-01-01T05:29:60+05:30", newYear},
		"leap_second_west":      {"2016-12-31T15:59:60-08:00", newYear},
		"leap_second_fraction":  {"2016-12-31T23:59:60.5Z", newYear.Add(500 * time.Millisecond)},
		"leap_second_of_june":   {"1997-06-30T23:59:60Z", time.Date(1997, time.July, 1, 0, 0, 0, 0, time.UTC)},
		"leap_second_in_a_leap": {"2028-02-29T23:59:60Z", time.Date(2028, time.March, 1, 0, 0, 0, 0, time.UTC)},

		"offset_without_colon":   {"2026-01-31T13:00:00+0100", noon},
		"offset_of_hours":        {"2026-01-31T13:00:00.0+01", noon},
		"zero_without_colon":     {"2026-01-31T12:00:00+0000", noon},
		"space_for_t":            {"2026-01-31 12:00:00Z", noon},
		"space_before_offset":    {"2026-01-31 07:30:00 -0430", noon},
		"utc_in_words":           {"2026-01-31 12:00:00 UTC", noon},
		"no_seconds":             {"2026-01-31T13:00+01:00", noon}, // java.time
		"leap_second_and_blanks": {"2017-01-01 05:29:60 +0530", newYear},

		"year_0":            {"0000-06-01T00:00:00Z", time.Time{}},
		"year_0_west":       {"0000-12-31T23:59:59-01:00", time.Time{}},
		"year_0_far_east":   {"0000-01-01T00:00:00+23:59", time.Time{}},
		"year_0_of_mysql":   {"0000-00-00 00:00:00Z", time.Time{}},
		"year_0_no_seconds": {"0000-01-01 00:00+00", time.Time{}},

		"default":          {"0001-01-01T00:00:00Z", time.Time{}},
		"default_west":     {"0001-01-01T00:00:00-08:00", time.Time{}},
		"default_east":     {"0001-01-01T00:00:00+02:00", time.Time{}}, // the year 0 in UTC
		"default_far_east": {"0001-01-01T00:00:00+23:59", time.Time{}},
		"third_day":        {"0001-01-03T00:00:00Z", time.Time{}}, // of the Julian calendar: Java, ODBC
		"end_of_year_1":    {"0001-12-31T23:59:59.999999999-08:00", time.Time{}},
		"year_1_in_utc":    {"0002-01-01T00:00:00+01:00", time.Time{}},
		"year_2":           {"0002-01-01T00:00:00Z", time.Date(2, time.January, 1, 0, 0, 0, 0, time.UTC)},
		"file_time":        {"1601-01-01T00:00:00Z", time.Date(1601, time.January, 1, 0, 0, 0, 0, time.UTC)},
		"gregorian":        {"1582-10-15T00:00:00Z", time.Date(1582, time.October, 15, 0, 0, 0, 0, time.UTC)},

		"last_second":      {"9999-12-31T23:59:59Z", end.Truncate(time.Second)},
		"max_value":        {"9999-12-31T23:59:59.9999999Z", end},
		"max_value_west":   {"9999-12-31T23:59:59.9999999-08:00", end},
		"max_value_east":   {"9999-12-31T23:59:59.9999999+02:00", end.Add(-2 * time.Hour)},
		"near_the_end":     {"9999-12-31T00:00:00-23:59", end.Truncate(time.Minute)},
		"last_leap_second": {"9999-12-31T23:59:60Z", end},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := bounds.ParseTime(test.text)
			if err != nil || got.UTC() != test.want {
				t.Errorf("%s: got %v, %v, want %v", test.text, got, err, test.want)
			}
		})
	}
}

func TestParseTimeRefuses(t *testing.T) {
	tests := map[string]string{
		"empty": "", "no_offset": "2026-01-31T12:00:00", "no_offset_and_space": "2026-01-31 12:00:00",
		"two_spaces": "2026-01-31  12:00:00Z", "tab": "2026-01-31\t12:00:00Z", "year_0_no_offset": "0000-00-00 00:00:00",
		"date_only": "2026-01-31", "no_such_day": "2026-02-29T00:00:00Z", "hour_24": "2026-01-31T24:00:00Z",
		"hour_of_one_digit": "2026-01-31T1:00:00Z", "fraction_of_minute": "2026-01-31T12:00.5Z", "second_61": "2016-12-31T23:59:61Z",
		"leap_second_in_a_month": "2016-12-30T23:59:60Z", "leap_second_at_noon": "2016-12-31T12:00:60Z",
		"leap_second_of_another_hour": "2016-12-31T23:59:60-08:00", "leap_second_local": "2016-12-31T23:59:60",
		"comma": "2026-01-31T12:00:00,5Z", "dot_alone": "2026-01-31T12:00:00.Z", "offset_24": "2026-01-31T12:00:00+24:00",
		"offset_of_one_digit": "2026-01-31T12:00:00+1", "zone": "2026-01-31T12:00:00 CET", "five_digit_year": "10000-01-01T00:00:00Z",
		"negative_year": "-0001-01-01T00:00:00Z", "space_after": "2026-01-31T12:00:00Z ", "other_s": "2026-01-31T12:00:00ſ",
		"long": strings.Repeat("2", 64<<10),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			const want = `want a time such as "2026-01-31T12:00:00Z"`
			if got, err := bounds.ParseTime(text); err == nil || err.Error() != want {
				t.Errorf("got %v, %v, want %q", got, err, want)
			}
		})
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
		if got := bounds.Earlier(pair[0], pair[1]); got != noon {
			t.Errorf("earlier: %v", got)
		}
		if got := bounds.Later(pair[0], pair[1]); got != evening {
			t.Errorf("later: %v", got)
		}
		if got := bounds.Earliest(pair[0], pair[1]); got != noon.UTC() {
			t.Errorf("earliest: %v", got)
		}
	}
	if got := bounds.Earliest(time.Time{}, noon); got != noon.UTC() {
		t.Errorf("earliest of an unknown time and noon: %v", got)
	}
	if got := bounds.Earliest(noon, time.Time{}); got != noon.UTC() {
		t.Errorf("earliest of noon and an unknown time: %v", got)
	}
}
