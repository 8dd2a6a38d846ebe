package guard_test

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/guard"
)

func mustRules(tb testing.TB, allow, deny string) guard.Rules {
	tb.Helper()
	var rules guard.Rules
	var err error
	if allow != "" {
		rules.Allow, err = guard.ParseAllow(allow)
		if err != nil {
			tb.Fatal(err)
		}
	}
	if deny != "" {
		rules.Deny, err = guard.ParseDeny(deny)
		if err != nil {
			tb.Fatal(err)
		}
	}
	return rules
}

// check compares a refusal: want is empty for an allowed target, else a part of the refusal.
func check(t *testing.T, refusal, want string) {
	t.Helper()
	switch {
	case want == "" && refusal != "":
		t.Errorf("got %q, want it allowed", refusal)
	case want != "" && !strings.Contains(refusal, want):
		t.Errorf("got %q, want it refused: %s", refusal, want)
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
	reserved    = "reserved addresses (built in"
	teredo      = "Teredo addresses (built in"
	isatap      = "ISATAP addresses (built in"
	own         = "addresses of this machine (built in"
)

// Every family and form of address, as a literal in a URL and as what a name resolves to.
func TestAddresses(t *testing.T) {
	tests := map[string]string{
		"127.0.0.1": loopback, "127.0.0.0": loopback, "127.255.255.255": loopback, "126.255.255.255": "",
		"128.0.0.0": "", "::1": loopback, "0:0:0:0:0:0:0:1": loopback, "::1%lo": loopback, "0.0.0.0": unspecified,
		"0.1.2.3": unspecified, "0.255.255.255": unspecified, "1.0.0.0": "", "::": unspecified, "::%eth0": unspecified,
		"169.254.169.254": linkLocal, "169.254.0.0": linkLocal, "169.254.255.255": linkLocal, "169.253.255.255": "",
		"169.255.0.0": "", "fe80::1": linkLocal, "fe80::1%eth0": linkLocal, "febf:ffff::1": linkLocal, "fe7f::1": "",
		"fec0::1": "site-local", "feff::1": "site-local", "192.0.0.192": linkLocal, "192.0.0.191": "",
		"100.100.100.200": linkLocal, "100.100.100.201": "", "fd20:ce::254": linkLocal, "fd20:ce::253": "",
		"fd00:ec2::254": linkLocal, "fd00:ec2::254%1": linkLocal, "fd00:ec2::253": "", "fd00:ec2::": "",
		"168.63.129.16": azureHost, "168.63.129.15": "", "168.63.129.17": "",
		"224.0.0.1": multicast, "239.255.255.255": multicast, "223.255.2" +
			"55.255": "", "ff00::": multicast, "ff02::1%eth0": multicast, "ffff::1": multicast,
		"255.255.255.255": broadcast, "255.255.255.254": reserved, "240.0.0.1": reserved,

		// Private networks and the rest of the world.
		"10.0.0.1": "", "172.16.0.1": "", "192.168.1.1": "", "100.64.0.1": "", "fc00::1": "", "fd12::1": "",
		"8.8.8.8": "", "2606:4700::1111": "", "2001:db8::1": "",

		// Forms of an IPv4 address with a zone, in other spellings, and what only looks like one.
		"::ffff:7f00:1": loopback, "::ffff:127.0.0.1%eth0": loopback, "64:ff9b::127.0.0.1%eth0": loopback,
		"64:ff9b::": unspecified, "64:ff9b:1::": unspecified, "2002::": unspecified, "2002:7f00:1::1": loopback,
		"64:ff9b:1:1::168.63.129.16": azureHost, "64:ff9b:0:1::127.0.0.1": "", "64:ff9c::127.0.0.1": "",
		"64:ff9b:2::127.0.0.1": "", "64:ff9b:1:0:a:0:100:0": "", "64:ff9b:1:a:0:1::": "", "64:ff9b:1:a00:0:100::": "",
		"2002:f000:1::": reserved,
		// Teredo and ISATAP.
		"2001::1": teredo, "2001:0:808:808:0:fe3f:f7f7:f7f7": teredo, "2001:1::1": "", "2001:db8::5efe:8.8.8.8": isatap,
		"2001:db8::200:5efe:8.8.8.8": isatap, "fd00::5efe:10.0.0.1": isatap, "fe80::5efe:8.8.8.8": linkLocal,
		"2001:db8::5efe:127.0.0.1": loopback, "64:ff9b:1:8:0:5efe:808:808": isatap, "2001:db8::100:5efe:8.8.8.8": "",
		"2001:db8::5efd:8.8.8.8": "",
		// The addresses of this machine, in all forms.
		"203.0.113.7": own, "203.0.113.6": "", "2001:db8::7": own, "::ffff:203.0.113.7": own,
		"64:ff9b::203.0.113.7": own, "2002:cb00:7107::": own,
	}
	for v4, want := range map[[4]byte]string{
		{127, 0, 0, 1}: loopback, {169, 254, 169, 254}: linkLocal, {168, 63, 129, 16}: azureHost,
		{0, 0, 0, 2}:   unspecified,
		{224, 0, 0, 1}: multicast, {255, 255, 255, 255}: broadcast, {10, 0, 0, 1}: "", {8, 8, 8, 8}: "",
	} {
		for form, addr := range embeddings(v4) {
			if form != "teredo" && form != "isatap" { // which are refused themselves
				tests[addr.String()] = want
			}
		}
	}
	for addr, want := range tests {
		t.Run(addr, func(t *testing.T) {
			parsed := netip.MustParseAddr(addr)
			for _, allow := range []string{
				"", "*", "target.example,*", "target.example,localhost",
				"*.example,198.51.100.0/24,*",
			} {
				rules := mustRules(t, allow, "")
				rules.Own = []netip.Addr{netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("2001:db8::7")}
				check(t, rules.Judge("target.example", parsed), want)
				if allow != "target.example,localhost" {
					check(t, rules.Judge(addr, netip.Addr{}), want)
					check(t, rules.Judge(addr, parsed), want)
				}
				rules.Allow, _ = guard.ParseAllow(parsed.WithZone("").String())
				check(t, rules.Judge("target.example", parsed), "")
			}
		})
	}
}

func TestDetail(t *testing.T) {
	rules := mustRules(t, "", "10.0.0.0/8,*.corp.example")
	for detail, v := range map[string]string{
		"169.254.169.254 is refused: link-local and metadata addresses (built in; ASYNC_CALLER_TARGETS_ALLOW can " +
			"allow it)": rules.Judge("x.example", netip.MustParseAddr("::ffff:169.254.169.254")),
		"64:ff9b::7f00:1 (which stands for 127.0.0.1) is refused: loopback addresses (built in; " +
			"ASYNC_CALLER_TARGETS_ALLOW can " +
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
		if v != detail {
			t.Errorf("got %s\nwant %s", v, detail)
		}
	}
}

const (
	byDeny  = "ASYNC_CALLER_TARGETS_DENY has "
	byAllow = "ASYNC_CALLER_TARGETS_ALLOW "
)

// An address is judged after its name: a row without one is judged by name alone.
func TestRules(t *testing.T) {
	const decides = "" // the name is not refused: the address decides
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
		"allow_name":            {"meta.example,*", "", "meta.example", "169.254.169.254", linkLocal},
		"allow_name_alone":      {"meta.example", "", "meta.example", "", decides},
		"allow_name_public":     {"meta.example", "", "meta.example", "8.8.8.8", ""},
		"allow_name_private":    {"meta.example", "", "meta.example", "10.0.0.1", ""},
		"allow_name_and_addr":   {"meta.example,169.254.169.254", "", "meta.example", "169.254.169.254", ""},
		"allow_suffix":          {"*.example,*", "", "a.b.example", "127.0.0.1", loopback},
		"localhost":             {"localhost", "", "localhost", "", decides},
		"localhost_v4":          {"localhost", "", "LocalHost.", "127.0.0.1", ""},
		"localhost_v6":          {"localhost,*", "", "localhost", "::1", ""},
		"localhost_any":         {"localhost,*", "", "localhost", "127.8.8.8", ""},
		"localhost_no_loopback": {"localhost,*", "", "localhost", "169.254.169.254", linkLocal},
		"localhost_other_form":  {"localhost,*", "", "localhost", "64:ff9b::127.0.0.1", loopback},
		"localhost_denied":      {"localhost", "127.0.0.0/8", "localhost", "127.0.0.1", byDeny},
		"localhost_not_by_addr": {"localhost,*", "", "127.0.0.1", "", loopback},
		"localhost_not_others":  {"localhost,*", "", "t.example", "127.0.0.1", loopback},
		"localhost_sub_domain":  {"localhost,*.localhost,*", "", "a.localhost", "127.0.0.1", loopback},
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
		"deny_other_address":   {"t.example", "10.0.0.0/8", "t.example", "11.0.0.1", ""},
		"deny_teredo_server":   {"2001::/32", "10.0.0.0/8", "2001:0:a00:1::", "", byDeny},
		"deny_teredo_client":   {"2001::/32", "10.0.0.0/8", "2001:0:808:808::f5ff:fffe", "", byDeny},
		"deny_teredo_other":    {"2001::/32", "10.0.0.0/8", "2001:0:808:808::f7f7:f7f7", "", ""},
		"deny_isatap":          {"2001:db8::/32", "10.0.0.0/8", "2001:db8::5efe:10.0.0.1", "", byDeny},
		"deny_isatap_global":   {"2001:db8::/32", "10.0.0.0/8", "2001:db8::200:5efe:10.0.0.1", "", byDeny},
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
		"unicode_entry":          {"", "BÜCHER.example", "XN--bcher-kva.example.", "", byDeny},
		"unicode_suffix":         {"", "*.bücher.example", "a.xn--bcher-kva.example", "", byDeny},
		"unicode_dots":           {"", "a。bücher．example", "a.xn--bcher-kva.example", "", byDeny},
		"wide_digits":            {"", "１２７.0.0.9", "127.0.0.9", "", byDeny},
		"dot_after_address":      {"", "", "127.0.0.1.", "", loopback},
		"suffix_not_itself":      {"", "*.t.example", "t.example", "", decides},
		"suffix_not_in_a_label":  {"", "*.t.example", "at.example", "", decides},
		"suffix_any_depth":       {"", "*.t.example", "a.b.c.t.example", "", byDeny},
		"suffix_of_one_label":    {"", "*.internal", "a.b.internal", "", byDeny},
		"suffix_and_name":        {"", "t.example,*.t.example", "t.example", "", byDeny},
		"suffix_not_in_a_zone":   {"*.t.example", "", "fe80::1%a.t.example", "", byAllow},
		"local_name_in_a_zone":   {"localhost", "", "fe80::1%localhost", "", byAllow},
		"local":                  {"", "", "LocalHost.", "", "127.0.0.1 is refused: " + loopback},
		"local_below":            {"", "", "a.b.localhost", "", loopback},
		"local_in_hosts_files":   {"", "", "ip6-localhost", "", loopback},
		"local_named":            {"localhost", "", "localhost", "", decides},
		"local_network":          {"127.0.0.0/8,*", "", "localhost", "", decides},
		"local_ipv6":             {"::1,*", "", "localhost", "", decides},
		"local_below_named":      {"a.localhost,*", "", "a.localhost", "", loopback},
		"local_half_denied":      {"localhost", "127.0.0.1", "localhost", "", decides},
		"local_denied":           {"localhost", "localhost", "localhost", "", byDeny},
		"local_not_named":        {"10.0.0.0/8", "", "localhost", "", byAllow},
		"local_address":          {"", "", "localhost", "10.0.0.1", ""},
		"not_local":              {"", "", "notlocalhost", "", decides},
		"not_local_either":       {"", "", "localhost.example", "", decides},
		"name_is_no_part":        {"", "example", "t.example", "", decides},
		"underscore":             {"", "my_host.example", "my_host.example", "", byDeny},
		"label_of_digits_before": {"", "3.example", "3.example", "", byDeny},
		"digits_and_letters":     {"", "3scale", "3scale", "", byDeny},
	}
	for _, host := range []string{
		"", "x。a.example", "a..example", ".a.example", "a.example..",
		"a.example:80", "a%2eexample", "a b", "0177.0.0.1", "0x7f.1", "1",
	} {
		for _, addr := range []string{"", "8.8.8.8"} {
			tests[host+addr] = struct{ allow, deny, host, addr, want string }{
				"*,*.example", "", host, addr,
				"neither a DNS name nor an IP address",
			}
		}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var addr netip.Addr
			if test.addr != "" {
				addr = netip.MustParseAddr(test.addr)
			}
			check(t, mustRules(t, test.allow, test.deny).Judge(test.host, addr), test.want)
		})
	}
}

