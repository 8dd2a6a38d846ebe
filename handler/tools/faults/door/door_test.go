package door_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"asynccaller/handler/tools/faults/door"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustOpen(t *testing.T, handler http.HandlerFunc) (*door.Door, *http.Client) {
	t.Helper()
	d, err := door.Open(t.Context(), handler)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, &http.Client{Transport: transport}
}

func get(t *testing.T, client *http.Client, d *door.Door) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.Addr, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func TestCut(t *testing.T) {
	d, client := mustOpen(t, func(w http.ResponseWriter, _ *http.Request) { door.Cut(w) })
	if _, err := get(t, client, d); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("error %v, want a reset connection", err)
	}
	if n := d.Connections(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
}

func TestRefuse(t *testing.T) {
	d, client := mustOpen(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "open") })
	answers := func(want string) {
		t.Helper()
		if got, err := get(t, client, d); err != nil || got != want {
			t.Fatalf("answer %q, %v; want %q", got, err, want)
		}
	}
	answers("open")
	if n := d.Connections(); n != 1 {
		t.Errorf("%d connections, want the idle one", n)
	}
	ctx, end := context.WithCancel(t.Context())
	refused := make(chan error)
	for range 2 { // at the same time
		go func() { refused <- d.Refuse(ctx, time.Hour) }()
	}
	for {
		if _, err := get(t, client, d); errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
	}
	end()
	for range 2 {
		if err := <-refused; err != nil {
			t.Fatal(err)
		}
	}
	answers("open")
}
