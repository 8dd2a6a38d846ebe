package capacity

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

func TestNumber(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", 1e-9: "< 0.001", 0.001: "0.001", 0.0756: "0.076", 0.5: "0.5", 0.9999: "1", 1: "1", 4.465: "4.46", 9.999: "10",
		28.51: "28.5", 99.94: "99.9", 99.96: "100", 100: "100", 999.6: "1,000", 1234567.4: "1,234,567", 2e12: "2,000,000,000,000",
	} {
		if got := number(x); got != want {
			t.Errorf("%v is %q, want %q", x, got, want)
		}
	}
}

func TestSpanText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                               "0s",
		1234567 * time.Nanosecond:       "1.2ms",
		310 * time.Millisecond:          "310ms",
		2011 * time.Millisecond:         "2.01s",
		time.Minute:                     "1m",
		70 * time.Second:                "1m10s",
		10 * time.Minute:                "10m",
		42*time.Minute + 40*time.Second: "42m40s",
		time.Hour:                       "1h",
		time.Hour + 10*time.Minute:      "1h10m",
		2*time.Hour + 20*time.Minute + 58*time.Second: "2h21m",
		48 * time.Hour:                                 "2d",
		50*time.Hour + 40*time.Minute:                  "2d3h",
		23*time.Hour + 59*time.Minute + 50*time.Second: "24h",
	} {
		if got := Span(d).String(); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

func TestBytesText(t *testing.T) {
	for n, want := range map[int64]string{
		4: "4 bytes", 1023: "1,023 bytes", 1368: "1.34 KiB", 64 << 10: "64 KiB", 14 << 20: "14 MiB", 500 << 40: "500 TiB", 1 << 60: "1,024 PiB",
	} {
		if got := bytesText(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

// JSON has six digits, whatever the processor makes of the rest, and seconds.
func TestFigureJSON(t *testing.T) {
	got, err := json.Marshal([]any{Figure(4.464989123), Figure(1314000000), Figure(500), Figure(0.001), Span(2010 * time.Millisecond), seconds(1e300)})
	if want := `[4.46499,1314000000,500,0.001,2.01,9223370000]`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	if _, err := json.Marshal(Figure(math.NaN())); err == nil {
		t.Error("NaN became JSON")
	}
}

func TestCount(t *testing.T) {
	if got := count(1e300); got <= 0 {
		t.Errorf("a large number became %d", got)
	}
	if up(2.0000000000001) != 2 || up(2.1) != 3 || up(0) != 0 {
		t.Errorf("up: %d, %d, %d", up(2.0000000000001), up(2.1), up(0))
	}
}
