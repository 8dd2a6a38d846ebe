package e2e_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"asynccaller/handler/internal/storage"
)

// recorder is a server that records what arrives, as a target or as a proxy. It redirects the paths of its map.
type recorder struct {
	*httptest.Server
	locations map[string]string

	mu       sync.Mutex
	requests map[string]*http.Request
}

func newRecorder(t *testing.T, locations map[string]string) *recorder {
	t.Helper()
	r := &recorder{locations: locations, requests: map[string]*http.Request{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	_, _ = io.Copy(io.Discard, request.Body)
	r.mu.Lock()
	r.requests[request.RequestURI] = request
	r.mu.Unlock()
	if location := r.locations[request.URL.Path]; location != "" {
		w.Header().Set("Location", location)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
}

// seen returns what arrived, by request URI.
func (r *recorder) seen() map[string]*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

// guardCase is a message and its end: "delivered", or the reason and a part of its detail. If the message alone
// decides, `async-caller explain` says it too.
type guardCase struct{ call, want string }

func call(url, host string) string {
	if host == "" {
		return fmt.Sprintf(`{"asyncCaller":1,"call":{"url":%q}}`, url)
	}
	return fmt.Sprintf(`{"asyncCaller":1,"call":{"url":%q,"headers":{"hOst":%q}}}`, url, host)
}

func nexusCall(host, path string) string {
	callOut := base64.StdEncoding.EncodeToString([]byte("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"))
	return fmt.Sprintf(`{"RawRequest":{"Id":"nexus","CallOut":%q}}`, callOut)
}

// wantEnds delivers the messages and checks how they end.
func (f *fixture) wantEnds(env []string, cases map[string]guardCase) {
	f.t.Helper()
	ids := map[any]string{}
	for name, c := range cases {
		message, err := f.store.Put(f.t.Context(), mainQueue, storage.Item{Text: storage.Base64.Encode([]byte(c.call))})
		f.must(err)
		ids[message.ID] = name
		_, detail, _ := strings.Cut(c.want, " ")
		if detail == "" || strings.Contains(c.want, "redirect") || strings.Contains(detail, "this machine") {
			continue
		}
		file := filepath.Join(f.t.TempDir(), "envelope.json")
		f.must(os.WriteFile(file, []byte(c.call), 0o600))
		explain := exec.CommandContext(f.t.Context(), executable, "explain", file, "--json")
		explain.Env, explain.Dir = append(os.Environ(), env...), f.app
		explained, err := explain.Output()
		if explain.ProcessState.ExitCode() != 1 || !strings.Contains(string(explained), detail) { // no call is made
			f.t.Errorf("%s: explain says %s (%v)", name, explained, err)
		}
	}
	f.start(env)
	settled := func() []map[string]any {
		return slices.DeleteFunc(f.host.Lines("settled"),
			func(line map[string]any) bool { return line["reason"] == nil })
	}
	f.await("all messages to be settled", func() bool { return len(settled()) >= len(cases) })
	for _, line := range settled() {
		name := ids[line["message_id"]]
		reason := fmt.Sprint(line["reason"])
		got := reason + " " + strings.TrimPrefix(fmt.Sprint(line["detail"]), reason+": ")
		if want := cases[name].want; !strings.HasPrefix(got, want) {
			f.t.Errorf("%s: %s, want %s", name, got, want)
		}
		delete(ids, line["message_id"])
	}
	if len(ids) > 0 {
		f.t.Errorf("not settled: %v", ids)
	}
}

// TestHostHeaderThroughAProxy checks that a proxy gets the URL that was judged, whatever Host header a message has.
func TestHostHeaderThroughAProxy(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	proxy := newRecorder(t, map[string]string{
		"/to_metadata": "http://169.254.169.254/",
		"/to_unicode":  "http://１２７。0.0.1:81/there",
	})
	const refused = "target_refused the Host header is refused: it differs from the URL"
	f.wantEnds([]string{"ASYNC_CALLER_PROXY=" + proxy.URL}, map[string]guardCase{
		"plain":      {call("http://127.0.0.1/plain", ""), "delivered"},
		"same":       {call("http://127.0.0.1:81/same", "127.0.0.1:81"), "delivered"},
		"port":       {call("http://127.0.0.1/port", "127.0.0.1:80"), "delivered"},
		"unicode":    {call("http://１２７。0.0.1/unicode", ""), "delivered"},
		"nexus":      {nexusCall("127.0.0.1:80", "/nexus"), "delivered"},
		"metadata":   {call("http://127.0.0.1/latest/meta-data/", "169.254.169.254"), refused},
		"other_port": {call("http://127.0.0.1/", "127.0.0.1:8080"), refused},
		"other_name": {call("http://127.0.0.1/", "u.example"), refused},
		"nexus_meta": {nexusCall("169.254.169.254", "/"), "target_refused 169.254.169.254 is refused"},
		"by_redirect": {
			call("http://127.0.0.1/to_metadata", "127.0.0.1:80"),
			"target_refused behind a redirect: 169.254.169.254 is refused",
		},
		"to_unicode": {call("http://127.0.0.1/to_unicode", ""), "delivered"},
	})
	for _, uri := range []string{
		"http://127.0.0.1/plain", "http://127.0.0.1:81/same", "http://127.0.0.1/port", "http://127.0.0.1/unicode",
		"http://127.0.0.1:80/nexus",
		"http://127.0.0.1/to_metadata", "http://127.0.0.1/to_unicode", "http://127.0.0.1:81/there",
	} {
		if r := proxy.seen()[uri]; r == nil || !strings.HasPrefix(uri, "http://"+r.Host+"/") {
			t.Errorf("%s: %+v", uri, r)
		}
		delete(proxy.seen(), uri)
	}
	for uri := range proxy.seen() {
		t.Errorf("the proxy was asked for %s", uri)
	}
}
