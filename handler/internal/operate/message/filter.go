package message

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/plain/nearest"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
)

// Filter selects the messages that match all of its fields. A zero field matches every message; a list matches if one
// of its entries does.
type Filter struct {
	Reasons []string
	// Statuses are ranges of latest answers; 0 means no answer.
	Statuses []bounds.Range[int]
	// Hosts and Methods match in any letter case. A host is a name or an address, which matches every port unless it
	// has one, or "*.suffix", which matches every name below the suffix. A paused host matches what the pause stops.
	Hosts, Methods []string
	// Paths are paths or patterns of them; one that ends in * matches everything that begins with the rest.
	Paths []string
	// Since and Until limit Message.Since; Until is exclusive.
	Since, Until time.Time
	RequestID    string
	// Organization and Environment are those of the tenant.
	Organization, Environment string
	// ID is an id for [MatchID].
	ID string
	// Text matches in any letter case in the content as its receivers would read it, and in Message.Detail.
	Text  string
	Group *Group
}

// NeedsContent reports whether the filter needs the content of a scheduled message, of which lists read only the row.
func (f Filter) NeedsContent() bool { return f.Text != "" || len(f.Paths) > 0 || len(f.Methods) > 0 }

// Match reports whether the filter selects a message. Content is the result of [Rules.Content]; it may be nil if Text
// is empty. Unsearched says that the message would be selected if it had the text, and that a part of it could not be
// searched.
func (f Filter) Match(m Message, content []byte) (selected, unsearched bool) {
	isMethod := func(method string) bool { return strings.EqualFold(method, m.Method) }
	isHost := func(host string) bool { return matchHost(host, m.Host) || matchHost(host, m.MovedTo) }
	isPath := func(path string) bool { return matchPath(path, m.Path) || matchPath(path, m.PathPattern) }
	isStatus := func(statuses bounds.Range[int]) bool { return statuses.Contains(int(m.Status)) }
	switch {
	case len(f.Reasons) > 0 && !slices.Contains(f.Reasons, m.Reason),
		len(f.Statuses) > 0 && !slices.ContainsFunc(f.Statuses, isStatus),
		len(f.Methods) > 0 && !slices.ContainsFunc(f.Methods, isMethod),
		len(f.Hosts) > 0 && !slices.ContainsFunc(f.Hosts, isHost),
		len(f.Paths) > 0 && !slices.ContainsFunc(f.Paths, isPath),
		!f.Since.IsZero() && m.Since.Before(f.Since),
		!f.Until.IsZero() && !m.Since.Before(f.Until),
		f.RequestID != "" && f.RequestID != m.RequestID,
		f.Organization != "" && f.Organization != m.Organization,
		f.Environment != "" && f.Environment != m.Environment,
		f.ID != "" && !MatchID(m, f.ID),
		f.Group != nil && !f.Group.Match(m):
		return false, false
	case f.Text == "":
		return true, false
	}
	return contains(m, content, f.Text)
}

// minPrefix is so long that a prefix of a GUID hardly ever matches two messages.
const minPrefix = 8

// ShortIDHint ends the error that no message has one of these ids. It is empty unless one of them is too short for the
// beginning of a message's id.
func ShortIDHint(ids ...string) string {
	if !slices.ContainsFunc(ids, func(id string) bool { return len(id) < minPrefix }) {
		return ""
	}
	return fmt.Sprintf("; give at least the first %d characters of a message id, or the whole request id", minPrefix)
}

// MatchID reports whether an id identifies the message: the message's id in any letter case, its first 8 characters or
// more, or the request id.
func MatchID(m Message, id string) bool {
	isPrefix := len(id) >= minPrefix && len(id) < len(m.ID) && strings.EqualFold(id, m.ID[:len(id)])
	return id != "" && (id == m.RequestID || strings.EqualFold(id, m.ID) || isPrefix)
}

// matchHost reports whether a host matches a pattern, each in any spelling. A host without a port matches 80 and 443,
// because it does not say whether its URL is http or https. No pattern matches a message without an envelope.
func matchHost(pattern, host string) bool {
	if host == "" {
		return false
	}
	pattern, isSuffix := strings.CutPrefix(pattern, "*.")
	pattern, host = targets.HostOf(pattern), targets.HostOf(host)
	_, wanted, _ := net.SplitHostPort(pattern)
	_, port, _ := net.SplitHostPort(host)
	isPort := wanted == "" || wanted == port || port == "" && (wanted == "80" || wanted == "443")
	name, host := targets.WithoutPort(pattern), targets.WithoutPort(host)
	if isSuffix {
		return isPort && name != "" && strings.HasSuffix(host, "."+name)
	}
	return isPort && name == host
}

func matchPath(wanted, path string) bool {
	beginning, isOpen := strings.CutSuffix(wanted, "*")
	return path == wanted || isOpen && path != "" && strings.HasPrefix(path, beginning)
}

// Reasons lists the reasons that messages on a poison queue have. A dead letter from elsewhere may have another one,
// which only a [Group] selects.
func Reasons() []string {
	reasons := withFailures(decision.Expired, decision.Exhausted, decision.Rejected)
	return append(reasons, Malformed, Undecodable, HostGaveUp, Raw, Unknown)
}

// ScheduledReasons lists the reasons why messages are rescheduled.
func ScheduledReasons() []string {
	return withFailures(decision.Status, decision.NotDue, decision.TargetDown, decision.Busy, decision.Paused)
}

// withFailures adds the failures to other reasons. An interrupted call is repeated, after a delay that is not recorded.
func withFailures(reasons ...decision.Reason) (names []string) {
	for _, f := range decision.Failures() {
		reasons = append(reasons, decision.Reason(f))
	}
	for _, reason := range reasons {
		if reason != decision.Interrupted {
			names = append(names, string(reason))
		}
	}
	return names
}

// ParseReason returns a function that reads one of the reasons. Its error lists them.
func ParseReason(reasons []string) func(string) (string, error) {
	return func(reason string) (string, error) {
		if slices.Contains(reasons, reason) {
			return reason, nil
		}
		meant := ""
		if similar, likely := nearest.Name(reason, reasons); likely {
			meant = similar + ", or one of "
		}
		return "", fmt.Errorf("%q is not a reason: want %s%s; --group reason=REASON selects any other",
			text.Line(reason, maxReason), meant, strings.Join(reasons, ", "))
	}
}
