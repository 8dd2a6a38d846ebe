package functionapp_test

import "testing"

// TestLogging: which settings hide the handler's lines, and which make Application Insights drop some.
func TestLogging(t *testing.T) {
	const insights = `"applicationInsights": `
	for name, row := range map[string]struct {
		logging string // in host.json
		setting string // in the environment
		hides   string
		samples bool
	}{
		"nothing":             {``, ``, "", true},
		"recommended":         {`"logLevel": {"default": "Information", "Function": "Warning"}`, ``, "", true},
		"debug_by_number":     {`"logLevel": {"default": 1}`, ``, "", true},
		"default":             {`"logLevel": {"default": "Warning"}`, ``, "logging.logLevel.default", true},
		"default_by_number":   {`"logLevel": {"default": 3}`, ``, "logging.logLevel.default", true},
		"no_level":            {`"logLevel": {"default": "Info"}`, ``, "logging.logLevel.default", true},
		"default_and_console": {`"logLevel": {"default": "None", "Host.Function.Console": "trace"}`, ``, "", true},
		"host":                {`"logLevel": {"default": "Trace", "Host": "Error"}`, ``, "logging.logLevel.host", true},
		"host_and_console":    {`"logLevel": {"Host": "Error", "Host.Function.Console": "Information"}`, ``, "", true},
		"star":                {`"logLevel": {"Host.*.Console": "Error"}`, ``, "logging.logLevel.host.*.console", true},
		"results":             {`"logLevel": {"Host.Results": "Error"}`, ``, "", true},
		"by_setting":          {``, `logging__logLevel__default=Warning`, "logging.logLevel.default", true},
		"setting_overrides":   {`"logLevel": {"default": "Warning"}`, `logging:logLevel:Default=Debug`, "", true},
		"insights": {
			insights + `{"logLevel": {"default": "Error"}}, "logLevel": {"Host.Function.Console": "Debug"}`, ``,
			"logging.applicationInsights.logLevel.default", true,
		},
		"insights_for_another": {
			insights + `{"logLevel": {"Function": "Error"}}, "logLevel": {"default": "Error"}`, ``,
			"logging.logLevel.default", true,
		},
		"sampling_off":      {insights + `{"samplingSettings": {"isEnabled": false}}`, ``, "", false},
		"requests_excluded": {insights + `{"samplingSettings": {"excludedTypes": "Request"}}`, ``, "", true},
		"traces_excluded":   {insights + `{"samplingSettings": {"excludedTypes": "Request;Trace"}}`, ``, "", false},
		"requests_included": {insights + `{"samplingSettings": {"includedTypes": "Request"}}`, ``, "", false},
		"excluded_by_setting": {
			``, `logging__applicationInsights__samplingSettings__excludedTypes=Trace`, "", false,
		},
	} {
		files := withHost(t, `"version": "2.0"`, `"version": "2.0", "logging": {`+row.logging+`}`)
		got := files.mustLoad(t, "AzureFunctionsJobHost__"+row.setting).Host.Logging
		hides := got.Setting
		if got.ShowsHandler() {
			hides = ""
		}
		if hides != row.hides || got.Unsampled == row.samples {
			t.Errorf("%s: %+v, want hidden by %q, sampled %t", name, got, row.hides, row.samples)
		}
	}
}
