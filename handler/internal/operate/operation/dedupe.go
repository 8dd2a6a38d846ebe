package operation

import (
	"context"
	"errors"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/run/journal"
)

// errDuplicate is why a retry refuses a message.
var errDuplicate = errors.New("--dedupe: another message with its request id was chosen")

// dedupe reads the messages of a source, and returns a change that refuses all but one message of each call: the
// one that was inserted last, of those that can be sent. Of several that were inserted in the same second it is
// any one, and of a call whose messages all come later the first that is read. The limit does not count, so that it
// does not select older messages. Dedupe keeps the ids of all messages in memory.
func (op *Operations) dedupe(ctx context.Context, s account.Source, next change) (change, error) {
	type choice struct {
		queue, id string
		at        time.Time
	}
	chosen := map[message.RequestKey]choice{}
	s.Limit = 0
	_, err := op.Account.List(ctx, s, func(f account.Found) {
		key, ok := message.KeyOf(f.Message)
		if !ok || f.InsertedAt.Before(chosen[key].at) {
			return
		}
		if _, why := next(ctx, f); why == nil {
			chosen[key] = choice{f.Queue, f.ID, f.InsertedAt}
		}
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, f account.Found) (journal.Step, error) {
		step, err := next(ctx, f)
		key, ok := message.KeyOf(f.Message)
		if err != nil || !ok {
			return step, err
		}
		other, hasChoice := chosen[key]
		switch {
		case !hasChoice:
			chosen[key] = choice{f.Queue, f.ID, f.InsertedAt}
		case other.queue != f.Queue || other.id != f.ID:
			err = errDuplicate
		}
		return step, err
	}, nil
}
