package outbound

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/guard"
)

// refusedError is the error for a target that the rules refuse. Its text names the rule.
type refusedError struct{ detail string }

func (e *refusedError) Error() string { return e.detail }

// guardedTransport sends requests only to targets that the rules allow.
type guardedTransport struct {
	rules guard.Rules
	// dialer makes the connections, and its resolver looks up names.
	dialer net.Dialer
	// proxied is true if all connections go to the operator's proxy, which connects to the target.
	proxied bool
	base    *http.Transport
}

func newGuardedTransport(rules guard.Rules, proxy Proxy) *guardedTransport {
	t := &guardedTransport{
		rules:   rules,
		dialer:  net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Resolver: net.DefaultResolver},
		proxied: proxy.use != nil,
	}
	var http1 http.Protocols
	http1.SetHTTP1(true)
	t.base = &http.Transport{
		// With HTTP/2 all calls to a target would share one connection, and wait for it if it goes silent. Some targets also
		// refuse HTTP/2 only after they have offered it.
		Protocols:              &http1,
		Proxy:                  proxy.use,
		OnProxyConnectResponse: checkProxyAnswer,
		DialContext:            t.dial,
		TLSHandshakeTimeout:    handshakeTimeout,
		// IIS asks for a client certificate only when it knows the path of the request.
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, Renegotiation: tls.RenegotiateOnceAsClient},
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ExpectContinueTimeout:  time.Second,
		// The target receives the headers of the envelope, without an Accept-Encoding of net/http.
		DisableCompression: true,
	}
	return t
}

// RoundTrip judges and sends one request: the first one, or one of a redirect. It removes from the answer what
// [http.Client] cannot handle: the connection of a protocol switch, which no timeout ends, and a Location that
// cannot be called, which it would report like a broken connection.
func (t *guardedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := t.judge(request); err != nil {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, describeRedirect(request, err)
	}
	response, err := t.base.RoundTrip(request)
	if err != nil {
		return nil, describeRedirect(request, err)
	}
	if response.StatusCode == http.StatusSwitchingProtocols {
		_ = response.Body.Close()
		response.Body = http.NoBody
	}
	if isRedirect(response.StatusCode) {
		next, err := response.Location()
		if err == nil {
			_, err = envelope.ParseURL(next.String())
		}
		if err != nil {
			response.Header.Del("Location")
		}
	}
	return response, nil
}

// describeRedirect adds to a refusal that the refused request came from a redirect.
func describeRedirect(request *http.Request, err error) error {
	if refused, ok := errors.AsType[*refusedError](err); ok && request.Response != nil {
		return &refusedError{"behind a redirect: " + refused.detail}
	}
	return err
}

// judge checks the host name of a request before the request is sent, also on an existing connection. dial checks
// the address when it connects; if a proxy makes the connection, judge checks the addresses too.
func (t *guardedTransport) judge(request *http.Request) error {
	if request.Host != request.URL.Host { // the envelope's own Host header, by which a server may choose the site
		host := (&url.URL{Host: request.Host}).Hostname()
		if v := t.rules.Denied(host); v.Verdict == guard.Refused {
			return &refusedError{v.Detail}
		}
	}
	host := request.URL.Hostname()
	v := t.rules.Judge(host, netip.Addr{})
	switch {
	case v.Verdict == guard.Refused:
		return &refusedError{v.Detail}
	case v.Verdict == guard.AddressDecides && t.proxied:
		return t.judgeAddresses(request.Context(), host)
	}
	return nil
}

// judgeAddresses refuses a host if the rules refuse any of its addresses, because the proxy may choose any.
func (t *guardedTransport) judgeAddresses(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	addrs, err := t.dialer.Resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return err
	}
	for _, addr := range addrs {
		if err := t.judgeAddress(host, addr); err != nil {
			return err
		}
	}
	return nil
}

func (t *guardedTransport) judgeAddress(host string, addr netip.Addr) error {
	if v := t.rules.Judge(host, addr); v.Verdict != guard.Allowed {
		return &refusedError{v.Detail}
	}
	return nil
}

// dial connects to a target. It tries only those addresses of the target's name that the rules allow. It judges
// an address when the socket is about to connect to it, so the address cannot change in between.
func (t *guardedTransport) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if t.proxied {
		return t.dialer.DialContext(ctx, network, address) // the operator chose the proxy
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var tried atomic.Bool // the dialer tries both address families at once
	dialer := t.dialer
	dialer.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		target, err := netip.ParseAddrPort(address)
		if err == nil {
			err = t.judgeAddress(host, target.Addr())
		}
		if err == nil {
			tried.Store(true)
		}
		return err
	}
	connection, err := dialer.DialContext(ctx, network, address)
	if is[*refusedError](err) && tried.Load() {
		// The dialer returns the first error, a refusal. An allowed address could not be reached, which is temporary.
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no allowed address can be reached")}
	}
	return connection, err
}

// Proxy is the proxy that calls go through. The zero value is none. It may hold a password, which it never prints.
type Proxy struct {
	// use is the field Proxy of http.Transport, nil for none, so that net/http does not read the environment's
	// variables. Package fmt does not print the values that a function captures.
	use func(*http.Request) (*url.URL, error)
}

// ParseProxy reads the URL of a proxy. The error does not repeat it.
func ParseProxy(text string) (Proxy, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) || u.Hostname() == "":
	case u.Path != "" && u.Path != "/", u.RawQuery != "", u.Fragment != "":
	default:
		if n, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() == "" || err == nil && n > 0 {
			return Proxy{http.ProxyURL(u)}, nil
		}
	}
	return Proxy{}, errors.New("give an http, https or socks5 URL such as http://proxy.example:3128, or none")
}

// proxyError is a proxy's refusal to connect to a target.
type proxyError struct{ status int }

func (e *proxyError) Error() string { return "the proxy answered " + strconv.Itoa(e.status) }

// checkProxyAnswer turns a proxy's refusal of CONNECT into a typed error; net/http's has only a text.
func checkProxyAnswer(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	return &proxyError{answer.StatusCode}
}
