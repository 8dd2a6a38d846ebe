// Package record writes, in the background and best effort, rows about messages to tables of the storage account. The
// rows of scheduled messages describe the messages that wait for their next attempt: they are invisible on their queue,
// and no operation of Queue Storage lists them. Rows can be missing, and the message of a row can be gone. The record
// never decides what happens to a message. A second table has each [Outcome] of the messages whose sender wants to know
// it.
package record

import (
	"context"
	"time"

	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/storage"
)

// Beat records that a timer function runs now.
func Beat(ctx context.Context, table storage.Table, name string) error {
	return table.Put(ctx, storage.Heartbeats, []storage.Row{{ID: name, Writes: storage.RunTable}})
}

// Beats are the times at which the timer functions last ran, by their names.
type Beats map[string]time.Time

// ReadBeats reads the beats of an account.
func ReadBeats(ctx context.Context, table storage.Table) (Beats, error) {
	beats := Beats{}
	err := table.List(ctx, storage.Query{Queue: storage.Heartbeats}, func(row storage.Row) error {
		if row.IsHeartbeat() {
			beats[row.ID] = row.WrittenAt
		}
		return nil
	})
	return beats, err
}

// The age of a beat from which its timer does not run: AC-monitor runs every minute, AC-poison-keeper every hour.
const (
	monitorLate = 3 * time.Minute
	keeperLate  = 125 * time.Minute
)

// Silent returns the first timer function that has recorded runs but no recent one, and how long ago it ran: the app,
// or its timers, do not run. It returns an empty name if there is none.
func (b Beats) Silent(now time.Time) (timer string, ago time.Duration) {
	for _, limit := range []struct {
		timer string
		late  time.Duration
	}{
		{functionapp.MonitorTimer, monitorLate},
		{functionapp.KeeperTimer, keeperLate},
	} {
		at, known := b[limit.timer]
		ago = now.Sub(at)
		if known && ago > limit.late {
			return limit.timer, ago
		}
	}
	return "", 0
}
