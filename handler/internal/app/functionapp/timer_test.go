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
	const hourly = "0 0 * * * *"
	const binding = `{"Type":"TIMERTRIGGER","direction":"in","name":"timer","schedule":"0 0 * * * *"}`
	one := func(schedule string, onStartup bool) []described {
		return []described{{"Clock", "timer", schedule, onStartup}}
	}
	for name, test := range map[string]struct {
		files files
		want  []described
	}{
		"any_case":        {app(files{"Clock/function.json": function(binding)}), one(hourly, false)},
		"monitor_ignored": {timer(t, `"name"`, `"useMonitor":"whatever","name"`), one(hourly, false)},
		"not_on_startup":  {timer(t, `"name"`, `"runOnStartup":false,"name"`), one(hourly, false)},
		"startup_null":    {timer(t, `"name"`, `"runOnStartup":null,"name"`), one(hourly, false)},
		"on_startup":      {timer(t, `"name"`, `"RunOnStartup":true,"name"`), one(hourly, true)},
		"interval":        {timer(t, hourly, "00:05:00"), one("00:05:00", false)},
		"setting":         {timer(t, hourly, "%EVERY%"), one("0 */7 * * * *", false)},
		"setting_in_part": {timer(t, hourly, "0 %minute% * * * *"), one("0 42 * * * *", false)},
		"disabled": {
			app(files{"Clock/function.json": `{"disabled":true,"bindings":[{"type":"timerTrigger"}]}`}), nil,
		},
		"ordered": {
			app(files{"Zebra/function.json": function(validTimer), "Alpha/function.json": function(validTimer)}),
			[]described{{"Alpha", "timer", hourly, false}, {"Zebra", "timer", hourly, false}},
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
