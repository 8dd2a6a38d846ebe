package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/program/terminal"
	"asynccaller/handler/internal/storage"
)

func newRoutes(env Env) *cobra.Command {
	command := &cobra.Command{
		Use:   "routes",
		Short: "Make the functions of routes",
		Long: `Make the functions that read the queues of routes.json. A route is the fixed call of a queue, whose
messages are the bodies of the calls.`,
		Example: `  async-caller routes sync --app app`,
	}
	onlyCommands(command)
	command.AddCommand(newRoutesSync(env))
	return command
}

func newRoutesSync(env Env) *cobra.Command {
	command := &cobra.Command{
		Use:   "sync",
		Short: "Make the functions of each route, and remove those without a route",
		Long: `Write AC-route-QUEUE/function.json in the app folder for each queue of routes.json that is read, and
AC-in-QUEUE/function.json for each route with "http": true, and remove other such folders. Then
deploy the folder again. If such a folder has other files, or another function.json, the command
names it and changes nothing. In this project's folder, "make build" and "make package" make the
functions of their app folder.

The host creates no queues. The command prints the queues of the routes, and the parameter with
which deploy/main.bicep makes them. It deletes no queue: the messages on the queue of a route that
was removed stay there.`,
		Example: `  async-caller routes sync
  async-caller routes sync --app dist`,
		Args: cobra.NoArgs,
	}
	var app string
	flagsOf(command).StringVar(&app, "app", ".", "app folder with host.json and routes.json")
	command.RunE = func(*cobra.Command, []string) error { return syncRoutes(env, app) }
	return command
}

func syncRoutes(env Env, app string) error {
	_, err := functionapp.Load(app, env.Environ)
	if errors.Is(err, functionapp.ErrNoApp) { // the others are for start-up and doctor
		return usageError(err)
	}
	routes, err := config.LoadRoutes(app)
	if err != nil {
		return usageError(err)
	}
	queues := routes.Queues()
	made, removed, err := functionapp.SyncRoutes(app, queues, routes.Posts())
	list := func(label string, names []string) {
		terminal.PrintLine(env.out, label, "%s", cmp.Or(strings.Join(names, ", "), "none"))
	}
	if len(made)+len(removed) > 0 {
		env.out.changed = fmt.Sprintf("made: %q; removed: %q", made, removed)
	}
	list("made", made)
	list("removed", removed)
	if err != nil {
		return err
	}
	var all []string
	for _, name := range queues {
		all = append(all, name, name+storage.PoisonSuffix)
	}
	list("queues", all)
	parameter, err := json.Marshal(append([]string{}, queues...))                    // [] and not null
	fmt.Fprintf(env.out, "%-*s%s\n", terminal.LabelWidth, "routedQueues", parameter) // in one line, to copy it
	return err
}
