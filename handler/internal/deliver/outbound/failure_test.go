package outbound_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/tools/freeport"
)

// secretCall returns a call with secrets in its URL, headers and body.
func secretCall(tb testing.TB, scheme, address string) *envelope.Envelope {
	tb.Helper()
	return mustEnvelope(tb, object{
		"url":     scheme + "://user:" + canary + "@" + address + "/" + canary + "?code=" + canary,
		"headers": object{"X-Api-Key": canary},
		"body":    canary,
	})
}

// refusedAddress returns an address that refuses connections.
func refusedAddress(t *testing.T) string {
	t.Helper()
	address, err := freeport.Address(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func TestConnectionRefused(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		o := newClient(t, longTimeout).Do(t.Context(), secretCall(t, scheme, refusedAddress(t)))
		wantFailure(t, o, decision.FailureConnect)
		if !strings.Contains(o.Detail, "refused") {
			t.Errorf("the detail is %q, want it to say that the connection was refused", o.Detail)
		}
	}
}

func TestUnresolvedHost(t *testing.T) {
	for detail, err := range map[string]error{
		"the host name cannot be resolved":       errors.New("no name server"),
		"the name server did not answer in time": context.DeadlineExceeded,
		"the host name does not exist":           nil,
	} {
		client := newClient(t, longTimeout)
		if err != nil {
			client.Resolve(&net.Resolver{
				PreferGo: true,
				Dial:     func(context.Context, string, string) (net.Conn, error) { return nil, err },
			})
		} else {
			client.Resolve(newNames(t, nil).resolver())
		}
		o := client.Do(t.Context(), secretCall(t, "http", canary+".example"))
		wantFailure(t, o, decision.FailureDNS)
		if o.Detail != detail {
			t.Errorf("the detail is %q, want %q", o.Detail, detail)
		}
	}
}

// TestManyHeaders: an answer may have headers of 60 KiB, far more than servers send, but not thousands of short
// ones, which take twenty times their size in memory.
func TestManyHeaders(t *testing.T) {
	for name, test := range map[string]struct {
		line    string
		lines   int
		failure decision.Failure
	}{
		"long":  {"X: " + strings.Repeat("a", 245) + "\r\n", 240, ""},
		"short": {"X: 0123456789a\r\n", 300, decision.FailureConnection},
	} {
		for _, secure := range []bool{false, true} {
			answer := "HTTP/1.1 200 OK\r\n" + strings.Repeat(test.line, test.lines) + "Content-Length: 3\r\n\r\n\n\n\n"
			server := newUnstartedServer(t, func(w http.ResponseWriter, _ *http.Request) {
				connection, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.WriteString(connection, answer)
				_ = connection.Close()
			})
			client := newClient(t, longTimeout)
			url := "http://"
			if secure {
				url = "https://"
				server.StartTLS()
				authorities := x509.NewCertPool()
				authorities.AddCert(server.Certificate())
				client.Trust(authorities)
			} else {
				server.Start()
			}
			o := client.Do(t.Context(), mustEnvelope(t, object{"url": url + server.Listener.Addr().String()}, reported))
			if o.Failure != test.failure || test.failure == "" &&
				(o.Status != http.StatusOK || string(o.Body) != "\n\n\n") {
				t.Errorf("%s, secure %v: got %q %q, status %d", name, secure, o.Failure, o.Detail, o.Status)
			}
		}
	}
}

// TestManyHeadersOnAKeptConnection: too many lines make one call fail, and net/http must not repeat it on other
// connections.
func TestManyHeadersOnAKeptConnection(t *testing.T) {
	server := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		for n := range 300 {
			if r.URL.Path == "/many" {
				w.Header().Set("X-"+strconv.Itoa(n), "1")
			}
		}
	})
	client := newClient(t, longTimeout)
	wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, object{"url": server.URL})), http.StatusOK)
	wantFailure(t, client.Do(t.Context(), mustEnvelope(t, object{"url": server.URL + "/many"})),
		decision.FailureConnection)
	if n := len(server.all()); n != 2 {
		t.Errorf("%d calls, want 2", n)
	}
}

// TestBeginningOnAKeptConnection: net/http repeats a GET if no byte of an answer arrives on a kept connection. A single
// byte means that the target has the call.
func TestBeginningOnAKeptConnection(t *testing.T) {
	for name, beginning := range map[string]string{
		"first_byte": "H", "half_a_version": "HTTP/1", "long_status": "HTTP/1.1 200 " + strings.Repeat("x", 70<<10),
	} {
		t.Run(name, func(t *testing.T) {
			server := newRawServer(t, func(c net.Conn) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				if _, err := readHead(c); err == nil {
					_, _ = io.WriteString(c, beginning)
				}
			})
			client := newClient(t, longTimeout)
			wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, object{"url": server.url()})), http.StatusOK)
			o := client.Do(t.Context(), mustEnvelope(t, object{"url": server.url()}))
			wantFailure(t, o, decision.FailureConnection)
		})
	}
}

