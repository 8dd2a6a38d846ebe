package e2e_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestAnswersThatBreakOff checks in both formats that an answer without its end is not reported as complete, and is no
// reason to repeat a call whose answer nobody needs.
func TestAnswersThatBreakOff(t *testing.T) {
	t.Parallel()
	cut := func(status int) answer {
		return answer{status: status, mediaType: "text/plain", body: "half", cut: true}
	}
	whole := answer{status: 200, mediaType: "text/plain", body: "whole"}
	scenarios := map[string]struct {
		answers          []answer
		callback, expire bool
		// calls is the number of calls, 0 for several; report is what the callback says of status, payload and
		// truncation.
		calls  int
		report string
	}{
		"nobody_needs_it": {answers: []answer{cut(200)}, calls: 1},
		"rejected":        {answers: []answer{cut(400), whole}, calls: 2},
		"reported":        {answers: []answer{cut(200), whole}, callback: true, calls: 2, report: "200 whole false"},
		"at_last":         {answers: []answer{cut(201)}, callback: true, expire: true, report: "504  false"},
	}
	f := newFixture(t, options{})
	queues := f.stageAll()
	p := newPartner(t)
	host := p.Listener.Addr().String()
	f.start(inAFewSeconds)
	for name, s := range scenarios {
		for _, format := range []string{"native", "nexus"} {
			id := name + "_" + format
			p.script("/call/"+id, s.answers...)
			p.script("/callback/"+id, answer{status: 200})
			deadline, attempts := time.Now().Add(time.Hour), ""
			switch {
			case s.expire && format == "native": // its answer is kept only if the call is the last
				attempts = `,"retry":{"schedule":["1s"],"maxAttempts":2}`
			case s.expire:
				deadline = time.Now().Add(8 * time.Second)
			}
			m := nexusMessage{
				id: id, originalRequestID: id,
				callOut: nexusCallOut("POST", "/call/"+id, host, nexusBody), deadline: deadline,
			}
			callback := ""
			if s.callback {
				m.callBack = nexusCallBack("/callback/"+id, host)
				callback = fmt.Sprintf(`,"callback":{"url":"http://%s/callback/%s"}`, host, id)
			}
			content := m.content()
			if format == "native" {
				content = fmt.Appendf(nil,
					`{"asyncCaller":1,"requestId":%q,"deadline":%q,"call":{"url":"http://%s/call/%s","body":"x"}%s%s}`,
					id, deadline.Format(time.RFC3339), host, id, callback, attempts)
			}
			f.putContent(content)
		}
	}
	f.await("every message to be called", func() bool {
		return len(p.received("/callback/at_last_native")) > 0 && len(p.received("/callback/at_last_nexus")) > 0
	})
	f.awaitAllEmpty(queues)
	f.mustDeliverOnce()
	for name, s := range scenarios {
		for _, format := range []string{"native", "nexus"} {
			id := name + "_" + format
			if n := len(p.received("/call/" + id)); n != s.calls && (s.calls > 0 || n < 2) {
				t.Errorf("%s: %d calls, want %d", id, n, s.calls)
			}
			var reports []string
			for _, callback := range p.received("/callback/" + id) {
				var body struct {
					StatusCode       int
					Payload          string
					PayloadTruncated bool
				}
				f.must(json.Unmarshal([]byte(callback.body), &body))
				reports = append(reports, fmt.Sprint(body.StatusCode, " ", body.Payload, " ", body.PayloadTruncated))
			}
			if got := strings.Join(reports, ", "); got != s.report {
				t.Errorf("%s: the sender is told %q, want %q", id, got, s.report)
			}
		}
	}
	for _, line := range f.host.Lines("settled") {
		if line["action"] == "reschedule" && line["reason"] != "connection" {
			t.Errorf("reason %v, want connection", line["reason"])
		}
	}
	if n := f.count(poisonQueue); n > 0 {
		t.Errorf("%d dead letters", n)
	}
}

