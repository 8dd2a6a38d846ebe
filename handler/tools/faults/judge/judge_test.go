package judge_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/tools/faults/judge"
	"asynccaller/handler/tools/faults/schedule"
)

// story returns the events of message m that the lines describe, one a second.
func story(lines ...string) (events []judge.Event) {
	received := map[string]int64{}
	for i, line := range lines {
		at := time.Duration(i) * time.Second
		word := strings.Fields(line)
		e := judge.Event{At: at, ID: "m"}
		switch word[0] {
		case "leased", "deleted", "updated", "wrote":
			e.Kind = map[string]judge.Kind{
				"leased": judge.Leased, "deleted": judge.Deleted, "updated": judge.Updated, "wrote": judge.Wrote,
			}[word[0]]
			e.Message = word[1]
			if e.Kind == judge.Leased {
				received[e.Message]++
				e.DequeueCount = received[e.Message]
			}
			if strings.HasPrefix(e.Message, "callback") {
				e.ID += schedule.CallbackSuffix
			}
		case "moved":
			e.Kind = judge.Moved
		case "kept": // kept [callback]
			e.Kind = judge.Kept
			if len(word) > 1 {
				e.ID += schedule.CallbackSuffix
			}
		case "called": // called <attempt> <answer>
			e.Kind, e.Attempt = judge.Called, int(word[1][0]-'0')
			e.Answer = strings.Join(word[2:], " ")
		case "reported": // reported <status>
			e.Kind, e.Attempt, e.Answer, e.ID = judge.Called, 1, "200", "m"+schedule.CallbackSuffix
			e.Reported = schedule.Status(word[1])
		case "killed":
			e.Kind, e.ID, e.Cause, e.Until = judge.Disturbed, "", judge.HandlerKilled, at
		case "host_killed":
			e.Kind, e.ID, e.Cause, e.Until = judge.Disturbed, "", judge.HostKilled, at
		case "held": // held <seconds>
			seconds, _ := time.ParseDuration(word[1] + "s")
			e.Kind, e.ID, e.Until = judge.Held, "", at+seconds
		case "stranger":
			e.Kind, e.ID = judge.Leased, "x"
		default:
			panic(line)
		}
		events = append(events, e)
	}
	return events
}

var (
	delivered = schedule.Message{ID: "m", Outcome: schedule.Delivered, Answers: []string{"503", "200"}}
	callback  = schedule.Message{
		ID: "m", Outcome: schedule.Delivered, Answers: []string{"200"},
		Callbacks: []string{"200"},
	}
	rejected = schedule.Message{ID: "m", Outcome: schedule.Rejected, Answers: []string{"400"}}
)

