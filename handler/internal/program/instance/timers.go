package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/app/ingress"
	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/gates/limit"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/rules/certificate"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
)

// timers has what the tasks of the timer functions need: the keeper keeps messages on poison queues from expiring, and
// the record tidy; the monitor reports every minute what waits, and that the app is running, and compares the poison
// queues with the record.
type timers struct {
	Config
	account *account.Account
	keeper  *operation.Keeper
	records
}

func (c Config) timers(r records) timers {
	return timers{Config: c, records: r, account: c.accountOf()}
}

// accountOf returns the account of the app.
func (c Config) accountOf() *account.Account {
	return &account.Account{
		Name:      c.App.Connection.Account(),
		Store:     c.Store,
		AppQueues: c.App.Functions.QueueNames(),
		Rules: message.Rules{
			Encoding: c.App.Functions.Host.Queues.MessageEncoding,
			Decision: c.App.Settings.Rules,
			Guard:    c.App.Settings.Guard,
			Routed:   c.App.RoutedQueues(),
		},
	}
}

// tasks returns the tasks by the names of their functions.
func (t timers) tasks(stopping context.Context) map[string]ingress.Task {
	var queues []string
	for _, name := range t.account.AppQueues {
		if name, ok := storage.PoisonName(name); ok {
			queues = append(queues, name)
		}
	}
	t.keeper = operation.NewKeeper(t.account, queues)
	return map[string]ingress.Task{
		functionapp.KeeperTimer:  t.limited(stopping, t.keep),
		functionapp.MonitorTimer: t.limited(stopping, t.monitor),
	}
}

// limited returns a task that ends well before functionTimeout, at which the host would kill the handler with all its
// calls, and when the handler stops. The next invocation does the rest. Its error is one line.
func (t timers) limited(stopping context.Context, task ingress.Task) ingress.Task {
	limit := t.App.Functions.Host.FunctionTimeout
	if limit <= 0 { // unlimited
		limit = math.MaxInt64
	}
	return func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, limit-min(limit/4, time.Minute))
		defer cancel()
		defer context.AfterFunc(stopping, cancel)()
		text, err := task(ctx)
		if err != nil {
			err = errors.New(oneLine(err))
		}
		return text, err
	}
}

// keep is the task of the keeper.
func (t timers) keep(ctx context.Context) (string, error) {
	kept, err := t.keeper.Run(ctx, t.scheduled.Table())
	text := fmt.Sprintf("kept %d messages on the poison queues of %s from expiring", kept, t.account.Name)
	tableErr := t.scheduled.Use(func(table storage.Table) error {
		swept, err := operation.Sweep(ctx, t.account, table)
		text += fmt.Sprintf(", removed %d rows of scheduled calls that are gone", swept)
		return errors.Join(err,
			record.SweepApps(ctx, table, record.Heartbeats),
			t.beat(ctx, table, functionapp.KeeperTimer))
	})
	appErr := t.shared.Use(func(table storage.Table) error {
		return errors.Join(
			record.SweepApps(ctx, table, limit.Partition),
			record.SweepApps(ctx, table, heartbeat.TurnsPartition))
	})
	sightErr := t.sight.Sweep(ctx)
	outcomesErr := t.outcomes.Use(func(table storage.Table) error {
		swept, err := record.SweepOutcomes(ctx, table)
		if swept > 0 {
			text += fmt.Sprintf(", removed %d outcomes of messages of runs", swept)
		}
		return err
	})
	if err := errors.Join(err, tableErr, appErr, sightErr, outcomesErr); err != nil {
		return "", fmt.Errorf("incomplete: %s, but not all: %w", text, err)
	}
	return text, nil
}