// TestTLSTargets checks targets whose TLS is difficult: their calls are all delivered in the end.
func TestTLSTargets(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	root := issue(t, nil, &x509.Certificate{IsCA: true})
	stranger := issue(t, nil, &x509.Certificate{IsCA: true})
	between := issue(t, root, &x509.Certificate{IsCA: true})
	here := []net.IP{net.IPv4(127, 0, 0, 1)}
	valid := issue(t, root, &x509.Certificate{IPAddresses: here})
	trusted := filepath.Join(f.app, "root.pem")
	f.must(os.WriteFile(trusted, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Leaf.Raw}), 0o600))
	f.start([]string{"SSL_CERT_FILE=" + trusted})

	t.Run("certificates", func(t *testing.T) {
		f.callWithBadCertificates(t, *valid, map[string]*tls.Certificate{
			"untrusted":   issue(t, stranger, &x509.Certificate{IPAddresses: here}),
			"self_signed": issue(t, nil, &x509.Certificate{IPAddresses: here}),
			"expired": issue(t, root,
				&x509.Certificate{IPAddresses: here, NotAfter: time.Now().Add(-time.Hour)}),
			"not_yet_valid": issue(t, root,
				&x509.Certificate{IPAddresses: here, NotBefore: time.Now().Add(time.Hour)}),
			"other_host":      issue(t, root, &x509.Certificate{DNSNames: []string{"other.example"}}),
			"only_cn":         issue(t, root, &x509.Certificate{Subject: pkix.Name{CommonName: "127.0.0.1"}}),
			"no_intermediate": issue(t, between, &x509.Certificate{IPAddresses: here}),
		})
	})
	t.Run("silent_connection", func(t *testing.T) { f.callOverSilentConnection(t, *valid) })
	t.Run("http_1_1_required", func(t *testing.T) { f.callWithoutHTTP2(t, *valid) })
	t.Run("renegotiation", func(t *testing.T) { f.callWithRenegotiation(t, *valid) })
}

// issue returns a certificate that the parent signs, or that signs itself.
func issue(t *testing.T, parent *tls.Certificate, template *x509.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.BasicConstraintsValid = true
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-48 * time.Hour)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(48 * time.Hour)
	}
	if template.Subject.CommonName == "" {
		template.Subject.CommonName = fmt.Sprint(template.SerialNumber)
	}
	if parent == nil {
		parent = &tls.Certificate{Leaf: template, PrivateKey: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.Leaf, key.Public(), parent.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// newTLSServer returns a target that is not started and that offers HTTP/2 as well. It counts the calls of each request
// id.
func newTLSServer(
	t *testing.T, certificate func() *tls.Certificate,
) (server *httptest.Server, calls func(id string) int) {
	t.Helper()
	var mu sync.Mutex
	counts := map[string]int{}
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		counts[r.Header.Get("Idempotency-Key")]++
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes fail
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*certificate()}, NextProtos: []string{"h2", "http/1.1"}}, nil
	}}
	t.Cleanup(server.Close)
	return server, func(id string) int {
		mu.Lock()
		defer mu.Unlock()
		return counts[id]
	}
}

// putURL puts an envelope on the queue that is called every second, for at most a second each.
func (f *fixture) putURL(id, url, members string) {
	f.t.Helper()
	const form = `{"asyncCaller":1,"requestId":%q,"retry":{"schedule":["1s"]},"call":{"url":%q,"body":"x",` +
		`"timeout":"1s"}%s}`
	f.putContent(fmt.Appendf(nil, form, id, url, members))
}

// reasons returns how the deliveries of a request id were settled.
func (f *fixture) reasons(id string) (reasons []string) {
	for _, line := range f.host.Lines("settled") {
		if line["request_id"] == id {
			reasons = append(reasons, fmt.Sprint(line["action"], " ", line["reason"]))
		}
	}
	return reasons
}

func (f *fixture) callWithBadCertificates(t *testing.T, valid tls.Certificate, bad map[string]*tls.Certificate) {
	var renewed atomic.Bool
	counts := map[string]func(string) int{}
	for id, certificate := range bad {
		server, calls := newTLSServer(t, func() *tls.Certificate {
			if renewed.Load() {
				return &valid
			}
			return certificate
		})
		server.StartTLS()
		counts[id] = calls
		f.putURL(id, server.URL, "")
		f.putURL(id+"_at_deadline", server.URL, fmt.Sprintf(`,"deadline":%q`, time.Now().Add(4*time.Second).
			Format(time.RFC3339)))
	}
	for id := range bad {
		f.await(id, func() bool { return slices.Contains(f.reasons(id), "reschedule certificate") })
		f.await(id, func() bool { return slices.Contains(f.reasons(id+"_at_deadline"), "dead_letter expired") })
	}
	renewed.Store(true)
	for id, calls := range counts {
		f.await(id, func() bool { return slices.Contains(f.reasons(id), "finish delivered") })
		if calls(id) != 1 || calls(id+"_at_deadline") != 0 {
			t.Errorf("%s: %d calls, %d with a bad certificate", id, calls(id), calls(id+"_at_deadline"))
		}
	}
}

