// Package serve runs the handler's process: it reads the configuration, connects the packages of the message path,
// binds the port, serves the Functions host, does the work of the timer functions, and stops.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/ingress"
	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/gates/credential"
	"asynccaller/handler/internal/gates/limit"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/background"
	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
)

// Config is the configuration of the handler.
type Config struct {
	// App is the app folder. If only its settings have problems, the handler starts in hold mode.
	App  config.App
	Port string
	// Store gives access to the queues of the app.
	Store storage.Queues
	// Version is that of the executable.
	Version string
}

// ReadConfig reads and validates the settings, host.json and every function.json. The error joins every problem.
// Outside Development, problems with the settings alone are no error.
func ReadConfig(environ []string) (Config, error) {
	getenv := config.Getenv(environ)
	c := Config{App: config.ReadApp(functionapp.RootPath(getenv), environ, config.Handler)}
	var portErr error
	c.Port, portErr = handlerPort(getenv)
	needed := errors.Join(c.App.FunctionsErr, c.App.ConnectionErr, portErr)
	if needed != nil || strings.EqualFold(getenv("AZURE_FUNCTIONS_ENVIRONMENT"), "Development") {
		return c, errors.Join(needed, c.App.SettingsErr)
	}
	return c, nil
}

func handlerPort(getenv func(string) string) (string, error) {
	const name = "FUNCTIONS_CUSTOMHANDLER_PORT"
	port := getenv(name)
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("%s is %q: want a port; the Functions host sets it: run `func start`, which starts serve",
			name, port)
	}
	return port, nil
}

// Run serves the Functions host until ctx ends, and logs to output. It returns the errors of [Server.Run].
func Run(ctx context.Context, c Config, output io.Writer) error {
	getenv := config.Getenv(c.App.Environ)
	memoryLimit := tuneMemory(getenv)
	signal.Ignore(syscall.SIGPIPE) // the end of the log's reader must not end the handler: see WatchHost
	stdlog.SetOutput(io.Discard)   // net/http quotes there what a target sends without being asked
	hostIsParent := getenv("FUNCTIONS_CUSTOMHANDLER_WORKER_ID") != ""
	if hostIsParent {
		ctx, output = WatchHost(ctx, os.Getppid, output)
	}
	lines := logs.NewBatch(output)
	defer lines.Close()
	log := logs.New(lines, c.App.Settings.LogLevel)

	for _, warning := range c.App.Settings.Warnings {
		log.Warn().Str(logs.Detail, warning).Msg("a setting has its old name")
	}

	client := outbound.New(c.App.Settings.CallTimeout, c.App.Settings.Guard, c.App.Settings.Proxy).
		WithProfiles(c.App.Settings.Rules.Profiles)
	defer client.Close()
	records := openRecords(c, log) //nolint:contextcheck // closing ends them, after the last delivery
	defer records.close()          //nolint:contextcheck // as above
	queues := c.App.Functions.Host.Queues
	deliverer := &delivery.Deliverer{
		Rules:  c.App.Settings.Rules,
		Routes: c.App.Settings.Routes,
		Caller: client,
		Settler: settle.New(c.Store, queues.MessageEncoding).
			WithReschedule(c.App.Settings.Reschedule, queues.MaxDequeueCount),
		Hold:      c.hold(),
		Forgeable: c.App.Functions.CheckForgery() != nil,
		Stopping:  ctx,
		Now:       time.Now,
		Jitter:    rand.Float64,
	}
	refusals := &Refusals{}
	credentials := openCredentials(c, client, log)
	Path{
		Guard: c.App.Settings.Guard, NewBatchThreshold: queues.NewBatchThreshold,
		Settings: records.settings, Credentials: credentials, Limits: records.limits,
		History: records.history, KeepHistory: c.App.Settings.History,
		Record: records.scheduled, Outcomes: records.outcomes, Sight: records.sight,
		Refusals: refusals, Log: log,
	}.Connect(deliverer)
	tasks := c.timers(records).tasks(ctx)
	records.settings.Read(ctx, firstRead)

	server, err := Listen(ctx, c.Port, ingress.Handler(c.App.Functions.Functions, tasks, deliverer, log), log)
	if err != nil {
		return err
	}
	log.Info().Str(logs.Account, c.App.Connection.Account()).Stringer("address", server.Addr()).
		Int("functions", len(c.App.Functions.Functions)).Int("timers", len(c.App.Functions.Timers)).
		Int64("memory_limit", memoryLimit).Str("version", c.Version).Msg("ready for the Functions host")
	ctx, stop := context.WithCancel(ctx)
	routines := c.startBackground(ctx, refusals, log)
	routines.Go(func() { records.settings.Run(ctx) })
	routines.Go(func() { records.sight.Run(ctx) })
	if credentials != nil {
		routines.Go(func() { credentials.Run(ctx) })
	}
	if c.App.Settings.Rules.Profiles.NeedTable() {
		routines.Go(func() { records.limits.Check(ctx) })
	}
	defer routines.Wait()
	defer stop()
	return server.Run(ctx)
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
	app                         limit.Table
	sight                       *sight.Sight
	history                     *history.History
}

// openHistory returns the history, or nil if nothing is kept of any call.
func openHistory(c Config, log zerolog.Logger) *history.History {
	if !c.App.Settings.KeepsHistory() {
		return nil
	}
	tables, err := azure.OpenTables(c.App.Connection)
	if err != nil {
		log.Warn().Err(err).Msg("history is off")
		return nil
	}
	return history.New(tables, c.App.Settings.HistoryRetention, log)
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
		Table: r.app, App: c.appName(), Instance: instance, Now: time.Now, Random: rand.Float64, Log: log,
	})
	return r
}

// openTables opens the tables of what is recorded.
func (r *records) openTables(c Config, instance string, log zerolog.Logger) {
	tables := map[string]*azure.Table{}
	for _, name := range []string{storage.ScheduledTable, storage.RunTable, storage.AppTable, storage.SightTable} {
		table, err := azure.OpenTable(c.App.Connection, name)
		if err != nil {
			log.Warn().Err(err).Msg("calls that wait are not recorded")
			return
		}
		tables[name] = table
	}
	r.scheduled = record.NewWriter(tables[storage.ScheduledTable], background.HandlerBytes, log)
	r.outcomes = record.NewOutcomeWriter(tables[storage.RunTable], background.HandlerBytes, log)
	r.app = tables[storage.AppTable]
	r.shared = background.New(background.Config{
		Table: r.app, Rows: "limits of targets", Bytes: background.HandlerBytes, Log: log,
	})
	r.settings = setting.NewWatcher(r.app, log)
	r.sight = sight.New(tables[storage.SightTable], c.appName(), instance, log)
}

func (c Config) appName() string { return functionapp.Name(config.Getenv(c.App.Environ)) }

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
