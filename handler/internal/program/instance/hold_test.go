package instance

import (
	"errors"
	"testing"
	"time"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/deliver/settle"
)

// TestHoldWait: in hold mode a message is back on its queue before functionTimeout, at which the host would kill the
// handler during the write, and before the host first renews its lease, even if the write takes as long as it may.
func TestHoldWait(t *testing.T) {
	const renewal = 5 * time.Minute
	for limit, want := range map[time.Duration]time.Duration{
		-1:                time.Minute,
		5 * time.Minute:   time.Minute,
		time.Hour:         time.Minute,
		100 * time.Second: 35 * time.Second,
		66 * time.Second:  time.Second,
		time.Minute:       30 * time.Second,
		time.Second:       time.Second / 2,
	} {
		c := Config{App: config.App{
			Functions:   &functionapp.App{Host: functionapp.Host{FunctionTimeout: limit}},
			SettingsErr: errors.New("wrong"),
		}}
		wait := c.hold()
		if wait != want {
			t.Errorf("functionTimeout %v: a message waits %v, want %v", limit, wait, want)
		}
		if longest := wait + settle.Timeout; longest >= renewal || limit > settle.Timeout+holdMargin &&
			longest >= limit {
			t.Errorf("functionTimeout %v: a message takes up to %v", limit, longest)
		}
	}
}
