package guard_test

import (
	"net/netip"
	"strings"
	"testing"

	"asynccaller/handler/internal/guard"
)

func mustRules(tb testing.TB, allow, deny string) guard.Rules {
	tb.Helper()
	var rules guard.Rules
	var err error
	if allow != "" {
		if rules.Allow, err = guard.ParseAllow(allow); err != nil {
			tb.Fatal(err)
		}
	}
	if deny != "" {
		if rules.Deny, err = guard.ParseDeny(deny); err != nil {
			tb.Fatal(err)
		}
	}
	return rules
}

// check compares a verdict: want is empty for an allowed target, else a part of the detail.
func check(t *testing.T, v guard.Judgement, want string) {
	t.Helper()
	switch {
	case want == "" && (v.Verdict != guard.Allowed || v.Detail != ""):
		t.Errorf("got %+v, want it allowed", v)
	case want != "" && (v.Verdict != guard.Refused || !strings.Contains(v.Detail, want)):
		t.Errorf("got %+v, want it refused: %s", v, want)
	}
}

// Rules of our own.
const (
	loopback    = "loopback addresses (built in; ASYNC_CALLER_TARGETS_ALLOW can allow it)"
	unspecified = "unspecified addresses (built in"
	linkLocal   = "link-local and metadata addresses (built in"
	azureHost   = "the address of the Azure host (built in"
	multicast   = "multicast addresses (built in"
	broadcast   = "the broadcast address (built in"
)

// Every family and form of address, as a literal in a URL and as what a name resolves to.
func TestAddresses(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1": loopback, "127.0.0.0": loopback, "127.255.255.255": loopback, "126.255.255.255": "", "128.0.0.0": "",
		"::1": loopback, "0:0:0:0:0:0:0:1": loopback, "::1%lo": loopback,
		"0.0.0.0": unspecified, "0.1.2.3": unspecified, "0.255.255.255": unspecified, "1.0.0.0": "",
		"::": unspecified, "::%eth0": unspecified,
		"169.254.169.254": linkLocal, "169.254.0.0": linkLocal, "169.254.255.255": linkLocal, "169.253.255.255": "", "169.255.0.0": "",
		"fe80::1": linkLocal, "fe80::1%eth0": linkLocal, "febf:ffff::1": linkLocal, "fe7f::1": "", "fec0::1": "",
		"fd00:ec2::254": linkLocal, "fd00:ec2::254%1": linkLocal, "fd00:ec2::253": "", "fd00:ec2::": "",
		"168.63.129.16": azureHost, "168.63.129.15": "", "168.63.129.17": "",
		"224.0.0.1": multicast, "239.255.255.255": multicast, "223.255.2" +
			"55.255": "", "ff00::": multicast, "ff02::1%eth0": multicast, "ffff::1": multicast, "feff::1": "",
		"255.255.255.255": broadcast, "255.255.255.254": "", "240.0.0.1": "",

		// Private networks and the rest of the world.
		"10.0.0.1": "", "172.16.0.1": "", "192.168.1.1": "", "100.64.0.1": "", "fc00::1": "", "fd12::1": "",
		"8.8.8.8": "", "2606:4700::1111": "", "2001:db8::1": "",

		// IPv4-mapped: an IPv4 address in another spelling.
		"::ffff:127.0.0.1": loopback, "::ffff:7f00:1": loopback, "::ffff:169.254.169.254": linkLocal, "::ffff:168.63.129.16": azureHost,
		"::ffff:0.0.0.0": unspecified, "::ffff:224.0.0.1": multicast, "::ffff:255.255.255.255": broadcast, "::ffff:127.0.0.1%eth0": loopback,
		"::ffff:10.0.0.1": "", "::ffff:8.8.8.8": "",
		// IPv4-compatible.
		"::127.0.0.1": loopback, "::a9fe:a9fe": linkLocal, "::168.63.129.16": azureHost, "::0.0.0.2": unspecified,
		"::224.0.0.1": multicast, "::255.255.255.255": broadcast, "::10.0.0.1": "",
		// IPv4-translated.
		"::ffff:0:127.0.0.1": loopback, "::ffff:0:169.254.169.254": linkLocal, "::ffff:0:10.0.0.1": "",
		// NAT64.
		"64:ff9b::127.0.0.1": loopback, "64:ff9b::a9fe:a9fe": linkLocal, "64:ff9b::168.63.129.16": azureHost, "64:ff9b::": unspecified,
		"64:ff9b::224.0.0.1": multicast, "64:ff9b::255.255.255.255": broadcast, "64:ff9b::127.0.0.1%eth0": loopback,
		"64:ff9b::10.0.0.1": "", "64:ff9b::8.8.8.8": "", "64:ff9b:0:1::127.0.0.1": "", "64:ff9c::127.0.0.1": "",
		// NAT64 with the network's own prefix, of 96, 64, 56 and 48 bits.
		"64:ff9b:1::127.0.0.1": loopback, "64:ff9b:1::169.254.169.254": linkLocal, "64:ff9b:1:ffff::168.63.129.16": azureHost, "64:ff9b:1::": unspecified,
		"64:ff9b:1::0.1.2.3": unspecified, "64:ff9b:1::10.0.0.1": "", "64:ff9b:1::8.8.8.8": "",
		"64:ff9b:1:0:7f:0:100:0": loopback, "64:ff9b:1:0:a9:fea9:fe00:0": linkLocal, "64:ff9b:1:0:a:0:100:0": "",
		"64:ff9b:1:7f:0:1::": loopback, "64:ff9b:1:a9:fe:a9fe::": linkLocal, "64:ff9b:1:a:0:1::": "",
		"64:ff9b:1:7f00:0:100::": loopback, "64:ff9b:1:a9fe:a9:fe00::": linkLocal, "64:ff9b:1:a00:0:100::": "", "64:ff9b:2::127.0.0.1": "",
		// 6to4.
		"2002:7f00:1::": loopback, "2002:7f00:1::1": loopback, "2002:a9fe:a9fe::1": linkLocal, "2002:a83f:8110::": azureHost, "2002::": unspecified,
		"2002:e000:1::": multicast, "2002:ffff:ffff::": broadcast, "2002:a00:1::": "", "2002:808:808::": "",
	} {
		t.Run(addr, func(t *testing.T) {
			parsed := netip.MustParseAddr(addr)
			check(t, guard.Rules{}.Judge(addr, netip.Addr{}), want)
			check(t, guard.Rules{}.Judge("target.example", parsed), want)
			check(t, guard.Rules{}.Judge(addr, parsed), want)
			check(t, guard.Rules{}.Denied(addr), "")
			check(t, mustRules(t, "*", "").Judge(addr, netip.Addr{}), want)
			check(t, mustRules(t, "target.example", "").Judge("target.example", parsed), "")
		})
	}
}

