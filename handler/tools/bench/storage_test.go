package main

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/azure"
)

func openStub(t *testing.T) (*storage, *azure.Store) {
	t.Helper()
	stub := newStorage()
	t.Cleanup(stub.close)
	connection, err := azure.ParseConnection(func(string) string { return stub.connectionString() }, "AzureWebJobsStorage")
	if err != nil {
		t.Fatal(err)
	}
	store, err := azure.Open(connection)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return stub, store
}

// TestStorage: our own client takes the stub for storage.
func TestStorage(t *testing.T) {
	stub, store := openStub(t)
	if err := store.Create(t.Context(), "q1s"); err != nil {
		t.Error(err)
	}
	if m, err := store.Put(t.Context(), "q1s", queue.Item{Text: "eA=="}); err != nil || m.ID == "" || m.PopReceipt == "" {
		t.Errorf("%+v, %v", m, err)
	}
	if n, err := store.Count(t.Context(), "q1s"); err != nil || n != 0 {
		t.Errorf("%d, %v", n, err)
	}
	if n := stub.transactions.Load(); n != 3 || stub.strange.Load() != 0 {
		t.Errorf("%d transactions, %d of them strange", n, stub.strange.Load())
	}
	if _, err := store.Names(t.Context(), ""); err == nil || stub.strange.Load() != 1 {
		t.Errorf("what the stub does not know went well: %v", err)
	}
	if most := stub.connections.peak(); most < 1 {
		t.Errorf("%d connections", most)
	}
}

// TestStorageNext: what was put is told once, with all that another put needs.
func TestStorageNext(t *testing.T) {
	stub, store := openStub(t)
	const text = "eyJhIjoxfQ=="
	next := stub.next()
	for range 2 {
		if _, err := store.Put(t.Context(), "q1s", queue.Item{Text: text, Delay: 5 * time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	got := <-next
	if got.text != text || got.delay != 5*time.Second || int64(2*got.bytes) != stub.received.Load() {
		t.Errorf("%+v of %d bytes received", got, stub.received.Load())
	}
	select {
	case again := <-next:
		t.Errorf("told again: %+v", again)
	default:
	}
}

func TestReadPut(t *testing.T) {
	for name, test := range map[string]struct {
		body, delay string
		want        put
	}{
		"message":  {"<QueueMessage><MessageText>eA==</MessageText></QueueMessage>", "300", put{60, "eA==", 5 * time.Minute}},
		"no_delay": {"<QueueMessage><MessageText>eA==</MessageText></QueueMessage>", "", put{60, "eA==", 0}},
		"floor":    {`{"Data":`, "", put{8, "", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := readPut([]byte(test.body), test.delay); got != test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

// TestStorageTakesTheFloorsPut: it looks like a Put Message from outside.
func TestStorageTakesTheFloorsPut(t *testing.T) {
	stub, _ := openStub(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, stub.messages("floor"), bytes.NewReader(make([]byte, 1000)))
	if err != nil {
		t.Fatal(err)
	}
	response, err := stub.server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusCreated || !strings.Contains(string(answer), "PopReceipt") {
		t.Errorf("%d, %q, %v", response.StatusCode, answer, err)
	}
	if stub.transactions.Load() != 1 || stub.received.Load() != 1000 || stub.strange.Load() != 0 {
		t.Errorf("%d transactions of %d bytes, %d strange", stub.transactions.Load(), stub.received.Load(), stub.strange.Load())
	}
}
