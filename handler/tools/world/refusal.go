package world

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"asynccaller/handler/internal/rules/decision"
)

// refusals are what the judge of refused calls knows.
type refusals struct {
	// triedAt is when an instance latest began or ended a call to a host, or tried to.
	triedAt map[instanceAndHost]time.Duration
	// deafSince is since when an instance calls a host down although it has not tried to call it for long.
	deafSince map[instanceAndHost]time.Duration
	// readAt is after which time an instance has read the settings of targets, which it does every 15 s.
	readAt map[string]time.Duration
	// pausedUntil is until when a host may be paused.
	pausedUntil map[string]time.Duration
	// idleSince is since when an instance has no place for its only call to a host.
	idleSince map[instanceAndHost]time.Duration
	// circuits are what instances must know of hosts.
	circuits map[instanceAndHost]*circuit
}

type instanceAndHost struct{ instance, host string }

// circuit is what an instance must know of a host.
type circuit struct {
	// failures are those in a row that mean that it is down, and openSince is since when there are clearly too many.
	failures  int
	openSince time.Duration
	// succeededAt is when it answered, and probes are the calls in flight that began since it is down.
	succeededAt time.Duration
	probes      int
}

func (w *World) circuitOf(of instanceAndHost) *circuit {
	if w.circuits[of] == nil {
		w.circuits[of] = &circuit{}
	}
	return w.circuits[of]
}

// judgeProbe judges the beginning of a call to a host that is down: an instance makes one at a time, apart from last
// attempts. It reports whether the call is a probe. A call to a target with a limit passes its breaker before
// it waits for its turn, and is not judged.
func (w *World) judgeProbe(m *message, of instanceAndHost) (isProbe bool) {
	const known, last = 15 * time.Second, 45 * time.Second
	c := w.circuitOf(of)
	isKnown := !w.isDisturbed(m.token) && !w.ledger(m.token).isEdited // so that its deadline is
	isLast := !isKnown || w.deadlineOf(m)-w.now() < last+w.drift()
	isDown := c.openSince > 0 && w.now() > c.openSince+known
	if !isDown || isLast || of.host == narrow || of.host == metered || of.host != m.host {
		return false
	}
	if c.probes > 0 {
		w.brokenLocked("docs/targets.md: %s: called by %s, which calls %s already, and must know since %v that it is "+
			"down", m.token, of.instance, of.host, c.openSince)
	}
	c.probes++
	return true
}

// endProbe notes the end of a call.
func (w *World) endProbe(of instanceAndHost, isProbe bool, status int) {
	const enough = 10 // net/http repeats a call, which then fails once
	c := w.circuitOf(of)
	if isProbe {
		c.probes--
	}
	switch status {
	case 0, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		*c = circuit{succeededAt: w.now(), probes: c.probes}
		return
	}
	c.failures++
	if c.failures >= enough && c.openSince == 0 && w.now() > c.succeededAt+30*time.Second {
		c.openSince = w.now()
	}
}

// tries notes that an instance connects to a host.
func (w *World) tries(p *process, host string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.triedAt[instanceAndHost{p.name, host}] = w.now()
}

// judgeIdle judges that a call waits for a place of a target that has no calls in flight: a place of all instances, or
// one of an instance. Those of an instance that is killed count for a minute, and one whose turn it is may come back
// later.
func (w *World) judgeIdle(id string, of instanceAndHost, detail string) {
	usedAt, patience := w.triedAt[of], 90*time.Second+w.settings.callTimeout
	switch {
	case detail == "share", detail == "instance":
		for other, at := range w.triedAt {
			if detail == "instance" && other.instance == of.instance {
				usedAt = max(usedAt, at)
			}
		}
		if w.idleSince[of] <= usedAt {
			w.idleSince[of] = w.now()
		}
		usedAt = w.idleSince[of]
	case strings.HasSuffix(detail, "at a time") && w.calls[of.host] == 0:
		patience, usedAt = 4*time.Minute, w.tableFaultAt
		for other, at := range w.triedAt {
			if other.host == of.host {
				usedAt = max(usedAt, at)
			}
		}
	default:
		return
	}
	if w.now() > usedAt+patience {
		w.brokenLocked("docs/targets.md: %s: not called at %v, %s, and %s has no calls since %v", id, w.now(), detail,
			of.host, usedAt)
	}
}

// judgeRefusal judges a line of the log that says why a call was not made. It is called with the lock of the world.
func (w *World) judgeRefusal(instance, text string) {
	var about struct {
		Reason decision.Reason
		Host   string `json:"target_host"`
		Moved  string `json:"moved_to"`
		ID     string `json:"request_id"`
		Detail string
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
		w.judgeIdle(about.ID, of, about.Detail)
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
