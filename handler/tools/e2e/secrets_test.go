package e2e_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/tools/freeport"
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

// visible is a value that the log must show.
const visible = "visible-correlation-id"

// native returns an envelope with a canary in every place that can have a secret.
func (c canaries) native(id, host, path, body, members string) string {
	return fmt.Sprintf(`{"asyncCaller":1,"requestId":%q,"call":{"url":"http://%s:%s@%s%s?code=%s#%s","method":"POST","headers":{
		"Authorization":"Bearer %s","Cookie":"session=%s","X-Api-Key":"%s","X-Custom":["%s"],"X-Correlation-ID":"%s","Referer":"http://r/?%s"},
		"timeout":"2s",%s},"context":{"token":"%s"},"note":"%s"%s}`,
		id, c.escaped("user"), c.escaped("password"), host, path, c.escaped("query"), c.escaped("fragment"),
		c.at("authorization"), c.at("cookie"), c.at("api key"), c.at("custom header"), visible, c.escaped("referer"),
		body, c.at("context"), c.at("unknown member"), members)
}

// bodies returns the three kinds of bodies.
func (c canaries) bodies() []string {
	return []string{
		fmt.Sprintf(`"body":%q`, c.at("body")),
		fmt.Sprintf(`"json":{"password":%q}`, c.at("json")),
		fmt.Sprintf(`"bodyBase64":%q`, base64.StdEncoding.EncodeToString([]byte(c.at("bodyBase64")))),
	}
}

func (c canaries) callback(host, path string) string {
	return fmt.Sprintf(`,"callback":{"url":"http://%s:%s@%s%s?sig=%s","headers":{"X-Key":"%s"}}`,
		c.escaped("callback user"), c.escaped("callback password"), host, path, c.escaped("callback query"),
		c.at("callback header"))
}

// nexus returns a message of the C# SDK with canaries.
func (c canaries) nexus(id, host, path, callback string) string {
	callOut := fmt.Sprintf("POST %s?code=%s HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\nX-Correlation-ID: "+
		"%s\r\nContent-Type: text/plain\r\n\r\n%s",
		path, c.escaped("nexus query"), host, c.at("nexus header"), visible, c.at("nexus body"))
	callBack := "null"
	if callback != "" {
		callBack = nexusBytes(fmt.Sprintf("POST %s?sig=%s HTTP/1.1\r\nHost: %s\r\nX-Key: %s\r\nContent-Type: "+
			"text/plain\r\n\r\n%s",
			callback, c.escaped("nexus callback query"), host, c.at("nexus callback header"),
			c.at("nexus callback body")))
	}
	response := fmt.Sprintf("HTTP/1.1 503 %s\r\nSet-Cookie: %s\r\nContent-Type: text/plain\r\n\r\n%s",
		c.at("latest reason"), c.at("latest header"), c.at("latest body"))
	return fmt.Sprintf(`{"Organization":"acme","Environment":"test","OriginalRequestId":"original-%s",`+
		`"Attempts":1,"LatestResponse":%s,`+
		`"RawRequest":{"Id":"%s","Title":%q,"Context":%s,"CallOut":%s,"CallOutUriScheme":"http","CallBack":%s}}`,
		id, nexusBytes(response), id, c.at("title"), nexusBytes(fmt.Sprintf("{%q:1}", c.at("nexus context"))),
		nexusBytes(callOut), callBack)
}

// malformed returns messages that are not envelopes.
func (c canaries) malformed() []string {
	secret := c.at("malformed")
	callOut := func(text string) string { return `{"RawRequest":{"CallOut":` + nexusBytes(text) + `}}` }
	call := func(members string) string {
		return `{"asyncCaller":1,"call":{"url":"http://t.example/",` + members + `}}`
	}
	return []string{
		secret, `"` + secret + `"`, `{"asyncCaller":1,"call":{"headers":{"Authorization":"` + secret,
		`{"asyncCaller":"` + secret + `"}`, `{"` + secret + `":1}`,
		`{"asyncCaller":1,"call":{"url":"http://` + secret + `:80abc/?` + secret + `"}}`,
		`{"asyncCaller":1,"call":{"url":"` + secret + `://t.example/"}}`,
		call(`"headers":{"Authorization: ` + secret + `":"x"}`),
		call(`"headers":{"X-A":"` + secret + `\r\n` + secret + `"}`),
		call(`"body":"` + secret + `","json":"` + secret + `"`), call(`"bodyBase64":"` + secret + `"`),
		call(`"method":"` + secret + ` ` + secret + `"`), call(`"timeout":"` + secret + `"`),
		call(`"body":{"` + secret + `":"` + secret + `"}`),
		`{"asyncCaller":1,"call":{"url":"http://t.example/"},"deadline":"` + secret + `","giveUp":"` + secret + `"}`,
		callOut(secret), callOut("GET /?" + secret + " HTTP/1.1\r\nHost: a@" + secret + "\r\n\r\n"),
		callOut("GET / HTTP/1.1\r\nHost: t.example\r\nAuthorization: " + secret + "\n" + secret + "\r\n\r\n"),
		`{"RawRequest":{"CallOut":"` + secret + `"}}`, `{"RawRequest":"` + secret + `"}`,
	}
}

