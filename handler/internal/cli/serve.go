package cli

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

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

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
	"asynccaller/handler/internal/serve"
	"asynccaller/handler/internal/settle"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
)

const serveName = "serve"

func newServe(env Env) *cobra.Command {
	return &cobra.Command{
		Use:   serveName,
		Short: "Serve the Functions host as its custom handler",
		Long: `Serve the Functions host, which starts this command as the custom handler of the app and passes
queue messages to it. The handler listens on 127.0.0.1 at FUNCTIONS_CUSTOMHANDLER_PORT. It reads
host.json and the function.json files in FUNCTIONS_APP_ROOT_PATH or the working directory to learn
which function serves which queue. The settings are environment variables: AzureWebJobsStorage and

` + settingsHelp() + `
At start-up the handler validates the settings, host.json and every function.json, and reports all
problems at once. With AZURE_FUNCTIONS_ENVIRONMENT=Development, which func start sets, it then exits
with code 2. Otherwise, if only the settings above, retry.json or targets.json are wrong, it starts
in hold mode: it makes no calls, and messages go back to their queues until the settings are
corrected. Later it never exits with code 0, because the host would not restart it.`,
		Example: `  func start                            # in dist: the host starts serve
  async-caller host --app dist          # the same with the local stand-in for the host`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runServe(cmd.Context(), env) },
	}
}

func settingsHelp() string {
	const indent = "\n      "
	var text strings.Builder
	for _, setting := range config.Table() {
		meaning := strings.Join(wrap(setting.Meaning, textColumns-len(indent)), indent)
		fmt.Fprintf(&text, "  %s (%s)%s%s\n", setting.Name, setting.Default, indent, meaning)
	}
	return text.String()
}

// handlerConfig is the configuration of the handler.
type handlerConfig struct {
	app        *functionapp.App
	settings   config.Settings
	connection azure.Connection
	port       string
	// wrong are the problems with the settings; if there are any, the handler starts in hold mode.
	wrong error
}

// readHandlerConfig reads and validates the settings, host.json and every function.json. The error joins
// every problem. Outside Development, problems with the settings alone are no error: see [handlerConfig].
func readHandlerConfig(env Env) (handlerConfig, error) {
	c, appErr, connectionErr := loadHandlerConfig(env, functionapp.RootPath(env.getenv))
	var portErr error
	c.port, portErr = handlerPort(env.getenv)
	needed := errors.Join(appErr, connectionErr, portErr)
	if needed != nil || strings.EqualFold(env.getenv("AZURE_FUNCTIONS_ENVIRONMENT"), "Development") {
		return c, usageError(errors.Join(needed, c.wrong))
	}
	return c, nil
}

// loadHandlerConfig is readHandlerConfig without the port, for the app in a folder. It returns the problems with the files of
// the app and with the storage connection separately.
func loadHandlerConfig(env Env, dir string) (c handlerConfig, appErr, connectionErr error) {
	c.app, appErr = functionapp.Load(dir, env.Environ)
	c.settings, c.wrong = config.LoadApp(dir, env.Environ, env.getenv)
	if c.app != nil && c.settings.CallTimeout > 0 {
		c.wrong = errors.Join(c.wrong, c.settings.CheckTimeouts(c.app.Host))
	}
	c.connection, connectionErr = azure.ParseConnection(env.Environ, functionapp.ConnectionName)
	return c, appErr, errors.Join(checkSources(env.Environ, dir), connectionErr)
}

const (
	// holdWait is how long a message in hold mode occupies a slot, so that at most all slots move in a minute and the
	// other messages stay on the queue. A restart of the handler would instead cost each message of a batch a dequeue.
	// With the time to settle it is shorter than 5 minutes, after which the host renews its lease: a host that deletes
	// the message while it renews would deliver it again.
	holdWait = time.Minute
	// holdMargin is what an invocation may take besides the wait and the time to settle.
	holdMargin = 5 * time.Second
)

// hold returns how long the deliverer waits before it holds a message: zero if the settings are right. At
// functionTimeout the host would kill the handler, perhaps during a write, and deliver the original again as well.
func (c handlerConfig) hold() time.Duration {
	limit := c.app.Host.FunctionTimeout
	room := limit - settle.Timeout - holdMargin
	switch {
	case c.wrong == nil:
		return 0
	case limit <= 0: // unlimited
		return holdWait
	case room > 0:
		return min(holdWait, room)
	}
	return limit / 2 // too short for any write that takes long
}

// remindEvery is the interval between two lines about hold mode, and about limits.
const remindEvery = time.Minute

