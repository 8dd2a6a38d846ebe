// Package guard judges targets: which hosts and addresses the handler may call. It is pure: values in, a judgement
// out. The code that dials asks it about the address that it is going to connect to.
package guard

import (
	"net/netip"
	"strings"

	"golang.org/x/net/idna"
)

// The settings with the rules. A refusal names the setting, so that the operator knows what to change.
const (
	AllowSetting = "ASYNC_CALLER_TARGETS_ALLOW"
	DenySetting  = "ASYNC_CALLER_TARGETS_DENY"
)

// Rules say which targets may be called. An entry of Deny overrides everything; an entry of Allow overrides the
// built-in refusals. A target that Allow does not name is refused, unless Allow is empty or has the entry "*": then
// only the built-in refusals remain. The zero value has only the built-in refusals.
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
	if _, ok := find(r.Allow.entries, forms[0]); ok {
		return Judgement{Verdict: Allowed}
	}
	if !r.Allow.open() {
		return refused(describe(forms, 0), AllowSetting+" names neither it nor its host name")
	}
	for i, form := range forms {
		if rule, ok := find(builtIn, form); ok {
			return refused(describe(forms, i), rule.text+" (built in; "+AllowSetting+" can allow it)")
		}
	}
	return Judgement{Verdict: Allowed}
}

func (r Rules) denied(forms []netip.Addr) Judgement {
	for i, form := range forms {
		if listed, ok := find(r.Deny.entries, form); ok {
			return refused(describe(forms, i), DenySetting+" has "+listed.text)
		}
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
