package inspect

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/envelope"
)

// Filter chooses messages: those that match all of its fields. A zero field matches every message; of a list
// one entry has to match.
type Filter struct {
	Reasons []string
	// Statuses are latest answers; 0 is no answer.
	Statuses []int
	// Hosts and Methods are compared without their letter case. A host is a name, with any port unless it
	// names one, or "*.suffix", which is every name below the suffix.
	Hosts, Methods []string
	// Since and Until bound Message.Since: from the one up to, not including, the other.
	Since, Until time.Time
	RequestID    string
	// ID is as [MatchID] takes it.
	ID string
	// Text is searched, without regard to letter case, in the content, in what of the envelope is encoded
	// there, and in Message.Detail.
	Text string
	// MinAttempts is the smallest number of attempts.
	MinAttempts int
	Group       *Group
}

// Match reports whether the filter chooses a message. Content is what [Rules.Content] returns for it. It is
// only looked at when Text is set, and may be nil otherwise.
func (f Filter) Match(m Message, content []byte) bool {
	switch {
	case len(f.Reasons) > 0 && !slices.Contains(f.Reasons, m.Reason),
		len(f.Statuses) > 0 && !slices.Contains(f.Statuses, m.Status),
		len(f.Methods) > 0 && !slices.ContainsFunc(f.Methods, func(method string) bool { return strings.EqualFold(method, m.Method) }),
		len(f.Hosts) > 0 && !slices.ContainsFunc(f.Hosts, func(host string) bool { return matchHost(host, m.Host) }),
		!f.Since.IsZero() && m.Since.Before(f.Since),
		!f.Until.IsZero() && !m.Since.Before(f.Until),
		f.RequestID != "" && f.RequestID != m.RequestID,
		f.ID != "" && !MatchID(m, f.ID),
		m.Attempts < f.MinAttempts,
		f.Group != nil && !f.Group.Match(m):
		return false
	}
	return f.Text == "" || contains(m, content, f.Text)
}

// minPrefix is long enough that a prefix of a GUID hardly ever names two messages.
const minPrefix = 8

// MatchID reports whether an id names the message: it is the message's id, the request's, or the beginning of
// the message's, at least 8 characters long. The letter case of a message's id does not count.
func MatchID(m Message, id string) bool {
	if id == "" {
		return false
	}
	if id == m.RequestID || strings.EqualFold(id, m.ID) {
		return true
	}
	return len(id) >= minPrefix && len(id) < len(m.ID) && strings.EqualFold(id, m.ID[:len(id)])
}

// matchHost compares a host with what a person asks for. No pattern matches a message without an envelope.
func matchHost(pattern, host string) bool {
	if host == "" {
		return false
	}
	pattern = strings.ToLower(pattern)
	name, port := splitPort(pattern)
	hostName, hostPort := splitPort(host)
	if port != "" && port != hostPort {
		return false
	}
	if suffix, ok := strings.CutPrefix(name, "*"); ok {
		return strings.HasPrefix(suffix, ".") && len(hostName) > len(suffix) && strings.HasSuffix(hostName, suffix)
	}
	return name == hostName
}

// splitPort tells the port from a host. The colons of an IPv6 address stand in brackets.
func splitPort(host string) (name, port string) {
	colon := strings.LastIndexByte(host, ':')
	if colon < 0 || colon < strings.LastIndexByte(host, ']') {
		return host, ""
	}
	return host[:colon], host[colon+1:]
}

// contains searches what a person may have seen of the message. An envelope is read only if the bytes as
// they stand do not hold the text: JSON escapes quotes and more, and Nexus has the whole call in base64.
func contains(m Message, content []byte, text string) bool {
	wanted := strings.ToLower(text)
	holds := func(s string) bool { return strings.Contains(strings.ToLower(s), wanted) }
	if holds(m.Detail) || bytes.Contains(bytes.ToLower(content), []byte(wanted)) {
		return true
	}
	if m.Format == "" {
		return false
	}
	e, err := envelope.Parse(content)
	if err != nil {
		return false
	}
	if holds(e.Call.URL) || holds(string(e.Call.Body)) || holds(string(e.Context)) ||
		e.Callback != nil && holds(e.Callback.URL) || e.Latest != nil && holds(e.Latest.Text()) {
		return true
	}
	for name, values := range e.Call.Header {
		if slices.ContainsFunc(values, func(value string) bool { return holds(name + ": " + value) }) {
			return true
		}
	}
	return false
}
