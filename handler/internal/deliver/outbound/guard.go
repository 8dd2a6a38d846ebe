package outbound

import (
	"cmp"
	"context"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/guard"
)

// Guard is the gate that lets no call pass to a target whose name or address the operator does not allow. The client
// judges redirects, and the addresses of names, by the same rules.
type Guard struct{ guard.Rules }

// Enter implements [delivery.Gate].
func (g Guard) Enter(_ context.Context, due *decision.Due) (decision.Pass, *decision.Verdict) {
	call := due.Intake.Call()
	refused := cmp.Or(due.Intake.Refused, g.JudgeCall(call.Target, call.Host))
	if refused == "" {
		return nil, nil
	}
	return nil, &decision.Verdict{
		Outcome: &decision.Outcome{Failure: decision.FailureTargetRefused, Detail: refused},
	}
}
