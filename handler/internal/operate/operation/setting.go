package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/gates/limit"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// ScheduledCalls are the scheduled messages for a target. Those that wait on a queue, due, are not among them.
type ScheduledCalls struct {
	// Scheduled is how many messages the record has. Busy of them wait because the target was busy, and Expiring of
	// them expire before CountedUntil, the first at FirstExpiry. The numbers are nil if the record cannot be read, for
	// which CountProblem is the reason.
	Scheduled    *int      `json:"scheduled,omitempty"`
	Busy         *int      `json:"busy,omitempty"`
	Expiring     *int      `json:"expiring,omitempty"`
	FirstExpiry  time.Time `json:"firstExpiry"`
	CountedUntil time.Time `json:"countedUntil"`
	CountProblem string    `json:"countProblem,omitempty"`
	// Hosts are those of the calls, at most 10.
	Hosts []string `json:"hosts,omitempty"`
}

const (
	// changeTries is how often a setting is written again that another operator has changed at the same time.
	changeTries = 5
	// countTimeout limits the reading of the record, which can have any number of messages.
	countTimeout = 30 * time.Second
	// openEndedPeriod is the time for which expiring messages are counted if a setting has no end.
	openEndedPeriod = 24 * time.Hour
	// maxHosts limits the hosts of the calls for a target that are named.
	maxHosts = 10
)

// Set makes settings by a command, and returns them as they were made: one that is in force with the same value goes
// on. An error means that not all of them are known to be in force.
func (op *Operations) Set(
	ctx context.Context, command string, settings ...setting.Setting,
) (made []setting.Setting, err error) {
	for _, s := range settings {
		var written setting.Setting
		written, err = op.set(ctx, s)
		if err != nil {
			break
		}
		made = append(made, written)
	}
	if len(made) > 0 {
		op.publishSetting(ctx, command)
	}
	return made, err
}

// ErrNotSet means that a target has no such setting.
var ErrNotSet = errors.New("is not set")

// Unset ends settings of members of a host in the form of [targets.ParseHost] by a command, and returns them. The error
// is an [ErrNotSet] if there is none. Until [setting.Notice] later, an instance of an app may still obey them.
func (op *Operations) Unset(
	ctx context.Context, command, host string, members ...string,
) (ended []setting.Setting, err error) {
	for _, member := range members {
		var removed setting.Setting
		var wasSet bool
		removed, wasSet, err = op.unset(ctx, host, member)
		if err != nil {
			break
		}
		if wasSet {
			ended = append(ended, removed)
		}
	}
	switch {
	case len(ended) > 0:
		op.publishSetting(ctx, command)
	case err == nil:
		err = fmt.Errorf("the %s of %s %w", strings.Join(members, " or the "), host, ErrNotSet)
	}
	return ended, err
}

// set writes a setting, and checks that the apps read it.
func (op *Operations) set(ctx context.Context, s setting.Setting) (written setting.Setting, err error) {
	if op.Account.AppTable == nil {
		return s, account.ErrNoSettings
	}
	now := s.Since
	err = setting.ErrChanged
	for range changeTries {
		if !errors.Is(err, setting.ErrChanged) {
			break
		}
		err = changeSetting(ctx, func(ctx context.Context) (err error) {
			written, err = setting.Write(ctx, op.Account.AppTable, s)
			return err
		})
	}
	if err != nil {
		return s, fmt.Errorf("%s %s: %w", s, s.Host, err)
	}
	return written, op.checkRead(ctx, written, now)
}

