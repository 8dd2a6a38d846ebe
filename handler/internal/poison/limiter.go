package poison

import (
	"context"
	"time"
)

// limiter spreads work over time.
type limiter struct {
	rate float64 // a second; 0 for no limit
	next time.Time
}

// wait waits for its turn, and reports false when ctx ends first.
func (l *limiter) wait(ctx context.Context) bool {
	if ctx.Err() != nil || l.rate <= 0 {
		return ctx.Err() == nil
	}
	now := time.Now()
	if l.next.Before(now) {
		l.next = now
	}
	timer := time.NewTimer(l.next.Sub(now))
	defer timer.Stop()
	l.next = l.next.Add(time.Duration(float64(time.Second) / l.rate))
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
