package functionapp_test

import (
	"testing"

	"asynccaller/handler/internal/app/functionapp"
)

// TestWhyIdle: the host runs no queue function if all are disabled or not listed. Names match in any case.
func TestWhyIdle(t *testing.T) {
	const idle = "no queue function runs"
	standard, priority := functionapp.Function{Name: "AC-standard"}, functionapp.Function{Name: "AC-priority01"}
	monitor := []functionapp.Timer{{Name: "AC-monitor"}}
	disabling := func(name string, functions ...functionapp.Function) functionapp.App {
		return functionapp.App{Functions: functions, Timers: monitor, Disabled: []string{name}}
	}
	of := func(functions ...functionapp.Function) functionapp.App {
		return functionapp.App{Functions: functions, Timers: monitor}
	}
	listing := func(name string) functionapp.App {
		both := []functionapp.Function{standard, priority}
		return functionapp.App{Functions: both, Host: functionapp.Host{AllowList: []string{name}}}
	}
	const byName, other = "AzureWebJobs.AC-standard.Disabled=", "AzureWebJobs.AC-priority01.Disabled="
	for name, test := range map[string]struct {
		app     functionapp.App
		environ []string
		want    string
	}{
		"none_stopped":    {of(standard, priority), nil, ""},
		"one_disabled":    {of(standard, priority), []string{byName + "true"}, ""},
		"timer_disabled":  {of(standard), []string{"AzureWebJobs.AC-monitor.Disabled=true"}, ""},
		"enabled_by_name": {of(standard, priority), []string{byName + "false", other + "1"}, ""},
		"all_disabled": {
			of(standard, priority),
			[]string{"AzureWebJobs.ac-STANDARD.Disabled=1", "azurewebjobs_AC-priority01_disabled=True"},
			idle + "; disabled: ac-STANDARD, AC-priority01",
		},
		"disabled_in_files": {disabling("AC-standard"), nil, idle + "; disabled: AC-standard"},
		"by_file_and_setting": {
			disabling("AC-priority01", standard),
			[]string{byName + "1"},
			idle + "; disabled: AC-priority01, AC-standard",
		},
		"not_listed": {
			listing("AC-monitor"), nil, idle + `; not listed by "functions" in host.json: AC-standard, AC-priority01`,
		},
		"one_listed_and_disabled": {
			listing("ac-standard"),
			[]string{byName + "1"},
			idle + `; disabled: AC-standard; not listed by "functions" in host.json: AC-priority01`,
		},
		"not_read_by_the_host": {
			of(standard), []string{"AzureWebJobs__AC-standard__Disabled=1", "AzureWebJobs.AC-standard_Disabled=1"}, "",
		},
		"no_function": {of(), nil, idle},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.app.WhyIdle(test.environ); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