// A short name is refused if a search list can complete it to a name that a rule has.
func TestShortName(t *testing.T) {
	const profile = "the host name is refused: it depends on a search list, and targets.json has "
	const advice = ": give the full name, or allow it in ASYNC_CALLER_TARGETS_ALLOW"
	for name, test := range map[string]struct{ allow, deny, profiles, host, want string }{
		"nothing_set":       {"", "", "", "a", ""},
		"suffix":            {"", "*.corp.test", "", "a", byDeny + "*.corp.test" + advice},
		"suffix_of_label":   {"", "*.test", "", "a.corp", byDeny},
		"case_and_dot":      {"", "a.Corp.test.", "", "A.", byDeny},
		"name":              {"", "10.0.0.0/8,a.corp.test", "", "a.corp", byDeny + "a.corp.test"},
		"name_itself":       {"", "a.corp.test", "", "a.corp.test", ""},
		"other_name":        {"", "a.corp.test", "", "corp", ""},
		"part_of_a_label":   {"", "ab.corp.test", "", "a", ""},
		"short_entry":       {"", "b", "", "a", ""},
		"network":           {"", "10.0.0.0/8", "", "a", ""},
		"address":           {"", "*.corp.test", "*.corp.test", "10.0.0.1", ""},
		"ipv6":              {"", "*.corp.test", "*.corp.test", "::1", ""},
		"allowed":           {"a,*", "*.corp.test", "*.corp.test", "A.", ""},
		"allowed_by_suffix": {"*.corp", "*.corp.test", "", "a.corp", ""},
		"star_allows_none":  {"*", "*.corp.test", "", "a", byDeny},
		"networks_no_names": {"10.0.0.0/8", "*.corp.test", "", "a", byDeny},
		"localhost":         {"", "*.corp.test", "*.corp.test", "LocalHost", ""},
		"below_localhost":   {"", "*.corp.test", "", "a.localhost", byDeny},
		"profile_of_suffix": {"", "", "*.corp.test", "a", profile + "*.corp.test" + advice},
		"profile_of_name":   {"", "", "a.corp.test", "a", profile + "a.corp.test"},
		"profile_of_port":   {"", "", "a.corp.test:8080", "a.corp", profile + "a.corp.test:8080"},
		"other_profiles":    {"", "", "*,10.1.2.3,[::1]:80,b.corp.test,a:80", "a", ""},
		"second_profile":    {"", "", "*,*.corp.test", "a", profile + "*.corp.test"},
	} {
		t.Run(name, func(t *testing.T) {
			rules := mustRules(t, test.allow, test.deny)
			rules.Profiles = strings.Split(test.profiles, ",")
			check(t, rules.JudgeShortName(test.host), test.want)
		})
	}
}

