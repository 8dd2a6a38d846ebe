// Package guard judges targets: which hosts and addresses the handler may call. It is pure: values in, a refusal or
// none out. The code that dials asks it about the address that it is going to connect to.
package guard

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/idna"
)

// The settings with the rules. A refusal names the setting, so that the operator knows what to change.
const (
	AllowSetting = "ASYNC_CALLER_TARGETS_ALLOW"
	DenySetting  = "ASYNC_CALLER_TARGETS_DENY"
)

// Rules say which targets may be called. An entry of Deny takes precedence over all other rules. The built-in refusals
// are overridden by the networks and addresses of Allow, but not by its names, because the owner of a name chooses its
// addresses; only the name localhost stands for loopback addresses. A target that Allow does not name is refused,
// unless Allow is empty or has the entry "*". The zero value has only the built-in refusals.
type Rules struct {
	Allow, Deny List
	// Local is the address and port of one more target that is allowed, whatever Allow and Deny say; the zero value is
	// none.
	Local netip.AddrPort
	// Own are the addresses of this machine, where more than the handler may listen. They are refused by default.
	Own []netip.Addr
	// Profiles are the patterns of targets.json, with names in the form of [Canonical].
	Profiles []string
	// Proxy says that calls go through a proxy, which looks up the names of targets. HTTPProxy says that it is an HTTP
	// proxy: it finds an http target by the URL and replaces the Host header.
	Proxy, HTTPProxy bool
}

