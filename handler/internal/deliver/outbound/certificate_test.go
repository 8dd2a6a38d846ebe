package outbound_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
)

// client returns the text of a client certificate, with its key.
func (a *authority) client(t *testing.T, notAfter time.Time) string {
	t.Helper()
	cert, key := a.issue(t, &x509.Certificate{
		NotAfter: notAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})) + certText(cert)
}

func certText(cert *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
}

// withCertificates gives a client profiles whose variables have these texts.
func withCertificates(t *testing.T, client *outbound.Client, file string, texts map[string]string) {
	t.Helper()
	profiles, err := targets.Parse([]byte(file), nil, func(name string) string { return texts[name] })
	if err != nil {
		t.Fatal(err)
	}
	client.WithProfiles(profiles)
}

// mutual is a target that asks for certificates, and knows what it got with each request.
type mutual struct {
	*testServer
	mu    sync.Mutex
	got   []string // the serial number of the certificate; empty for none
	hosts []string
}

func newMutual(t *testing.T, config *tls.Config, answer http.HandlerFunc) *mutual {
	t.Helper()
	m := &mutual{}
	m.testServer = newUnstartedServer(t, func(w http.ResponseWriter, r *http.Request) {
		serial := ""
		if len(r.TLS.PeerCertificates) > 0 {
			serial = r.TLS.PeerCertificates[0].SerialNumber.String()
		}
		m.mu.Lock()
		m.got, m.hosts = append(m.got, serial), append(m.hosts, r.Host)
		m.mu.Unlock()
		if answer != nil {
			answer(w, r)
		}
	})
	m.TLS = config
	m.StartTLS()
	return m
}

// connectTo makes a client reach a server by every name.
func connectTo(client *outbound.Client, server *testServer) {
	client.ConnectBy(func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
	})
}

// serialOf returns the serial number of the first certificate of a text.
func serialOf(t *testing.T, text string) string {
	t.Helper()
	_, rest := pem.Decode([]byte(text))
	block, _ := pem.Decode(rest)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert.SerialNumber.String()
}

// TestClientCertificates: what a target says that wants a certificate, with each version of TLS: by an alert, or by
// closing the connection as Kestrel does. With TLS 1.3 it says so after the handshake.
func TestClientCertificates(t *testing.T) {
	hour := time.Now().Add(time.Hour)
	wanted, servers := newAuthority(t), newAuthority(t)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, closes := range []bool{false, true} {
			for name, test := range map[string]struct{ text, alert, close string }{
				"right": {wanted.client(t, hour), "", ""},
				"wrong": {
					newAuthority(t).client(t, hour), "the target refused the certificate $CERT (alert ", "got $CERT",
				},
				"expired": {
					wanted.client(t, time.Now().Add(-time.Hour)), "refused the certificate $CERT (alert ", "got $CERT",
				},
				"none": {"", "a client certificate is wanted (alert ", "got none"},
			} {
				t.Run(strings.Join([]string{name, tls.VersionName(version), map[bool]string{
					false: "alert", true: "close",
				}[closes]}, "_"), func(t *testing.T) {
					config := &tls.Config{
						Certificates: []tls.Certificate{servers.server(t, "t.example", hour)}, MaxVersion: version,
						ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: wanted.pool(),
					}
					if closes {
						config = closing(config)
					}
					server := newMutual(t, config, nil)
					client := newClient(t, longTimeout)
					client.Trust(servers.pool())
					connectTo(client, server.testServer)
					file := `{"t.example": {}}`
					if test.text != "" {
						file = `{"t.example": {"certificate": "$CERT"}}`
					}
					withCertificates(t, client, file, map[string]string{"CERT": test.text})
					o := client.Do(t.Context(), secretCall(t, "https", "t.example"))
					wantNoSecret(t, o)
					if test.alert == "" {
						wantAnswer(t, o, 200)
						return
					}
					wantFailure(t, o, decision.FailureTLS)
					want := test.alert
					if closes {
						want = test.close
					}
					if !strings.Contains(o.Detail, want) || len(server.all()) > 0 {
						t.Errorf("the detail is %q, want it to say %q; %d calls", o.Detail, want, len(server.all()))
					}
				})
			}
		}
	}
}

// closing makes a server close the connection instead of sending an alert if it refuses a certificate.
func closing(config *tls.Config) *tls.Config {
	verified := config.Clone()
	config.ClientAuth = tls.RequestClientCert
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		own := config.Clone()
		own.GetConfigForClient = nil
		own.VerifyConnection = func(state tls.ConnectionState) error {
			var err error
			if len(state.PeerCertificates) == 0 {
				err = errors.New("no certificate")
			} else {
				_, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{
					Roots: verified.ClientCAs, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
				})
			}
			if err != nil {
				_ = hello.Conn.Close()
			}
			return err
		}
		return own, nil
	}
	return config
}