// unset removes the setting of a member, and reports whether there was one.
func (op *Operations) unset(ctx context.Context, host, member string) (s setting.Setting, wasSet bool, err error) {
	if op.Account.AppTable == nil {
		return s, false, account.ErrNoSettings
	}
	err = changeSetting(ctx, func(ctx context.Context) error { // a try that got no answer may have removed it
		removed, found, err := setting.Remove(ctx, op.Account.AppTable, host, member)
		if found {
			s, wasSet = removed, true
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("end the %s of %s: %w", member, host, err)
	}
	return s, wasSet, err
}

// changeSetting makes a change until storage acknowledges it, or another operator has made one at the same time.
func changeSetting(ctx context.Context, change func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, account.ReachTimeout)
	defer cancel()
	return storage.Persist(ctx, account.ReachTimeout/3, change, storage.ErrRefused, setting.ErrChanged)
}

// checkRead returns an error if the table has more settings than an app reads, and one is not among them. It removes
// the rows of settings that have ended. They have no effect, so a failure does not matter.
func (op *Operations) checkRead(ctx context.Context, s setting.Setting, now time.Time) error {
	settings, err := op.Account.Settings(ctx)
	if err != nil {
		op.observer().Note(fmt.Sprintf("the setting was not read back: %v", err))
		return nil
	}
	if err := setting.RemoveEnded(ctx, op.Account.AppTable, settings, now); err != nil {
		op.observer().Note(fmt.Sprintf("rows of settings that have ended were not removed: %v", err))
	}
	if _, isRead := setting.Select(settings, now)[s.Host][s.Member]; !isRead {
		return fmt.Errorf("%s %s: the table has more settings than an app reads, and this one is not among them: "+
			"end others (`async-caller targets list`), and repeat the command", s, s.Host)
	}
	return nil
}

// ProfileInForce returns the profile of a host in the form of [targets.ParseHost] as an instance of the app sees it. If
// the settings cannot be read, it is that of targets.json.
func (op *Operations) ProfileInForce(ctx context.Context, host string) targets.Profile {
	settings, _ := op.Account.Settings(ctx)
	now := time.Now()
	of := setting.Select(settings, now).OfHost(host, now)
	return of.Profile(op.Account.Rules.Decision.Profiles.OfHost(host))
}

// publishSetting adds a change of a setting to the list of runs.
func (op *Operations) publishSetting(ctx context.Context, command string) {
	s := RunSummary{Setting: true}
	s.Command, s.Operator = command, op.Operator
	op.publishChange(ctx, s)
}

// scheduledFor selects the scheduled messages for a host in the form of [targets.ParseHost].
func scheduledFor(host string) (s account.Source) {
	s.Filter.Hosts = []string{host}
	return s
}

// CountScheduled counts the scheduled messages for a host in the form of [targets.ParseHost], and those that expire
// before a time or, if that is zero, within a day.
func (op *Operations) CountScheduled(ctx context.Context, host string, until time.Time) ScheduledCalls {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	now := time.Now()
	c := ScheduledCalls{CountedUntil: until}
	if until.IsZero() {
		c.CountedUntil = now.UTC().Truncate(time.Second).Add(openEndedPeriod)
	}
	presence := op.Account.PresenceCheck(ctx, now)
	scheduled, busy, expiring := 0, 0, 0
	_, err := op.Account.ListScheduled(ctx, scheduledFor(host), false, func(m message.Scheduled) error {
		if presence(m.Row) == record.Gone {
			return nil
		}
		scheduled++
		if m.Reason == string(decision.Busy) {
			busy++
		}
		if len(c.Hosts) < maxHosts && !slices.Contains(c.Hosts, m.Host) {
			c.Hosts = append(c.Hosts, m.Host)
		}
		if deadline := m.Row.Deadline.UTC(); !deadline.IsZero() && deadline.Before(c.CountedUntil) {
			expiring++
			c.FirstExpiry = bounds.Earliest(c.FirstExpiry, deadline)
		}
		return nil
	})
	if err != nil {
		return ScheduledCalls{CountProblem: account.RecordProblem(err)}
	}
	slices.Sort(c.Hosts)
	c.Scheduled, c.Busy, c.Expiring = &scheduled, &busy, &expiring
	return c
}

// hostRow is what the rows of targets have in common.
type hostRow struct {
	storage.Key

	TargetHost string `row:"targetHost"`
}

// Knows reports whether something is known of calls to a host in the form of [targets.ParseHost]: targets.json names
// it, a table has a row of its limits or settings, it fails, or a call to it is scheduled.
func (op *Operations) Knows(ctx context.Context, host string) (bool, error) {
	if op.Account.AppTable == nil {
		return false, account.ErrNoSettings
	}
	var filter message.Filter
	filter.Hosts = []string{host}
	isKnown := false
	seeCall := func(of string) {
		isCalled, _ := filter.Match(message.Message{Host: of}, nil)
		isKnown = isKnown || isCalled
	}
	seeHost := func(of string) { // without a port, it means all ports
		of = targets.HostOf(of)
		isKnown = isKnown || of == host || of == targets.WithoutPort(host) || targets.WithoutPort(of) == host
	}
	for _, pattern := range op.Account.Rules.Decision.Profiles.Patterns() {
		seeHost(pattern)
	}
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	failing, err := op.Account.Failing(ctx)
	if err != nil {
		return false, err
	}
	for _, t := range failing {
		seeCall(t.Host)
	}
	for _, partition := range []string{setting.Partition, limit.Partition} {
		if isKnown {
			break
		}
		q := storage.Query{Partition: partition}
		err := rows.List(ctx, op.Account.AppTable, q, func(row hostRow) error {
			seeHost(row.TargetHost)
			if isKnown {
				return rows.ErrStop
			}
			return nil
		})
		if err != nil {
			return false, err
		}
	}
	if isKnown || op.Account.Table == nil {
		return isKnown, nil
	}
	one := scheduledFor(host)
	one.Limit = 1
	n, err := op.Account.ListScheduled(ctx, one, false, func(message.Scheduled) error { return nil })
	return n > 0, err
}

// PlanResume prepares to make the scheduled messages due that were paused with a host in the form of
// [targets.ParseHost]. It leaves out those that another pause still stops, with a warning.
func (op *Operations) PlanResume(ctx context.Context, host string, pace journal.Pace) (*Plan, error) {
	settings, err := op.Account.Settings(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	inForce := setting.Select(settings, now)
	s := scheduledFor(host)
	s.Filter.Reasons = []string{string(decision.Paused)}
	onlyResumed := func(_ *Plan, in *decision.Intake, _ *record.Scheduled) error {
		if in.Envelope == nil { // it is refused
			return nil
		}
		target := in.Envelope.Call.Target // a row does not say whether its URL is http or https
		_, isPaused := inForce.Of(target, now)[setting.Pause]
		if isPaused || !slices.Contains(targets.Keys(target), host) {
			return errLeftOut
		}
		return nil
	}
	return op.planExpedite(ctx, s, paced("expedite", pace), inForce, onlyResumed)
}