// Judge judges a host and an address that it resolves to. The host is a name or a literal address as [ASCII] returns
// it. If the address is zero, Judge judges by the host alone, and knows the addresses of loopback names; then it may
// still refuse the addresses that another name resolves to.
//
// The result is empty if the rules allow the target. Otherwise it says which rule refuses it. It never contains a host
// name, because a name that a redirect led to may be secret.
func (r Rules) Judge(host string, addr netip.Addr) (refusal string) {
	name, literal, ok := canonical(host)
	if !ok {
		return refused(theName, errNoHost.Error())
	}
	if !addr.IsValid() {
		addr = literal
	}
	forms := forms(addr)
	if refusal := r.denied(theName, name, forms); refusal != "" {
		return refusal
	}
	_, named := r.Allow.findName(name)
	switch {
	case len(forms) > 0:
		return r.judgeAddr(forms, name, named)
	case !named && !r.Allow.open() && !r.Allow.hasAddrs():
		return refused(theName, AllowSetting+" does not name it")
	case isLoopbackName(name) && r.Judge(name, netip.IPv6Loopback()) != "":
		return r.Judge(name, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	}
	return ""
}

// hostsFileNames are the names of loopback addresses in the hosts files of the usual Linux distributions.
var hostsFileNames = []string{
	"localhost.localdomain", "localhost4", "localhost4.localdomain4", "localhost6", "localhost6.localdomain6",
	"ip6-localhost", "ip6-loopback",
}

// isLoopbackName reports whether a canonical name stands for loopback addresses: everywhere (RFC 6761), or on Linux.
func isLoopbackName(name string) bool {
	return strings.HasSuffix("."+name, ".localhost") || slices.Contains(hostsFileNames, name)
}

const theName, theHeader = "the host name", "the Host header"

// JudgeCall judges a call without an address: the host of its URL and its Host header, which is empty if there is none.
// The result is that of Judge.
func (r Rules) JudgeCall(target *url.URL, header string) (refusal string) {
	if header != "" && header != target.Host {
		if refusal := r.judgeHeader(target, &url.URL{Scheme: target.Scheme, Host: header}); refusal != "" {
			return refusal
		}
	}
	if r.IsLocal(target.Host) {
		return ""
	}
	refusal = r.Judge(target.Hostname(), netip.Addr{})
	if refusal == "" && r.Proxy && HasNoDot(target.Hostname()) {
		return r.JudgeShortName(target.Hostname())
	}
	return refusal
}

// IsLocal reports whether an address with a port is that of Local.
func (r Rules) IsLocal(address string) bool { return r.Local.IsValid() && address == r.Local.String() }

// JudgeShortName judges a host that a resolver finds only by completing its name with a domain of a search list. The
// full name is not known, so the host is refused if the full name could be one of Deny, or one with a profile. Names in
// Allow and localhost are not refused. The result is that of Judge.
func (r Rules) JudgeShortName(host string) (refusal string) {
	name, _, _ := canonical(host)
	_, named := r.Allow.findName(name)
	if named || name == "" || name == "localhost" {
		return ""
	}
	const rule = "it depends on a search list, and %s has %s: give the full name, or allow it in " + AllowSetting
	for _, e := range r.Deny.entries {
		if canBecome(name, e.name) {
			return refused(theName, fmt.Sprintf(rule, DenySetting, e.text))
		}
	}
	for _, pattern := range r.Profiles {
		if canBecome(name, strings.TrimPrefix(pattern, "*")) {
			return refused(theName, fmt.Sprintf(rule, "targets.json", pattern))
		}
	}
	return ""
}

// canBecome reports whether a search list can complete a name to the listed one or, if that begins with a dot, to one
// below it.
func canBecome(name, listed string) bool {
	return strings.HasPrefix(listed, ".") || strings.HasPrefix(listed, name+".")
}

// HasNoDot reports whether a host is a name without a dot, except a final one. For such a name, a resolver tries the
// search list first.
func HasNoDot(host string) bool {
	name, _, _ := canonical(host)
	return name != "" && !strings.Contains(name, ".")
}

// judgeHeader judges a Host header, by which a server chooses the content. No connection goes to the host that it
// names, so the built-in refusals do not apply.
func (r Rules) judgeHeader(target, header *url.URL) (refusal string) {
	name, addr, ok := canonical(header.Hostname())
	targetName, targetAddr, _ := canonical(target.Hostname())
	same := name == targetName && addr == targetAddr
	switch {
	case !ok:
		return refused(theHeader, errNoHost.Error())
	case r.HTTPProxy && target.Scheme == "http" && (!same || Port(header) != Port(target)):
		return refused(theHeader, "it differs from the URL, by which the proxy finds an http target")
	case same:
		return ""
	}
	forms := forms(addr)
	_, named := r.Allow.findName(name)
	if !named && !r.Allow.hasAddr(forms) && !r.Allow.open() {
		return refused(theHeader, AllowSetting+" does not name it")
	}
	return r.denied(theHeader, name, forms)
}

// Port returns the port of an http or https URL, without leading zeros.
func Port(u *url.URL) string {
	return cmp.Or(strings.TrimLeft(u.Port(), "0"), map[string]string{"http": "80", "https": "443"}[u.Scheme])
}

// AllowsUnresolved reports whether a proxy may resolve a name that does not exist here: Allow has the name, and Deny
// has no address that it could turn out to be.
func (r Rules) AllowsUnresolved(host string) bool {
	name, _, _ := canonical(host)
	_, named := r.Allow.findName(name)
	return named && !r.Deny.hasAddrs()
}

// judgeAddr judges the forms of an address that is not denied; named says that Allow has its host name.
func (r Rules) judgeAddr(forms []netip.Addr, name string, named bool) (refusal string) {
	if r.Allow.hasAddr(forms) || named && name == "localhost" && forms[0].IsLoopback() {
		return ""
	}
	if !named && !r.Allow.open() {
		return refused(describe(forms, 0), AllowSetting+" names neither it nor its host name")
	}
	if rule, decisive, ok := r.builtIn(forms); ok {
		return refused(describe(forms, decisive), rule+" (built in; "+AllowSetting+" can allow it)")
	}
	return ""
}

// builtIn returns the built-in rule that refuses one of the forms of an address, and the index of that form.
func (r Rules) builtIn(forms []netip.Addr) (rule string, decisive int, ok bool) {
	if e, i, ok := find(builtIn, forms); ok {
		return e.text, i, true
	}
	own := slices.IndexFunc(forms, func(a netip.Addr) bool { return slices.Contains(r.Own, a) })
	if own >= 0 {
		return "addresses of this machine", own, true
	}
	return "ISATAP addresses", 0, isISATAP(forms[0])
}

// denied judges a name, or the forms of an address, by the entries of Deny. What is theName or theHeader.
func (r Rules) denied(what, name string, forms []netip.Addr) (refusal string) {
	if listed, ok := r.Deny.findName(name); ok {
		return refused(what, DenySetting+" has "+listed.text)
	}
	if listed, decisive, ok := find(r.Deny.entries, forms); ok {
		return refused(describe(forms, decisive), DenySetting+" has "+listed.text)
	}
	return ""
}

func refused(what, rule string) string { return what + " is refused: " + rule }

// describe names the address with these forms and, unless it is the address itself, the form that decides.
func describe(forms []netip.Addr, decisive int) string {
	if decisive == 0 {
		return forms[0].String()
	}
	return forms[0].String() + " (which stands for " + forms[decisive].String() + ")"
}

var errNoHost = errors.New("it is neither a DNS name nor an IP address")

// maxUnicode limits a name in Unicode, in bytes. The time that Punycode takes grows with the square of its length.
const maxUnicode = 1024

// ASCII returns the form of a URL's host, without brackets, that is judged, dialed and sent: a name in Unicode as
// Punycode, any other host as it is. Whatever reads a host from outside calls it once, so that no two readers can see
// different hosts in one text. It returns an error for a text that is neither a DNS name nor an IP address. As in
// browsers, a host that ends in a number is an address, and 127.1 or 0x7f.1 is none.
func ASCII(host string) (string, error) {
	if strings.ContainsFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) {
		if len(host) > maxUnicode {
			return "", errNoHost
		}
		ascii, err := idna.Lookup.ToASCII(host)
		if err != nil || !utf8.ValidString(host) {
			return "", errNoHost
		}
		host = ascii
	}
	if _, _, ok := canonical(host); !ok {
		return "", errNoHost
	}
	return host, nil
}

