package storageserver_test

import (
	"testing"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/storagetest"
	"asynccaller/handler/tools/storageserver"
	"asynccaller/handler/tools/testbed"
)

func TestConformance(t *testing.T) {
	s, err := storageserver.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	storagetest.Run(t, func(t *testing.T) storage.Queues {
		t.Helper()
		store, err := testbed.OpenStore(s.ConnectionString)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		return store
	})
}
