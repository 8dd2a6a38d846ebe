package edit

import (
	"errors"
	"net/url"
	"strings"

	"asynccaller/handler/internal/envelope"
)

// HostChange puts another host in the place of one, wherever a call or a callback goes to it.
type HostChange struct {
	old, replacement authority
	// scheme is the new one, or empty to keep the old.
	scheme string
}

// authority is a host and its port, as in a URL; the port may be empty.
type authority struct{ host, port string }

func (a authority) String() string {
	if a.port == "" {
		return a.host
	}
	return a.host + ":" + a.port
}

// ParseReplaceHost reads the argument of --replace-host, OLD=NEW. OLD is a host with or without a port; with
// one it means only URLs that name this port, without one those with any. NEW is likewise a host, whose
// port is the old one's unless it has one, and may have a scheme before it: https://new.example:8443. Letter
// case does not count.
//
// The host of the call's URL and of the callback's is replaced, and a Host header of the envelope's own.
// Where OLD stands nowhere nothing changes, which is no error: [Edits.Apply] then returns equal content.
func ParseReplaceHost(argument string) (HostChange, error) {
	from, to, found := strings.Cut(argument, "=")
	wrong := errors.New("--replace-host: want OLD=NEW, such as old.example=https://new.example:8443")
	if !found {
		return HostChange{}, wrong
	}
	var change HostChange
	var ok bool
	if change.old, ok = parseAuthority(from); !ok {
		return HostChange{}, wrong
	}
	if scheme, rest, found := strings.Cut(to, "://"); found {
		change.scheme, to = strings.ToLower(scheme), rest
		if change.scheme != "http" && change.scheme != "https" {
			return HostChange{}, wrong
		}
	}
	if change.replacement, ok = parseAuthority(to); !ok {
		return HostChange{}, wrong
	}
	return change, nil
}

// parseAuthority reads a host with at most a port: nothing that would make another URL of it.
func parseAuthority(text string) (authority, bool) {
	parsed, err := url.Parse("http://" + text)
	if err != nil || parsed.Host != text {
		return authority{}, false
	}
	if _, err := envelope.ParseURL("http://" + text); err != nil {
		return authority{}, false
	}
	return splitAuthority(text), true
}

// splitAuthority splits a host from its port; brackets around an IPv6 address stay.
func splitAuthority(text string) authority {
	if colon := strings.LastIndexByte(text, ':'); colon > strings.LastIndexByte(text, ']') {
		return authority{host: text[:colon], port: text[colon+1:]}
	}
	return authority{host: text}
}

// in returns what takes the place of a host with or without a port, and whether something does.
func (c HostChange) in(text string) (string, bool) {
	found := splitAuthority(text)
	if !strings.EqualFold(found.host, c.old.host) || (c.old.port != "" && found.port != c.old.port) {
		return text, false
	}
	replacement := c.replacement
	if replacement.port == "" {
		replacement.port = found.port
	}
	return replacement.String(), true
}

// inHost changes the value of a Host header.
func (c HostChange) inHost(value string) string {
	replaced, _ := c.in(value)
	return replaced
}

// inURL changes a URL. All but the scheme and the host stays byte for byte: what else is in it may be
// written in a way that the target insists on.
func (c HostChange) inURL(text string) string {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return text
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	start := strings.LastIndexByte(rest[:end], '@') + 1
	replaced, ok := c.in(rest[start:end])
	if !ok {
		return text
	}
	return c.schemeFor(scheme) + "://" + rest[:start] + replaced + rest[end:]
}

func (c HostChange) schemeFor(old string) string {
	if c.scheme == "" {
		return old
	}
	return c.scheme
}
