package account

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/gates/limit"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/storage"
)

// The longest time that the record may take, so that a slow table does not delay what the queues say.
const (
	beatsTimeout = 5 * time.Second // also for the targets that fail, and the settings of targets
	rowsTimeout  = 30 * time.Second
	// numbersTimeout is for the first reading of an app with a hundred instances.
	numbersTimeout = 10 * time.Second
)

// maxTargets is the number of targets that a status names.
const maxTargets = 10

// Status has the waiting messages of an account by queue and target, and whether the app runs.
type Status struct {
	// NoCalls says which apps make no calls although they run, and why.
	NoCalls []string  `json:"noCalls,omitempty"`
	Account string    `json:"account"`
	At      time.Time `json:"at"`
	// Queues are those that functions read.
	Queues []QueueStatus `json:"queues"`
	// Targets are the hosts with the most scheduled messages, and those without any that have failed in the last hour.
	// OtherTargets is the number of the others. At the end are those of the busiest targets that are neither.
	Targets      []TargetStatus `json:"targets"`
	OtherTargets int            `json:"otherTargets,omitempty"`
	// AllTargets are the targets of the record, and those that fail. With a RecordProblem, what waits for them is
	// unknown.
	AllTargets []TargetStatus `json:"-"`
	// Failing are all targets that fail, also those that have not failed in the last hour.
	Failing []sight.Target `json:"-"`
	// DueTimes are those of all scheduled messages.
	DueTimes message.DueTimes `json:"-"`
	// Unrecorded is how many messages are on queues, about, and not among the scheduled ones.
	Unrecorded int `json:"unrecorded"`
	// OtherNumbers are those of all targets that are not named. NumbersProblem says why numbers are unknown.
	OtherNumbers   *sight.Series `json:"otherNumbers,omitempty"`
	NumbersProblem string        `json:"numbersProblem,omitempty"`
	// Numbers are those of all targets, until the next status is read.
	Numbers sight.Numbers `json:"-"`
	// Settings are the live settings of targets that are in force. SettingProblem says why that is unknown.
	Settings       []Setting `json:"settings,omitempty"`
	SettingProblem string    `json:"settingProblem,omitempty"`
	// Moves, Certificates and Credentials are those of targets.json.
	Moves        []Move              `json:"moves,omitempty"`
	Certificates []ClientCertificate `json:"certificates,omitempty"`
	Credentials  []Credential        `json:"credentials,omitempty"`
	// Limits says what becomes of the limits of targets.json if the table cannot be used; empty if it can, or if there
	// are none.
	Limits string `json:"limits,omitempty"`
	// Apps are those whose timer functions have recorded that they ran.
	Apps []AppStatus `json:"apps"`
	// SharedQueues says which of them serve the same queues and count limits twice; empty if none do.
	SharedQueues string `json:"sharedQueues,omitempty"`
	// Fronts are those of the queues, and read the others.
	Fronts *Fronts `json:"-"`
	// RecordProblem says why the numbers of scheduled messages are unknown, and the times if they are. TargetProblem
	// says why it is unknown which targets fail.
	RecordProblem string `json:"recordProblem,omitempty"`
	TargetProblem string `json:"targetProblem,omitempty"`

	outlook outlook
}

// AppStatus says whether an app runs.
type AppStatus struct {
	heartbeat.App
	// Silent is the timer function that does not run, although it did or should have; empty if there is none.
	Silent string `json:"silent,omitempty"`
}

// LastSign returns when each of the apps had given a sign of life; zero if there is none.
func (s *Status) LastSign() (at time.Time) {
	for _, app := range s.Apps {
		at = bounds.Earliest(at, app.LastSign())
	}
	return at
}

// QueueStatus is the state of a queue that functions read, and of its poison queue.
type QueueStatus struct {
	Queue string `json:"queue"`
	// Routed says that the queue has a route.
	Routed bool `json:"routed,omitempty"`
	// Missing says that the queue does not exist. Problem says why some of it could not be read.
	Missing bool   `json:"missing,omitempty"`
	Problem string `json:"problem,omitempty"`
	// Messages is the approximate length, invisible messages included; nil if it is unknown.
	Messages *int `json:"messages"`
	// Visible is the number of the first visible messages, at most 32. Oldest is when the oldest of them was created;
	// zero if none is visible.
	Visible int       `json:"visible"`
	Oldest  time.Time `json:"oldest"`
	// Scheduled is nil if the record cannot be read.
	Scheduled *message.ScheduledGroup `json:"scheduled"`
	// Poison is the approximate number of messages on the poison queue; nil if it is unknown. Sample counts those that
	// were seen by reason: all recorded ones or, if rows are missing, the first visible ones. Expiring is how many of
	// the first ones storage will delete.
	Poison   *int          `json:"poison"`
	Sample   []ReasonCount `json:"sample,omitempty"`
	Expiring int           `json:"expiring,omitempty"`
}

