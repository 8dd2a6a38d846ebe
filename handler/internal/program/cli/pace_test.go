package cli

import "testing"

func TestParseRate(t *testing.T) {
	for text, want := range map[string]float64{"50/s": 50, "30/m": 0.5, "900/h": 0.25} {
		if got, err := parseRate(text); got != want || err != nil {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "-1", "fast", "50", "0.5/s", "1e3/s", "NaN/s", "1000000000/s", "/s"} {
		if got, err := parseRate(text); err == nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
