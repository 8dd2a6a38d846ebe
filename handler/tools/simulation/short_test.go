//go:build !long

package simulation

// divisor divides the number of envelopes, because all of them take minutes. `make test-long` sends all.
const divisor = 10

// parts and instanceCounts are those of the runs with limited targets: the hardest of them.
var (
	parts          = []float64{0.9}
	instanceCounts = []int{1, 20}
)
