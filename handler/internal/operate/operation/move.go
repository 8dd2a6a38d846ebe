package operation

import (
	"context"
	"errors"
	"fmt"

	"asynccaller/handler/internal/operate/account"
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
func (rs *Runs) PlanMove(ctx context.Context, s account.Source, m Move) (*Plan, error) {
	all, err := rs.Reach(ctx)
	if err == nil {
		err = rs.checkNew(all, m.To, m.Create)
	}
	if err == nil && !s.Force {
		err = rs.CheckQueue(all, m.To, "use requeue to send messages to it, or --force to move them there unchanged")
	}
	if err != nil {
		return nil, err
	}
	move := func(_ context.Context, f account.Found) (journal.Step, error) {
		if f.Queue == m.To {
			return journal.Step{}, errors.New("it is there already")
		}
		if err := rs.Rules.CheckRaw(f.Raw, m.To); err != nil && !s.Force {
			return journal.Step{}, fmt.Errorf("%w; --force moves it nevertheless", err)
		}
		return exchange(f, m.To, f.Text), nil
	}
	return rs.plan(ctx, journal.Run{Command: "move"}, s, move)
}
