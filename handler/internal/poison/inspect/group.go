package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// By is a criterion for groups.
type By string

// The criteria for groups.
const (
	ByReason By = "reason" // Message.Reason
	ByStatus By = "status" // the latest answer
	ByHost   By = "host"   // Message.Host
	ByRoute  By = "route"  // Message.Route
	ByError  By = "error"  // the error in one line, without the parts that differ from message to message
)

// ParseBy reads a criterion. Its error lists the criteria.
func ParseBy(text string) (By, error) {
	by := By(strings.ToLower(text))
	if !slices.Contains([]By{ByReason, ByStatus, ByHost, ByRoute, ByError}, by) {
		return "", fmt.Errorf("cannot group by %q: want reason, status, host, route or error", shown(text, maxReason))
	}
	return by, nil
}

// Keys are an interface: people use them in scripts and compare them over time. They must not change from version to
// version; testdata/keys.golden fixes them.
const (
	keyNoEnvelope = "(no envelope)"
	keyNoAnswer   = "(no answer)"
	// keyOthers counts the messages after maxKeys different keys.
	keyOthers = "(others)"
	maxKey    = 200
)

// maxKeys limits the memory if a sender gives every message another key.
const maxKeys = 10_000

// Key returns the key of a message's group. It is printable and has at most 260 bytes. Keys stay the same from version to
// version. An unknown criterion gives every message the same key.
func (b By) Key(m Message) string {
	switch b {
	case ByReason:
		return m.Reason
	case ByStatus:
		if m.Status == 0 {
			return keyNoAnswer
		}
		return strconv.Itoa(m.Status)
	case ByHost:
		return cmp.Or(m.Host, keyNoEnvelope)
	case ByRoute:
		return cmp.Or(m.Route, keyNoEnvelope)
	case ByError:
		return errorKey(m)
	}
	return ""
}

// errorKey prefers the error of the latest attempt to the reason for giving up: "expired" has many causes.
func errorKey(m Message) string {
	diagnosed := m.Reason == Undecodable || m.Reason == Malformed || m.Reason == HostGaveUp
	switch {
	case !diagnosed && m.Error != "":
		return foldText(m.Error)
	case !diagnosed && m.Status != 0:
		return "answered " + strconv.Itoa(m.Status)
	case m.Detail != "":
		return foldText(m.Detail)
	}
	return foldText(m.Reason)
}

// Group identifies the messages with the same key.
type Group struct {
	By  By
	Key string
}

// ParseGroup reads a group such as "reason=expired".
func ParseGroup(text string) (Group, error) {
	criterion, key, ok := strings.Cut(text, "=")
	if !ok || key == "" {
		return Group{}, fmt.Errorf("%q is not a group: want a criterion and a key, as in reason=expired", shown(text, maxReason))
	}
	by, err := ParseBy(criterion)
	if err != nil {
		return Group{}, err
	}
	return Group{By: by, Key: key}, nil
}

// Match reports whether a message belongs to the group. No message belongs to "(others)".
func (g Group) Match(m Message) bool { return g.By.Key(m) == g.Key }

// Row is one group of a list.
type Row struct {
	Key   string `json:"key"`
	Count int    `json:"count"`
	// First and Last are the earliest and the latest Message.Since.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Sample is the group's newest message.
	Sample Message `json:"sample"`
}

// Groups counts messages by key in bounded memory: after 10,000 different keys it counts the others under "(others)". It is
// not safe for concurrent use.
type Groups struct {
	by   By
	rows map[string]*Row
}

// NewGroups returns an empty list of groups.
func NewGroups(by By) *Groups { return &Groups{by: by, rows: map[string]*Row{}} }

// Add counts a message.
func (g *Groups) Add(m Message) {
	key := g.by.Key(m)
	row := g.rows[key]
	if row == nil && len(g.rows) >= maxKeys {
		key = keyOthers
		row = g.rows[key]
	}
	if row == nil {
		row = &Row{Key: key, First: m.Since, Last: m.Since, Sample: m}
		g.rows[key] = row
	}
	row.Count++
	if m.Since.Before(row.First) {
		row.First = m.Since
	}
	if m.Since.After(row.Last) {
		row.Last, row.Sample = m.Since, m
	}
}

// Result lists the groups, the largest first, and groups of the same size by key.
func (g *Groups) Result() []Row {
	rows := make([]Row, 0, len(g.rows))
	for _, row := range g.rows {
		rows = append(rows, *row)
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(b.Count-a.Count, strings.Compare(a.Key, b.Key))
	})
	return rows
}
