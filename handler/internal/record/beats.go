package record

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
	"asynccaller/handler/internal/strictjson"
)

// The age of a beat from which its timer does not run: AC-monitor runs every minute, AC-poison-keeper every hour.
const (
	monitorLate = 3 * time.Minute
	keeperLate  = 125 * time.Minute
)

// unnamed is the name of an app of version 0.1.0, whose beats have none.
const unnamed = "(unnamed)"

// App says when the timer functions of an app ran.
type App struct {
	// Name is that of [functionapp.Name], at most 300 bytes.
	Name string `json:"app"`
	// Since is when they began to run, after the first start or a pause; zero for version 0.1.0.
	Since time.Time `json:"since,omitzero"`
	// Monitor and Keeper are when AC-monitor and AC-poison-keeper last ran; zero if not yet.
	Monitor time.Time `json:"monitor,omitzero"`
	Keeper  time.Time `json:"keeper,omitzero"`
	// Problem is why the app made no calls when the later of them ran; empty if it made them.
	Problem string `json:"problem,omitempty"`
}

// Heartbeats is the partition of the rows that say when a timer function last ran, in the table of the scheduled
// messages. A queue can have the same name, but its rows have a request id.
const Heartbeats = "heartbeat"

// Heartbeat is the row of a timer function, whose name begins the ID. WrittenAt is when it ran.
type Heartbeat struct {
	storage.Key

	// App is the name of the app; empty for version 0.1.0. Since is when its timer functions began to run.
	App   string    `row:"app"`
	Since time.Time `row:"since"`
	// Writes is the further table that the handler writes, and Reads the partition that it reads in that of the apps.
	Writes string `row:"writes"`
	Reads  string `row:"reads"`
	// Cause is why the app makes no calls; empty if it makes them.
	Cause string `row:"cause"`
	// RequestID is that of a message of a queue with the same name.
	RequestID string `row:"requestId"`
}

// Beat records that a timer function of an app runs now, and why the app makes no calls; empty if it makes them.
func Beat(ctx context.Context, table storage.Table, app, timer, problem string) error {
	row := Heartbeat{
		Key: storage.Key{Partition: Heartbeats, ID: timer + "," + escape(app)},
		App: app, Since: time.Now(), Writes: storage.RunTable, Reads: PausesPartition,
		Cause: strictjson.Clip(problem, maxRowText),
	}
	last, found, err := rows.Get[Heartbeat](ctx, table, Heartbeats, row.ID)
	if err != nil {
		return err
	}
	late := monitorLate
	if timer == functionapp.KeeperTimer {
		late = keeperLate
	}
	if found && !last.Since.IsZero() && row.Since.Sub(last.WrittenAt) <= late {
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

// ReadApps returns the apps that have recorded beats on an account, ordered by name, at most 1,000. An unnamed one
// counts only if there is no other: an update to this version leaves its rows behind.
func ReadApps(ctx context.Context, table storage.Table) ([]App, error) {
	apps := map[string]App{}
	err := listHeartbeats(ctx, table, func(row Heartbeat) {
		name := strings.Clone(strictjson.Clip(cmp.Or(row.App, unnamed), maxRowText))
		app := apps[name]
		timer, id, _ := strings.Cut(row.ID, ",")
		_, isKnown := apps[name]
		isLatest := row.WrittenAt.After(app.Monitor) && row.WrittenAt.After(app.Keeper)
		switch {
		case id != escape(row.App): // no handler writes it
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
			app.Problem = strings.Clone(strictjson.ReplaceUnprintable(strictjson.Clip(row.Cause, maxRowText)))
		}
		if row.Since.After(app.Since) {
			app.Since = row.Since.UTC()
		}
		apps[name] = app
	})
	if len(apps) > 1 {
		delete(apps, unnamed)
	}
	return slices.SortedFunc(maps.Values(apps), func(a, b App) int { return strings.Compare(a.Name, b.Name) }), err
}

// Silent returns the first timer function that is late: it last ran, or the app began to run, too long ago. It returns
// an empty name if none is, or if that is unknown.
func (a App) Silent(now time.Time) string {
	for _, limit := range []struct {
		timer string
		ran   time.Time
		late  time.Duration
	}{
		{functionapp.MonitorTimer, a.Monitor, monitorLate},
		{functionapp.KeeperTimer, a.Keeper, keeperLate},
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
