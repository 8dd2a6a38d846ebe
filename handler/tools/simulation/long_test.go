//go:build long

package simulation

// divisor divides the number of envelopes.
const divisor = 1

var (
	parts          = []float64{0.5, 0.8, 0.9}
	instanceCounts = []int{1, 2, 5, 20}
)
