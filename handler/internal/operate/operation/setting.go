package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/limit"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/record"
	"asynccaller/handler/internal/setting"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
	"asynccaller/handler/internal/targets"
)

// WaitingCalls are the scheduled messages for a target. A message on its queue that is not scheduled is not among them.
type WaitingCalls struct {
	// Scheduled is how many messages for the target the record has, and Busy how many of them wait because it was busy.
	// Both are nil if the record cannot be read, for which CountProblem is the reason.
	Scheduled    *int   `json:"scheduled,omitempty"`
	Busy         *int   `json:"busy,omitempty"`
	CountProblem string `json:"countProblem,omitempty"`
	// Hosts are those of the calls, with a port if the URL has one, at most 10.
	Hosts []string `json:"hosts,omitempty"`
}

// PauseResult says what a pause of a target means.
type PauseResult struct {
	setting.Setting
	WaitingCalls

	Account string `json:"account"`
	// Expiring is how many of the scheduled messages expire before Until, and FirstExpiry the earliest time; nil if
	// that is not known.
	Expiring    *int      `json:"expiring,omitempty"`
	FirstExpiry time.Time `json:"firstExpiry,omitzero"`
	// CountedUntil is Until or, without an end, a day from now.
	CountedUntil time.Time `json:"countedUntil"`
}

// LimitResult says what a change of the limits of a target means.
type LimitResult struct {
	WaitingCalls

	Host    string `json:"host"`
	Account string `json:"account"`
	// Settings are those that were made or, by [Operations.ClearLimits], removed.
	Settings []account.Setting `json:"settings"`
	// Raised says that the target gets more calls than before.
	Raised bool `json:"raised"`
}

const (
	// changeTries is how often a setting is written again that another operator has changed at the same time.
	changeTries = 5
	// countTimeout limits the reading of the record, which can have any number of messages.
	countTimeout = 30 * time.Second
	// openEndedPeriod is the time for which expiring messages are counted if a pause has no end.
	openEndedPeriod = 24 * time.Hour
	// maxHosts limits the hosts of the calls for a target that are named.
	maxHosts = 10
)

// PauseTarget pauses a target: Host, Since, Until, By and Reason are those of the result, except that an earlier pause
// that is still in force goes on. An error means that it is not known to be paused.
func (op *Operations) PauseTarget(ctx context.Context, pause setting.Setting) (PauseResult, error) {
	now := pause.Since
	pause.Member = setting.Pause
	written, err := op.set(ctx, pause)
	if err != nil {
		return PauseResult{}, err
	}
	op.publishSetting(ctx, "pause")
	result := PauseResult{Setting: written, Account: op.Account.Name, CountedUntil: pause.Until}
	if pause.Until.IsZero() {
		result.CountedUntil = now.Add(openEndedPeriod)
	}
	expiring := 0
	result.WaitingCalls = op.countWaiting(ctx, pause.Host, now, func(row record.Scheduled) {
		if row.Deadline.IsZero() || !row.Deadline.Before(result.CountedUntil) {
			return
		}
		expiring++
		if result.FirstExpiry.IsZero() || row.Deadline.Before(result.FirstExpiry) {
			result.FirstExpiry = row.Deadline.UTC()
		}
	})
	if result.CountProblem == "" {
		result.Expiring = &expiring
	}
	return result, nil
}

// SetLimits sets members of a target, which is the same for all of them. An error means that not all of them are known
// to be set.
func (op *Operations) SetLimits(ctx context.Context, limits []setting.Setting) (LimitResult, error) {
	host := limits[0].Host
	before, err := op.profileInForce(ctx, host)
	if err != nil {
		return LimitResult{}, err
	}
	result := LimitResult{Host: host, Account: op.Account.Name}
	for _, s := range limits {
		written, err := op.set(ctx, s)
		if err != nil {
			return result, err
		}
		result.Settings = append(result.Settings, op.Account.WithFile(written))
	}
	op.publishSetting(ctx, "set")
	return result, op.countAfter(ctx, &result, before)
}

// ErrNotSet means that no limit of a target is set.
var ErrNotSet = errors.New("has no limit that is set")

// ClearLimits ends the settings of the rate and the concurrency of a host in the form of [targets.ParseHost]. The error
// is an [ErrNotSet] if there are none.
func (op *Operations) ClearLimits(ctx context.Context, host string) (LimitResult, error) {
	before, err := op.profileInForce(ctx, host)
	if err != nil {
		return LimitResult{}, err
	}
	result := LimitResult{Host: host, Account: op.Account.Name}
	for _, member := range []string{setting.Rate, setting.Concurrency} {
		removed, wasSet, err := op.unset(ctx, host, member)
		if err != nil {
			return result, err
		}
		if wasSet {
			result.Settings = append(result.Settings, op.Account.WithFile(removed))
		}
	}
	if len(result.Settings) == 0 {
		return result, fmt.Errorf("%s %w", host, ErrNotSet)
	}
	op.publishSetting(ctx, "clear")
	return result, op.countAfter(ctx, &result, before)
}

