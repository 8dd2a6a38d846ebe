package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/freeport"
	"asynccaller/handler/tools/testbed"
)

// listen takes a free port.
func listen(t *testing.T) (net.Listener, int) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener, listener.Addr().(*net.TCPAddr).Port
}

// freePorts returns ports that no program uses.
func freePorts(t *testing.T) (p azurite.Options) {
	t.Helper()
	for _, port := range []*int{&p.BlobPort, &p.Port, &p.TablePort} {
		found, err := freeport.Find(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		*port = found
	}
	return p
}

// until runs Azurite, does something once it listens, and interrupts it.
func until(t *testing.T, data string, p azurite.Options, do func(*azure.Queues)) (printed string) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, write, data, p)
		_ = write.Close()
	}()
	var text strings.Builder
	for !strings.Contains(text.String(), "Ctrl-C stops it.\n") {
		if _, err := io.CopyN(&text, read, 1); err != nil {
			t.Fatal(errors.Join(err, <-ended))
		}
	}
	store, err := testbed.OpenStore(fmt.Sprintf("AccountName=%s;AccountKey=%s;QueueEndpoint=http://127.0.0.1:%d/%[1]s",
		azurite.AccountName, azurite.AccountKey, p.Port))
	if err != nil {
		t.Fatal(err)
	}
	do(store)
	store.Close()
	interrupt()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v after an interrupt", err)
	}
	return text.String()
}

func TestRunKeepsData(t *testing.T) {
	data, p := t.TempDir(), freePorts(t)
	printed := until(t, data, p, func(store *azure.Queues) {
		if err := store.Create(t.Context(), "kept"); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Put(t.Context(), "kept", storage.Item{Text: "kept"}); err != nil {
			t.Fatal(err)
		}
		for _, port := range []int{p.BlobPort, p.TablePort} {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
		}
	})
	addresses := fmt.Sprintf("blobs on port %d, queues on %d, tables on %d", p.BlobPort, p.Port, p.TablePort)
	for _, part := range []string{addresses, data} {
		if !strings.Contains(printed, part) {
			t.Errorf("printed %q, want %q", printed, part)
		}
	}
	until(t, data, p, func(store *azure.Queues) {
		if count, err := store.Count(t.Context(), "kept"); err != nil || count != 1 {
			t.Errorf("%d messages after a restart, error %v", count, err)
		}
	})
}

// TestRunPortTaken checks that each port is named before anything is started.
func TestRunPortTaken(t *testing.T) {
	_, taken := listen(t)
	for _, p := range []azurite.Options{{BlobPort: taken}, {Port: taken}, {TablePort: taken}} {
		err := run(t.Context(), t.Output(), t.TempDir(), p)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("port %d is not free: stop ", taken)) {
			t.Errorf("%+v: error %v", p, err)
		}
	}
}
