//go:build long

package simulation

// See short_test.go.
const (
	isShort = false
	divisor = 1
)

var shortLimits map[string]bool