// A Host header is judged unless it means the same as the URL's host.
func TestHostHeader(t *testing.T) {
	const (
		named   = "b.example,10.0.0.0/8"
		byProxy = "the Host header is refused: it differs from the URL"
		noHost  = "the Host header is refused: it is neither"
		unnamed = "ALLOW does not name it"
		byName  = "the host name is refused: "
	)
	tests := map[string]struct{ allow, deny, url, host, direct, proxied string }{
		"none":                {"a.example", "", "http://a.example/", "", "", ""},
		"same":                {"a.example", "", "http://a.example:80/", "a.example:80", "", ""},
		"other_spelling":      {"a.example", "", "http://a.example/", "A.Example.:80", "", ""},
		"default_port":        {"a.example", "", "http://A.example.:80/", "a.example", "", ""},
		"same_address":        {"::1", "", "http://[::1]:80/", "[0:0::1]", "", ""},
		"other_port":          {"a.example", "", "http://a.example/", "a.example:8080", "", byProxy},
		"port_of_https":       {"a.example", "", "http://a.example/", "a.example:443", "", byProxy},
		"other":               {"", "", "http://a.example/", "c.example", "", byProxy},
		"other_with_star":     {"a.example,*", "", "http://a.example/", "c.example", "", byProxy},
		"metadata":            {"", "", "http://a.example/", "169.254.169.254", "", byProxy},
		"other_by_https":      {"", "", "https://a.example/", "c.example", "", ""},
		"port_by_https":       {"", "", "https://a.example/", "a.example:8443", "", ""},
		"not_named":           {"a.example", "", "https://a.example/", "c.example", unnamed, unnamed},
		"not_named_address":   {"a.example", "", "https://a.example/", "8.8.8.8:80", unnamed, unnamed},
		"not_named_network":   {"10.0.0.0/8", "", "https://10.0.0.1/", "c.example", unnamed, unnamed},
		"named":               {"a.example," + named, "", "https://a.example/", "B.Example.:1", "", ""},
		"named_address":       {"a.example," + named, "", "https://a.example/", "10.1.1.1", "", ""},
		"named_http":          {"a.example," + named, "", "http://a.example/", "b.example", "", byProxy},
		"denied":              {"", "b.example", "https://a.example/", "B.example.:1", "the Host header is refused: " + byDeny, byDeny},
		"denied_though_named": {"*.example", "b.example", "https://a.example/", "b.example", byDeny, byDeny},
		"denied_address":      {"", "10.0.0.0/8", "https://a.example/", "[::ffff:10.0.0.1]:80", byDeny, byDeny},
		"two_ports":           {"", "b.example", "https://a.example/", "b.example:80:80", noHost, noHost},
		"escape":              {"", "b.example", "https://a.example/", "b%2eexample", noHost, noHost},
		"space":               {"", "b.example", "https://a.example/", "b.example ", noHost, noHost},
		"two":                 {"", "b.example", "https://a.example/", "b.example,a.example", noHost, noHost},
		"user":                {"", "b.example", "https://a.example/", "a@b.example", noHost, noHost},
		"unicode":             {"", "b.example", "https://a.example/", "b。example", noHost, noHost},
		"bracket":             {"", "b.example", "https://a.example/", "[b.example", noHost, noHost},
		"octal":               {"", "127.0.0.1", "https://a.example/", "0177.0.0.1", noHost, noHost},
		"target_is_judged":    {"b.example", "", "https://a.example/", "b.example", byName, byName},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			target, err := url.Parse(test.url)
			if err != nil {
				t.Fatal(err)
			}
			rules := mustRules(t, test.allow, test.deny)
			for _, want := range []string{test.direct, test.proxied} {
				check(t, rules.JudgeCall(target, test.host), want)
				rules.HTTPProxy = true
			}
		})
	}
}

