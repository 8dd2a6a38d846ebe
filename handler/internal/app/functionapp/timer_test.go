package functionapp_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/app/functionapp"
)

// validTimer is the valid binding of a timer function.
const validTimer = `{"type":"timerTrigger","direction":"in","name":"timer","schedule":"0 0 * * * *"}`

// timer returns a valid app with a timer function Clock, with a text of its binding replaced.
func timer(t *testing.T, old, replacement string) files {
	t.Helper()
	return app(files{"Clock/function.json": function(mustReplace(t, validTimer, old, replacement))})
}

// described is a timer in a form that tests can compare.
type described struct {
	Name, Binding, Schedule string
	RunOnStartup            bool
}

func describe(timers []functionapp.Timer) (all []described) {
	for _, timer := range timers {
		all = append(all, described{timer.Name, timer.Binding, timer.Schedule, timer.RunOnStartup})
	}
	return all
}

func TestTimers(t *testing.T) {
	const rest = `"direction":"in","name":"timer","schedule":"0 0 * * * *"`
	valid := []described{{"Clock", "timer", "0 0 * * * *", false}}
	for name, test := range map[string]struct {
		files files
		want  []described
	}{
		"valid": {app(files{"Clock/function.json": function(validTimer)}), valid},
		"any_case": {
			app(files{"Clock/function.json": `{"Bindings":[{"Type":"TIMERTRIGGER",` + rest + `}]}`}),
			valid,
		},
		"comments":        {app(files{"Clock/function.json": "// every hour\n" + function(validTimer)}), valid},
		"monitor_ignored": {timer(t, `"name"`, `"useMonitor":"whatever","name"`), valid},
		"output_beside": {app(files{"Clock/function.json": function(validTimer,
			`{"type":"queue","direction":"out","name":"out"}`)}), valid},
		"not_on_startup": {timer(t, `"name"`, `"runOnStartup":false,"name"`), valid},
		"startup_null":   {timer(t, `"name"`, `"runOnStartup":null,"name"`), valid},
		"on_startup": {
			timer(t, `"name"`, `"RunOnStartup":true,"name"`),
			[]described{{"Clock", "timer", "0 0 * * * *", true}},
		},
		"interval": {timer(t, "0 0 * * * *", "00:05:00"), []described{{"Clock", "timer", "00:05:00", false}}},
		"setting": {
			timer(t, "0 0 * * * *", "%EVERY%"),
			[]described{{"Clock", "timer", "0 */7 * * * *", false}},
		},
		"setting_in_part": {
			timer(t, "0 0 * * * *", "0 %minute% * * * *"),
			[]described{{"Clock", "timer", "0 42 * * * *", false}},
		},
		"disabled": {
			app(files{"Clock/function.json": `{"disabled":true,"bindings":[` + validTimer + `]}`}),
			nil,
		},
		"disabled_broken": {
			app(files{"Clock/function.json": `{"disabled":true,"bindings":[{"type":"timerTrigger"}]}`}),
			nil,
		},
		"ordered": {
			app(files{"Zebra/function.json": function(validTimer), "Alpha/function.json": function(validTimer)}),
			[]described{{"Alpha", "timer", "0 0 * * * *", false}, {"Zebra", "timer", "0 0 * * * *", false}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			loaded := test.files.mustLoad(t, "EVERY=0 */7 * * * *", "MINUTE=42")
			if diff := cmp.Diff(test.want, describe(loaded.Timers)); diff != "" {
				t.Errorf("timers (-want +got):\n%s", diff)
			}
			if len(loaded.Functions) != 1 || loaded.Functions[0].Name != "Work" {
				t.Errorf("queue functions are %+v, want Work", loaded.Functions)
			}
		})
	}
}

