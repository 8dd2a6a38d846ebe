package outbound_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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

	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/guard"
)

// TestMain resolves a name first. The resolver of package net makes a channel when it is first used, and one that is
// made in a synctest bubble cannot be used in another.
func TestMain(m *testing.M) {
	_, _ = net.DefaultResolver.LookupHost(context.Background(), "localhost")
	goleak.VerifyTestMain(m)
}

// canary is a secret that must never appear in an outcome's detail.
const canary = "C4nary"

// longTimeout is the client's timeout in tests that do not depend on it.
const longTimeout = 30 * time.Second

// object is a JSON object, for the members of an envelope.
type object map[string]any

// reported makes the body of a 2xx matter.
var reported = object{"callback": object{"url": "http://sender.example"}}

// mustEnvelope returns an envelope with this call and the extra members.
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

// call makes a call to a URL by a client of its own.
func call(tb testing.TB, url string, more ...object) decision.Outcome {
	tb.Helper()
	return newClient(tb, longTimeout).Do(tb.Context(), mustEnvelope(tb, object{"url": url}, more...))
}

// secretCall returns a call with secrets in its URL, headers and body.
func secretCall(tb testing.TB, scheme, address string) *envelope.Envelope {
	tb.Helper()
	return mustEnvelope(tb, object{
		"url":     scheme + "://user:" + canary + "@" + address + "/" + canary + "?code=" + canary,
		"headers": object{"X-Api-Key": canary},
		"body":    canary,
	})
}

func mustRules(tb testing.TB, allow, deny string) (rules guard.Rules) {
	tb.Helper()
	var err error
	if allow != "" {
		rules.Allow, err = guard.ParseAllow(allow)
		if err != nil {
			tb.Fatal(err)
		}
	}
	if deny != "" {
		rules.Deny, err = guard.ParseDeny(deny)
		if err != nil {
			tb.Fatal(err)
		}
	}
	return rules
}

// seen is a request as a target received it.
type seen struct {
	method, uri, host, proto string
	header                   http.Header
	body                     []byte
}

// testServer is a target that records its requests.
type testServer struct {
	*httptest.Server
	mu       sync.Mutex
	requests []seen
}

// newTestServer starts a target with this handler, which answers 200 if it is nil.
func newTestServer(tb testing.TB, answer http.HandlerFunc) *testServer {
	tb.Helper()
	s := newUnstartedServer(tb, answer)
	s.Start()
	return s
}

func newUnstartedServer(tb testing.TB, answer http.HandlerFunc) *testServer {
	tb.Helper()
	s := &testServer{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.requests = append(s.requests, seen{
			method: r.Method, uri: r.RequestURI, host: r.Host, proto: r.Proto,
			header: r.Header, body: body,
		})
		s.mu.Unlock()
		if answer != nil {
			answer(w, r)
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // some tests make handshakes fail
	tb.Cleanup(s.Close)
	return s
}

// all returns the requests so far.
func (s *testServer) all() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// one returns the only request.
func (s *testServer) one(tb testing.TB) seen {
	tb.Helper()
	all := s.all()
	if len(all) != 1 {
		tb.Fatalf("the target was called %d times", len(all))
	}
	return all[0]
}

// rawServer is a TCP server that records the head of each request and leaves the answer to the test.
type rawServer struct {
	listener net.Listener
	heads    chan string
}

// newRawServer starts a server that reads the head of a request, calls the function with the connection, and closes
// the connection.
func newRawServer(tb testing.TB, answer func(c net.Conn)) *rawServer {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	w := &rawServer{listener: listener, heads: make(chan string, 10)}
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

// newAnswer starts a server that sends this text to each connection, and closes it.
func newAnswer(tb testing.TB, text string) *rawServer {
	tb.Helper()
	return newRawServer(tb, func(c net.Conn) { _, _ = io.WriteString(c, text) })
}

func (w *rawServer) url() string { return "http://" + w.listener.Addr().String() }

// readHead reads a request up to the empty line, byte by byte, so that it reads nothing of the body.
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

// summary says what a call came to: the status, the beginning of the body, and what is wrong.
func summary(o decision.Outcome) string {
	text := fmt.Sprintf("%d %.20s", o.Status, o.Body)
	if o.Truncated {
		text += "..."
	}
	text += " " + string(o.Failure)
	if o.Detail != "" {
		text += ": " + o.Detail
	}
	return strings.Join(strings.Fields(text), " ")
}

// wantFailure checks an outcome without a usable answer.
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
	for _, hidden := range []string{canary, "://", "127.0.0.1", "?"} {
		if strings.Contains(o.Detail, hidden) {
			tb.Errorf("the detail contains %q: %s", hidden, o.Detail)
		}
	}
}
