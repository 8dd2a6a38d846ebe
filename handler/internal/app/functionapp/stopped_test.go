package functionapp_test

import (
	"testing"

	"asynccaller/handler/internal/app/functionapp"
)

// TestWhyIdle: the host runs no queue function if all are disabled or not listed. Names match in any case.
func TestWhyIdle(t *testing.T) {
	both := []functionapp.Function{{Name: "AC-standard"}, {Name: "AC-priority01"}}
	monitor := []functionapp.Timer{{Name: "AC-monitor"}}
	for name, test := range map[string]struct {
		app     functionapp.App
		environ []string
		want    string
	}{
		"none_stopped": {app: functionapp.App{Functions: both, Timers: monitor}},
		"one_disabled": {
			app:     functionapp.App{Functions: both},
			environ: []string{"AzureWebJobs.AC-standard.Disabled=true"},
		},
		"timer_disabled": {
			app:     functionapp.App{Functions: both, Timers: monitor},
			environ: []string{"AzureWebJobs.AC-monitor.Disabled=true"},
		},
		"all_disabled": {
			app:     functionapp.App{Functions: both},
			environ: []string{"AzureWebJobs.ac-STANDARD.Disabled=1", "azurewebjobs_AC-priority01_disabled=True"},
			want:    "no queue function runs; disabled: ac-STANDARD, AC-priority01",
		},
		"enabled_by_name": {
			app:     functionapp.App{Functions: both},
			environ: []string{"AzureWebJobs.AC-standard.Disabled=false", "AzureWebJobs.AC-priority01.Disabled=1"},
		},
		"disabled_in_files": {
			app:  functionapp.App{Disabled: []string{"AC-standard"}, Timers: monitor},
			want: "no queue function runs; disabled: AC-standard",
		},
		"one_in_a_file_and_one_by_a_setting": {
			app:     functionapp.App{Functions: both[:1], Disabled: []string{"AC-priority01"}},
			environ: []string{"AzureWebJobs.AC-standard.Disabled=1"},
			want:    "no queue function runs; disabled: AC-priority01, AC-standard",
		},
		"not_listed": {
			app: functionapp.App{Functions: both, Host: functionapp.Host{AllowList: []string{"AC-monitor"}}},
			want: "no queue function runs; " +
				`not listed by "functions" in host.json: AC-standard, AC-priority01`,
		},
		"one_listed_and_disabled": {
			app:     functionapp.App{Functions: both, Host: functionapp.Host{AllowList: []string{"ac-standard"}}},
			environ: []string{"AzureWebJobs.AC-standard.Disabled=1"},
			want: "no queue function runs; disabled: AC-standard; " +
				`not listed by "functions" in host.json: AC-priority01`,
		},
		"settings_that_the_host_does_not_read": {
			app:     functionapp.App{Functions: both[:1]},
			environ: []string{"AzureWebJobs__AC-standard__Disabled=1", "AzureWebJobs.AC-standard_Disabled=1"},
		},
		"no_function": {app: functionapp.App{Timers: monitor}, want: "no queue function runs"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.app.WhyIdle(test.environ); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
