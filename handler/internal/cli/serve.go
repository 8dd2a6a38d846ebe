package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"math"
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

	"asynccaller/handler/internal/config"
	"asynccaller/handler/internal/delivery"
	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/ingress"
	"asynccaller/handler/internal/logs"
	"asynccaller/handler/internal/outbound"
	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/azure"
	"asynccaller/handler/internal/serve"
	"asynccaller/handler/internal/settle"
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
problems at once. Later it never exits with code 0, because the host would not restart it.`,
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
}

// readHandlerConfig reads and validates the settings, host.json and every function.json. The error joins
// every problem.
func readHandlerConfig(env Env) (handlerConfig, error) {
	dir := functionapp.RootPath(env.getenv)
	app, appErr := functionapp.Load(dir, env.Environ)
	policies, policiesErr := config.LoadPolicies(dir)
	settings, settingsErr := config.Load(env.Environ, policies)
	connection, connectionErr := azure.ParseConnection(env.Environ, functionapp.ConnectionName)
	port, portErr := handlerPort(env.getenv)
	var timeoutErr error
	if app != nil && settings.CallTimeout > 0 {
		timeoutErr = settings.CheckTimeouts(app.Host)
	}
	return handlerConfig{app, settings, connection, port},
		usageError(errors.Join(appErr, policiesErr, settingsErr, connectionErr, portErr, timeoutErr))
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
	byHost := env.getenv("FUNCTIONS_CUSTOMHANDLER_WORKER_ID") != ""
	if !byHost { // the host's end closes the log, and can come before EndWith; any other reader's end must not end the calls
		signal.Ignore(syscall.SIGPIPE)
	}
	stdlog.SetOutput(io.Discard) // net/http quotes there what a target sends without being asked
	lines := logs.NewBatch(logOutput(env.Stdout))
	defer lines.Close()
	log := logs.New(lines, c.settings.LogLevel)
	store, err := azure.Open(c.connection)
	if err != nil {
		return usageError(err)
	}
	defer store.Close()
	client := outbound.New(c.settings.CallTimeout, c.settings.Targets, c.settings.Proxy)
	defer client.Close()

	queues := c.app.Host.Queues
	deliverer := &delivery.Deliverer{
		Rules:    c.settings.Rules,
		Caller:   client,
		Settler:  settle.New(store, queues.MessageEncoding).WithReschedule(c.settings.Reschedule, queues.MaxDequeueCount),
		Log:      log,
		Stopping: ctx,
		Now:      time.Now,
		Jitter:   rand.Float64,
	}
	tasks := map[string]ingress.Task{keeperName: keeper(ctx, c, store)}
	server, err := serve.Listen(ctx, c.port, ingress.Handler(c.app.Functions, tasks, deliverer, log), log)
	if err != nil {
		return err
	}
	log.Info().Stringer("address", server.Addr()).Int("functions", len(c.app.Functions)).Int("timers", len(c.app.Timers)).
		Int64("memory_limit", memoryLimit).Str("version", version()).Msg("ready for the Functions host")
	if len(c.app.Functions) > 0 {
		probing, stop := context.WithCancel(ctx)
		var probed sync.WaitGroup
		probed.Go(func() {
			probe(probing, store, c.app.Functions[0].Queue, log.With().Str(logs.Account, accountName(c.connection.Endpoint)).Logger())
		})
		defer probed.Wait()
		defer stop()
	}
	if byHost { // it is the parent process
		server.EndWith(os.Getppid)
	}
	return server.Run(ctx)
}

// probeTimeout is longer than the time in which a managed identity or a developer's account gets its first token.
const probeTimeout = 30 * time.Second

// probe asks storage once for a queue and logs the result. Wrong settings then show at the start and not when the first
// message cannot be settled. It also gets the first token and opens the first connection.
func probe(ctx context.Context, store queue.Store, name string, log zerolog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	begin := time.Now()
	_, err := store.Count(ctx, name)
	level, text := zerolog.ErrorLevel, "storage does not answer: check the account in "+functionapp.ConnectionName+
		", its firewall and the network; a message that cannot be written stays with the host"
	switch {
	case err == nil:
		level, text = zerolog.InfoLevel, "storage answers"
	case errors.Is(err, queue.ErrNoQueue):
		level, text = zerolog.InfoLevel, "storage answers; the queue does not exist until a sender creates it"
	case errors.Is(err, queue.ErrRefused):
		text = "storage refuses the handler: check the credential in " + functionapp.ConnectionName +
			", or assign the role Storage Queue Data Contributor to the identity"
	case errors.Is(ctx.Err(), context.Canceled):
		return // the handler stops
	}
	log.WithLevel(level).Err(err).Str(logs.Queue, name).Dur(logs.Took, time.Since(begin)).Msg(text)
}

// keeperName is the timer function that keeps messages on poison queues from expiring.
const keeperName = "AC-poison-keeper"

// keeper returns the task of that function. The task ends well before functionTimeout, at which the host would kill
// the handler with all its calls, and when the handler stops. Its next run does the rest.
func keeper(stopping context.Context, c handlerConfig, store queue.Store) ingress.Task {
	account := &poison.Account{
		Store: store,
		Rules: inspect.Rules{Encoding: c.app.Host.Queues.MessageEncoding, Decision: c.settings.Rules, Targets: c.settings.Targets},
	}
	var queues []string
	for _, f := range c.app.Functions {
		if name, ok := queue.PoisonName(f.Queue); ok {
			queues = append(queues, name)
		}
	}
	keeper := poison.NewKeeper(account, queues)
	limit := c.app.Host.FunctionTimeout
	if limit <= 0 { // unlimited
		limit = math.MaxInt64
	}
	return func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, limit-min(limit/4, time.Minute))
		defer cancel()
		defer context.AfterFunc(stopping, cancel)()
		kept, err := keeper.Run(ctx)
		text := fmt.Sprintf("kept %d messages on poison queues from expiring", kept)
		if err != nil {
			return "", fmt.Errorf("incomplete: %s, but not all: %s", text, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		return text, nil
	}
}
