package account

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/operate/estimate"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/certificate"
	"asynccaller/handler/internal/rules/targets"
)

// TargetStatus has the scheduled messages for a host, and how it fails in the eyes of each app that calls it.
type TargetStatus struct {
	// Host is the key of the group.
	Host string `json:"host"`

	message.ScheduledGroup
	// Failing is empty if the target does not fail, or if no instance has recorded that it does.
	Failing []sight.Target `json:"failing,omitempty"`
	// Recovered says that the cause is past: calls have been delivered since, and none is known to fail.
	Recovered bool `json:"recovered,omitempty"`
	// Numbers are those of the calls of all apps; nil if they are unknown.
	Numbers *sight.Series `json:"numbers,omitempty"`
	// Estimate says when its scheduled messages will be done; nil if only a handful wait.
	Estimate *estimate.Estimate `json:"estimate,omitempty"`
}

// Failing returns the targets that fail, or none if they are not recorded.
func (a *Account) Failing(ctx context.Context) ([]sight.Target, error) {
	if a.Sight == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, beatsTimeout)
	defer cancel()
	return a.Sight.Failing(ctx)
}

// ErrNoSettings means that no target can be paused, and no limit of one can be set.
var ErrNoSettings = errors.New("no target can be paused, and no limit can be set: the storage connection names no " +
	"table service (add TableEndpoint), or ASYNC_CALLER_TABLES is off")

// Setting is a live setting, or a limit or credential of targets.json, whose host is a pattern.
type Setting struct {
	setting.Setting

	// File is what targets.json says about the member of a live setting; empty if it says nothing.
	File string `json:"file,omitempty"`
	// Source is FromFile, Live or FromRecord.
	Source string `json:"source"`
	// Estimate says when the calls that wait will be done, if their number is listed.
	Estimate *estimate.Estimate `json:"estimate,omitempty"`
}

// The sources of a [Setting]. FromRecord is that of calls that wait, which are listed with the settings.
const (
	Live       = "live"
	FromFile   = "file"
	FromRecord = "record"
)

// WaitingCalls lists how many scheduled calls wait for the named targets, where more than a handful do.
func (s *Status) WaitingCalls() (listed []Setting) {
	for _, t := range s.Targets {
		if t.Estimate != nil {
			row := setting.Setting{Host: t.Key, Member: "waiting", Value: strconv.Itoa(t.Estimate.Calls)}
			listed = append(listed, Setting{Setting: row, Source: FromRecord, Estimate: t.Estimate})
		}
	}
	return listed
}

// Settings returns the rows of live settings, also those that have ended or are invalid, or [ErrNoSettings].
func (a *Account) Settings(ctx context.Context) ([]setting.Setting, error) {
	if a.AppTable == nil {
		return nil, ErrNoSettings
	}
	ctx, cancel := context.WithTimeout(ctx, beatsTimeout)
	defer cancel()
	settings, err := setting.Read(ctx, a.AppTable)
	if err != nil {
		return nil, fmt.Errorf("read the settings of targets: %w", err)
	}
	for i, s := range settings {
		if to := a.Rules.Decision.Profiles.OfHost(s.Host).To; to != nil && s.Problem == "" {
			settings[i].Problem = "it has no effect, because targets.json moves the calls to " + to.String()
		}
	}
	return settings, nil
}

// apps returns the apps that have recorded beats.
func (a *Account) apps(ctx context.Context) ([]heartbeat.App, error) {
	ctx, cancel := context.WithTimeout(ctx, beatsTimeout)
	defer cancel()
	return heartbeat.Read(ctx, a.Table)
}

// WithFile adds what targets.json says to a setting.
func (a *Account) WithFile(s setting.Setting) Setting {
	with := Setting{Setting: s, Source: Live}
	if s.Problem == "" {
		with.File = setting.ValueOf(a.Rules.Decision.Profiles.OfHost(s.Host), s.Member)
	}
	return with
}

// FileSettings returns what targets.json has of limits, credentials, certificates, signatures and new addresses,
// ordered by pattern.
func (a *Account) FileSettings() (listed []Setting) {
	profiles := a.Rules.Decision.Profiles.ByPattern()
	for _, pattern := range slices.Sorted(maps.Keys(profiles)) {
		profile := profiles[pattern]
		values := map[string]string{}
		for _, member := range []string{setting.Rate, setting.Concurrency} {
			values[member] = setting.ValueOf(profile, member)
		}
		if profile.Auth != nil {
			values["auth"] = text.Printable(profile.Auth.Credential.Name)
		}
		if c := profile.Certificate; c != nil {
			values["certificate"] = ClientCertificate{pattern, c.Name, c.Subject, c.Ends}.Text()
		}
		if len(profile.Sign) > 0 {
			values["sign"] = profile.Sign.Names()
		}
		if profile.To != nil {
			values["to"] = profile.To.String()
		}
		for _, member := range slices.Sorted(maps.Keys(values)) {
			if values[member] != "" {
				row := setting.Setting{Host: pattern, Member: member, Value: values[member]}
				listed = append(listed, Setting{Setting: row, Source: FromFile})
			}
		}
	}
	return listed
}

