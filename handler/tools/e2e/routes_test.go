package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/tools/storageproxy"
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
		"nexus": nexusMessage{
			id: "stolen", originalRequestID: "stolen",
			callOut: nexusCallOut("PUT", "/answer/200", f.target.Addr, nexusBody),
		}.content(),
		"48_kib":      random,
		"48_kib_text": bytes.Repeat([]byte("order 42, a b"), 48<<10/12)[:48<<10],
	}
}

// addRoute makes a queue with a route, whose calls the target answers by the script, and the function.
func (f *fixture) addRoute(routes map[string]any, queue, script string) {
	f.t.Helper()
	f.must(f.store.Create(f.t.Context(), queue))
	routes[queue] = map[string]any{
		"url": f.target.URL(script), "headers": map[string]string{"X-Source": "queue"}, "cloudevents": true,
		"retry": map[string]any{"schedule": []string{"1s"}},
	}
	content, err := json.Marshal(routes)
	f.must(err)
	f.must(os.WriteFile(filepath.Join(f.app, "routes.json"), content, 0o600))
	f.syncRoutes()
}

func (f *fixture) syncRoutes() {
	f.t.Helper()
	command, stdout, stderr := f.operate("routes", "sync")
	err := command.Run()
	if err != nil {
		f.t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
}

// putRouted puts a content on a queue and returns the message's id, which is the request id of the call.
func (f *fixture) putRouted(queue string, content []byte) (id string) {
	f.t.Helper()
	put, err := f.store.Put(f.t.Context(), queue, storage.Item{Text: storage.Base64.Encode(content)})
	f.must(err)
	return put.ID
}

// answered reports whether the calls with a request id got exactly these answers.
func (f *fixture) answered(id, answers string) bool {
	var got []string
	for _, call := range f.target.Calls(id) {
		got = append(got, call.Answer)
	}
	return strings.Join(got, ",") == answers
}

// mustCarry checks that each call with a request id is the route's, with exactly these bytes.
func (f *fixture) mustCarry(name, id string, content []byte) {
	f.t.Helper()
	for n, call := range f.target.Calls(id) {
		if !bytes.Equal(call.Body, content) || call.Method != "POST" || call.Header.Get("X-Source") != "queue" ||
			call.Attempt != fmt.Sprint(n+1) {
			f.t.Errorf("%s, call %d: %s, attempt %s, %d bytes %.60q, %v", name, n+1, call.Method, call.Attempt,
				len(call.Body), call.Body, call.Header)
		}
	}
}

// TestRoutedContents: every content is delivered byte for byte and means nothing: at the first attempt, after failures,
// and after its dead letter was exported, deleted, imported and requeued. One without room for an envelope is tried
// again in place, and its poison message is the content.
func TestRoutedContents(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{azurite: true})
	routes := map[string]any{}
	answers := map[string]string{"first-in": "200", "third-in": "503,reset,200", "rejected-in": "400"}
	for queue := range answers {
		f.addRoute(routes, queue, strings.Replace(answers[queue], "400", "400,200", 1))
	}
	contents, ids := routedContents(f), map[[2]string]string{}
	for name, content := range contents {
		for queue := range answers {
			ids[[2]string{queue, name}] = f.putRouted(queue, content)
		}
	}
	event := []byte(`{"id":"event-1", "source":"/shop","type":"order","specversion":"1.0","data":{"order":42}}`)
	f.putRouted("first-in", event)
	f.putRouted("first-in", event)
	f.start(nil)
	for key, id := range ids {
		f.await(fmt.Sprint(key, " to be called"), func() bool { return f.answered(id, answers[key[0]]) })
		f.mustCarry(fmt.Sprint(key), id, contents[key[1]])
	}
	f.await("the event to be delivered twice", func() bool { return f.answered("event-1", "200,200") })
	for _, call := range f.target.Calls("event-1") {
		if !bytes.Equal(call.Body, event) || call.Header.Get("Content-Type") != "application/cloudevents+json" {
			t.Errorf("the event was delivered as %v: %q", call.Header, call.Body)
		}
	}
	if calls := f.target.Calls("stolen"); len(calls) > 0 {
		t.Errorf("a content was taken for an envelope: %v", calls)
	}
	const withoutRoom = 2
	f.await("the dead letters", func() bool {
		return f.count(poisonQueue) == len(contents)-withoutRoom && f.count("rejected-in-poison") == withoutRoom
	})
	file := filepath.Join(f.app, "letters.jsonl")
	for _, args := range [][]string{
		{"export", "--output", file},
		{"delete", "--all", "--yes"},
		{"import", file, "--yes"},
		{"retry", "--all", "--yes"},
	} {
		f.mustPoison(args...)
	}
	for name, content := range contents {
		if len(content) < 48<<10 {
			id := ids[[2]string{"rejected-in", name}]
			f.await(name+" to be delivered from its dead letter", func() bool { return f.answered(id, "400,200") })
			if body := f.target.Calls(id)[1].Body; !bytes.Equal(body, content) {
				t.Errorf("%s was delivered from its dead letter as %.60q", name, body)
			}
		}
	}
	for queue := range answers {
		f.await(queue+" to be empty", func() bool { return f.count(queue) == 0 })
	}
	f.awaitEmpty()
	raw := f.drain("rejected-in-poison") // again, with other ids
	for _, content := range raw {
		if !bytes.Equal(content, contents["48_kib"]) && !bytes.Equal(content, contents["48_kib_text"]) {
			t.Errorf("a poison message of %d bytes is not the content: %.60q", len(content), content)
		}
	}
	if len(raw) != withoutRoom || f.count(poisonQueue) > 0 {
		t.Errorf("%d poison messages are contents, %d are dead letters", len(raw), f.count(poisonQueue))
	}
}

