//go:build !long

package simulation

// A short run shows a broken limit. `make test-long` measures the figures of the pages.
const (
	isShort = true
	// divisor divides the number of envelopes.
	divisor = 10
)

// shortLimits are the runs of TestLimits that are made.
var shortLimits = map[string]bool{
	"5_a_second_20_instances": true, "1_a_second_of_5000_5_instances": true, "5_of_2s_20_instances": true,
	"1_of_30s_5_instances": true, "50_a_second_and_20_of_200ms_at_2_5_instances": true,
}
