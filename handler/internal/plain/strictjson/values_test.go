package strictjson_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/plain/strictjson"
)

func TestString(t *testing.T) {
	tests := map[string]struct{ value, want string }{
		"empty":                      {`""`, ""},
		"plain":                      {`"a b"`, "a b"},
		"not_ascii":                  {`"é €"`, "é €"},
		"escapes":                    {`"\"\\\/\b\f\n\r\t\u0041"`, "\"\\/\b\f\n\r\tA"},
		"pair":                       {`"\ud83d\ude00"`, "😀"},
		"pair_in_capitals":           {`"\uD83D\uDE00"`, "😀"},
		"replacement_written":        {`"�"`, "\ufffd"},
		"replacement_escaped":        {`"\ufffd"`, "\ufffd"},
		"replacement_in_capitals":    {`"\uFFFD\n"`, "\ufffd\n"},
		"replacement_both_ways":      {`"�\uFffD"`, "\ufffd\ufffd"},
		"backslash_before_surrogate": {`"\\ud800"`, `\ud800`},
		"nul":                        {`"\u0000"`, "\x00"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := strictjson.String([]byte(test.value))
			if err != nil || got != test.want {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestStringRefuses(t *testing.T) {
	tests := map[string]struct{ value, want string }{
		"object":                 {`{}`, "want a string, not an object"},
		"array":                  {`["x"]`, "want a string, not an array"},
		"number":                 {`1`, "want a string, not a number"},
		"negative_number":        {`-1`, "want a string, not a number"},
		"boolean":                {`false`, "want a string, not a boolean"},
		"null":                   {`null`, "want a string, not null"},
		"first_half":             {`"a\ud800"`, "half of a surrogate pair"},
		"second_half":            {`"\udc00a"`, "half of a surrogate pair"},
		"first_half_twice":       {`"\ud83d\ud83d\ude00"`, "half of a surrogate pair"},
		"half_in_capitals":       {`"\uD800"`, "half of a surrogate pair"},
		"half_after_escape":      {`"\\ufffd\ud800"`, "half of a surrogate pair"},
		"half_after_backslash":   {`"\\\ud800"`, "half of a surrogate pair"},
		"half_after_pair":        {`"\ud83d\ude00\ude00"`, "half of a surrogate pair"},
		"half_after_replacement": {`"\ufffd�\ud800"`, "half of a surrogate pair"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := strictjson.String([]byte(test.value))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestInt(t *testing.T) {
	for value, want := range map[string]int{"1": 1, "10": 10, "7": 7} {
		if got, err := strictjson.Int([]byte(value), 1, 10); err != nil || got != want {
			t.Errorf("%s: got %d, %v", value, got, err)
		}
	}
	if got, err := strictjson.Int([]byte("-3"), -3, 3); err != nil || got != -3 {
		t.Errorf("-3: got %d, %v", got, err)
	}
	for value, want := range map[string]int{
		"1.0": 1, "1e0": 1, "1E+2": 100, "100.000": 100, "0.1e3": 100, "1000e-3": 1, "-0.0": 0, "-2.0": -2,
	} {
		got, err := strictjson.Int([]byte(value), -2, 100)
		if err != nil || got != want {
			t.Errorf("%s: got %d, %v", value, got, err)
		}
	}
	if got, err := strictjson.Int([]byte("9223372036854775808.0"), 0, math.MaxInt); err == nil {
		t.Errorf("2^63: got %d", got)
	}
	refused := map[string]string{
		"below":          "0",
		"above":          "11",
		"negative":       "-1",
		"fraction":       "1.5",
		"small_fraction": "1.0000000001",
		"exponent":       "1e-1",
		"infinite":       "1e400",
		"name":           "Infinity",
		"thousands":      "1e3",
		"huge":           "123456789012345678901234567890",
		"huge_negative":  "-123456789012345678901234567890",
		"beyond_64_bits": "18446744073709551617",
		"string":         `"1"`,
		"boolean":        "true",
		"null":           "null",
		"array":          "[1]",
		"object":         `{"a":1}`,
	}
	for name, value := range refused {
		t.Run(name, func(t *testing.T) {
			got, err := strictjson.Int([]byte(value), 1, 10)
			if err == nil || !strings.Contains(err.Error(), "whole number from 1 to 10") {
				t.Errorf("got %d, %v, want it to say which numbers are allowed", got, err)
			}
		})
	}
}

func TestNumber(t *testing.T) {
	tests := map[string]float64{
		"0": 0, "-1.5": -1.5, "1e3": 1000, "1.0": 1, "2E-1": 0.2, "1e-999": 0,
		"1.7976931348623157e308": math.MaxFloat64,
	}
	for value, want := range tests {
		t.Run(value, func(t *testing.T) {
			if got, err := strictjson.Number([]byte(value)); err != nil || got != want {
				t.Errorf("got %v, %v, want %v", got, err, want)
			}
		})
	}
	refused := map[string]string{
		"1e309": "too large", "-1e999": "too large", `"1"`: "not a string", "true": "not a boolean", "null": "not null",
		"[]": "not an array",
	}
	for value, want := range refused {
		t.Run(value, func(t *testing.T) {
			if got, err := strictjson.Number([]byte(value)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, %v, want %q", got, err, want)
			}
		})
	}
}

func TestTime(t *testing.T) {
	noon := time.Date(2026, time.January, 31, 12, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		value string
		want  time.Time
	}{
		"utc":                 {`"2026-01-31T12:00:00Z"`, noon},
		"east":                {`"2026-01-31T14:30:00+02:30"`, noon},
		"west_of_date":        {`"2026-01-30T22:00:00-14:00"`, noon},
		"unknown_offset":      {`"2026-01-31T12:00:00-00:00"`, noon},
		"milliseconds":        {`"2026-01-31T12:00:00.250Z"`, noon.Add(250 * time.Millisecond)},
		"nanoseconds":         {`"2026-01-31T12:00:00.000000001Z"`, noon.Add(1)},
		"dotnet_seven_digits": {`"2026-01-31T12:00:00.0000001Z"`, noon.Add(100)},
		"escaped":             {`"2026-01-31T12\u003a00:00Z"`, noon},
		"leap_day":            {`"2028-02-29T00:00:00Z"`, time.Date(2028, time.February, 29, 0, 0, 0, 0, time.UTC)},
		"last_year":           {`"9999-12-31T23:59:59Z"`, time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)},
		"first_year":          {`"0001-01-01T00:00:01Z"`, time.Time{}},
		"year_0_by_offset":    {`"0001-01-01T00:00:00+01:00"`, time.Time{}},
		"year_10000_offset": {
			`"9999-12-31T23:59:59-00:01"`, time.Date(9999, time.December, 31, 23, 59, 59, 999_999_900, time.UTC),
		},
		"space_for_t":          {`"2026-01-31 12:00:00Z"`, noon},
		"offset_without_colon": {`"2026-01-31T13:00:00+0100"`, noon},
		"year_0":               {`"0000-06-01T00:00:00Z"`, time.Time{}},
		"leap_second":          {`"2016-12-31t23:59:60z"`, time.Date(2017, time.January, 1, 0, 0, 0, 0, time.UTC)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := strictjson.Time([]byte(test.value))
			if err != nil || !got.Equal(test.want) {
				t.Fatalf("got %v, %v, want %v", got, err, test.want)
			}
			if got.Location() != time.UTC {
				t.Errorf("%v is not in UTC", got)
			}
		})
	}
}

func TestTimeRefuses(t *testing.T) {
	tests := map[string]struct{ value, want string }{
		"no_offset":           {`"2026-01-31T12:00:00"`, "2026-01-31T12:00:00Z"},
		"date_only":           {`"2026-01-31"`, "2026-01-31T12:00:00Z"},
		"no_such_day":         {`"2026-02-29T00:00:00Z"`, "2026-01-31T12:00:00Z"},
		"no_such_month":       {`"2026-13-01T00:00:00Z"`, "2026-01-31T12:00:00Z"},
		"hour_of_one_digit":   {`"2026-01-31T1:00:00Z"`, "2026-01-31T12:00:00Z"},
		"comma":               {`"2026-01-31T12:00:00,5Z"`, "2026-01-31T12:00:00Z"},
		"offset_24":           {`"2026-01-31T12:00:00+24:00"`, "2026-01-31T12:00:00Z"},
		"hour_24":             {`"2026-01-31T24:00:00Z"`, "2026-01-31T12:00:00Z"},
		"five_digit_year":     {`"12026-01-31T12:00:00Z"`, "2026-01-31T12:00:00Z"},
		"two_digit_year":      {`"26-01-31T12:00:00Z"`, "2026-01-31T12:00:00Z"},
		"american":            {`"01/31/2026 12:00:00"`, "2026-01-31T12:00:00Z"},
		"empty":               {`""`, "2026-01-31T12:00:00Z"},
		"seconds_since_epoch": {`1769860800`, "not a number"},
		"null":                {`null`, "not null"},
		"object":              {`{}`, "not an object"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := strictjson.Time([]byte(test.value))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestDuration(t *testing.T) {
	tests := map[string]struct {
		value string
		want  time.Duration
	}{
		"go_seconds":      {`"90s"`, 90 * time.Second},
		"go_mixed":        {`"1h30m"`, 90 * time.Minute},
		"go_fraction":     {`"1.5s"`, 1500 * time.Millisecond},
		"go_milliseconds": {`"285ms"`, 285 * time.Millisecond},
		"go_zero":         {`"0"`, 0},
		"go_longest":      {`"2562047h47m16.854775807s"`, math.MaxInt64},
		"days":            {`"7d"`, 168 * time.Hour},
		"days_and_hours":  {`"1d12h"`, 36 * time.Hour},
		"days_escaped":    {`"1\u0064"`, 24 * time.Hour},
		"days_most":       {`"106751d"`, 106751 * 24 * time.Hour},
		"days_fraction":   {`"1.5d"`, 36 * time.Hour},
		"no_unit":         {`"90"`, 90 * time.Second},
		"time_span":       {`"00:01:30"`, 90 * time.Second},
		"iso_8601":        {`"PT90S"`, 90 * time.Second},
		"seconds":         {`90`, 90 * time.Second},
		"fraction":        {`1.5`, 1500 * time.Millisecond},
		"exponent":        {`1e3`, 1000 * time.Second},
		"zero":            {`0`, 0},
		"below_a_tick":    {`1e-10`, 0},
		"week":            {`604800`, 7 * 24 * time.Hour},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := strictjson.Duration([]byte(test.value)); err != nil || got != test.want {
				t.Errorf("got %v, %v, want %v", got, err, test.want)
			}
		})
	}
}

func TestDurationRefuses(t *testing.T) {
	tests := map[string]struct{ value, want string }{
		"negative_text":   {`"-5s"`, "negative"},
		"negative_number": {`-0.001`, "negative"},
		"beyond_64_bits":  {`1e10`, "too long"},
		"just_too_long":   {`9223372036.8547758`, "too long"},
		"1e300":           {`1e300`, "too long"},
		"1e400":           {`1e400`, "too long"},
		"years":           {`"1y"`, `"90s"`},
		"days_alone":      {`"d"`, `"1d12h"`},
		"days_exponent":   {`"1e300d"`, `"1d12h"`},
		"days_negative":   {`"-1d"`, "negative"},
		"days_and_minus":  {`"1d-1h"`, `"1d12h"`},
		"days_too_many":   {`"106752d"`, "too long"},
		"days_digits":     {`"` + strings.Repeat("9", 40_000) + `d"`, "too long"},
		"empty":           {`""`, `"90s"`},
		"time_of_day":     {`"24:00:00"`, `"90s"`},
		"iso_8601_months": {`"P1M"`, `"90s"`},
		"not_a_number":    {`"NaN"`, `"90s"`},
		"iso_too_long":    {`"P99999999D"`, "too long"},
		"negative_text_2": {`"-30"`, "negative"},
		"text_too_long":   {`"9999999h"`, "too long"},
		"boolean":         {`true`, "number of seconds"},
		"null":            {`null`, "number of seconds"},
		"array":           {`["90s"]`, "number of seconds"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := strictjson.Duration([]byte(test.value))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestIsNull(t *testing.T) {
	for value, want := range map[string]bool{
		`null`: true, `"null"`: false, `0`: false, `false`: false, `{}`: false,
		`[null]`: false,
	} {
		if got := strictjson.IsNull([]byte(value)); got != want {
			t.Errorf("%s: got %v", value, got)
		}
	}
}
