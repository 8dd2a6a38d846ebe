package poison_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/decision"
	"asynccaller/handler/envelope"
	"asynccaller/handler/poison"
	"asynccaller/handler/poison/diagnosis"
	"asynccaller/handler/poison/journal"
	"asynccaller/handler/poison/mend"
	"asynccaller/handler/queue"
	"asynccaller/handler/queue/memory"
)

const (
	mainQueue   = "async-caller"
	poisonQueue = "async-caller-poison"
)

func newAccount(t *testing.T, store queue.Store) *poison.Account {
	t.Helper()
	return &poison.Account{
		Store: store, Name: "test", Live: []string{mainQueue},
		Rules: mend.Rules{Encoding: queue.Base64, Decision: decision.Rules{Expiration: 7 * 24 * time.Hour, GiveUp: envelope.GiveUpDeadLetter}},
		Runs:  journal.Folder(filepath.Join(t.TempDir(), "runs")),
	}
}

func fill(t *testing.T, store queue.Store, n int) []string {
	t.Helper()
	ctx := t.Context()
	for _, name := range []string{mainQueue, poisonQueue} {
		if err := store.Create(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	var texts []string
	for i := range n {
		text := queue.Base64.Encode(fmt.Appendf(nil, `{"asyncCaller":1,"requestId":"r%d","call":{"url":"https://t.example/orders/%d"},"attempts":3,"createdAt":"2026-01-01T00:00:00Z","deadLetter":{"at":"2026-01-02T00:00:00Z","reason":"rejected","detail":"answered 400","queue":"async-caller","attempts":3}}`, i, i))
		texts = append(texts, text)
		if _, err := store.Put(ctx, poisonQueue, queue.Item{Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	return texts
}

func texts(store *memory.Store, name string) []string {
	var all []string
	for _, m := range store.All(name) {
		all = append(all, m.Text)
	}
	slices.Sort(all)
	return all
}

func TestMoveAndUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		before := fill(t, store, 100)
		slices.Sort(before)
		a := newAccount(t, store)
		ctx := context.Background()
		p, err := a.PlanMove(ctx, poison.Source{Filter: diagnosis.Filter{Reasons: []string{"rejected"}}}, "parking", nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Execute(ctx, nil)
		if err != nil || r.Done != 100 || !r.Finished() {
			t.Fatalf("%+v, %v", r, err)
		}
		if got := texts(store, "parking"); !slices.Equal(got, before) {
			t.Errorf("%d on parking", len(got))
		}
		u, err := a.PlanUndo(ctx, r.Run)
		if err != nil {
			t.Fatal(err)
		}
		r, err = u.Execute(ctx, nil)
		if err != nil || r.Done != 100 || !r.Finished() {
			t.Fatalf("%+v, %v", r, err)
		}
		if got := texts(store, poisonQueue); !slices.Equal(got, before) {
			t.Errorf("%d on poison", len(got))
		}
		if got := texts(store, "parking"); len(got) != 0 {
			t.Errorf("%d on parking", len(got))
		}
		for _, s := range must(a.Summaries()) {
			t.Logf("%+v", s)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
