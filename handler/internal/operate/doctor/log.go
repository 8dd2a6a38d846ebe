package doctor

import (
	"fmt"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/config"
)

// log checks that Application Insights gets the lines on which the alerts depend (docs/operating.md, "Alerts").
func (report Reporter) log(a config.App) {
	const check = "log"
	logging, getenv := a.Functions.Host.Logging, config.Getenv(a.Environ)
	isOK := true
	warn := func(text, next string) {
		isOK = false
		report(Line{State: Warning, Check: check, Text: text, Next: next})
	}
	if !logging.ShowsHandler() {
		warn(fmt.Sprintf("%s is %q: the alerts get no data, because the host logs the lines of the handler at level "+
			"Information", logging.Setting, logging.Level),
			`in host.json, set "Host.Function.Console": "Information" in logging.logLevel; `+
				"also check the settings AzureFunctionsJobHost__logging__...")
	}
	if a.Settings.LogLevel > zerolog.InfoLevel {
		warn(fmt.Sprintf("%sLOG_LEVEL is %s, so the handler does not log the lines settled, alive and queue, "+
			"on which the alerts depend", config.Prefix, a.Settings.LogLevel), "set it to info")
	}
	hasInsights := getenv("APPLICATIONINSIGHTS_CONNECTION_STRING")+getenv("APPINSIGHTS_INSTRUMENTATIONKEY") != ""
	if !logging.Unsampled && (hasInsights || logging.SamplingSet) {
		warn("Application Insights samples the log: of a busy log the alerts see a part",
			"set AzureFunctionsJobHost__logging__applicationInsights__samplingSettings__excludedTypes to Trace")
	}
	if isOK {
		report.ok(check, "no setting hides the lines on which the alerts depend")
	}
}
