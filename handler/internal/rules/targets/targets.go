// Package targets reads targets.json, the operator's profiles of targets: limits, timeout, retry policy, statuses,
// headers, credential, signatures and circuit breaker by host. It is pure.
package targets

import (
	"cmp"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"asynccaller/handler/internal/plain/secret"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/certificate"
	"asynccaller/handler/internal/rules/dotnet"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/rules/retry"
)

// MaxCalls is about how many calls are in flight at most, to all targets together.
const MaxCalls = 512

// Profile says how a target is called.
type Profile struct {
	// Pattern is the pattern of the entry that applies, as in the file, or the host for which an operator has set a
	// limit; empty if there is neither.
	Pattern string
	// Scope is what Concurrency and Rate count: the target's host, with its port if the pattern names one.
	Scope string
	// Concurrency is the largest number of calls at a time; 0 means that the target's share decides.
	Concurrency int
	// Rate is the largest number of calls per second, with bursts of up to Burst calls; 0 means no limit. RateText is
	// the rate as in the file.
	Rate     rate.Limit
	Burst    int
	RateText string
	// To is the scheme, the host and the port to which calls are made instead; nil if the target has not moved. Such a
	// profile has nothing else.
	To *url.URL
	// History is what is kept of calls that have ended; empty means that the setting applies.
	History History
	// Timeout is the longest duration of a call; 0 means that the setting applies.
	Timeout time.Duration
	// Retry is the policy of an envelope that asks for none; nil means that the setting applies.
	Retry *retry.Policy
	// Statuses says for single statuses whether a call that is answered with one is retried or rejected; the setting
	// applies to the others. 2xx is none of them.
	Statuses map[int]bool
	// Headers are added to a call whose envelope does not have them. The names are canonical, and Spelling has the
	// file's spelling.
	Headers  http.Header
	Spelling dotnet.Spelling
	// Secrets are what must not be shown of the headers, and the secrets of signatures in base64.
	Secrets []secret.Text
	// Auth is nil if calls get no credential.
	Auth *Auth
	// Certificate is presented to the target, and nil if none is. Authorities are trusted for it; nil means those of
	// the system.
	Certificate *Certificate
	Authorities *certificate.Authorities
	// Sign is nil if calls are not signed.
	Sign    SigningKeys
	Breaker Breaker
}

// History says what is kept of calls that have ended.
type History string

// The values of History.
const (
	HistoryOff History = "off"
	// HistoryOutcomes keeps how each call ended, best effort.
	HistoryOutcomes History = "outcomes"
	// HistoryCheck also keeps a call that was delivered from being made again.
	HistoryCheck History = "check"
)

// IsLimited reports whether the calls are limited.
func (p Profile) IsLimited() bool { return p.Concurrency > 0 || p.Rate > 0 }

// Breaker holds the parameters of a target's circuit breaker.
type Breaker struct {
	Off bool
	// Failures is the number of failures in a row that open it.
	Failures int
	// MinDelay and MaxDelay are the shortest and longest time for which a message is rescheduled while it is open.
	MinDelay, MaxDelay time.Duration
}

// defaultProfile is the profile of a target without an entry. An entry without a member has the value from here.
var defaultProfile = Profile{Breaker: Breaker{Failures: 5, MinDelay: 5 * time.Second, MaxDelay: 15 * time.Minute}}

// Profiles are the entries of targets.json. The zero value has none.
type Profiles struct {
	// entries has the profiles by host, host:port, suffix with its leading dot, or star. The scope of an entry with a
	// port is set.
	entries map[string]Profile
	// longest is the longest timeout.
	longest time.Duration
}

const star = "*"

// For returns the profile of a target: that of the most specific pattern that matches its host, or the default one.
// Profiles are not merged.
func (p Profiles) For(target *url.URL) Profile {
	host := name(target)
	if len(p.entries) == 0 {
		profile := defaultProfile
		profile.Scope = host
		return profile
	}
	return p.ofHost(host, Address(target))
}

// OfHost returns the profile of a host in the form of [ParseHost]. Without a port, it is that of all ports without an
// entry of their own.
func (p Profiles) OfHost(text string) Profile {
	return p.ofHost(WithoutPort(text), text)
}

