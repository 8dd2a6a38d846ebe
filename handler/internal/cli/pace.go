package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/bounds"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/storage"
)

// addPace declares the flags that limit the load on the targets.
func addPace(flags *flagSet, pace *journal.Pace) {
	parsed(flags, &pace.Canary, "canary", "send this `number` first, and the others once those are delivered",
		atLeast(0))
	pace.CanaryWait = 3 * time.Minute
	durationFlag(flags, &pace.CanaryWait, "canary-wait",
		"`duration` that the delivery of the first messages may take")
	parsed(flags, &pace.Rate, "rate",
		"at most this `number` per second, such as 50 or 0.5/s (default unlimited)", parseRate)
	flags.Float64Var(&pace.StopAt, "stop-at-failure-ratio", 0,
		"stop when more than this share, 0 to 1, of the calls fails")
	durationFlag(flags, &pace.Spread, "spread", "spread the deliveries evenly over this `duration`")
}

// checkPace refuses a pace that is not possible.
func checkPace(flags *flagSet, pace journal.Pace) {
	flags.refuse(pace.Canary > 0 && pace.CanaryWait <= 0, "--canary-wait: want a duration above 0, such as 3m")
	shares := bounds.New(0, 1.0)
	flags.refuse(!shares.Contains(pace.StopAt),
		fmt.Sprintf("--stop-at-failure-ratio: want a share %v, such as 0.1", shares))
	// the sum of two long durations can overflow
	delays := bounds.New(0, storage.MaxDelay)
	possible := delays.Contains(pace.Delay) && bounds.New(0, storage.MaxDelay-pace.Delay).Contains(pace.Spread)
	flags.refuse(!possible,
		fmt.Sprintf("--delay and --spread: want at least 0s and at most %v together", storage.MaxDelay))
}

// parseRate reads a number per second.
func parseRate(text string) (float64, error) {
	number := func(text string) (float64, error) { return strconv.ParseFloat(strings.TrimSuffix(text, "/s"), 64) }
	return within(bounds.New(0.001, 1e6), "a number of messages per second, such as 50 or 0.5/s", number)(text)
}
