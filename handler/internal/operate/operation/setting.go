package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
)

// Set makes settings of one target by a command: all of them or none, for which the error says what is known.
func (op *Operations) Set(ctx context.Context, command string, settings ...setting.Setting) error {
	if op.Account.AppTable == nil {
		return account.ErrNoSettings
	}
	for _, s := range settings {
		if to := op.Account.Rules.Decision.Profiles.OfHost(s.Host).To; to != nil {
			return fmt.Errorf("targets.json moves its calls to %s: name that host", targets.Host(to))
		}
	}
	limited, cancel := context.WithTimeout(ctx, account.ReachTimeout)
	defer cancel()
	for i := range settings {
		settings[i].By = text.Clip(op.By(limited).By(), setting.MaxText)
	}
	if err := setting.Write(limited, op.Account.AppTable, settings...); err != nil {
		return err
	}
	op.publishSetting(ctx, command)
	all, err := op.Account.Settings(ctx)
	if err == nil {
		err = setting.RemovePast(ctx, op.Account.AppTable, all, time.Now())
	}
	if err != nil { // they have no effect
		op.observer().Note(fmt.Sprintf("rows of settings that have ended were not removed: %v", err))
	}
	return nil
}

// ErrNotSet means that a target has no such setting.
var ErrNotSet = errors.New("is not set")

// Unset ends settings of members of a host in the form of [targets.ParseHost] by a command, and returns them. The error
// is an [ErrNotSet] if there is none. Until [setting.Notice] later, an instance of an app may still obey them.
func (op *Operations) Unset(
	ctx context.Context, command, host string, members ...string,
) (ended []setting.Setting, err error) {
	if op.Account.AppTable == nil {
		return nil, account.ErrNoSettings
	}
	limited, cancel := context.WithTimeout(ctx, account.ReachTimeout)
	defer cancel()
	ended, err = setting.Remove(limited, op.Account.AppTable, host, members...)
	switch {
	case err != nil:
		return nil, fmt.Errorf("end the %s of %s: %w", strings.Join(members, " and the "), host, err)
	case len(ended) == 0:
		return nil, fmt.Errorf("the %s of %s %w", strings.Join(members, " or the "), host, ErrNotSet)
	}
	op.publishSetting(ctx, command)
	return ended, nil
}

// publishSetting adds a change of a setting to the list of runs.
func (op *Operations) publishSetting(ctx context.Context, command string) {
	s := RunSummary{Setting: true}
	s.Command, s.Operator = command, op.By(ctx)
	op.publishChange(ctx, s)
}

// scheduledFor selects the scheduled messages for a host in the form of [targets.ParseHost].
func scheduledFor(host string) (s account.Source) {
	s.Filter.Hosts = []string{host}
	return s
}

// countTimeout limits the reading of the record, which can have any number of messages.
const countTimeout = 30 * time.Second

// CountExpiring counts the scheduled messages for a host in the form of [targets.ParseHost] that expire before a time,
// the first of them at first. Those that wait on a queue, due, are not among them.
func (op *Operations) CountExpiring(
	ctx context.Context, host string, until time.Time,
) (expiring int, first time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	presence := op.Account.PresenceCheck(ctx, time.Now())
	_, err = op.Account.ListScheduled(ctx, scheduledFor(host), false, func(m message.Recorded) error {
		deadline := m.Row.Deadline.UTC()
		if presence(m.Row) != record.Gone && !deadline.IsZero() && deadline.Before(until) {
			expiring++
			first = bounds.Earliest(first, deadline)
		}
		return nil
	})
	return expiring, first, err
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
	onlyResumed := func(_ *Plan, in *decision.Intake, _ *record.Row) error {
		if in.Envelope == nil { // it is refused
			return nil
		}
		target := in.Call().Target // a row does not say whether its URL is http or https
		_, isPaused := inForce.Of(target, now)[setting.Pause]
		if isPaused || !slices.Contains(targets.Keys(target), host) {
			return errLeftOut
		}
		return nil
	}
	return op.planRetryScheduled(ctx, s, paced("expedite", pace), inForce, onlyResumed)
}
