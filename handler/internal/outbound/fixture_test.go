package outbound_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/guard"
	"asynccaller/handler/internal/outbound"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// canary is a secret that must never turn up in an outcome's detail.
const canary = "C4nary"

// patience is the client's time limit where no test depends on it.
const patience = 30 * time.Second

// object is a JSON object, for the members of an envelope.
type object map[string]any

// mustEnvelope makes an envelope with this call, and more members if given.
func mustEnvelope(tb testing.TB, call object, more ...object) *envelope.Envelope {
	tb.Helper()
	members := object{"asyncCaller": 1, "requestId": "request-1", "call": call}
	for _, extra := range more {
		maps.Copy(members, extra)
	}
	content, err := json.Marshal(members)
	if err != nil {
		tb.Fatal(err)
	}
	e, err := envelope.Parse(content)
	if err != nil {
		tb.Fatalf("%s: %v", content, err)
	}
	return e
}

// newClient returns a client that may call targets on this machine.
func newClient(tb testing.TB, timeout time.Duration) *outbound.Client {
	tb.Helper()
	client := outbound.New(timeout, mustRules(tb, "127.0.0.0/8,::1,*", ""), outbound.Proxy{})
	tb.Cleanup(client.Close)
	return client
}

func mustRules(tb testing.TB, allow, deny string) (rules guard.Rules) {
	tb.Helper()
	var err error
	if allow != "" {
		if rules.Allow, err = guard.ParseAllow(allow); err != nil {
			tb.Fatal(err)
		}
	}
	if deny != "" {
		if rules.Deny, err = guard.ParseDeny(deny); err != nil {
			tb.Fatal(err)
		}
	}
	return rules
}

// seen is a request as a target got it.
type seen struct {
	method, uri, host string
	header            http.Header
	body              []byte
}

// target is an HTTP server that remembers what it was asked.
type target struct {
	*httptest.Server
	mu       sync.Mutex
	requests []seen
}

// newTarget starts a target that answers by this function, or with 200 if it is nil.
func newTarget(tb testing.TB, answer http.HandlerFunc) *target {
	tb.Helper()
	s := newUnstartedTarget(tb, answer)
	s.Start()
	return s
}

func newUnstartedTarget(tb testing.TB, answer http.HandlerFunc) *target {
	tb.Helper()
	s := &target{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.requests = append(s.requests, seen{method: r.Method, uri: r.RequestURI, host: r.Host, header: r.Header, body: body})
		s.mu.Unlock()
		if answer != nil {
			answer(w, r)
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // failed handshakes are what some tests want
	tb.Cleanup(s.Close)
	return s
}

// all returns what the target was asked.
func (s *target) all() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// one returns the only request that there was.
func (s *target) one(tb testing.TB) seen {
	tb.Helper()
	all := s.all()
	if len(all) != 1 {
		tb.Fatalf("the target was called %d times", len(all))
	}
	return all[0]
}

// wire is a TCP server that speaks no HTTP of its own: it notes the head of each request and leaves the
// rest to the test.
type wire struct {
	listener net.Listener
	heads    chan string
}

// newWire starts a server that hands each connection to the function once a request's head was read,
// and closes it afterwards.
func newWire(tb testing.TB, answer func(c net.Conn)) *wire {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	w := &wire{listener: listener, heads: make(chan string, 10)}
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() {
				defer func() { _ = c.Close() }()
				if head, err := readHead(c); err == nil {
					w.heads <- head
					answer(c)
				}
			})
		}
	})
	tb.Cleanup(func() {
		_ = listener.Close()
		connections.Wait()
	})
	return w
}

func (w *wire) url() string { return "http://" + w.listener.Addr().String() }

// readHead reads a request up to the empty line, byte by byte so that nothing of the body gets lost.
func readHead(c io.Reader) (string, error) {
	var head bytes.Buffer
	r := bufio.NewReaderSize(c, 16)
	for !strings.HasSuffix(head.String(), "\r\n\r\n") {
		b, err := r.ReadByte()
		if err != nil {
			return "", err
		}
		head.WriteByte(b)
	}
	return head.String(), nil
}

// headerLines are the header fields of a head, sorted, without Host.
func headerLines(head string) []string {
	var lines []string
	for _, line := range strings.Split(strings.TrimSuffix(head, "\r\n\r\n"), "\r\n")[1:] {
		if !strings.HasPrefix(line, "Host: ") {
			lines = append(lines, line)
		}
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	return lines
}

// wantFailure checks an outcome without an answer that counts.
func wantFailure(tb testing.TB, o decision.Outcome, want decision.Failure) {
	tb.Helper()
	if o.Failure != want {
		tb.Errorf("got failure %q (%s), status %d, want %q", o.Failure, o.Detail, o.Status, want)
	}
	wantNoSecret(tb, o)
}

// wantAnswer checks an outcome with an answer.
func wantAnswer(tb testing.TB, o decision.Outcome, status int) {
	tb.Helper()
	if o.Failure != "" || o.Status != status {
		tb.Errorf("got failure %q (%s), status %d, want an answer with %d", o.Failure, o.Detail, o.Status, status)
	}
}

func wantNoSecret(tb testing.TB, o decision.Outcome) {
	tb.Helper()
	for _, secret := range []string{canary, "://", "127.0.0.1", "?"} {
		if strings.Contains(o.Detail, secret) {
			tb.Errorf("the detail tells %q: %s", secret, o.Detail)
		}
	}
}
