package cli

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/tools/freeport"
)

// refusing starts a storage service that answers every request with an error, and returns a connection string.
func refusing(t *testing.T, status int, code, message string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("x-ms-error-code", code)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code><Message>"+message+"\nRequestId:1</Message></Error>")
	}))
	t.Cleanup(server.Close)
	return connectionTo(server.Listener.Addr().String())
}

func connectionTo(address string) string {
	return "AccountName=acme;AccountKey=C4naryC4naryC4naryC4nary;QueueEndpoint=http://" + address + "/acme;"
}

func unusedAddress(t *testing.T) string {
	t.Helper()
	address, err := freeport.Address(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// TestStorageErrors checks that every command passes on what storage says, and that only a denied access puts the
// blame on the credential.
func TestStorageErrors(t *testing.T) {
	t.Parallel()
	const credential = "check the credential in AzureWebJobsStorage"
	for name, test := range map[string]struct {
		connection     string
		want, mustLack []string
		queues         []string // more of what poison queues prints
	}{
		"version": {
			refusing(t, 400, "InvalidHeaderValue", "The API version 1 is not supported by Azurite."),
			[]string{"400 InvalidHeaderValue: The API version 1 is not supported by Azurite; update Azurite, " +
				"or start it with --skipApiVersionCheck"},
			[]string{"credential", "role "},
			nil,
		},
		"denied": {
			refusing(t, 403, "AuthorizationPermissionMismatch", "This request is not authorized."),
			[]string{
				"403 AuthorizationPermissionMismatch: This request is not authorized: ", credential,
				"the roles Storage Queue Data ",
			},
			[]string{"Azurite"},
			nil,
		},
		"not_started": {
			connectionTo(unusedAddress(t)),
			[]string{" refused", "start Azurite with `make azurite`"},
			[]string{"credential", "role "},
			[]string{"storage cannot be reached: list queues: ", "; check AzureWebJobsStorage"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			environ := []string{"AzureWebJobsStorage=" + test.connection}
			check := func(command, printed string) {
				for _, part := range test.want {
					if strings.Count(printed, part) != 1 {
						t.Errorf("%s: want %q once: %s", command, part, printed)
					}
				}
				for _, part := range append(test.mustLack, "C4nary") {
					if strings.Contains(printed, part) {
						t.Errorf("%s: %q is in %s", command, part, printed)
					}
				}
			}
			var commands sync.WaitGroup
			defer commands.Wait()
			for _, command := range []string{
				"send --url https://t.example/", "calls list --state poison", "calls retry --state poison --all --yes",
				"calls retry --state poison --as-is --to aside --all --yes", "show 01234567",
				"status", "status --watch",
			} {
				args := append(strings.Fields(command), "--app", t.TempDir())
				commands.Go(func() {
					var stdout, stderr bytes.Buffer
					began := time.Now()
					code := Run(t.Context(), args,
						Env{Environ: environ, Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr})
					want := exitFailed
					if name == "denied" && strings.HasPrefix(command, "show ") { // the rest may be readable
						want = exitPartly
					}
					if code != want {
						t.Errorf("%s: exit code %d: %s", command, code, &stderr)
					}
					if took := time.Since(began); took > account.ReachTimeout/2 {
						t.Errorf("%s: it took %v to find out", command, took)
					}
					check(command, stderr.String())
					isLook := slices.Contains(lookOnly, strings.Fields(strings.TrimPrefix(command, "calls "))[0])
					if name == "denied" && strings.Contains(stderr.String(), "Contributor") == isLook {
						t.Errorf("%s: another role is named: %s", command, &stderr)
					}
					for _, part := range test.queues {
						if command == "calls list --state poison" && !strings.Contains(stderr.String(), part) {
							t.Errorf("%s: no %q in %s", command, part, &stderr)
						}
					}
					if stdout.Len() > 0 {
						t.Errorf("%s: printed %s", command, &stdout)
					}
				})
			}
		})
	}
}
