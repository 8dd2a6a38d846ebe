package inspect

import (
	"net/url"
	"slices"
	"strings"

	"asynccaller/handler/internal/secret"
)

// Secrets says whether secrets are shown. The zero value masks them.
type Secrets bool

// The values of Secrets.
const (
	Masked   Secrets = false
	Revealed Secrets = true
)

// masker hides secrets. It remembers which, so that another masker can tell those that differ.
type masker struct {
	secrets Secrets
	// hidden are the secrets by where they stand, in their order; before are those of the text that this
	// one is compared with, nil when it is compared with none.
	hidden, before map[string][]string
	count          int
}

const (
	masked  = "***"
	changed = "*** (changed)"
)

// hide returns what is shown in place of a secret.
func (m *masker) hide(where, value string) string {
	if m.secrets == Revealed || value == "" {
		return value
	}
	if m.hidden == nil {
		m.hidden = map[string][]string{}
	}
	n := len(m.hidden[where])
	m.hidden[where] = append(m.hidden[where], value)
	m.count++
	if n < len(m.before[where]) && m.before[where][n] != value {
		return changed
	}
	return masked
}

// schemes are the ways to authorize whose names stand before a credential. Any other first word may be part
// of the secret.
var schemes = []string{
	"basic", "bearer", "digest", "negotiate", "ntlm", "dpop", "hawk", "sharedkey", "sharedkeylite", "apikey", "aws4-hmac-sha256", "token",
}

// secret hides a value, but for the name of a scheme before it.
func (m *masker) secret(where, value string) string {
	scheme, rest, ok := strings.Cut(value, " ")
	if ok && rest != "" && slices.Contains(schemes, strings.ToLower(scheme)) {
		return scheme + " " + m.hide(where, rest)
	}
	return m.hide(where, value)
}

// header returns what may be shown of a header's value.
func (m *masker) header(where, name, value string) string {
	if secret.Is(name) {
		return m.secret(where, value)
	}
	return m.text(where, value)
}

// url returns what may be shown of a URL, or of the path and query of one: the names of a query's
// parameters, and neither their values nor user info.
func (m *masker) url(where, text string) string {
	if m.secrets == Revealed {
		return text
	}
	rest, fragment, hasFragment := strings.Cut(text, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	shown := m.authority(where, rest)
	if hasQuery {
		shown += "?" + m.query(where, query)
	}
	if hasFragment {
		shown += "#" + m.hide(where+"#", fragment)
	}
	return shown
}

func (m *masker) query(where, query string) string {
	parts := strings.Split(query, "&")
	for i, part := range parts {
		if name, value, ok := strings.Cut(part, "="); ok {
			parts[i] = name + "=" + m.hide(where+"?"+name, value)
		} else {
			parts[i] = m.hide(where+"?", part)
		}
	}
	return strings.Join(parts, "&")
}

// authority hides the user info of a URL without a query, and in its path what a telling name stands before.
func (m *masker) authority(where, text string) string {
	start := urlStart(text)
	if start == 0 {
		return m.pairs(where, text)
	}
	end := start + untilAny(text[start:], `/\`)
	at := strings.LastIndexByte(text[start:end], '@')
	if at < 0 && !hasPort(text[start:end]) { // a password may hold a slash that should have been escaped
		at = strings.LastIndexByte(text[start:], '@')
	}
	switch {
	case at < 0 && !hasPort(text[start:end]): // user info that was cut off
		return text[:start] + m.hide(where+"@", text[start:])
	case at < 0:
		return text[:end] + m.pairs(where, text[end:])
	}
	at += start
	end = max(end, at)
	return text[:start] + m.hide(where+"@", text[start:at]) + text[at:end] + m.pairs(where, text[end:])
}

// hasPort reports whether what follows an authority's last colon is a port, if there is one.
func hasPort(authority string) bool {
	colon := strings.LastIndexByte(authority, ':')
	return colon < strings.LastIndexByte(authority, ']') || strings.Trim(authority[colon+1:], "0123456789") == "" || colon < 0
}

// urlStart is where the authority begins in a text that begins with a scheme; 0 when it does not. JSON may
// have its slashes escaped.
func urlStart(text string) int {
	scheme := 0
	for scheme < len(text) && inName(text[scheme]) {
		scheme++
	}
	for _, separator := range []string{"://", `:\/\/`} {
		if scheme > 0 && strings.HasPrefix(text[scheme:], separator) {
			return scheme + len(separator)
		}
	}
	return 0
}

// form returns what may be shown of an HTML form as it is sent.
func (m *masker) form(where, body string) string {
	if m.secrets == Revealed {
		return body
	}
	parts := strings.Split(body, "&")
	for i, part := range parts {
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			parts[i] = m.text(where, part)
			continue
		}
		plain, err := url.QueryUnescape(name)
		if err != nil || secret.Is(plain) {
			parts[i] = name + "=" + m.hide(where+"&"+name, value)
			continue
		}
		if plain, err := url.QueryUnescape(value); err == nil {
			if shown := m.text(where+"&"+name, plain); shown != plain {
				value = shown
			}
		}
		parts[i] = name + "=" + value
	}
	return strings.Join(parts, "&")
}
