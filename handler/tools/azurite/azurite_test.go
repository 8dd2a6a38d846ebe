package azurite_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/tools/azurite"
	"asynccaller/handler/tools/azurite/azuritetest"
	"asynccaller/handler/tools/testbed"
)

func mustOpen(t *testing.T, server *azurite.Server) *azure.Queues {
	t.Helper()
	store, err := testbed.OpenStore(server.ConnectionString)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

func TestRestartKeepsPortAndData(t *testing.T) {
	server := azuritetest.Start(t, azurite.Options{Data: t.TempDir()})
	before := *server
	store := mustOpen(t, server)
	const name = "kept"
	if err := store.Create(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(t.Context(), name, storage.Item{Text: "kept"}); err != nil {
		t.Fatal(err)
	}
	for _, restart := range []string{"running", "stopped"} {
		if restart == "stopped" {
			for range 2 { // the second one does nothing
				if err := server.Stop(); err != nil {
					t.Fatal(err)
				}
			}
			mustRefuse(t, store, name)
		}
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if server.ConnectionString != before.ConnectionString {
			t.Errorf("%s: restarted at %s, want %s", restart, server.Endpoint, before.Endpoint)
		}
		messages, err := store.Peek(t.Context(), name, storage.MaxBatch)
		if err != nil || len(messages) != 1 || messages[0].Text != "kept" {
			t.Errorf("%s: after the restart it shows %+v, %v; want what was put", restart, messages, err)
		}
	}
}

// mustRefuse checks that nothing answers. To a caller this is a temporary failure.
func mustRefuse(t *testing.T, store *azure.Queues, name string) {
	t.Helper()
	_, err := store.Count(t.Context(), name)
	if err == nil || errors.Is(err, storage.ErrRefused) || errors.Is(err, storage.ErrNoQueue) {
		t.Errorf("a stopped server answers: %v", err)
	}
}

func mustParse(t *testing.T, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestServerAddress(t *testing.T) {
	server := azuritetest.Run(t)
	u := mustParse(t, server.Endpoint)
	if u.Hostname() != "127.0.0.1" || u.Path != "/"+azurite.AccountName {
		t.Errorf("endpoint %q, want the account on 127.0.0.1", server.Endpoint)
	}
	if !strings.Contains(server.ConnectionString, "QueueEndpoint="+server.Endpoint+";") {
		t.Errorf("connection string %q does not lead to %s", server.ConnectionString, server.Endpoint)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.Endpoint+"?comp=list", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer func() { _ = resp.Body.Close() }()
	if got := resp.Header.Get("Server"); !strings.HasPrefix(got, "Azurite-Queue/") {
		t.Errorf("Server: %q answers, want Azurite", got)
	}
}

func TestRestartPortTaken(t *testing.T) {
	server := azuritetest.Run(t)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", mustParse(t, server.Endpoint).Host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if err := server.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), "EADDRINUSE") {
		t.Errorf("error %v, want the output of Azurite", err)
	}
}

func TestStartContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	server, err := azurite.Start(ctx, azurite.Options{})
	if err == nil {
		_ = server.Stop()
		t.Fatal("it started although the context had ended")
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %q, want context.Canceled", err)
	}
}

// TestNodeVersion checks that README and the Makefile name the version of Node.js that the pinned Azurite requires.
func TestNodeVersion(t *testing.T) {
	var lock struct {
		Packages struct {
			Azurite struct{ Engines struct{ Node string } } `json:"node_modules/azurite"`
		}
	}
	if err := json.Unmarshal(mustRead(t, "package-lock.json"), &lock); err != nil {
		t.Fatal(err)
	}
	version, _, _ := strings.Cut(strings.TrimPrefix(lock.Packages.Azurite.Engines.Node, ">="), ".")
	for _, page := range []string{"README.md", "Makefile"} {
		if want := "Node.js " + version + " or later"; !strings.Contains(string(mustRead(t, "../../../"+page)), want) {
			t.Errorf("%s does not say %q", page, want)
		}
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestNotInstalled(t *testing.T) {
	project := t.TempDir()
	t.Chdir(project)
	mustFail := func(want string) {
		t.Helper()
		if _, err := azurite.Start(t.Context(), azurite.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	mustFail("run this in a checkout of the repository")
	folder := filepath.Join(project, "handler", "tools", "azurite")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "package-lock.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mustFail("it is not installed: run `make npm`")
}
