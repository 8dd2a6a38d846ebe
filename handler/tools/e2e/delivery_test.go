package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
)

// TestCtrlCDuringASlowCall checks that a stop during a call reschedules the message and counts no attempt.
func TestCtrlCDuringASlowCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	f.put("slow", "hang", "")
	f.start(nil)
	f.await("the call", func() bool { return len(f.target.Calls("slow")) == 1 })
	began := time.Now()
	f.must(f.host.Stop(hostGrace))

	var messages []storage.Message
	f.await("the message", func() bool {
		var err error
		messages, err = f.store.Peek(t.Context(), mainQueue, storage.MaxBatch)
		f.must(err)
		return len(messages) > 0
	})
	if waited := time.Since(began); waited < 10*time.Second || f.count(mainQueue) != 1 {
		t.Fatalf("1 of %d messages is visible after %v, want 1 of 1 after 10 s, when the host has ended",
			f.count(mainQueue), waited)
	}
	content, err := storage.Base64.Decode(messages[0].Text)
	f.must(err)
	var e map[string]any
	f.must(json.Unmarshal(content, &e))
	if e["requestId"] != "slow" || e["attempts"] != nil || e["trail"] != nil {
		t.Errorf("reschedule %s, want no attempt counted", content)
	}
}

// TestOtherModes checks that text mode and unencoded messages work too.
func TestOtherModes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dataType string
		encoding storage.Encoding
	}{
		"text":        {"string", storage.Base64},
		"not_encoded": {"binary", storage.None},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, options{dataType: c.dataType})
			const form = `{"asyncCaller":1,"requestId":"r1","retry":{"schedule":["1s"]},` +
				`"call":{"url":%q,"body":"å\n<&>\"\u2028"}}`
			content := fmt.Appendf(nil, form, f.target.URL("503,200"))
			_, err := f.store.Put(t.Context(), mainQueue, storage.Item{Text: c.encoding.Encode(content)})
			f.must(err)
			f.start([]string{"AzureFunctionsJobHost:extensions:queues:messageEncoding=" + string(c.encoding)})
			f.await("the second call", func() bool { return len(f.target.Calls("r1")) == 2 })
			f.awaitEmpty()
			for _, call := range f.target.Calls("r1") {
				if !bytes.Equal(call.Body, []byte("å\n<&>\"\u2028")) {
					t.Errorf("body %q", call.Body)
				}
			}
		})
	}
}
