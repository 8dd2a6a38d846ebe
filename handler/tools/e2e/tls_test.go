package e2e_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

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

// TestRenegotiation checks that a target may ask for a client certificate when it knows the request, as IIS does.
func TestRenegotiation(t *testing.T) {
	t.Parallel()
	f := newFixture(t, options{})
	certificate := issue(t, nil, &x509.Certificate{IsCA: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	trusted := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Leaf.Raw})
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	f.must(err)
	file := filepath.Join(f.app, "server.pem")
	private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	f.must(os.WriteFile(file, append(trusted, private...), 0o600))
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
	f.putContent(fmt.Appendf(nil, `{"asyncCaller":1,"requestId":"r0","call":{"url":"https://127.0.0.1:%s","body":"x"}}`,
		lines.Text()))
	f.start([]string{"SSL_CERT_FILE=" + file})
	if lines.Scan(); lines.Text() != "renegotiated" {
		t.Errorf("the server says %q", lines.Text())
	}
	f.await("the call", func() bool { return slices.Contains(f.reasons("r0"), "finish delivered") })
	if n := len(f.reasons("r0")); n != 1 {
		t.Errorf("%d deliveries", n)
	}
}
