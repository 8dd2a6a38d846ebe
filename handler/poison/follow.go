package poison

import (
	"context"
	"time"

	"asynccaller/handler/queue"
)

// Follow shows messages as they arrive, until ctx ends: those that the source means and that were not there
// when it began. It looks at a queue when its length has changed, at most once in each interval.
func (a *Account) Follow(ctx context.Context, s Source, interval time.Duration, see func(Found)) error {
	seen, counts := map[string]bool{}, map[string]int{}
	show := func(Found) {}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := a.news(ctx, s, seen, counts, show); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		show = see
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// news shows what is new on queues whose length has changed.
func (a *Account) news(ctx context.Context, s Source, seen map[string]bool, counts map[string]int, show func(Found)) error {
	names, err := a.queues(ctx, s)
	if err != nil {
		return err
	}
	for _, name := range names {
		count, err := a.count(ctx, name)
		if err != nil {
			return err
		}
		if last, known := counts[name]; known && last == count {
			continue
		}
		counts[name] = count
		_, err = a.look(ctx, []string{name}, silent{}, func(queueName string, m queue.Message) {
			if seen[m.ID] {
				return
			}
			seen[m.ID] = true
			if found, ok := a.read(s, queueName, m); ok {
				show(found)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
