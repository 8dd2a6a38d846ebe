package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
)

// canaries are secrets by the names of their places.
type canaries map[string]string

// at returns the canary of a place.
func (c canaries) at(place string) string {
	c[place] = "C4nary@" + place
	return c[place]
}

// escaped returns the canary of a place, escaped for a URL.
func (c canaries) escaped(place string) string { return url.QueryEscape(c.at(place)) }

// forms returns the ways in which a text can leak: unchanged, escaped, and as base64 at any place of the encoded text.
func forms(secret string) []string {
	all := []string{secret, url.QueryEscape(secret), hex.EncodeToString([]byte(secret))}
	for shift := range 3 {
		padded := append(make([]byte, shift), secret...)
		encoded := base64.StdEncoding.EncodeToString(padded[:len(padded)/3*3])
		if shift > 0 {
			encoded = encoded[4:] // the first characters encode the preceding bytes
		}
		all = append(all, encoded, strings.NewReplacer("+", "-", "/", "_").Replace(encoded))
	}
	return all
}

// leaks returns the canaries in a text.
func (c canaries) leaks(text string) (seen []string) {
	lower := strings.ToLower(text)
	for _, place := range slices.Sorted(maps.Keys(c)) {
		for _, form := range forms(c[place]) {
			if at := strings.Index(lower, strings.ToLower(form)); at >= 0 {
				seen = append(seen, fmt.Sprintf("%s: …%s…", place, text[max(0, at-80):min(len(text), at+80)]))
				break
			}
		}
	}
	return seen
}

// startTokens starts a token server by https. It refuses every client at /invalid.
func (c canaries) startTokens(t *testing.T) *httptest.Server {
	t.Helper()
	token, refusal := c.at("token-of-the-client"), c.at("refusal-of-the-token-server")
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/invalid" {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":"invalid_client","error_description":%q}`, refusal)
			return
		}
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600}`, token)
	}))
	t.Cleanup(server.Close)
	return server
}

// startIdentity starts the identity endpoint of App Service, and returns the settings with which it is found.
func (c canaries) startIdentity(t *testing.T) (env []string) {
	t.Helper()
	header, token := c.at("identity-header"), c.at("token-of-the-identity")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	return []string{"IDENTITY_ENDPOINT=" + server.URL + "/msi/token", "IDENTITY_HEADER=" + header}
}

// startEchoing starts a target by https that returns the authorization of a call in its answer, and refuses the call.
func startEchoing(t *testing.T) (target *httptest.Server, seen chan string) {
	t.Helper()
	seen = make(chan string, 10)
	target = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := r.Header.Get("Authorization")
		seen <- got
		w.Header().Set("X-Got", got)
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "you sent "+got)
	}))
	t.Cleanup(target.Close)
	return target, seen
}

