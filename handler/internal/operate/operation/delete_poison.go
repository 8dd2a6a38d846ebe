package operation

import (
	"context"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/run/journal"
)

// Delete says how to delete messages.
type Delete struct {
	// NoCopy leaves the texts of the messages out of the journal, so the run cannot be undone.
	NoCopy bool
}

// PlanDeletePoison prepares to delete messages.
func (op *Operations) PlanDeletePoison(ctx context.Context, s account.Source, d Delete) (*Plan, error) {
	remove := func(_ context.Context, f account.Found) (journal.Step, error) {
		if d.NoCopy {
			return journal.Step{Take: &journal.Take{NoText: true}}, nil
		}
		return journal.Step{Take: &journal.Take{Text: f.Text}}, nil
	}
	p, err := op.plan(ctx, journal.Run{Command: "delete"}, s, remove)
	if err != nil {
		return nil, err
	}
	p.Final = d.NoCopy
	return p, nil
}
