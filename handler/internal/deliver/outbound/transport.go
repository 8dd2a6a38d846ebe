package outbound

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/rules/targets"
)

// refusedError is the error for a target that the rules refuse. Its text names the rule.
type refusedError struct{ detail string }

func (e *refusedError) Error() string { return e.detail }

// guardedTransport sends requests only to targets that the rules allow.
type guardedTransport struct {
	rules guard.Rules
	// dialer makes the connections, and its resolver looks up names. hostsFile looks up names in the hosts file only.
	dialer    net.Dialer
	hostsFile *net.Resolver
	// connect connects to a target or to the proxy.
	connect func(ctx context.Context, network, address string) (net.Conn, error)
	// proxy is the operator's. If there is one, all connections go to it, and it connects to the target.
	proxy Proxy
	// interfaces returns the addresses of this machine, and own holds its latest answer.
	interfaces func() ([]net.Addr, error)
	own        atomic.Pointer[ownAddrs]
	base       *http.Transport
}

func newGuardedTransport(rules guard.Rules, proxy Proxy) *guardedTransport {
	t := &guardedTransport{
		rules:      proxy.Restrict(rules),
		dialer:     net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Resolver: net.DefaultResolver},
		hostsFile:  &net.Resolver{PreferGo: true, Dial: dialNoServer},
		proxy:      proxy,
		interfaces: net.InterfaceAddrs,
	}
	t.connect = t.dial
	var http1 http.Protocols
	http1.SetHTTP1(true)
	t.base = &http.Transport{
		// With HTTP/2 all calls to a target would share one connection, and wait for it if it goes silent. Some targets
		// also refuse HTTP/2 only after they have offered it.
		Protocols:      &http1,
		Proxy:          proxy.forHTTP,
		DialContext:    t.dialPlain,
		DialTLSContext: t.dialTLS,
		// IIS asks for a client certificate only when it knows the path of the request.
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, Renegotiation: tls.RenegotiateOnceAsClient},
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: 2 * maxHeaderBytes, // targetConn applies maxHeaderBytes, with an error of its own
		ExpectContinueTimeout:  time.Second,
		// The target receives the headers of the envelope, without an Accept-Encoding of net/http.
		DisableCompression: true,
	}
	return t
}

// errStatus is the error for a status that net/http accepts but that HTTP does not have (RFC 9110, 15), and that
// no reader of a message accepts, neither ours nor Nexus's.
var errStatus = errors.New("the status is below 100")

// RoundTrip sends a request as nobody.
func (t *guardedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	return t.send(request.Context(), request, targets.Identity{})
}

// send judges and sends one request: the first one, or one of a redirect. It ends the connection of a
// protocol switch, which no timeout would end. A 407 of the proxy is no answer of the target: the operator can fix it.
func (t *guardedTransport) send(
	ctx context.Context, request *http.Request, identity targets.Identity,
) (*http.Response, error) {
	if err := t.judge(request); err != nil {
		return nil, err
	}
	original := request
	request = identified(ctx, request, identity)
	// An HTTP proxy reads the calls to http targets. To an https target it makes a tunnel.
	proxyReads := t.rules.HTTPProxy && request.URL.Scheme == "http"
	if proxyReads && request.Host != "" {
		// net/http would make the URL for the proxy from the Host header. It means the same, or judge refuses it.
		request = request.WithContext(ctx)
		request.Host = ""
	}
	response, err := t.base.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	response.Request = original
	if proxyReads && response.StatusCode == http.StatusProxyAuthRequired {
		_ = response.Body.Close()
		return nil, &proxyError{response.StatusCode}
	}
	if response.StatusCode < http.StatusContinue {
		_ = response.Body.Close()
		return nil, errStatus
	}
	if response.StatusCode == http.StatusSwitchingProtocols {
		_ = response.Body.Close()
		response.Body = http.NoBody
	}
	return response, nil
}

// identityKey is the key of the identity in the context of a request. A connection that is being made keeps the values
// of the context of the request that wants it.
type identityKey struct{}

// keyMark ends the key of an identity before a host. No host has one.
const keyMark = "|"

