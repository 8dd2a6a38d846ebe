package serve

import (
	"math"
	"runtime/debug"
	"testing"
)

// TestTuneMemory: garbage is collected later, but never at the cost of the memory that there is, and not
// against the operator's word.
func TestTuneMemory(t *testing.T) {
	restore := func(t *testing.T) {
		t.Helper()
		percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(math.MaxInt64)
		t.Cleanup(func() {
			debug.SetGCPercent(percent)
			debug.SetMemoryLimit(limit)
		})
	}
	for name, c := range map[string]struct {
		environment map[string]string
		percent     int
		limited     bool
	}{
		"nothing_set":    {percent: gcPercent, limited: true},
		"GOGC_set":       {environment: map[string]string{"GOGC": "50"}, percent: 100, limited: true},
		"GOMEMLIMIT_set": {environment: map[string]string{"GOMEMLIMIT": "100MiB"}, percent: 100},
	} {
		t.Run(name, func(t *testing.T) {
			restore(t)
			told := TuneMemory(func(name string) string { return c.environment[name] })
			limit, percent := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
			if limited := limit < math.MaxInt64; limited != c.limited || percent != c.percent || limited && told != limit {
				t.Errorf("limit %d, told %d, percent %d", limit, told, percent)
			}
		})
	}
}
