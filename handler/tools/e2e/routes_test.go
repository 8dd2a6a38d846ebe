package e2e_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf16"

	"asynccaller/handler/internal/storage"
)

// routedContents are contents of routed queues: kinds of bytes, and messages that would mean a call of the id "stolen"
// on another queue.
func routedContents(f *fixture) map[string][]byte {
	random := make([]byte, 48<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	wide := []byte{0xff, 0xfe}
	for _, unit := range utf16.Encode([]rune("order å 🙂\r\n")) {
		wide = append(wide, byte(unit), byte(unit>>8))
	}
	native := fmt.Appendf(nil, `{"asyncCaller":1,"requestId":"stolen","call":{"url":%q,"method":"PUT"},`+
		`"callback":{"url":%[1]q}}`, f.target.URL("200"))
	return map[string][]byte{
		"empty":        {},
		"space":        []byte(" \r\n\t"),
		"text":         []byte("order å 🙂\u2028<&>\x00\r\n"),
		"json":         []byte("{ \"order\" : 1.50e0, \"order\": 2 }\n"),
		"bytes":        random[:100],
		"utf16":        wide,
		"base64_twice": []byte(storage.Base64.Encode([]byte(storage.Base64.Encode(native)))),
		"native":       native,
		"nexus":        nexusMessage{id: "stolen", callOut: nexusCallOut("/answer/200", f.target.Addr, "x")}.content(),
		"48_kib":       random,
		"48_kib_text":  bytes.Repeat([]byte("order 42, a b"), 48<<10/12)[:48<<10],
	}
}

// TestRoutedContents: every content is delivered byte for byte and means nothing, at the first attempt and after
// failures. One without room for an envelope is tried again in place.
func TestRoutedContents(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{azurite: true})
	f.must(f.store.Create(t.Context(), "orders-in"))
	const answers = "503,reset,200"
	route := fmt.Sprintf(`{"orders-in":{"url":%q,"headers":{"X-Source":"queue"},"retry":{"schedule":["1s"]}}}`,
		f.target.URL(answers))
	f.must(os.WriteFile(filepath.Join(f.app, "routes.json"), []byte(route), 0o600))
	command, stdout, stderr := f.operate("routes", "sync")
	if err := command.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	contents, ids := routedContents(f), map[string]string{}
	for name, content := range contents {
		put, err := f.store.Put(t.Context(), "orders-in", storage.Item{Text: storage.Base64.Encode(content)})
		f.must(err)
		ids[name] = put.ID // which is the request id of the call
	}
	f.start(nil)
	for name, id := range ids {
		f.await(name+" to be called", func() bool { return len(f.target.Calls(id)) == 3 })
		for n, call := range f.target.Calls(id) {
			if !bytes.Equal(call.Body, contents[name]) || call.Method != "POST" ||
				call.Header.Get("X-Source") != "queue" || call.Attempt != fmt.Sprint(n+1) {
				t.Errorf("%s, call %d: %s, attempt %s, %d bytes %.60q, %v", name, n+1, call.Method, call.Attempt,
					len(call.Body), call.Body, call.Header)
			}
		}
	}
	f.await("the queue to be empty", func() bool { return f.count("orders-in") == 0 })
	if calls := f.target.Calls("stolen"); len(calls) > 0 {
		t.Errorf("a content was taken for an envelope: %v", calls)
	}
	if f.count(poisonQueue) > 0 {
		t.Error("there are dead letters")
	}
}
