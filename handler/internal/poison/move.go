package poison

import (
	"context"
	"errors"

	"asynccaller/handler/internal/operate/run/journal"
)

// Move says where messages are moved.
type Move struct {
	// To is the queue. Create allows one that does not exist and that no function reads.
	To     string
	Create bool
}

// PlanMove prepares to move messages unchanged to another queue. To send messages again, use PlanRequeue, which
// resets their state.
func (a *Account) PlanMove(ctx context.Context, s Source, m Move) (*Plan, error) {
	all, err := a.reach(ctx)
	if err == nil {
		err = a.checkNew(all, m.To, m.Create)
	}
	if err == nil && !s.Force {
		err = a.checkQueue(all, m.To, "use requeue to send messages to it, or --force to move them there unchanged")
	}
	if err != nil {
		return nil, err
	}
	return a.plan(ctx, journal.Run{Command: "move"}, s, func(_ context.Context, f Found) (journal.Step, error) {
		if f.Queue == m.To {
			return journal.Step{}, errors.New("it is there already")
		}
		return exchange(f, m.To, f.Text), nil
	})
}
