// Package mask shows the content of messages and answers, and masks their secrets unless the caller reveals them. It
// shows only what is known to be safe, and is pure.
//
// In headers, JSON and forms it hides the values that belong to secret names; of URLs user info, and the values in the
// query. Of any other text, such as HTML, XML, YAML or a stack trace, it shows the first line, or the title, up to the
// name of a secret. It does not find secrets without a telling name, such as a password in a sentence or an id in a
// path. All results are printable: other characters become U+FFFD or, in JSON, an escape.
package mask

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"asynccaller/handler/internal/plain/secret"
	"asynccaller/handler/internal/rules/envelope"
)

// Secrets says whether secrets are shown. The zero value masks them.
type Secrets bool

// The values of Secrets.
const (
	Hidden   Secrets = false
	Revealed Secrets = true
)

// masker hides secrets, and remembers them so that another masker can mark those that differ.
type masker struct {
	secrets Secrets
	// hidden are the secrets by their position, in order. Before are those of the content to compare with; nil if there
	// is none.
	hidden, before map[string][]string
	count          int
	// isPart says that only a part of a text is shown, and isBeginning that JSON is only the beginning of a text.
	isPart, isBeginning bool
	// embedded are the members that embed content, by their path in lower case.
	embedded map[string]envelope.Embedded
	// root is the content of the whole message, if that is shown.
	root []byte
}

func newMasker(secrets Secrets) *masker {
	m := &masker{secrets: secrets, hidden: map[string][]string{}, embedded: map[string]envelope.Embedded{}}
	for _, e := range envelope.EmbeddedMembers() {
		m.embedded[strings.ToLower("."+strings.Join(e.Path, "."))] = e
	}
	return m
}

// hide returns the text to show instead of a secret.
func (m *masker) hide(where, value string) string { return m.mark(where, "***", value) }

// rest returns the mark for what is left out of a text.
func (m *masker) rest(where, whole string) string {
	m.isPart = true
	return " " + m.mark(where+"…", "…", whole)
}

// mark returns a mark to show instead of a value. It says whether the value differs from that of the content to compare
// with.
func (m *masker) mark(where, mark, value string) string {
	if m.secrets == Revealed || value == "" {
		return value
	}
	n := len(m.hidden[where])
	m.hidden[where] = append(m.hidden[where], value)
	m.count++
	if before := m.before[where]; n < len(before) && before[n] != value {
		mark += " (changed)"
	}
	return mark
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
// their values nor user info. It hides a URL that does not parse.
func (m *masker) url(where, text string) string {
	if m.secrets == Revealed {
		return text
	}
	if _, err := url.Parse(text); err != nil {
		return m.hide(where, text)
	}
	part := urlParts.FindStringSubmatch(text)
	shown := part[1]
	if user, ok := strings.CutSuffix(part[2], "@"); ok {
		shown += m.hide(where+"@", user) + "@"
	}
	shown += part[3] + m.path(where, part[4])
	if query, ok := strings.CutPrefix(part[5], "?"); ok {
		shown += "?" + m.query(where, query)
	}
	if fragment, ok := strings.CutPrefix(part[6], "#"); ok {
		shown += "#" + m.hide(where+"#", fragment)
	}
	return shown
}

// urlParts matches the scheme of a URL, its user info, host, path, query and fragment.
var urlParts = regexp.MustCompile(`(?s)^((?:[0-9A-Za-z_.-]+:)?//)?([^/?#]*@)?([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?$`)

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

// path hides what follows the first secret name and its separator, as in "/a;session=x".
func (m *masker) path(where, path string) string {
	for _, at := range nameEnds.FindAllStringIndex(path, -1) {
		if secret.Is(path[at[0] : at[1]-1]) {
			return path[:at[1]] + m.hide(where+";", path[at[1]:])
		}
	}
	return path
}

// nameEnds matches the names in a path, with the character between name and value.
var nameEnds = regexp.MustCompile(`[0-9A-Za-z_.-]+[=:]`)

// form returns an encoded HTML form with its secrets masked. It hides a body that is no form.
func (m *masker) form(where, body string) string {
	if _, err := url.ParseQuery(body); err != nil {
		return m.hide(where, body)
	}
	parts := strings.Split(body, "&")
	for i, part := range parts {
		name, value, isPair := strings.Cut(part, "=")
		plainName, _ := url.QueryUnescape(name)
		masked := m.encoded(where, name)
		switch {
		case isPair && secret.Is(plainName):
			masked += "=" + m.hide(where+"&"+name, value)
		case isPair:
			masked += "=" + m.encoded(where+"&"+name, value)
		}
		parts[i] = masked
	}
	return strings.Join(parts, "&")
}

// encoded returns a valid part of a form as it is or, if it holds secrets, decoded and masked.
func (m *masker) encoded(where, part string) string {
	plain, _ := url.QueryUnescape(part)
	if shown := m.text(where, plain); shown != plain {
		return shown
	}
	return part
}