// TestRoutedHold: while routes.json is wrong, or lacks the route of a function, a message goes back to its queue as it
// was. After the correction it is delivered.
func TestRoutedHold(t *testing.T) {
	needsHost(t, "a worker receives nothing then: TestHoldMode of package work")
	onlyLocal(t, "it is always a Development host, in which the handler does not start with a wrong file")
	t.Parallel()
	for name, wrong := range map[string]string{
		"invalid": `{"orders-in":{"url":"ftp://shop.example"}}`, "no_route": `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{})
			h := &held{}
			proxy, err := storageproxy.Open(t.Context(), f.endpoint, h)
			f.must(err)
			t.Cleanup(proxy.Close)
			f.addRoute(map[string]any{}, "orders-in", "200")
			file := filepath.Join(f.app, "routes.json")
			right, err := os.ReadFile(file)
			f.must(err)
			f.must(os.WriteFile(file, []byte(wrong), 0o600))
			content := routedContents(f)["native"]
			f.putRouted("orders-in", content)
			f.start([]string{
				connection(proxy.Through(f.connectionString)), "AZURE_FUNCTIONS_ENVIRONMENT=Production",
				"AzureFunctionsJobHost__functionTimeout=00:00:04", // with which the message waits for 2 s
			})
			f.await("the message to be held", func() bool { return len(f.host.Lines("Executed")) == 1 })
			f.must(f.host.Stop(hostGrace))
			h.mu.Lock()
			defer h.mu.Unlock()
			if len(h.messages) != 1 || h.requests[0].Queue != "orders-in" ||
				h.requests[0].Text != storage.Base64.Encode(content) {
				t.Fatalf("wrote %v", h.requests)
			}
			f.must(os.WriteFile(file, right, 0o600))
			_, err = f.store.Update(t.Context(), "orders-in", h.messages[0].ID, h.messages[0].PopReceipt,
				h.requests[0].Text, 0) // minutes later
			f.must(err)
			f.start(nil)
			f.await("the message to be delivered", func() bool { return f.answered(h.messages[0].ID, "200") })
			f.mustCarry("held", h.messages[0].ID, content)
			if calls := f.target.Calls("stolen"); len(calls) > 0 {
				t.Errorf("the content was taken for an envelope: %v", calls)
			}
		})
	}
}

// TestRoutedQueueIsLeftAlone: without a route and its function, nothing reads the queue.
func TestRoutedQueueIsLeftAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	f.addRoute(map[string]any{}, "orders-in", "200")
	f.start(nil)
	delivered := f.putRouted("orders-in", []byte("first"))
	f.await("the first message to be delivered", func() bool { return f.answered(delivered, "200") })
	f.must(f.host.Stop(hostGrace))
	f.must(os.Remove(filepath.Join(f.app, "routes.json")))
	f.syncRoutes()
	left := f.putRouted("orders-in", []byte("second"))
	f.put("r0", "200", "")
	f.start(nil)
	f.await("another message to be delivered", func() bool { return f.delivered(1) })
	messages, err := f.store.Peek(t.Context(), "orders-in", storage.MaxBatch)
	f.must(err)
	if len(messages) != 1 || messages[0].ID != left || messages[0].DequeueCount != 0 {
		t.Errorf("the queue has %v", messages)
	}
}