// identified returns a request that shares connections only with those of the same identity: its URL has the key of
// the identity before the host, by which net/http keeps connections apart in its one pool. dialTLS takes it off.
func identified(ctx context.Context, request *http.Request, identity targets.Identity) *http.Request {
	key := identity.Key()
	if key == "" || request.URL.Scheme != "https" {
		return request
	}
	of := request.WithContext(context.WithValue(ctx, identityKey{}, identity))
	u := *request.URL
	of.Host = cmp.Or(request.Host, u.Host)
	u.Host = net.JoinHostPort(key+keyMark+u.Hostname(), guard.Port(&u))
	of.URL = &u
	return of
}

// judge checks the host name of a request before the request is sent, also on an existing connection. dial checks
// the address when it connects; if a proxy makes the connection, judge checks the addresses too.
func (t *guardedTransport) judge(request *http.Request) error {
	if refusal := t.rules.JudgeCall(request.URL, request.Host); refusal != "" {
		return &refusedError{refusal}
	}
	if t.proxy.url != nil {
		return t.judgeAddresses(request.Context(), request.URL.Hostname())
	}
	return nil
}

// judgeAddresses refuses a host if the rules refuse any of its addresses, because the proxy may choose any. A name in
// Allow may exist for the proxy only.
func (t *guardedTransport) judgeAddresses(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	rules, err := t.rulesNow()
	if err != nil {
		return err
	}
	resolver, name := t.lookup(ctx, rules, host)
	addrs, err := resolver.LookupNetIP(ctx, "ip", name)
	if isNotFound(err) && rules.AllowsUnresolved(host) {
		return nil
	}
	for _, addr := range addrs {
		err = errors.Join(err, judgeAddress(rules, host, addr))
	}
	return t.judgeNotFound(ctx, rules, host, err)
}

// lookup returns the resolver and the name by which to look up a host. If the search list of the machine could complete
// the host to a name that the rules have, it must not apply: then the host is a name in the hosts file, or a full name,
// which ends in a dot. The dot is for the resolver only, and the target must not see it.
func (t *guardedTransport) lookup(
	ctx context.Context, rules guard.Rules, host string,
) (resolver *net.Resolver, name string) {
	if rules.JudgeShortName(host) == "" {
		return t.dialer.Resolver, host
	}
	// By the name with the dot, resolvers do not find an entry of the file without a dot.
	if _, err := t.hostsFile.LookupNetIP(ctx, "ip", host); err == nil {
		return t.hostsFile, host
	}
	return t.dialer.Resolver, strings.TrimSuffix(host, ".") + "."
}

// judgeNotFound judges a host by the error of its look-up or connection. It returns a refusal if the host was not
// found, but the search list finds it, and otherwise the error.
func (t *guardedTransport) judgeNotFound(ctx context.Context, rules guard.Rules, host string, err error) error {
	refusal := rules.JudgeShortName(host)
	if refusal == "" || !isNotFound(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if _, unknown := t.dialer.Resolver.LookupNetIP(ctx, "ip", host); unknown != nil {
		return err
	}
	return &refusedError{refusal}
}

func isNotFound(err error) bool {
	unknown, ok := errors.AsType[*net.DNSError](err)
	return ok && unknown.IsNotFound
}

// dialNoServer keeps a resolver from asking a name server.
func dialNoServer(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("the hosts file does not have the name")
}

func judgeAddress(rules guard.Rules, host string, addr netip.Addr) error {
	refusal := rules.Judge(host, addr)
	if !addr.IsValid() { // the name alone would decide
		refusal = "the address is invalid"
	}
	if refusal != "" {
		return &refusedError{refusal}
	}
	return nil
}

// ownAddrs are the addresses that this machine had at a time.
type ownAddrs struct {
	at    time.Time
	addrs []netip.Addr
}

// rulesNow returns the rules with the addresses of this machine. They can change, but reading them takes about as long
// as a connection to a machine nearby, so it reads them at most once a second.
func (t *guardedTransport) rulesNow() (guard.Rules, error) {
	rules, own := t.rules, t.own.Load()
	if own == nil || time.Since(own.at) >= time.Second {
		var err error
		own, err = t.readOwn()
		if err != nil {
			return rules, err
		}
		t.own.Store(own)
	}
	rules.Own = own.addrs
	return rules, nil
}

func (t *guardedTransport) readOwn() (*ownAddrs, error) {
	own := &ownAddrs{at: time.Now()}
	addresses, err := t.interfaces()
	if err != nil {
		return nil, &net.OpError{Op: "dial", Err: err}
	}
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok {
			addr, _ := netip.AddrFromSlice(network.IP)
			own.addrs = append(own.addrs, addr.Unmap())
		}
	}
	return own, nil
}

