package main

import (
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/tools/azurite"
)

// endpoints returns the endpoints of the blob, the queue and the table service, as the commands read them.
func endpoints(t *testing.T, connectionString string) [3]string {
	t.Helper()
	environ := []string{storage.ConnectionName + "=" + connectionString}
	c, err := azure.ParseConnection(environ, storage.ConnectionName)
	if err != nil {
		t.Fatal(err)
	}
	return [3]string{c.BlobEndpoint, c.Endpoint, c.TableEndpoint}
}

// at returns the endpoints of an Azurite on these ports.
func at(o azurite.Options) (found [3]string) {
	for i, port := range []int{o.BlobPort, o.Port, o.TablePort} {
		found[i] = fmt.Sprintf("http://127.0.0.1:%d/%s", port, azurite.AccountName)
	}
	return found
}

// TestStandardPorts: local.settings.json means the account of `make run` and `make azurite`.
func TestStandardPorts(t *testing.T) {
	if got, want := at(azurite.StandardPorts()), endpoints(t, "UseDevelopmentStorage=true"); got != want {
		t.Errorf("endpoints %s, want %s", got, want)
	}
}

// TestStartAzurite: either all services have the wanted ports, or none has.
func TestStartAzurite(t *testing.T) {
	for taken, name := range map[int]string{2: "table", 3: "none"} {
		t.Run(name, func(t *testing.T) {
			var listeners [3]net.Listener
			var ports [3]int
			for i := range ports {
				listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				listeners[i], ports[i] = listener, listener.Addr().(*net.TCPAddr).Port
			}
			wantInUse := 0
			for i, listener := range listeners {
				if i == taken {
					wantInUse = ports[i]
					defer func() { _ = listener.Close() }()
				} else {
					_ = listener.Close()
				}
			}
			wanted := azurite.Options{BlobPort: ports[0], Port: ports[1], TablePort: ports[2]}
			server, inUse, err := startAzurite(t.Context(), wanted)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = server.Stop() }()
			if inUse != wantInUse {
				t.Errorf("port %d is in use, want %d", inUse, wantInUse)
			}
			got, want := endpoints(t, server.ConnectionString), at(wanted)
			for i := range got {
				if (got[i] == want[i]) != (inUse == 0) {
					t.Errorf("endpoint %s, the wanted one is %s", got[i], want[i])
				}
			}
		})
	}
}

// TestInvitation: without the standard ports, the one line to paste names the endpoints of all services.
func TestInvitation(t *testing.T) {
	other := azurite.Options{BlobPort: 1, Port: 2, TablePort: 3}
	connectionString := fmt.Sprintf("AccountName=%s;AccountKey=%s;BlobEndpoint=%s;QueueEndpoint=%s;TableEndpoint=%s",
		azurite.AccountName, azurite.AccountKey, at(other)[0], at(other)[1], at(other)[2])
	target := func(script string) string { return "http://127.0.0.1:8099/answer/" + script }
	export := regexp.MustCompile(`(?m)^  export AzureWebJobsStorage='(.*)'$`)

	text := invitation(connectionString, 10002, target)
	found := export.FindAllStringSubmatch(text, -1)
	if len(found) != 1 || !strings.Contains(text, " because another program uses port 10002.\n") {
		t.Fatalf("%d exports in\n%s", len(found), text)
	}
	if got := endpoints(t, found[0][1]); got != at(other) {
		t.Errorf("the export has the endpoints %s", got)
	}
	text = invitation("UseDevelopmentStorage=true", 0, target)
	if export.MatchString(text) || !strings.Contains(text, "\nNo export is necessary") {
		t.Errorf("with the standard ports:\n%s", text)
	}
}
