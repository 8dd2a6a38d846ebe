package limit

import (
	"context"
	"encoding/json"
	"time"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/targets"
)

// lagWeight is the weight of the latest message in the average of how late messages come back.
const lagWeight = 0.3

// fewPerSecond is the rate up to which messages come a second earlier: there is room for them to wait.
const fewPerSecond = 10

// maxBatch is how many times an update reserves at most.
const maxBatch = 512

// rateLimit is a rate as this instance sees it.
type rateLimit struct {
	row     *row
	profile targets.Profile
	waiting []*waiter
	// next is the latest known value of the row. While the table is away, local is when this instance may call next.
	next, local time.Time
	// lag is how long after they are visible messages arrive, because others are before them in the queue.
	lag time.Duration
}

// enterRate waits for the time that the message has reserved, or reserves one.
func (l *Limits) enterRate(ctx context.Context, q Request, promised *promise) (*decision.Refusal, error) {
	r := l.rowOf("rate", q.Profile.RateText, q, func(r *row) ledger { return &rateLimit{row: r, profile: q.Profile} })
	defer l.release(r)
	limit, _ := r.ledger.(*rateLimit)
	now := l.now()
	at := promised.at
	if !promised.back.IsZero() {
		limit.noteLag(now.Sub(promised.back))
	}
	missed := !at.IsZero() && now.Sub(at) > lateAfter
	if at.IsZero() || missed {
		m := l.waiter(q)
		m.missed = missed
		a := limit.ask(m) //nolint:contextcheck // updates outlive the message, and each is answered within seconds
		switch {
		case a.granted:
			return nil, nil
		case a.at.IsZero():
			promised.at = time.Time{}
			return busy("rate", a.delay), nil
		}
		at = a.at
	}
	promised.at = at
	early := at.Sub(l.now())
	if early <= 0 || early <= shortWait && l.hold(ctx, early) {
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return busy("rate", limit.delay(early)), nil
}

// delay returns how long a message stays invisible that has reserved a time.
func (r *rateLimit) delay(early time.Duration) time.Duration {
	r.row.mu.Lock()
	defer r.row.mu.Unlock()
	d := wholeSeconds(early - max(0, r.lag-time.Second))
	if r.profile.Rate <= fewPerSecond {
		d -= time.Second
	}
	return d
}

func (r *rateLimit) noteLag(late time.Duration) {
	r.row.mu.Lock()
	defer r.row.mu.Unlock()
	late = min(max(0, late), 2*r.lag+lateAfter) // one message that was away for an hour says little
	r.lag += time.Duration(lagWeight * float64(late-r.lag))
}

// ask reserves a time, together with other messages.
func (r *rateLimit) ask(m *waiter) answer {
	isAway := r.row.limits.isAway()
	r.row.mu.Lock()
	m.back = m.since.Add(r.lag + time.Second)
	r.waiting = append(r.waiting, m)
	if isAway {
		r.fallBack(r.row.limits.now())
	} else {
		r.row.kick(0)
	}
	r.row.mu.Unlock()
	return <-m.answer
}

// isNeeded implements [ledger].
func (r *rateLimit) isNeeded() bool { return len(r.waiting) > 0 }

// plan implements [ledger].
func (r *rateLimit) plan(content []byte, now time.Time) (next []byte, done func()) {
	var state rateRow
	_ = json.Unmarshal(content, &state) // a row that somebody has damaged counts as new
	batch := r.waiting[:min(len(r.waiting), maxBatch)]
	answers := make([]answer, len(batch))
	for i, m := range batch {
		at, ok := state.reserve(r.profile, now, m)
		answers[i] = answer{at: at}
		if !ok {
			answers[i].delay = m.deadline.Sub(now) - lateAfter // a last look
		}
	}
	next, _ = json.Marshal(state)
	done = func() {
		r.next, r.waiting = state.Next, r.waiting[len(batch):]
		for i, m := range batch {
			m.answer <- answers[i]
		}
		if len(r.waiting) > 0 {
			r.row.kick(0)
		}
	}
	return next, done
}

// fallBack implements [ledger]: messages without a reserved time use what the row is known not to have promised, by the
// instance's part of the limit.
func (r *rateLimit) fallBack(now time.Time) {
	l := r.row.limits
	for _, m := range r.waiting {
		at := later(later(r.local, now), r.next)
		if at.After(now) {
			delay := min(at.Sub(now), 30*time.Second)
			m.answer <- answer{delay: time.Second + seconds((0.5+0.5*l.random())*delay.Seconds())}
			continue
		}
		r.local = now.Add(seconds(l.part / float64(r.profile.Rate)))
		m.answer <- answer{granted: true}
	}
	r.waiting = nil
}
