// Package doctor checks what an app needs in order to deliver calls: its files and settings, and the permissions and
// the contents of its storage account. It changes nothing: it only peeks at messages, and it tries writes on messages,
// rows and blobs that do not exist.
package doctor

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"asynccaller/handler/internal/functionapp"
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

// Problems reports each line of an error as broken. Without an error the check is ok, and fine says what is.
func (report Reporter) Problems(check string, err error, next, fine string) {
	if err == nil {
		report(Line{OK, check, fine, ""})
		return
	}
	for line := range strings.Lines(err.Error()) {
		report(Line{Broken, check, strings.TrimSpace(line), next})
	}
}

// found reports the things that a check found. If there are none, the check is ok, and fine says what is.
func (report Reporter) found(things []string, line Line, fine string) {
	if line.Text += ": " + strings.Join(things, ", "); len(things) == 0 {
		line = Line{OK, line.Check, fine, ""}
	}
	report(line)
}

// Skip reports that checks are left out, because the one before failed.
func (report Reporter) Skip(checks string) {
	report(Line{Warning, "not checked", checks, "fix the line above, and run doctor again"})
}

// disabling matches the setting that disables a function. Linux allows no dots in the names of variables.
var disabling = regexp.MustCompile(`(?i)^AzureWebJobs[._](.+)[._]Disabled=(?:1|true)$`)

// App checks what start-up does not validate in an app folder and in the environment.
func (report Reporter) App(app *functionapp.App, environ []string) {
	disabled := slices.Clone(app.Disabled)
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if match := disabling.FindStringSubmatch(variable); match != nil {
			disabled = append(disabled, match[1])
		}
		if strings.EqualFold(name, "FUNCTIONS_WORKER_RUNTIME") && value != "" && !strings.EqualFold(value, "custom") {
			report(Line{
				Broken, "runtime", fmt.Sprintf("%s is %q, so the host does not start the handler", name, value),
				"set it to custom, the runtime stack of the app",
			})
		}
	}
	const enable = `remove the settings AzureWebJobs.<function>.Disabled, and "disabled" from function.json`
	report.found(disabled, Line{Warning, "functions", "the host does not run those that are disabled", enable},
		"none is disabled")
	if handler := app.Host.Handler; handler.Executable != "" {
		path := handler.Executable
		if !filepath.IsAbs(path) {
			path = filepath.Join(app.Dir, path)
		}
		report.Problems("executable", checkExecutable(path, handler.Arguments, runtime.GOOS+"/"+runtime.GOARCH),
			"run `make build` for this machine; deploy the zip of `make package`: other tools can lose the "+
				"executable bit", path+" can be started")
	}
}

// checkExecutable checks the file that the host starts on this platform, or in a Function App.
func checkExecutable(path string, arguments []string, here string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular() || runtime.GOOS != "windows" && info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not executable, so the host cannot start it: its mode is %v", path, info.Mode())
	}
	build, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	settings := map[string]string{}
	for _, setting := range build.Settings {
		settings[setting.Key] = setting.Value
	}
	if platform := settings["GOOS"] + "/" + settings["GOARCH"]; platform != here && platform != "linux/amd64" {
		return fmt.Errorf("%s is for %s: it runs neither on this machine (%s) nor in a Function App (linux/amd64)",
			path, platform, here)
	}
	if !slices.Contains(arguments, "serve") {
		return fmt.Errorf(`%s ends at once: in host.json, set customHandler.description.arguments to ["serve"]`, path)
	}
	return nil
}
