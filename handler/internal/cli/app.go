package cli

import (
	"errors"
	"io/fs"
	"net/url"
	"strings"

	"asynccaller/handler/internal/config"
	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/guard"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/azure"
)

// app holds the settings that the handler would have in an app folder.
type app struct {
	// env includes the values of local.settings.json.
	env      Env
	rules    decision.Rules
	targets  guard.Rules
	encoding queue.Encoding
}

// readApp reads the settings from the environment and, where they exist in the app folder, from
// local.settings.json, host.json and retry.json. The error joins every problem.
func readApp(env Env, folder string) (app, error) {
	environ, err := functionapp.WithLocalSettings(folder, env.Environ)
	if err != nil {
		return app{}, usageError(err)
	}
	env.Environ = environ
	policies, policiesErr := config.LoadPolicies(folder)
	settings, settingsErr := config.Load(environ, policies)
	host, hostErr := functionapp.LoadHost(folder, environ)
	a := app{env: env, rules: settings.Rules, targets: settings.Targets, encoding: queue.Base64}
	switch {
	case hostErr == nil:
		a.encoding = host.Queues.MessageEncoding
	case errors.Is(hostErr, fs.ErrNotExist):
		hostErr = nil
	}
	return a, usageError(errors.Join(policiesErr, settingsErr, hostErr))
}

// openStore opens the storage account of the app. Account is its endpoint without the scheme: a journal names
// its account this way, so that the protocol does not matter.
func openStore(env Env) (store *azure.Store, account string, err error) {
	connection, err := azure.ParseConnection(env.getenv, functionapp.ConnectionName)
	if err != nil {
		return nil, "", usageError(err)
	}
	store, err = azure.Open(connection)
	return store, accountName(connection.Endpoint), usageError(err)
}

func accountName(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return u.Host + strings.TrimRight(u.Path, "/")
}
