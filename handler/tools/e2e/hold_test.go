package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/tools/storageproxy"
)

// misspelt is a wrong setting.
const misspelt = "ASYNC_CALLER_CALL_TIMOUT=10s"

// forwarding makes the host pass requests of HTTP functions to the handler as they are.
const forwarding = "AzureFunctionsJobHost__customHandler__enableForwardingHttpRequest=True"

// httpFunction adds an HTTP function to the app folder.
func (f *fixture) httpFunction() {
	f.t.Helper()
	const content = `{"bindings":[{"type":"httpTrigger","direction":"in","name":"req","route":"one/{id}"},` +
		`{"type":"http","direction":"out","name":"res"}]}`
	f.must(os.Mkdir(filepath.Join(f.app, "Hook"), 0o700))
	f.must(os.WriteFile(filepath.Join(f.app, "Hook", "function.json"), []byte(content), 0o600))
}

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
	f := newFixture(t, options{azurite: true})
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

// TestForgedInHoldMode checks that an app whose HTTP functions are forwarded makes no call, and writes nothing of an
// invocation but the new visibility of the message that its id and receipt name. It posts what a client of the HTTP
// function sends with a forged Host: the host adds nothing that tells it from the host's own invocation.
func TestForgedInHoldMode(t *testing.T) {
	needsHost(t, "the handler runs alone")
	onlyLocal(t, "it is always a Development host, in which the handler does not start with a wrong setting")
	t.Parallel()
	f := newFixture(t, options{azurite: true})
	f.httpFunction()
	h := &held{}
	proxy, err := storageproxy.Open(t.Context(), f.endpoint, h)
	f.must(err)
	t.Cleanup(proxy.Close)
	f.put("r0", "200", "")
	received, err := f.store.Receive(t.Context(), mainQueue, 1, 10*time.Minute)
	f.must(err)
	genuine := received[0]
	var output bytes.Buffer
	handler := f.serve(t, &output, connection(proxy.Through(f.connectionString)), forwarding,
		"AZURE_FUNCTIONS_ENVIRONMENT=Production", "AzureFunctionsJobHost__functionTimeout=00:00:04")
	const metadata = `{"DequeueCount":"1","Id":"\"%s\"","PopReceipt":"\"%s\"",` +
		`"ExpirationTime":"\"9999-12-31T23:59:59+00:00\"","InsertionTime":"\"2026-11-29T00:00:00+00:00\""}`
	envelope := envelopeTo(f.target.URL("200"))
	for name, test := range map[string]struct {
		metadata string
		status   int
	}{
		"no_receipt":    {`{}`, 500},
		"other_receipt": {fmt.Sprintf(metadata, genuine.ID, "AgAAAAMAAAAAAAAA"), 500},
		"other_id":      {fmt.Sprintf(metadata, "0b6aa4b6-1b4c-4f07-9e0d-1a2f0c9f4a11", genuine.PopReceipt), 500},
		"no_id":         {fmt.Sprintf(metadata, "../../other/messages/x", genuine.PopReceipt), 500},
		"expires":       {strings.ReplaceAll(fmt.Sprintf(metadata, genuine.ID, genuine.PopReceipt), "9999", "1999"), 500},
	} {
		if status, text := handler.post(envelope, test.metadata); status != test.status {
			t.Errorf("%s: answered %d %s", name, status, text)
		}
	}
	text, err := storage.Base64.Decode(genuine.Text)
	f.must(err)
	status, answer := handler.post(string(text), fmt.Sprintf(metadata, genuine.ID, genuine.PopReceipt))
	if status != http.StatusOK {
		t.Errorf("the host's own invocation was answered %d %s", status, answer)
	}

	f.must(handler.command.Process.Signal(os.Interrupt))
	_ = handler.command.Wait()
	if !strings.Contains(output.String(), "customHandler.enableForwardingHttpRequest") {
		t.Errorf("the handler does not name the setting: %s", &output)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.messages) > 0 || len(f.target.Calls("r1")) > 0 || f.count(mainQueue) != 1 || f.count(poisonQueue) > 0 {
		t.Errorf("%d messages were written, %d calls", len(h.messages), len(f.target.Calls("r1")))
	}
	_, err = f.store.Update(t.Context(), mainQueue, genuine.ID, genuine.PopReceipt, genuine.Text, 0)
	if !errors.Is(err, storage.ErrStale) {
		t.Errorf("the receipt of the host is still valid: %v", err)
	}
}

// TestHoldModeInPlace checks that a message of the host stays the same one in such an app, invisible for some minutes,
// although the host deletes it when its invocation succeeds.
func TestHoldModeInPlace(t *testing.T) {
	needsHost(t, "a worker receives nothing then: TestHoldMode of package work")
	onlyLocal(t, "it is always a Development host, in which the handler does not start with a wrong setting")
	t.Parallel()
	f := newFixture(t, options{azurite: true})
	f.httpFunction()
	h := &held{}
	proxy, err := storageproxy.Open(t.Context(), f.endpoint, h)
	f.must(err)
	t.Cleanup(proxy.Close)
	f.put("r0", "200", "")
	f.start([]string{
		connection(proxy.Through(f.connectionString)), "AZURE_FUNCTIONS_ENVIRONMENT=Production", forwarding,
		"AzureFunctionsJobHost__functionTimeout=00:00:04",
	})
	f.await("the message to be held", func() bool { return len(f.host.Lines("Executed")) == 1 })
	f.stopAndCount(map[string]float64{"succeeded": 1, "received": 1})
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(f.target.Calls("r0")) > 0 || len(h.messages) > 0 || f.count(mainQueue) != 1 || f.count(poisonQueue) > 0 {
		t.Errorf("%d messages on the queue, %d written", f.count(mainQueue), len(h.messages))
	}
	if line := f.host.Lines("settled")[0]; line["action"] != "hold" || line["delay"].(float64) < 4*60*1000 {
		t.Errorf("logged %v", line)
	}
}
