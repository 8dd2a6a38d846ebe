package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
)

// TestExpiredMessagesBecomeDeadLetters checks that a target that stays down costs the host nothing: each message
// is dequeued once, and the host itself moves none to the poison queue.
func TestExpiredMessagesBecomeDeadLetters(t *testing.T) {
	t.Parallel()
	const messages = 200
	f := newFixture(t, options{})
	deadline := time.Now().Add(8 * time.Second).UTC().Format(time.RFC3339)
	for n := range messages {
		f.put(fmt.Sprintf("r%d", n), "500", fmt.Sprintf(`,"retry":{"schedule":["1s"]},"deadline":%q`, deadline))
	}
	f.start(nil)
	f.await("200 dead letters", func() bool { return f.count(poisonQueue) == messages })
	f.awaitEmpty()

	ids := map[any]bool{}
	for _, e := range f.deadLetters() {
		ids[e["requestId"]] = true
		letter, _ := e["deadLetter"].(map[string]any)
		if letter["reason"] != "expired" || letter["queue"] != mainQueue {
			t.Errorf("dead letter %v", letter)
		}
		if attempts, _ := e["attempts"].(float64); int(attempts) != len(f.target.Calls(fmt.Sprint(e["requestId"]))) {
			t.Errorf("%v: %v attempts on the dead letter, the target saw %d", e["requestId"], attempts, len(f.target.Calls(fmt.Sprint(e["requestId"]))))
		}
	}
	if len(ids) != messages {
		t.Errorf("%d different dead letters, want %d", len(ids), messages)
	}
	f.mustDeliverOnce()
}

// TestTheLargestEnvelope checks that an envelope that fills a message to the last byte survives 50 reschedules with
// its call unchanged.
func TestTheLargestEnvelope(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{azurite: true})
	script := strings.Repeat("500,", 50) + "200"
	const form = `{"asyncCaller":1,"requestId":"large","retry":{"schedule":["0s"]},"deadline":"9999-12-31T23:59:59Z","call":{"url":%q,"body":%q}}`
	body := strings.Repeat("0123456789abcdef", 4096)
	room := storage.Base64.MaxContentBytes() - len(fmt.Sprintf(form, f.target.URL(script), ""))
	f.putContent(fmt.Appendf(nil, form, f.target.URL(script), body[:room]))
	f.start([]string{"ASYNC_CALLER_RETRY_MIN_DELAY=0s"})
	f.await("the last call", func() bool { return len(f.target.Calls("large")) == 51 })
	f.awaitEmpty()
	for n, call := range f.target.Calls("large") {
		if string(call.Body) != body[:room] {
			t.Fatalf("call %d: the body has changed", n+1)
		}
	}
}

// TestGreedyEnvelopes checks that no envelope can have its target called at full speed, or for longer than the operator
// allows, and that each ends as a dead letter of its own.
func TestGreedyEnvelopes(t *testing.T) {
	t.Parallel()
	const end = `,"deadline":"9999-12-31T23:59:59Z"`
	greedy := map[string]string{
		"list":        end + `,"retry":{"schedule":["0s"]}`,
		"exponential": end + `,"retry":{"baseDelay":1e-9,"factor":1}`,
		"fixed":       end + `,"retry":{"policy":"fixed","baseDelay":0.0001}`,
		"named":       end + `,"retry":"fast"`,
		"default":     end,
		"cycles":      end + `,"retry":{"policy":"cycles","receiveRetryCount":999,"maxRetryCycles":99,"retryCycleDelay":"1ns"}`,
		"state": end + `,"retry":"fast","attempts":2147483647,"nextAttemptAt":"1990-01-01T00:00:00Z","createdAt":"9999-01-01T00:00:00Z",` +
			`"trail":[` + strings.Repeat("{},", 99) + `{}]`,
		"not_before": `,"notBefore":"9999-01-01T00:00:00Z"`,
	}
	f := newFixture(t, options{})
	f.must(os.WriteFile(filepath.Join(f.app, "retry.json"), []byte(`{"fast":{"schedule":["0s"]}}`), 0o600))
	for id, members := range greedy {
		f.put(id, "500", members)
	}
	f.start([]string{"ASYNC_CALLER_RETRY=fast", "ASYNC_CALLER_EXPIRATION=15s", "ASYNC_CALLER_MAX_DEADLINE=15s"})
	f.await("the dead letters", func() bool { return f.count(poisonQueue) == len(greedy) })
	f.awaitEmpty()

	for _, e := range f.deadLetters() {
		id := fmt.Sprint(e["requestId"])
		if letter, _ := e["deadLetter"].(map[string]any); letter["reason"] != "expired" {
			t.Errorf("%s: dead letter %v", id, letter)
		}
		calls, burst := f.target.Calls(id), 1
		if id == "cycles" {
			burst = 10
		}
		for i := burst; i < len(calls); i++ {
			if wait := calls[i].At.Sub(calls[i-burst].At); wait < time.Second {
				t.Errorf("%s: call %d comes %v after call %d", id, i+1, wait, i-burst+1)
			}
		}
		if last := len(calls) - 1; (last < burst) != (id == "not_before") || last > 0 && calls[last].At.Sub(calls[0].At) > 15*time.Second {
			t.Errorf("%s: %d calls", id, len(calls))
		}
	}
	limited := map[any]bool{}
	for _, line := range f.host.Lines("settled") {
		if line["deadline_limited"] != nil {
			limited[line["request_id"]] = true
		}
	}
	if len(limited) != len(greedy) {
		t.Errorf("the log says only of %v that their deadline is limited", limited)
	}
	f.mustDeliverOnce()
}

