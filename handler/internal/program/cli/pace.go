package cli

import (
	"fmt"

	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/rules/targets"
)

// addPace declares the flags that limit the load on the targets.
func addPace(flags *flagSet, pace *journal.Pace) {
	parsed(flags, &pace.Canary, "canary", "send this `number` first, and the others once those are delivered",
		atLeast(0))
	parsed(flags, &pace.Rate, "rate", "at most this `rate`, such as 50/s, 30/m or 100/h (default unlimited)", parseRate)
	flags.Float64Var(&pace.StopAt, "stop-at-failure-ratio", 0,
		"stop when more than this share, 0 to 1, of the calls fails")
}

// checkPace refuses a pace that is not possible.
func checkPace(flags *flagSet, pace journal.Pace) {
	shares := bounds.New(0, 1.0)
	flags.refuse(!shares.Contains(pace.StopAt),
		fmt.Sprintf("--stop-at-failure-ratio: want a share %v, such as 0.1", shares))
}

// parseRate reads a rate, as in targets.json, as a number per second.
func parseRate(text string) (float64, error) {
	var p targets.Profile
	err := p.SetRate(text)
	return float64(p.Rate), err
}