func (p Profiles) ofHost(host, address string) Profile {
	profile := p.find(host, address)
	profile.Scope = cmp.Or(profile.Scope, host)
	return profile
}

func (p Profiles) find(host, address string) Profile {
	for _, key := range []string{address, host} {
		if profile, ok := p.entries[key]; ok {
			return profile
		}
	}
	for rest := host; rest != ""; {
		_, after, found := strings.Cut(rest, ".")
		if profile, ok := p.entries["."+after]; found && ok {
			return profile
		}
		rest = after
	}
	if profile, ok := p.entries[star]; ok {
		return profile
	}
	return defaultProfile
}

// NeedTable reports whether an entry has limits, which hold for all instances together.
func (p Profiles) NeedTable() bool {
	for _, profile := range p.entries {
		if profile.IsLimited() {
			return true
		}
	}
	return false
}

// KeepHistory reports whether an entry asks to keep something of its calls.
func (p Profiles) KeepHistory() bool {
	for _, profile := range p.entries {
		if profile.History != "" && profile.History != HistoryOff {
			return true
		}
	}
	return false
}

// ByPattern returns the profiles of all entries by their patterns, with names in the form of [guard.Canonical].
func (p Profiles) ByPattern() map[string]Profile {
	profiles := map[string]Profile{}
	for key, profile := range p.entries {
		profiles[patternOf(key)] = profile
	}
	return profiles
}

// Patterns returns the patterns of all entries, as [Profiles.ByPattern] has them.
func (p Profiles) Patterns() []string { return slices.Sorted(maps.Keys(p.ByPattern())) }

// patternOf returns the pattern of a key of [Profiles].
func patternOf(key string) string {
	if strings.HasPrefix(key, ".") {
		return star + key
	}
	return key
}

// LongestTimeout returns the longest timeout of any entry; 0 if none has one.
func (p Profiles) LongestTimeout() time.Duration { return p.longest }

// WithoutPort returns a host in the form of [ParseHost] without its port.
func WithoutPort(text string) string {
	host, _, err := net.SplitHostPort(text)
	if err != nil { // it has none
		return text
	}
	return bracketed(host)
}

// Keys returns the texts that name exactly this target, in the form of [ParseHost]: its host and port, and its host.
func Keys(target *url.URL) []string {
	return []string{Address(target), name(target)}
}

// Address returns the host and port of a target. It is the same for all URLs that mean the same host and port.
func Address(target *url.URL) string {
	return net.JoinHostPort(guard.Canonical(target.Hostname()), guard.Port(target))
}

// maxHost limits what [Host] returns, in bytes, and maxName the name in it.
const (
	maxHost = 128
	maxName = maxHost - len(":65535")
)

// Host returns the host and port of a target in the one spelling that rows, numbers and people have. It is the same for
// all URLs of a scheme that mean the same host and port: a name in ASCII, in lower case and without a final dot, or an
// address, an IPv6 one in brackets and without a zone; then the port, unless it is the default of the scheme. A long
// name is cut. The result shares no memory with the URL, which may be a small part of a large message.
func Host(target *url.URL) string {
	host := strings.TrimSuffix(text.Clip(name(target), maxName), ".")
	port := guard.Port(target)
	switch {
	case host == "": // no call has such a host
		host = strings.ToLower(target.Host)
	case port != guard.Port(&url.URL{Scheme: target.Scheme}):
		host += ":" + port
	}
	return strings.Clone(text.Clip(host, maxHost))
}

// HostOf returns the spelling of [Host] for the host of a row, a filter or an operator. It keeps a port, because the
// text does not say whether it is that of http or https. A text that is no host is in lower case, and cut.
func HostOf(host string) string { return Host(&url.URL{Host: bracketed(host)}) }

// name returns the host of a target without its port; empty if it is none.
func name(target *url.URL) string { return bracketed(guard.Canonical(target.Hostname())) }

// bracketed returns a host with brackets if it is an IPv6 address.
func bracketed(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is6() {
		return "[" + host + "]"
	}
	return host
}
