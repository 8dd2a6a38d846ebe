package outbound

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"asynccaller/handler/internal/guard"
)

// refusedError is the end of a call that must not be made. Its text tells which rule says so.
type refusedError struct{ detail string }

func (e *refusedError) Error() string { return e.detail }

// targets connects to targets that the rules allow, and to no others.
type targets struct {
	rules guard.Rules
	// dialer makes the connections, and its resolver the look-ups.
	dialer net.Dialer
	// proxied says that every connection goes to the operator's proxy, which connects to the target.
	proxied bool
}

func newTargets(rules guard.Rules, proxied bool) *targets {
	return &targets{
		rules:   rules,
		dialer:  net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Resolver: net.DefaultResolver},
		proxied: proxied,
	}
}

// judge judges each request before it is sent, also one on a connection that is there already: by the
// name of its host. The address is judged when the connection is made, or here if a proxy makes it.
func (t *targets) judge(request *http.Request) error {
	if request.Host != "" && request.Host != request.URL.Host { // the envelope's own Host header
		if v := t.rules.Denied(withoutPort(request.Host)); v.Ruling == guard.Refused {
			return refusal(v)
		}
	}
	host := request.URL.Hostname()
	v := t.rules.Judge(host, netip.Addr{})
	switch v.Ruling {
	case guard.Refused:
		return refusal(v)
	case guard.AddressDecides:
		if t.proxied {
			return t.judgeAddresses(request.Context(), host)
		}
	case guard.Allowed:
	}
	return nil
}

// judgeAddresses refuses a host if any of its addresses is, as nobody knows which one the proxy will take.
func (t *targets) judgeAddresses(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	addrs, err := t.dialer.Resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return err
	}
	for _, addr := range addrs {
		if v := t.rules.Judge(host, addr); v.Ruling != guard.Allowed {
			return refusal(v)
		}
	}
	return nil
}

// dial connects to a target. Of the addresses that its name resolves to only those are tried that the
// rules allow: each is judged when its socket is about to connect, so there is no moment in which it
// could become another.
func (t *targets) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if t.proxied {
		return t.dialer.DialContext(ctx, network, address) // the proxy, which is the operator's choice
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var tried atomic.Bool // two families are tried at a time
	dialer := t.dialer
	dialer.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		target, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if v := t.rules.Judge(host, target.Addr()); v.Ruling != guard.Allowed {
			return refusal(v)
		}
		tried.Store(true)
		return nil
	}
	connection, err := dialer.DialContext(ctx, network, address)
	if _, refused := errors.AsType[*refusedError](err); refused && tried.Load() {
		// The first address was refused and the last one could not be reached, which may pass.
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no address that may be called can be reached")}
	}
	return connection, err
}

func refusal(v guard.Verdict) error { return &refusedError{v.Detail} }

func withoutPort(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}