// canonical returns a host in the form that rules compare: a name in lower case and without a final dot, or an address.
func canonical(host string) (name string, addr netip.Addr, ok bool) {
	name = strings.TrimSuffix(strings.ToLower(host), ".")
	if strings.Contains(name, ":") || endsInNumber(name) {
		addr, err := netip.ParseAddr(name)
		return "", addr, err == nil && httpguts.ValidHostHeader(name) // a zone may be any text
	}
	return name, netip.Addr{}, validName(name)
}

// Canonical returns the host of a URL in the form that is the same for all texts that mean this host: a name in ASCII,
// in lower case and without a final dot, or an address without a zone. It is empty for a text that is no host.
func Canonical(host string) string {
	name, addr, ok := canonical(host)
	if !ok {
		host, _ = ASCII(host) // a name in Unicode
		name, addr, _ = canonical(host)
	}
	if addr.IsValid() {
		return addr.WithZone("").Unmap().String()
	}
	return name
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
	}
	bare, isSuffix := strings.CutPrefix(text, "*.")
	ascii, err := ASCII(bare)
	name, addr, _ := canonical(ascii)
	switch {
	case err != nil || addr.Zone() != "" || addr.IsValid() && isSuffix:
		return entry{}, invalid
	case addr.IsValid():
		addr = addr.Unmap()
		return entry{text: text, prefix: netip.PrefixFrom(addr, addr.BitLen())}, nil
	case isSuffix:
		name = "." + name
	}
	return entry{text: text, name: name}, nil
}

// validName reports whether a text in lower case is a DNS name, as the resolver accepts it.
func validName(name string) bool {
	foreign := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' }
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, foreign) {
			return false
		}
	}
	return len(name) <= 253
}

// endsInNumber reports whether the last label of a name is a number. That is the case for every IPv4 address, also in
// octal, hexadecimal and with a single number, and for no host name.
func endsInNumber(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	if last == "" || last[0] < '0' || last[0] > '9' {
		return false
	}
	digits := "0123456789"
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		last, digits = hex, "0123456789abcdef"
	}
	return strings.Trim(last, digits) == ""
}

// open reports whether a target that the list does not name is allowed.
func (l List) open() bool { return l.star || len(l.entries) == 0 }

func (l List) hasAddrs() bool {
	return slices.ContainsFunc(l.entries, func(e entry) bool { return e.prefix.IsValid() })
}

