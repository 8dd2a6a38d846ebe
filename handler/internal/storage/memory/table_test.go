package memory_test

import (
	"testing"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/storagetest"
)

func TestTableConformance(t *testing.T) {
	storagetest.RunTable(t, func(*testing.T) storage.Table { return &memory.Table{} })
}

func TestTables(t *testing.T) { storagetest.RunTables(t, &memory.Tables{}, "history") }
