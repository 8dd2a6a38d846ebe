package message

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/decision"
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
	ByAnswer By = "answer" // Message.Answer
	// ByQueue is for scheduled messages only.
	ByQueue By = "queue"
)

// ParseBy reads a criterion. Its error lists the criteria.
func ParseBy(text string) (By, error) {
	by := By(strings.ToLower(text))
	if !slices.Contains([]By{ByReason, ByStatus, ByHost, ByRoute, ByError, ByAnswer}, by) {
		return "", fmt.Errorf("cannot group by %q: want reason, status, host, route, error or answer", shown(text, maxReason))
	}
	return by, nil
}

// Keys are an interface: people use them in scripts and compare them over time. They must not change from version to
// version; testdata/keys.golden fixes them.
const (
	keyNoEnvelope = "(no envelope)"
	keyNoAnswer   = "(no answer)"
	// keyEmptyAnswer and keyBinaryAnswer are for answers without a line of text.
	keyEmptyAnswer  = "(empty answer)"
	keyBinaryAnswer = "(binary answer)"
	// KeyOthers is the group of the messages after [MaxKeys] different keys.
	KeyOthers = "(others)"
	maxKey    = 200
)

// MaxKeys is the largest number of groups. It limits the memory if a sender gives every message another key.
const MaxKeys = 10_000

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
	case ByQueue:
		return m.Queue
	case ByAnswer:
		return cmp.Or(m.Answer, keyNoAnswer)
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
	case m.Detail != "" && slices.Contains(decision.Failures(), decision.Failure(m.Reason)): // as in Message.Error
		return foldText(m.Reason + ": " + withoutReason(m.Reason, m.Detail))
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
	return Group{By: by, Key: key}, err
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
	if row == nil && len(g.rows) >= MaxKeys {
		key = KeyOthers
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
