package outbound_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/decision"
)

// alert is a TLS record with an alert in the clear.
func alert(number byte) string { return string([]byte{21, 3, 1, 0, 2, 2, number}) }

// serverHello is the answer of a server that chooses a version of TLS.
func serverHello(version byte) string {
	hello := append([]byte{3, version}, make([]byte, 32)...)    // random
	hello = append(hello, 0, 0xc0, 0x2f, 0)                     // no session, cipher suite, no compression
	hello = append([]byte{2, 0, 0, byte(len(hello))}, hello...) // of type server hello
	return string(append([]byte{22, 3, version, 0, byte(len(hello))}, hello...))
}

// TestHandshakeDetail: the detail says why a handshake failed, and nothing that the target wrote.
func TestHandshakeDetail(t *testing.T) {
	const old = "the target accepts neither TLS 1.2 nor TLS 1.3"
	const certificate = "a client certificate is wanted"
	const closed = "the target closed the connection"
	for name, test := range map[string]struct{ answer, detail string }{
		"handshake_failure": {
			alert(40), "no common cipher suite, or " + certificate + " (alert handshake failure)",
		},
		"protocol_version": {alert(70), old + " (alert protocol version not supported)"},
		"unrecognized_name": {
			alert(112), "the target does not know the host name (alert unrecognized name)",
		},
		"no_certificate":     {alert(116), certificate + " (alert certificate required)"},
		"bad_certificate":    {alert(42), certificate + " (alert bad certificate)"},
		"access_denied":      {alert(49), "the target sent the alert access denied"},
		"unknown_alert":      {alert(200), "the target sent the alert alert(200)"},
		"tls_1.0":            {serverHello(1), old},
		"ssl_3":              {serverHello(0), old},
		"http":               {"HTTP/1.1 400 " + canary + "\r\n\r\n" + canary, "the port speaks HTTP without TLS"},
		"ssh":                {"SSH-2.0-" + canary + "\r\n", "the port does not speak TLS"},
		"closed":             {"", closed},
		"closed_in_a_record": {"\x16\x03\x03\x00\x40" + canary, closed},
		"closed_politely":    {string([]byte{21, 3, 3, 0, 2, 1, 0}), closed},
	} {
		t.Run(name, func(t *testing.T) {
			address := newHandshakeServer(t, test.answer)
			o := newClient(t, longTimeout).Do(t.Context(), secretCall(t, "https", address))
			wantFailure(t, o, decision.FailureTLS)
			if want := "the TLS handshake failed: " + test.detail; o.Detail != want {
				t.Errorf("the detail is %q, want %q", o.Detail, want)
			}
		})
	}
}

// newHandshakeServer starts a server that reads a client hello and answers with these bytes.
func newHandshakeServer(t *testing.T, answer string) (address string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		record := make([]byte, 5)
		_, _ = io.ReadFull(c, record)
		_, _ = io.CopyN(io.Discard, c, int64(record[3])<<8|int64(record[4]))
		_, _ = io.WriteString(c, answer)
	}()
	return listener.Addr().String()
}

// TestTLS: the client trusts those whose certificates the machine trusts, for their names, and speaks TLS 1.2 or newer.
// Servers refuse the handshake in the way of their version, the newest one after it.
func TestTLS(t *testing.T) {
	const host = "target.example"
	hour, certificate := time.Now().Add(time.Hour), decision.FailureCertificate
	trusted := newAuthority(t)
	valid := trusted.server(t, host, hour)
	for name, test := range map[string]struct {
		certificate tls.Certificate
		config      *tls.Config
		want        decision.Failure
		detail      string
	}{
		"trusted":        {valid, &tls.Config{}, "", ""},
		"issuer_unknown": {newAuthority(t).server(t, host, hour), &tls.Config{}, certificate, "issuer"},
		"expired":        {trusted.server(t, host, time.Now().Add(-time.Hour)), &tls.Config{}, certificate, "expired"},
		"other_host":     {trusted.server(t, "other.example", hour), &tls.Config{}, certificate, "another host"},
		"old_version": {
			valid, &tls.Config{MaxVersion: tls.VersionTLS11}, decision.FailureTLS, "neither TLS 1.2 nor TLS 1.3",
		},
		"no_certificate_1.2": {
			valid, &tls.Config{MaxVersion: tls.VersionTLS12, ClientAuth: tls.RequireAnyClientCert},
			decision.FailureTLS, "a client certificate is wanted",
		},
		"no_certificate_1.3": {
			valid, &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert},
			decision.FailureTLS, "a client certificate is wanted",
		},
		"no_common_cipher": {
			valid, &tls.Config{
				MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_RSA_WITH_AES_128_CBC_SHA},
			},
			decision.FailureTLS, "no common cipher suite",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := newUnstartedServer(t, nil)
			test.config.Certificates = []tls.Certificate{test.certificate}
			server.TLS, server.EnableHTTP2 = test.config, true
			server.StartTLS()
			client := newClient(t, longTimeout)
			client.Trust(trusted.pool())
			client.ConnectBy(func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
			})
			o := client.Do(t.Context(), secretCall(t, "https", host))
			if test.want != "" {
				wantFailure(t, o, test.want)
				if n := len(server.all()); n != 0 || !strings.Contains(o.Detail, test.detail) {
					t.Errorf("the detail is %q, want it to say %q; %d calls", o.Detail, test.detail, n)
				}
				return
			}
			wantAnswer(t, o, 200)
			if got := server.one(t); got.proto != "HTTP/1.1" || string(got.body) != canary {
				t.Errorf("got %q by %s, want the whole call by HTTP/1.1", got.body, got.proto)
			}
		})
	}
}

// authority issues certificates for tests.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key = a.issue(t, &x509.Certificate{
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour),
	})
	return a
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// issue signs a certificate, with the certificate's own key if the authority has none yet.
func (a *authority) issue(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.Subject = pkix.Name{CommonName: canary}
	template.NotBefore = time.Now().Add(-48 * time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// server returns a certificate for a host name.
func (a *authority) server(t *testing.T, host string, notAfter time.Time) tls.Certificate {
	t.Helper()
	cert, key := a.issue(t, &x509.Certificate{
		DNSNames: []string{host}, NotAfter: notAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}
