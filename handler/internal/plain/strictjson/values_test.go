package strictjson_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/plain/strictjson"
)

// wants fails unless err contains want or, if want is empty, there is no error.
func wants(t *testing.T, value string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%.100s: error %v, want %q", value, err, want)
	}
}

func TestString(t *testing.T) {
	const half = "half of a surrogate pair"
	for _, c := range []struct{ value, want, err string }{
		{`""`, "", ""},
		{`"é €"`, "é €", ""},
		{`"\"\\\/\b\f\n\r\t\u0041"`, "\"\\/\b\f\n\r\tA", ""},
		{`"\ud83d\ude00"`, "😀", ""},
		{`"\uD83D\uDE00"`, "😀", ""},
		{`"�"`, "\ufffd", ""},
		{`"�\uFffD"`, "\ufffd\ufffd", ""},
		{`"\\ud800"`, `\ud800`, ""},
		{`"\u0000"`, "\x00", ""},

		{`{}`, "", "want a string, not an object"},
		{`["x"]`, "", "want a string, not an array"},
		{`-1`, "", "want a string, not a number"},
		{`false`, "", "want a string, not a boolean"},
		{`null`, "", "want a string, not null"},
		{`"a\ud800"`, "", half},
		{`"\udc00a"`, "", half},
		{`"\ud83d\ud83d\ude00"`, "", half},
		{`"\uD800"`, "", half},
		{`"\\ufffd\ud800"`, "", half},
		{`"\\\ud800"`, "", half},
		{`"\ud83d\ude00\ude00"`, "", half},
		{`"\ufffd�\ud800"`, "", half},
	} {
		got, err := strictjson.String([]byte(c.value))
		wants(t, c.value, err, c.err)
		if err == nil && got != c.want {
			t.Errorf("%s: got %q, want %q", c.value, got, c.want)
		}
	}
}

func TestInt(t *testing.T) {
	for value, want := range map[string]int{
		"-2": -2, "100": 100, "7": 7, "1.0": 1, "1e0": 1, "1E+2": 100, "100.000": 100, "0.1e3": 100, "1000e-3": 1,
		"-0.0": 0, "-2.0": -2,
	} {
		if got, err := strictjson.Int([]byte(value), -2, 100); err != nil || got != want {
			t.Errorf("%s: got %d, %v", value, got, err)
		}
	}
	for _, value := range []string{
		"0", "11", "-1", "1.5", "1.0000000001", "1e-1", "1e400", "Infinity", "1e3", "123456789012345678901234567890",
		"-123456789012345678901234567890", "18446744073709551617", `"1"`, "true", "null", "[1]", `{"a":1}`,
	} {
		_, err := strictjson.Int([]byte(value), 1, 10)
		wants(t, value, err, "whole number from 1 to 10")
	}
	if got, err := strictjson.Int([]byte("9223372036854775808.0"), 0, math.MaxInt); err == nil {
		t.Errorf("2^63: got %d", got)
	}
}

func TestNumber(t *testing.T) {
	for value, want := range map[string]float64{
		"0": 0, "-1.5": -1.5, "1e3": 1000, "2E-1": 0.2, "1e-999": 0, "1.7976931348623157e308": math.MaxFloat64,
	} {
		if got, err := strictjson.Number([]byte(value)); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", value, got, err, want)
		}
	}
	for value, want := range map[string]string{
		"1e309": "too large", "-1e999": "too large", `"1"`: "not a string", "null": "not null", "[]": "not an array",
	} {
		_, err := strictjson.Number([]byte(value))
		wants(t, value, err, want)
	}
}

// TestTime checks how a time is read from JSON; package bounds has the texts of times.
func TestTime(t *testing.T) {
	noon := time.Date(2026, time.January, 31, 12, 0, 0, 0, time.UTC)
	const form = `want a time such as "2026-01-31T12:00:00Z"`
	for _, c := range []struct {
		value string
		want  time.Time
		err   string
	}{
		{`"2026-01-31T12:00:00Z"`, noon, ""},
		{`"2026-01-31T14:30:00+02:30"`, noon, ""},
		{`"2026-01-31T12\u003a00:00Z"`, noon, ""},
		{`"0001-01-01T00:00:00+01:00"`, time.Time{}, ""},
		{`"2026-01-31"`, time.Time{}, form},
		{`""`, time.Time{}, form},
		{`1769860800`, time.Time{}, "not a number"},
		{`null`, time.Time{}, "not null"},
	} {
		got, err := strictjson.Time([]byte(c.value))
		wants(t, c.value, err, c.err)
		if got != c.want {
			t.Errorf("%s: got %v, want %v", c.value, got, c.want)
		}
	}
}

// TestDuration checks how a duration is read from JSON; package bounds has the texts of durations.
func TestDuration(t *testing.T) {
	for _, c := range []struct {
		value string
		want  time.Duration
		err   string
	}{
		{`"1d12h"`, 36 * time.Hour, ""},
		{`"1\u0064"`, 24 * time.Hour, ""},
		{`"90"`, 90 * time.Second, ""},
		{`"2562047h47m16.854775807s"`, math.MaxInt64, ""},
		{`90`, 90 * time.Second, ""},
		{`1.5`, 1500 * time.Millisecond, ""},
		{`1e3`, 1000 * time.Second, ""},
		{`0`, 0, ""},
		{`1e-10`, 0, ""},
		{`"-5s"`, 0, "negative"},
		{`-0.001`, 0, "negative"},
		{`9223372036.8547758`, 0, "too long"},
		{`1e400`, 0, "too long"},
		{`"106752d"`, 0, "too long"},
		{`"1y"`, 0, `such as "90s", "6h" or "1d12h"`},
		{`""`, 0, `"90s"`},
		{`true`, 0, "number of seconds"},
		{`null`, 0, "number of seconds"},
		{`["90s"]`, 0, "number of seconds"},
	} {
		got, err := strictjson.Duration([]byte(c.value))
		wants(t, c.value, err, c.err)
		if err == nil && got != c.want {
			t.Errorf("%s: got %v, want %v", c.value, got, c.want)
		}
	}
}

func TestIsNull(t *testing.T) {
	for value, want := range map[string]bool{`null`: true, `"null"`: false, `0`: false, `[null]`: false} {
		if got := strictjson.IsNull([]byte(value)); got != want {
			t.Errorf("%s: got %v", value, got)
		}
	}
}