// silentListener accepts connections. All that are open can be made silent: then the server receives nothing more.
type silentListener struct {
	net.Listener
	silent atomic.Pointer[atomic.Bool]
}

func (l *silentListener) silence() { l.silent.Swap(new(atomic.Bool)).Store(true) }

func (l *silentListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return silentConn{c, l.silent.Load()}, err
}

type silentConn struct {
	net.Conn
	silent *atomic.Bool
}

func (c silentConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.silent.Load() {
		_, _ = io.Copy(io.Discard, c.Conn) // until the client closes it
		return 0, io.EOF
	}
	return n, err
}

// callOverSilentConnection checks that a silent connection costs the call that uses it, and no other.
func (f *fixture) callOverSilentConnection(t *testing.T, valid tls.Certificate) {
	server, calls := newTLSServer(t, func() *tls.Certificate { return &valid })
	listener := &silentListener{Listener: server.Listener}
	listener.silent.Store(new(atomic.Bool))
	server.Listener = listener
	server.StartTLS()
	f.putURL("first", server.URL, "")
	f.await("the first call", func() bool { return calls("first") == 1 && f.count(mainQueue) == 0 })
	listener.silence()
	const messages = 12
	timeouts := 0
	for n := range messages {
		f.putURL(fmt.Sprintf("later%d", n), server.URL, "")
	}
	for n := range messages {
		id := fmt.Sprintf("later%d", n)
		f.await(id, func() bool { return slices.Contains(f.reasons(id), "finish delivered") })
		timeouts += len(f.reasons(id)) - 1
	}
	if timeouts != 1 {
		t.Errorf("%d timeouts, want 1", timeouts)
	}
}

// callWithoutHTTP2 checks that a call is delivered to a target that offers HTTP/2 and then refuses it, as IIS does
// where it needs a client certificate.
func (f *fixture) callWithoutHTTP2(t *testing.T, valid tls.Certificate) {
	server, calls := newTLSServer(t, func() *tls.Certificate { return &valid })
	server.EnableHTTP2 = false
	server.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn,
		http.Handler){"h2": func(_ *http.Server, c *tls.Conn, _ http.Handler) {
		_, _ = io.ReadFull(c, make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")))
		_, _ = c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0})                // SETTINGS
		_, _ = c.Write([]byte{0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 0x0d}) // RST_STREAM, HTTP_1_1_REQUIRED
		_, _ = io.Copy(io.Discard, c)
	}}
	server.StartTLS()
	f.putURL("http1", server.URL, "")
	f.await("the call", func() bool { return slices.Contains(f.reasons("http1"), "finish delivered") })
	if n := len(f.reasons("http1")); n != 1 || calls("http1") != 1 {
		t.Errorf("%d deliveries, %d calls", n, calls("http1"))
	}
}

// renegotiatingServer is a program for Node.js: a TLS server that renegotiates, and asks for a certificate, before it
// answers. Go's own TLS server cannot. It prints its port, and how each renegotiation ended.
const renegotiatingServer = `
const pem = require('fs').readFileSync(process.argv[1])
const options = {key: pem, cert: pem, maxVersion: 'TLSv1.2'}
require('tls').createServer(options, socket => {
	socket.on('error', () => {})
	socket.once('data', () => socket.renegotiate({requestCert: true, rejectUnauthorized: false}, error => {
		console.log(error ? String(error) : 'renegotiated')
		socket.end('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')
	}))
}).listen(0, '127.0.0.1', function () { console.log(this.address().port) })`

// callWithRenegotiation checks that a target may ask for a client certificate when it knows the request, as IIS does.
func (f *fixture) callWithRenegotiation(t *testing.T, valid tls.Certificate) {
	key, err := x509.MarshalPKCS8PrivateKey(valid.PrivateKey)
	f.must(err)
	file := filepath.Join(f.app, "server.pem")
	f.must(os.WriteFile(file, append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: valid.Leaf.Raw}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...), 0o600))
	command := exec.CommandContext(t.Context(), "node", "-e", renegotiatingServer, file)
	output, err := command.StdoutPipe()
	f.must(err)
	f.must(command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	lines := bufio.NewScanner(output)
	lines.Scan()
	f.putURL("renegotiated", "https://127.0.0.1:"+lines.Text(), "")
	if lines.Scan(); lines.Text() != "renegotiated" {
		t.Errorf("the server says %q", lines.Text())
	}
	f.await("the call", func() bool { return slices.Contains(f.reasons("renegotiated"), "finish delivered") })
	if n := len(f.reasons("renegotiated")); n != 1 {
		t.Errorf("%d deliveries", n)
	}
}