func TestDetail(t *testing.T) {
	rules := mustRules(t, "", "10.0.0.0/8,*.corp.example")
	for detail, v := range map[string]guard.Judgement{
		"169.254.169.254 is refused: link-local and metadata addresses (built in; ASYNC_CALLER_TARGETS_ALLOW can " +
			"allow it)": rules.Judge("x.example", netip.MustParseAddr("::ffff:169.254.169.254")),
		"64:ff9b::7f00:1 (which stands for 127.0.0.1) is refused: loopback addresses (built in; ASYNC_CALLER_TARGETS_ALLOW can " +
			"allow it)": rules.Judge("64:ff9b::127.0.0.1", netip.Addr{}),
		"2002:a01:203:: (which stands for 10.1.2.3) is refused: ASYNC_CALLER_TARGETS_DENY has " +
			"10.0.0.0/8": rules.Judge("2002:a01:203::", netip.Addr{}),
		"the host name is refused: ASYNC_CALLER_TARGETS_DENY has " +
			"*.corp.example": rules.Judge("Secret.corp.example", netip.Addr{}),
		"the host name is refused: ASYNC_CALLER_TARGETS_ALLOW does not " +
			"name it": mustRules(t, "a.example", "").Judge("b.example", netip.Addr{}),
		"8.8.8.8 is refused: ASYNC_CALLER_TARGETS_ALLOW names neither it nor its " +
			"host name": mustRules(t, "a.example", "").Judge("8.8.8.8", netip.Addr{}),
		"fe80::1 is refused: link-local and metadata addresses (built in; ASYNC_CALLER_TARGETS_ALLOW can " +
			"allow it)": rules.Judge("fe80::1%eth0.C4nary", netip.Addr{}),
	} {
		if v.Verdict != guard.Refused || v.Detail != detail {
			t.Errorf("got %+v\nwant %s", v, detail)
		}
	}
}

const (
	byDeny  = "ASYNC_CALLER_TARGETS_DENY has "
	byAllow = "ASYNC_CALLER_TARGETS_ALLOW "
)