func TestASCII(t *testing.T) {
	for host, want := range map[string]string{
		"a.example": "a.example", "A.Example.": "A.Example.", "my_host": "my_host", "3com.example": "3com.example",
		"127.0.0.1": "127.0.0.1", "::1": "::1", "fe80::1%eth0": "fe80::1%eth0",
		"bücher.example": "xn--bcher-kva.example", "BÜCHER.Example.": "xn--bcher-kva.example.",
		"x。a.example": "x.a.example", "a．example｡": "a.example.", "１２７.0.0.1": "127.0.0.1", "ⓐ.example": "a.example",
		"faß.example": "xn--fa-hia.example", "XN--bcher-kva.example": "XN--bcher-kva.example", "": "", ".": "",
		"a..b": "", "。a.example": "", "a b": "", "a／b": "", "a：80": "", "a％2eb": "", "a＠b": "", "a%b": "", "a,b": "",
		"a:80": "", "[::1]": "", "::１": "", "fe80::1%a b": "", "bü_cher.example": "", "\xff.example": "",
		"a\u202eb.example": "", "1": "", "127.1": "", "0x7f.0.0.1": "", "０x7f.1": "", "256.1.1.1": "",
		strings.Repeat("a", 64): "", strings.Repeat("ü", 60): "", "\ufffd.example": "", strings.Repeat("a.", 128): "",
	} {
		got, err := guard.ASCII(host)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q became %q (%v), want %q", host, got, err, want)
		}
	}
}

