package outbound

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errTimeout tells the end of a call's own time from every other end of its context.
var errTimeout = errors.New("no answer in time")

// deadlines gives calls their time limit. Calls that begin at about the same moment share a context, because
// one of its own, with a timer, is among the most expensive things that a busy handler does for a call. So a
// call may end up to a hundredth of the limit early, and never late. It is safe for concurrent use.
type deadlines struct {
	limit time.Duration

	mu sync.Mutex
	// shared ends at its deadline, or with parent. Calls get it until the time renew.
	parent, shared context.Context //nolint:containedctx // of many calls
	renew          time.Time
	// end would end shared, and is kept but never called: nobody knows which calls still have it.
	end context.CancelFunc
}

// of returns the context of a call that begins now. It ends with parent or, with the cause errTimeout, when
// the time is up.
func (d *deadlines) of(parent context.Context, now time.Time) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.parent != parent || !now.Before(d.renew) {
		d.parent, d.renew = parent, now.Add(d.limit/100)
		d.shared, d.end = context.WithDeadlineCause(parent, now.Add(d.limit), errTimeout)
	}
	return d.shared
}
