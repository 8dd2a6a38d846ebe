package guard_test

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"asynccaller/handler/internal/rules/guard"
)

// in writes the bytes of an IPv4 address to these places of an IPv6 address.
func in(v4 [4]byte, places [4]int, base string) netip.Addr {
	b := netip.MustParseAddr(base).As16()
	for i, place := range places {
		b[place] = v4[i]
	}
	return netip.AddrFrom16(b)
}

// embeddings are the forms of an IPv4 address.
func embeddings(v4 [4]byte) map[string]netip.Addr {
	last := [4]int{12, 13, 14, 15}
	forms := map[string]netip.Addr{
		"mapped":      in(v4, last, "::ffff:0:0"),
		"translated":  in(v4, last, "::ffff:0:0:0"),
		"nat64":       in(v4, last, "64:ff9b::"),
		"local_nat64": in(v4, last, "64:ff9b:1::"),
		"6to4":        in(v4, [4]int{2, 3, 4, 5}, "2002::"),
		"teredo":      in(v4, [4]int{4, 5, 6, 7}, "2001::"),
		"isatap":      in(v4, last, "2600::200:5efe:0:0"),
	}
	if v4 != [4]byte{} && v4 != [4]byte{3: 1} { // these are :: and ::1
		forms["compatible"] = in(v4, last, "::")
	}
	if v4[0] != 0 {
		forms["local_nat64_48"] = in(v4, [4]int{6, 7, 9, 10}, "64:ff9b:1::")
		forms["local_nat64_56"] = in(v4, [4]int{7, 9, 10, 11}, "64:ff9b:1::")
		forms["local_nat64_64"] = in(v4, [4]int{9, 10, 11, 12}, "64:ff9b:1::")
	}
	return forms
}

// FuzzJudge: Judge rules on everything, and an address that is refused is so in every form, whatever the
// settings are.
func FuzzJudge(f *testing.F) {
	f.Add("t.example", "", "", uint32(0x7f000001))
	f.Add("127.0.0.1", "*", "t.example", uint32(0xa9fea9fe))
	f.Add("a。bücher.example.", "*.example,10.0.0.0/8", "10.1.0.0/16,bücher.example", uint32(0x0a010203))
	f.Add("fe80::1%eth0.t.example", "*.t.example,fe80::/10,*", "::1,0.0.0.0/0", uint32(0xa83f8110))
	f.Add("0x7f.1", "127.0.0.0/8,::1,*", "1.2.3.4", uint32(0x00010203))
	f.Add("a.0x1", "a.example", "*", uint32(0x08080808))
	f.Add("t.example", "10.0.0.0/8", "", uint32(0x08080808))
	f.Add("t.example", "a.example", "", uint32(0x08080808))
	f.Add("\xff", "b.example", "0:", uint32(0x08080808))
	f.Fuzz(func(t *testing.T, host, allow, deny string, number uint32) {
		rules := guard.Rules{}
		var err error
		rules.Allow, err = guard.ParseAllow(allow)
		if err != nil {
			rules.Allow, allow = guard.List{}, ""
		}
		rules.Deny, err = guard.ParseDeny(deny)
		if err != nil {
			rules.Deny = guard.List{}
		}
		v4 := [4]byte{byte(number >> 24), byte(number >> 16), byte(number >> 8), byte(number)}
		byName := rules.Judge(host, netip.Addr{})
		plain := rules.Judge(host, netip.AddrFrom4(v4))
		rules.JudgeCall(&url.URL{Scheme: "http", Host: "t.example"}, host)
		if _, err := netip.ParseAddr(strings.TrimSuffix(host, ".")); err != nil && byName != "" && plain == "" {
			t.Fatal("an address overrides a refusal by name")
		}
		denied := strings.HasPrefix(byName, "the host name is refused: "+guard.DenySetting)
		for i, c := range host {
			short := host[:i]
			if !denied || c != '.' || guard.Canonical(short) == "localhost" {
				continue
			}
			if (guard.Rules{Deny: rules.Deny}).JudgeShortName(short) == "" {
				t.Fatalf("%q is denied, but its short form %q is not", host, short)
			}
		}
		if ascii, err := guard.ASCII(host); err != nil && byName == "" {
			t.Fatal("a host that is none is not refused")
		} else if again, err := guard.ASCII(ascii); err != nil && ascii != "" || again != ascii {
			t.Fatalf("%q becomes %q and then %q", host, ascii, again)
		}
		if plain == "" || strings.Contains(allow, ":") {
			return // an entry of ALLOW may name one form and not the other
		}
		for name, form := range embeddings(v4) {
			if rules.Judge(host, form) == "" {
				t.Errorf("%v is refused (%s), but as %s, %v, it is not", netip.AddrFrom4(v4), plain, name, form)
			}
		}
	})
}
