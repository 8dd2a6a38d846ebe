// Package sighttest writes rows of package sight for tests of what reads them.
package sighttest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"
	"time"

	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// Fail writes a row of each target: it fails in the eyes of an instance of its app.
func Fail(tb testing.TB, table storage.Table, failing ...sight.Target) {
	tb.Helper()
	for _, target := range failing {
		sum := sha256.Sum256([]byte(target.Host)) // the host itself can be too long for a key
		instance := hex.EncodeToString(sum[:8])
		view, err := json.Marshal(struct {
			Failing []sight.Target `json:"failing"`
		}{[]sight.Target{target}})
		if err != nil {
			tb.Fatal(err)
		}
		put(tb, table, struct {
			storage.Key
			App  string `row:"app"`
			View []byte `row:"view"`
		}{storage.Key{Partition: "now", ID: rows.KeyOf(target.App) + "," + instance}, target.App, view})
	}
}

// Count writes the numbers of a minute of one instance of an app.
func Count(tb testing.TB, table storage.Table, app string, minute time.Time, numbers sight.Interval) {
	tb.Helper()
	encoded, err := json.Marshal(numbers)
	if err != nil {
		tb.Fatal(err)
	}
	minute = minute.UTC()
	put(tb, table, struct {
		storage.Key
		Numbers []byte `row:"numbers"`
	}{storage.Key{
		Partition: minute.Format("20060102T15"),
		ID:        minute.Format("20060102T1504") + "," + rows.KeyOf(app) + ",test",
	}, encoded})
}

func put(tb testing.TB, table storage.Table, row any) {
	tb.Helper()
	entity, err := rows.Encode(row)
	if err == nil {
		err = table.Put(tb.Context(), []storage.Entity{entity})
	}
	if err != nil {
		tb.Fatal(err)
	}
}
