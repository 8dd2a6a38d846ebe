package cli

import (
	"strings"
	"testing"

	"asynccaller/handler/internal/config"
	"asynccaller/handler/internal/explain"
	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// TestFind checks that a message is found on the queue or its poison queue, by request id or message id, and
// is not changed.
func TestFind(t *testing.T) {
	store := memory.New()
	put := func(name, text string) string {
		t.Helper()
		if err := store.Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		m, err := store.Put(t.Context(), name, storage.Item{Text: text})
		if err != nil {
			t.Fatal(err)
		}
		return m.ID
	}
	const dead = `{"asyncCaller":1,"requestId":"dead","call":{"url":"https://t.example/"},` +
		`"deadLetter":{"reason":"rejected"}}`
	put("async-caller",
		storage.Base64.Encode([]byte(`{"asyncCaller":1,"requestId":"other","call":{"url":"https://t.example/"}}`)))
	malformed := put("async-caller", "*")
	put("async-caller-poison", storage.Base64.Encode([]byte(dead)))

	a := config.App{Host: functionapp.Host{Queues: functionapp.QueueOptions{MessageEncoding: storage.Base64}}}
	for id, want := range map[string]struct{ content, source string }{
		"dead": {
			dead,
			"on async-caller-poison, dequeue count 0; the explanation applies once it is moved back to async-caller",
		},
		malformed: {"*", "on async-caller, dequeue count 0"},
	} {
		o := explainOptions{Question: explain.Question{
			Queue:           "async-caller",
			MaxContentBytes: storage.Base64.MaxContentBytes(),
		}, requestID: id}
		source, err := o.find(t.Context(), store, a)
		if err != nil || string(o.Content) != want.content || !strings.HasSuffix(source, want.source) {
			t.Errorf("%s: %q, %q, %v", id, source, o.Content, err)
		}
	}
	_, err := (&explainOptions{Question: explain.Question{Queue: "async-caller"}, requestID: "nobody"}).
		find(t.Context(), store, a)
	if codeOf(err) != exitNothing {
		t.Errorf("not found: %v", err)
	}
	for _, m := range append(store.All("async-caller"), store.All("async-caller-poison")...) {
		if m.DequeueCount != 0 {
			t.Errorf("%s was disturbed", m.ID)
		}
	}
}
