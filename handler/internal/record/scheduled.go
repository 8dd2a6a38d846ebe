// Package record writes, in the background and best effort, rows about messages to tables of the storage account. The rows
// of scheduled messages describe the messages that wait for their next attempt: they are invisible on their queue, and no
// operation of Queue Storage lists them. Rows can be missing, and the message of a row can be gone. The record never decides
// what happens to a message. A second table has each [Outcome] of the messages whose sender wants to know it.
package record

import (
	"context"
	"time"

	"asynccaller/handler/internal/storage"
)

// MinDelay is the shortest delay that is recorded: shorter ones cost no transaction.
const MinDelay = 30 * time.Second

// Beat records that a timer function runs now.
func Beat(ctx context.Context, table storage.Table, name string) error {
	return table.Put(ctx, storage.Heartbeats, []storage.Row{{ID: name, Writes: storage.RunTable}})
}

// Beats returns when the timer functions last ran, by their names.
func Beats(ctx context.Context, table storage.Table) (map[string]time.Time, error) {
	beats := map[string]time.Time{}
	err := table.List(ctx, storage.Query{Queue: storage.Heartbeats}, func(row storage.Row) error {
		if row.IsHeartbeat() {
			beats[row.ID] = row.WrittenAt
		}
		return nil
	})
	return beats, err
}