func TestTimerProblems(t *testing.T) {
	http := `{"type":"httpTrigger","direction":"in","name":"req"}`
	for name, test := range map[string]struct {
		files files
		want  []string
	}{
		"schedule_missing": {
			timer(t, `,"schedule":"0 0 * * * *"`, ``),
			[]string{"Clock/function.json: ", `schedule ""`, "5 or 6"},
		},
		"schedule_blank": {
			timer(t, "0 0 * * * *", "  "),
			[]string{"Clock/function.json: ", `schedule "  "`, "5 or 6"},
		},
		"setting_unset": {
			timer(t, "0 0 * * * *", "%EVERY%"),
			[]string{"Clock/function.json: ", `schedule "%EVERY%"`, "EVERY is not set"},
		},
		"setting_open": {timer(t, "0 0 * * * *", "%EVERY"), []string{"Clock/function.json: ", "no closing %"}},
		"startup_text": {
			timer(t, `"name"`, `"runOnStartup":"yes","name"`),
			[]string{"Clock/function.json: ", `runOnStartup is "yes"`, "true or false"},
		},
		"startup_number": {
			timer(t, `"name"`, `"runOnStartup":1,"name"`),
			[]string{"Clock/function.json: ", `runOnStartup is "1"`},
		},
		"binding_missing": {
			timer(t, `"name":"timer",`, ``),
			[]string{"Clock/function.json: ", `binding name ""`, `"timer"`},
		},
		"binding_dash": {
			timer(t, `"timer"`, `"my-timer"`),
			[]string{"Clock/function.json: ", `binding name "my-timer"`},
		},
		"retry": {app(files{"Clock/function.json": `{"retry":{"strategy":"fixedDelay"},"bindings":[` + validTimer +
			`]}`}), []string{"Clock/func" +
			"tion.json: retry: remove it", "next time"}},
		"two_triggers": {
			app(files{"Clock/function.json": function(validTimer, http)}),
			[]string{"Clock/function.json: ", "2 triggers", "exactly one"},
		},
		"two_timers": {
			app(files{"Clock/function.json": function(validTimer, validTimer)}),
			[]string{"Clock/function.json: ", "2 triggers"},
		},
		"queue_and_timer": {
			app(files{"Work/function.json": function(validTrigger, validTimer)}),
			[]string{"Work/function.json: ", "2 triggers"},
		},
		"folder_dot": {
			app(files{"My.Clock/function.json": function(validTimer)}),
			[]string{"My.Clock/function.json: ", "folder's name"},
		},
		"folder_host": {
			app(files{"host/function.json": function(validTimer)}),
			[]string{"host/function.json: ", "not host"},
		},
		"timers_only": {
			app(files{"Work/function.json": "", "Clock/function.json": function(validTimer)}),
			[]string{"queueTrigger", "exactly one " +
				"level below host.json"},
		},
		"everything_at_one": {app(files{"My.Clock/function.json": function(`{"type":"timerTrigger","name":"a_b",` +
			`"schedule":"","runOnStartu` +
			`p":[]}`)}), []string{"folder's name", "binding name", "schedule", "runOnStartup"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := functionapp.Load(test.files.write(t),
				[]string{setting("AzureWebJobsStorage", "AccountKey="+canary)})
			wantProblem(t, err, test.want...)
		})
	}
}

// An invalid timer does not hide the queue functions.
func TestTimerProblemLeavesTheRest(t *testing.T) {
	loaded, err := functionapp.Load(timer(t, "0 0 * * * *", "").write(t), nil)
	wantProblem(t, err, "Clock/function.json: ")
	if loaded == nil || len(loaded.Functions) != 1 || len(loaded.Timers) != 0 {
		t.Errorf("got %+v, want Work alone", loaded)
	}
}

// The shipped keeper runs every full hour, the monitor every full minute.
func TestProjectsOwnTimers(t *testing.T) {
	shipped := files{}
	for _, name := range []string{"AC-monitor", "AC-poison-keeper"} {
		path := name + "/function.json"
		shipped[path] = mustRead(t, "../../../../functions/"+path)
	}
	want := []described{
		{"AC-monitor", "timer", "0 * * * * *", false},
		{"AC-poison-keeper", "timer", "0 0 * * * *", false},
	}
	if diff := cmp.Diff(want, describe(app(shipped).mustLoad(t).Timers)); diff != "" {
		t.Fatalf("timers (-want +got):\n%s", diff)
	}
}
