package record

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// A timer whose latest heartbeat is older does not run: AC-monitor runs every minute, AC-poison-keeper every hour.
const (
	maxMonitorAge = 3 * time.Minute
	maxKeeperAge  = 125 * time.Minute
)

// App says when the timer functions of an app ran.
type App struct {
	// Name is that of [functionapp.Name], at most 300 bytes.
	Name string `json:"app"`
	// Since is when they began to run, after the first start, a pause, or a time without calls.
	Since time.Time `json:"since"`
	// Version is that of the handler when the later of them ran.
	Version string `json:"version,omitempty"`
	// Monitor and Keeper are when AC-monitor and AC-poison-keeper last ran; zero if not yet.
	Monitor time.Time `json:"monitor"`
	Keeper  time.Time `json:"keeper"`
	// Problem is why the app made no calls when the later of them ran; empty if it made them.
	Problem string `json:"problem,omitempty"`
	// HostName is the name under which Azure serves the app, as the later of them said; empty outside Azure. Anyone who
	// writes to the table can write another.
	HostName string `json:"-"`
}

// Heartbeats is the partition of the rows that say when a timer function last ran, in the table of the scheduled
// messages. A queue can have the same name, but its rows have a request id.
const Heartbeats = "heartbeat"

// Heartbeat is the row of a timer function, whose name begins the ID. WrittenAt is when it ran.
type Heartbeat struct {
	storage.Key

	// App is the name of the app, and Version that of its handler. Since is when its timer functions began to run.
	App      string    `row:"app"`
	Version  string    `row:"version"`
	HostName string    `row:"hostName"`
	Since    time.Time `row:"since"`
	// Cause is why the app makes no calls; empty if it makes them.
	Cause string `row:"cause"`
	// RequestID is that of a message of a queue with the same name.
	RequestID string `row:"requestId"`
}

// Beat records that a timer function of an app runs now. The times of the app are not read.
func Beat(ctx context.Context, table storage.Table, app App, timer string) error {
	row := Heartbeat{
		Key: storage.Key{Partition: Heartbeats, ID: timer + "," + rows.KeyOf(app.Name)},
		App: app.Name, Version: app.Version, HostName: text.Clip(app.HostName, maxRowText),
		Since: time.Now(), Cause: text.Clip(app.Problem, maxRowText),
	}
	last, found, err := rows.Get[Heartbeat](ctx, table, Heartbeats, row.ID)
	if err != nil {
		return err
	}
	late := maxMonitorAge
	if timer == functionapp.KeeperTimer {
		late = maxKeeperAge
	}
	callsAgain := last.Cause != "" && app.Problem == ""
	if found && !last.Since.IsZero() && row.Since.Sub(last.WrittenAt) <= late && !callsAgain {
		row.Since = last.Since
	}
	return rows.Put(ctx, table, row)
}

// listHeartbeats shows the rows of timer functions.
func listHeartbeats(ctx context.Context, table storage.Table, see func(Heartbeat)) error {
	return rows.List(ctx, table, storage.Query{Partition: Heartbeats}, func(row Heartbeat) error {
		if row.RequestID == "" {
			see(row)
		}
		return nil
	})
}

// ReadApps returns the apps that have recorded beats on an account, ordered by name, at most 1,000.
func ReadApps(ctx context.Context, table storage.Table) ([]App, error) {
	apps := map[string]App{}
	err := listHeartbeats(ctx, table, func(row Heartbeat) {
		name := strings.Clone(text.Clip(row.App, maxRowText))
		app := apps[name]
		timer, id, _ := strings.Cut(row.ID, ",")
		_, isKnown := apps[name]
		isLatest := row.WrittenAt.After(app.Monitor) && row.WrittenAt.After(app.Keeper)
		switch {
		case row.App == "" || id != rows.KeyOf(row.App): // no handler of this version writes it
			return
		case len(apps) == maxReadRows && !isKnown:
			return
		case timer == functionapp.MonitorTimer:
			app.Monitor = row.WrittenAt.UTC()
		case timer == functionapp.KeeperTimer:
			app.Keeper = row.WrittenAt.UTC()
		}
		app.Name = name
		if isLatest {
			app.Problem = text.Line(row.Cause, maxRowText)
			app.Version = text.Line(row.Version, maxRowText)
			app.HostName = text.Line(row.HostName, maxRowText)
		}
		if row.Since.After(app.Since) {
			app.Since = row.Since.UTC()
		}
		apps[name] = app
	})
	return slices.SortedFunc(maps.Values(apps), func(a, b App) int { return strings.Compare(a.Name, b.Name) }), err
}

// MayHold reports whether messages may be invisible because the app makes no calls, or made none until lately.
func (a App) MayHold(now time.Time) bool {
	latest := bounds.Later(a.Monitor, a.Keeper)
	return a.Problem != "" && now.Sub(latest) <= LongestInvisible || now.Sub(a.Since) <= LongestInvisible
}

// Silent returns the first timer function that is late: it last ran, or the app began to run, too long ago. It returns
// an empty name if none is, or if that is unknown.
func (a App) Silent(now time.Time) string {
	for _, limit := range []struct {
		timer string
		ran   time.Time
		late  time.Duration
	}{
		{functionapp.MonitorTimer, a.Monitor, maxMonitorAge},
		{functionapp.KeeperTimer, a.Keeper, maxKeeperAge},
	} {
		latest := limit.ran
		if a.Since.After(latest) {
			latest = a.Since
		}
		if !latest.IsZero() && now.Sub(latest) > limit.late {
			return limit.timer
		}
	}
	return ""
}
