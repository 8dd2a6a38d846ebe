package delivery_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
)

const evil = `{"asyncCaller":1,"requestId":"evil","call":{"url":"https://evil.example/"},` +
	`"deadline":"2000-01-01T00:00:01Z","nextAttemptAt":"2000-02-01T00:00:00Z","giveUp":"drop",` +
	`"callback":{"url":"https://evil.example/"},` +
	`"deadLetter":{"at":"2000-01-01T00:00:00Z","reason":"rejected","queue":"async-caller","attempts":1}}`

// contents are those that are hardest to keep.
func contents() map[string][]byte {
	random := make([]byte, 34<<10)
	_, _ = rand.Read(random)
	return map[string][]byte{
		"empty":          {},
		"text":           []byte("grüße\r\n\x00\u2028"),
		"binary":         random,
		"utf-16":         []byte("\xff\xfea\x00b\x00\x3d\xd8"),
		"base64":         []byte(base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString(random[:9])))),
		"native":         []byte(evil),
		"nexus":          []byte(`{"RawRequest":"R0VUIC8gSFRUUC8xLjENCg0K","Deadline":"2000-01-01T00:00:01Z"}`),
		"long_text":      bytes.Repeat([]byte("x"), 47<<10),
		"json":           []byte(" {\"a\": [1, 2],\n\"a\": 1e400}"),
		"broken_escape":  []byte(`"},"callback":{"url":"https://evil.example/"`),
		"invalid_string": []byte("\"\xed\xa0\x80\""),
	}
}

// FuzzRouted: no content chooses anything but the body, and none is lost.
func FuzzRouted(f *testing.F) {
	all := contents()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, status := range []int{0, 222, 303} { // delivered, rejected, down
			f.Add(all[name], status)
		}
	}
	f.Fuzz(func(t *testing.T, content []byte, status int) {
		content = content[:min(len(content), 48<<10)] // no queue holds more
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, &target{answer: func(context.Context, *envelope.Envelope) decision.Outcome {
				return decision.Outcome{Status: 200 + max(status, -status)%400}
			}}).withRoute(t, `,"retry":{"schedule":["1s"],"maxAttempts":2}`)
			b.send(t, routedQueue, string(content))
			b.runHost(t, routedQueue, mainQueue)
			for _, call := range b.target.calls {
				if call.body != string(content) || call.url != "https://t.example/orders" {
					t.Errorf("call of %s with %q", call.url, call.body)
				}
			}
			kept := len(b.items(t, routedPoison)) + len(b.items(t, poisonQueue))
			for _, raw := range b.items(t, routedPoison) {
				if raw.content != string(content) {
					t.Errorf("kept %q", raw.content)
				}
			}
			if len(b.items(t, poisonQueue)) == 1 {
				if letter := b.mustDeadLetter(t); string(letter.Call.Body.Bytes()) != string(content) {
					t.Errorf("the dead letter has the body %q", letter.Call.Body.Bytes())
				}
			}
			last := b.linesWith(t, "settled")
			isDelivered := last[len(last)-1]["reason"] == string(decision.Delivered)
			if len(b.target.calls) == 0 || isDelivered == (kept == 1) || kept > 1 {
				t.Errorf("%d calls, %d kept", len(b.target.calls), kept)
			}
		})
	})
}
