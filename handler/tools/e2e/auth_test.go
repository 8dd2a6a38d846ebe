package e2e_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
)

// authorized is a target by https that records the Authorization of its calls by path, and returns it in each answer.
type authorized struct {
	*httptest.Server
	refused string // a token that it refuses

	mu   sync.Mutex
	seen map[string][]string
}

func startAuthorized(t *testing.T, refused string) *authorized {
	t.Helper()
	a := &authorized{refused: refused, seen: map[string][]string{}}
	a.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := r.Header.Get("Authorization")
		a.mu.Lock()
		a.seen[r.URL.Path] = append(a.seen[r.URL.Path], got)
		a.mu.Unlock()
		w.Header().Set("X-Got", got)
		w.Header().Set("Content-Type", "text/plain")
		switch {
		case a.refused != "" && got == "Bearer "+a.refused:
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/400":
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = io.WriteString(w, "you sent "+got)
	}))
	t.Cleanup(a.Close)
	return a
}

// at returns the Authorization of the calls of a path.
func (a *authorized) at(path string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.seen[path])
}

// startTokens starts a token server by https, whose paths say what it answers.
func (c canaries) startTokens(t *testing.T) *httptest.Server {
	t.Helper()
	var refreshed atomic.Int32
	header, body := c.at("token-of-header"), c.at("token-of-body")
	tokens := []string{c.at("refused-token"), c.at("second-token")}
	secretOf := map[string]string{}
	for _, path := range []string{"/invalid", "/html", "/redirect", "/500"} {
		secretOf[path] = c.at("answer-of-" + path)
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := map[string]string{"/header": header, "/body": body}[r.URL.Path]
		secret := secretOf[r.URL.Path]
		switch r.URL.Path {
		case "/refused":
			token = tokens[min(int(refreshed.Add(1)), len(tokens))-1]
		case "/invalid":
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":"invalid_client","error_description":%q}`, secret)
			return
		case "/html":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<p>"+secret)
			return
		case "/redirect":
			w.Header().Set("Location", "https://127.0.0.1/?"+secret)
			w.WriteHeader(http.StatusTemporaryRedirect)
			return
		case "/500":
			http.Error(w, secret, http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600}`, token)
	}))
	t.Cleanup(server.Close)
	return server
}

// startIdentity starts the identity endpoint of App Service, and counts its requests.
func (c canaries) startIdentity(t *testing.T) (env []string, requests *atomic.Int32) {
	t.Helper()
	header, token := c.at("identity-header"), c.at("token-of-the-identity")
	requests = new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		q := r.URL.Query()
		isRight := r.Header.Get("X-IDENTITY-HEADER") == header && q.Get("api-version") == "2019-08-01" &&
			q.Get("resource") == "api://orders" && q.Get("client_id") == "the-identity"
		if !isRight {
			http.Error(w, "wrong", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":%q,"expires_on":"%d","resource":"api://orders","token_type":"Bearer"}`,
			token, time.Now().Add(24*time.Hour).Unix())
	}))
	t.Cleanup(server.Close)
	return []string{"IDENTITY_ENDPOINT=" + server.URL + "/msi/token", "IDENTITY_HEADER=" + header}, requests
}

