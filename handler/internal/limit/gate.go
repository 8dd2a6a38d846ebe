package limit

import (
	"context"
	"time"

	"asynccaller/handler/internal/decision"
)

// Gate lets calls pass as the limits of all instances together allow.
type Gate struct{ *Limits }

// Enter implements [delivery.Gate].
func (g Gate) Enter(ctx context.Context, due *decision.Due) (decision.Pass, *decision.Verdict) {
	if !due.Intake.Profile.IsLimited() {
		return nil, nil
	}
	e := due.Intake.Envelope
	leave, refusal, err := g.Limits.Enter(ctx, Request{
		Profile: due.Intake.Profile, RequestID: e.RequestID, Deadline: due.Deadline, Reserved: e.Reserved,
	})
	switch {
	case err != nil:
		return nil, &decision.Verdict{Outcome: &decision.Outcome{Failure: decision.FailureInterrupted}}
	case refusal != nil:
		return nil, &decision.Verdict{Refusal: refusal}
	}
	return pass{leave}, nil
}

// pass is a call that the limits allow.
type pass struct{ leave func() }

// Ended implements [decision.Pass].
func (p pass) Ended(*decision.Outcome, time.Time) { p.leave() }

// Released implements [decision.Pass].
func (p pass) Released(time.Time) {}
