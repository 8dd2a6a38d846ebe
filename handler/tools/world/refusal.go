package world

import (
	"cmp"
	"encoding/json"
	"time"

	"asynccaller/handler/internal/rules/decision"
)

// refusals are what the judge of refused calls knows.
type refusals struct {
	// triedAt is when an instance latest began or ended a call to a host, or tried to.
	triedAt map[instanceAndHost]time.Duration
	// deafSince is since when an instance calls a host down although it has not tried to call it for long.
	deafSince map[instanceAndHost]time.Duration
	// pausedUntil is until when a host may be paused.
	pausedUntil map[string]time.Duration
}

type instanceAndHost struct{ instance, host string }

// tries notes that an instance connects to a host.
func (w *World) tries(p *process, host string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.triedAt[instanceAndHost{p.name, host}] = w.now()
}

// judgeRefusal judges a line of the log that says why a call was not made. It is called with the lock of the world.
func (w *World) judgeRefusal(instance, text string) {
	var about struct {
		Reason decision.Reason
		Host   string `json:"target_host"`
		Moved  string `json:"moved_to"`
		ID     string `json:"request_id"`
	}
	_ = json.Unmarshal([]byte(text), &about)
	const settled = time.Minute // the line is written when its message is settled
	about.Host = cmp.Or(about.Moved, about.Host)
	now, of := w.now(), instanceAndHost{instance, about.Host}
	switch about.Reason { //nolint:exhaustive // the others are about a call that was made, or about none
	case decision.Paused:
		notice := 20*time.Second + w.drift()
		if now > w.pausedUntil[about.Host]+notice+settled && !w.isBlind(instance) {
			w.brokenLocked("docs/targets.md: %s: not called at %v, because %s is paused, and it is not since %v",
				about.ID, now, about.Host, w.pausedUntil[about.Host])
		}
	case decision.Busy: // of a limit: it may have been a probe
		delete(w.deafSince, of)
	case decision.TargetDown:
		const pause, turn = time.Minute, time.Minute // between two probes, and until a probe has its turn at a limit
		at := w.triedAt[of]
		if now < at+pause+w.settings.callTimeout+settled {
			delete(w.deafSince, of)
			return
		}
		if w.deafSince[of] == 0 {
			w.deafSince[of] = now
		}
		if now > w.deafSince[of]+turn {
			w.brokenLocked("docs/targets.md: %s: not called at %v, because %s is down, and it was called at %v last",
				about.ID, now, about.Host, at)
		}
	}
}
