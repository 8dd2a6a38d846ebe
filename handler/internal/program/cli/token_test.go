package cli_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/storage"
)

// tokenTrap is a TLS server that is not Azure Storage, on a machine whose managed identity gives every program a token.
type tokenTrap struct {
	url string
	// environ is the environment of a program on the machine, which trusts the server's certificate.
	environ []string

	mu sync.Mutex
	// received are the requests with a credential.
	received []string
}

func newTokenTrap(t *testing.T) *tokenTrap {
	t.Helper()
	trap := &tokenTrap{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		trap.mu.Lock()
		defer trap.mu.Unlock()
		if r.Header.Get("Authorization") != "" {
			trap.received = append(trap.received, r.Method+" "+r.URL.Path)
		}
		w.Header().Set("x-ms-error-code", "AuthorizationFailure")
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	identity := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"access_token": "CANARY", "token_type": "Bearer", "resource": r.URL.Query().Get("resource"),
			"expires_on": time.Now().Add(time.Hour).Unix(),
		})
	}))
	t.Cleanup(identity.Close)
	certificate := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(certificate, block, 0o600); err != nil {
		t.Fatal(err)
	}
	trap.url = server.URL
	trap.environ = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "SSL_CERT_FILE=" + certificate,
		"IDENTITY_ENDPOINT=" + identity.URL, "IDENTITY_HEADER=x",
	}
	return trap
}

// run runs a command in a folder, with variables in addition to those of the machine. It returns the requests that had
// a credential.
func (trap *tokenTrap) run(
	t *testing.T, dir, command string, environ ...string,
) (printed string, code int, received []string) {
	t.Helper()
	var out bytes.Buffer
	child := exec.CommandContext(t.Context(), "async-caller", strings.Fields(command)...)
	child.Dir, child.Env, child.Stdin = dir, append(trap.environ, environ...), strings.NewReader("")
	child.Stdout, child.Stderr = &out, &out
	_ = child.Run()
	trap.mu.Lock()
	defer trap.mu.Unlock()
	received, trap.received = trap.received, nil
	return out.String(), child.ProcessState.ExitCode(), received
}

// writeSettings writes local.settings.json with the settings of an identity.
func writeSettings(t *testing.T, dir string, values map[string]string) {
	t.Helper()
	all := map[string]string{storage.ConnectionName + "__credential": "managedidentity"}
	for name, value := range values {
		all[storage.ConnectionName+name] = value
	}
	content, err := json.Marshal(map[string]any{"IsEncrypted": false, "Values": all})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, functionapp.LocalSettings), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTokensStayWithAzure checks that no file in a folder can bring a command to send a token of the operator's
// identity to a host that is not Azure Storage.
func TestTokensStayWithAzure(t *testing.T) {
	t.Parallel()
	trap := newTokenTrap(t)
	host := strings.TrimPrefix(trap.url, "https://")
	const azure, list = "https://acct.queue.core.windows.net", "calls list --state poison"
	type values map[string]string
	for name, test := range map[string]struct {
		values  values
		command string
		want    string // in the error
	}{
		"list":    {values{"__queueServiceUri": trap.url}, list, "__queueServiceUri"},
		"send":    {values{"__queueServiceUri": trap.url}, "send --url https://t.example/", "__queueServiceUri"},
		"doctor":  {values{"__queueServiceUri": trap.url}, "doctor", "__queueServiceUri"},
		"service": {values{"__serviceUri": trap.url + "/acct"}, "status", "__serviceUri"},
		"colons":  {values{":QUEUESERVICEURI": trap.url}, list, "__queueServiceUri"},
		"table":   {values{"__accountName": "acct", "__tableServiceUri": trap.url}, "show r1", "__tableServiceUri"},
		"table_and_blob": {
			values{"__queueServiceUri": azure, "__tableServiceUri": trap.url, "__blobServiceUri": trap.url},
			"calls list --state scheduled", "__tableServiceUri, AzureWebJobsStorage__blobServiceUri: ",
		},
		"name_with_value": {values{"__queueServiceUri=" + trap.url + "/": ""}, list, "__queueServiceUri"},
		"longer_host":     {values{"__queueServiceUri": azure + ".evil.example/"}, list, "__queueServiceUri"},
		"user":            {values{"__queueServiceUri": azure + "@" + host}, list, "__queueServiceUri"},
		"account":         {values{"__accountName": host + "/"}, list, "__accountName"},
		"account_query":   {values{"__accountName": host + "/?"}, list, "__accountName"},
		"account_hash":    {values{"__accountName": "x." + host + "#"}, list, "__accountName"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeSettings(t, dir, test.values)
			folder, args := dir, test.command
			if name == "send" || name == "table" {
				folder, args = t.TempDir(), test.command+" --app "+dir
			}
			printed, code, received := trap.run(t, folder, args)
			if len(received) > 0 {
				t.Errorf("it sent a token: %v", received)
			}
			if code != 2 && name != "doctor" || code == 0 {
				t.Errorf("exit code %d: %s", code, printed)
			}
			said := strings.Join(strings.Fields(printed), " ")
			isOfForm := name == "user" || strings.HasPrefix(name, "account") // wrong in any source
			if !strings.Contains(said, test.want) || !isOfForm && !strings.Contains(said, functionapp.LocalSettings) {
				t.Errorf("%q or the file is missing in %s", test.want, printed)
			}
			if strings.Contains(printed, host) {
				t.Errorf("it repeats the value: %s", printed)
			}
		})
	}
}

// TestTokensGoWhereTheEnvironmentSays checks that the environment of a command, unlike the folder, can name any host.
func TestTokensGoWhereTheEnvironmentSays(t *testing.T) {
	t.Parallel()
	trap := newTokenTrap(t)
	dir, queueSetting := t.TempDir(), "AzureWebJobsStorage__queueServiceUri="+trap.url
	for _, values := range []map[string]string{nil, {"__queueServiceUri": trap.url}} {
		environ := []string{queueSetting}
		if values == nil {
			environ = append(environ, "AzureWebJobsStorage__credential=managedidentity")
		} else {
			writeSettings(t, dir, values)
		}
		printed, code, received := trap.run(t, dir, "calls list --state poison", environ...)
		if code != 1 || len(received) == 0 {
			t.Errorf("with %v in the file: exit code %d, token in %v: %s", values, code, received, printed)
		}
	}
	for _, value := range []string{trap.url + "/other", strings.Replace(trap.url, "127.0.0.1", "localhost", 1)} {
		writeSettings(t, dir, map[string]string{"__queueServiceUri": trap.url, "__tableServiceUri": value})
		environ := []string{queueSetting, "AzureWebJobsStorage__tableServiceUri=" + trap.url}
		printed, code, received := trap.run(t, dir, "calls list --state scheduled", environ...)
		if code != 2 || len(received) > 0 {
			t.Errorf("%s in the file: exit code %d, token in %v: %s", value, code, received, printed)
		}
	}
}
