package call

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage/memory"
)

func TestAttempts(t *testing.T) {
	for want, a := range map[string]history.Attempt{
		"answered 503, took 12ms": {Status: 503, TookMs: 12}, "dns, took 0s": {Error: "dns"},
		"answered 200, body_cut, took 0s": {Status: 200, Error: "body_cut"}, "no answer, took 0s": {},
	} {
		events := finding{trail: []history.Attempt{a}}.attempts()
		if len(events) != 1 || events[0].Text != want || !events[0].At.IsZero() {
			t.Errorf("%+v, want %q", events, want)
		}
	}
}

// at returns a time of a test, seconds after its beginning.
func at(seconds float64) time.Time {
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

// attemptsAt returns a trail.
func attemptsAt(times ...time.Time) (trail []history.Attempt) {
	for _, at := range times {
		trail = append(trail, history.Attempt{At: at, Status: 503})
	}
	return trail
}

// created returns what a message with these attempts says that was created at second 0.9.
func created(state string, trail []history.Attempt) finding {
	f := finding{trail: trail}
	f.State, f.CreatedAt, f.Attempts = state, at(0.9), len(trail)
	f.Queue, f.Reason = "q", "rejected"
	return f
}

func queued(state string, gaveUp, inserted time.Time, trail ...history.Attempt) finding {
	f := created(state, trail)
	f.Since, f.InsertedAt, f.queued = gaveUp, inserted, &account.Found{}
	return f
}

func scheduled(due time.Time, trail ...history.Attempt) finding {
	f := created(StateScheduled, trail)
	f.NextAttemptAt, f.row = due, &record.Row{}
	return f
}

func ended(id, action string, end time.Time, trail ...history.Attempt) finding {
	return newEnd(history.Entry{
		RequestID: id, CreatedAt: at(0.9), EndedAt: end, Trail: trail, Attempts: len(trail), Action: action,
		Reason: "rejected",
	})
}

// TestTimelineOrder: a cause is before its effect, although clocks differ and that of storage has whole seconds.
func TestTimelineOrder(t *testing.T) {
	run := func(at time.Time) operation.Handled { return operation.Handled{Command: "requeue", At: at} }
	for name, test := range map[string]struct {
		call    Call
		handled []operation.Handled
		want    string
	}{
		"written_in_the_same_second": {
			call: Call{finding: queued(StatePoison, at(0.99), at(0), attemptsAt(at(0.95))...)},
			want: "created attempt dead_letter written",
		},
		"clock_of_storage_behind": {
			call: Call{finding: queued(StatePoison, at(20.5), at(10), attemptsAt(at(20), at(20.4))...)},
			want: "created attempt attempt dead_letter written",
		},
		"unknown_times": {
			call: Call{finding: scheduled(at(100), attemptsAt(time.Time{}, at(10), time.Time{})...)},
			want: "created attempt attempt attempt next_attempt",
		},
		"ended_before_its_attempt": {
			call: Call{finding: ended("r", "finish", at(5), attemptsAt(at(5.01))...)},
			want: "created attempt ended",
		},
		"callback_in_the_second_of_the_end": {
			call: Call{
				finding:   ended("r", "callback", at(5.5), attemptsAt(at(5))...),
				callbacks: []finding{queued(StateQueued, at(5), at(5))},
			},
			want: "created attempt ended callback",
		},
		"callback_ended_by_another_clock": {
			call: Call{
				finding: ended("r", "callback", at(5.5), attemptsAt(at(5))...),
				ends:    []finding{ended("r.callback", "finish", at(4))},
			},
			want: "created attempt ended callback",
		},
		"requeued_in_the_second_of_the_end": {
			call: Call{
				finding: finding{Summary: Summary{Message: queued(StateQueued, at(5), at(5)).Message}},
				ends:    []finding{ended("r", "dead_letter", at(5.5), attemptsAt(at(5))...)},
			},
			handled: []operation.Handled{run(at(5))}, want: "created attempt dead_letter run written",
		},
		"two_runs": {
			call: Call{finding: queued(StateQueued, at(90), at(90))}, handled: []operation.Handled{
				run(at(90)), run(at(20)),
			},
			want: "created waited run run written",
		},
		"once": {
			call: Call{
				finding: queued(StatePoison, at(9), at(9), attemptsAt(at(5))...),
				ends:    []finding{ended("r", "callback", at(7), attemptsAt(at(5))...)},
			},
			want: "created attempt ended written",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := test.call
			if c.end != nil {
				c.ends = append([]finding{c.finding}, c.ends...)
			}
			var kinds []string
			for _, e := range timeline(c, test.handled, at(100)) {
				kinds = append(kinds, e.Event)
			}
			if got := strings.Join(kinds, " "); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// TestWait: a long time without a recorded call is an event, with its reason as far as it is known.
func TestWait(t *testing.T) {
	expired := queued(StatePoison, at(296.9), at(297))
	expired.Reason, expired.Detail = "expired", "target_down"
	rejected := expired
	rejected.Detail = "status 503"
	paused := scheduled(at(500))
	paused.Reason = "paused"
	unseen := paused
	unseen.State, unseen.NextAttemptAt = StateUnseen, at(296.9)
	notBefore := expired
	notBefore.notBefore = at(280)
	lost := expired
	lost.Attempts = 3
	unknown := queued(StateQueued, at(200), at(200))
	unknown.CreatedAt = time.Time{}
	hostile := scheduled(at(500))
	hostile.Reason = "\x1b[2J"
	const waited = "waited 4m56s without a recorded call: "
	for name, test := range map[string]struct {
		f    finding
		want string
	}{
		"expired":       {expired, waited + "latest reason target_down"},
		"rejected":      {rejected, waited + "reason unknown"},
		"paused":        {paused, waited + "latest reason paused"},
		"unseen":        {unseen, waited + "latest reason paused"},
		"hostile":       {hostile, waited + "latest reason \ufffd[2J"},
		"queued":        {queued(StateQueued, at(1), at(1)), waited + "reason unknown"},
		"then_called":   {scheduled(at(500), attemptsAt(at(296.9), at(299))...), waited + "reason unknown"},
		"ended":         {ended("r", "dead_letter", at(296.9)), waited + "reason unknown"},
		"short":         {scheduled(at(500), attemptsAt(at(30.8))...), ""},
		"not_before":    {notBefore, ""},
		"lost_attempts": {lost, ""},
		"unknown_begin": {unknown, ""},
		"unknown_time":  {scheduled(at(500), attemptsAt(time.Time{})...), ""},
	} {
		events := test.f.wait(at(296.9))
		got := ""
		if len(events) > 0 {
			got = events[0].Text
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if got != "" && (events[0].TookMs != 296_000 || !events[0].At.Equal(at(0.9))) {
			t.Errorf("%s: %+v", name, events[0])
		}
	}
}

// TestJoinCalls checks which messages and ends are calls, in their order.
func TestJoinCalls(t *testing.T) {
	rules := newAccount(t, memory.New()).Rules
	letter := func(id string, number int) finding {
		return newQueued(rules, account.Found{
			Message: message.Message{ID: fmt.Sprint("m", number), RequestID: id, Format: envelope.FormatNative},
			Content: []byte(tracedEnvelope(id, number, "")),
		}, StatePoison, at(0))
	}
	end := func(id string, number int, seconds float64) finding {
		f := ended(id, "callback", at(seconds))
		f.trace = fmt.Sprintf("%032x", number)
		if number == 0 {
			f.trace = ""
		}
		f.ID = fmt.Sprint("e", seconds)
		return f
	}
	for name, test := range map[string]struct {
		messages, ends []finding
		want           string
	}{
		"newest_first": {ends: []finding{end("r", 1, 1), end("r", 2, 2)}, want: "e2+1 e1+1"},
		"callback_does_not_count": {
			ends: []finding{end("r", 1, 1), end("r", 2, 2), end("r.callback", 1, 9)}, want: "e2+1 e1+2",
		},
		"only_callback":    {ends: []finding{end("r.callback", 1, 9)}, want: "e9+1"},
		"one_trace":        {ends: []finding{end("r", 1, 1), end("r", 1, 2)}, want: "e2+2"},
		"no_trace":         {ends: []finding{end("r", 0, 1), end("r", 0, 2)}, want: "e2+1 e1+1"},
		"other_id":         {ends: []finding{end("other", 1, 1)}},
		"trace_of_a_named": {ends: []finding{end("other", 1, 2), end("r", 1, 1)}, want: "e2+2"},
		"copies": {
			messages: []finding{letter("r", 1), letter("r", 1)}, ends: []finding{end("r", 1, 1)}, want: "m1+1 m1+1",
		},
		"callback": {
			messages: []finding{letter("r.callback", 1)}, ends: []finding{end("r", 1, 1)}, want: "e1+1+callback",
		},
		"callback_of_another": {
			messages: []finding{letter("r.callback", 2)}, ends: []finding{end("r", 1, 1)}, want: "m2+0 e1+1",
		},
	} {
		var got []string
		for _, c := range joinCalls(test.messages, test.ends, "r") {
			text := fmt.Sprintf("%s+%d", c.ID, len(c.ends))
			if len(c.callbacks) > 0 {
				text += "+callback"
			}
			got = append(got, text)
		}
		if joined := strings.Join(got, " "); joined != test.want {
			t.Errorf("%s: %s, want %s", name, joined, test.want)
		}
	}
}
