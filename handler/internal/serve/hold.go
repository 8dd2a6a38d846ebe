package serve

import (
	"context"
	"strings"
	"time"

	"asynccaller/handler/internal/settle"

	"github.com/rs/zerolog"
)

const (
	// holdWait is how long a message in hold mode occupies a slot, so that at most all slots move in a minute and the
	// other messages stay on the queue. A failed start would instead use up one delivery of the messages that the host
	// holds (docs/host.md, "Bad deployments"). With the time to settle it is shorter than 5 minutes, after which the
	// host renews its lease: a host that deletes the message while it renews would deliver it again.
	holdWait = time.Minute
	// holdMargin is what an invocation may take besides the wait and the time to settle.
	holdMargin = 5 * time.Second
)

// hold returns how long the deliverer waits before it holds a message: zero if the settings are right. At
// functionTimeout the host would kill the handler, perhaps during a write, and deliver the original again as well
// (docs/host.md, "Function timeout").
func (c Config) hold() time.Duration {
	limit := c.App.Functions.Host.FunctionTimeout
	room := limit - settle.Timeout - holdMargin
	switch {
	case c.App.SettingsErr == nil:
		return 0
	case limit <= 0: // unlimited
		return holdWait
	case room > 0:
		return min(holdWait, room)
	}
	return limit / 2 // too short for any write that takes long
}

// remindEvery is the interval between two lines about hold mode, and about limits.
const remindEvery = time.Minute

// remind logs until ctx ends that the handler is in hold mode, and why.
func remind(ctx context.Context, invalid error, log zerolog.Logger) {
	tick := time.NewTicker(remindEvery)
	defer tick.Stop()
	for {
		log.Error().Str(zerolog.ErrorFieldName, strings.ReplaceAll(invalid.Error(), "\n", "; ")).
			Msg("hold mode: no calls are made, and messages go back to their queues, until the settings are " +
				"corrected and the app is restarted")
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
