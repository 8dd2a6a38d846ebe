package poison

import (
	"context"
	"errors"
	"fmt"
	"time"

	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/lease"
)

// searchInterval is how often the run searches for invisible messages.
const searchInterval = 10 * time.Second

// findLost handles the steps whose message is not leased any more. It searches the queues for the messages, because
// a stale receipt does not mean that somebody else has received one: a kill or a lost answer may have kept us from
// recording the newest receipt. Then the message is invisible until our own lease ends.
func (r *run) findLost(ctx context.Context) error {
	for began, noted := time.Now(), false; len(r.lost) > 0; noted = true {
		lost := r.lost
		r.lost = nil
		if err := r.findOnce(ctx, lost); err != nil {
			return err
		}
		if len(r.lost) == 0 || time.Since(began) > r.leases.Lease() {
			break
		}
		if !noted {
			r.account.observer().Note(fmt.Sprintf("%d messages are invisible: waiting until their leases end, at most %v",
				len(r.lost), r.leases.Lease().Round(time.Second)))
		}
		select {
		case <-ctx.Done():
			return r.fatal
		case <-time.After(searchInterval):
		}
	}
	return r.fatal
}

// findOnce searches the queues once. Messages that are still invisible stay lost.
func (r *run) findOnce(ctx context.Context, lost []int) error {
	byQueue := make(map[string]map[string]int)
	for _, n := range lost {
		s, err := r.journal.Step(n)
		if err != nil {
			return err
		}
		if byQueue[s.From] == nil {
			byQueue[s.From] = make(map[string]int)
		}
		byQueue[s.From][s.ID] = n
	}
	for name, ids := range byQueue {
		where, err := r.find(ctx, name, ids)
		if err != nil {
			return err
		}
		for id, n := range ids {
			if r.leases.Find(name, id) != nil {
				r.one(context.WithoutCancel(ctx), n)
			} else if err := r.abandon(ctx, n, id, name, where); err != nil {
				return err
			}
		}
	}
	return r.fatal
}

// whereabouts says what is known of the messages that were not found on a queue.
type whereabouts int

const (
	gone whereabouts = iota
	// hidden: messages of the queue are invisible, perhaps these.
	hidden
	// taken: a function app reads the queue and has received them.
	taken
)

// find leases messages of a queue, and says where the others are. It takes none from a function app's queue.
func (r *run) find(ctx context.Context, name string, ids map[string]int) (whereabouts, error) {
	all, err := r.account.names(ctx)
	if err != nil {
		return hidden, err
	}
	if errors.Is(r.account.checkQueue(all, name, ""), ErrAppQueue) {
		return taken, nil
	}
	before, err := r.account.count(ctx, name)
	if err != nil {
		return hidden, err
	}
	seen, found := 0, 0
	err = r.leases.Take(ctx, name, before, lease.Selection{
		Select: func(m queue.Message) (int, bool) {
			seen++
			n, ok := ids[m.ID]
			if ok {
				found++
			}
			return n, ok
		},
		Enough: func() bool { return found == len(ids) },
	})
	if err != nil || found == len(ids) {
		return gone, err
	}
	after, err := r.account.count(ctx, name)
	if err != nil || seen < max(before, after) {
		return hidden, err
	}
	return gone, nil
}

// abandon ends a step whose message was not found. A message that may only be invisible stays lost.
func (r *run) abandon(ctx context.Context, n int, id, from string, where whereabouts) error {
	p := r.journal.Progress(n)
	switch {
	case where == hidden:
		r.lost = append(r.lost, n)
		return nil
	case p.State == journal.Written && r.undoes() && r.before[n].State != journal.Written: // this process wrote it, and has not deleted the original
		return r.retract(ctx, n, fmt.Sprintf("%s was taken from %s before", id, from))
	case p.State == journal.Deleting, p.State == journal.Written && where == gone:
		return r.journal.Enter(n, journal.Done) // by us or by somebody else
	case p.State == journal.Written: // an earlier process was killed after the write, perhaps also after the deletion
		if p.Writes == 1 {
			r.twice++
		}
		r.account.observer().Note(fmt.Sprintf("%s is not on %s any more: this run has deleted it, or somebody has taken it and it exists twice", id, from))
		return r.journal.Enter(n, journal.Done)
	}
	return r.journal.Skipped(n, fmt.Sprintf("%s was taken from %s by somebody else", id, from))
}

// retract deletes what a step has written, because somebody had taken the original before.
func (r *run) retract(ctx context.Context, n int, why string) error {
	s, err := r.journal.Step(n)
	if err != nil {
		return err
	}
	p := r.journal.Progress(n)
	written, err := r.leases.Adopt(n, s.To, p.NewID, p.NewPopReceipt, "")
	if err == nil {
		err = r.leases.Delete(context.WithoutCancel(ctx), written)
	}
	switch {
	case errors.Is(err, lease.ErrLost):
		why += "; it is on " + s.To + " too"
	case err != nil:
		return err
	case p.Writes == 1:
		r.twice--
	}
	return r.journal.Skipped(n, why)
}
