package message

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/plain/fold"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
)

// By is a criterion for groups.
type By string

// The criteria for groups.
const (
	ByReason By = "reason" // Message.Reason
	ByStatus By = "status" // the latest answer
	ByHost   By = "host"   // Message.CalledHost
	ByPath   By = "path"   // Message.PathPattern
	ByError  By = "error"  // the error in one line, without the parts that differ from message to message
	ByAnswer By = "answer" // Message.Answer
	// ByQueue and ByCause are for scheduled messages only.
	ByQueue By = "queue"
	ByCause By = "cause" // Message.Cause, or else the latest answer or the reason
)

// PoisonCriteria returns the criteria for poison messages.
func PoisonCriteria() []By { return []By{ByReason, ByStatus, ByHost, ByPath, ByError, ByAnswer} }

// ScheduledCriteria returns the criteria for scheduled messages, of which only the rows are read.
func ScheduledCriteria() []By { return []By{ByCause, ByReason, ByStatus, ByHost, ByPath, ByQueue} }

// ParseBy reads one of some criteria. Its error lists them.
func ParseBy(name string, criteria []By) (By, error) {
	by := By(strings.ToLower(name))
	if !slices.Contains(criteria, by) {
		return "", fmt.Errorf("cannot group by %q: want %s", text.Line(name, maxReason), Names(criteria))
	}
	return by, nil
}