// Sampled returns the number of messages of the sample.
func (q QueueStatus) Sampled() (n int) {
	for _, reason := range q.Sample {
		n += reason.Count
	}
	return n
}

// Hidden returns the number of messages that are invisible and not in the record: 0 if it is unknown. They are held,
// were received, or are due so soon that they are not recorded.
func (q QueueStatus) Hidden() int {
	if q.Scheduled == nil || q.Messages == nil || q.Visible == storage.MaxBatch {
		return 0
	}
	return max(*q.Messages-q.Visible-q.Scheduled.Waiting(), 0)
}

// LacksRows reports whether the reasons of some dead letters are unknown.
func (q QueueStatus) LacksRows() bool { return q.Poison != nil && q.Sampled() < *q.Poison }

// OldestCall is when the oldest call was created, among the first visible messages and the scheduled ones that do not
// wait for their notBefore; zero if there are none. Rescheduling keeps this time.
func (q QueueStatus) OldestCall() time.Time {
	if q.Scheduled == nil {
		return q.Oldest
	}
	return bounds.Earliest(q.Oldest, q.Scheduled.OldestLate)
}

// IsIdle reports whether nothing waits on the queue and its poison queue, as far as is known.
func (q QueueStatus) IsIdle() bool {
	isScheduled := q.Scheduled != nil && q.Scheduled.Count > 0
	return q.Problem == "" && *q.Messages == 0 && *q.Poison == 0 && !isScheduled
}

// IsKnown reports whether everything could be read, except for a record that the app does not have.
func (s Status) IsKnown() bool {
	isRead := s.RecordProblem == "" || s.RecordProblem == ErrNoTable.Error()
	hasProblem := func(q QueueStatus) bool { return q.Problem != "" || s.RecordProblem == "" && q.LacksRows() }
	return isRead && s.TargetProblem == "" && s.SettingProblem == "" && s.NumbersProblem == "" &&
		!slices.ContainsFunc(s.Queues, hasProblem)
}

// Status reads the state of the account. It reads the record beside the queues, and returns without what takes too
// long. Only an account that cannot be reached is an error.
func (a *Account) Status(ctx context.Context) (Status, error) {
	limited, cancel := context.WithTimeout(ctx, ReachTimeout)
	defer cancel()
	all, err := a.Reach(ctx)
	if err != nil {
		return Status{}, err
	}
	s := Status{
		Account: a.Name, At: time.Now().UTC(),
		Queues: []QueueStatus{}, Targets: []TargetStatus{}, Apps: []AppStatus{}, Fronts: a.newFronts(all),
	}
	read := make(chan map[string]*message.ScheduledGroup, 1)
	go func() { read <- a.readRecord(ctx, &s) }()
	names := slices.Clone(a.AppQueues)
	for _, name := range all {
		if !strings.HasSuffix(name, storage.PoisonSuffix) && a.IsRead(all, name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, naturalOrder)
	names = slices.Compact(names)
	s.Queues = make([]QueueStatus, len(names))
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() { s.Queues[i] = s.Fronts.status(limited, name) })
	}
	group.Wait()
	for i := range s.Queues {
		if s.Queues[i].LacksRows() {
			group.Go(func() { a.addDeadLetters(ctx, &s.Queues[i]) })
		}
	}
	group.Wait()
	scheduled := <-read
	for i, q := range s.Queues {
		s.Queues[i].Scheduled = scheduled[q.Queue]
		if scheduled != nil && scheduled[q.Queue] == nil {
			s.Queues[i].Scheduled = &message.ScheduledGroup{Key: q.Queue, Statuses: map[int]int{}}
		}
		if scheduled != nil && q.Messages != nil {
			s.Unrecorded += max(*q.Messages-s.Queues[i].Scheduled.Waiting(), 0)
		}
	}
	return s, ctx.Err()
}

