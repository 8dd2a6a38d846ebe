package ingress_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/ingress"
	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/program/instance"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// The function and the ids of the files in testdata/invocation.
const (
	function     = "QueueFn"
	mainQueue    = "work-items"
	poisonQueue  = "work-items-poison"
	messageID    = "ac42afd5-35e5-4258-928c-16de063c24b1"
	invocationID = "0f4dbbbd-7b3c-4f0a-8c62-0a4ac11d4d0e"
)

// goodMetadata is the host's metadata of a message that it received for the second time.
const goodMetadata = `{"DequeueCount":"2","Id":"\"ac42afd5-35e5-4258-928c-16de063c24b1\"",` +
	`"PopReceipt":"\"AgAAAAMAAAAAAAAAAgtnj8x+1QE=\""}`

// caller is a fake [delivery.Caller]; nil answers 200.
type caller func(ctx context.Context, e *envelope.Envelope) decision.Outcome

func (c caller) Do(ctx context.Context, e *envelope.Envelope) decision.Outcome {
	if c == nil {
		return decision.Outcome{Status: http.StatusOK}
	}
	return c(ctx, e)
}

func answers(status int) caller {
	return func(context.Context, *envelope.Envelope) decision.Outcome { return decision.Outcome{Status: status} }
}

// app is the handler, its queues and its log.
type app struct {
	http.Handler
	store *memory.Queues
	log   *lockedBuffer
	// deliverer is the handler's, and path its gates and observers; a test may change them before it posts.
	deliverer *delivery.Deliverer
	path      instance.Path
	connect   sync.Once
}

// Deliver implements [ingress.Deliverer].
func (a *app) Deliver(ctx context.Context, m delivery.Message) *delivery.Result {
	a.connect.Do(func() { a.path.Connect(a.deliverer) })
	return a.deliverer.Deliver(ctx, m)
}

// newApp returns a handler for one function.
func newApp(tb testing.TB, called delivery.Caller) *app {
	tb.Helper()
	a := &app{store: memory.New(), log: &lockedBuffer{}}
	log := zerolog.New(a.log)
	if err := a.store.Create(tb.Context(), mainQueue); err != nil {
		tb.Fatal(err)
	}
	allow, err := guard.ParseAllow("*, 127.0.0.1, fe80::/10") // targets of tests
	if err != nil {
		tb.Fatal(err)
	}
	a.deliverer = &delivery.Deliverer{
		Rules: decision.Rules{
			Expiration: 7 * 24 * time.Hour, GiveUp: envelope.GiveUpDeadLetter,
			Retry: retry.Default(),
		},
		Caller:   called,
		Settler:  settle.New(a.store, storage.Base64),
		Stopping: tb.Context(),
		Now:      time.Now,
		Jitter:   func() float64 { return 0.5 },
	}
	a.path = instance.Path{
		Guard: guard.Rules{Allow: allow}, NewBatchThreshold: 224, Log: log,
	}
	functions := []functionapp.Function{{
		Name: function, Binding: "msg", Queue: mainQueue,
		DataType: functionapp.DataBinary,
	}}
	a.Handler = ingress.Handler(functions, nil, a.posts(tb), a, log)
	return a
}

// lockedBuffer is a log that is safe for concurrent use.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// start starts an HTTP server with the handler.
func (a *app) start(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return server
}

// reply is the handler's answer to the host.
type reply struct {
	status int
	header http.Header
	body   string
}

// post sends an invocation as the host does in Azure: chunked.
func post(t *testing.T, server *httptest.Server, body string) reply {
	t.Helper()
	return do(t, server, http.MethodPost, "/"+function, struct{ io.Reader }{strings.NewReader(body)})
}

func do(tb testing.TB, server *httptest.Server, method, path string, body io.Reader) reply {
	tb.Helper()
	request, err := http.NewRequestWithContext(tb.Context(), method, server.URL+path, body)
	if err != nil {
		tb.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json; charset=utf-8")
	request.Header.Set("X-Azure-Functions-InvocationId", invocationID)
	response, err := server.Client().Do(request)
	if err != nil {
		tb.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		tb.Fatal(err)
	}
	r := reply{response.StatusCode, response.Header, string(content)}
	r.wantUsable(tb)
	return r
}

// invocation returns the host's POST to a function of a handler that listens on 127.0.0.1:7071.
func invocation(tb testing.TB, name, body string) *http.Request {
	tb.Helper()
	var address net.Addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7071}
	ctx := context.WithValue(tb.Context(), http.LocalAddrContextKey, address)
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:7071/"+name,
		strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json; charset=utf-8")
	request.Header.Set("X-Azure-Functions-InvocationId", invocationID)
	return request
}

// wantUsable checks what the host requires of every answer: a JSON object. After an empty answer it waits forever. Logs
// must be absent: the host would log the outcome again.
func (r reply) wantUsable(tb testing.TB) {
	tb.Helper()
	if got := r.header.Get("Content-Type"); got != "application/json" {
		tb.Errorf("%d with Content-Type %q", r.status, got)
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(r.body), &object); err != nil || object == nil {
		tb.Errorf("%d with body %q: want an object", r.status, r.body)
	}
	if logs := object["Logs"]; logs != nil {
		tb.Errorf("%d with Logs %q: want none", r.status, logs)
	}
}

// wantStatus checks the answer's status.
func (r reply) wantStatus(t *testing.T, status int) {
	t.Helper()
	if r.status != status {
		t.Fatalf("answered %d %s, want %d", r.status, r.body, status)
	}
}

// binary returns an invocation of a function with dataType "binary".
func binary(content, metadata string) string {
	return `{"Data":{"msg":"` + base64.StdEncoding.EncodeToString([]byte(content)) + `"},"Metadata":` + metadata + `}`
}

// text returns an invocation of a function with dataType "string": the content is JSON in JSON.
func text(tb testing.TB, content, metadata string) string {
	tb.Helper()
	return `{"Data":{"msg":` + mustEncode(tb, mustEncode(tb, content)) + `},"Metadata":` + metadata + `}`
}

func mustEncode(tb testing.TB, value string) string {
	tb.Helper()
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func mustRead(tb testing.TB, name string) string {
	tb.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", "invocation", name))
	if err != nil {
		tb.Fatal(err)
	}
	return string(content)
}

// contents returns the decoded messages on a queue.
func (a *app) contents(tb testing.TB, name string) []string {
	tb.Helper()
	var contents []string
	for _, m := range a.store.All(name) {
		content, err := storage.Base64.Decode(m.Text)
		if err != nil {
			tb.Fatalf("%s holds %q: %v", name, m.Text, err)
		}
		contents = append(contents, string(content))
	}
	return contents
}

// wantContents checks the messages on a queue.
func (a *app) wantContents(t *testing.T, name string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, a.contents(t, name)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// lines returns the decoded log.
func (a *app) lines(tb testing.TB) []map[string]any {
	tb.Helper()
	var lines []map[string]any
	for text := range strings.Lines(a.log.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			tb.Fatalf("log line %q: %v", text, err)
		}
		lines = append(lines, line)
	}
	return lines
}

// mustOneLine returns the log's only line.
func (a *app) mustOneLine(t *testing.T) map[string]any {
	t.Helper()
	lines := a.lines(t)
	if len(lines) != 1 {
		t.Fatalf("want one log line, got\n%s", a.log)
	}
	return lines[0]
}
