package cli

import "testing"

func TestParseRate(t *testing.T) {
	for text, want := range map[string]float64{"50": 50, "50/s": 50, "0.5/s": 0.5, "1e3": 1000} {
		if got, err := parseRate(text); got != want || err != nil {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "-1", "fast", "50/m", "NaN", "Inf", "1e9", "/s", " 5"} {
		if got, err := parseRate(text); err == nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
