package guard

import (
	"net/netip"
	"slices"
)

// forms are an address without zone, an IPv4-mapped one as IPv4, and what it may stand for.
func forms(addr netip.Addr) []netip.Addr {
	addr = addr.WithZone("").Unmap()
	return append([]netip.Addr{addr}, embedded(addr)...)
}

// embedded are the IPv4 addresses that an IPv6 address may stand for: packets to it may end there. There
// are none for an IPv4 address.
func embedded(addr netip.Addr) []netip.Addr {
	if !addr.Is6() {
		return nil
	}
	b := addr.As16()
	switch {
	case [12]byte(b[:12]) == [12]byte{}: // ::/96, IPv4-compatible
		return []netip.Addr{v4(b, 12, 13, 14, 15)}
	case [12]byte(b[:12]) == [12]byte{8: 0xff, 9: 0xff}: // ::ffff:0:0:0/96, IPv4-translated (RFC 2765)
		return []netip.Addr{v4(b, 12, 13, 14, 15)}
	case [12]byte(b[:12]) == [12]byte{1: 0x64, 2: 0xff, 3: 0x9b}: // 64:ff9b::/96, NAT64 (RFC 6052)
		return []netip.Addr{v4(b, 12, 13, 14, 15)}
	case [6]byte(b[:6]) == [6]byte{1: 0x64, 2: 0xff, 3: 0x9b, 5: 1}: // 64:ff9b:1::/48, local NAT64 (RFC 8215)
		return localNAT64(b)
	case b[0] == 0x20 && b[1] == 0x02: // 2002::/16, 6to4
		return []netip.Addr{v4(b, 2, 3, 4, 5)}
	}
	return nil
}

// localNAT64 are the IPv4 addresses at all places where the length of the network's own prefix (48, 56, 64 or
// 96 bits) may put them, as we cannot know it. Only one is meant, and the others are mostly made of
// its zeros: such addresses in 0.0.0.0/8, where no packet goes, do not count beside one that is not.
func localNAT64(b [16]byte) []netip.Addr {
	places := []netip.Addr{v4(b, 6, 7, 9, 10), v4(b, 7, 9, 10, 11), v4(b, 9, 10, 11, 12), v4(b, 12, 13, 14, 15)}
	meant := slices.DeleteFunc(slices.Clone(places), func(a netip.Addr) bool { return a.As4()[0] == 0 })
	if len(meant) == 0 {
		return places
	}
	return meant
}

func v4(b [16]byte, i, j, k, l int) netip.Addr {
	return netip.AddrFrom4([4]byte{b[i], b[j], b[k], b[l]})
}
