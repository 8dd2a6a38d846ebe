// Package setting has the live settings of targets: while the apps run, an operator pauses a target, or sets its rate
// or concurrency. Operators write the rows, and each instance of an app reads them.
package setting

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// The members of a target that can be set.
const (
	// Pause means that no call to the target is made.
	Pause = "pause"
	// Rate and Concurrency replace the member of the target's profile.
	Rate        = "rate"
	Concurrency = "concurrency"
)

// Setting is the row of a member that an operator has set, for all apps of the account.
type Setting struct {
	storage.Key `json:"-"`

	// Host is the target, in the form of [targets.ParseHost]. A host without a port means all ports.
	Host   string `json:"host" row:"targetHost"`
	Member string `json:"member" row:"member"`
	// Value is that of a rate or a concurrency, as in targets.json. A pause has none. In a table, "value" would be the
	// name of the rows of a listing.
	Value string `json:"value" row:"limit"`
	// Since is when the setting began, and Until when it ends; zero means that an operator has to end it.
	Since time.Time `json:"since" row:"since"`
	Until time.Time `json:"until" row:"until"`
	// By is the user and his machine, and Reason why. Both are what the operator says.
	By     string `json:"by" row:"by"`
	Reason string `json:"reason" row:"reason"`
	// Problem says why the row is ignored; empty if it is valid. It is not stored.
	Problem string `json:"problem,omitempty"`
}

// Partition is the PartitionKey of the rows.
const Partition = "setting"

// MaxText limits the texts of a setting, in bytes.
const MaxText = 200

const (
	// maxRead limits the settings that are read, of those in force and of the others. Anyone who can write to the table
	// can invent some.
	maxRead = 1000
	// maxRemoved is the most rows that a table removes at once.
	maxRemoved = 100
)

// IsInForce reports whether the setting applies.
func (s Setting) IsInForce(now time.Time) bool {
	return s.Problem == "" && (s.Until.IsZero() || s.Until.After(now))
}

// String returns what is set: "pause", "rate 5/s" or "concurrency 2".
func (s Setting) String() string { return strings.TrimSuffix(s.Member+" "+s.Value, " ") }

// Text says since when the setting applies, by whom it was made, until when, and why.
func (s Setting) Text() string {
	about := "since " + s.Since.Format(time.RFC3339)
	if s.By != "" {
		about += " by " + s.By
	}
	switch {
	case !s.Until.IsZero():
		about += " until " + s.Until.Format(time.RFC3339)
	case s.Member == Pause:
		about += " until it is resumed"
	default:
		about += " until it is cleared"
	}
	if s.Reason != "" {
		about += ": " + s.Reason
	}
	return about
}

func keyOf(host, member string) storage.Key {
	return storage.Key{Partition: Partition, ID: rows.KeyOf(host) + "_" + member}
}

// CheckValue returns an error if a member cannot have a value.
func CheckValue(member, value string) error {
	var p targets.Profile
	switch member {
	case Pause:
		if value != "" {
			return errors.New("a pause has no value")
		}
		return nil
	case Rate:
		return p.SetRate(value)
	case Concurrency:
		return p.SetConcurrency(value)
	}
	return errors.New("unknown member")
}

// ValueOf returns the value of a member of a profile; empty if there is none.
func ValueOf(p targets.Profile, member string) string {
	switch {
	case member == Rate:
		return p.RateText
	case member == Concurrency && p.Concurrency > 0:
		return strconv.Itoa(p.Concurrency)
	}
	return ""
}

// checked returns the setting of a row, which anyone who can write to the table may have written.
func (s Setting) checked() Setting {
	key, host, member := s.Key, s.Host, s.Member
	for _, shown := range []*string{&s.Host, &s.Member, &s.Value, &s.By, &s.Reason} {
		*shown = text.Line(*shown, MaxText)
	}
	s.Since, s.Until = s.Since.UTC(), s.Until.UTC()
	own := keyOf(s.Host, s.Member)
	canonical, hostErr := targets.ParseHost(host)
	valueErr := CheckValue(member, s.Value)
	switch {
	case hostErr != nil || len(canonical) > MaxText || key.Partition != own.Partition || key.ID != own.ID:
		s.Host = text.Line(s.ID, MaxText)
		s.Problem = "its key is not that of a host and a member"
		return s
	case valueErr != nil:
		s.Problem = text.Line(valueErr.Error(), MaxText)
	case s.Since.IsZero():
		s.Problem = "it has no beginning"
	}
	s.Host = canonical // an earlier version may have written another spelling
	return s
}

// Read returns the rows of an account: at most 1,000 of settings that are in force, and at most 1,000 others, which
// have ended or are invalid.
func Read(ctx context.Context, table storage.Table) (settings []Setting, err error) {
	now := time.Now()
	inForce, others := 0, 0
	err = rows.List(ctx, table, storage.Query{Partition: Partition}, func(row Setting) error {
		s := row.checked()
		count := &others
		if s.IsInForce(now) {
			count = &inForce
		}
		if *count < maxRead {
			settings = append(settings, s)
		}
		*count++
		return nil
	})
	return settings, err
}

