package instance

import (
	"fmt"
	"strings"
	"time"

	"asynccaller/handler/internal/deliver/settle"
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

// InHoldMode reports whether the handler makes no calls, because a setting is invalid.
func (c Config) InHoldMode() bool { return c.App.SettingsErr != nil }

// whyNoCalls returns why no call is made although the host runs: the first problem in hold mode, or that no queue
// function runs. It is empty if calls are made.
func (c Config) whyNoCalls() string {
	if !c.InHoldMode() {
		return c.App.Functions.WhyIdle(c.App.Environ)
	}
	problems := strings.Split(c.App.SettingsErr.Error(), "\n")
	if len(problems) == 1 {
		return "hold mode: " + problems[0]
	}
	return fmt.Sprintf("hold mode, the first of %d problems: %s", len(problems), problems[0])
}

// hold returns how long hold mode keeps a message before putting it back; zero outside hold mode. It is less than
// functionTimeout, at which the host would kill the handler, perhaps during a write, and deliver the original again as
// well (docs/host.md, "Function timeout").
func (c Config) hold() time.Duration {
	limit := c.App.Functions.Host.FunctionTimeout
	room := limit - settle.Timeout - holdMargin
	switch {
	case !c.InHoldMode():
		return 0
	case limit <= 0: // unlimited
		return holdWait
	case room > 0:
		return min(holdWait, room)
	}
	return limit / 2 // too short for any write that takes long
}
