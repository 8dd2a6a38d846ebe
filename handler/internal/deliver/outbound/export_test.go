package outbound

import (
	"context"
	"crypto/x509"
	"net"
	"net/netip"

	"asynccaller/handler/internal/rules/guard"
)

// Trust makes the client trust only the certificates of these authorities.
func (c *Client) Trust(authorities *x509.CertPool) {
	c.transport.base.TLSClientConfig.RootCAs = authorities
}

// Resolve replaces the client's resolver.
func (c *Client) Resolve(resolver *net.Resolver) { c.transport.dialer.Resolver = resolver }

// HostsFile replaces the resolver that knows the names of the hosts file.
func (c *Client) HostsFile(resolver *net.Resolver) { c.transport.hostsFile = resolver }

// InHostsFile looks up a name in the hosts file.
func (c *Client) InHostsFile(ctx context.Context, name string) ([]netip.Addr, error) {
	return c.transport.hostsFile.LookupNetIP(ctx, "ip", name)
}

// Interfaces replaces the function that returns the addresses of this machine.
func (c *Client) Interfaces(f func() ([]net.Addr, error)) { c.transport.interfaces = f }

// SetRules replaces the rules and keeps the connections.
func (c *Client) SetRules(rules guard.Rules) { c.transport.rules = rules }

// SetProfiles replaces the patterns of targets.json that the rules know.
func (c *Client) SetProfiles(patterns ...string) { c.transport.rules.Profiles = patterns }