// remind logs until ctx ends that the handler is in hold mode, and why.
func remind(ctx context.Context, wrong error, log zerolog.Logger) {
	tick := time.NewTicker(remindEvery)
	defer tick.Stop()
	for {
		log.Error().Str(zerolog.ErrorFieldName, strings.ReplaceAll(wrong.Error(), "\n", "; ")).
			Msg("hold mode: no calls are made, and messages go back to their queues, until the settings are corrected and the app is restarted")
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// logRefused logs once a minute until ctx ends how many messages the limits of each target rescheduled.
func logRefused(ctx context.Context, gate *admission.Gate, log zerolog.Logger) {
	tick := time.NewTicker(remindEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for refused, messages := range gate.Refused() {
			log.Warn().Str(logs.TargetHost, cmp.Or(refused.Target, "others")).Str(logs.Reason, string(refused.Reason)).Str(logs.Detail, refused.Detail).
				Int(logs.Messages, messages).Msg("rescheduled without a call in the last minute")
		}
	}
}

func handlerPort(getenv func(string) string) (string, error) {
	const name = "FUNCTIONS_CUSTOMHANDLER_PORT"
	port := getenv(name)
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("%s is %q: want a port; the Functions host sets it: run `func start` or `%s host`, which start serve",
			name, port, programName)
	}
	return port, nil
}

func runServe(ctx context.Context, env Env) error {
	c, err := readHandlerConfig(env)
	if err != nil {
		return err
	}
	memoryLimit := serve.TuneMemory(env.getenv)
	signal.Ignore(syscall.SIGPIPE) // the end of the log's reader must not end the handler: see WatchHost
	stdlog.SetOutput(io.Discard)   // net/http quotes there what a target sends without being asked
	output := logOutput(env.Stdout)
	if env.getenv("FUNCTIONS_CUSTOMHANDLER_WORKER_ID") != "" { // the host is the parent process
		ctx, output = serve.WatchHost(ctx, os.Getppid, output)
	}
	lines := logs.NewBatch(output)
	defer lines.Close()
	log := logs.New(lines, c.settings.LogLevel)
	store, err := azure.Open(c.connection)
	if err != nil {
		return usageError(err)
	}
	defer store.Close()
	client := outbound.New(c.settings.CallTimeout, c.settings.Targets, c.settings.Proxy).WithProfiles(c.settings.Rules.Profiles)
	defer client.Close()

	scheduled, outcomes := openRecords(c, log) //nolint:contextcheck // closing ends them, after the last delivery
	defer closeRecords(scheduled, outcomes)
	queues := c.app.Host.Queues
	gate := admission.New(queues.NewBatchThreshold, client.CallBytes())
	deliverer := &delivery.Deliverer{
		Rules:    c.settings.Rules,
		Targets:  c.settings.Targets,
		Gate:     gate,
		Caller:   client,
		Settler:  settle.New(store, queues.MessageEncoding).WithReschedule(c.settings.Reschedule, queues.MaxDequeueCount),
		Record:   scheduled,
		Outcomes: outcomes,
		Log:      log,
		Hold:     c.hold(),
		Stopping: ctx,
		Now:      time.Now,
		Jitter:   rand.Float64,
	}
	name := accountName(c.connection.Endpoint)
	tasks := operator{handlerConfig: c, record: scheduled, outcomes: outcomes, account: &account.Account{
		Name: name, Store: store, AppQueues: c.app.QueueNames(),
		Rules: message.Rules{Encoding: queues.MessageEncoding, Decision: c.settings.Rules, Targets: c.settings.Targets},
	}}.tasks(ctx)
	server, err := serve.Listen(ctx, c.port, ingress.Handler(c.app.Functions, tasks, deliverer, log), log)
	if err != nil {
		return err
	}
	log.Info().Str(logs.Account, name).Stringer("address", server.Addr()).Int("functions", len(c.app.Functions)).Int("timers", len(c.app.Timers)).
		Int64("memory_limit", memoryLimit).Str("version", version()).Msg("ready for the Functions host")
	var aside sync.WaitGroup
	defer aside.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if c.wrong != nil {
		aside.Go(func() { remind(ctx, c.wrong, log) })
	}
	aside.Go(func() { logRefused(ctx, gate, log) })
	if len(c.app.Functions) > 0 {
		aside.Go(func() {
			probe(ctx, store, c.app.Functions[0].Queue, log.With().Str(logs.Account, name).Logger())
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
		cmp.Or(storageAdvice(err), "check the account in "+functionapp.ConnectionName+", its firewall and the network")+
		"; a message that cannot be written stays with the host"
	switch {
	case err == nil:
		level, text = zerolog.InfoLevel, "storage answers"
	case errors.Is(err, storage.ErrNoQueue):
		level, text = zerolog.InfoLevel, "storage answers; the queue does not exist until a sender creates it"
		err = nil
	case errors.Is(err, storage.ErrRefused):
		text = strings.TrimSuffix("storage refuses the handler: "+storageAdvice(err), ": ")
	case errors.Is(ctx.Err(), context.Canceled):
		return // the handler stops
	}
	log.WithLevel(level).Err(err).Str(logs.Queue, name).Int64(logs.Took, logs.Millis(time.Since(begin))).Msg(text)
}

const (
	// recordLimit is the memory that the changes of the record may take while they wait, in bytes, and outcomesLimit
	// that of the outcomes of messages of runs.
	recordLimit   = 512 << 10
	outcomesLimit = 512 << 10
	// recordTimeout is how long a handler that stops goes on writing them.
	recordTimeout = 2 * time.Second
)

// openRecords returns the recorders of scheduled messages and of outcomes, or nil if nothing is recorded.
func openRecords(c handlerConfig, log zerolog.Logger) (scheduled, outcomes *record.Recorder) {
	if c.settings.Scheduled == config.Off {
		return nil, nil
	}
	table, err := azure.OpenTable(c.connection)
	if err != nil {
		log.Warn().Err(err).Msg("scheduled messages are not recorded")
		return nil, nil
	}
	scheduled = record.NewRecorder(table, message.Route, recordLimit, log)
	ofRuns, err := azure.OpenOutcomes(c.connection)
	if err == nil { // as before
		outcomes = record.NewOutcomeRecorder(ofRuns, outcomesLimit, log)
	}
	return scheduled, outcomes
}

// closeRecords closes recorders at the same time.
func closeRecords(records ...*record.Recorder) {
	var closing sync.WaitGroup
	for _, r := range records {
		closing.Go(func() { r.Close(recordTimeout) })
	}
	closing.Wait()
}
