package cli

import (
	"fmt"
	"strconv"
	"strings"

	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/plain/bounds"
)

// addPace declares the flags that limit the load on the targets.
func addPace(flags *flagSet, pace *journal.Pace) {
	parsed(flags, &pace.Canary, "canary", "send this `number` first, and the others once those are delivered",
		atLeast(0))
	parsed(flags, &pace.Rate, "rate",
		"at most this `number` per second, such as 50 or 0.5/s (default unlimited)", parseRate)
	flags.Float64Var(&pace.StopAt, "stop-at-failure-ratio", 0,
		"stop when more than this share, 0 to 1, of the calls fails")
}

// checkPace refuses a pace that is not possible.
func checkPace(flags *flagSet, pace journal.Pace) {
	shares := bounds.New(0, 1.0)
	flags.refuse(!shares.Contains(pace.StopAt),
		fmt.Sprintf("--stop-at-failure-ratio: want a share %v, such as 0.1", shares))
}

// parseRate reads a number per second.
func parseRate(text string) (float64, error) {
	number := func(text string) (float64, error) { return strconv.ParseFloat(strings.TrimSuffix(text, "/s"), 64) }
	return within(bounds.New(0.001, 1e6), "a number of messages per second, such as 50 or 0.5/s", number)(text)
}
