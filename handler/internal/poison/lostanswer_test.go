package poison_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"asynccaller/handler/internal/poison"
)

var errNoAnswer = errors.New("connection reset by peer")

// TestLostAnswer loses the answer of an operation that storage has carried out, and checks that no message is lost
// and that duplicates are counted.
func TestLostAnswer(t *testing.T) {
	const messages = 10
	for _, c := range killedCommands() {
		for _, operation := range []string{"names", "count", "receive", "create", "put", "update", "delete"} {
			for nth := range 3 {
				t.Run(fmt.Sprintf("%s/%s/%d", c.name, operation, nth), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						loseAnswer(t, c, messages, operation, nth)
					})
				})
			}
		}
	}
}

func loseAnswer(t *testing.T, c killed, messages int, operation string, nth int) {
	t.Helper()
	ctx := context.Background()
	store := newQueues(t, messages)
	a := newAccount(t, store)
	run := ""
	if c.prepare != nil {
		run = c.prepare(t, a)
	}
	seen := 0
	a.Store = &tap{Store: store, after: func(o string) error {
		if o == operation {
			seen++
			if seen == nth+1 {
				return errNoAnswer
			}
		}
		return nil
	}}
	p := mustPlan(t)(c.plan(ctx, a, run))
	if p.Total+p.Hidden != messages {
		t.Errorf("planned %d, hidden %d, want %d together", p.Total, p.Hidden, messages)
	}
	r, err := p.Execute(ctx)
	if err != nil {
		t.Fatalf("execute: %+v, %v", r, err)
	}
	advance(leasesEnd)
	if !r.Finished() {
		if r, err = a.Resume(ctx, r.Run); err != nil || !r.Finished() {
			t.Fatalf("resume: %+v, %v", r, err)
		}
	}
	if len(hidden(store, poisonQueue)) > 0 {
		t.Error("messages are hidden after all leases have ended")
	}
	left := 0
	if c.from != "" {
		left = len(store.All(c.from))
	}
	if left != r.Skipped+p.Hidden {
		t.Errorf("%d are left on %s: hidden %d, %+v", left, c.from, p.Hidden, r)
	}
	if c.to == "" {
		return
	}
	if there := calls(store, c.from, c.to); len(there) != messages {
		t.Errorf("%d of %d messages exist", len(there), messages)
	}
	if more := len(store.All(c.to)) - r.Done; more > r.Twice || r.Twice > 1 {
		t.Errorf("%d more than were moved: %+v", more, r)
	}
}

// TestStorageAway checks that a run ends with an error if storage is unavailable for longer than the retries last,
// and can be resumed later.
func TestStorageAway(t *testing.T) {
	for _, operation := range []string{"put", "delete"} {
		t.Run(operation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueues(t, 20)
				a := newAccount(t, store)
				n := 0
				a.Store = &tap{Store: store, before: func(o string) error {
					if o != operation {
						return nil
					}
					if n++; n > 5 {
						return errNoAnswer
					}
					return nil
				}}
				p := mustPlan(t)(a.PlanMove(t.Context(), poison.Source{}, poison.Move{To: parking, Create: true}))
				r, err := p.Execute(context.Background())
				if !errors.Is(err, errNoAnswer) || r.Finished() {
					t.Fatalf("%+v, %v", r, err)
				}
				a.Store = store
				advance(leasesEnd)
				if r, err = a.Resume(t.Context(), r.Run); err != nil || !r.Finished() || r.Done != 20 {
					t.Fatalf("%+v, %v", r, err)
				}
				if there := calls(store, parking); len(there) != 20 || len(store.All(poisonQueue)) > 0 {
					t.Errorf("%d arrived, %d are left", len(there), len(store.All(poisonQueue)))
				}
			})
		})
	}
}
