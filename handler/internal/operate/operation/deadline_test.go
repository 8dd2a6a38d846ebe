package operation_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

const day = 24 * time.Hour

// appRules are the limits of the app in these tests. The commands run with the limits of an environment that
// allows less.
var appRules = decision.Rules{Expiration: 20 * day, MaxDeadline: 90 * day}

// TestExpediteKeepsDeadline: the handler gives up an expedited message when it would have given it up before,
// although the environment of the command has shorter limits.
func TestExpediteKeepsDeadline(t *testing.T) {
	native := func(members string) string {
		return `{"asyncCaller":1,"requestId":"x","call":{"url":"https://t.example/"}` + members + `}`
	}
	at := func(name string, d time.Duration) string {
		return fmt.Sprintf(`,%q:%q`, name, time.Now().Add(d).UTC().Format(time.RFC3339))
	}
	for name, content := range map[string]func() string{
		"far_deadline": func() string {
			return native(at("createdAt", -50*day) + at("deadline", 30*day) + at("nextAttemptAt", later))
		},
		"no_deadline": func() string { return native(at("createdAt", -10*day) + at("nextAttemptAt", later)) },
		"not_before":  func() string { return native(at("createdAt", -day) + at("notBefore", 5*day)) },
		// The limit counts from notBefore, and would otherwise be over.
		"not_before_after_long_wait": func() string {
			return native(at("createdAt", -100*day) + at("notBefore", 10*day) + at("deadline", 20*day))
		},
		"nexus":             func() string { return nexusOf(0, later, 2*later) },
		"nexus_long_wait":   func() string { return nexusOf(-100*day, 10*day, 20*day) },
		"nexus_no_deadline": func() string { return nexusOf(-10*day, later, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, store, table := newScheduled(t, 0)
				a.Account.Rules.Decision.Expiration, a.Account.Rules.Decision.MaxDeadline = day, 2*day
				open := func(content []byte) *envelope.Envelope {
					return appRules.Open(content, "id", storage.Base64.MaxContentBytes(), time.Now()).Envelope
				}
				before := open([]byte(content()))
				want := before.GiveUpAt(appRules.Expiration)
				row := schedule(t, store, table, []byte(content()), later)
				row.Deadline = want // as the handler records it
				if err := rows.Put(t.Context(), table, row); err != nil {
					t.Fatal(err)
				}
				if r := execute(t, mustPlan(t)(planExpedite(t.Context(), a, journal.Pace{}))); r.Done != 1 {
					t.Fatalf("%+v", r)
				}
				after := open(a.Account.Rules.Content(store.All(mainQueue)[0].Text))
				if got := after.GiveUpAt(appRules.Expiration); got.Sub(want).Abs() > time.Second {
					t.Errorf("deadline %v, want %v", got, want)
				}
				if after.DueAt().After(time.Now()) || after.Attempts != before.Attempts {
					t.Errorf("due at %v, now is %v, %d attempts", after.DueAt(), time.Now(), after.Attempts)
				}
			})
		})
	}
}

// TestKeepKeepsDeadline: keep shortens no deadline, and refuses none.
func TestKeepKeepsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 0)
		a := newAccount(t, store)
		a.Account.Rules.Decision.MaxDeadline = 2 * day
		deadline := time.Now().Add(30 * day).UTC().Truncate(time.Second)
		put(t, store, poisonQueue, storage.Base64.Encode(fmt.Appendf(nil,
			`{"asyncCaller":1,"requestId":"x","call":{"url":"https://t.example/"},"createdAt":%q,"deadline":%q}`,
			time.Now().Add(-50*day).UTC().Format(time.RFC3339), deadline.Format(time.RFC3339))), week)
		keep(t, operation.NewKeeper(a.Account, []string{poisonQueue}), 1)
		e, err := envelope.Parse(a.Account.Rules.Content(store.All(poisonQueue)[0].Text))
		if err != nil || !e.Deadline.Equal(deadline) {
			t.Errorf("deadline %v, want %v; %v", e.Deadline, deadline, err)
		}
	})
}