// hasRecovered reports whether a call was delivered after the one for which the next message waits.
func (t TargetStatus) hasRecovered() bool {
	return len(t.Failing) == 0 && !t.FailedAt.IsZero() && slices.ContainsFunc(t.Numbers.Minutes,
		func(p sight.Point) bool { return p.Delivered > 0 && p.At.After(t.FailedAt) })
}

// Why says why the next message of a target that does not fail waits; empty if none does.
func (t TargetStatus) Why() string {
	if t.Recovered {
		return "(was " + t.Cause + ")"
	}
	return t.Cause
}

func targetStatus(group message.ScheduledGroup) TargetStatus {
	return TargetStatus{Host: group.Key, ScheduledGroup: group}
}

// recentFailure is how long a target without scheduled messages is shown after its latest failure.
const recentFailure = time.Hour

// JoinTargets adds to groups of scheduled messages by host how the hosts fail. At the end it adds the targets without
// scheduled messages that have failed in the last hour before now; if that is zero, it adds none.
func JoinTargets(groups []message.ScheduledGroup, failing []sight.Target, now time.Time) []TargetStatus {
	targets := make([]TargetStatus, 0, len(groups))
	index := map[string]int{}
	for _, group := range groups {
		index[group.Key] = len(targets)
		targets = append(targets, targetStatus(group))
	}
	for _, f := range failing {
		host := text.Printable(f.Host)
		at, has := index[host]
		isRecent := !now.IsZero() && now.Sub(f.Latest) < recentFailure
		switch {
		case has:
			targets[at].Failing = append(targets[at].Failing, f)
		case isRecent:
			index[host] = len(targets)
			status := targetStatus(message.ScheduledGroup{Key: host, Statuses: map[int]int{}})
			status.Failing = []sight.Target{f}
			targets = append(targets, status)
		}
	}
	return targets
}

// Move is a host whose calls targets.json moves to another one.
type Move struct {
	Pattern string `json:"pattern"`
	To      string `json:"to"`
}

// Moves returns the hosts that targets.json moves, ordered by pattern.
func (a *Account) Moves() (listed []Move) {
	moves := a.Rules.Decision.Profiles.Moves()
	for _, pattern := range slices.Sorted(maps.Keys(moves)) {
		listed = append(listed, Move{pattern, moves[pattern].String()})
	}
	return listed
}

// ClientCertificate is a certificate that targets.json gives to the targets of a pattern.
type ClientCertificate struct {
	Pattern string `json:"pattern"`
	// Certificate is the variable that has it.
	Certificate string `json:"certificate"`
	// Subject and Ends are empty if the variable is not known here.
	Subject string    `json:"subject,omitempty"`
	Ends    time.Time `json:"ends,omitzero"`
}

// ClientCertificates returns the certificates of targets.json, ordered by pattern.
func ClientCertificates(profiles targets.Profiles) (listed []ClientCertificate) {
	certificates := profiles.Certificates()
	for _, pattern := range slices.Sorted(maps.Keys(certificates)) {
		c := certificates[pattern]
		listed = append(listed, ClientCertificate{pattern, c.Name, c.Subject, c.Ends})
	}
	return listed
}

// Text says in a few words which certificate it is.
func (c ClientCertificate) Text() string {
	if c.Ends.IsZero() {
		return c.Certificate
	}
	about := c.Certificate + " to " + c.Ends.Format(time.DateOnly)
	if c.Subject != "" {
		about += " (" + c.Subject + ")"
	}
	return about
}

// Warning says that the certificate has ended or will soon; empty if it will not, or that is not known.
func (c ClientCertificate) Warning(now time.Time) string {
	days := certificate.Certificate{Ends: c.Ends}.DaysLeft(now)
	switch {
	case c.Ends.IsZero() || days >= certificate.SoonDays:
		return ""
	case days < 0:
		return "has ended: renew it"
	}
	return fmt.Sprintf("ends in %d days: renew it", days)
}

// Credential is a credential that targets.json gives to the targets of a pattern.
type Credential struct {
	Pattern    string `json:"pattern"`
	Credential string `json:"credential"`
}

// Credentials returns the credentials of targets.json, ordered by pattern.
func (a *Account) Credentials() (listed []Credential) {
	credentials := a.Rules.Decision.Profiles.Credentials()
	for _, pattern := range slices.Sorted(maps.Keys(credentials)) {
		listed = append(listed, Credential{pattern, credentials[pattern].Name})
	}
	return listed
}
