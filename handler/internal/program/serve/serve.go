// Package serve runs the handler's process: it reads the configuration, binds the port, serves the Functions host, and
// stops.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/app/ingress"
	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/program/instance"
)

// Config is the configuration of the handler. If only the settings of its app have problems, it starts in hold mode.
type Config struct {
	instance.Config
	Port string
}

// ReadConfig reads and validates the settings, host.json and every function.json. The error joins every problem.
// Outside Development, problems with the settings alone are no error.
func ReadConfig(environ []string) (Config, error) {
	getenv := config.Getenv(environ)
	app := config.ReadApp(functionapp.RootPath(getenv), environ, config.Handler)
	c := Config{Config: instance.Config{App: app, Adapter: heartbeat.Host}}
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

// memoryShare is the share of the memory of the container or machine above which the garbage collector works as hard as
// needed. The Functions host, in the same container, has the rest.
const memoryShare = 0.5

// Run serves the Functions host until ctx ends, and logs to output. It returns the errors of [Server.Run].
func Run(ctx context.Context, c Config, output io.Writer) error {
	getenv := config.Getenv(c.App.Environ)
	memoryLimit := instance.TuneMemory(getenv, memoryShare)
	hostIsParent := getenv("FUNCTIONS_CUSTOMHANDLER_WORKER_ID") != ""
	if hostIsParent {
		ctx, output = WatchHost(ctx, os.Getppid, output)
	}
	log, lines := instance.OpenLog(c.Config, output)
	defer lines.Close()
	i := instance.Open(ctx, c.Config, log)
	defer i.Close() //nolint:contextcheck // after the last delivery
	handler := ingress.Handler(c.App.Functions.Functions, i.Tasks, i.Posts(), i.Deliverer, log)
	server, err := Listen(ctx, c.Port, handler, log)
	if err != nil {
		return err
	}
	log.Info().Str(logs.Account, c.App.Connection.Account()).Stringer("address", server.Addr()).
		Int("functions", len(c.App.Functions.Functions)).Int("timers", len(c.App.Functions.Timers)).
		Int64("memory_limit", memoryLimit).Str("version", c.Version).Msg("ready for the Functions host")
	ctx, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { i.Run(ctx) })
	defer background.Wait()
	defer stop()
	return server.Run(ctx)
}
