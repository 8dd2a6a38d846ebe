package storageserver_test

import (
	"testing"

	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/queuetest"
	"asynccaller/handler/tools/storageserver"
	"asynccaller/handler/tools/testbed"
)

func TestConformance(t *testing.T) {
	s, err := storageserver.Start(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	queuetest.Run(t, func(t *testing.T) queue.Store {
		t.Helper()
		store, err := testbed.OpenStore(s.ConnectionString)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		return store
	})
}