// monitor logs that the app is alive, if it can read its queues, and a line about each of them that is not empty.
func (t timers) monitor(ctx context.Context) (string, error) {
	log := zerolog.Ctx(ctx)
	a := *t.account
	a.Table = t.scheduled.Table()
	status, err := a.Status(ctx)
	for _, q := range status.Queues {
		if q.Problem != "" && slices.Contains(t.account.AppQueues, q.Queue) {
			err = cmp.Or(err, errors.New(q.Problem)) // the others have the same cause
		}
	}
	if err == nil { // otherwise the alert must learn that nobody watches the queues
		line := log.Info().Str(logs.Account, t.account.Name).Str("version", t.Version).
			Bool("hold_mode", t.InHoldMode())
		if first := firstToEnd(status.Certificates); first != nil {
			line.Int(logs.CertificateDays, certificate.Certificate{Ends: first.Ends}.DaysLeft(status.At)).
				Str(logs.Certificate, first.Certificate)
		}
		line.Msg("alive")
	}
	waiting := 0
	for _, q := range status.Queues {
		if q.Problem != "" || !slices.Contains(t.account.AppQueues, q.Queue) {
			continue // it is unknown, or belongs to another app
		}
		scheduled := 0
		if q.Scheduled != nil {
			scheduled = q.Scheduled.Waiting()
		}
		if *q.Messages+*q.Poison+scheduled == 0 {
			continue
		}
		waiting++
		line := log.Info().Str(logs.Queue, q.Queue).Int(logs.Depth, *q.Messages).Int(logs.Poison, *q.Poison)
		if q.Scheduled != nil {
			line.Int(logs.Scheduled, scheduled)
		}
		if oldest := q.OldestCall(); !oldest.IsZero() {
			line.Time(logs.Oldest, oldest).Int64(logs.Age, logs.Millis(status.At.Sub(oldest).Round(time.Second)))
		}
		line.Msg("queue")
	}
	text := fmt.Sprintf("%d of %d queues are not empty", waiting, len(t.account.AppQueues))
	appErr := t.shared.Use(func(table storage.Table) error {
		paused, err := logPauses(ctx, table, t.account.Rules.Decision.Profiles, log)
		if paused > 0 {
			text += fmt.Sprintf(", %d targets are paused", paused)
		}
		return err
	})
	beatErr := t.scheduled.Use(func(table storage.Table) error {
		return t.beat(ctx, table, functionapp.MonitorTimer)
	})
	var compareErr error
	if table := t.scheduled.Table(); table != nil { // not Use: a queue can be denied
		compareErr = t.keeper.Compare(ctx, table)
	}
	var dropErr error
	if t.history != nil {
		dropped := 0
		dropped, dropErr = t.history.DropOld(ctx, t.App.Name(), time.Now())
		if dropped > 0 {
			text += fmt.Sprintf(", dropped %d tables of the history", dropped)
		}
	}
	return text, errors.Join(err, appErr, beatErr, compareErr, dropErr)
}

// firstToEnd returns the certificate that ends first; nil if there is none.
func firstToEnd(all []account.ClientCertificate) (first *account.ClientCertificate) {
	for i, c := range all {
		if first == nil || c.Ends.Before(first.Ends) {
			first = &all[i]
		}
	}
	return first
}

// maxPauseLines limits the lines about pauses. The text of the task has the number of all.
const maxPauseLines = 20

// logPauses logs a line about each target that is paused, and returns their number.
func logPauses(
	ctx context.Context, table storage.Table, profiles targets.Profiles, log *zerolog.Logger,
) (paused int, err error) {
	now := time.Now()
	settings, err := setting.Read(ctx, table)
	if err != nil {
		return 0, fmt.Errorf("read which targets are paused: %w", err)
	}
	for _, s := range settings {
		hasMoved := profiles.OfHost(s.Host).To != nil
		if s.Member != setting.Pause || !s.IsInForce(now) || hasMoved {
			continue
		}
		paused++
		if paused <= maxPauseLines {
			log.Info().Str(logs.TargetHost, s.Host).Str(logs.Detail, s.Text()).Msg("paused")
		}
	}
	return paused, nil
}

// served returns the queues that the instance serves.
func (c Config) served() (names []string) {
	if c.Queues != nil {
		return c.Queues
	}
	running, _ := c.App.Functions.Running(c.App.Environ)
	for _, f := range running {
		names = append(names, f.Queue)
	}
	return names
}

// beat records that a timer function of the app runs.
func (t timers) beat(ctx context.Context, table storage.Table, timer string) error {
	app := heartbeat.App{
		Name: t.App.Name(), Version: t.Version, Problem: t.whyNoCalls(), HostName: t.hostName(),
		Adapter: t.Adapter, Queues: t.served(),
	}
	if first := firstToEnd(account.ClientCertificates(t.account.Rules.Decision.Profiles)); first != nil {
		app.Certificate, app.CertificateEnds = first.Pattern+": "+first.Certificate, first.Ends
	}
	return heartbeat.Beat(ctx, table, app, timer)
}