// TestLinesOfLaterAnswers: the lines of all answers on one connection may be many.
func TestLinesOfLaterAnswers(t *testing.T) {
	server := newTestServer(t, func(w http.ResponseWriter, _ *http.Request) {
		for n := range 100 {
			w.Header().Set("X-"+strconv.Itoa(n), "1")
		}
		_, _ = io.WriteString(w, strings.Repeat("\n", 1000))
	})
	client := newClient(t, longTimeout)
	for range 5 {
		wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, object{"url": server.URL})), http.StatusOK)
	}
}

func TestBrokenConnections(t *testing.T) {
	reset := func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }
	send := func(text string) func(net.Conn) {
		return func(c net.Conn) { _, _ = io.WriteString(c, text) }
	}
	tests := map[string]func(net.Conn){
		"closed_without_answer": func(net.Conn) {},
		"closed_in_status_line": send("HTTP/1.1 20"),
		"closed_in_headers":     send("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-"),
		"reset_without_answer":  reset,
		"reset_in_headers":      func(c net.Conn) { send("HTTP/1.1 200 OK\r\nX-")(c); reset(c) },
		"other_protocol":        send("SSH-2.0-OpenSSH_9.6 " + canary + "\r\n"),
		"garbage":               send("\x00\x01\x02\xff" + canary + "\r\n\r\n"),
		"status_is_no_number":   send("HTTP/1.1 abc " + canary + "\r\n\r\n"),
		"length_without_colon":  send("HTTP/1.1 200 OK\r\nContent-Length \r\n\r\nwhole"),
		"length_and_zero":       send("HTTP/1.1 200 OK\r\nContent-Length\x00: 5\r\n\r\nwhole"),
		"length_in_parentheses": send("HTTP/1.1 200 OK\r\n(Content-Length): 5\r\n\r\nwhole"),
		"folded_at_first":       send("HTTP/1.1 200 OK\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
		"closed_after_odd_line": send("HTTP/1.1 200 OK\r\n" + canary + "\r\n"),
		"status_099":            send("HTTP/1.1 099 Odd\r\nContent-Length: 2\r\n\r\nok"),
		"status_000": send("HTTP/1.1 000 Odd\r\nContent-Type: " +
			"application/problem+json\r\n\r\n{\"retryable\":true}"),
		"status_with_sign":       send("HTTP/1.1 +99 Odd\r\n\r\n"),
		"status_1000":            send("HTTP/1.1 1000 Odd\r\n\r\n"),
		"endless_headers":        send("HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("x", 1<<20) + "\r\n\r\n"),
		"too_many_headers":       send("HTTP/1.1 200 OK\r\n" + strings.Repeat("X:\r\n", 16<<10) + "\r\n"),
		"interim_answers_only":   send(strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 3)),
		"answer_of_http2":        send("\x00\x00\x00\x04\x00\x00\x00\x00\x00"),
		"answer_of_a_tls_server": send("\x15\x03\x01\x00\x02\x02\x46"),
	}
	for name, answer := range tests {
		t.Run(name, func(t *testing.T) {
			server := newRawServer(t, answer)
			o := newClient(t, longTimeout).Do(t.Context(), secretCall(t, "http", server.listener.Addr().String()))
			wantFailure(t, o, decision.FailureConnection)
			if o.Status != 0 || o.Detail == "" || o.Took <= 0 {
				t.Errorf("got %+v, want no status but a detail and a time that it took", o)
			}
		})
	}
}

// A body that breaks off is a reason to repeat the call, unless it is a 2xx whose body nobody needs.
func TestBodyThatBreaksOff(t *testing.T) {
	tests := map[string]struct {
		answer string
		status int
		body   string
	}{
		"length":       {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", 200, "half"},
		"chunked":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", 200, "half"},
		"in_a_chunk":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhalf", 200, "half"},
		"broken_chunk": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n", 200, "half"},
		"none_of_it":   {"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n", 201, ""},
		"of_a_failure": {"HTTP/1.1 400 Bad\r\nContent-Length: 100\r\n\r\nhalf", 400, "half"},
		"redirect":     {"HTTP/1.1 302 Found\r\nContent-Length: 100\r\n\r\nhalf", 302, "half"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := newRawServer(t, func(c net.Conn) { _, _ = io.WriteString(c, test.answer) })
			client := newClient(t, longTimeout)
			o := client.Do(t.Context(), mustEnvelope(t, object{"url": server.url()}, reported))
			wantFailure(t, o, decision.FailureConnection)
			if o.Status != test.status || string(o.Body) != test.body || !o.Truncated {
				t.Errorf("got %d %q, truncated %v, want %q cut short", o.Status, o.Body, o.Truncated, test.body)
			}
			if test.status/100 == 2 {
				wantAnswer(t, client.Do(t.Context(), mustEnvelope(t, object{"url": server.url()})), test.status)
			}
		})
	}
}

