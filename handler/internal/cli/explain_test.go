package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/explain"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/memory"
)

// TestFind: an envelope is found on the queue or its poison queue, by its request id or else its message's,
// whatever it holds; and it stays as it was.
func TestFind(t *testing.T) {
	store := memory.New()
	put := func(name, text string) string {
		t.Helper()
		if err := store.Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		m, err := store.Put(t.Context(), name, queue.Item{Text: text})
		if err != nil {
			t.Fatal(err)
		}
		return m.ID
	}
	const dead = `{"asyncCaller":1,"requestId":"dead","call":{"url":"https://t.example/"},"deadLetter":{"reason":"rejected"}}`
	put("async-caller", queue.Base64.Encode([]byte(`{"asyncCaller":1,"requestId":"other","call":{"url":"https://t.example/"}}`)))
	malformed := put("async-caller", "*")
	put("async-caller-poison", queue.Base64.Encode([]byte(dead)))

	for id, want := range map[string]struct{ content, source string }{
		"dead":    {dead, "on async-caller-poison, dequeued 0 times; what follows is what happens once it is moved back to async-caller"},
		malformed: {"*", "on async-caller, dequeued 0 times"},
	} {
		var q explain.Question
		source, err := explainOptions{queue: "async-caller", requestID: id}.find(t.Context(), store, queue.Base64, &q)
		if err != nil || string(q.Content) != want.content || !strings.HasSuffix(source, want.source) {
			t.Errorf("%s: %q, %q, %v", id, source, q.Content, err)
		}
	}
	_, err := explainOptions{queue: "async-caller", requestID: "nobody"}.find(t.Context(), store, queue.Base64, &explain.Question{})
	if coded, ok := errors.AsType[*codeError](err); !ok || coded.code != exitNothing {
		t.Errorf("not found: %v", err)
	}
	for _, m := range append(store.All("async-caller"), store.All("async-caller-poison")...) {
		if m.DequeueCount != 0 {
			t.Errorf("%s was disturbed", m.ID)
		}
	}
}

func TestWrap(t *testing.T) {
	for text, want := range map[string]string{
		"":              "",
		"one two three": "one two|three",
		"abcdefghijk":   "abcdefgh|ijk",
		"a bcdefghijkl": "a|bcdefghi|jkl",
	} {
		if got := strings.Join(wrap(text, 8), "|"); got != want {
			t.Errorf("%q is wrapped as %q, want %q", text, got, want)
		}
	}
}

func TestUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1500 * time.Millisecond: "1.5s", 6*time.Second - 1: "6s", time.Minute - 1: "1m", time.Hour: "1h",
		25*time.Hour + 3*time.Minute: "1d1h", 24*time.Hour + time.Minute: "1d", -time.Hour: "-1h",
	} {
		if got := units(d, 2); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
}