// TestJudge: what must be found is found. That the rest is explained shows each run of faults.
func TestJudge(t *testing.T) {
	for name, test := range map[string]struct {
		message     schedule.Message
		events      []judge.Event
		deadLetters []judge.DeadLetter
		left        int
		lost        bool
		unexplained string // a part of the finding; empty if there is none
		repeated    int
	}{
		"as_planned": {
			message: delivered,
			events:  story("leased 1", "called 1 503", "wrote 2", "deleted 1", "leased 2", "called 2 200", "deleted 2"),
		},
		"lost": {
			message: delivered, lost: true,
			events: story("leased 1", "called 1 503", "wrote 2", "deleted 1"),
		},
		"not_called_at_all":  {message: delivered, lost: true},
		"cut_call_is_no_end": {message: delivered, lost: true, events: story("leased 1", "called 2")},
		"unfinished_is_not_lost": {
			message: delivered, left: 1, unexplained: "still on the queues",
			events: story("leased 1"),
		},
		"callback_lost": {
			message: callback, lost: true,
			events: story("leased 1", "called 1 200", "wrote callback"),
		},
		"dead_letter_is_missing": {
			message: rejected, lost: true,
			events: story("leased 1", "called 1 400", "wrote d", "deleted 1"),
		},
		"deleted_before_settled": {
			message: delivered, unexplained: "before anything was settled",
			events: story("leased 1", "called 1 503", "deleted 1", "wrote 2", "leased 2", "called 2 200", "deleted 2"),
		},
		"deleted_before_callback": {
			message: callback, unexplained: "before anything was settled",
			events: story("leased 1", "called 1 200", "deleted 1", "wrote callback", "leased callback", "reported 200",
				"deleted callback"),
		},
		"callback_after_its_row": {
			message: callback, unexplained: "its row says that it was delivered", repeated: 1,
			events: story("leased 1", "called 1 200", "wrote callback", "leased callback", "reported 200",
				"kept callback", "killed", "killed", "killed", "leased callback", "reported 200", "deleted callback",
				"deleted 1"),
		},
		"called_after_its_row": {
			message: delivered, unexplained: "its row says that it was delivered", repeated: 1,
			events: story("leased 1", "called 2 200", "kept", "killed", "killed", "killed", "leased 1", "called 2 200",
				"deleted 1"),
		},
		"unknown_message": {
			message: rejected, unexplained: "nobody sent this message",
			events: story("stranger"), deadLetters: []judge.DeadLetter{{ID: "m", Reason: "rejected"}},
		},
		"repeated_with_no_cause": {
			message: delivered, unexplained: "with no cause", repeated: 1,
			events: story("leased 1", "called 2 200", "leased 1", "called 2 200", "deleted 1"),
		},
		"repeated_after_a_kill": {
			message: delivered, repeated: 1,
			events: story("leased 1", "called 2 200", "killed", "leased 1", "called 2 200", "deleted 1"),
		},
		"killed_too_early": {
			message: delivered, unexplained: "with no cause", repeated: 1,
			events: story("killed", "leased 1", "called 2 200", "leased 1", "called 2 200", "deleted 1"),
		},
		"killed_too_late": {
			message: delivered, unexplained: "with no cause", repeated: 1,
			events: story("leased 1", "called 2 200", "leased 1", "called 2 200", "deleted 1", "killed"),
		},
		"attempt_not_counted": {
			message: delivered, unexplained: "was made 2 times", repeated: 1,
			events: story("leased 1", "called 2 503", "wrote 2", "deleted 1", "leased 2", "called 2 200", "deleted 2"),
		},
		"updated_by_itself": {
			message: delivered, unexplained: "was made 2 times", repeated: 1,
			events: story("host_killed", "leased 1", "called 2", "updated 1", "leased 1", "called 2 200", "deleted 1"),
		},
		"called_with_a_wrong_setting": {
			message: delivered, unexplained: "a setting was wrong",
			events: story("held 1", "leased 1", "called 1 503", "wrote 2", "deleted 1", "held 2", "leased 2",
				"called 2 200", "deleted 2"),
		},
		"reset_and_made_again": {
			message: delivered, unexplained: "was made 2 times", repeated: 1,
			events: story("leased 1", "called 1 reset", "called 1 reset", "wrote 2", "deleted 1", "leased 2",
				"called 2 200", "deleted 2"),
		},
		"a_status_is_not_silent": {
			message: delivered, unexplained: "was made 2 times", repeated: 1,
			events: story("leased 1", "called 1 503", "called 1 503", "wrote 2", "deleted 1", "leased 2",
				"called 2 200", "deleted 2"),
		},
		"written_twice_unexplained": {
			message: delivered, unexplained: "was made 2 times", repeated: 1,
			events: story("leased 1", "wrote 2", "wrote 3", "deleted 1", "leased 2", "called 2 200", "deleted 2",
				"leased 3", "called 2 200", "deleted 3"),
		},
		"callback_reports_other": {
			message: callback, unexplained: "reported 400",
			events: story("leased 1", "called 1 200", "wrote callback", "deleted 1", "leased callback", "reported 400",
				"deleted callback"),
		},
		"callback_and_dead_letter": {
			message: callback, unexplained: "dead letter",
			deadLetters: []judge.DeadLetter{{ID: "m", Reason: "rejected"}},
			events: story("leased 1", "called 1 200", "wrote callback", "deleted 1", "leased callback", "reported 200",
				"deleted callback"),
		},
		"two_dead_letters": {
			message: rejected, unexplained: "has ended 2 times",
			deadLetters: []judge.DeadLetter{{ID: "m", Reason: "rejected"}, {ID: "m", Reason: "rejected"}},
			events:      story("leased 1", "called 1 400", "wrote d", "deleted 1"),
		},
		"dead_for_another_reason": {
			message: rejected, unexplained: `"expired"`,
			deadLetters: []judge.DeadLetter{{ID: "m", Reason: "expired"}},
		},
		"moved_by_host_too_soon": {
			message: delivered, unexplained: `""`, deadLetters: []judge.DeadLetter{{ID: "m"}},
			events: story("leased 1", "moved", "deleted 1"),
		},
		"delivered_and_dead": {
			message: delivered, unexplained: "dead letter",
			deadLetters: []judge.DeadLetter{{ID: "m", Reason: "expired"}},
			events:      story("leased 1", "called 2 200", "deleted 1"),
		},
		"unknown_dead_letter": {
			message: rejected, unexplained: "nobody sent this dead letter",
			deadLetters: []judge.DeadLetter{{ID: "m", Reason: "rejected"}, {ID: "x"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := judge.Judge([]schedule.Message{test.message}, judge.Record{
				Events: test.events, DeadLetters: test.deadLetters, Left: test.left, MaxDequeueCount: 5,
			})
			if got := len(v.Lost) == 1; got != test.lost {
				t.Errorf("lost %v, want %v", v.Lost, test.lost)
			}
			if (len(v.Unexplained) > 0) != (test.unexplained != "") {
				t.Errorf("unexplained %v, want %q", v.Unexplained, test.unexplained)
			}
			if test.unexplained != "" && !slices.ContainsFunc(v.Unexplained,
				func(f judge.Finding) bool { return strings.Contains(f.Text, test.unexplained) }) {
				t.Errorf("unexplained %v, want one that says %q", v.Unexplained, test.unexplained)
			}
			if v.Calls.Repeated+v.Callbacks.Repeated != test.repeated {
				t.Errorf("%d calls and %d callbacks repeated, want %d", v.Calls.Repeated, v.Callbacks.Repeated,
					test.repeated)
			}
		})
	}
}
