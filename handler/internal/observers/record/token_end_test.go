package record_test

import (
	"fmt"
	"testing"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// TestTokenEnds: of the apps that share an account the latest end counts. Rows that no handler writes do not.
func TestTokenEnds(t *testing.T) {
	var table memory.Table
	at := func(hours int) time.Time { return time.Date(2026, 1, 31, hours, 0, 0, 0, time.UTC) }
	for _, row := range []struct {
		app, credential string
		ends            time.Time
	}{{"one", "a", at(1)}, {"two", "a", at(3)}, {"three", "a", at(2)}, {"one", "b", at(5)}, {"one", "b", at(4)}} {
		if err := record.PutTokenEnd(t.Context(), &table, row.app, row.credential, row.ends); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 1500 {
		key := storage.Key{Partition: record.CredentialPartition, ID: fmt.Sprint("a", n)}
		row := record.TokenEnd{Key: key, App: "one", Credential: "a", Ends: at(9)}
		if err := rows.Put(t.Context(), &table, row); err != nil {
			t.Fatal(err)
		}
	}
	ends, err := record.ReadTokenEnds(t.Context(), &table)
	if err != nil || len(ends) != 2 || !ends["a"].Equal(at(3)) || !ends["b"].Equal(at(4)) {
		t.Errorf("got %v, %v", ends, err)
	}
}