// TestSecrets: calls get the tokens of targets.json. No secret of the app is anywhere but in its calls: not in logs, in
// the output of commands, in journals, tables, queues and callbacks. Those of messages are not shown.
func TestSecrets(t *testing.T) {
	t.Parallel()
	c, ofMessages := canaries{}, canaries{}
	f := newFixture(t, options{tables: true})
	c["account key"] = accountKeyPattern.FindStringSubmatch(f.connectionString)[1]
	f.stageMonitor()
	tokens := c.startTokens(t)
	trusted := filepath.Join(f.app, "trusted.pem")
	f.must(os.WriteFile(trusted, pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Bytes: tokens.Certificate().Raw,
	}), 0o600))
	env := append(c.startIdentity(t), "SSL_CERT_FILE="+trusted, "IDENTITY=the-identity",
		"ASYNC_CALLER_HISTORY=outcomes", "CLIENT_SECRET="+c.at("secret-of-the-client"))
	reports := make(chan string, 10)
	sender := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		reports <- fmt.Sprint(r.Header, string(body))
	}))
	t.Cleanup(sender.Close)

	profiles := map[string]any{"*": map[string]any{"breaker": "off"}}
	bearer := map[string]string{
		"identity": c["token-of-the-identity"], "client": c["token-of-the-client"], "invalid": "",
	}
	received, messages := map[string]chan string{}, []string{}
	for name := range bearer {
		target, seen := startEchoing(t)
		received[name] = seen
		auth := map[string]any{"oauth2": map[string]string{
			"tokenUrl": tokens.URL + "/" + name, "clientId": "client-" + name, "clientSecret": "$CLIENT_SECRET",
		}}
		if name == "identity" {
			auth = map[string]any{"managedIdentity": "api://orders/.default", "clientId": "$IDENTITY"}
		}
		profiles[strings.TrimPrefix(target.URL, "https://")] = map[string]any{"auth": auth, "breaker": "off"}
		for id, callback := range map[string]string{
			name: "", name + "-callback": fmt.Sprintf(`,"callback":{"url":"%s?sig=%s","headers":{"X-Key":%q}}`,
				sender.URL, ofMessages.escaped("callback query"), ofMessages.at("callback header")),
		} {
			messages = append(messages, fmt.Sprintf(`{"asyncCaller":1,"requestId":%q,"call":{"url":"%s/?code=%s",
				"method":"POST","headers":{"X-Api-Key":%q},"json":{"password":%q}},"token":%q%s}`, id, target.URL,
				ofMessages.escaped("query"), ofMessages.at("header"), ofMessages.at("body"),
				ofMessages.at("unknown member"), callback))
		}
	}
	content, err := json.Marshal(profiles)
	f.must(err)
	f.must(os.WriteFile(filepath.Join(f.app, "targets.json"), content, 0o600))
	malformed := fmt.Sprintf(`{"asyncCaller":1,"call":{"url":"http://%s:80abc/"}}`, ofMessages.at("malformed"))
	for _, content := range append(messages, malformed) {
		f.putContent([]byte(content))
	}
	f.start(append(slices.Clone(env), "ASYNC_CALLER_LOG_LEVEL=debug"))

	shown, kept := map[string]string{}, map[string]string{}
	for name, token := range bearer {
		if token == "" {
			f.await(name, func() bool { return slices.Contains(f.reasons(name), "reschedule auth") })
			continue
		}
		for range 2 {
			if got := <-received[name]; got != "Bearer "+token {
				t.Errorf("the target %s got %q", name, got)
			}
		}
		report := <-reports
		if !strings.Contains(report, "you sent Bearer ***") {
			t.Errorf("callback %s", report)
		}
		kept["callbacks"] += report
	}
	f.await("the dead letters", func() bool { return f.count(poisonQueue) == 3 })
	f.await("the call without a token to be recorded", func() bool {
		command, stdout, _ := f.operate("show", "invalid")
		return command.Run() == nil && strings.Contains(stdout.String(), "no token: invalid_client")
	})

	file := filepath.Join(f.app, "envelope.json")
	f.must(os.WriteFile(file, []byte(messages[0]), 0o600))
	flag := ofMessages.at("flag")
	for _, args := range [][]string{
		{"status"},
		{"status", "--json"},
		{"targets", "list", "--json"},
		{"calls", "list", "--json"},
		{"calls", "list", "--group-by", "answer"},
		{"show", "identity"},
		{"show", "invalid"},
		{"show", "identity", "--reveal"},
		{"show", "invalid", "--reveal"},
		{"doctor", "--auth"},
		{"explain", file},
		{"explain", file, "--json", "--status", "503", "--body", flag},
		{"send", "--url", "http://u:" + flag + "@t.example:80abc/?" + flag},
		{"send", "--url", "http://t.example/", "--header", "X-A: " + flag + "\n" + flag},
		{"calls", "retry", "--state", "poison", "--all", "--dry-run", "--set-header", "Authorization: " + flag},
		{"calls", "retry", "--state", "poison", "--all", "--set", "call.url=" + flag, "--yes"},
		{"calls", "retry", "--state", "poison", "--all", "--yes", "--json"},
		{"runs", "list", "--json"},
	} {
		command, stdout, stderr := f.operate(args...)
		command.Env = append(command.Env, env...)
		_ = command.Run() // some are refused
		where := shown
		if slices.Contains(args, "--reveal") {
			where = kept
		}
		where[strings.Join(args, " ")] = stdout.String() + stderr.String()
	}
	f.must(f.host.Stop(hostGrace))
	if !underFunc { // its log is not ours
		shown["log"] = f.host.Output()
	}
	for _, queue := range []string{mainQueue, poisonQueue} {
		kept["queues"] += string(bytes.Join(f.drain(queue), nil))
	}
	for _, name := range []string{storage.ScheduledTable, storage.RunTable, storage.SightTable} {
		kept[name] = f.entities(name)
	}
	f.must(filepath.WalkDir(filepath.Join(f.app, "state"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		kept["journals"] += string(content)
		return err
	}))
	for where, text := range kept {
		if text == "" {
			t.Errorf("%q is empty", where)
		}
		for _, leak := range c.leaks(text) {
			t.Errorf("%q has %s", where, leak)
		}
	}
	maps.Copy(c, ofMessages)
	for where, text := range shown {
		if text == "" {
			t.Errorf("%q shows nothing", where)
		}
		for _, leak := range c.leaks(text) {
			t.Errorf("%q shows %s", where, leak)
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

var accountKeyPattern = regexp.MustCompile(`AccountKey=([^;]+)`)
