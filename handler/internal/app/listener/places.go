package listener

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// coldTime is how long the first messages have until one of them has ended.
const coldTime = time.Second

// Places limits how many messages several listeners have in flight together. The listeners get them in the order in
// which they ask. A nil *Places is unlimited. Create it with [NewPlaces].
type Places struct {
	sem *semaphore.Weighted
	// cold is how many places are not there yet.
	cold         int64
	began, warms sync.Once
}

// NewPlaces returns a number of places. Only so many as first are there until the first message has ended, or for a
// second: before a target has answered, the gates let few calls pass.
func NewPlaces(all, first int) *Places {
	p := &Places{sem: semaphore.NewWeighted(int64(all)), cold: int64(max(all-first, 0))}
	p.sem.TryAcquire(p.cold)
	return p
}

// take takes all free places up to a number, and waits for one. It returns 0 if ctx ends.
func (p *Places) take(ctx context.Context, most int) (taken int) {
	if p == nil {
		return most
	}
	if ctx.Err() != nil || p.sem.Acquire(ctx, 1) != nil {
		return 0
	}
	for taken = 1; taken < most && p.sem.TryAcquire(1); { // which fails if another listener waits
		taken++
	}
	return taken
}

// received frees the places without a message, after a poll that took some.
func (p *Places) received(messages, taken int) {
	if p == nil {
		return
	}
	p.sem.Release(int64(taken - messages))
	if messages > 0 {
		p.began.Do(func() { time.AfterFunc(coldTime, p.warm) })
	}
}

// ended frees the place of a message.
func (p *Places) ended() {
	if p != nil {
		p.warm()
		p.sem.Release(1)
	}
}

// warm lets all places be there.
func (p *Places) warm() { p.warms.Do(func() { p.sem.Release(p.cold) }) }