var (
	// ErrChanged means that another operator has changed or made a setting while it was ended.
	ErrChanged = errors.New("another operator has changed the same setting of the target at the same time")
	// ErrUnanswered means that the table has not said whether it has made a change.
	ErrUnanswered = errors.New("whether it is done is unknown")
)

// Write sets members of a target, all of them or none, whatever was set before. The error is an [ErrUnanswered] unless
// the table has refused to do so.
func Write(ctx context.Context, table storage.Table, settings ...Setting) error {
	var keyed []Setting
	for _, s := range settings {
		s.Key = keyOf(s.Host, s.Member)
		keyed = append(keyed, s)
	}
	return unlessRefused(rows.Put(ctx, table, keyed...))
}

func unlessRefused(err error) error {
	if err == nil || errors.Is(err, storage.ErrRefused) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnanswered, err)
}

// Remove ends the settings of members of a host in the form of [targets.ParseHost], and returns them, as far as there
// were any. The error is an [ErrChanged] if another operator has changed a setting meanwhile, or made it again: he was
// told that it is in force. If it is not known whether they have ended, it is an [ErrUnanswered].
func Remove(ctx context.Context, table storage.Table, host string, members ...string) ([]Setting, error) {
	ended, err := find(ctx, table, host, members)
	if err != nil || len(ended) == 0 {
		return nil, err
	}
	if err := remove(ctx, table, ended); err != nil {
		return nil, unlessRefused(err)
	}
	left, err := find(ctx, table, host, members)
	switch {
	case err != nil:
		return nil, unlessRefused(err)
	case len(left) > 0:
		return nil, ErrChanged
	}
	return ended, nil
}

// find returns the settings of members of a host. An earlier version may have written one under several spellings of
// the host.
func find(ctx context.Context, table storage.Table, host string, members []string) (found []Setting, err error) {
	err = rows.List(ctx, table, storage.Query{Partition: Partition}, func(row Setting) error {
		s := row.checked()
		isValid := s.Problem == "" || s.ID == keyOf(s.Host, s.Member).ID
		if isValid && s.Host == host && slices.Contains(members, s.Member) && len(found) < maxRead {
			found = append(found, s)
		}
		return nil
	})
	return found, err
}

// RemovePast removes the rows of settings that have ended, and of those that another spelling of the host has replaced.
func RemovePast(ctx context.Context, table storage.Table, settings []Setting, now time.Time) error {
	inForce := Select(settings, now)
	return remove(ctx, table, slices.DeleteFunc(slices.Clone(settings), func(s Setting) bool {
		return s.Problem != "" || s.ID == inForce[s.Host][s.Member].ID
	}))
}

// remove removes the rows of settings, unless they have changed.
func remove(ctx context.Context, table storage.Table, settings []Setting) error {
	for some := range slices.Chunk(settings, maxRemoved) {
		var keys []storage.Key
		for _, s := range some {
			keys = append(keys, s.Key)
		}
		if err := table.Delete(ctx, keys); err != nil {
			return err
		}
	}
	return nil
}

// InForce has the settings of an account that are in force, by host and member.
type InForce map[string]map[string]Setting

// Select returns those settings that are in force.
func Select(settings []Setting, now time.Time) InForce {
	selected := InForce{}
	for _, s := range settings {
		if !s.IsInForce(now) {
			continue
		}
		if selected[s.Host] == nil {
			selected[s.Host] = map[string]Setting{}
		}
		if s.WrittenAt.Before(selected[s.Host][s.Member].WrittenAt) { // under another spelling of the host
			continue
		}
		selected[s.Host][s.Member] = s
	}
	return selected
}

// Of returns the settings that apply to a target by now, by member. Those of its host and port are before those of its
// host.
func (f InForce) Of(target *url.URL, now time.Time) OfTarget {
	if len(f) == 0 {
		return nil
	}
	of := OfTarget{}
	for _, host := range slices.Backward(targets.Keys(target)) {
		for member, s := range f[host] {
			if s.IsInForce(now) {
				of[member] = s
			}
		}
	}
	return of
}

// With returns the settings as they are when some of a host are made, and those of other members of it end.
func (f InForce) With(host string, made []Setting, ended ...string) InForce {
	changed := maps.Clone(f)
	if changed == nil {
		changed = InForce{}
	}
	of := map[string]Setting{}
	maps.Copy(of, f[host])
	for _, member := range ended {
		delete(of, member)
	}
	for _, s := range made {
		of[s.Member] = s
	}
	changed[host] = of
	return changed
}

// OfTarget has the settings that apply to a target, by member.
type OfTarget map[string]Setting

// Profile returns the profile that is in force: that of the file, with the members that are set. What is set for a host
// and port is counted for these alone.
func (o OfTarget) Profile(p targets.Profile) targets.Profile {
	for _, member := range []string{Rate, Concurrency} {
		s, isSet := o[member]
		if !isSet {
			continue
		}
		var err error
		if member == Rate {
			err = p.SetRate(s.Value)
		} else {
			err = p.SetConcurrency(s.Value)
		}
		if err != nil { // a row that is in force is valid
			continue
		}
		if targets.WithoutPort(s.Host) != s.Host {
			p.Scope = s.Host
		}
		p.Pattern = p.Scope
	}
	return p
}
