package account_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/storage"
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
			got = append(got, line+f.Problem)
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
