package poison

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/lease"
)

// search deals with the messages that were not ours any more. They are looked for: a receipt that we did not
// note, because we were killed or an answer was lost, does not make a message somebody else's. Where it was
// our own lease, it ends in a while.
func (r *run) search(ctx context.Context) error {
	for began, told := time.Now(), false; len(r.lost) > 0; {
		lost := r.lost
		r.lost = nil
		if err := r.seek(ctx, lost); err != nil {
			return err
		}
		if len(r.lost) == 0 || time.Since(began) > r.hold.Lease() {
			return r.fatal
		}
		if !told {
			r.observer.Note(fmt.Sprintf("%d messages are out of sight: waiting until their leases end, at most %v",
				len(r.lost), r.hold.Lease().Round(time.Second)))
			told = true
		}
		select {
		case <-ctx.Done():
			return r.fatal
		case <-time.After(seekEvery):
		}
	}
	return r.fatal
}

// seekEvery is how often messages that are out of sight are looked for.
const seekEvery = 10 * time.Second

// seek looks once for messages on their queues. Those that are still out of sight stay lost.
func (r *run) seek(ctx context.Context, lost []int) error {
	byQueue := make(map[string]map[string]int)
	for _, n := range lost {
		s, err := r.history.Step(n)
		if err != nil {
			return err
		}
		if byQueue[s.From] == nil {
			byQueue[s.From] = make(map[string]int)
		}
		byQueue[s.From][s.ID] = n
	}
	for name, ids := range byQueue {
		where, err := r.find(ctx, name, maps.Clone(ids))
		if err != nil {
			return err
		}
		for id, n := range ids {
			if r.hold.Find(name, id) != nil {
				r.one(context.WithoutCancel(ctx), n)
			} else if err := r.giveUp(ctx, n, id, name, where); err != nil {
				return err
			}
		}
	}
	return r.fatal
}

// whereabouts is what is known of messages that were looked for and not found.
type whereabouts int

const (
	gone whereabouts = iota
	// hidden: somebody has messages of the queue, perhaps these.
	hidden
	// taken: a function app reads the queue, and has read them.
	taken
)

// find takes messages from their queue, if they may be taken there, and says where the others are.
func (r *run) find(ctx context.Context, name string, ids map[string]int) (whereabouts, error) {
	all, err := r.account.names(ctx)
	if err != nil {
		return hidden, err
	}
	if r.account.live(all, name) != "" {
		return taken, nil
	}
	before, err := r.account.count(ctx, name)
	if err != nil {
		return gone, ignoreMissing(err)
	}
	seen, err := r.hold.Take(ctx, name, lease.Choice{
		Choose: func(m queue.Message) (int, bool) {
			n, ok := ids[m.ID]
			delete(ids, m.ID)
			return n, ok
		},
		Enough: func() bool { return len(ids) == 0 },
	})
	r.hold.GiveBackOthers(ctx)
	if err != nil || len(ids) == 0 {
		return gone, err
	}
	after, err := r.account.count(ctx, name)
	if err != nil {
		return hidden, ignoreMissing(err)
	}
	if seen < max(before, after) {
		return hidden, nil
	}
	return gone, nil
}

// giveUp ends a step whose message cannot be had, unless it may only be away for a moment: then it is left to
// be resumed.
func (r *run) giveUp(ctx context.Context, n int, id, from string, where whereabouts) error {
	state := r.history.Steps[n].State
	switch {
	case where == hidden:
		r.lost = append(r.lost, n)
		return nil
	case state == journal.Written && r.undoes() && r.wrote[n]: // so it was not us who deleted it
		return r.retract(ctx, n, fmt.Sprintf("%s was taken from %s before", id, from))
	case state == journal.Leaving, state == journal.Written && where == gone:
		return r.done(n) // we have deleted it, or somebody else has
	case state == journal.Written: // by an earlier process, which may have deleted it too before it was killed
		r.history.Steps[n].Writes++
		r.observer.Note(fmt.Sprintf("%s is not on %s any more: we have deleted it, or it was taken and is there twice", id, from))
		return r.done(n)
	}
	return r.skip(n, fmt.Sprintf("%s was taken from %s by somebody else", id, from))
}

// retract deletes what a step has written, because it was too late.
func (r *run) retract(ctx context.Context, n int, why string) error {
	s, err := r.history.Step(n)
	if err != nil {
		return err
	}
	p := &r.history.Steps[n]
	err = lease.Patiently(context.WithoutCancel(ctx), func(ctx context.Context) error {
		return r.account.Store.Delete(ctx, s.To, p.NewID, p.NewPopReceipt)
	})
	switch {
	case err == nil:
		p.Writes = 0
	case errors.Is(err, queue.ErrStale):
		why += "; it is on " + s.To + " too"
	default:
		return err
	}
	return r.skip(n, why)
}
