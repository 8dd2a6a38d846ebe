package account_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// TestPoisonFronts: every queue with dead letters is there with its first messages, a queue that cannot be read with
// its problem, and no message is received.
func TestPoisonFronts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mixed(t)
		for i := range 40 {
			put(t, store, poisonQueue, deadLetter(fmt.Sprintf("further%d", i), mainQueue), 0)
		}
		for _, name := range []string{"broken-poison", "empty-poison", "foreign"} {
			if err := store.Create(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		put(t, store, "foreign", "of another program", 0)
		isBroken := func(name string) bool { return name == "broken-poison" }
		a := newAccount(unreadable{Queues: store, err: errors.Join(storage.ErrRefused), is: isBroken})
		var got []string
		for _, f := range must(a.PoisonFronts(t.Context())) {
			line := fmt.Sprintf("%s: %d", f.Queue, len(f.First))
			if f.Messages != nil {
				line += fmt.Sprintf(" of %d", *f.Messages)
			}
			if f.Problem != nil {
				line += f.Problem.Error()
			}
			got = append(got, line)
		}
		want := []string{
			"async-caller-poison: 32 of 46", "broken-poison: 0read broken-poison: " + storage.ErrRefused.Error(),
			"other-poison: 1 of 1", "parking: 2 of 2",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		for _, name := range []string{poisonQueue, "other-poison", parking, "foreign"} {
			for _, m := range store.All(name) {
				if m.DequeueCount > 0 {
					t.Errorf("a message was received: %+v", m)
				}
			}
		}
	})
}

// reads counts how often the queues of an account are peeked at.
type reads struct {
	storage.Queues

	mu    sync.Mutex
	peeks map[string]int
}

func (r *reads) Peek(ctx context.Context, name string, limit int) ([]storage.Message, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peeks[name]++
	return r.Queues.Peek(ctx, name, limit)
}

// TestEachFrontIsReadOnce: what asks for a queue after another reader of the same page or command knows it.
func TestEachFrontIsReadOnce(t *testing.T) {
	all := map[string]int{mainQueue: 1, poisonQueue: 1, "other-poison": 1, parking: 1}
	for name, test := range map[string]struct {
		read func(*testing.T, *account.Account, record.Row)
		want map[string]int
	}{
		"status": {func(t *testing.T, a *account.Account, _ record.Row) {
			t.Helper()
			must(a.Status(t.Context()))
		}, map[string]int{mainQueue: 1, poisonQueue: 1, "other-poison": 1}},
		"overview": {func(t *testing.T, a *account.Account, _ record.Row) {
			t.Helper()
			poison := must(a.Status(t.Context())).Fronts.Poison(t.Context())
			if len(poison) != 3 {
				t.Errorf("%d queues have poison messages", len(poison))
			}
		}, all},
		"show": {func(t *testing.T, a *account.Account, due record.Row) {
			t.Helper()
			l := must(a.LookUp(t.Context(), account.LookupQuery{IDs: []string{"due"}, PeekOnly: true}))
			if got := l.PresenceCheck(t.Context(), time.Now())(due); got != record.Unseen {
				t.Errorf("presence %d of a message behind a newer one", got)
			}
		}, all},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := mixed(t)
				if err := store.Create(t.Context(), "empty-poison"); err != nil {
					t.Fatal(err)
				}
				advance(time.Hour)
				put(t, store, mainQueue, hostCopy("new"), 0)
				due := record.Row{
					Key:       storage.Key{Partition: mainQueue, ID: "due"},
					RequestID: "due", NextAttemptAt: time.Now().Add(-time.Hour - 5*time.Minute),
				}
				counted := &reads{Queues: store, peeks: map[string]int{}}
				a := newAccount(counted)
				a.Table = &memory.Table{}
				if err := rows.Put(t.Context(), a.Table, due); err != nil {
					t.Fatal(err)
				}
				test.read(t, a, due)
				if diff := cmp.Diff(test.want, counted.peeks); diff != "" {
					t.Errorf("peeks, -want +got:\n%s", diff)
				}
			})
		})
	}
}
