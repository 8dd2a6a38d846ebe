package edit

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strings"

	"asynccaller/handler/internal/envelope"
)

// hostChange replaces a host by another one.
type hostChange struct {
	old, replacement authority
	scheme           string // empty keeps the scheme
}

// authority is a host and a port, as in a URL. The port may be empty.
type authority struct{ host, port string }

// ParseReplaceHost reads the argument of --replace-host, OLD=NEW. The edit replaces a host in the URLs of the call and of the
// callback, and in a Host header. OLD is a host with or without a port; with a port, it
// matches only URLs that have this port. NEW is a host, with the old port unless it has its own, and may have a scheme:
// https://new.example:8443. Letter case does not matter.
//
// It is not an error if OLD does not occur: [Edits.Apply] then returns equal content.
func ParseReplaceHost(argument string) (Edit, error) {
	from, to, found := strings.Cut(argument, "=")
	var change hostChange
	if scheme, rest, hasScheme := strings.Cut(to, "://"); hasScheme {
		change.scheme, to = strings.ToLower(scheme), rest
		found = found && (change.scheme == "http" || change.scheme == "https")
	}
	if !found || !isAuthority(from) || !isAuthority(to) {
		return Edit{}, errors.New("want OLD=NEW, such as old.example=https://new.example:8443")
	}
	change.old, change.replacement = splitAuthority(from), splitAuthority(to)
	return Edit{flag: "--replace-host", order: orderHost, apply: func(_ context.Context, content []byte) ([]byte, error) {
		return envelope.ReplaceHost(content, change.replace)
	}}, nil
}

// isAuthority reports whether a text is a host with at most a port, and cannot make a URL into another one.
func isAuthority(text string) bool {
	parsed, err := url.Parse("http://" + text)
	if err != nil || parsed.Host != text {
		return false
	}
	_, err = envelope.ParseURL("http://" + text)
	return err == nil
}

// splitAuthority splits a host from its port. The brackets around an IPv6 address stay.
func splitAuthority(text string) authority {
	if colon := strings.LastIndexByte(text, ':'); colon > strings.LastIndexByte(text, ']') {
		return authority{host: text[:colon], port: text[colon+1:]}
	}
	return authority{host: text}
}

// replace is an [envelope.HostReplacer].
func (c hostChange) replace(scheme, host string) (newScheme, newHost string) {
	found := splitAuthority(host)
	if !strings.EqualFold(found.host, c.old.host) || (c.old.port != "" && found.port != c.old.port) {
		return scheme, host
	}
	newHost = c.replacement.host
	if port := cmp.Or(c.replacement.port, found.port); port != "" {
		newHost += ":" + port
	}
	return cmp.Or(c.scheme, scheme), newHost
}
