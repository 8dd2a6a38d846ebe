package poison

import (
	"context"
	"time"

	"asynccaller/handler/internal/queue"
)

// Follow shows the messages of the source that arrive after it has started, until ctx ends. It calls ready once it
// has started. It reads a queue once per interval, and a long one only when its length has changed. A message that
// was invisible during a whole read counts as a new one.
func (a *Account) Follow(ctx context.Context, s Source, interval time.Duration, ready func(), see func(Found)) error {
	queues := map[string]*followed{}
	show := func(Found) {}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for started := false; ; started = true {
		if err := a.readNew(ctx, s, queues, show); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if !started {
			show = see
			ready()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// followed is the length of a queue and the IDs of its messages at the last read.
type followed struct {
	count int
	ids   map[string]bool
}

// readNew reads the source's queues once, and shows the new messages.
func (a *Account) readNew(ctx context.Context, s Source, queues map[string]*followed, show func(Found)) error {
	names, err := a.queues(ctx, s)
	if err != nil {
		return err
	}
	for _, name := range names {
		count, err := a.count(ctx, name)
		if err != nil {
			return err
		}
		q := queues[name]
		if q == nil {
			q = &followed{}
			queues[name] = q
		} else if q.count == count && count >= queue.MaxBatch { // a short queue is only peeked at
			continue
		}
		known := q.ids
		q.count, q.ids = count, map[string]bool{}
		_, err = a.scan(ctx, name, silent{}, func(m queue.Message) {
			isNew := !known[m.ID] && !q.ids[m.ID]
			q.ids[m.ID] = true
			if found, ok := a.read(s, name, m); ok && isNew {
				show(found)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