// What an answer says about retrying counts behind the part of its body that is kept, unless the body breaks off.
func TestSignalInALongBody(t *testing.T) {
	tests := map[string]struct {
		status int
		behind string
		length int
		want   decision.Failure
		says   bool
	}{
		"whole":           {500, `","IsRetryMeaningful":false}`, 0, "", true},
		"breaks_off":      {400, `","IsRetryMeaningful":false}`, 1, decision.FailureConnection, false},
		"no_object":       {500, `"]`, 0, "", false},
		"of_a_2xx":        {200, `","IsRetryMeaningful":false}`, 0, "", false},
		"2xx_breaks_off":  {200, `"}`, 1, "", false}, // behind what a callback can hold
		"breaks_off_late": {400, `","IsRetryMeaningful":false,"x":"` + strings.Repeat("x", 1<<20), 1, "", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			body := `{"Type":"x","StackTrace":"` + strings.Repeat("x", 70_000) + test.behind
			server := newRawServer(t, func(c net.Conn) {
				_, _ = fmt.Fprintf(c, "HTTP/1.1 %d Answer\r\nContent-Length: %d\r\n\r\n%s", test.status,
					len(body)+test.length, body)
			})
			o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, object{"url": server.url()}, reported))
			wantFailure(t, o, test.want)
			if says := o.Signal.IsRetryMeaningful != nil; says != test.says || o.Status != test.status ||
				!o.Truncated || len(o.Body) != 64<<10 {
				t.Errorf("status %d, signal %v, %d bytes, truncated %v", o.Status, says, len(o.Body), o.Truncated)
			}
		})
	}
}

// A body without a length ends with the connection.
func TestBodyUntilTheConnectionCloses(t *testing.T) {
	server := newRawServer(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\nall of it") })
	o := newClient(t, longTimeout).Do(t.Context(), mustEnvelope(t, object{"url": server.url()}, reported))
	wantAnswer(t, o, 200)
	if string(o.Body) != "all of it" || o.Truncated {
		t.Errorf("got %q, truncated %v", o.Body, o.Truncated)
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

func TestTLS(t *testing.T) {
	const host = "target.example"
	trusted, stranger := newAuthority(t), newAuthority(t)
	valid := time.Now().Add(time.Hour)
	tests := map[string]struct {
		config *tls.Config
		want   decision.Failure
		detail string
	}{
		"trusted": {&tls.Config{Certificates: []tls.Certificate{trusted.server(t, host, valid)}}, "", ""},
		"issuer_unknown": {
			&tls.Config{Certificates: []tls.Certificate{stranger.server(t, host, valid)}},
			decision.FailureCertificate, "issuer",
		},
		"expired": {
			&tls.Config{Certificates: []tls.Certificate{trusted.server(t, host, time.Now().Add(-time.Hour))}},
			decision.FailureCertificate,
			"expired",
		},
		"other_host": {
			&tls.Config{Certificates: []tls.Certificate{trusted.server(t, "other.example", valid)}},
			decision.FailureCertificate, "another host",
		},
		"no_common_protocol": {
			&tls.Config{MaxVersion: tls.VersionTLS11, Certificates: []tls.Certificate{trusted.server(t, host, valid)}},
			decision.FailureTLS,
			"handshake",
		},
		"wants_certificate": {
			&tls.Config{
				MaxVersion: tls.VersionTLS12, ClientAuth: tls.RequireAnyClientCert,
				Certificates: []tls.Certificate{trusted.server(t, host, valid)},
			},
			decision.FailureTLS,
			"handshake",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server := newUnstartedServer(t, nil)
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
				if !strings.Contains(o.Detail, test.detail) {
					t.Errorf("the detail is %q, want it to say %q", o.Detail, test.detail)
				}
				if n := len(server.all()); n != 0 {
					t.Errorf("the target received %d calls", n)
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

// By default the client does not trust a self-signed certificate.
func TestSelfSignedCertificate(t *testing.T) {
	server := newUnstartedServer(t, nil)
	server.StartTLS()
	o := newClient(t, longTimeout).Do(t.Context(), secretCall(t, "https", server.Listener.Addr().String()))
	wantFailure(t, o, decision.FailureCertificate)
}
