package e2e_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/tools/storageproxy"
)

// misspelt is a wrong setting.
const misspelt = "ASYNC_CALLER_CALL_TIMOUT=10s"

// held records the messages that are written.
type held struct {
	mu       sync.Mutex
	requests []storageproxy.Request
	messages []storageproxy.Message
}

func (*held) Before(storageproxy.Request) (o storageproxy.Order) { return o }

func (h *held) After(r storageproxy.Request, a storageproxy.Answer) (o storageproxy.Order) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Operation == storageproxy.Put && a.Done() {
		h.requests = append(h.requests, r)
		h.messages = append(h.messages, a.Messages...)
	}
	return o
}

// TestHoldMode checks that a handler with a wrong setting makes no call and puts a message back as it was, for some
// minutes, and that the message is delivered when the setting is right.
func TestHoldMode(t *testing.T) {
	needsHost(t, "a worker receives nothing then: TestHoldMode of package work")
	onlyLocal(t, "it is always a Development host, in which the handler does not start with a wrong setting")
	t.Parallel()
	f := newFixture(t, options{})
	h := &held{}
	proxy, err := storageproxy.Open(t.Context(), f.endpoint, h)
	f.must(err)
	t.Cleanup(proxy.Close)
	content := fmt.Sprintf("{ \"asyncCaller\" : 1,\n\t\"call\":{\"url\":%q},\"requestId\":\"r0\", "+
		"\"\\u0065xtra\":[1.50e0] }\n", f.target.URL("200"))
	f.putContent([]byte(content))
	f.start([]string{
		connection(proxy.Through(f.connectionString)), "AZURE_FUNCTIONS_ENVIRONMENT=Production", misspelt,
		"AzureFunctionsJobHost__functionTimeout=00:00:04", // with which the message waits for 2 s instead of a minute
	})
	f.await("the message to be held", func() bool { return len(f.host.Lines("Executed")) == 1 })
	f.stopAndCount(map[string]float64{"succeeded": 1, "received": 1})
	if len(f.target.Calls("r0")) > 0 || f.count(poisonQueue) > 0 || f.count(mainQueue) != 1 {
		t.Errorf("%d messages on the queue, %d calls", f.count(mainQueue), len(f.target.Calls("r0")))
	}
	lines := f.host.Lines("hold mode")
	if len(lines) == 0 || lines[0]["level"] != "error" ||
		!strings.Contains(fmt.Sprint(lines[0]["error"]), "ASYNC_CALLER_CALL_TIMOUT") {
		t.Errorf("the log says %v", lines)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.messages) != 1 {
		t.Fatalf("%d messages were written", len(h.messages))
	}
	if delay := h.requests[0].Delay; h.requests[0].Text != storage.Base64.Encode([]byte(content)) ||
		delay < 4*time.Minute || delay > 6*time.Minute+time.Second {
		t.Errorf("written for %v: %s", delay, h.requests[0].Text)
	}

	_, err = f.store.Update(t.Context(), mainQueue, h.messages[0].ID, h.messages[0].PopReceipt, h.requests[0].Text, 0)
	f.must(err) // minutes later
	f.start(nil)
	f.await("the message to be delivered", func() bool { return f.delivered(1) })
	f.awaitEmpty()
	if calls := f.target.Calls("r0"); len(calls) != 1 || calls[0].Attempt != "1" {
		t.Errorf("calls %v", calls)
	}
	f.mustDeliverOnce()
}
