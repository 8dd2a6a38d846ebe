package metrics_test

import (
	"fmt"
	"testing"
	"time"

	"asynccaller/handler/internal/observers/metrics"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/tools/azurite/azuritetest"
)

// TestAddUpOnAzurite: the service's own times say which minutes an hour has, also if a pass is interrupted.
func TestAddUpOnAzurite(t *testing.T) {
	server := azuritetest.Run(t)
	connection, err := azure.ParseConnection([]string{storage.ConnectionName + "=" + server.ConnectionString},
		storage.ConnectionName)
	if err != nil {
		t.Fatal(err)
	}
	service, err := azure.OpenTable(connection, storage.MetricsTable)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Close)
	table := &faulty{Table: service}
	hour := time.Now().UTC().Add(-24 * time.Hour).Truncate(time.Hour)
	put := func(minute int, instance string) {
		at := hour.Add(time.Duration(minute) * time.Minute)
		entity := storage.Entity{
			Key: storage.Key{
				Partition: "app," + hour.Format("20060102T15"), ID: at.Format("20060102T1504") + "," + instance,
			},
			Values: map[string]any{"numbers": []byte(`{"hosts":{"one.example":{"delivered":1,"failed":{"dns":2}}}}`)},
		}
		if err := table.Put(t.Context(), []storage.Entity{entity}); err != nil {
			t.Fatal(err)
		}
	}
	for minute := range 60 {
		for instance := range 3 {
			put(minute, fmt.Sprint(instance))
		}
	}
	for _, fails := range []string{"list", "replace", "answer", "delete", "none"} {
		table.fails = fails
		_, err := metrics.NewHours(app).AddUp(t.Context(), table, time.Now())
		if (err == nil) != (fails == "none") {
			t.Fatalf("%s: %v", fails, err)
		}
	}
	put(59, "late")
	if _, err := metrics.NewHours(app).AddUp(t.Context(), table, time.Now()); err != nil {
		t.Fatal(err)
	}
	if rows := rowsOf(t, table); len(rows) != 1 {
		t.Errorf("rows %v", rows)
	}
	reader := metrics.NewReader(table)
	of := read(t, reader, "one.example").Hours
	if len(of) != 1 || of[0].Delivered != 181 || of[0].FailedCalls() != 362 || !of[0].At.Equal(hour) {
		t.Errorf("hours %+v", of)
	}
}
