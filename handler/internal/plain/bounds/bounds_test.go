package bounds_test

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/plain/bounds"
)

func TestRange(t *testing.T) {
	for text, want := range map[string]bool{
		"1": true, "10": true, "0": false, "11": false, "1.5": false, "99999999999999999999": false, "": false,
	} {
		n, ok := bounds.New(1, 10).Parse(text, strconv.Atoi)
		if ok != want || ok && strconv.Itoa(n) != text {
			t.Errorf("%q: got %d, %v", text, n, ok)
		}
	}
	if bounds.New(math.Inf(-1), math.Inf(1)).Contains(math.NaN()) {
		t.Error("NaN is in a range")
	}
	if got := bounds.New(time.Second, 90*time.Second).String(); got != "from 1s to 1m30s" {
		t.Errorf("got %q", got)
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "2d": 48 * time.Hour, "7d": 168 * time.Hour, "1d12h": 36 * time.Hour,
		"2d3h4m5.5s": 51*time.Hour + 4*time.Minute + 5500*time.Millisecond, "0d": 0, "-2d": -48 * time.Hour,
		"-1d12h": -36 * time.Hour, "-0d1h": -time.Hour, "106751d": 106751 * 24 * time.Hour,
		// ISO 8601
		"PT30S": 30 * time.Second, "pt1m30.5s": 90*time.Second + 500*time.Millisecond, "P1DT12H": 36 * time.Hour,
		"P2W": 14 * 24 * time.Hour, "PT0S": 0, "-PT1H": -time.Hour,
		// .NET's TimeSpan, timedelta of Python, and intervals of PostgreSQL
		"00:00:30": 30 * time.Second, "1.02:03:04.5000000": 26*time.Hour + 184*time.Second + 500*time.Millisecond,
		"0:00:30": 30 * time.Second, "1 day, 0:00:30": 24*time.Hour + 30*time.Second, "-00:01:00": -time.Minute,
		"2 days 01:00:00": 49 * time.Hour, "23:59:59": 24*time.Hour - time.Second,
		// seconds
		"30": 30 * time.Second, "0": 0, "1.5": 1500 * time.Millisecond, ".5": 500 * time.Millisecond, "-30": -30 * time.Second,
		// words
		"30 seconds": 30 * time.Second, "1 Hour 30 Min": 90 * time.Minute, "2days": 48 * time.Hour,
		"1 week": 168 * time.Hour, "2d 3h": 51 * time.Hour, "1h2d": 49 * time.Hour, "1d24h": 48 * time.Hour,
		"1.5d": 36 * time.Hour, "2D": 48 * time.Hour,
	} {
		if got, err := bounds.ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "d", "2d3", "2d-3h", "2d+3h", "106752d", "9999999999999999999d", "infd", "0x1d", "1e3", "NaN", "Inf",
		"1_000", "٣٠", "--5", "+-5s", " 30", "30 parsecs", "30s ago", "5.5.5", ".", "P", "PT", "P1DT", "P1M", "P1Y",
		"PT-30S", "PT30", "P30S", "30S1", "24:00:00", "00:60:00", "00:00:60", "00:30", "1:2:3", "1.5.00:00:00",
		"1,00:00:00", "12:00:00Z", "0:00:30 s",
	} {
		if got, err := bounds.ParseDuration(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// FuzzParseDuration compares a duration of Go, with or without days, with the same in hours, and repeats any other by
// its value.
func FuzzParseDuration(f *testing.F) {
	for _, seed := range []string{
		"90s", "1d12h", "-2d3h4m5.5s", "-0d1h", "106750d23h", "1e300d", "1d1d", "d",
		"PT30S", "P1DT12H", "00:00:30", "1.02:03:04.5", "30", "1 hour 30 minutes", "9999999d 23:59:59", "p1wt.5s",
	} {
		f.Add(seed)
	}
	days := regexp.MustCompile(`^([+-]?)(\d+)d(?:0$)?(.*)$`) // 0 is the only duration without a unit
	f.Fuzz(func(t *testing.T, text string) {
		got, err := bounds.ParseDuration(text)
		if err != nil {
			return
		}
		inHours := text
		if match := days.FindStringSubmatch(text); match != nil {
			n, _ := strconv.Atoi(match[2]) // a fraction of a day has no match
			inHours = fmt.Sprintf("%s%dh%s", match[1], n*24, match[3])
		}
		if want, err := time.ParseDuration(inHours); err == nil && got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
		if again, err := bounds.ParseDuration(got.String()); err != nil || again != got {
			t.Errorf("%q: %v is read as %v, %v", text, got, again, err)
		}
	})
}

func TestParseDurationTooLong(t *testing.T) {
	for _, text := range []string{
		"2562048h", "9999999h", "-9999999h", "1e0", "106752d", "-106752d", "999999999999999999999d", "106751d24h",
		"9223372036854775808ns", "99999999999999999999999999.5s", strings.Repeat("9", 40_000) + "d",
		"2562047h47m17s", "2562047h59m", "9999999d0.5ms", "9223372037", "P999999W", "106752.00:00:00", "9999999 h",
		"PT" + strings.Repeat("9", 400) + "S", "9999999h1d", "106751.23:59:59",
	} {
		want := text != "1e0"
		if _, err := bounds.ParseDuration(text); errors.Is(err, bounds.ErrTooLong) != want {
			t.Errorf("%.40s: got %v", text, err)
		}
	}
	for _, text := range []string{
		"", "d", "h", "-", "9999999x", "9999999:00:00", "+-9999999h", "P9999999Y",
	} {
		if _, err := bounds.ParseDuration(text); err == nil || errors.Is(err, bounds.ErrTooLong) {
			t.Errorf("%s: got %v", text, err)
		}
	}
}