// TestCredentials: calls get the tokens of targets.json, and no secret and no token is anywhere but in the calls.
func TestCredentials(t *testing.T) {
	t.Parallel()
	c := canaries{}
	f := newFixture(t, options{tables: true})
	f.stageMonitor()
	env, requests := c.startIdentity(t)
	tokens := c.startTokens(t)
	trusted := filepath.Join(f.app, "trusted.pem")
	f.must(os.WriteFile(trusted, pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Bytes: tokens.Certificate().Raw,
	}), 0o600))
	env = append(env, "SSL_CERT_FILE="+trusted, "IDENTITY=the-identity", "ASYNC_CALLER_HISTORY=outcomes",
		"HEADER_SECRET="+c.at("secret-of-header"), "BODY_SECRET="+c.at("secret-of-body"))
	targetOf := map[string]*authorized{}
	profiles := map[string]any{"*": map[string]any{"breaker": "off"}}
	for _, name := range []string{"identity", "header", "body", "refused", "invalid", "html", "redirect", "500"} {
		refused := ""
		if name == "refused" {
			refused = c["refused-token"]
		}
		targetOf[name] = startAuthorized(t, refused)
		auth := map[string]any{"oauth2": map[string]string{
			"tokenUrl": tokens.URL + "/" + name, "clientId": "client-" + name, "clientSecret": "$HEADER_SECRET",
		}}
		switch name {
		case "identity":
			auth = map[string]any{"managedIdentity": "api://orders/.default", "clientId": "$IDENTITY"}
		case "body":
			auth = map[string]any{"oauth2": map[string]string{
				"tokenUrl": tokens.URL + "/body", "clientId": "c", "clientSecret": "$BODY_SECRET", "style": "body",
			}}
		}
		profiles[strings.TrimPrefix(targetOf[name].URL, "https://")] = map[string]any{"auth": auth, "breaker": "off"}
	}
	content, err := json.Marshal(profiles)
	f.must(err)
	f.must(os.WriteFile(filepath.Join(f.app, "targets.json"), content, 0o600))
	f.start(append(slices.Clone(env), "ASYNC_CALLER_LOG_LEVEL=debug"))
	call := func(id, name, path, members string) {
		f.putContent(fmt.Appendf(nil, `{"asyncCaller":1,"requestId":%q,"call":{"url":%q,"method":"POST"}%s}`,
			id, targetOf[name].URL+path, members))
	}
	good := map[string]string{
		"identity": c["token-of-the-identity"], "header": c["token-of-header"], "body": c["token-of-body"],
		"refused": c["second-token"],
	}
	bad := []string{"invalid", "html", "redirect", "500"}
	reports := make(chan string, 20)
	sender := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		reports <- fmt.Sprint(r.Header, string(body))
	}))
	t.Cleanup(sender.Close)
	callback := fmt.Sprintf(`,"callback":{"url":%q}`, sender.URL)
	for name := range good {
		call(name+"-200", name, "/200", "")
		call(name+"-400", name, "/400", "")
		call(name+"-callback", name, "/400", callback)
	}
	for _, name := range bad {
		call(name+"-200", name, "/200", "")
	}
	for name, token := range good {
		f.await(name, func() bool {
			return slices.Contains(f.reasons(name+"-200"), "finish delivered") &&
				slices.Contains(f.reasons(name+"-400"), "dead_letter rejected") &&
				slices.Contains(f.reasons(name+"-callback"), "callback rejected")
		})
		for _, path := range []string{"/200", "/400"} {
			got := targetOf[name].at(path)
			if n := len(got); n == 0 || got[n-1] != "Bearer "+token {
				t.Errorf("%s%s got %q", name, path, got)
			}
		}
	}
	for _, name := range bad {
		f.await(name, func() bool { return slices.Contains(f.reasons(name+"-200"), "reschedule auth") })
		if got := targetOf[name].at("/200"); len(got) > 0 {
			t.Errorf("%s was called with %q", name, got)
		}
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests to the identity endpoint", n)
	}
	f.await("the causes to be recorded", func() bool {
		causes := strings.Join(f.failing(), "\n")
		return strings.Contains(causes, "no token: invalid_client, status 401 (127.0.0.1:") &&
			strings.Contains(causes, "no token: status 500 (127.0.0.1:")
	})

	// Nothing of it is anywhere else.
	printed := map[string]string{}
	for range good {
		printed["callbacks"] += <-reports
	}
	if !strings.Contains(printed["callbacks"], "you sent Bearer ***") {
		t.Errorf("callbacks: %s", printed["callbacks"])
	}
	run := func(args ...string) string {
		command, stdout, stderr := f.operate(args...)
		command.Env = append(command.Env, env...)
		_ = command.Run()
		name := strings.Join(args, " ")
		printed[name] = stdout.String() + stderr.String()
		return printed[name]
	}
	for _, args := range [][]string{
		{"status"},
		{"status", "--json"},
		{"targets", "list", "--json"},
		{"calls", "list", "--json"},
		{"calls", "export"},
		{"calls", "list", "--group-by", "answer"},
		{"show", "identity-400", "--reveal"},
		{"show", "invalid-200", "--reveal"},
		{"doctor"},
	} {
		run(args...)
	}
	for _, cause := range []string{"no token: invalid_client", "no token: status 500"} {
		if !strings.Contains(printed["status"], cause) {
			t.Errorf("status does not say %q:\n%s", cause, printed["status"])
		}
	}
	listed := run("targets", "list") + printed["targets list --json"]
	for _, text := range []string{
		`"value":"managed identity $IDENTITY for api://orders/.default"`, "OAuth 2 client ",
	} {
		if !strings.Contains(listed, text) {
			t.Errorf("targets list does not have %q:\n%s", text, listed)
		}
	}
	checked := run("doctor", "--auth")
	for _, line := range []string{"no token: invalid_client, status 401", "its token ends in 1h"} {
		if !strings.Contains(strings.Join(strings.Fields(checked), " "), line) {
			t.Errorf("doctor --auth does not say %q:\n%s", line, checked)
		}
	}
	run("calls", "retry", "--state", "poison", "--all", "--yes")
	f.must(f.host.Stop(hostGrace))
	if !underFunc { // its log is not ours
		printed["log"] = f.host.Output()
	}
	for _, queue := range []string{mainQueue, poisonQueue} {
		for _, content := range f.drain(queue) {
			printed[queue] += string(content)
		}
	}
	for _, name := range []string{storage.ScheduledTable, storage.RunTable, storage.SightTable} {
		printed[name] = f.entities(name)
	}
	f.must(filepath.WalkDir(filepath.Join(f.app, "state"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		printed["journals"] += string(content)
		return err
	}))
	if len(c) < 12 {
		t.Errorf("%d secrets", len(c))
	}
	for where, text := range printed {
		if text == "" && where != mainQueue {
			t.Errorf("%s is empty", where)
		}
		for _, leak := range c.leaks(text) {
			t.Errorf("%s has %s", where, leak)
		}
	}
}

// entities returns everything that a table has.
func (f *fixture) entities(name string) (all string) {
	f.t.Helper()
	connection, err := azure.ParseConnection([]string{"AzureWebJobsStorage=" + f.connectionString},
		"AzureWebJobsStorage")
	f.must(err)
	table, err := azure.OpenTable(connection, name)
	f.must(err)
	defer table.Close()
	f.must(table.List(f.t.Context(), storage.Query{}, func(e storage.Entity) error {
		all += fmt.Sprintln(e.Partition, e.ID)
		for member, value := range e.Values {
			if raw, isBytes := value.([]byte); isBytes {
				value = string(raw)
			}
			all += fmt.Sprintln(member, value)
		}
		return nil
	}))
	return all
}