// TestLongUnicodeHost: the time that a host takes is bounded, because Punycode takes its square.
func TestLongUnicodeHost(t *testing.T) {
	var long strings.Builder
	for c := rune(0x4e00); long.Len() < 60_000; c++ {
		long.WriteRune(c)
	}
	began := time.Now()
	if host, err := guard.ASCII(long.String()); err == nil || guard.Canonical(long.String()) != "" {
		t.Errorf("got %.100s", host)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("took %v", took)
	}
}

func TestBadEntries(t *testing.T) {
	const want = "want a network"
	for entry, want := range map[string]string{
		"10.0.0.0/33": want, "10.0.0/8": want, "::/129": want, "fe80::%eth0/10": want,
		"10.0.0.5/8": "the network is 10.0.0.0/8", "/8": want, "10.0.0.0/": want, "10.0.0.300": want, "10.0.0": want,
		"0x7f.1": want, "0X7F.1.": want, "2130706433": want, "0177.0.0.1": want, "[::1]": want, "fe80::1%eth0": want,
		"1::2::3": want, "t.example:443": want, "https://t.example/": want, "t.example/path": want, "a b": want,
		"a..b": want, ".t.example": want, "*t.example": want, "a.*.example": want, "*.*": want, "*.": want, "*.1": want,
		"**": want, "t.example;u.example": want, "\x00": want, "ex%61mple": want,
		strings.Repeat("a", 64) + ".example": want, strings.Repeat("a.", 127) + "example": want,
	} {
		for setting, parse := range map[string]func(string) (guard.List, error){
			"allow": guard.ParseAllow, "deny": guard.ParseDeny,
		} {
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
	if _, err := guard.ParseDeny("*"); err == nil ||
		!strings.Contains(err.Error(), `entry "*": only ASYNC_CALLER_TARGETS_ALLOW accepts it`) {
		t.Errorf("* in DENY: %v", err)
	}
}

// TestOneTargetManyTexts: limits that count by host or port cannot be avoided by writing it differently.
func TestOneTargetManyTexts(t *testing.T) {
	for text, want := range map[string]string{
		"a.example": "a.example", "A.Example.": "a.example", "10.1.2.3": "10.1.2.3", "::ffff:10.1.2.3": "10.1.2.3",
		"2001:DB8:0::1": "2001:db8::1", "fe80::1%eth0": "fe80::1",
	} {
		if got := guard.Canonical(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"http://a": "80", "https://a": "443", "http://a:443": "443",
		"https://a:00443": "443", "http://[::1]:8080": "8080",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := guard.Port(u); got != want {
			t.Errorf("%s: got port %s, want %s", text, got, want)
		}
	}
}
