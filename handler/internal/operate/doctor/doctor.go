// Package doctor checks what an app needs in order to deliver calls: its files and settings, and the permissions and
// the contents of its storage account. It changes nothing: it only peeks at messages, and it tries writes on messages,
// rows and blobs that do not exist.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

// State is the result of a check.
type State string

// The states of a [Line].
const (
	OK      State = "ok"
	Warning State = "warning"
	Broken  State = "broken"
)

// Line is the result of a check, or one of several results. Its texts may contain what others wrote.
type Line struct {
	State State  `json:"state"`
	Check string `json:"check"`
	Text  string `json:"text"`
	// Next is what to do. Only a line that is ok has none.
	Next string `json:"next,omitempty"`
}

// Reporter receives the lines in the order of the checks. A check that depends on one that failed is left out.
type Reporter func(Line)

// Run runs all checks of an app folder, in an environment that has the form of os.Environ.
func Run(ctx context.Context, dir string, environ []string, report Reporter) {
	a := config.ReadApp(dir, environ, config.Doctor)
	noApp := errors.Is(a.FunctionsErr, functionapp.ErrNoApp)
	if noApp { // problems with the settings follow from it
		report.problems("app folder", a.FunctionsErr, "name the app folder: `async-caller doctor --app dist`, if "+
			"`make build` has staged it; if this is the deployed app, deploy again, with host.json at the top of the "+
			"package", "")
	}
	report.problems("settings", errors.Join(a.LocalErr, a.SettingsErr),
		"correct it and restart the app: until then it makes no calls", "valid, with "+config.FilesInForce(dir))
	for _, v := range a.Settings.Variables {
		report.ok("variable", v.String())
	}
	if !noApp {
		report.problems("app folder", a.FunctionsErr,
			"correct the file and deploy again, or name the app folder with --app",
			"host.json and the function.json files are valid")
	}
	queues, encoding := envelope.Queues(), storage.Base64
	if a.Functions != nil {
		report.environment(a.Environ)
		if !noApp {
			report.folder(a.Functions, a.Environ)
			report.successors(a.Settings.Routes, a.Functions.QueueNames())
		}
		report.log(a)
		encoding = a.Functions.Host.Queues.MessageEncoding
		if len(a.Functions.Functions) > 0 {
			queues = a.Functions.QueueNames()
		}
	}
	if a.SettingsErr == nil {
		report.certificates(a.Settings.Rules.Profiles)
	}
	report.problems("connection", a.ConnectionErr, "correct the setting, in the app and in this environment", "valid")
	if a.ConnectionErr != nil {
		report.skip("storage, clock, permissions, queues, encoding and heartbeats")
		return
	}
	report.storage(ctx, a, queues, encoding)
}

// ok reports that a check found no problem.
func (report Reporter) ok(check, text string) {
	report(Line{State: OK, Check: check, Text: text})
}

// problems reports each line of an error as broken. Without an error the check is ok, with okText.
func (report Reporter) problems(check string, err error, next, okText string) {
	if err == nil {
		report.ok(check, okText)
		return
	}
	for line := range strings.Lines(err.Error()) {
		report(Line{State: Broken, Check: check, Text: strings.TrimSpace(line), Next: next})
	}
}

// items reports the line of a check with the items that it concerns. If there are none, the check is ok, with okText.
func (report Reporter) items(items []string, line Line, okText string) {
	if len(items) == 0 {
		report.ok(line.Check, okText)
		return
	}
	line.Text += ": " + strings.Join(items, ", ")
	report(line)
}

// skip reports that checks are left out, because the one before failed.
func (report Reporter) skip(checks string) {
	report(Line{State: Warning, Check: "not checked", Text: checks, Next: "fix the line above, and run doctor again"})
}

// environment checks what start-up does not validate in the environment.
func (report Reporter) environment(environ []string) {
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if strings.EqualFold(name, "FUNCTIONS_WORKER_RUNTIME") && value != "" && !strings.EqualFold(value, "custom") {
			report(Line{
				State: Broken,
				Check: "runtime",
				Text:  fmt.Sprintf("%s is %q, so the host does not start the handler", name, value),
				Next:  "set it to custom, the runtime stack of the app",
			})
		}
		report.setting(name, value)
	}
}

// setting reports a setting with which the host does not start the handler, or the handler gets a wrong value.
func (report Reporter) setting(name, value string) {
	isVersion := strings.EqualFold(name, "FUNCTIONS_EXTENSION_VERSION") && value != ""
	version, _, _ := strings.Cut(strings.TrimPrefix(value, "~"), ".")
	switch {
	case isVersion && version != "4":
		report(Line{
			State: Broken,
			Check: "host version",
			Text:  fmt.Sprintf("%s is %q, and the app needs version 4 of the Functions host", name, value),
			Next:  "set it to ~4",
		})
	case strings.HasPrefix(strings.ToLower(strings.TrimSpace(value)), "@microsoft.keyvault("):
		report(Line{
			State: Broken,
			Check: "key vault",
			Text:  name + " is a reference that App Service has not resolved",
			Next: "in the app, give its identity the role Key Vault Secrets User, and correct the reference; " +
				"in this environment, set the secret itself",
		})
	}
}
