package functionapp_test

import (
	"strings"
	"sync"
	"testing"

	"asynccaller/handler/internal/app/functionapp"
)

// TestSyncedByTwo: runs beside each other do not fail, and leave no half of a function. On Windows they can fail,
// because a folder that is being deleted is in the way.
func TestSyncedByTwo(t *testing.T) {
	dir := app(nil).write(t)
	function := written(t)
	for i := range 100 {
		queues := []string{"orders-in"}
		if i%2 == 1 {
			queues = nil
		}
		var runs sync.WaitGroup
		for range 2 {
			runs.Go(func() {
				if _, _, err := functionapp.SyncRoutes(dir, queues, nil); err != nil {
					t.Error(err)
				}
			})
		}
		runs.Wait()
		got := tree(t, dir)["AC-route-orders-in/function.json"]
		if want := strings.Repeat(function, len(queues)); got != want {
			t.Fatalf("after run %d of two the function is %q", i, got)
		}
	}
}
