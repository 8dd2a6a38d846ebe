package emulator_test

import (
	"testing"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/internal/storage/emulator"
	"asynccaller/handler/internal/storage/storagetest"
)

func mustStart(t *testing.T) *emulator.Server {
	t.Helper()
	s, err := emulator.Start(t.Context(), emulator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func mustConnect(t *testing.T, connection string) azure.Connection {
	t.Helper()
	conn, err := azure.ParseConnection([]string{"AzureWebJobsStorage=" + connection}, "AzureWebJobsStorage")
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestConformance(t *testing.T) {
	conn := mustConnect(t, mustStart(t).ConnectionString)
	storagetest.Run(t, func(t *testing.T) storage.Queues {
		t.Helper()
		store, err := azure.Open(conn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		return store
	})
}

func TestTableConformance(t *testing.T) {
	conn := mustConnect(t, mustStart(t).ConnectionString)
	tables, err := azure.OpenTables(conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tables.Close)
	storagetest.RunTable(t, func(t *testing.T) storage.Table {
		t.Helper()
		if err := tables.Drop(t.Context(), storage.ScheduledTable); err != nil {
			t.Fatal(err)
		}
		return tables.Table(storage.ScheduledTable)
	})
	storagetest.RunTables(t, tables, "history")
}
