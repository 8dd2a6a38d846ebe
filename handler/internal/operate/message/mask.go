package message

import (
	"net/url"
	"slices"
	"strings"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/secret"
)

// Secrets says whether secrets are shown. The zero value masks them.
type Secrets bool

// The values of Secrets.
const (
	Masked   Secrets = false
	Revealed Secrets = true
)

// masker hides secrets, and remembers them so that another masker can mark those that differ.
type masker struct {
	secrets Secrets
	// hidden are the secrets by their position, in order. Before are those of the content to compare with; nil if there
	// is none.
	hidden, before map[string][]string
	count          int
	// embedded are the members that embed content, by their path in lower case. Opaque are the names of those that are
	// base64.
	embedded map[string]envelope.Embedded
	opaque   map[string]bool
	// root is the content of the whole message, if that is shown.
	root []byte
}

func newMasker(secrets Secrets) *masker {
	m := &masker{
		secrets: secrets, hidden: map[string][]string{}, embedded: map[string]envelope.Embedded{},
		opaque: map[string]bool{},
	}
	for _, e := range envelope.EmbeddedMembers() {
		m.embedded[strings.ToLower("."+strings.Join(e.Path, "."))] = e
		if e.Base64 {
			m.opaque[strings.ToLower(e.Path[len(e.Path)-1])] = true
		}
	}
	return m
}

// isOpaque reports whether a member is base64 of content that may hold secrets. In broken JSON the base64 may be
// incomplete.
func (m *masker) isOpaque(name string) bool { return m.opaque[strings.ToLower(name)] }

// hide returns the text to show instead of a secret.
func (m *masker) hide(where, value string) string {
	if m.secrets == Revealed || value == "" {
		return value
	}
	n := len(m.hidden[where])
	m.hidden[where] = append(m.hidden[where], value)
	m.count++
	if n < len(m.before[where]) && m.before[where][n] != value {
		return "*** (changed)"
	}
	return "***"
}

// schemes are the authorization schemes that come before a credential. Any other first word may be part of the secret.
var schemes = []string{
	"basic", "bearer", "digest", "negotiate", "ntlm", "dpop", "hawk", "sharedkey", "sharedkeylite", "apikey",
	"aws4-hmac-sha256", "token",
}

// credential hides a value except for the name of an authorization scheme.
func (m *masker) credential(where, value string) string {
	scheme, rest, _ := strings.Cut(value, " ")
	if rest != "" && slices.Contains(schemes, strings.ToLower(scheme)) {
		return scheme + " " + m.hide(where, rest)
	}
	return m.hide(where, value)
}

// header returns a header's value with its secrets masked.
func (m *masker) header(where, name, value string) string {
	if secret.Is(name) {
		return m.credential(where, value)
	}
	return m.text(where, value)
}

// url returns what may be shown of a URL, or of the path and query of one: the names of query parameters, but neither
// their values nor user info.
func (m *masker) url(where, text string) string {
	if m.secrets == Revealed {
		return text
	}
	rest, fragment, hasFragment := strings.Cut(text, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	shown := m.authority(where, rest)
	if hasQuery {
		parts := strings.Split(query, "&")
		for i, part := range parts {
			if name, value, ok := strings.Cut(part, "="); ok {
				parts[i] = name + "=" + m.hide(where+"?"+name, value)
			} else {
				parts[i] = m.hide(where+"?", part)
			}
		}
		shown += "?" + strings.Join(parts, "&")
	}
	if hasFragment {
		shown += "#" + m.hide(where+"#", fragment)
	}
	return shown
}

// authority hides the user info of a URL without a query, and the values of secret names in its path.
func (m *masker) authority(where, text string) string {
	start := urlStart(text)
	if start == 0 {
		return m.pairs(where, text)
	}
	end := start + untilAny(text[start:], `/\`)
	at := strings.LastIndexByte(text[start:end], '@')
	if at < 0 && !hasPort(text[start:end]) { // a password may hold a slash that should have been escaped
		at = strings.LastIndexByte(text[start:], '@')
		if at < 0 { // the user info was cut off
			return text[:start] + m.hide(where+"@", text[start:])
		}
	}
	if at < 0 {
		return text[:end] + m.pairs(where, text[end:])
	}
	at += start
	end = max(end, at)
	return text[:start] + m.hide(where+"@", text[start:at]) + text[at:end] + m.pairs(where, text[end:])
}

// hasPort reports whether the text after an authority's last colon, if there is one, is a port.
func hasPort(authority string) bool {
	colon := strings.LastIndexByte(authority, ':')
	return colon < strings.LastIndexByte(authority, ']') || strings.Trim(authority[colon+1:], digits) == "" || colon < 0
}

// urlStart returns where the authority begins in a text that begins with a scheme, otherwise 0. JSON may escape
// slashes.
func urlStart(text string) int {
	scheme := span(text, nameChars)
	for _, separator := range []string{"://", `:\/\/`} {
		if scheme > 0 && strings.HasPrefix(text[scheme:], separator) {
			return scheme + len(separator)
		}
	}
	return 0
}

// form returns an encoded HTML form with its secrets masked.
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
			value = m.hide(where+"&"+name, value)
		} else if plain, err := url.QueryUnescape(value); err == nil {
			if shown := m.text(where+"&"+name, plain); shown != plain {
				value = shown
			}
		}
		parts[i] = name + "=" + value
	}
	return strings.Join(parts, "&")
}
