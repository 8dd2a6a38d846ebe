// Package instance is an instance of the app, without what passes it messages: it connects the packages of the message
// path, does the work of the timer functions, and has hold mode. The handler and the worker are both made of it.
package instance

import (
	"context"
	"io"
	stdlog "log"
	"math/rand/v2"
	"net"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/app/ingress"
	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/gates/admission"
	"asynccaller/handler/internal/gates/credential"
	"asynccaller/handler/internal/gates/limit"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/background"
	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
)

// Config is the configuration of an instance.
type Config struct {
	// App is the app folder. If its settings have problems, the instance is in hold mode.
	App config.App
	// Store gives access to the queues of the app, and Tables to its tables; nil means those of its connection.
	Store  storage.Queues
	Tables storage.Tables
	// Now is the clock of this machine for deliveries and limits; nil means [time.Now].
	Now func() time.Time
	// Connect connects to targets; nil means by the network.
	Connect func(ctx context.Context, network, address string) (net.Conn, error)
	// Version is that of the executable.
	Version string
	// Adapter is [heartbeat.Host] or [heartbeat.Worker].
	Adapter string
	// Queues are those that the instance serves; nil means those of all functions that run.
	Queues []string
}

// Instance delivers messages, and does the work of timer functions. Create it with [Open].
type Instance struct {
	Deliverer *delivery.Deliverer
	// Tasks are those of the timer functions, by their names.
	Tasks map[string]ingress.Task
	// Turns decide whether this instance runs a timer function, where no host does.
	Turns *heartbeat.Turns

	config      Config
	client      *outbound.Client
	records     records
	credentials *credential.Store
	refusals    *Refusals
	refused     *ingress.RefusedPosts
	room        *admission.Room
	log         zerolog.Logger
}

// OpenLog prepares the process for a log that is written to output, and returns the log. The caller closes it at the
// end.
func OpenLog(c Config, output io.Writer) (zerolog.Logger, *logs.Batch) {
	signal.Ignore(syscall.SIGPIPE) // the end of the log's reader must not end the process
	stdlog.SetOutput(io.Discard)   // net/http quotes there what a target sends without being asked
	lines := logs.NewBatch(output)
	log := logs.New(lines, c.App.Settings.LogLevel)
	for _, warning := range c.App.Settings.Warnings {
		log.Warn().Str(logs.Detail, warning).Msg("a setting has its old name")
	}
	return log, lines
}

// Open returns an instance whose calls are interrupted, and whose tasks end, when stopping ends. The caller closes it.
func Open(stopping context.Context, c Config, log zerolog.Logger) *Instance {
	client := outbound.New(c.App.Settings.CallTimeout, c.App.Settings.Guard, c.App.Settings.Proxy).
		WithProfiles(c.App.Settings.Rules.Profiles)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Connect != nil {
		client.ConnectBy(c.Connect)
	}
	queues := c.App.Functions.Host.Queues
	i := &Instance{
		config: c, client: client, refusals: &Refusals{}, refused: &ingress.RefusedPosts{}, log: log,
		records:     openRecords(c, log), //nolint:contextcheck // closing ends them, after the last delivery
		credentials: openCredentials(c, client, log),
		Deliverer: &delivery.Deliverer{
			Rules:  c.App.Settings.Rules,
			Routes: c.App.Settings.Routes,
			Caller: client,
			Settler: settle.New(c.Store, queues.MessageEncoding).
				WithReschedule(c.App.Settings.Reschedule, queues.MaxDequeueCount),
			Hold:      c.hold(),
			Forgeable: c.Adapter == heartbeat.Host && c.App.Functions.CheckForgery() != nil,
			Stopping:  stopping,
			Now:       c.Now,
			Jitter:    rand.Float64,
		},
	}
	i.room = Path{
		Guard: c.App.Settings.Guard, NewBatchThreshold: queues.NewBatchThreshold,
		Settings: i.records.settings, Credentials: i.credentials, Limits: i.records.limits,
		History: i.records.history, KeepHistory: c.App.Settings.History,
		Record: i.records.scheduled, Outcomes: i.records.outcomes, Sight: i.records.sight,
		Refusals: i.refusals, Log: log,
	}.Connect(i.Deliverer)
	i.Tasks = c.timers(i.records).tasks(stopping)
	i.Turns = heartbeat.NewTurns(c.App.Name(), i.records.shared.Table())
	i.records.settings.Read(stopping, firstRead)
	warnOfCertificates(c.App.Settings.Rules.Profiles, log)
	return i
}

// Run does what an instance does beside messages and tasks, until ctx ends.
func (i *Instance) Run(ctx context.Context) {
	routines := i.config.startBackground(ctx, i.refusals, i.log)
	routines.Go(func() { i.refused.Run(ctx, i.log) })
	routines.Go(func() { i.records.settings.Run(ctx) })
	routines.Go(func() { i.records.sight.Run(ctx) })
	if i.credentials != nil {
		routines.Go(func() { i.credentials.Run(ctx) })
	}
	if i.config.App.Settings.Rules.Profiles.NeedTable() {
		routines.Go(func() { i.records.limits.Check(ctx) })
	}
	routines.Wait()
}

