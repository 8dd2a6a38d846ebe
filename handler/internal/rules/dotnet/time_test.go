package dotnet_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/dotnet"
)

func TestParseTime(t *testing.T) {
	at := func(nanoseconds int) time.Time { return time.Date(2021, 1, 28, 13, 34, 50, nanoseconds, time.UTC) }
	tests := map[string]struct {
		text string
		want time.Time
	}{
		"as_Newtonsoft_writes_it": {"2021-01-28T14:34:50.1234567+01:00", at(123456700)},
		"no_fraction":             {"2021-01-28T14:34:50+01:00", at(0)},
		"one_digit":               {"2021-01-28T14:34:50.5+01:00", at(500000000)},
		"nine_digits":             {"2021-01-28T14:34:50.123456789+01:00", at(123456789)},
		"many_digits":             {"2021-01-28T14:34:50." + strings.Repeat("1", 40) + "+01:00", at(111111111)},
		"utc":                     {"2021-01-28T13:34:50.12Z", at(120000000)},
		"zero_offset":             {"2021-01-28T13:34:50+00:00", at(0)},
		"negative_zero_offset":    {"2021-01-28T13:34:50-00:00", at(0)},
		"no_colon":                {"2021-01-28T08:04:50.1-0530", at(100000000)},
		"hours_only":              {"2021-01-28T14:34:50.1+01", at(100000000)},
		"no_offset":               {"2021-01-28T13:34:50.1", at(100000000)},
		"largest_offset":          {"2021-01-29T03:34:50+14:00", at(0)},
		"smallest_offset":         {"2021-01-27T23:34:50-14:00", at(0)},
		"never":                   {"0001-01-01T00:00:00+00:00", time.Time{}},
		"never_utc":               {"0001-01-01T00:00:00Z", time.Time{}},
		"never_bare":              {"0001-01-01T00:00:00", time.Time{}},
		"never_east":              {"0001-01-01T00:00:00+02:00", time.Time{}},
		"never_west":              {"0001-01-01T00:00:00-08:00", time.Time{}},
		"never_late":              {"0001-12-31T23:59:59.9999999-08:00", time.Time{}},
		"year_1_in_UTC":           {"0002-01-01T00:00:00+01:00", time.Time{}},
		"year_2":                  {"0002-01-01T00:00:00Z", time.Date(2, 1, 1, 0, 0, 0, 0, time.UTC)},
		"latest":                  {"9999-12-31T23:59:59.9999999+00:00", time.Date(9999, 12, 31, 23, 59, 59, 999999900, time.UTC)},
		"latest_west":             {"9999-12-31T23:59:59.9999999-08:00", time.Date(9999, 12, 31, 23, 59, 59, 999999900, time.UTC)},
		"latest_west_hours":       {"9999-12-31T23:59:59-08", time.Date(9999, 12, 31, 23, 59, 59, 999999900, time.UTC)},
		"latest_east":             {"9999-12-31T23:59:59+01:00", time.Date(9999, 12, 31, 22, 59, 59, 0, time.UTC)},
		"space_for_T":             {"2021-01-28 14:34:50+01:00", at(0)},
		"space_and_bare":          {"2021-01-28 13:34:50", at(0)},
		"no_seconds":              {"2021-01-28T14:34+01:00", time.Date(2021, 1, 28, 13, 34, 0, 0, time.UTC)},
		"year_0":                  {"0000-12-31T23:59:59Z", time.Time{}},
		"year_0_west":             {"0000-12-31T23:59:59-01:00", time.Time{}},
		"year_0_bare":             {"0000-00-00 00:00:00", time.Time{}},
		"never_hours":             {"0001-01-01T00:00:00+02", time.Time{}},
		"never_no_colon":          {"0001-01-03T00:00:00-0800", time.Time{}},
		"small_letters":           {"2021-01-28t13:34:50.5z", at(500000000)},
		"leap_second":             {"2016-12-31T23:59:60Z", time.Date(2017, 1, 1, 0, 0, 0, 0, time.UTC)},
		"leap_second_bare":        {"2016-12-31T23:59:60", time.Date(2017, 1, 1, 0, 0, 0, 0, time.UTC)},
		"leap_second_offset":      {"2016-12-31T15:59:60-0800", time.Date(2017, 1, 1, 0, 0, 0, 0, time.UTC)},
		"leap_day":                {"2024-02-29T00:00:00Z", time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := dotnet.ParseTime(test.text)
			if err != nil {
				t.Fatal(err)
			}
			if got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestParseTimeRefuses(t *testing.T) {
	tests := map[string]string{
		"empty":              "",
		"text":               secret,
		"date_only":          "2021-01-28",
		"comma":              "2021-01-28T14:34:50,1+01:00",
		"dot_alone":          "2021-01-28T14:34:50.+01:00",
		"one_digit_hour":     "2021-01-28T4:34:50+01:00",
		"one_digit_hour_2":   "2021-01-28T4:34:50.1+01:00",
		"hour_24":            "2021-01-28T24:00:00Z",
		"minute_60":          "2021-01-28T14:60:00Z",
		"second_60":          "2021-01-28T14:34:60Z",
		"month_13":           "2021-13-28T14:34:50Z",
		"no_leap_day":        "2023-02-29T00:00:00Z",
		"offset_too_large":   "2021-01-28T14:34:50+14:01",
		"offset_too_large_2": "2021-01-28T14:34:50+1401",
		"offset_too_large_3": "2021-01-28T14:34-15",
		"offset_too_small":   "2021-01-28T14:34:50-15:00",
		"half_offset":        "2021-01-28T14:34:50+1:00",
		"zone_name":          "2021-01-28T14:34:50 CET",
		"space_before":       " 2021-01-28T14:34:50Z",
		"space_after":        "2021-01-28T14:34:50Z ",
		"quoted":             `"2021-01-28T14:34:50Z"`,
		"year_10000":         "10000-01-01T00:00:00Z",
		"offset_24":          "2021-01-28T14:34:50+24:00",
		"two_offsets":        "2021-01-28T14:34:50Z+01:00",
		"z_with_hours":       "2021-01-28T14:34:50Z01:00",
		"z_and_00":           "2021-01-28T14:34:50Z00",
		"late_west":          "9999-12-31T23:59:59-15:00",
		"microsoft_date":     "/Date(1611840890123+0100)/",
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := dotnet.ParseTime(text)
			if err == nil {
				t.Fatalf("accepted: %v", got)
			}
			const want = "not a date as .NET writes it, like 2021-01-28T14:34:50.1234567+01:00"
			if err.Error() != want {
				t.Errorf("got %q, want %q", err, want)
			}
		})
	}
}

func TestFormatTime(t *testing.T) {
	date := func(year, nanoseconds int) time.Time {
		return time.Date(year, 1, 28, 13, 34, 50, nanoseconds, time.UTC)
	}
	const latest = "9999-12-31T23:59:59.9999999+00:00"
	tests := map[string]struct {
		time time.Time
		want string
	}{
		"seven_digits":    {date(2021, 123456700), "2021-01-28T13:34:50.1234567+00:00"},
		"truncated":       {date(2021, 123456799), "2021-01-28T13:34:50.1234567+00:00"},
		"no_carry":        {date(2021, 999999999), "2021-01-28T13:34:50.9999999+00:00"},
		"trailing_zeros":  {date(2021, 120000000), "2021-01-28T13:34:50.12+00:00"},
		"no_fraction":     {date(2021, 0), "2021-01-28T13:34:50+00:00"},
		"below_100_ns":    {date(2021, 99), "2021-01-28T13:34:50+00:00"},
		"other_zone":      {date(2021, 0).In(time.FixedZone("", 3600)), "2021-01-28T13:34:50+00:00"},
		"short_year":      {date(2, 0), "0002-01-28T13:34:50+00:00"},
		"zero":            {time.Time{}, "0001-01-01T00:00:00+00:00"},
		"zero_elsewhere":  {time.Time{}.In(time.FixedZone("", -3600)), "0001-01-01T00:00:00+00:00"},
		"later_in_year_1": {date(1, 5), "0001-01-01T00:00:00+00:00"},
		"before_year_1":   {date(-5, 0), "0001-01-01T00:00:00+00:00"},
		"latest":          {time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC), latest},
		"year_10000":      {date(10000, 0), latest},
		"10000_in_utc":    {time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -7200)), latest},
		"far_future":      {time.Unix(math.MaxInt64/2, 0), latest},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := dotnet.FormatTime(test.time); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