// TestHangingTarget checks that a call without an answer within its timeout is rescheduled, and the log says why.
func TestHangingTarget(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	f.putContent(fmt.Appendf(nil, `{"asyncCaller":1,"requestId":"slow","retry":{"schedule":["1s"]},"call":{"url":%q,"timeout":"1s"}}`, f.target.URL("hang,200")))
	f.start(nil)
	f.await("the second call", func() bool { return len(f.target.Calls("slow")) == 2 })
	f.awaitEmpty()
	settled := f.host.Lines("settled")
	for _, line := range settled {
		if line["action"] == "reschedule" && line["reason"] == "timeout" && line["request_id"] == "slow" {
			return
		}
	}
	t.Errorf("no reschedule with reason timeout: %v", settled)
}

// TestCtrlCDuringASlowCall checks that a stop during a call reschedules the message and counts no attempt.
func TestCtrlCDuringASlowCall(t *testing.T) {
	t.Parallel()
	interruptSlowCall(t, nil)
}

// interruptSlowCall stops the host during a call, and returns the message that is then on the queue.
func interruptSlowCall(t *testing.T, env []string) (*fixture, storage.Message) {
	t.Helper()
	f := newFixture(t, options{})
	f.put("slow", "hang", "")
	f.start(env)
	f.await("the call", func() bool { return len(f.target.Calls("slow")) == 1 })
	began := time.Now()
	f.must(f.host.Stop(30 * time.Second))

	var messages []storage.Message
	f.await("the message", func() bool {
		var err error
		messages, err = f.store.Peek(t.Context(), mainQueue, storage.MaxBatch)
		f.must(err)
		return len(messages) > 0
	})
	if waited := time.Since(began); waited < 10*time.Second || f.count(mainQueue) != 1 {
		t.Fatalf("1 of %d messages is visible after %v, want 1 of 1 after 10 s, when the host has ended", f.count(mainQueue), waited)
	}
	content, err := storage.Base64.Decode(messages[0].Text)
	f.must(err)
	var e map[string]any
	f.must(json.Unmarshal(content, &e))
	if e["requestId"] != "slow" || e["attempts"] != nil || e["trail"] != nil {
		t.Errorf("reschedule %s, want no attempt counted", content)
	}
	return f, messages[0]
}

// TestMovedBackByHand checks that a dead letter that any tool moves back to the main queue starts again.
func TestMovedBackByHand(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	f.put("again", "400,200", "")
	f.start(nil)
	f.await("the dead letter", func() bool { return f.count(poisonQueue) == 1 })
	messages, err := f.store.Receive(t.Context(), poisonQueue, 1, time.Minute)
	f.must(err)
	_, err = f.store.Put(t.Context(), mainQueue, storage.Item{Text: messages[0].Text})
	f.must(err)
	f.await("the second call", func() bool { return len(f.target.Calls("again")) == 2 })
	if attempt := f.target.Calls("again")[1].Attempt; attempt != "1" {
		t.Errorf("attempt %s, want to start again at 1", attempt)
	}
	f.awaitEmpty()
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
			f := newFixture(t, options{azurite: true, dataType: c.dataType})
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
