package guard

import (
	"net/netip"
	"slices"
)

// builtIn are the networks that are refused by default, with the rule that a detail names. Private networks are
// allowed: the targets of an integration are there.
var builtIn = []entry{
	{text: "loopback addresses", prefix: netip.MustParsePrefix("127.0.0.0/8")},                      // RFC 1122
	{text: "loopback addresses", prefix: netip.MustParsePrefix("::1/128")},                          // RFC 4291
	{text: "unspecified addresses", prefix: netip.MustParsePrefix("0.0.0.0/8")},                     // RFC 1122, "this network"
	{text: "unspecified addresses", prefix: netip.MustParsePrefix("::/128")},                        // RFC 4291
	{text: "link-local and metadata addresses", prefix: netip.MustParsePrefix("169.254.0.0/16")},    // RFC 3927
	{text: "link-local and metadata addresses", prefix: netip.MustParsePrefix("fe80::/10")},         // RFC 4291
	{text: "link-local and metadata addresses", prefix: netip.MustParsePrefix("fd00:ec2::254/128")}, // the metadata service of AWS
	{text: "the address of the Azure host", prefix: netip.MustParsePrefix("168.63.129.16/32")},      // WireServer
	{text: "multicast addresses", prefix: netip.MustParsePrefix("224.0.0.0/4")},                     // RFC 5771
	{text: "multicast addresses", prefix: netip.MustParsePrefix("ff00::/8")},                        // RFC 4291
	{text: "the broadcast address", prefix: netip.MustParsePrefix("255.255.255.255/32")},            // RFC 919
}

// embedding is a network of IPv6 addresses that contain an IPv4 address: packets to them may end there. Each place
// lists the indexes of its four bytes.
type embedding struct {
	network netip.Prefix
	places  [][4]int
}

// embeddings are the networks with embedded IPv4 addresses. The place in a local NAT64 address depends on the length
// of the network's own prefix (48, 56, 64 or 96 bits), which is not known.
var embeddings = []embedding{
	{netip.MustParsePrefix("::/96"), [][4]int{{12, 13, 14, 15}}},                                                          // IPv4-compatible, RFC 4291
	{netip.MustParsePrefix("::ffff:0:0:0/96"), [][4]int{{12, 13, 14, 15}}},                                                // IPv4-translated, RFC 2765
	{netip.MustParsePrefix("64:ff9b::/96"), [][4]int{{12, 13, 14, 15}}},                                                   // NAT64, RFC 6052
	{netip.MustParsePrefix("64:ff9b:1::/48"), [][4]int{{6, 7, 9, 10}, {7, 9, 10, 11}, {9, 10, 11, 12}, {12, 13, 14, 15}}}, // local NAT64, RFC 8215
	{netip.MustParsePrefix("2002::/16"), [][4]int{{2, 3, 4, 5}}},                                                          // 6to4, RFC 3056
}

// forms returns an address without its zone, an IPv4-mapped one as IPv4, and the IPv4 addresses embedded in it.
func forms(addr netip.Addr) []netip.Addr {
	addr = addr.WithZone("").Unmap()
	for _, e := range embeddings {
		if e.network.Contains(addr) {
			return append([]netip.Addr{addr}, e.addresses(addr.As16())...)
		}
	}
	return []netip.Addr{addr}
}

// addresses returns the embedded addresses. If there are several places, only one is meant, and the others consist
// mostly of its zeros: an address in 0.0.0.0/8, where no packet goes, counts only if there is no other.
func (e embedding) addresses(b [16]byte) []netip.Addr {
	var all []netip.Addr
	for _, p := range e.places {
		all = append(all, netip.AddrFrom4([4]byte{b[p[0]], b[p[1]], b[p[2]], b[p[3]]}))
	}
	meant := slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return a.As4()[0] == 0 })
	if len(meant) == 0 {
		return all
	}
	return meant
}
