package outbound

import (
	"bufio"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/net/idna"
	"golang.org/x/net/proxy"

	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/rules/targets"
)

// tunnelTimeout limits how long a proxy may take to connect to a target. A proxy first resolves the name.
const tunnelTimeout = time.Minute

// Proxy is the proxy that calls go through. The zero value is none. It may hold a password, which it never prints.
type Proxy struct {
	// url returns the URL, and is nil for none. Package fmt does not print the values that a function captures.
	url func() *url.URL
	// http is true for a proxy that receives the URL of an http target. A socks5 proxy only receives the address.
	http bool
}

// Restrict returns the rules for calls through the proxy.
func (p Proxy) Restrict(rules guard.Rules) guard.Rules {
	rules.Proxy, rules.HTTPProxy = p.url != nil, p.http
	return rules
}

// ParseProxy reads the URL of a proxy. The error does not repeat it.
func ParseProxy(text string) (Proxy, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) || u.Hostname() == "":
	case u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "":
	default:
		n, err := strconv.ParseUint(u.Port(), 10, 16)
		validPort := u.Port() == "" || err == nil && n > 0
		if validPort {
			return Proxy{func() *url.URL { return u }, u.Scheme != "socks5"}, nil
		}
	}
	return Proxy{}, errors.New("give an http, https or socks5 URL such as http://proxy.example:3128, or none")
}

// forHTTP is the field Proxy of [http.Transport]. net/http sends the calls to http targets to an HTTP proxy, over the
// connections of dialPlain. It need not know of other proxies, nor of TLS to the proxy.
func (p Proxy) forHTTP(request *http.Request) (*url.URL, error) {
	if !p.http || request.URL.Scheme != "http" {
		return nil, nil // none
	}
	plain := *p.url()
	plain.Scheme = "http"
	return &plain, nil
}

// address returns the host and the port of the proxy.
func (p Proxy) address() string {
	u := p.url()
	host := u.Hostname()
	if ascii, err := idna.Lookup.ToASCII(host); err == nil {
		host = ascii
	}
	ports := map[string]string{"http": "80", "https": "443", "socks5": "1080"}
	return net.JoinHostPort(host, cmp.Or(u.Port(), ports[u.Scheme]))
}

// dialProxy connects to the proxy, with TLS if its URL is https.
func (t *guardedTransport) dialProxy(ctx context.Context) (net.Conn, error) {
	address := t.proxy.address()
	connection, err := t.connect(ctx, "tcp", address)
	if err == nil && t.proxy.url().Scheme == "https" {
		host, _, _ := net.SplitHostPort(address)
		connection, err = t.secure(ctx, connection, host, targets.Identity{}, &asked{})
	}
	if err != nil {
		return nil, &net.OpError{Op: proxyConnect, Net: "tcp", Err: err}
	}
	return connection, nil
}

// dialThroughProxy connects to a target through the proxy.
func (t *guardedTransport) dialThroughProxy(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, tunnelTimeout)
	defer cancel()
	connection, err := t.dialProxy(ctx)
	if err != nil {
		return nil, err
	}
	user := t.proxy.url().User
	if t.proxy.http {
		err = openTunnel(ctx, connection, user, address)
	} else {
		err = openSocks(ctx, connection, user, address)
	}
	if err != nil {
		_ = connection.Close()
		return nil, err
	}
	return connection, nil
}

// openTunnel makes an HTTP proxy connect to an address. The target says nothing before the TLS handshake, so what
// follows the head of the proxy's answer is of no use.
func openTunnel(ctx context.Context, connection net.Conn, user *url.Userinfo, address string) error {
	stop := context.AfterFunc(ctx, func() { _ = connection.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	request := &http.Request{
		Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{},
	}
	if user != nil {
		password, _ := user.Password()
		credentials := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + password))
		request.Header.Set("Proxy-Authorization", "Basic "+credentials)
	}
	err := request.Write(connection)
	if err != nil {
		return &net.OpError{Op: proxyConnect, Net: "tcp", Err: err}
	}
	limited := &targetConn{Conn: connection}
	limited.requested.Store(new(atomic.Bool))
	//nolint:bodyclose // the connection becomes the tunnel, or is closed
	answer, err := http.ReadResponse(bufio.NewReader(limited), request)
	if err != nil {
		return &net.OpError{Op: proxyConnect, Net: "tcp", Err: err}
	}
	if answer.StatusCode != http.StatusOK {
		return &proxyError{answer.StatusCode}
	}
	return nil
}

// openSocks makes a SOCKS 5 proxy connect to an address.
func openSocks(ctx context.Context, connection net.Conn, user *url.Userinfo, address string) error {
	var auth *proxy.Auth
	if user != nil {
		password, _ := user.Password()
		auth = &proxy.Auth{User: user.Username(), Password: password}
	}
	dialer, err := proxy.SOCKS5("tcp", "", auth, connected{connection})
	if err != nil {
		return err
	}
	_, err = dialer.(proxy.ContextDialer).DialContext(ctx, "tcp", address)
	return err
}

// connected is a [proxy.Dialer] that returns a connection that exists.
type connected struct{ connection net.Conn }

// Dial returns the connection.
func (c connected) Dial(string, string) (net.Conn, error) { return c.connection, nil }

// DialContext returns the connection.
func (c connected) DialContext(context.Context, string, string) (net.Conn, error) {
	return c.connection, nil
}

// proxyConnect is the operation of errors on the way to the proxy, as in net/http.
const proxyConnect = "proxyconnect"

// proxyError is a proxy's refusal to connect to a target, or to make a call.
type proxyError struct{ status int }

func (e *proxyError) Error() string { return "the proxy answered " + strconv.Itoa(e.status) }