// addDeadLetters completes the reasons of dead letters by the record, if there are more than the first ones.
func (a *Account) addDeadLetters(ctx context.Context, q *QueueStatus) {
	ctx, cancel := context.WithTimeout(ctx, rowsTimeout)
	defer cancel()
	reasons := message.NewGroups(message.ByReason)
	s := Source{Queues: []string{q.Queue + storage.PoisonSuffix}, PeekOnly: true}
	listed, err := a.Look(ctx, s, func(m message.Recorded) error { reasons.Add(m.Message); return nil })
	if err == nil && len(listed.Views) > 0 {
		q.Poison, q.Sample = &listed.Views[0].Messages, countReasons(reasons)
	}
}

// naturalOrder compares names. A number at the end counts as a number: async-caller-2 comes before async-caller-10.
func naturalOrder(a, b string) int {
	name := func(s string) string { return strings.TrimRight(s, "0123456789") }
	number := func(s string) string { return strings.TrimPrefix(s, name(s)) }
	return cmp.Or(strings.Compare(name(a), name(b)), len(number(a))-len(number(b)), strings.Compare(a, b))
}

// status returns the state of a queue, and of its poison queue.
func (f *Fronts) status(ctx context.Context, name string) QueueStatus {
	front, _ := f.Of(ctx, name)
	s := QueueStatus{
		Queue: name, Routed: f.account.Rules.IsRaw(name), Missing: front.Missing, Messages: front.Messages,
		Visible: front.Visible, Oldest: front.Oldest, Poison: new(int),
	}
	s.note(front.Problem)
	if poisonName, ok := storage.PoisonName(name); ok {
		poison, _ := f.Of(ctx, poisonName)
		s.note(poison.Problem)
		s.Poison = poison.Messages
		reasons := message.NewGroups(message.ByReason)
		for _, m := range poison.First {
			reasons.Add(m)
			if !m.ExpiresAt.IsZero() {
				s.Expiring++
			}
		}
		s.Sample = countReasons(reasons)
	}
	return s
}

// note keeps the first problem: the others have the same cause.
func (q *QueueStatus) note(err error) {
	if err != nil && q.Problem == "" {
		q.Problem = err.Error()
	}
}

// readRecord completes the status with what the record says, and returns the scheduled messages by queue, nil if they
// are unknown.
func (a *Account) readRecord(ctx context.Context, s *Status) map[string]*message.ScheduledGroup {
	settings := a.readSettings(ctx, s)
	s.Moves, s.Certificates, s.Credentials = a.Moves(), ClientCertificates(a.Rules.Decision.Profiles), a.Credentials()
	queues, hosts, err := a.readScheduled(ctx, s, settings)
	if err != nil {
		s.RecordProblem = RecordProblem(err)
	}
	failing, err := a.Failing(ctx)
	if err != nil {
		s.TargetProblem = RecordProblem(err)
	}
	s.Failing = failing
	targets := JoinTargets(hosts, failing, s.At)
	slices.SortStableFunc(targets, func(a, b TargetStatus) int { // those that fail are never among the others
		return cmp.Compare(min(len(b.Failing), 1), min(len(a.Failing), 1))
	})
	s.OtherTargets = max(len(targets)-maxTargets, 0)
	s.AllTargets = targets
	s.Targets = slices.Clone(targets[:len(targets)-s.OtherTargets])
	a.readNumbers(ctx, s)
	a.estimate(ctx, s, settings)
	return queues
}

