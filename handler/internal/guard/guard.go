// Package guard judges targets: which hosts and addresses the handler may call. It is pure: values in, a judgement
// out. The code that dials asks it about the address that it is going to connect to.
package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/idna"
)

// The settings with the rules. A refusal names the setting, so that the operator knows what to change.
const (
	AllowSetting = "ASYNC_CALLER_TARGETS_ALLOW"
	DenySetting  = "ASYNC_CALLER_TARGETS_DENY"
)

// Rules say which targets may be called. An entry of Deny takes precedence over all other rules; an entry of Allow
// overrides the built-in refusals. A target that Allow does not name is refused, unless Allow is empty or has the entry
// "*": then only the built-in refusals remain. The zero value has only the built-in refusals.
type Rules struct {
	Allow, Deny List
}

// Verdict is the result of judging a target.
type Verdict int

// The verdicts.
const (
	// Allowed: call the target.
	Allowed Verdict = iota
	// Refused: never call it.
	Refused
	// AddressDecides: the host name does not decide; judge the addresses that it resolves to.
	AddressDecides
)

// Judgement is a verdict and, for a refusal, the rule that led to it. The detail never contains a host name, because
// a name that a redirect led to may be secret.
type Judgement struct {
	Verdict Verdict
	Detail  string
}

// Judge judges a host and an address that it resolves to. The host is a name or a literal address as in a URL, but
// without brackets. If the address is zero, Judge judges by the host alone; otherwise the verdict is never
// [AddressDecides].
func (r Rules) Judge(host string, addr netip.Addr) Judgement {
	name := canonical(host)
	if literal, err := netip.ParseAddr(name); err == nil {
		name = ""
		if !addr.IsValid() {
			addr = literal
		}
	}
	if listed, ok := r.Deny.findName(name); ok {
		return refused("the host name", DenySetting+" has "+listed.text)
	}
	_, named := r.Allow.findName(name)
	switch {
	case addr.IsValid():
		return r.judgeAddr(forms(addr), named)
	case named && !r.Deny.hasAddrs():
		return Judgement{Verdict: Allowed}
	case !named && !r.Allow.open() && !r.Allow.hasAddrs():
		return refused("the host name", AllowSetting+" does not name it")
	}
	return Judgement{Verdict: AddressDecides}
}

// Denied judges a host by the entries of Deny alone. It is for a Host header, by which a server chooses the content.
func (r Rules) Denied(host string) Judgement {
	name := canonical(host)
	if addr, err := netip.ParseAddr(name); err == nil {
		return r.denied(forms(addr))
	}
	if listed, ok := r.Deny.findName(name); ok {
		return refused("the host name", DenySetting+" has "+listed.text)
	}
	return Judgement{Verdict: Allowed}
}

// judgeAddr judges the forms of an address; named says that Allow has its host name.
func (r Rules) judgeAddr(forms []netip.Addr, named bool) Judgement {
	if j := r.denied(forms); j.Verdict == Refused || named {
		return j
	}
	if _, _, ok := find(r.Allow.entries, forms[:1]); ok {
		return Judgement{Verdict: Allowed}
	}
	if !r.Allow.open() {
		return refused(describe(forms, 0), AllowSetting+" names neither it nor its host name")
	}
	if rule, decisive, ok := find(builtIn, forms); ok {
		return refused(describe(forms, decisive), rule.text+" (built in; "+AllowSetting+" can allow it)")
	}
	return Judgement{Verdict: Allowed}
}

func (r Rules) denied(forms []netip.Addr) Judgement {
	if listed, decisive, ok := find(r.Deny.entries, forms); ok {
		return refused(describe(forms, decisive), DenySetting+" has "+listed.text)
	}
	return Judgement{Verdict: Allowed}
}

func refused(what, rule string) Judgement {
	return Judgement{Verdict: Refused, Detail: what + " is refused: " + rule}
}

// describe names the address with these forms and, unless it is the address itself, the form that decides.
func describe(forms []netip.Addr, decisive int) string {
	if decisive == 0 {
		return forms[0].String()
	}
	return forms[0].String() + " (which stands for " + forms[decisive].String() + ")"
}