// Posts returns the functions that take posts for routes.
func (i *Instance) Posts() ingress.Posts {
	app := i.config.App
	return ingress.Posts{
		Functions: app.Functions.Posts, Routes: app.Settings.Routes, Poster: i.Deliverer, Room: i.room,
		IsHolding: i.config.InHoldMode(), Refused: i.refused,
	}
}

// WhyNoCalls returns why the instance makes no calls; empty if it makes them.
func (i *Instance) WhyNoCalls() string { return i.config.whyNoCalls() }

// RecordPoison writes the row of a message that was moved to a poison queue just now.
func (i *Instance) RecordPoison(queue string, msg storage.Message) {
	i.records.scheduled.Insert(operation.RowOf(i.config.accountOf().Rules, queue, msg.ID, msg.Text))
}

// Close closes the instance, after the last delivery and the last task.
func (i *Instance) Close() {
	i.records.close()
	i.client.Close()
}

// firstRead is how long the start may wait for the settings of targets, so that an instance does not begin with calls
// to targets that are paused.
const firstRead = time.Second

// records are what the handler writes to the tables of the account, and reads there. They are nil if nothing is
// recorded, but for the limits.
type records struct {
	// scheduled writes the record of scheduled messages, outcomes what becomes of messages of runs, and shared writes
	// to the table app, which has the limits, and the settings of operators.
	scheduled, outcomes, shared *background.Writer
	settings                    *setting.Watcher
	limits                      *limit.Limits
	app                         storage.Table
	sight                       *sight.Sight
	history                     *history.History
}

// openTables returns the tables of the app.
func (c Config) openTables() (storage.Tables, error) {
	if c.Tables != nil {
		return c.Tables, nil
	}
	return azure.OpenTables(c.App.Connection)
}

// openHistory returns the history, or nil if nothing is kept of any call.
func openHistory(c Config, log zerolog.Logger) *history.History {
	if !c.App.Settings.KeepsHistory() {
		return nil
	}
	tables, err := c.openTables()
	if err != nil {
		log.Warn().Err(err).Msg("history is off")
		return nil
	}
	return history.New(tables, c.App.Settings.HistoryRetention, log)
}

// warnOfCertificates writes a line about each client certificate that has ended. It is presented all the same: the
// target decides.
func warnOfCertificates(profiles targets.Profiles, log zerolog.Logger) {
	for _, c := range account.ClientCertificates(profiles) {
		if c.Ends.Before(time.Now()) {
			log.Warn().Str("pattern", c.Pattern).Str(logs.Certificate, c.Certificate).Time("ended", c.Ends).
				Msg("a client certificate has ended")
		}
	}
}

// openCredentials returns the tokens for the calls of a client, or nil if no target has a credential.
func openCredentials(c Config, client *outbound.Client, log zerolog.Logger) *credential.Store {
	if len(c.App.Settings.Rules.Profiles.Credentials()) == 0 {
		return nil
	}
	store := credential.New(credential.Config{
		Fetch: credential.NewFetch(client.TokenClient()),
		Now:   time.Now, Random: rand.Float64, Log: log,
	})
	client.WithTokens(store)
	return store
}

func openRecords(c Config, log zerolog.Logger) (r records) {
	r.history = openHistory(c, log)
	instance := uuid.NewString()
	if c.App.Settings.Tables != config.Off {
		r.openTables(c, instance, log)
	}
	r.limits = limit.New(limit.Config{
		Table: r.app, App: c.App.Name(), Instance: instance, Now: c.Now, Random: rand.Float64, Log: log,
	})
	return r
}

// openTables opens the tables of what is recorded.
func (r *records) openTables(c Config, instance string, log zerolog.Logger) {
	tables, err := c.openTables()
	if err != nil {
		log.Warn().Err(err).Msg("calls that wait are not recorded")
		return
	}
	r.scheduled = record.NewWriter(tables.Table(storage.ScheduledTable), background.HandlerBytes, log)
	r.outcomes = record.NewOutcomeWriter(tables.Table(storage.RunTable), background.HandlerBytes, log)
	r.app = tables.Table(storage.AppTable)
	r.shared = background.New(background.Config{
		Table: r.app, Rows: "limits of targets", Bytes: background.HandlerBytes, Log: log,
	})
	r.settings = setting.NewWatcher(r.app, log)
	r.sight = sight.New(tables.Table(storage.SightTable), c.App.Name(), instance, log)
}

// hostName returns the name under which Azure serves the app; empty elsewhere.
func (c Config) hostName() string { return config.Getenv(c.App.Environ)("WEBSITE_HOSTNAME") }

// close closes what writes to tables at the same time.
func (r records) close() {
	var closing sync.WaitGroup
	for _, writer := range []*background.Writer{r.scheduled, r.outcomes, r.shared} {
		closing.Go(func() { writer.Close(background.HandlerClose) })
	}
	closing.Go(func() { r.history.Close(background.HandlerClose) })
	closing.Go(func() { r.limits.Close(background.HandlerClose) })
	closing.Go(func() { r.sight.Close(background.HandlerClose) })
	closing.Wait()
}
