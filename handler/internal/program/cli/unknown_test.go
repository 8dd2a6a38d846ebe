package cli

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/internal/storage/emulator"
	"asynccaller/handler/tools/storageproxy"
)

// instead is a watcher that gives one answer in the place of storage. If that has an error code, which means that
// storage gave it, the names of the queues can be read, as with a SAS that may only list.
type instead storageproxy.Order

func (i instead) Before(r storageproxy.Request) storageproxy.Order {
	if i.Code != "" && r.Queue == "" {
		return storageproxy.Order{}
	}
	return storageproxy.Order(i)
}

func (instead) After(storageproxy.Request, storageproxy.Answer) storageproxy.Order {
	return storageproxy.Order{}
}

// TestUnknownIsNeverNone: no command says "none" or 0 of what it could not read, whether the credential has too few
// permissions or another server answers in the place of storage.
func TestUnknownIsNeverNone(t *testing.T) {
	t.Parallel()
	server, err := emulator.Start(t.Context(), emulator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	conn, err := azure.ParseConnection([]string{storage.ConnectionName + "=" + server.ConnectionString},
		storage.ConnectionName)
	if err != nil {
		t.Fatal(err)
	}
	store, err := azure.Open(conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	for _, name := range []string{"async-caller", "async-caller-1", "async-caller-poison", "aside"} {
		if _, err := storage.PutCreating(t.Context(), store, name, storage.Item{Text: "eA=="}); err != nil {
			t.Fatal(err)
		}
	}
	// proxied returns the connection to an account in the place of which another server answers.
	proxied := func(order storageproxy.Order) string {
		connection := server.ConnectionString
		for _, endpoint := range []string{server.QueueEndpoint, server.TableEndpoint} {
			proxy, err := storageproxy.Open(t.Context(), endpoint, instead(order))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(proxy.Close)
			connection = proxy.Through(connection)
		}
		return connection
	}
	var commands sync.WaitGroup
	defer commands.Wait()
	const foreign = "Storage's: a proxy (HTTP_PROXY), or the endpoint of another service"
	for name, test := range map[string]struct {
		connection, want string
		code             int // of status
	}{
		"list_only": {
			proxied(storageproxy.Order{Status: 403, Code: "AuthorizationPermissionMismatch"}),
			"403 AuthorizationPermissionMismatch", exitPartly,
		},
		"html":      {proxied(storageproxy.Order{Status: 200, Body: "<html><br></html>"}), foreign, exitFailed},
		"empty":     {proxied(storageproxy.Order{Status: 200}), foreign, exitFailed},
		"proxy_407": {proxied(storageproxy.Order{Status: 407}), foreign, exitFailed},
		"not_found": {proxied(storageproxy.Order{Status: 404}), foreign, exitFailed},
	} {
		for command, code := range map[string]int{
			"status": test.code, "status --json": test.code,
			"calls list": exitFailed, "calls list --state poison": exitFailed,
			"calls retry --state poison --all --yes": exitFailed, "show 01234567": test.code, "doctor": exitFailed,
			"calls list --state scheduled": exitFailed, "targets list": exitPartly, "runs list": exitPartly,
			"erase --request-id r1 --yes": test.code,
		} {
			args := append(strings.Fields(command), "--app", t.TempDir())
			commands.Go(func() {
				var stdout, stderr bytes.Buffer
				began := time.Now()
				got := Run(t.Context(), args, Env{
					Environ: []string{"AzureWebJobsStorage=" + test.connection}, Stdin: strings.NewReader(""),
					Stdout: &stdout, Stderr: &stderr,
				})
				text := strings.Join(strings.Fields(stdout.String()+stderr.String()), " ")
				if got != code || !strings.Contains(text, test.want) {
					t.Errorf("%s: %s: exit code %d, want %d: %s", name, command, got, code, text)
				}
				isShow := name == "list_only" && strings.HasPrefix(command, "show ")
				if isShow && !strings.Contains(text, storage.TableReaderRole) {
					t.Errorf("the role for the table is not named: %s", text)
				}
				const zero = `"messages":0,"scheduled":null,"poison":0`
				for _, none := range []string{"no message", "nothing", zero, "\ufffd"} {
					if strings.Contains(text, none) {
						t.Errorf("%s: %s: it says %q: %s", name, command, none, text)
					}
				}
				if took := time.Since(began); took > 2*account.ReachTimeout {
					t.Errorf("%s: %s: it took %v", name, command, took)
				}
			})
		}
	}
}