// canonical returns a host in the form that rules compare: lower case, without a final dot, and as punycode, which
// net/http makes of a name in Unicode.
func canonical(host string) string {
	if strings.ContainsFunc(host, func(r rune) bool { return r >= 0x80 }) {
		if ascii, err := idna.Lookup.ToASCII(host); err == nil {
			host = ascii
		}
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// star is the entry of Allow that allows every target that no entry names.
const star = "*"

// List is the value of a setting: networks, addresses, host names and suffixes of host names. The zero value is empty.
type List struct {
	entries []entry
	star    bool
}

// entry is a network, or a host name.
type entry struct {
	text string
	// prefix is zero for a name.
	prefix netip.Prefix
	// name is a host name or, with a leading dot, the end of its sub-domains' names; empty for a network.
	name string
}

// ParseAllow reads the value of [AllowSetting]: entries separated by commas. The error names every invalid entry.
func ParseAllow(value string) (List, error) { return parse(AllowSetting, value) }

// ParseDeny reads the value of [DenySetting] in the same way.
func ParseDeny(value string) (List, error) { return parse(DenySetting, value) }

func parse(setting, value string) (List, error) {
	var list List
	var problems []string
	for text := range strings.SplitSeq(value, ",") {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		if text == star && setting == AllowSetting {
			list.star = true
			continue
		}
		e, err := parseEntry(text)
		if err != nil {
			problems = append(problems, fmt.Sprintf("entry %q: %v", text, err))
		}
		list.entries = append(list.entries, e)
	}
	if len(list.entries) == 0 && !list.star {
		problems = append(problems, "it names nothing")
	}
	if problems != nil {
		return List{}, errors.New(strings.Join(problems, "; ")) // one line per setting
	}
	return list, nil
}

func parseEntry(text string) (entry, error) {
	invalid := errors.New("want a network (10.1.0.0/16), an address, a host name or *.suffix")
	switch {
	case text == star:
		return entry{}, fmt.Errorf("only %s accepts it", AllowSetting)
	case strings.Contains(text, "/"):
		prefix, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			return entry{}, invalid
		case prefix != prefix.Masked():
			return entry{}, fmt.Errorf("the network is %v", prefix.Masked())
		case prefix.Addr().Is4In6() && prefix.Bits() >= 96:
			prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
		}
		return entry{text: text, prefix: prefix}, nil
	case strings.Contains(text, ":") || endsInNumber(canonical(text)):
		addr, err := netip.ParseAddr(text)
		if err != nil || addr.Zone() != "" {
			return entry{}, invalid
		}
		addr = addr.Unmap()
		return entry{text: text, prefix: netip.PrefixFrom(addr, addr.BitLen())}, nil
	}
	bare, isSuffix := strings.CutPrefix(text, "*.")
	name := canonical(bare)
	if !validName(name) {
		return entry{}, invalid
	}
	if isSuffix {
		name = "." + name
	}
	return entry{text: text, name: name}, nil
}

func validName(name string) bool {
	if len(name) > 253 || endsInNumber(name) || !httpguts.ValidHostHeader(name) {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

// endsInNumber reports whether the last label of a name is a number. That is the case for every IPv4 address, also in
// octal, hexadecimal and with a single number, and for no host name.
func endsInNumber(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	digits := "0123456789"
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		last, digits = hex, "0123456789abcdef"
	}
	return last != "" && strings.Trim(last, digits) == ""
}

// open reports whether a target that the list does not name is allowed.
func (l List) open() bool { return l.star || len(l.entries) == 0 }

func (l List) hasAddrs() bool {
	return slices.ContainsFunc(l.entries, func(e entry) bool { return e.prefix.IsValid() })
}

// findName returns the entry that names a host. The host is canonical, or empty for a literal address.
func (l List) findName(host string) (entry, bool) {
	for _, e := range l.entries {
		if e.name != "" && (host == e.name || e.name[0] == '.' && strings.HasSuffix(host, e.name)) {
			return e, true
		}
	}
	return entry{}, false
}

// find returns the entry whose network contains one of the forms of an address, and the index of that form.
func find(entries []entry, forms []netip.Addr) (found entry, decisive int, ok bool) {
	for i, form := range forms {
		for _, e := range entries {
			if e.prefix.Contains(form) {
				return e, i, true
			}
		}
	}
	return entry{}, 0, false
}

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