// An address is judged after its name: a row without one is judged by name alone.
func TestRules(t *testing.T) {
	const decides = "address decides"
	tests := map[string]struct{ allow, deny, host, addr, want string }{
		"nothing_set":           {"", "", "t.example", "", decides},
		"star":                  {"*", "", "t.example", "", decides},
		"star_alone_is_unset":   {"*", "", "t.example", "127.0.0.1", loopback},
		"allow_address":         {"127.0.0.0/8,*", "", "localhost", "127.0.0.1", ""},
		"allow_address_literal": {"127.0.0.0/8,::1,*", "", "::1", "", ""},
		"allow_other_address":   {"127.0.0.0/8,*", "", "localhost", "::1", loopback},
		"allow_mapped":          {"127.0.0.1,*", "", "::ffff:127.0.0.1", "", ""},
		"allow_as_mapped":       {"::ffff:127.0.0.1,*", "", "127.0.0.1", "", ""},
		"allow_mapped_network":  {"::ffff:127.0.0.0/104,*", "", "127.0.0.1", "", ""},
		"allow_not_other_forms": {"127.0.0.1,*", "", "2002:7f00:1::", "", loopback},
		"allow_form_itself":     {"64:ff9b::/96,*", "", "64:ff9b::127.0.0.1", "", ""},
		"allow_with_zone":       {"fe80::/10,*", "", "fe80::1%eth0", "", ""},
		"allow_all_of_ipv6":     {"::/0", "", "127.0.0.1", "", byAllow},
		"allow_name":            {"meta.example,*", "", "meta.example", "169.254.169.254", ""},
		"allow_name_alone":      {"meta.example", "", "meta.example", "", ""},
		"allow_name_other":      {"meta.example,*", "", "other.example", "169.254.169.254", linkLocal},
		"allow_suffix":          {"*.example,*", "", "a.b.example", "127.0.0.1", ""},
		"not_named":             {"a.example", "", "b.example", "", byAllow + "does not name it"},
		"not_named_address":     {"a.example", "", "b.example", "8.8.8.8", byAllow},
		"not_named_literal":     {"a.example", "", "8.8.8.8", "", byAllow},
		"network_decides":       {"10.0.0.0/8", "", "b.example", "", decides},
		"network_names_it":      {"10.0.0.0/8", "", "b.example", "10.1.2.3", ""},
		"network_does_not":      {"10.0.0.0/8", "", "b.example", "11.1.2.3", byAllow + "names neither"},
		"network_not_private":   {"10.0.0.0/8", "", "127.0.0.1", "", byAllow},
		"single_address":        {"10.0.0.1", "", "10.0.0.1", "", ""},
		"single_address_next":   {"10.0.0.1", "", "10.0.0.2", "", byAllow},

		"deny_name":            {"", "t.example", "t.example", "", byDeny + "t.example"},
		"deny_name_at_dial":    {"", "t.example", "t.example", "8.8.8.8", byDeny},
		"deny_beats_name":      {"t.example", "t.example", "t.example", "", byDeny},
		"deny_beats_star":      {"*", "t.example", "t.example", "", byDeny},
		"deny_suffix_of_name":  {"a.t.example", "*.t.example", "a.t.example", "", byDeny},
		"deny_address_of_name": {"t.example", "10.0.0.0/8", "t.example", "10.0.0.1", byDeny + "10.0.0.0/8"},
		"deny_address_waits":   {"t.example", "10.0.0.0/8", "t.example", "", decides},
		"deny_other_address":   {"t.example", "10.0.0.0/8", "t.example", "127.0.0.1", ""},
		"deny_beats_network":   {"10.0.0.0/8", "10.0.0.1", "10.0.0.1", "", byDeny},
		"deny_mapped":          {"", "10.0.0.0/8", "::ffff:10.0.0.1", "", byDeny},
		"deny_as_mapped":       {"", "::ffff:10.0.0.1", "10.0.0.1", "", byDeny},
		"deny_compatible":      {"", "10.0.0.0/8", "::10.0.0.1", "", byDeny},
		"deny_nat64":           {"", "10.0.0.0/8", "64:ff9b::10.0.0.1", "", byDeny},
		"deny_local_nat64":     {"", "10.0.0.0/8", "64:ff9b:1::10.0.0.1", "", byDeny},
		"deny_6to4":            {"", "10.0.0.0/8", "2002:a00:1::", "", byDeny},
		"deny_form_of_allowed": {"64:ff9b::/96", "10.0.0.1", "64:ff9b::10.0.0.1", "", byDeny},
		"deny_zone":            {"fe80::/10", "fe80::1", "fe80::1%eth0", "", byDeny},
		"deny_ipv6_only":       {"", "::/0", "10.0.0.1", "", ""},
		"deny_ipv6":            {"", "::/0", "2001:db8::1", "", byDeny},
		"deny_leaves_others":   {"", "10.0.0.0/8", "t.example", "8.8.8.8", ""},

		"case":                   {"", "T.Example", "t.EXAMPLE", "", byDeny},
		"dot_of_host":            {"", "t.example", "t.example.", "", byDeny},
		"dot_of_entry":           {"", "t.example.", "t.example", "", byDeny},
		"unicode_host":           {"", "xn--bcher-kva.example", "Bücher.example", "", byDeny},
		"unicode_entry":          {"", "BÜCHER.example", "XN--bcher-kva.example.", "", byDeny},
		"unicode_suffix":         {"", "*.bücher.example", "a.xn--bcher-kva.example", "", byDeny},
		"unicode_dots":           {"", "a.bücher.example", "a。bücher．example", "", byDeny},
		"wide_digits":            {"", "", "１２７.0.0.1", "", loopback},
		"dot_after_address":      {"", "", "127.0.0.1.", "", loopback},
		"suffix_not_itself":      {"", "*.t.example", "t.example", "", decides},
		"suffix_not_in_a_label":  {"", "*.t.example", "at.example", "", decides},
		"suffix_any_depth":       {"", "*.t.example", "a.b.c.t.example", "", byDeny},
		"suffix_of_one_label":    {"", "*.internal", "a.b.internal", "", byDeny},
		"suffix_empty_label":     {"", "*.t.example", ".t.example", "", byDeny},
		"suffix_and_name":        {"", "t.example,*.t.example", "t.example", "", byDeny},
		"suffix_not_in_a_zone":   {"*.t.example", "", "fe80::1%a.t.example", "", byAllow},
		"name_is_no_part":        {"", "example", "t.example", "", decides},
		"underscore":             {"", "my_host.example", "my_host.example", "", byDeny},
		"label_of_digits_before": {"", "3.example", "3.example", "", byDeny},
		"digits_and_letters":     {"", "3scale", "3scale", "", byDeny},
		"empty_host":             {"", "", "", "", decides},
		// What the resolver makes of these is judged.
		"octal":       {"", "", "0177.0.0.1", "", decides},
		"hexadecimal": {"", "", "0x7f.1", "127.0.0.1", loopback},
		"one_number":  {"", "", "2130706433", "127.0.0.1", loopback},
		"no_name":     {"a.example", "", "2130706433", "", byAllow},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var addr netip.Addr
			if test.addr != "" {
				addr = netip.MustParseAddr(test.addr)
			}
			v := mustRules(t, test.allow, test.deny).Judge(test.host, addr)
			if test.want != decides {
				check(t, v, test.want)
			} else if v != (guard.Judgement{Verdict: guard.AddressDecides}) {
				t.Errorf("got %+v, want the address to decide", v)
			}
		})
	}
}

