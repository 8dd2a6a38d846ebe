package poison_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/queue"
)

// TestKeep checks that messages moved by the host never expire after a keep and have a reason, and that other
// messages are unchanged.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mixed(t)
		untouched := map[string]queue.Message{}
		for _, m := range store.All(poisonQueue) {
			if m.ExpiresAt.Year() == 9999 {
				untouched[m.ID] = m
			}
		}
		t.Setenv("TMPDIR", t.TempDir())
		a := newAccount(t, store)
		kept, err := a.Keep(t.Context(), []string{poisonQueue, "nowhere-poison"})
		if err != nil || kept != 2 {
			t.Fatalf("%d were kept, %v", kept, err)
		}
		advance(2 * week)
		reasons := map[string]int{}
		for _, m := range store.All(poisonQueue) {
			if m.ExpiresAt.Year() != 9999 {
				t.Errorf("%s expires at %v", m.ID, m.ExpiresAt)
			}
			about := inspect.Read(inspect.Rules{Encoding: queue.Base64, Decision: a.Rules.Decision}, poisonQueue, m)
			reasons[about.Reason]++
			if before, ok := untouched[m.ID]; ok {
				if m.Text != before.Text || m.InsertedAt != before.InsertedAt {
					t.Errorf("%s was touched", m.ID)
				}
				delete(untouched, m.ID)
			}
			if about.Reason != inspect.HostGaveUp {
				continue
			}
			e, err := envelope.Parse(must(queue.Base64.Decode(m.Text)))
			if err != nil || e.DeadLetter == nil || e.DeadLetter.Reason != inspect.HostGaveUp || e.DeadLetter.Queue != mainQueue {
				t.Errorf("the dead letter is %+v, %v", e.DeadLetter, err)
			}
		}
		if len(untouched) > 0 || reasons["undecodable"] != 1 || reasons["host_gave_up"] != 1 || reasons["malformed"] != 1 || reasons["rejected"] != 3 {
			t.Errorf("%d are missing, there are %v", len(untouched), reasons)
		}
		if !slices.Contains(texts(store, poisonQueue), "not base64") {
			t.Error("the text that is not base64 has changed")
		}
		if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
			t.Errorf("%v, %v are left", left, err)
		}
	})
}

// TestKeepNothing checks that a keep does not receive messages if none expires.
func TestKeepNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 20)
		for range 2 {
			if kept, err := newAccount(t, store).Keep(t.Context(), []string{poisonQueue}); kept != 0 || err != nil {
				t.Errorf("%d were kept, %v", kept, err)
			}
		}
		for _, m := range store.All(poisonQueue) {
			if m.DequeueCount != 0 {
				t.Errorf("%s was taken", m.ID)
			}
		}
	})
}

// TestKeepMany checks that expiring messages behind many others are kept, and only these.
func TestKeepMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 100)
		for range 50 {
			put(t, store, poisonQueue, hostCopy("host"), week)
		}
		kept, err := newAccount(t, store).Keep(t.Context(), []string{poisonQueue})
		if kept != 50 || err != nil {
			t.Errorf("%d were kept, %v", kept, err)
		}
		advance(2 * week)
		if n := len(store.All(poisonQueue)); n != 150 {
			t.Errorf("%d are left of 150", n)
		}
	})
}

// TestKeepStorageAway checks that an error comes with the number of kept messages, and that none is lost.
func TestKeepStorageAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 0)
		for range 20 {
			put(t, store, poisonQueue, hostCopy("host"), week)
		}
		puts := 0
		broken := &tap{Store: store, before: func(operation string) error {
			if operation == "put" {
				if puts++; puts > 5 {
					return queue.ErrRefused
				}
			}
			return nil
		}}
		kept, err := newAccount(t, broken).Keep(context.Background(), []string{poisonQueue})
		if kept != 5 || !errors.Is(err, queue.ErrRefused) || len(store.All(poisonQueue)) != 20 {
			t.Errorf("%d of %d were kept, %v", kept, len(store.All(poisonQueue)), err)
		}
	})
}

// TestFollow checks that each message that arrives is shown once, and no earlier one.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mixed(t)
		a := newAccount(t, store)
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		ended := make(chan error)
		go func() {
			source := poison.Source{Filter: inspect.Filter{Text: "orders"}}
			ended <- a.Follow(ctx, source, time.Second, func() {}, func(f poison.Found) { got = append(got, found(f.Message)) })
		}()
		advance(5 * time.Second)
		put(t, store, poisonQueue, deadLetter("new", mainQueue), 0)
		put(t, store, poisonQueue, hostCopy("not meant"), 0)
		advance(5 * time.Second)
		put(t, store, "other-poison", deadLetter("newer", "other"), 0)
		if err := store.Create(t.Context(), "third-poison"); err != nil {
			t.Fatal(err)
		}
		advance(5 * time.Second)
		put(t, store, "third-poison", deadLetter("third", "third"), 0)
		advance(time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("at its end: %v", err)
		}
		if strings.Join(got, " ") != "new newer third" {
			t.Errorf("shown: %q", got)
		}
		broken := &tap{Store: store, before: func(string) error { return queue.ErrRefused }}
		if err := newAccount(t, broken).Follow(t.Context(), poison.Source{}, time.Second, nil, nil); !errors.Is(err, queue.ErrRefused) {
			t.Errorf("without permission: %v", err)
		}
	})
}
