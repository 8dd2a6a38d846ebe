package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// By is what messages are grouped by.
type By string

// The ways to group.
const (
	ByReason By = "reason" // Message.Reason
	ByStatus By = "status" // the latest answer
	ByHost   By = "host"   // Message.Host
	ByRoute  By = "route"  // Message.Route
	ByError  By = "error"  // what went wrong, in one line without what differs from message to message
)

func ways() []By { return []By{ByReason, ByStatus, ByHost, ByRoute, ByError} }

// ParseBy reads a way to group. Its error lists the ways.
func ParseBy(text string) (By, error) {
	by := By(strings.ToLower(text))
	if !slices.Contains(ways(), by) {
		return "", fmt.Errorf("cannot group by %q: want reason, status, host, route or error", shown(text, maxReason))
	}
	return by, nil
}

// Keys are an interface: people write them into scripts and compare them with those of last month. They may
// not change from version to version; testdata/keys.golden holds them.
const (
	keyNoEnvelope = "(no envelope)"
	keyNoAnswer   = "(no answer)"
	// keyOthers takes what comes after maxKeys different ones.
	keyOthers = "(others)"
	maxKey    = 200
)

// maxKeys bounds the memory that messages can take whose sender makes every key another.
const maxKeys = 10_000

// Key is what a message has in common with others of its group: printable, and at most 260 bytes. Keys stay
// the same from version to version. An unknown way has the same key for every message.
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

// errorKey prefers the latest attempt's own words to the reason for giving up: "expired" has many causes.
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

// Group is the messages that have a key in common.
type Group struct {
	By  By
	Key string
}

// ParseGroup reads a group as a person names it: "reason=expired".
func ParseGroup(text string) (Group, error) {
	way, key, ok := strings.Cut(text, "=")
	if !ok || key == "" {
		return Group{}, fmt.Errorf("%q is no group: want what it is grouped by and the key, as in reason=expired", shown(text, maxReason))
	}
	by, err := ParseBy(way)
	if err != nil {
		return Group{}, err
	}
	return Group{By: by, Key: key}, nil
}

// Match reports whether a message belongs to the group. None belongs to "(others)", which is only what a
// list had no room for.
func (g Group) Match(m Message) bool { return g.By.Key(m) == g.Key }

// Row is one group of a list.
type Row struct {
	Key   string `json:"key"`
	Count int    `json:"count"`
	// First and Last bound Message.Since.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Sample is the group's newest message.
	Sample Message `json:"sample"`
}

// Groups counts messages by what they have in common, in bounded memory: after 10,000 different keys it
// counts further ones under "(others)". It is not safe for concurrent use.
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

// Result lists the groups, the largest first, those of one size by their key.
func (g *Groups) Result() []Row {
	rows := make([]Row, 0, len(g.rows))
	for _, row := range g.rows {
		rows = append(rows, *row)
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key))
	})
	return rows
}
