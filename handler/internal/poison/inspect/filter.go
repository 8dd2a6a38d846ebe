package inspect

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/envelope"
)

// Filter selects the messages that match all of its fields. A zero field matches every message; a list matches if one of
// its entries does.
type Filter struct {
	Reasons []string
	// Statuses are latest answers; 0 means no answer.
	Statuses []int
	// Hosts and Methods match in any letter case. A host is a name, which matches every port unless it has one, or
	// "*.suffix", which matches every name below the suffix.
	Hosts, Methods []string
	// Since and Until limit Message.Since; Until is exclusive.
	Since, Until time.Time
	RequestID    string
	// ID is an id for [MatchID].
	ID string
	// Text matches in any letter case in the content, decoded or not, and in Message.Detail.
	Text string
	// MinAttempts is the smallest number of attempts.
	MinAttempts int
	Group       *Group
}

// Match reports whether the filter selects a message. Content is the result of [Rules.Content]; it may be nil if Text is
// empty.
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

// minPrefix is so long that a prefix of a GUID hardly ever matches two messages.
const minPrefix = 8

// MatchID reports whether an id identifies the message: the message's id in any letter case, its first 8 characters or more,
// or the request id.
func MatchID(m Message, id string) bool {
	if id == "" {
		return false
	}
	if id == m.RequestID || strings.EqualFold(id, m.ID) {
		return true
	}
	return len(id) >= minPrefix && len(id) < len(m.ID) && strings.EqualFold(id, m.ID[:len(id)])
}

// matchHost reports whether a host matches a pattern. No pattern matches a message without an envelope.
func matchHost(pattern, host string) bool {
	if host == "" {
		return false
	}
	want, have := url.URL{Host: strings.ToLower(pattern)}, url.URL{Host: host}
	if want.Port() != "" && want.Port() != have.Port() {
		return false
	}
	name, hostName := want.Hostname(), have.Hostname()
	if suffix, ok := strings.CutPrefix(name, "*"); ok {
		return strings.HasPrefix(suffix, ".") && len(hostName) > len(suffix) && strings.HasSuffix(hostName, suffix)
	}
	return name == hostName
}

// contains searches everything that a person may have seen of the message. JSON escapes quotes, and a Nexus envelope has the
// whole call in base64, so it also searches the parsed envelope.
func contains(m Message, content []byte, text string) bool {
	texts := []string{m.Detail, string(content)}
	if e, err := envelope.Parse(content); err == nil {
		texts = append(texts, e.Call.URL, string(e.Call.Body), string(e.Context))
		if e.Callback != nil {
			texts = append(texts, e.Callback.URL)
		}
		if e.Latest != nil {
			texts = append(texts, e.Latest.Text())
		}
		for name, values := range e.Call.Header {
			for _, value := range values {
				texts = append(texts, name+": "+value)
			}
		}
	}
	wanted := strings.ToLower(text)
	return slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(strings.ToLower(s), wanted) })
}
