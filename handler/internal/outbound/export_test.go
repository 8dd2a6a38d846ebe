package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"

	"asynccaller/handler/internal/guard"
)

// Dial makes the client connect by this function, so that a test can make up host names, and a whole
// network inside a synctest bubble.
func (c *Client) Dial(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	c.transport.base.DialContext = dial
}

// Trust makes the client trust certificates that these authorities issued, and no others.
func (c *Client) Trust(authorities *x509.CertPool) {
	c.transport.base.TLSClientConfig = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
}

// Resolve makes the client look names up here.
func (c *Client) Resolve(resolver *net.Resolver) { c.transport.dialer.Resolver = resolver }

// Obey makes the client follow other rules from now on; the connections that it has stay.
func (c *Client) Obey(rules guard.Rules) { c.transport.rules = rules }
