package host

import "time"

const (
	// errorWindow is how long a handler error is remembered.
	errorWindow = 30 * time.Minute
	// intentionalRestart is the exit code by which a handler asks to be restarted.
	intentionalRestart = 200
)

// ending is how a run of the handler came to its end.
type ending int

const (
	exited      ending = iota // by itself, or by a signal from outside
	neverReady                // killed because it did not answer GET / in time
	condemned                 // killed because an invocation timed out
	hostStopped               // ended because the host stops
)

// isError reports whether the ending counts toward the limit: section C.3 of the Functions host
// contract, newest host.
func (e ending) isError(exitCode int) bool {
	switch e {
	case exited:
		return exitCode != 0 && exitCode != intentionalRestart
	case neverReady:
		return true
	case condemned, hostStopped:
		return false
	}
	return false
}

// restartBudget counts handler errors. An error is forgotten once the next one comes more than
// errorWindow later.
type restartBudget struct {
	limit  int // negative: none
	errors int
	latest time.Time
}

// spend notes an error and reports whether the handler may be restarted all the same.
func (b *restartBudget) spend(now time.Time) bool {
	if !b.latest.IsZero() && now.Sub(b.latest) > errorWindow {
		b.errors = 0
	}
	b.errors++
	b.latest = now
	return b.limit < 0 || b.errors < b.limit
}
