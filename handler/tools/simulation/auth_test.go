package simulation

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/gates/credential"
	"asynccaller/handler/internal/rules/targets"
)

// TestTokenServerDown: a token server is down for an hour, while calls wait for it. They lose no attempt, and come back
// spread. docs/performance.md quotes the figures.
func TestTokenServerDown(t *testing.T) {
	t.Parallel()
	a := newApp(shipped, 1)
	profiles, err := targets.Parse([]byte(`{"api.example":{"auth":{"managedIdentity":"api://orders"}}}`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	a.rules.Profiles = profiles
	now := func() time.Time { return begin.Add(a.now) }
	requests := 0
	store := credential.New(credential.Config{
		Fetch: func(context.Context, targets.Credential) (credential.Token, error) {
			requests++
			if a.now < time.Hour {
				return credential.Token{}, errors.New("down")
			}
			return credential.Token{Value: "token", End: now().Add(time.Hour)}, nil
		},
		Now: now, Random: a.random.Float64, Log: zerolog.Nop(),
	})
	for _, i := range a.instances {
		i.gates = slices.Insert(i.gates, 2, delivery.Gate(store))
	}
	x := a.target("api", answers(200, quick))
	x.send(20_000, 0, time.Hour, 0)
	a.run(24 * time.Hour)
	mustDeliver(t, x)
	drain := x.last() - time.Hour
	t.Logf("%d token requests, %.2f reschedules a call; after the return at most %d calls a second, the last after %v",
		requests, x.mean(), x.peak(time.Hour), drain.Round(time.Second))
	switch {
	case x.failed > 0:
		t.Errorf("%d attempts failed", x.failed)
	case requests > 20:
		t.Errorf("%d token requests", requests)
	case x.peak(time.Hour) > 100 || drain > 31*time.Minute:
		t.Error("the calls do not come back spread, or too late")
	}
	for _, i := range x.reschedules {
		if i > 30 {
			t.Fatalf("a call was rescheduled %d times", i)
		}
	}
}
