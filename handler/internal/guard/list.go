package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// star is the entry of Allow that allows everything that no entry names.
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

// find returns the entry whose network contains the address.
func find(entries []entry, addr netip.Addr) (entry, bool) {
	for _, e := range entries {
		if e.prefix.Contains(addr) {
			return e, true
		}
	}
	return entry{}, false
}
