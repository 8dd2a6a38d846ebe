package record

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// Target is the row of a target that fails, as the instances of an app have seen it together.
type Target struct {
	storage.Key `json:"-"`

	// App is the app that calls it: apps that share an account need not have the same network. Host is its host in the
	// form of [targets.Host].
	App  string `json:"app" row:"app"`
	Host string `json:"host" row:"targetHost"`
	// Reason is why the latest call failed, or [NoAnswerYet], and Cause says so in a few words. Status is that of the
	// answer, 0 if there was none.
	Reason string              `json:"reason" row:"reason"`
	Cause  string              `json:"cause" row:"cause"`
	Status envelope.StatusCode `json:"status" row:"status"`
	// Since is when the first call that failed since the last success began, and Latest when the latest one began. If
	// no call has ended yet, both are when the oldest one in flight began.
	Since  time.Time `json:"since" row:"since"`
	Latest time.Time `json:"latest" row:"at"`
	// OpenAt is when an instance last had its circuit breaker open; zero if none had.
	OpenAt time.Time `json:"openAt" row:"openAt"`
	// Answer is the beginning of the latest answer, with its secrets masked.
	Answer string `json:"answer,omitempty" row:"answer"`
}

// NoAnswerYet is the reason of a target whose calls have all been in flight for long.
const NoAnswerYet = "no_answer_yet"

// IsUnanswered reports whether no call has ended yet, as far as an instance knew when the row was written.
func (t Target) IsUnanswered() bool { return t.Reason == NoAnswerYet }

// Age returns for how long the target fails or, if no call has ended yet, for how long when the row was written.
func (t Target) Age(now time.Time) time.Duration {
	if t.IsUnanswered() {
		return max(t.WrittenAt.Sub(t.Since), 0)
	}
	return now.Sub(t.Since)
}

// TargetsPartition is the PartitionKey of the rows of targets.
const TargetsPartition = "target"

// maxBreakerAge limits the time from the latest report of an open circuit breaker to the latest failure: an instance
// whose breaker is open tries a call about once a minute, and may write its row a minute later.
const maxBreakerAge = 2 * time.Minute

// IsOpen reports whether an instance had its circuit breaker open when the target last failed.
func (t Target) IsOpen() bool { return !t.OpenAt.IsZero() && t.Latest.Sub(t.OpenAt) <= maxBreakerAge }

// maxMethod and maxTenant are the lengths to which texts that the sender can choose freely are cut in rows.
const (
	maxMethod = 32
	maxTenant = 128
)

// OfHost returns those of some targets that have a host in the form of [targets.Host].
func OfHost(failing []Target, host string) (of []Target) {
	for _, t := range failing {
		if t.Host == host {
			of = append(of, t)
		}
	}
	return of
}

// targetPrefix returns the beginning of the IDs of the rows of an app.
func targetPrefix(app string) string { return rows.KeyOf(app) + "," }

// key returns the key of a version of the row.
func (t Target) key() storage.Key {
	return storage.Key{Partition: TargetsPartition, ID: targetPrefix(t.App) + rows.KeyOf(t.Host), Version: t.Version}
}

// maxRowText is longer than the texts that a handler writes. Somebody else may have written the row.
const maxRowText = 300

// bounded returns the target with texts of a limited length.
func (t Target) bounded() Target {
	for _, member := range []*string{&t.App, &t.Host, &t.Reason, &t.Cause, &t.Answer} {
		*member = strings.Clone(text.Clip(*member, maxRowText))
	}
	return t
}

// The targets of an app for which there are rows, and those of an account that are read. A sender can invent hosts.
const (
	maxTargets  = 200
	maxReadRows = 1000
)

// ReadTargets returns the targets that fail, of all apps that share the account, at most 1,000. Rows without a target
// or the time of a failure, which no handler writes, do not count, and neither do calls without an answer that have
// ended since.
func ReadTargets(ctx context.Context, table storage.Table) (failing []Target, err error) {
	failing, err = readTargets(ctx, table, "")
	return slices.DeleteFunc(failing, func(t Target) bool {
		return t.IsUnanswered() && time.Since(t.WrittenAt) > targets.MaxTimeout
	}), err
}

// readTargets reads the rows whose ID has a prefix. If it is that of an app, rows of others do not count.
func readTargets(ctx context.Context, table storage.Table, prefix string) (failing []Target, err error) {
	q := storage.Query{Partition: TargetsPartition, IDPrefix: prefix}
	err = rows.List(ctx, table, q, func(target Target) error {
		isForeign := prefix != "" && target.ID != target.key().ID
		if target.App == "" || target.Host == "" || target.Latest.IsZero() || isForeign {
			return nil
		}
		if len(failing) == maxReadRows {
			return rows.ErrStop
		}
		failing = append(failing, target.bounded())
		return nil
	})
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
	case seen.IsUnanswered() && !known.IsUnanswered(): // how calls fail says more
		return known
	case known.IsUnanswered() && !seen.IsUnanswered():
		merged := *seen
		merged.Since, merged.Version = bounds.Earlier(known.Since, seen.Since), known.Version
		return &merged
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
	merged.Version = known.Version
	return &merged
}