// dial connects to a target. It tries only those addresses of the target's name that the rules allow. It judges
// an address when the socket is about to connect to it, so the address cannot change in between.
func (t *guardedTransport) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if t.proxy.url != nil {
		return t.dialer.DialContext(ctx, network, address) // the operator chose the proxy
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	rules, err := t.rulesNow()
	if err != nil {
		return nil, err
	}
	var tried atomic.Bool // the dialer tries both address families at once
	dialer := t.dialer
	resolver, name := t.lookup(ctx, rules, host)
	dialer.Resolver = resolver
	dialer.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		target, err := netip.ParseAddrPort(address)
		if err == nil && !rules.IsLocal(address) {
			err = judgeAddress(rules, host, target.Addr())
		}
		if err == nil {
			tried.Store(true)
		}
		return err
	}
	connection, err := dialer.DialContext(ctx, network, net.JoinHostPort(name, port))
	if is[*refusedError](err) && tried.Load() {
		// The dialer returns the first error, a refusal. An allowed address could not be reached, which is temporary.
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no allowed address can be reached")}
	}
	return connection, t.judgeNotFound(ctx, rules, host, err)
}

// dialPlain connects for an http call: to its target, or to the HTTP proxy that net/http sends it to.
func (t *guardedTransport) dialPlain(ctx context.Context, network, address string) (net.Conn, error) {
	dial := t.dialTarget
	if t.proxy.http {
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return t.dialProxy(ctx) }
	}
	connection, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &targetConn{Conn: connection}, nil
}

// dialTLS connects for an https call. net/http would do the same, but without targetConn.
func (t *guardedTransport) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	identity, _ := ctx.Value(identityKey{}).(targets.Identity)
	key, name, hasKey := strings.Cut(host, keyMark)
	if hasKey {
		host = name
	}
	if hasKey && key != identity.Key() || !hasKey && identity.Key() != "" {
		return nil, errors.New("a connection for another identity")
	}
	connection, err := t.dialTarget(ctx, network, net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	secured := &targetConn{certificate: &asked{}}
	secured.Conn, err = t.secure(ctx, connection, host, identity, secured.certificate)
	if err != nil {
		return nil, err
	}
	return secured, nil
}

// dialTarget connects to a target, through the proxy if there is one.
func (t *guardedTransport) dialTarget(ctx context.Context, network, address string) (net.Conn, error) {
	if t.proxy.url != nil {
		return t.dialThroughProxy(ctx, address)
	}
	return t.connect(ctx, network, address)
}

// secure makes the TLS handshake with a host, and notes whether the host asks for a certificate. It closes the
// connection if that fails.
func (t *guardedTransport) secure(
	ctx context.Context, connection net.Conn, host string, identity targets.Identity, a *asked,
) (net.Conn, error) {
	config := t.base.TLSClientConfig.Clone()
	config.ServerName = host
	if identity.Authorities != nil {
		config.RootCAs = identity.Authorities.Pool
	}
	if identity.Certificate != nil {
		a.presented = identity.Certificate.Name
	}
	// By config.Certificates, crypto/tls would present none that the host does not say it wants. The host decides.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		a.is.Store(true)
		if identity.Certificate == nil {
			return &tls.Certificate{}, nil
		}
		return identity.Certificate.Pair(), nil
	}
	secure := tls.Client(connection, config)
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = connection.Close()
		return nil, errors.Join(errHandshake, err, a.err())
	}
	return secure, nil
}
