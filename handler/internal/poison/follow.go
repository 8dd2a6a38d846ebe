package poison

import (
	"context"
	"time"

	"asynccaller/handler/internal/queue"
)

// Follow shows messages as they arrive, until ctx ends: those that the source means and that were not there
// when it began. Ready is called when it has begun. It looks at a queue once in each interval, at a long one
// only when its length has changed. A message that was out of sight for a whole look is taken for a new one.
func (a *Account) Follow(ctx context.Context, s Source, interval time.Duration, ready func(), see func(Found)) error {
	queues := map[string]*followed{}
	show, begun := func(Found) {}, false
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := a.news(ctx, s, queues, show); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if !begun {
			show, begun = see, true
			ready()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// followed is what is remembered of a queue: its length, and the messages of the last two looks, the one under
// way included.
type followed struct {
	count          int
	before, latest map[string]bool
}

// news looks once, and shows what is new.
func (a *Account) news(ctx context.Context, s Source, queues map[string]*followed, show func(Found)) error {
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
			q = &followed{count: -1}
			queues[name] = q
		}
		if q.count == count && count >= queue.MaxBatch { // a short queue is only peeked at
			continue
		}
		q.count, q.before, q.latest = count, q.latest, map[string]bool{}
		_, err = a.look(ctx, []string{name}, silent{}, func(queueName string, m queue.Message) {
			known := q.before[m.ID] || q.latest[m.ID]
			q.latest[m.ID] = true
			if found, ok := a.read(s, queueName, m); ok && !known {
				show(found)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