// Names lists criteria in a text.
func Names(criteria []By) string {
	var names []string
	for _, by := range criteria {
		names = append(names, string(by))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// Keys are an interface: people use them in scripts and compare them over time. They must not change from version to
// version; testdata/keys.golden fixes them.
const (
	keyNoEnvelope = "(no envelope)"
	keyNoAnswer   = "(no answer)"
	// KeyOthers is the group of the messages after [MaxKeys] different keys.
	KeyOthers = "(others)"
)

// MaxKeys is the largest number of groups. It limits the memory if a sender gives every message another key.
const MaxKeys = 10_000

// Key returns the key of a message's group. It is printable and has at most 260 bytes. Keys stay the same from version
// to version. An unknown criterion gives every message the same key.
func (b By) Key(m Message) string {
	switch b {
	case ByReason:
		return m.Reason
	case ByStatus:
		if m.Status == 0 {
			return keyNoAnswer
		}
		return strconv.Itoa(int(m.Status))
	case ByHost:
		return cmp.Or(m.CalledHost(), keyNoEnvelope)
	case ByPath:
		return cmp.Or(m.PathPattern, keyNoEnvelope)
	case ByError:
		return errorKey(m)
	case ByQueue:
		return m.Queue
	case ByCause:
		if m.Cause == "" && m.Status != 0 {
			return strconv.Itoa(int(m.Status))
		}
		return cmp.Or(m.Cause, m.Reason)
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
		return fold.Text(m.Error)
	case !diagnosed && m.Status != 0:
		return "answered " + strconv.Itoa(int(m.Status))
	case m.Detail != "" && slices.Contains(decision.Failures(), decision.Failure(m.Reason)): // as in Message.Error
		return fold.Text(m.Reason + ": " + withoutReason(m.Reason, m.Detail))
	case m.Detail != "":
		return fold.Text(m.Detail)
	}
	return fold.Text(m.Reason)
}

// Group identifies the messages with the same key.
type Group struct {
	By  By
	Key string
	// Digest, unless empty, names the key in its place: the SHA-256 of the key in hex, or the first digits of it.
	Digest string
}

// shortDigest is the number of digits of a digest that names a key, unless another key has the same ones.
const shortDigest = 8

func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// Arguments returns a function that gives the argument of --group for a key, as a word of a command. Senders and
// targets write keys, so one that a shell could read otherwise is named by its digest. Keys are all of those it can be
// taken for.
func (b By) Arguments(keys ...string) func(key string) string {
	short := map[string]int{}
	for _, key := range keys {
		short[digest(key)[:shortDigest]]++
	}
	return func(key string) string {
		if format.IsShellSafe(key) && !strings.HasPrefix(key, "#") {
			return format.ShellWord(string(b) + "=" + key)
		}
		name := digest(key)
		if short[name[:shortDigest]] <= 1 {
			name = name[:shortDigest]
		}
		return string(b) + "=#" + name
	}
}

var digestName = regexp.MustCompile(`^#([0-9a-f]{8}|[0-9a-f]{64})$`)

// ParseGroup reads a group by one of some criteria, such as "reason=expired" or "answer=#3f9a01c2".
func ParseGroup(argument string, criteria []By) (Group, error) {
	criterion, key, ok := strings.Cut(argument, "=")
	if !ok || key == "" {
		return Group{}, fmt.Errorf("%q is not a group: want a criterion and a key, as in reason=expired",
			text.Line(argument, maxReason))
	}
	by, err := ParseBy(criterion, criteria)
	if name := digestName.FindStringSubmatch(key); name != nil {
		return Group{By: by, Digest: name[1]}, err
	}
	if by == ByHost {
		key = targets.HostOf(key)
	}
	return Group{By: by, Key: key}, err
}

// Match reports whether a message belongs to the group. No message belongs to "(others)".
func (g Group) Match(m Message) bool {
	key := g.By.Key(m)
	return key == g.Key && g.Digest == "" || g.Digest != "" && strings.HasPrefix(digest(key), g.Digest)
}

// Row is one group of a list.
type Row struct {
	// State is the state of the calls in a list of several states; otherwise empty.
	State string `json:"state,omitempty"`
	Key   string `json:"key"`
	Count int    `json:"count"`
	// First and Last are the earliest and the latest Message.Since.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Sample is the group's newest message.
	Sample Message `json:"sample"`
}

// tally has a row for each key, in bounded memory: after MaxKeys different keys it has one row for the others.
type tally[R any] struct {
	rows map[string]*R
}

// row returns the row of a key. Begin makes a new one.
func (t *tally[R]) row(key string, begin func(key string) *R) *R {
	if t.rows == nil {
		t.rows = map[string]*R{}
	}
	if t.rows[key] == nil && len(t.rows) >= MaxKeys {
		key = KeyOthers
	}
	if t.rows[key] == nil {
		t.rows[key] = begin(key)
	}
	return t.rows[key]
}

// arguments returns [By.Arguments] for all rows.
func (t *tally[R]) arguments(by By) func(key string) string {
	return by.Arguments(slices.Collect(maps.Keys(t.rows))...)
}

// result lists the rows, the largest count first, and those of the same count by key.
func (t *tally[R]) result(count func(R) int) []R {
	keys := slices.SortedFunc(maps.Keys(t.rows), func(a, b string) int {
		return cmp.Or(count(*t.rows[b])-count(*t.rows[a]), strings.Compare(a, b))
	})
	rows := make([]R, 0, len(keys))
	for _, key := range keys {
		rows = append(rows, *t.rows[key])
	}
	return rows
}

// Groups counts messages by key in bounded memory: after 10,000 different keys it counts the others under "(others)".
// It is not safe for concurrent use.
type Groups struct {
	by    By
	tally tally[Row]
}

// NewGroups returns an empty list of groups.
func NewGroups(by By) *Groups { return &Groups{by: by} }

// Add counts a message.
func (g *Groups) Add(m Message) {
	row := g.tally.row(g.by.Key(m), func(key string) *Row {
		return &Row{Key: key, First: m.Since, Last: m.Since, Sample: m}
	})
	row.Count++
	if m.Since.Before(row.First) {
		row.First = m.Since
	}
	if m.Since.After(row.Last) {
		row.Last, row.Sample = m.Since, m
	}
}

// Arguments returns [By.Arguments] for the groups.
func (g *Groups) Arguments() func(key string) string { return g.tally.arguments(g.by) }

// Result lists the groups, the largest first, and groups of the same size by key.
func (g *Groups) Result() []Row { return g.tally.result(func(r Row) int { return r.Count }) }
