package cli

import (
	"errors"
	"io/fs"

	"asynccaller/handler/internal/config"
	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/guard"
	"asynccaller/handler/internal/queue"
)

// ruleBook is what the tools need to know of an app: its rules as the handler would have them, and how
// messages are encoded.
type ruleBook struct {
	environ  []string
	rules    decision.Rules
	targets  guard.Rules
	encoding queue.Encoding
}

// readRules reads the settings from the environment, and in the app folder local.settings.json, host.json
// and retry.json, each if it is there. The error joins every problem.
func readRules(s Surroundings, app string) (ruleBook, error) {
	environ, err := functionapp.WithLocalSettings(app, s.Environ)
	if err != nil {
		return ruleBook{}, err
	}
	policies, policiesErr := config.LoadPolicies(app)
	settings, settingsErr := config.Load(environ, policies)
	host, hostErr := functionapp.LoadHost(app, environ)
	book := ruleBook{environ: environ, rules: settings.Rules(policies), targets: settings.Targets, encoding: queue.Base64}
	switch {
	case hostErr == nil:
		book.encoding = host.Queues.MessageEncoding
	case errors.Is(hostErr, fs.ErrNotExist):
		hostErr = nil
	}
	return book, errors.Join(policiesErr, settingsErr, hostErr)
}
