package record

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/strictjson"
)

// Target is a target that fails, as the instances of an app have seen it together.
type Target struct {
	// App is the app that calls it: apps that share an account need not have the same network. Host is its host, in
	// lower case, with a port if the URL has one, at most 128 bytes.
	App  string `json:"app"`
	Host string `json:"host"`
	// Reason is why the latest call failed, and Cause says so in a few words. Status is that of the answer, 0 if there
	// was none.
	Reason string `json:"reason"`
	Cause  string `json:"cause"`
	Status int    `json:"status,omitempty"`
	// Since is when the first call that failed since the last success began, and Latest when the latest one began.
	Since  time.Time `json:"since"`
	Latest time.Time `json:"latest"`
	// OpenAt is when an instance last had its circuit breaker open; zero if none had.
	OpenAt time.Time `json:"openAt,omitzero"`
	// Answer is the beginning of the latest answer, with its secrets masked.
	Answer string `json:"answer,omitempty"`

	version string
}

// TargetsPartition is the PartitionKey of the rows of targets.
const TargetsPartition = "target"

// breakerNews is how much older than the latest failure the news of an open circuit breaker may be: an instance whose
// breaker is open tries a call about once a minute, and may write its row a minute later.
const breakerNews = 2 * time.Minute

// IsOpen reports whether an instance had its circuit breaker open when the target last failed.
func (t Target) IsOpen() bool { return !t.OpenAt.IsZero() && t.Latest.Sub(t.OpenAt) <= breakerNews }

// MaxHost is the length to which hosts are cut in rows.
const MaxHost = 128

// RowHost returns a host as the rows of targets have it. It shares no memory with the host, which may be a small part
// of a large message.
func RowHost(host string) string {
	return strings.Clone(strings.ToLower(host[:min(len(host), MaxHost)]))
}

// targetPrefix returns the beginning of the IDs of the rows of an app.
func targetPrefix(app string) string { return escape(app) + "," }

func (t Target) row() storage.Row {
	return storage.Row{
		Queue: TargetsPartition, ID: targetPrefix(t.App) + escape(t.Host), App: t.App, TargetHost: t.Host,
		Reason: t.Reason, Cause: t.Cause, Status: t.Status, Answer: t.Answer,
		Since: t.Since, At: t.Latest, OpenAt: t.OpenAt, Version: t.version,
	}
}

// maxRowText is longer than the texts that a handler writes. Somebody else may have written the row.
const maxRowText = 300

func targetOf(r storage.Row) Target {
	text := func(s string) string { return strings.Clone(strictjson.Clip(s, maxRowText)) }
	return Target{
		App: text(r.App), Host: text(r.TargetHost), Reason: text(r.Reason), Cause: text(r.Cause), Status: r.Status,
		Answer: text(r.Answer), Since: r.Since.UTC(), Latest: r.At.UTC(), OpenAt: r.OpenAt.UTC(), version: r.Version,
	}
}

// The targets of an app for which there are rows, and those of an account that are read. A sender can invent hosts.
const (
	maxTargets  = 200
	maxReadRows = 1000
)

// ReadTargets returns the targets that fail, of all apps that share the account, at most 1,000. Rows without a target
// or the time of a failure, which no handler writes, do not count.
func ReadTargets(ctx context.Context, table storage.Table) (failing []Target, err error) {
	return readTargets(ctx, table, "")
}

// readTargets reads the rows whose ID has a prefix.
func readTargets(ctx context.Context, table storage.Table, prefix string) (failing []Target, err error) {
	q := storage.Query{Queue: TargetsPartition, IDPrefix: prefix}
	err = table.List(ctx, q, func(row storage.Row) error {
		target := targetOf(row)
		if target.App == "" || target.Host == "" || target.Latest.IsZero() {
			return nil
		}
		if len(failing) == maxReadRows {
			return errEnough
		}
		failing = append(failing, target)
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return failing, err
}

// merge returns the state of a target from what the table has and what an instance has seen since, either of which can
// be nil. Success is when a call of the instance last succeeded; zero if it has seen none. It returns nil if the target
// does not fail any more.
func merge(known, seen *Target, success time.Time) *Target {
	if known != nil && !known.Latest.After(success) {
		known = nil
	}
	switch {
	case known == nil:
		return seen
	case seen == nil:
		seen = known
	}
	merged := *seen
	if known.Latest.After(seen.Latest) {
		merged = *known
	}
	merged.Since = known.Since
	if !success.Before(known.Since) {
		merged.Since = known.Latest // other instances did not know of the success
	}
	if seen.Since.Before(merged.Since) {
		merged.Since = seen.Since
	}
	for _, openAt := range []time.Time{known.OpenAt, seen.OpenAt} {
		if openAt.After(merged.OpenAt) {
			merged.OpenAt = openAt
		}
	}
	if merged.Answer == "" { // the latest call got none
		merged.Answer = cmp.Or(seen.Answer, known.Answer)
	}
	merged.version = known.version
	return &merged
}
