package capacity

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// rows are the report's rows by group and label, figures and reasons in one line each.
func rows(a Answer) map[string]string {
	all := map[string]string{}
	for _, group := range Report(a) {
		for _, row := range group.Rows {
			all[group.Titles[0]+"/"+row.Label] = strings.Join(append(slices.Clone(row.Figures), row.Why), " | ")
		}
	}
	return all
}

func TestReport(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Question)
		want   map[string]string // "" must not be there
	}{
		"plain": {nil, map[string]string{
			"under way/attempts":                   "500 /s | each call is made once",
			"under way/in flight":                  "1,005 | attempts a second x how long each is held (Little's law)",
			"under way/waiting":                    "",
			"under way/given up":                   "",
			"one instance, one queue/surely":       "4.47 /s | 9 are in flight at least, except while it receives",
			"what it takes/instances":              "70 | they surely make 625 attempts a second",
			"storage transactions/sender's puts":   "1,000,000 | 1,314,000,000 | one a call",
			"storage transactions/reschedules":     "",
			"storage transactions/lease renewals":  "0 | 0 | the host's, after 5 minutes: none",
			"a million calls cost/after 3 retries": "8,250,000 | 12,000,000 | puts 1, ours 3, deletes 4, gets 4/16 to 4",
		}},
		"failing": {func(q *Question) { q.Failing = 0.5 }, map[string]string{
			"under way/attempts":                "969 /s | 1.94 a call: 50% fail and are rescheduled by policy test",
			"under way/waiting":                 "5,000 | messages that are rescheduled and not due yet",
			"under way/given up":                "15.6 /s | fail at the last attempt that policy and deadline allow",
			"storage transactions/reschedules":  "937,500 | 1,231,875,000 | ours, one a failed attempt",
			"storage transactions/dead letters": "31,250 | 41,062,500 | ours, one a call that is given up",
		}},
		"not_surely": {func(q *Question) { q.Instances = 50 }, map[string]string{
			"what it takes/instances": "50 | they surely make 447 attempts a second: NOT SURELY ENOUGH",
		}},
		"too_few": {func(q *Question) { q.Instances = 5 }, map[string]string{
			"what it takes/instances": "5 | they surely make 44.7 attempts a second: NOT ENOUGH",
		}},
		"large": {func(q *Question) { q.Rate, q.MessageBytes = 100, 48<<10 }, map[string]string{
			"what it takes/if size does not count": "1 | Azure speaks of 1 KiB only; above, each KiB counts",
			"what it takes/message":                "64 KiB | on the queue, of 64 KiB at most",
		}},
		"one_queue": {func(q *Question) { q.Queues, q.Rate = 1, 1000 }, map[string]string{
			"what it takes/queues": "1 | each takes 5,046 of 2,000 messages a second: NOT ENOUGH",
		}},
		"two_accounts": {func(q *Question) { q.Rate, q.Latency = 5000, 10*time.Millisecond }, map[string]string{
			"what it takes/instances of each app": "2 | they surely make 8,429 attempts a second",
		}},
		"outage": {func(q *Question) { lean(q); q.Outage = time.Minute }, map[string]string{
			"outage of 1m/attempts in vain":     "3.08 a call | on average, if made on time by policy test",
			"outage of 1m/given up":             "",
			"outage of 1m/instances for that":   "1 | so the planned ones keep up",
			"after the outage/worked off after": "40s | then all is as before",
		}},
		"long_outage": {func(q *Question) { lean(q); q.Outage, q.FailingLatency = time.Hour, 100*time.Second }, map[string]string{
			"outage of 1h/given up":           "17,625 | their policy or deadline ends before the outage",
			"outage of 1h/instances for that": "278 | with 1 they come late; nothing is lost",
		}},
		"forever": {func(q *Question) { q.Instances, q.Outage = 10, time.Minute }, map[string]string{
			"after the outage/worked off after": "never | what is due and finds no place grows and grows",
			"after the outage/due at a time":    "",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := rows(mustPlan(t, question(test.change)))
			for label, want := range test.want {
				if got[label] != want {
					t.Errorf("%s: %q, want %q", label, got[label], want)
				}
			}
		})
	}
}
