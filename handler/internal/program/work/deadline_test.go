package work

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/storage/memory"
)

// TestLastAttemptsOfAnIdleQueue: a queue on which a message becomes due now and then is polled every 30 s, and each
// message gets its last attempt, in the last minute before its deadline.
func TestLastAttemptsOfAnIdleQueue(t *testing.T) {
	c := readConfig(t, app(t))
	synctest.Test(t, func(t *testing.T) {
		store, g := memory.New(), newTarget(0)
		latest := map[string]time.Time{}
		g.answer = func(_ context.Context, id string) int {
			latest[id] = time.Now() // one message is due at a time
			return http.StatusServiceUnavailable
		}
		r := start(t, c, store, g)
		deadlines := map[string]time.Time{}
		for n := range 100 {
			id := fmt.Sprintf("r%d", n)
			deadlines[id] = time.Now().Add(time.Hour + time.Duration(n)*317*time.Millisecond)
			put(t, store, id, fmt.Sprintf(`,"deadline":%q,"retry":{"schedule":["1s","7h"]}`,
				deadlines[id].Format(time.RFC3339Nano)))
			<-time.After(2 * time.Hour)
		}
		r.stop(t)
		for id, deadline := range deadlines {
			if early := deadline.Sub(latest[id]); early < 0 || early > time.Minute || g.count(id) != 3 {
				t.Errorf("%s: %d calls, the last one %v before the deadline", id, g.count(id), early)
			}
		}
	})
}
