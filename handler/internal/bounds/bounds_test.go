package bounds_test

import (
	"math"
	"strconv"
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
