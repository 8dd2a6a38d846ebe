package doctor

import (
	"slices"
	"strings"

	"asynccaller/handler/internal/functionapp"
)

// timers checks that an app has its timer functions. Those that are disabled have been reported.
func (report Reporter) timers(app *functionapp.App, disabled []string) {
	var missing []string
	for _, name := range []string{functionapp.MonitorTimer, functionapp.KeeperTimer} {
		hasName := func(t functionapp.Timer) bool { return t.Name == name }
		isDisabled := func(d string) bool { return strings.EqualFold(d, name) }
		if !slices.ContainsFunc(app.Timers, hasName) && !slices.ContainsFunc(disabled, isDisabled) {
			missing = append(missing, name)
		}
	}
	report.items(missing, Line{
		State: Warning,
		Check: "timers",
		Text:  "without valid function.json",
		Next: "deploy the folders of these timer functions again: without " + functionapp.MonitorTimer +
			" the alerts have no data, and without " + functionapp.KeeperTimer + " storage deletes poison messages",
	}, "none is missing")
}