// readScheduled completes the status with which apps run, and returns the scheduled messages by queue and by host.
func (a *Account) readScheduled(
	ctx context.Context, s *Status, settings setting.InForce,
) (byQueue map[string]*message.ScheduledGroup, byHost []message.ScheduledGroup, err error) {
	if a.Table == nil {
		return nil, nil, ErrNoTable
	}
	apps, err := a.apps(ctx)
	s.SharedQueues = heartbeat.Shared(apps, s.At)
	for _, app := range apps {
		s.Apps = append(s.Apps, AppStatus{app, app.Silent(s.At)})
		if app.Problem != "" {
			s.NoCalls = append(s.NoCalls, app.Name+": "+app.Problem)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	limited, cancel := context.WithTimeout(ctx, rowsTimeout)
	defer cancel()
	queues := message.ScheduledGroups{By: message.ByQueue, Now: s.At}
	hosts := message.ScheduledGroups{By: message.ByHost, Now: s.At}
	due := message.DueTimes{From: s.At}
	presence := s.Fronts.PresenceCheck(limited, s.At)
	_, err = a.ListScheduled(limited, Source{}, false, func(m message.Recorded) error {
		gone := presence(m.Row) == record.Gone
		if !gone {
			s.outlook.add(m, s.At)
		}
		UntilResumed(&m, settings, s.At)
		queues.Add(m, gone)
		hosts.Add(m, gone)
		due.Add(m, gone)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	s.DueTimes = due
	byQueue = map[string]*message.ScheduledGroup{}
	for _, group := range queues.Result() {
		byQueue[group.Key] = &group
	}
	return byQueue, hosts.Result(), nil
}

// readNumbers completes the targets with their numbers, and adds the busiest ones.
func (a *Account) readNumbers(ctx context.Context, s *Status) {
	if a.Sight == nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, numbersTimeout)
	defer cancel()
	numbers, err := a.Sight.Read(limited, s.At)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		s.NumbersProblem = "the table " + storage.SightTable + " does not answer in time"
	case err != nil:
		s.NumbersProblem = RecordProblem(err)
	}
	if err != nil {
		return
	}
	var shown []string
	for _, target := range s.Targets {
		shown = append(shown, target.Key)
	}
	for _, host := range numbers.Busiest(maxTargets) {
		if !slices.Contains(shown, host) {
			shown = append(shown, host)
			group := message.ScheduledGroup{Key: host, Statuses: map[int]int{}}
			s.Targets = append(s.Targets, targetStatus(group))
		}
	}
	for i := range s.Targets {
		t := &s.Targets[i]
		t.Numbers = new(numbers.Of(t.Key))
		t.Recovered = s.TargetProblem == "" && t.hasRecovered()
	}
	s.OtherNumbers = new(numbers.Except(shown))
	s.Numbers = numbers
}

// readSettings completes the status with the settings of targets that are in force, and returns them. Without a table
// none is.
func (a *Account) readSettings(ctx context.Context, s *Status) setting.InForce {
	settings, err := a.Settings(ctx)
	if err != nil && !errors.Is(err, ErrNoSettings) {
		s.SettingProblem = RecordProblem(err)
	}
	if err != nil && a.Rules.Decision.Profiles.NeedTable() {
		s.Limits = LimitsWithout(err)
	}
	for _, row := range settings {
		if row.IsInForce(s.At) {
			s.Settings = append(s.Settings, a.WithFile(row))
		}
	}
	return setting.Select(settings, s.At)
}

// UntilResumed makes a message for a paused target due at the end of the pause, and states that as its cause. The row
// does not say whether the URL is http or https, so it is asked for both.
func UntilResumed(m *message.Recorded, settings setting.InForce, now time.Time) {
	if len(settings) == 0 {
		return
	}
	var pauses []setting.Setting
	for _, scheme := range []string{"http", "https"} {
		pause, isPaused := settings.Of(&url.URL{Scheme: scheme, Host: m.CalledHost()}, now)[setting.Pause]
		if isPaused {
			pauses = append(pauses, pause)
		}
	}
	isPaused := len(pauses) == 2 || len(pauses) == 1 && m.Reason == string(decision.Paused)
	if !isPaused {
		return
	}
	m.Cause = string(decision.Paused)
	m.Row.NextAttemptAt = bounds.Later(m.Row.NextAttemptAt, pauses[0].Until)
	if pauses[0].Until.IsZero() {
		m.Row.NextAttemptAt = storage.NeverExpires
	}
}

// LimitsWithout says what becomes of the limits of targets.json if an app gets the same error of the table.
func LimitsWithout(err error) string {
	switch {
	case errors.Is(err, ErrNoSettings):
		return "without the table, " + limit.CountsAlone
	case errors.Is(err, storage.ErrDenied):
		return "this identity has no permission to use tables: if that of the app has none either, " +
			limit.CountsAlone + "; assign the role " + storage.TableRole
	}
	return "while the table does not answer an instance, its calls to targets with limits wait"
}

// RecordProblem says why the record cannot be used, and what to do.
func RecordProblem(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "the table " + storage.ScheduledTable + " does not answer in time"
	case errors.Is(err, storage.ErrDenied):
		return err.Error() + "; assign the role " + storage.TableReaderRole
	}
	return err.Error()
}
