package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/storage"
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

// judgeHeartbeats judges when the timer functions of each app last ran.
func judgeHeartbeats(apps []heartbeat.App, now time.Time) (lines []Line) {
	const check = "heartbeats"
	const next = "start the app; if it runs, look for errors in the host's log, and check the roles of its identity"
	if len(apps) == 0 {
		text := functionapp.MonitorTimer + " has not run yet, or cannot record that it runs"
		return []Line{{State: Warning, Check: check, Text: text, Next: next}}
	}
	ran := func(timer string, at time.Time) string {
		if at.IsZero() {
			return timer + " has not run yet"
		}
		return timer + " ran " + format.Age(now.Sub(at)) + " ago"
	}
	for _, app := range apps {
		line := Line{
			State: OK,
			Check: check,
			Text: fmt.Sprintf("%s: %s, %s", app.Title(),
				ran(functionapp.MonitorTimer, app.Monitor), ran(functionapp.KeeperTimer, app.Keeper)),
		}
		silent := app.Silent(now)
		if silent != "" {
			line.State = Broken
			line.Text += ": the app, or its " + silent + ", does not run"
			line.Next = next + "; if it was removed, delete its rows with PartitionKey " + record.Heartbeats +
				" from table " + storage.ScheduledTable + ", or let the keeper of another app do that after 8 days"
		}
		lines = append(lines, line)
		if app.Problem != "" {
			lines = append(lines, Line{
				State: Broken,
				Check: check,
				Text:  app.Name + " makes no calls: " + app.Problem,
				Next: "correct the settings of the app, or enable its functions, and restart it; then wait a minute " +
					"for " + functionapp.MonitorTimer,
			})
		}
	}
	if shared := heartbeat.Shared(apps, now); shared != "" {
		lines = append(lines, Line{State: Warning, Check: check, Text: shared, Next: heartbeat.OneName})
	}
	return lines
}
