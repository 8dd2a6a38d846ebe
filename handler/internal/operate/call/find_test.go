package call

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/mask"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

const asDeadLetter = `,"deadLetter":{"at":"2000-01-01T00:00:00Z","reason":"rejected","queue":"async-caller"}`

// newOperations returns operations on an account with n dead letters, order-0 and so on.
func newOperations(t *testing.T, n int) (*operation.Operations, *memory.Queues) {
	t.Helper()
	store := memory.New()
	op := &operation.Operations{
		Account: newAccount(t, store), Journals: journal.Folder(t.TempDir()), History: &memory.Tables{},
	}
	for i := range n {
		text := storage.Base64.Encode([]byte(tracedEnvelope(fmt.Sprint("order-", i), i+1, asDeadLetter)))
		if _, err := store.Put(t.Context(), "async-caller-poison", storage.Item{Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	return op, store
}

// TestFindByPeeking: a call behind the first messages of a poison queue is not called missing, and no dequeue count
// changes.
func TestFindByPeeking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		op, store := newOperations(t, 1204)
		for id, want := range map[string]error{"order-31": nil, "order-32": ErrNotKnown, "nobody": ErrNotKnown} {
			found, err := Find(t.Context(), op, id, Options{PeekOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			_, err = found.One()
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", id, err, want)
			}
			const behind = "queue async-caller-poison: only the first 32 of about 1,204 were looked at"
			if len(found.Unread) != 1 || !strings.HasPrefix(found.Unread[0].Error(), behind) ||
				want != nil && !strings.Contains(err.Error(), behind) {
				t.Errorf("%s: not looked at: %v, %v", id, found.Unread, err)
			}
		}
		for _, m := range store.All("async-caller-poison") {
			if m.DequeueCount != 0 {
				t.Fatalf("the dequeue count of %s is %d", m.ID, m.DequeueCount)
			}
		}
		found, err := Find(t.Context(), op, "order-32", Options{})
		if err != nil || len(found.Calls) != 1 {
			t.Errorf("of whole queues %d calls are found, %v", len(found.Calls), err)
		}
	})
}

// TestFindErrors: the error says whether nothing, something unknown or more than one call has the ID.
func TestFindErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		op, store := newOperations(t, 2)
		copied := storage.Item{Text: store.All("async-caller-poison")[1].Text}
		if _, err := store.Put(t.Context(), "async-caller-poison", copied); err != nil {
			t.Fatal(err)
		}
		for id, want := range map[string]error{"order-0": nil, "order-1": ErrSeveral, "order-2": ErrNotFound} {
			found, err := Find(t.Context(), op, id, Options{PeekOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := found.One(); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", id, err, want)
			}
			if errors.Is(want, ErrSeveral) && len(found.Summaries()) != 2 {
				t.Errorf("%d summaries", len(found.Summaries()))
			}
		}
		op.History = nil
		found, err := Find(t.Context(), op, "order-2", Options{})
		if err == nil {
			_, err = found.One()
		}
		if !errors.Is(err, ErrNotKnown) {
			t.Errorf("without a history: %v", err)
		}
	})
}

// TestForgedID: no command is suggested that a shell would read otherwise.
func TestForgedID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		op, _ := newOperations(t, 1)
		found, err := Find(t.Context(), op, "order-0", Options{})
		if err != nil || len(found.Calls) != 1 {
			t.Fatalf("%d calls, %v", len(found.Calls), err)
		}
		page, _ := Describe(t.Context(), op, found.Calls[0], found.Unread, mask.Hidden, time.Now())
		if commands, warning := page.Commands(); len(commands) != 2 || warning != "" {
			t.Errorf("commands %q, warning %q", commands, warning)
		}
		page.ID = "$(touch x)"
		if commands, warning := page.Commands(); len(commands) > 0 || warning == "" {
			t.Errorf("of a forged id: commands %q, warning %q", commands, warning)
		}
	})
}
