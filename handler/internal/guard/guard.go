// Package guard judges targets: which hosts and addresses the handler may call. It is pure, values in and a
// verdict out. Whoever dials asks it about the very address that he connects to.
package guard

import (
	"net/netip"
	"strings"

	"golang.org/x/net/idna"
)

// The settings that the rules come from. Verdicts name them, so that an operator knows where to turn.
const (
	AllowSetting = "ASYNC_CALLER_TARGETS_ALLOW"
	DenySetting  = "ASYNC_CALLER_TARGETS_DENY"
)

// Rules say which targets may be called. An entry of Deny overrides everything; an entry of Allow overrides
// the built-in refusals; and what Allow does not name is refused, unless it is empty or holds the entry "*":
// then all is allowed that is not refused by the program itself. The zero value holds only these built-in
// refusals.
type Rules struct {
	Allow, Deny List
}

// Ruling is what the rules say about a target.
type Ruling int

// The rulings.
const (
	// Allowed: call it.
	Allowed Ruling = iota
	// Refused: never call it.
	Refused
	// AddressDecides: the host name does not settle it; judge the addresses that it resolves to.
	AddressDecides
)

// Verdict is a ruling and, for a refusal, the rule behind it in words. The words hold no host name: one that
// a redirect led to may be somebody's secret.
type Verdict struct {
	Ruling Ruling
	Detail string
}

// Judge judges a host, a name or a literal address as it stands in a URL but without brackets, and an
// address that it resolves to. Without an address (the zero value) it judges as far as the host allows;
// with one it never rules [AddressDecides].
func (r Rules) Judge(host string, addr netip.Addr) Verdict {
	name := canonical(host)
	if literal, ok := literalAddr(name); ok {
		name = ""
		if !addr.IsValid() {
			addr = literal
		}
	}
	if entry, ok := r.Deny.hasName(name); ok {
		return refused("the host name", DenySetting+" has "+entry)
	}
	_, named := r.Allow.hasName(name)
	switch {
	case addr.IsValid():
		return r.judgeAddr(forms(addr), named)
	case named && !r.Deny.hasAddrs():
		return Verdict{Ruling: Allowed}
	case !named && !r.Allow.open() && !r.Allow.hasAddrs():
		return refused("the host name", AllowSetting+" does not name it")
	}
	return Verdict{Ruling: AddressDecides}
}

// Denied judges by the entries of Deny alone a host that is only mentioned: the one in a Host header, by
// which a server chooses what to serve.
func (r Rules) Denied(host string) Verdict {
	name := canonical(host)
	if addr, ok := literalAddr(name); ok {
		return r.denied(forms(addr))
	}
	if entry, ok := r.Deny.hasName(name); ok {
		return refused("the host name", DenySetting+" has "+entry)
	}
	return Verdict{Ruling: Allowed}
}

func (r Rules) judgeAddr(forms []netip.Addr, named bool) Verdict {
	if v := r.denied(forms); v.Ruling == Refused || named {
		return v
	}
	if _, ok := r.Allow.hasAddr(forms[0]); ok {
		return Verdict{Ruling: Allowed}
	}
	if !r.Allow.open() {
		return refused(words(forms, 0), AllowSetting+" names neither it nor its host name")
	}
	for i, form := range forms {
		if rule := builtIn(form); rule != "" {
			return refused(words(forms, i), rule+" (built in; "+AllowSetting+" can allow it)")
		}
	}
	return Verdict{Ruling: Allowed}
}

func (r Rules) denied(forms []netip.Addr) Verdict {
	for i, form := range forms {
		if entry, ok := r.Deny.hasAddr(form); ok {
			return refused(words(forms, i), DenySetting+" has "+entry)
		}
	}
	return Verdict{Ruling: Allowed}
}

func refused(what, rule string) Verdict {
	return Verdict{Ruling: Refused, Detail: what + " is refused: " + rule}
}

// words names the address whose forms these are, and the one that it stands for where that is what counts.
func words(forms []netip.Addr, i int) string {
	if i == 0 {
		return forms[0].String()
	}
	return forms[0].String() + " (which stands for " + forms[i].String() + ")"
}

// builtIn is the rule of our own that refuses an address, or empty. Private networks are allowed: that is
// where the targets of an integration live.
func builtIn(addr netip.Addr) string {
	switch {
	case addr.IsLoopback():
		return "loopback addresses"
	case addr.IsUnspecified() || addr.Is4() && addr.As4()[0] == 0: // 0.0.0.0/8, "this network"
		return "unspecified addresses"
	case addr.IsLinkLocalUnicast() || addr == metadataV6():
		return "link-local and metadata addresses"
	case addr == netip.AddrFrom4([4]byte{168, 63, 129, 16}):
		return "the address of the Azure host"
	case addr.IsMulticast():
		return "multicast addresses"
	case addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "the broadcast address"
	}
	return ""
}

// metadataV6 is fd00:ec2::254, where a cloud's metadata service answers in the middle of a private range.
func metadataV6() netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfd, 2: 0x0e, 3: 0xc2, 14: 0x02, 15: 0x54})
}

// canonical is a host as rules compare it: in lower case, without the dot at its end, and as punycode, as
// net/http makes it out of a name in Unicode.
func canonical(host string) string {
	for i := range len(host) {
		if host[i] >= 0x80 {
			if ascii, err := idna.Lookup.ToASCII(host); err == nil {
				host = ascii
			}
			break
		}
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// literalAddr reads an address. What does not look like one is not tried, as an error would cost more than
// everything else that is done for a request.
func literalAddr(host string) (netip.Addr, bool) {
	if !strings.Contains(host, ":") && !endsInNumber(host) {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(host)
	return addr, err == nil
}

// endsInNumber reports whether the last label of a name is a number. That of every address is, also in its
// octal, hexadecimal and one-number spellings, but no host name's.
func endsInNumber(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	digits := "0123456789"
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		last, digits = hex, "0123456789abcdef"
	}
	return last != "" && strings.Trim(last, digits) == ""
}
