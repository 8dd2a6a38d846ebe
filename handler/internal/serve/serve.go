// Package serve runs the handler's process: it reads the configuration, connects the packages of the message path,
// binds the port, serves the Functions host, does the work of the timer functions, and stops.
package serve

import (
	"cmp"
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

	"asynccaller/handler/internal/admission"
	"asynccaller/handler/internal/config"
	"asynccaller/handler/internal/delivery"
	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/ingress"
	"asynccaller/handler/internal/logs"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/outbound"
	"asynccaller/handler/internal/record"
	"asynccaller/handler/internal/settle"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"

	"github.com/rs/zerolog"
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
		return "", fmt.Errorf("%s is %q: want a port; the Functions host sets it: run `func start` or `async-caller "+
			"host`, which start serve",
			name, port)
	}
	return port, nil
}

// Run serves the Functions host until ctx ends, and logs to output. It returns the errors of [Server.Run].
func Run(ctx context.Context, c Config, output io.Writer) error {
	getenv := config.Getenv(c.App.Environ)
	memoryLimit := TuneMemory(getenv)
	// the end of the log's reader must not end the handler: see WatchHost
	signal.Ignore(syscall.SIGPIPE)
	// net/http quotes there what a target sends without being asked
	stdlog.SetOutput(io.Discard)
	if getenv("FUNCTIONS_CUSTOMHANDLER_WORKER_ID") != "" { // the host is the parent process
		ctx, output = WatchHost(ctx, os.Getppid, output)
	}
	lines := logs.NewBatch(output)
	defer lines.Close()
	log := logs.New(lines, c.App.Settings.LogLevel)
	client := outbound.New(c.App.Settings.CallTimeout, c.App.Settings.Guard, c.App.Settings.Proxy).
		WithProfiles(c.App.Settings.Rules.Profiles)
	defer client.Close()

	scheduled, outcomes := openRecords(c, log) //nolint:contextcheck // closing ends them, after the last delivery
	defer closeRecords(scheduled, outcomes)
	queues := c.App.Functions.Host.Queues
	gate := admission.New(queues.NewBatchThreshold, client.CallBytes())
	deliverer := &delivery.Deliverer{
		Rules:  c.App.Settings.Rules,
		Guard:  c.App.Settings.Guard,
		Gate:   gate,
		Caller: client,
		Settler: settle.New(c.Store, queues.MessageEncoding).
			WithReschedule(c.App.Settings.Reschedule, queues.MaxDequeueCount),
		Record:   scheduled,
		Outcomes: outcomes,
		Log:      log,
		Hold:     c.hold(),
		Stopping: ctx,
		Now:      time.Now,
		Jitter:   rand.Float64,
	}
	name := c.App.Connection.Account()
	tasks := timers{Config: c, record: scheduled, outcomes: outcomes, account: &account.Account{
		Name: name, Store: c.Store, AppQueues: c.App.Functions.QueueNames(),
		Rules: message.Rules{
			Encoding: queues.MessageEncoding, Decision: c.App.Settings.Rules,
			Guard: c.App.Settings.Guard,
		},
	}}.tasks(ctx)
	server, err := Listen(ctx, c.Port, ingress.Handler(c.App.Functions.Functions, tasks, deliverer, log), log)
	if err != nil {
		return err
	}
	log.Info().Str(logs.Account, name).Stringer("address", server.Addr()).
		Int("functions", len(c.App.Functions.Functions)).Int("timers", len(c.App.Functions.Timers)).
		Int64("memory_limit", memoryLimit).Str("version", c.Version).Msg("ready for the Functions host")
	var background sync.WaitGroup
	defer background.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if c.App.SettingsErr != nil {
		background.Go(func() { remind(ctx, c.App.SettingsErr, log) })
	}
	background.Go(func() { logRefused(ctx, gate, log) })
	if len(c.App.Functions.Functions) > 0 {
		background.Go(func() {
			probe(ctx, c.Store, c.App.Functions.Functions[0].Queue, log.With().Str(logs.Account, name).Logger())
		})
	}
	return server.Run(ctx)
}

// probeTimeout is longer than the time in which a managed identity or a developer's account gets its first token.
const probeTimeout = 30 * time.Second

// probe asks storage once for a queue and logs the result. Wrong settings then show at the start and not when the first
// message cannot be settled. It also gets the first token and opens the first connection.
func probe(ctx context.Context, store storage.Queues, name string, log zerolog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	begin := time.Now()
	_, err := store.Count(ctx, name)
	level, text := zerolog.ErrorLevel, "storage does not answer: "+
		cmp.Or(azure.Advice(err, azure.Roles),
			"check the account in "+storage.ConnectionName+", its firewall and the network")+
		"; a message that cannot be written stays with the host"
	switch {
	case err == nil:
		level, text = zerolog.InfoLevel, "storage answers"
	case errors.Is(err, storage.ErrNoQueue):
		level, text = zerolog.InfoLevel, "storage answers; the queue does not exist until a sender creates it"
		err = nil
	case errors.Is(err, storage.ErrRefused):
		text = strings.TrimSuffix("storage refuses the handler: "+azure.Advice(err, azure.Roles), ": ")
	case errors.Is(ctx.Err(), context.Canceled):
		return // the handler stops
	}
	log.WithLevel(level).Err(err).Str(logs.Queue, name).Int64(logs.Took, logs.Millis(time.Since(begin))).Msg(text)
}

// openRecords returns the recorders of scheduled messages and of outcomes, or nil if nothing is recorded.
func openRecords(c Config, log zerolog.Logger) (scheduled, outcomes *record.Recorder) {
	if c.App.Settings.Scheduled == config.Off {
		return nil, nil
	}
	table, err := azure.OpenTable(c.App.Connection)
	if err != nil {
		log.Warn().Err(err).Msg("scheduled messages are not recorded")
		return nil, nil
	}
	scheduled = record.NewRecorder(table, message.Route, record.HandlerBytes, log)
	ofRuns, err := azure.OpenOutcomes(c.App.Connection)
	if err == nil { // as before
		outcomes = record.NewOutcomeRecorder(ofRuns, record.HandlerBytes, log)
	}
	return scheduled, outcomes
}

// closeRecords closes recorders at the same time.
func closeRecords(records ...*record.Recorder) {
	var closing sync.WaitGroup
	for _, r := range records {
		closing.Go(func() { r.Close(record.HandlerClose) })
	}
	closing.Wait()
}
