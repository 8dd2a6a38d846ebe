package instance

import (
	"math"
	"runtime/debug"
	"testing"
)

// TestTuneMemory: the limit protects the machine's memory, and the operator's settings take precedence.
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
			returned := TuneMemory(func(name string) string { return c.environment[name] }, 0.5)
			limit, percent := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
			if limited := limit < math.MaxInt64; limited != c.limited || percent != c.percent || limited &&
				returned != limit {
				t.Errorf("limit %d, returned %d, percent %d", limit, returned, percent)
			}
		})
	}
}
