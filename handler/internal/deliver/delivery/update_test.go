package delivery_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"asynccaller/handler/internal/deliver/settle"
)

// TestRandomFaultsInUpdateMode drives messages to their end through updates that are not done, done without an answer,
// or done late, while the host renews its lease at any moment. After every delivery there is exactly one message; after
// the last there is none, and the host never takes one away.
func TestRandomFaultsInUpdateMode(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprintf("seed_%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, recovering(12))
				b.mode = settle.RescheduleUpdate
				b.configure()
				random := rand.New(rand.NewPCG(seed, 0))
				b.store.pick = func(operation string) string {
					if operation == "put" {
						return []string{"", "", "", "fails"}[random.IntN(4)]
					}
					if random.IntN(4) == 0 {
						_ = b.renew(t.Context())
					}
					return []string{"", "", "fails", "lost", "unanswered", "late"}[random.IntN(6)]
				}
				b.send(t, mainQueue, plain)
				for range 200 {
					if !b.next(t, mainQueue) {
						break
					}
					status, _ := b.invoke(t)
					if random.IntN(4) == 0 {
						b.store.arrive()
					}
					b.complete(t, status)
					if n := len(b.store.All(mainQueue)); n != 1 && (n != 0 || len(b.target.calls) < 13) {
						t.Fatalf("after call %d the queue holds %d messages", len(b.target.calls), n)
					}
					b.store.arrive()
				}
				b.wantEmpty(t, mainQueue, poisonQueue)
				if last := b.target.calls[len(b.target.calls)-1]; len(b.target.calls) < 13 || last.attempt > 13 {
					t.Errorf("%d calls, the last one is attempt %d", len(b.target.calls), last.attempt)
				}
			})
		})
	}
}
