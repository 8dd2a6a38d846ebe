package operation_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// downRow records that the circuit breaker of a host was open.
func downRow(t *testing.T, table storage.Table, id, host string, due time.Duration) {
	t.Helper()
	row := record.Scheduled{
		Key:        storage.Key{Partition: mainQueue, ID: id},
		PopReceipt: "x", RequestID: id, TargetHost: host, Reason: "target_down", NextAttemptAt: time.Now().Add(due),
		Content: []byte(`{"asyncCaller":1,"call":{"url":"https://` + host + `/"}}`),
	}
	if err := rows.Put(t.Context(), table, row); err != nil {
		t.Fatal(err)
	}
}

// downWarnings returns the warnings of a plan about circuit breakers.
func downWarnings(p *operation.Plan) (all []operation.Warning) {
	for _, w := range p.Warnings {
		if strings.Contains(w.Why, "circuit breaker") {
			all = append(all, w)
		}
	}
	return all
}

// TestExpediteWhileDown: the plan says before it is confirmed that calls to a target that is down are not made at once.
func TestExpediteWhileDown(t *testing.T) {
	for name, test := range map[string]struct {
		host string
		due  time.Duration
		off  bool
		want bool
	}{
		"down":        {host: "T.example", due: 10 * time.Minute, want: true},
		"other_host":  {host: "other.example", due: 10 * time.Minute},
		"long_ago":    {host: "t.example", due: -time.Hour},
		"breaker_off": {host: "t.example", due: 10 * time.Minute, off: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, _, table := newScheduled(t, 3)
				if test.off {
					a.Account.Rules.Decision.Profiles = mustProfiles(t, `{"t.example":{"breaker":"off"}}`)
				}
				selected := allRows(t, table)[:2]
				at := time.Now()
				downRow(t, table, "down", test.host, test.due)
				advance(time.Minute)
				p := mustPlan(t)(a.PlanExpedite(t.Context(), byID(selected[0].ID, selected[1].ID), journal.Pace{}))
				defer p.Discard(t.Context())
				all := downWarnings(p)
				if (len(all) == 1) != test.want {
					t.Fatalf("%+v", p.Result)
				}
				if !test.want {
					return
				}
				for _, want := range []string{
					"of t.example (" + at.UTC().Format(time.RFC3339) + ") was open",
					"15m0s",
				} {
					if !strings.Contains(all[0].Why, want) {
						t.Errorf("%q does not say %q", all[0].Why, want)
					}
				}
				if all[0].Count != 2 || all[0].Messages[0].ID != selected[0].ID {
					t.Errorf("%+v", all[0])
				}
				cancel := mustPlan(t)(a.PlanCancel(t.Context(), byID(selected[0].ID), false))
				defer cancel.Discard(t.Context())
				if len(downWarnings(cancel)) > 0 {
					t.Errorf("cancel: %+v", cancel.Result)
				}
			})
		})
	}
}

// TestExpediteManyDown: a plan names the circuit breakers of few of many targets.
func TestExpediteManyDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, table := newScheduled(t, 0)
		for n := range 500 {
			downRow(t, table, fmt.Sprintf("id%d", n), fmt.Sprintf("h%03d.example", n), time.Minute)
		}
		p := mustPlan(t)(planExpedite(t.Context(), a, journal.Pace{}))
		defer p.Discard(t.Context())
		all := downWarnings(p)
		if len(all) != 1 || all[0].Count != 500 || len(all[0].Messages) > 20 || len(all[0].Why) > 500 ||
			!strings.Contains(all[0].Why, "and 497 more") {
			t.Errorf("%+v", all)
		}
	})
}

func mustProfiles(t *testing.T, content string) targets.Profiles {
	t.Helper()
	profiles, err := targets.Parse([]byte(content), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return profiles
}
