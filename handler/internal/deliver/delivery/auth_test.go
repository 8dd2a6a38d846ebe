package delivery_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/gates/credential"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
)

// TestNoToken: a message without a token for its target is rescheduled without a call. Its cause is that of its target,
// until a call succeeds. It comes back before its deadline, as long as there is time.
func TestNoToken(t *testing.T) {
	const cause = "no token: invalid_client, status 401 (login.example)"
	for name, row := range map[string]struct {
		members string
		action  decision.Action
		reason  decision.Reason
		detail  string
		delay   time.Duration
	}{
		"usual": {"", decision.Reschedule, decision.Auth, cause, 7500 * time.Millisecond},
		"before_its_deadline": {
			`,"deadline":"2000-01-01T00:00:15Z"`, decision.Reschedule, decision.Auth, cause, 5 * time.Second,
		},
		"last_attempt": {
			`,"deadline":"2000-01-01T00:00:05Z"`, decision.Reschedule, decision.Auth, cause, 1500 * time.Millisecond,
		},
		"deadline": {`,"deadline":"2000-01-01T00:00:01Z"`, decision.DeadLetter, decision.Expired, "auth", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, closeTables := watch(t, answers(decision.Outcome{Status: 200}))
				defer closeTables()
				profiles, err := targets.Parse([]byte(`{"target.example":{"auth":{"oauth2":{"tokenUrl":`+
					`"https://login.example/t","clientId":"c","clientSecret":"$S"}}}}`), nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				w.Rules.Profiles = profiles
				var problem error = &credential.ProblemError{Text: "invalid_client, status 401", ByOperator: true}
				w.Credentials = credential.New(credential.Config{
					Fetch: func(context.Context, targets.Credential) (credential.Token, error) {
						return credential.Token{Value: "token", End: time.Now().Add(time.Hour)}, problem
					},
					Now: time.Now, Random: func() float64 { return 0.5 }, Log: zerolog.Nop(),
				})
				r := w.Deliver(w.ctx, on(mainQueue, fmt.Sprintf(plain, `,"attempts":3`+row.members)))
				if r.Action != row.action || r.Reason != row.reason || r.Delay != row.delay || r.Detail != row.detail {
					t.Errorf("%s, %s in %v: %s", r.Action, r.Reason, r.Delay, r.Detail)
				}
				if r.State.Attempts != 3 || r.Attempt != 0 || len(w.target.calls) > 0 {
					t.Errorf("%d attempts, %d calls", r.State.Attempts, len(w.target.calls))
				}
				<-time.After(2 * time.Second)
				want := "[target.example:8443 auth " + cause + ` "" open false]`
				if failing := fmt.Sprint(w.failing(t)); failing != want {
					t.Errorf("failing %s, want %s", failing, want)
				}
				for range 5 { // until the delay is long enough to be recorded
					<-time.After(time.Minute)
					w.deliver(fmt.Sprintf(plain, ""))
				}
				if row := w.row(t); row.Reason != "auth" || row.Cause != cause {
					t.Errorf("the message has %q for %s", row.Cause, row.Reason)
				}
				problem = nil
				<-time.After(15 * time.Minute)
				w.deliver(fmt.Sprintf(plain, ""))
				if failing := w.failing(t); len(w.target.calls) != 1 || len(failing) > 0 {
					t.Errorf("%d calls, failing %q", len(w.target.calls), failing)
				}
			})
		})
	}
}