// ErrNotPaused means that a target is not paused.
var ErrNotPaused = errors.New("is not paused")

// ResumeTarget ends the pause of a target, which is in the form of [targets.ParseHost], and returns it. The error is an
// [ErrNotPaused] if there is none. Until [setting.Notice] later, an instance of the app may still reschedule the
// target's messages.
func (op *Operations) ResumeTarget(ctx context.Context, host string) (setting.Setting, error) {
	pause, wasPaused, err := op.unset(ctx, host, setting.Pause)
	switch {
	case err != nil:
		return pause, err
	case !wasPaused:
		return pause, fmt.Errorf("%s %w", host, ErrNotPaused)
	}
	op.publishSetting(ctx, "resume")
	return pause, nil
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

// profileInForce returns the profile of a host as an instance of the app sees it. If the settings cannot be read, it is
// that of targets.json.
func (op *Operations) profileInForce(ctx context.Context, host string) (targets.Profile, error) {
	settings, err := op.Account.Settings(ctx)
	if errors.Is(err, account.ErrNoSettings) {
		return targets.Profile{}, err
	}
	profile, now := op.Account.Rules.Decision.Profiles.OfHost(host), time.Now()
	return setting.Select(settings, now).OfHost(host, now).Profile(profile), nil
}

// countAfter counts the messages that wait for a target whose limits have changed.
func (op *Operations) countAfter(ctx context.Context, r *LimitResult, before targets.Profile) error {
	after, err := op.profileInForce(ctx, r.Host)
	isMore := func(before, after float64) bool { return before > 0 && (after == 0 || after > before) }
	r.Raised = isMore(float64(before.Rate), float64(after.Rate)) ||
		isMore(float64(before.Concurrency), float64(after.Concurrency))
	r.WaitingCalls = op.countWaiting(ctx, r.Host, time.Now(), func(record.Scheduled) {})
	return err
}

// publishSetting adds a change of a setting to the list of runs.
func (op *Operations) publishSetting(ctx context.Context, command string) {
	if op.Outcomes == nil {
		return
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	s := run.Summary{
		Run: journal.NewID(now, command), Command: command, At: now, Account: op.Account.Name, State: run.Finished,
		Operator: op.Operator,
	}
	if err := op.publish(ctx, RunSummary{Summary: s, End: now, Setting: true}); err != nil {
		op.observer().Note(fmt.Sprintf("the list of runs does not show this change: %v", err))
	}
}

// scheduledFor selects the scheduled messages for a host in the form of [targets.ParseHost].
func scheduledFor(host string) (s account.ScheduledSource) {
	s.Filter.Hosts = []string{host}
	return s
}

// countWaiting counts the scheduled messages for a target, and shows their rows.
func (op *Operations) countWaiting(
	ctx context.Context, host string, now time.Time, see func(record.Scheduled),
) (w WaitingCalls) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	isStale := op.Account.StaleCheck(ctx, now)
	scheduled, busy := 0, 0
	_, err := op.Account.ListScheduled(ctx, scheduledFor(host), false, func(m message.Scheduled) error {
		if isStale(m.Row) {
			return nil
		}
		scheduled++
		if m.Reason == string(decision.Busy) {
			busy++
		}
		if len(w.Hosts) < maxHosts && !slices.Contains(w.Hosts, m.Host) {
			w.Hosts = append(w.Hosts, m.Host)
		}
		see(m.Row)
		return nil
	})
	if err != nil {
		return WaitingCalls{CountProblem: account.RecordProblem(err)}
	}
	slices.Sort(w.Hosts)
	w.Scheduled, w.Busy = &scheduled, &busy
	return w
}

// hostRow is what the rows of targets have in common.
type hostRow struct {
	storage.Key

	TargetHost string `row:"targetHost"`
}

// Knows reports whether something is known of calls to a host in the form of [targets.ParseHost]: targets.json names
// it, the table has a row of its limits, settings or failures, or a call to it is scheduled.
func (op *Operations) Knows(ctx context.Context, host string) (bool, error) {
	if op.Account.AppTable == nil {
		return false, account.ErrNoSettings
	}
	var filter message.Filter
	filter.Hosts = []string{host}
	isKnown := false
	seeCall := func(of string) { isKnown = isKnown || filter.Match(message.Message{Host: of}, nil) }
	seeHost := func(of string) { // without a port, it means all ports
		isKnown = isKnown || of == host || of == targets.WithoutPort(host) || targets.WithoutPort(of) == host
	}
	for _, pattern := range op.Account.Rules.Decision.Profiles.Patterns() {
		seeHost(pattern)
	}
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	for partition, see := range map[string]func(host string){
		setting.Partition: seeHost, limit.Partition: seeHost, record.TargetsPartition: seeCall,
	} {
		if isKnown {
			break
		}
		q := storage.Query{Partition: partition}
		err := rows.List(ctx, op.Account.AppTable, q, func(row hostRow) error {
			see(row.TargetHost)
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