func TestDenied(t *testing.T) {
	rules := mustRules(t, "a.example", "b.example,10.0.0.0/8")
	for host, want := range map[string]string{
		"a.example": "", "c.example": "", "127.0.0.1": "", "B.example.": byDeny, "10.0.0.1": byDeny, "2002:a00:1::": byDeny,
	} {
		check(t, rules.Denied(host), want)
	}
}

func TestBadEntries(t *testing.T) {
	const want = "want a network"
	for entry, want := range map[string]string{
		"10.0.0.0/33": want, "10.0.0/8": want, "::/129": want, "fe80::%eth0/10": want, "10.0.0.5/8": "the network is 10.0.0.0/8", "/8": want, "10.0.0.0/": want,
		"10.0.0.300": want, "10.0.0": want, "0x7f.1": want, "0X7F.1.": want, "2130706433": want, "0177.0.0.1": want,
		"[::1]": want, "fe80::1%eth0": want, "1::2::3": want, "t.example:443": want,
		"https://t.example/": want, "t.example/path": want, "a b": want, "a..b": want, ".t.example": want, "*t.example": want, "a.*.example": want,
		"*.*": want, "*.": want, "*.1": want, "**": want, "t.example;u.example": want, "\x00": want, "ex%61mple": want,
		strings.Repeat("a", 64) + ".example": want, strings.Repeat("a.", 127) + "example": want,
	} {
		for setting, parse := range map[string]func(string) (guard.List, error){"allow": guard.ParseAllow, "deny": guard.ParseDeny} {
			list, err := parse("t.example, " + entry + " ,,u v,10.0.0.1")
			if err == nil {
				t.Errorf("%s: %q was accepted: %+v", setting, entry, list)
				continue
			}
			for _, part := range []string{want, `entry "u v": want`} {
				if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %q does not say %q in one line", setting, err, part)
				}
			}
		}
	}
	for _, value := range []string{"", " ", ",", " , "} {
		if _, err := guard.ParseAllow(value); err == nil {
			t.Errorf("%q was accepted", value)
		}
	}
	if _, err := guard.ParseDeny("*"); err == nil || !strings.Contains(err.Error(), `entry "*": only ASYNC_CALLER_TARGETS_ALLOW accepts it`) {
		t.Errorf("* in DENY: %v", err)
	}
}

func BenchmarkJudgeName(b *testing.B) {
	rules := mustRules(b, "*.example.com,10.0.0.0/8,*", "*.internal,a.example,192.168.0.0/16")
	for b.Loop() {
		rules.Judge("orders.example.org", netip.Addr{})
	}
}
