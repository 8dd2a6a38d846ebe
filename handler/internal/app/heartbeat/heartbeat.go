// Package heartbeat has the rows that say when the timer functions of each app on an account last ran, and so whether
// the app runs. They are in the table of scheduled messages.
package heartbeat

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/observers/record"
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

// The adapters of an app, which pass it messages.
const (
	// Host is the Functions host.
	Host = "host"
	// Worker is the worker, which receives them itself.
	Worker = "worker"
)

// App says when the timer functions of an app ran.
type App struct {
	// Name is that of [functionapp.Name], at most 300 bytes.
	Name string `json:"app"`
	// Since is when they began to run, after the first start, a pause, or a time without calls.
	Since time.Time `json:"since"`
	// Version is that of the handler when the later of them ran.
	Version string `json:"version,omitempty"`
	// Adapter is [Host] or [Worker], and Queues are those that it serves, when the later of them ran; empty if unknown.
	Adapter string   `json:"adapter,omitempty"`
	Queues  []string `json:"queues,omitempty"`
	// Certificate is the client certificate that ends first, and CertificateEnds when; empty if there is none.
	Certificate     string    `json:"certificate,omitempty"`
	CertificateEnds time.Time `json:"certificateEnds,omitzero"`
	// Monitor and Keeper are when AC-monitor and AC-poison-keeper last ran; zero if not yet.
	Monitor time.Time `json:"monitor"`
	Keeper  time.Time `json:"keeper"`
	// Problem is why the app made no calls when the later of them ran; empty if it made them.
	Problem string `json:"problem,omitempty"`
	// HostName is the name under which Azure serves the app, as the later of them said; empty outside Azure. Anyone who
	// writes to the table can write another.
	HostName string `json:"-"`
}

// The bytes of a text that is read, and the apps of an account: somebody else may have written the rows.
const (
	maxText = 300
	maxApps = 1000
)

// Row is the row of a timer function, whose name begins the ID. WrittenAt is when it ran.
type Row struct {
	storage.Key

	// App is the name of the app, and Version that of its handler.
	App      string `row:"app"`
	Version  string `row:"version"`
	HostName string `row:"hostName"`
	// Adapter is that of the app, and Queues are those that it serves, joined by commas.
	Adapter string `row:"adapter"`
	Queues  string `row:"queues"`
	// Certificate and CertificateEnds are those of the app.
	Certificate     string    `row:"certificate"`
	CertificateEnds time.Time `row:"certificateEnds"`
	// Since is when its timer functions began to run.
	Since time.Time `row:"since"`
	// Cause is why the app makes no calls; empty if it makes them.
	Cause string `row:"cause"`
	// RequestID is that of a message of a queue with the same name.
	RequestID string `row:"requestId"`
}

// Beat records that a timer function of an app runs now. The times of the app are not read.
func Beat(ctx context.Context, table storage.Table, app App, timer string) error {
	row := Row{
		Key: storage.Key{Partition: record.Heartbeats, ID: timer + "," + rows.KeyOf(app.Name)},
		App: app.Name, Version: app.Version, HostName: text.Clip(app.HostName, maxText),
		Adapter: app.Adapter, Queues: joinNames(app.Queues),
		Certificate: app.Certificate, CertificateEnds: app.CertificateEnds,
		Since: time.Now(), Cause: text.Clip(app.Problem, maxText),
	}
	last, found, err := rows.Get[Row](ctx, table, record.Heartbeats, row.ID)
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

// list shows the rows of timer functions.
func list(ctx context.Context, table storage.Table, see func(Row)) error {
	return rows.List(ctx, table, storage.Query{Partition: record.Heartbeats}, func(row Row) error {
		if row.RequestID == "" {
			see(row)
		}
		return nil
	})
}

// Read returns the apps that have recorded beats on an account, ordered by name, at most 1,000.
func Read(ctx context.Context, table storage.Table) ([]App, error) {
	apps := map[string]App{}
	err := list(ctx, table, func(row Row) {
		name := strings.Clone(text.Clip(row.App, maxText))
		app := apps[name]
		timer, id, _ := strings.Cut(row.ID, ",")
		_, isKnown := apps[name]
		isLatest := row.WrittenAt.After(app.Monitor) && row.WrittenAt.After(app.Keeper)
		switch {
		case row.App == "" || id != rows.KeyOf(row.App): // no handler of this version writes it
			return
		case len(apps) == maxApps && !isKnown:
			return
		case timer == functionapp.MonitorTimer:
			app.Monitor = row.WrittenAt.UTC()
		case timer == functionapp.KeeperTimer:
			app.Keeper = row.WrittenAt.UTC()
		}
		app.Name = name
		if isLatest {
			app.Problem = text.Line(row.Cause, maxText)
			app.Version = text.Line(row.Version, maxText)
			app.HostName = text.Line(row.HostName, maxText)
			app.Adapter, app.Queues = adapterOf(row), queuesOf(row)
			app.Certificate, app.CertificateEnds = text.Line(row.Certificate, maxText), row.CertificateEnds.UTC()
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
	return a.Problem != "" && now.Sub(latest) <= record.LongestInvisible || now.Sub(a.Since) <= record.LongestInvisible
}

// LastSign returns when a timer function of the app last ran; zero if none has.
func (a App) LastSign() time.Time { return bounds.Later(a.Monitor, a.Keeper) }

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