// target starts a target that answers as the path says, with a canary in every place that can have a secret.
func (c canaries) target(t *testing.T, elsewhere string) string {
	t.Helper()
	secret, realm := c.at("answer"), c.at("realm")
	location := fmt.Sprintf("http://%s:%s@%s/nobody?code=%s", c.escaped("location user"),
		c.escaped("location password"), elsewhere, c.escaped("location query"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for name, value := range map[string]string{
			"WWW-Authenticate": `Basic realm="` + realm + `"`, "Set-Cookie": "session=" + secret, "X-Echo": secret,
			"Server":       secret,
			"Content-Type": "text/plain; charset=" + secret,
		} {
			w.Header().Set(name, value)
		}
		status, body := http.StatusOK, secret
		switch path.Base(r.URL.Path) {
		case "400":
			status = http.StatusBadRequest
		case "503":
			status = http.StatusServiceUnavailable
			w.Header().Set("Retry-After", secret)
			w.Header().Set("RateLimit-Reset", secret)
		case "nexus_error":
			status = http.StatusBadRequest
			w.Header().Set("Content-Type", "application/json")
			body = fmt.Sprintf(`{"Type":%q,"IsRetryMeaningful":%q}`, secret, secret)
		case "302":
			status = http.StatusFound
			w.Header().Set("Location", location)
		case "307":
			status = http.StatusTemporaryRedirect
			w.Header().Set("Location", location)
		case "307_nowhere":
			status = http.StatusTemporaryRedirect
			w.Header().Set("Location", "http://127.0.0.1:"+secret+"/?"+secret)
		case "loop":
			status = http.StatusTemporaryRedirect
			w.Header().Set("Location", r.URL.String())
		case "reset":
			panic(http.ErrAbortHandler)
		case "garbage":
			raw(w, secret+"\r\n"+secret+"\r\n\r\n")
			return
		case "phrase":
			raw(w, "HTTP/1.1 400 "+secret+"\r\nConnection: close\r\n\r\n"+secret)
			return
		case "short":
			raw(w, "HTTP/1.1 503 x\r\nContent-Length: 1000\r\n\r\n"+secret)
			return
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// raw writes an answer that net/http would not write.
func raw(w http.ResponseWriter, answer string) {
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(connection, answer)
	_ = connection.Close()
}

// unusedAddress returns an address without a listener.
func unusedAddress(tb testing.TB) string {
	tb.Helper()
	address, err := freeport.Address(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return address
}

// secretMessages returns envelopes by request id, one for every way in which a call can end, and malformed messages.
func secretMessages(t *testing.T, c canaries) (envelopes map[string]string, malformed []string) {
	t.Helper()
	refused := unusedAddress(t)
	target := c.target(t, refused)
	envelopes = map[string]string{}
	bodies := c.bodies()
	secretPath := "/" + c.at("path") + "/"
	for _, answer := range []string{
		"200", "400", "503", "nexus_error", "302", "307", "307_nowhere", "loop", "reset", "garbage", "phrase",
		"short", "refused", "metadata",
	} {
		host := target
		switch answer {
		case "refused":
			host = refused
		case "metadata": // refused, or no listener
			host = "169.254.169.254"
		}
		for _, callback := range []bool{false, true} {
			id, members, nexusCallback := answer, "", ""
			if callback {
				id, members, nexusCallback = answer+"-callback", c.callback(target, "/400"), "/400"
			}
			envelopes["native-"+id] = c.native("native-"+id, host, secretPath+answer,
				bodies[len(envelopes)/2%len(bodies)], members)
			envelopes["nexus-"+id] = c.nexus("nexus-"+id, host, secretPath+answer, nexusCallback)
		}
	}
	envelopes["late"] = c.native("late", target, "/200", bodies[0],
		`,"deadline":"2020-01-01T00:00:00Z","trail":[{"error":"`+c.at("trail")+`"}]`)
	envelopes["moved-back"] = c.native("moved-back", target, "/400", bodies[0], `,"deadLetter":{"reason":"rejected"}`)
	envelopes["policy"] = c.native("policy", target, "/200", bodies[0], `,"retry":{"baseDelay":"`+c.at("policy")+`"}`)
	return envelopes, c.malformed()
}

// TestSecrets checks that nothing that the product writes contains a secret: the logs of handler and host, the answers
// to the host, the output of commands.
func TestSecrets(t *testing.T) {
	onlyLocal(t, "its log is not ours")
	t.Parallel()
	c := canaries{}
	f := newFixture(t, options{})
	c["account key"] = accountKey(t, f.connectionString)
	envelopes, malformed := secretMessages(t, c)
	f.must(os.WriteFile(filepath.Join(f.app, "retry.json"), []byte(`{"fast":{"schedule":["1s"],"maxAttempts":2}}`),
		0o600))
	f.start([]string{"ASYNC_CALLER_RETRY=fast", "ASYNC_CALLER_LOG_LEVEL=debug"})
	for _, content := range envelopes {
		f.putContent([]byte(content))
	}
	for _, content := range malformed {
		f.putContent([]byte(content))
	}
	f.awaitEmpty()
	f.must(f.host.Stop(hostGrace))
	output := f.host.Output()
	for _, leak := range c.leaks(output) {
		t.Errorf("host and handler printed %s", leak)
	}

	// The output was not empty.
	ended := map[any]bool{}
	for _, line := range f.host.Lines("settled") {
		ended[line["request_id"]] = true
		if line["target_host"] != nil && strings.ContainsAny(fmt.Sprint(line["target_host"]), "/?@") {
			t.Errorf("target_host is %v", line["target_host"])
		}
	}
	for id := range envelopes {
		if !ended[id] {
			t.Errorf("nothing was logged about %s", id)
		}
	}
	for _, shown := range []string{visible, "acme", "original-nexus-200-callback"} {
		if !strings.Contains(output, shown) {
			t.Errorf("%s is not shown", shown)
		}
	}
	t.Logf("%d canaries, %d messages, %d lines", len(c), len(envelopes)+len(malformed), strings.Count(output, "\n"))

	delete(c, "path") // the operator may see it
	t.Run("command_line", func(t *testing.T) { f.checkCommands(t, c, envelopes, malformed) })
}

// checkCommands runs commands with the same messages.
func (f *fixture) checkCommands(t *testing.T, c canaries, envelopes map[string]string, malformed []string) {
	t.Helper()
	outcomes := [][]string{
		nil,
		{"--status", "503", "--header", "Retry-After: " + c.at("supposed header"), "--body", c.at("supposed body")},
		{"--status", "400", "--header", "Location: http://x/?" + c.at("supposed header")},
		{"--failure", "redirected"},
	}
	run := func(args ...string) {
		t.Helper()
		printed, _ := f.command(t, f.connectionString, append([]string{executable}, args...)...)
		if printed == "" {
			t.Errorf("%q prints nothing", args)
		}
		for _, leak := range c.leaks(printed) {
			t.Errorf("%.60q printed %s", args, leak)
		}
	}
	n := 0
	all := slices.Concat(slices.Sorted(maps.Values(envelopes)), malformed)
	for i, content := range all {
		if i%3 != 0 && i < len(envelopes) {
			continue // a third has every combination of format, callback and body
		}
		file := filepath.Join(t.TempDir(), "envelope.json")
		f.must(os.WriteFile(file, []byte(content), 0o600))
		outcome := outcomes[n%len(outcomes)]
		n++
		run(slices.Concat([]string{"explain", file}, outcome)...)
		run(slices.Concat([]string{"explain", file, "--json"}, outcome)...)
		if i >= len(envelopes) {
			run("send", file)
		}
	}
	secret := c.at("flag")
	for _, args := range [][]string{
		{"--url", "http://u:" + secret + "@t.example:80abc/?" + secret},
		{"--url", secret},
		{"--url", "http://t.example/", "--header", "Authorization " + secret},
		{"--url", "http://t.example/", "--header", "X-A: " + secret + "\n" + secret},
		{"--url", "http://t.example/", "--json-body", "{" + secret},
		{"--url", "http://t.example/", "--json-body", "{", "--header", "X-A: " + secret},
		{"--url", "http://t.example/", "--callback", "http://u:" + secret + "@:80/?" + secret},
		{"--url", "http://t.example/?" + secret, "--header", "X-A: " + secret, "--deadline", "yesterday"},
	} {
		run(append([]string{"send"}, args...)...)
	}
	delete(c, "trail") // an operator may see the errors of attempts
	journals := t.TempDir()
	for _, args := range [][]string{
		{"list"},
		{"list", "--json"},
		{"list", "--group-by", "error"},
		{"list", "--group-by", "path", "--json"},
		{"retry", "--all", "--dry-run", "--set-header", "Authorization: " + secret},
		{"retry", "--all", "--set", "call.url=" + secret, "--yes"},
		{"retry", "--all", "--set", "call.headers.A=" + secret},
		{"retry", "--all", "--jq", ".[\"" + secret, "--yes"},
		{"retry", "--all", "--yes", "--json"},
	} {
		run(append(inState("poison", args), "--runs", journals)...)
	}
	run("runs", "list", "--json", "--runs", journals)
}

var accountKeyPattern = regexp.MustCompile(`AccountKey=([^;]+)`)

func accountKey(t *testing.T, connectionString string) string {
	t.Helper()
	found := accountKeyPattern.FindStringSubmatch(connectionString)
	if found == nil {
		t.Fatal("the connection string has no key")
	}
	return found[1]
}

// TestSecretsOfTheConnection checks that no error about a storage account contains its key.
func TestSecretsOfTheConnection(t *testing.T) {
	needsHost(t, "no call is made")
	t.Parallel()
	c := canaries{}
	f := newFixture(t, options{azurite: true})
	good := f.connectionString
	// A wrong key, an invalid key, a truncated connection string, one without names, and more.
	wrongKey := base64.StdEncoding.EncodeToString([]byte(c.at("wrong key") + "............................."))
	withKey := func(key string) string { return accountKeyPattern.ReplaceAllString(good, "AccountKey="+key) }
	for name, connectionString := range map[string]string{
		"wrong":     withKey(wrongKey),
		"no_base64": withKey(c.at("no base64")),
		"two_keys":  withKey(wrongKey) + ";AccountKey=" + c.at("second key"),
		"cut":       "AccountKey=" + c.at("cut"),
		"no_names":  c.at("no names"),
		"signature": "QueueEndpoint=http://" + unusedAddress(t) + "/a;SharedAccessSignature=sv=1&sig=" +
			c.escaped("signature"),
		"away": regexp.MustCompile(`QueueEndpoint=http://[^/]+`).
			ReplaceAllString(withKey(wrongKey), "QueueEndpoint=http://"+unusedAddress(t)),
		"user_info": regexp.MustCompile(`QueueEndpoint=http://`).
			ReplaceAllString(good, "QueueEndpoint=http://u:"+c.escaped("endpoint")+"@"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, line := range [][]string{
				{executable, "send", "--url", "http://t.example/"},
				{executable, "show", "x"},
				{executable, "serve"},
				{localHost, "--app", f.app},
			} {
				printed, err := f.command(t, connectionString, line...)
				for _, leak := range c.leaks(printed) {
					t.Errorf("%s printed %s", line[:2], leak)
				}
				if err == nil && name != "user_info" {
					t.Errorf("%s: no error: %s", line[:2], printed)
				}
			}
		})
	}
}

// command runs a command line in the app folder until it ends, at most for a few seconds, and returns its output.
func (f *fixture) command(t *testing.T, connectionString string, line ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, line[0], line[1:]...)
	command.Dir = f.app
	command.Env = append(os.Environ(), "AzureWebJobsStorage="+connectionString, "ASYNC_CALLER_LOG_LEVEL=debug",
		"FUNCTIONS_CUSTOMHANDLER_PORT=0")
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 20 * time.Second
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err := command.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		t.Errorf("%s does not stop", line[0])
	}
	return output.String(), err
}
