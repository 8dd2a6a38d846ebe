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

	"asynccaller/handler/internal/bounds"
)

func TestParse(t *testing.T) {
	tests := map[string]struct {
		text string
		want bool
	}{
		"lowest":     {"1", true},
		"highest":    {"10", true},
		"below":      {"0", false},
		"above":      {"11", false},
		"not_number": {"1.5", false},
		"too_large":  {"99999999999999999999", false},
		"empty":      {"", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n, ok := bounds.New(1, 10).Parse(test.text, strconv.Atoi)
			if ok != test.want || ok && strconv.Itoa(n) != test.text {
				t.Errorf("got %d, %v", n, ok)
			}
		})
	}
}

func TestContains(t *testing.T) {
	if bounds.New(math.Inf(-1), math.Inf(1)).Contains(math.NaN()) {
		t.Error("NaN is in a range")
	}
}

func TestString(t *testing.T) {
	if got := bounds.New(time.Second, 90*time.Second).String(); got != "from 1s to 1m30s" {
		t.Errorf("got %q", got)
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "2d": 48 * time.Hour, "7d": 168 * time.Hour, "1d12h": 36 * time.Hour,
		"2d3h4m5.5s": 51*time.Hour + 4*time.Minute + 5500*time.Millisecond,
		"0d":         0, "-2d": -48 * time.Hour, "-1d12h": -36 * time.Hour, "-0d1h": -time.Hour,
		"106750d": 106750 * 24 * time.Hour,
	} {
		if got, err := bounds.ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "d", "2", "2days", "2d3", "2d 3h", "1h2d", "2d-3h", "2d+3h", "1d24h",
		"1d1d", "1.5d", "106752d", "9999999999999999999d", "infd", "0x1d", "2D",
	} {
		if got, err := bounds.ParseDuration(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// FuzzParseDuration compares a duration with days with the same in hours.
func FuzzParseDuration(f *testing.F) {
	for _, seed := range []string{"90s", "1d12h", "-2d3h4m5.5s", "-0d1h", "106750d23h", "1e300d", "1d1d", "d"} {
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
			n, err := strconv.Atoi(match[2])
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			inHours = fmt.Sprintf("%s%dh%s", match[1], n*24, match[3])
		}
		if want, err := time.ParseDuration(inHours); err != nil || got != want {
			t.Errorf("%q: got %v, want %v, %v", text, got, want, err)
		}
	})
}

func TestParseDurationTooLong(t *testing.T) {
	for _, text := range []string{
		"2562048h", "9999999h", "-9999999h", "1e0", "106751d", "-106751d", "999999999999999999999d", "106751d12h",
		"9223372036854775808ns", "99999999999999999999999999.5s", strings.Repeat("9", 40_000) + "d",
		"2562047h47m17s", "2562047h59m", "9999999d0.5ms",
	} {
		want := text != "1e0"
		if _, err := bounds.ParseDuration(text); errors.Is(err, bounds.ErrTooLong) != want {
			t.Errorf("%.40s: got %v", text, err)
		}
	}
	for _, text := range []string{
		"", "d", "h", "-", "1d24h", "9999999x", "9999999", "9999999h1d", "9999999 h", "+-9999999h",
	} {
		if _, err := bounds.ParseDuration(text); err == nil || errors.Is(err, bounds.ErrTooLong) {
			t.Errorf("%s: got %v", text, err)
		}
	}
}
