package cli

import (
	"strings"
	"testing"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/rules/explain"
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

// TestUndelivered: which messages the host moves to the poison queue instead of delivering them.
func TestUndelivered(t *testing.T) {
	const id = "8a1b2c3d"
	encoded := storage.Base64.Encode([]byte("{}"))
	for name, test := range map[string]struct {
		encoding storage.Encoding
		queue    string
		message  storage.Message
		want     string // a part of the detail; empty if the host delivers the message
	}{
		"encoded":            {storage.Base64, "q", storage.Message{Text: encoded}, ""},
		"white_space":        {storage.Base64, "q", storage.Message{Text: " " + encoded + "\r\n"}, ""},
		"plain":              {storage.Base64, "q", storage.Message{Text: "{}"}, "poison requeue --queue q-poison --reason undecodable --fix"},
		"without_padding":    {storage.Base64, "q", storage.Message{Text: "e30"}, "not base64"},
		"url_alphabet":       {storage.Base64, "q", storage.Message{Text: "_-_-"}, "not base64"},
		"plain_on_poison":    {storage.Base64, "q-poison", storage.Message{Text: "{}"}, "encode it: `async-caller poison requeue --queue q-poison 8a1b2c3d --fix"},
		"no_encoding":        {storage.None, "q", storage.Message{Text: "{}"}, ""},
		"last_delivery":      {storage.Base64, "q", storage.Message{Text: encoded, DequeueCount: 4}, ""},
		"too_many":           {storage.Base64, "q", storage.Message{Text: encoded, DequeueCount: 5}, "has reached maxDequeueCount 5"},
		"too_many_on_poison": {storage.Base64, "q-poison", storage.Message{Text: encoded, DequeueCount: 9}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			test.message.ID = id
			options := functionapp.QueueOptions{MessageEncoding: test.encoding, MaxDequeueCount: 5}
			got := whyUndelivered(options, "q", test.queue, test.message)
			if (got == nil) != (test.want == "") || got != nil && !strings.Contains(got.Detail, test.want) {
				t.Errorf("%+v, want %q", got, test.want)
			}
		})
	}
}
