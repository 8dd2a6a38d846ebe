package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/config"
	"asynccaller/handler/internal/delivery"
	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/ingress"
	"asynccaller/handler/internal/logs"
	"asynccaller/handler/internal/outbound"
	"asynccaller/handler/internal/queue/azure"
	"asynccaller/handler/internal/retry"
	"asynccaller/handler/internal/serve"
	"asynccaller/handler/internal/settle"
)

func newServe(s Surroundings) *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Answer the Functions host: what it starts as the custom handler",
		Long: `Serve answers the Functions host, which starts it as the app's custom handler and hands it queue
messages. It listens on 127.0.0.1 at FUNCTIONS_CUSTOMHANDLER_PORT, and reads host.json and the
function.json files in FUNCTIONS_APP_ROOT_PATH (else the working directory) to know which function
serves which queue. Settings come from the environment: AzureWebJobsStorage and those below.

` + settingsHelp() + `
It checks settings, host.json and function.json together and reports all that is wrong, then exits
with code 2. Once it runs it never exits with 0, because the host would not start it again.`,
		Example: `  func start                            # in dist: the host starts serve
  async-caller host --app dist          # the same with the local stand-in for the host`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runServe(cmd.Context(), s) },
	}
}

func settingsHelp() string {
	var text strings.Builder
	for _, setting := range config.Table() {
		fmt.Fprintf(&text, "  %s (%s)\n      %s\n", setting.Name, setting.Default, setting.Meaning)
	}
	return text.String()
}

// wiring is everything that serve reads before it starts.
type wiring struct {
	app        *functionapp.App
	settings   config.Settings
	policies   retry.Policies
	connection azure.Connection
	port       string
}

// readWiring reads and checks settings, host.json and function.json together. The error joins every
// problem.
func readWiring(s Surroundings) (wiring, error) {
	var w wiring
	var appErr, policiesErr, settingsErr, connectionErr, portErr, timeoutErr error
	dir := functionapp.RootPath(s.getenv)
	w.app, appErr = functionapp.Load(dir, s.Environ)
	w.policies, policiesErr = config.LoadPolicies(dir)
	w.settings, settingsErr = config.Load(s.Environ, w.policies)
	w.connection, connectionErr = azure.ParseConnection(s.getenv, functionapp.ConnectionName)
	w.port, portErr = handlerPort(s.getenv)
	if w.app != nil && w.settings.CallTimeout > 0 {
		timeoutErr = w.settings.CheckTimeouts(w.app.Host)
	}
	return w, errors.Join(appErr, policiesErr, settingsErr, connectionErr, portErr, timeoutErr)
}

func handlerPort(getenv func(string) string) (string, error) {
	const name = "FUNCTIONS_CUSTOMHANDLER_PORT"
	port := getenv(name)
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("%s is %q: the Functions host sets it to a port; start the host (`func start`, or `%s host`), it starts serve", name, port, programName)
	}
	return port, nil
}

func runServe(ctx context.Context, s Surroundings) error {
	w, err := readWiring(s)
	if err != nil {
		return wrongUsage(err)
	}
	memoryLimit := serve.TuneMemory(s.getenv)
	log := logs.New(passThrough(s.Stdout), w.settings.LogLevel)
	store, err := azure.Open(w.connection)
	if err != nil {
		return wrongUsage(err)
	}
	defer store.Close()
	client := outbound.New(w.settings.CallTimeout, w.settings.Targets, w.settings.Proxy)
	defer client.Close()

	queues := w.app.Host.Queues
	deliverer := &delivery.Deliverer{
		Rules:    w.settings.Rules(w.policies),
		Caller:   client,
		Settler:  settle.New(store, queues.MessageEncoding).WithReschedule(w.settings.Reschedule, queues.MaxDequeueCount),
		Log:      log,
		Stopping: ctx,
		Now:      time.Now,
		Jitter:   rand.Float64,
	}
	tasks := map[string]ingress.Task{keeperName: keeper(ctx, w, store)}
	server, err := serve.Listen(ctx, w.port, ingress.Handler(w.app.Functions, tasks, deliverer, log), log)
	if err != nil {
		return err
	}
	log.Info().Stringer("address", server.Addr()).Int("functions", len(w.app.Functions)).Int("timers", len(w.app.Timers)).
		Int64("memory_limit", memoryLimit).Str("version", version()).Msg("ready for the Functions host")
	if s.getenv("FUNCTIONS_CUSTOMHANDLER_WORKER_ID") != "" { // the host sets it; without it there may be none
		server.EndWith(os.Getppid)
	}
	return server.Run(ctx)
}