// TestWhoGetsTheCertificate: only the host of its profile, never behind a redirect to another host or port, nor with a
// Host header or a method for which a profile adds nothing. Connections of different identities are not shared.
func TestWhoGetsTheCertificate(t *testing.T) {
	hour := time.Now().Add(time.Hour)
	wanted, servers := newAuthority(t), newAuthority(t)
	one, two := wanted.client(t, hour), wanted.client(t, hour)
	serials := map[string]string{serialOf(t, one): "one", serialOf(t, two): "two", "": "none"}
	server := newMutual(t, &tls.Config{
		Certificates: []tls.Certificate{servers.server(t, "*.example", hour)}, ClientAuth: tls.RequestClientCert,
	}, func(w http.ResponseWriter, r *http.Request) {
		if location := r.URL.Query().Get("to"); location != "" {
			http.Redirect(w, r, location, http.StatusTemporaryRedirect)
		}
	})
	client := newClient(t, longTimeout)
	client.Trust(servers.pool())
	connectTo(client, server.testServer)
	withCertificates(t, client, `{"one.example": {"certificate": "$ONE"}, "two.example": {"certificate": "$TWO"},
		"two.example:8443": {"certificate": "$ONE"}}`, map[string]string{"ONE": one, "TWO": two})
	const back = "https://two.example/?to=https://one.example/"
	for _, c := range []struct {
		url  string
		more object
		want string
	}{
		{"https://one.example/", nil, "one"},
		{"https://two.example/", nil, "two"},
		{"https://two.example:8443/", nil, "one"},
		{"https://three.example/", nil, "none"},
		{"https://one.example/?to=/x", nil, "one one"},
		{"https://one.example/?to=https://two.example/", nil, "one none"},
		{"https://two.example/?to=https://two.example:8443/", nil, "two none"},
		{"https://three.example/?to=https://one.example/", nil, "none none"},
		{"https://one.example/?to=" + strings.ReplaceAll(back, "?", "%3F"), nil, "one none none"},
		{"https://one.example/", object{"headers": object{"Host": "two.example"}}, "none"},
		{"https://one.example/", object{"headers": object{"Host": "one.example"}}, "one"},
		{"https://one.example/", object{"method": "TRACE"}, "none"},
		{"https://two.example/", nil, "two"},
	} {
		server.got = nil
		call := object{"url": c.url}
		maps.Copy(call, c.more)
		wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, call)), 200)
		var got []string
		for _, serial := range server.got {
			got = append(got, serials[serial])
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s %v: got %v, want %s", c.url, c.more, got, c.want)
		}
	}
	for _, host := range server.hosts {
		if strings.Contains(host, "|") {
			t.Errorf("a request names the host %s", host)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://one.example/token", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.TokenClient().Do(request)
	if err != nil || server.got[len(server.got)-1] != "" {
		t.Errorf("a token server got a certificate, or no request: %v", err)
	} else {
		_ = answer.Body.Close()
	}
}

// TestAuthorities: those of a profile are trusted for its target only, and nobody else for it.
func TestAuthorities(t *testing.T) {
	own, system := newAuthority(t), newAuthority(t)
	for _, test := range []struct {
		host string
		by   *authority
		want decision.Failure
	}{
		{"own.example", own, ""},
		{"own.example", system, decision.FailureCertificate},
		{"other.example", own, decision.FailureCertificate},
		{"other.example", system, ""},
	} {
		server := newUnstartedServer(t, nil)
		server.TLS = serverConfig(test.by.server(t, test.host, time.Now().Add(time.Hour)))
		server.StartTLS()
		client := newClient(t, longTimeout)
		client.Trust(system.pool())
		connectTo(client, server)
		withCertificates(t, client, `{"own.example": {"ca": "$CA"}}`, map[string]string{"CA": certText(own.cert)})
		o := client.Do(t.Context(), mustEnvelope(t, object{"url": "https://" + test.host}))
		if test.want == "" {
			wantAnswer(t, o, 200)
		} else {
			wantFailure(t, o, test.want)
		}
	}
}

// TestProxiesGetNoCertificate: a proxy that asks for one gets none, and the target behind it gets its own.
func TestProxiesGetNoCertificate(t *testing.T) {
	hour := time.Now().Add(time.Hour)
	wanted, servers := newAuthority(t), newAuthority(t)
	text := wanted.client(t, hour)
	for _, isSecure := range []bool{false, true} {
		target := newMutual(t, &tls.Config{
			Certificates: []tls.Certificate{servers.server(t, "t.example", hour)},
			ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: wanted.pool(),
		}, nil)
		seen := 0
		forward := tunnel(t, target.Listener.Addr().String())
		proxy := newUnstartedServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.TLS != nil {
				seen += len(r.TLS.PeerCertificates)
			}
			forward(w, r)
		})
		if isSecure {
			proxy.TLS = &tls.Config{
				Certificates: []tls.Certificate{servers.server(t, "localhost", hour)},
				ClientAuth:   tls.RequestClientCert,
			}
			proxy.StartTLS()
		} else {
			proxy.Start()
		}
		client := newTargetsProxied(t, strings.Replace(proxy.URL, "127.0.0.1", "localhost", 1))
		client.Trust(servers.pool())
		withCertificates(t, client, `{"*.example": {"certificate": "$CERT"}, "localhost": {"certificate": "$CERT"}}`,
			map[string]string{"CERT": text})
		wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, object{"url": "https://t.example"})), 200)
		if len(target.got) != 1 || target.got[0] != serialOf(t, text) || seen != 0 {
			t.Errorf("the target got %v, the proxy %d", target.got, seen)
		}
	}
}