// hasAddr reports whether the list has the address with these forms.
func (l List) hasAddr(forms []netip.Addr) bool {
	_, _, ok := find(l.entries, forms[:min(1, len(forms))])
	return ok
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
	refusedNetwork("loopback addresses", "127.0.0.0/8"),                 // RFC 1122
	refusedNetwork("loopback addresses", "::1/128"),                     // RFC 4291
	refusedNetwork("unspecified addresses", "0.0.0.0/8"),                // RFC 1122, "this network"
	refusedNetwork("unspecified addresses", "::/128"),                   // RFC 4291
	refusedNetwork(linkLocal, "169.254.0.0/16"),                         // RFC 3927
	refusedNetwork(linkLocal, "fe80::/10"),                              // RFC 4291
	refusedNetwork(linkLocal, "fd00:ec2::254/128"),                      // the metadata service of AWS
	refusedNetwork(linkLocal, "fd20:ce::254/128"),                       // the metadata service of Google Cloud
	refusedNetwork(linkLocal, "192.0.0.192/32"),                         // the metadata service of Oracle Cloud
	refusedNetwork(linkLocal, "100.100.100.200/32"),                     // the metadata service of Alibaba Cloud
	refusedNetwork("the address of the Azure host", "168.63.129.16/32"), // WireServer
	refusedNetwork("site-local addresses", "fec0::/10"),                 // RFC 3879
	refusedNetwork("multicast addresses", "224.0.0.0/4"),                // RFC 5771
	refusedNetwork("multicast addresses", "ff00::/8"),                   // RFC 4291
	refusedNetwork("the broadcast address", "255.255.255.255/32"),       // RFC 919
	refusedNetwork("reserved addresses", "240.0.0.0/4"),                 // RFC 1112
	refusedNetwork("Teredo addresses", "2001::/32"),                     // RFC 4380
}

const linkLocal = "link-local and metadata addresses"

func refusedNetwork(rule, network string) entry {
	return entry{text: rule, prefix: netip.MustParsePrefix(network)}
}

// embedding is a network of IPv6 addresses that contain an IPv4 address: packets to them may end there. Each place
// lists the indexes of its four bytes; mask is what they are XORed with.
type embedding struct {
	network netip.Prefix
	places  [][4]int
	mask    byte
}

// lastFour is the place at the end.
var lastFour = [][4]int{{12, 13, 14, 15}}

// embeddings are the networks with embedded IPv4 addresses. The place in a local NAT64 address depends on the length
// of the network's own prefix (48, 56, 64 or 96 bits), which is not known.
var embeddings = []embedding{
	{network: netip.MustParsePrefix("::/96"), places: lastFour},           // IPv4-compatible, RFC 4291
	{network: netip.MustParsePrefix("::ffff:0:0:0/96"), places: lastFour}, // IPv4-translated, RFC 2765
	{network: netip.MustParsePrefix("64:ff9b::/96"), places: lastFour},    // NAT64, RFC 6052
	{ // local NAT64, RFC 8215
		network: netip.MustParsePrefix("64:ff9b:1::/48"),
		places:  [][4]int{{6, 7, 9, 10}, {7, 9, 10, 11}, {9, 10, 11, 12}, {12, 13, 14, 15}},
	},
	{network: netip.MustParsePrefix("2002::/16"), places: [][4]int{{2, 3, 4, 5}}}, // 6to4, RFC 3056
	{network: netip.MustParsePrefix("2001::/32"), places: [][4]int{{4, 5, 6, 7}}}, // the server of Teredo, RFC 4380
	{network: netip.MustParsePrefix("2001::/32"), places: lastFour, mask: 0xff},   // and its client
}

// isISATAP reports whether the interface identifier of an address is that of ISATAP (RFC 5214). Its last four bytes are
// an IPv4 address.
func isISATAP(addr netip.Addr) bool {
	b := addr.As16()
	return addr.Is6() && b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// forms returns an address without its zone, an IPv4-mapped one as IPv4, and the IPv4 addresses embedded in it; nothing
// for a zero address.
func forms(addr netip.Addr) []netip.Addr {
	if !addr.IsValid() {
		return nil
	}
	addr = addr.WithZone("").Unmap()
	all := []netip.Addr{addr}
	for _, e := range embeddings {
		if e.network.Contains(addr) {
			all = append(all, e.addresses(addr.As16())...)
		}
	}
	if isISATAP(addr) {
		all = append(all, embedding{places: lastFour}.addresses(addr.As16())...)
	}
	return all
}

// addresses returns the embedded addresses. If there are several places, only one is meant, and the others consist
// mostly of its zeros: an address in 0.0.0.0/8, where no packet goes, counts only if there is no other.
func (e embedding) addresses(b [16]byte) []netip.Addr {
	var all []netip.Addr
	for _, p := range e.places {
		var v4 [4]byte
		for i, place := range p {
			v4[i] = b[place] ^ e.mask
		}
		all = append(all, netip.AddrFrom4(v4))
	}
	meant := slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return a.As4()[0] == 0 })
	if len(meant) == 0 {
		return all
	}
	return meant
}
