package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/idna"
)

// everything is the entry of ALLOW that stands for what no other entry names.
const everything = "*"

// List is what a setting names: networks, addresses, host names and suffixes of such. The zero value
// names nothing.
type List struct {
	prefixes []listedPrefix
	names    []listedName
	all      bool
}

type listedPrefix struct {
	prefix netip.Prefix
	text   string
}

// listedName is a host name, or with a dot in front what sub-domains of one end with.
type listedName struct{ name, text string }

// ParseAllow reads the value of [AllowSetting]: entries with commas between. The error tells of every
// entry that is none.
func ParseAllow(value string) (List, error) { return parse(value, true) }

// ParseDeny reads the value of [DenySetting] likewise.
func ParseDeny(value string) (List, error) { return parse(value, false) }

func parse(value string, allow bool) (List, error) {
	var list List
	var problems []string
	count := 0
	for entry := range strings.SplitSeq(value, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		count++
		if entry == everything && allow {
			list.all = true
		} else if err := list.add(entry); err != nil {
			problems = append(problems, fmt.Sprintf("entry %q: %v", entry, err))
		}
	}
	if count == 0 {
		problems = append(problems, "it names nothing")
	}
	if problems != nil {
		// One line: the settings loader writes one for each setting.
		return List{}, errors.New(strings.Join(problems, "; "))
	}
	return list, nil
}

func (l *List) add(entry string) error {
	switch {
	case entry == everything:
		return fmt.Errorf("only %s takes it", AllowSetting)
	case strings.Contains(entry, "/"):
		return l.addPrefix(entry)
	case strings.Contains(entry, ":") || endsInNumber(strings.ToLower(strings.TrimSuffix(entry, "."))):
		addr, err := netip.ParseAddr(entry)
		if err != nil || addr.Zone() != "" {
			return wantEntry()
		}
		addr = addr.Unmap()
		l.prefixes = append(l.prefixes, listedPrefix{netip.PrefixFrom(addr, addr.BitLen()), entry})
		return nil
	}
	return l.addName(entry)
}

func (l *List) addPrefix(entry string) error {
	prefix, err := netip.ParsePrefix(entry)
	switch {
	case err != nil:
		return wantEntry()
	case prefix != prefix.Masked():
		return fmt.Errorf("the network is %v", prefix.Masked())
	case prefix.Addr().Is4In6() && prefix.Bits() >= 96:
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	l.prefixes = append(l.prefixes, listedPrefix{prefix, entry})
	return nil
}

func (l *List) addName(entry string) error {
	bare, isSuffix := strings.CutPrefix(entry, "*.")
	name, err := idna.Lookup.ToASCII(bare)
	if err != nil {
		name = bare // a name with an underscore, which is no international one but resolves
	}
	name = canonical(name)
	if !validName(name) {
		return wantEntry()
	}
	if isSuffix {
		name = "." + name
	}
	l.names = append(l.names, listedName{name, entry})
	return nil
}

func wantEntry() error {
	return errors.New("want a network (10.1.0.0/16), an address, a host name or *.suffix")
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

// open reports whether what the list does not name is allowed.
func (l List) open() bool { return l.all || len(l.names) == 0 && len(l.prefixes) == 0 }

func (l List) hasAddrs() bool { return len(l.prefixes) > 0 }

// hasName returns the entry that names a host; the host is canonical, or empty for a literal address.
func (l List) hasName(host string) (entry string, ok bool) {
	if host == "" {
		return "", false
	}
	for _, listed := range l.names {
		if host == listed.name || listed.name[0] == '.' && strings.HasSuffix(host, listed.name) {
			return listed.text, true
		}
	}
	return "", false
}

func (l List) hasAddr(addr netip.Addr) (entry string, ok bool) {
	for _, listed := range l.prefixes {
		if listed.prefix.Contains(addr) {
			return listed.text, true
		}
	}
	return "", false
}
