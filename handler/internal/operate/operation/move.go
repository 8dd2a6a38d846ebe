package operation

import (
	"context"
	"errors"
	"fmt"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/run/journal"
)

// moveCommand is the command of a run that moves dead letters unchanged.
const moveCommand = "move"

// PlanMove prepares to move messages unchanged to another queue. To send messages again, use PlanRetryPoison, which
// resets their state.
func (op *Operations) PlanMove(ctx context.Context, s account.Source, to string) (*Plan, error) {
	all, err := op.Account.Reach(ctx)
	if err == nil {
		err = op.checkTarget(all, to)
	}
	if err == nil && !s.Force {
		const advice = "without --as-is, messages are sent to it; --force moves them there unchanged"
		err = op.Account.CheckQueue(all, to, advice)
	}
	if err != nil {
		return nil, err
	}
	move := func(_ context.Context, f account.Found) (journal.Step, error) {
		if f.Queue == to {
			return journal.Step{}, errors.New("it is there already")
		}
		if err := op.Account.Rules.CheckRaw(f.Raw, to); err != nil && !s.Force {
			return journal.Step{}, fmt.Errorf("%w; --force moves it nevertheless", err)
		}
		return exchange(f, to, f.Text), nil
	}
	return op.plan(ctx, journal.Run{Command: moveCommand}, s, move)
}
