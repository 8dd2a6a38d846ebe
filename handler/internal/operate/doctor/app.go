package doctor

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/route"
)

const (
	// offlineFile is the file with which a deployment stops the host (docs/host.md, "App folder").
	offlineFile = "app_offline.htm"
	// bundleID is the extension bundle that we ship.
	bundleID = "Microsoft.Azure.Functions.ExtensionBundle"
	// bundleSource is the setting with another source of bundles than Microsoft's.
	bundleSource = "FUNCTIONS_EXTENSIONBUNDLE_SOURCE_URI"
	redeploy     = "correct it and deploy again"
)

// folder checks what start-up does not validate in an app folder.
func (report Reporter) folder(app *functionapp.App, environ []string) {
	report.functions(app, environ)
	for _, err := range app.Unloaded() {
		report.broken("function", err.Error()+": the host does not run this function",
			"correct it and deploy again; delete the folder if the function is not wanted")
	}
	report.unserved(app)
	report.posts(app, environ)
	for _, timer := range app.Timers {
		err := timer.CheckSchedule()
		if err != nil {
			text := fmt.Sprintf("%s/function.json: schedule %q: %v, and no interval such as 00:05:00: "+
				"the host does not run this function", timer.Name, timer.ScheduleAsWritten, err)
			report.broken("schedule", text, redeploy)
		}
	}
	_, err := os.Stat(filepath.Join(app.Dir, offlineFile))
	if err == nil {
		report.broken("offline", offlineFile+" is in the app folder, so the host runs no function",
			"remove it: a deployment that was interrupted may have left it")
	}
	hasOwnSource := slices.ContainsFunc(environ, func(s string) bool { return strings.HasPrefix(s, bundleSource+"=") })
	switch id := app.Host.BundleID; {
	case id == "", id == bundleID, id == bundleID+".Preview", id == bundleID+".Experimental", hasOwnSource:
	default:
		report.broken("extension bundle",
			fmt.Sprintf("the host finds no extension bundle with the id %q, so it does not know queueTrigger", id),
			fmt.Sprintf("in host.json, set extensionBundle to the id %q", bundleID))
	}
	report.executable(app)
}

// unserved reports functions whose invocations the handler refuses.
func (report Reporter) unserved(app *functionapp.App) {
	var names []string
	for _, f := range app.Unserved {
		names = append(names, fmt.Sprintf("%s (%s)", f.Name, f.Trigger))
	}
	for _, t := range app.Timers {
		if t.Name != functionapp.MonitorTimer && t.Name != functionapp.KeeperTimer {
			names = append(names, t.Name+" (another timerTrigger)")
		}
	}
	if len(names) > 0 {
		report.items(names, Line{
			State: Warning, Check: "function",
			Text: "the handler does not serve functions of the app folder, so their invocations fail",
			Next: "delete their folders and deploy again; they need an app of their own",
		}, "")
	}
}

// broken reports a fault.
func (report Reporter) broken(check, text, next string) {
	report(Line{State: Broken, Check: check, Text: text, Next: next})
}

// functions checks which functions the host runs. No message is delivered if it runs no queue function.
func (report Reporter) functions(app *functionapp.App, environ []string) {
	disabled, unlisted := app.Stopped(environ)
	state := Warning
	if app.WhyIdle(environ) != "" {
		state = Broken
	}
	report.items(slices.Concat(disabled, unlisted), Line{
		State: state,
		Check: "functions",
		Text:  `the host does not run those that are disabled, or that "functions" in host.json does not list`,
		Next: `remove the settings AzureWebJobs.<function>.Disabled, and "disabled" from function.json; remove ` +
			`"functions" from host.json, and settings AzureFunctionsJobHost__functions__<number>, or add the names`,
	}, "none is disabled")
	report.timers(app, disabled)
}

// unread reports the queues that we ship, that exist, and that no function of the app reads.
func (report Reporter) unread(ctx context.Context, a *account.Account, read []string) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	var unread []string
	for _, name := range envelope.Queues() {
		if slices.Contains(read, name) {
			continue
		}
		front, _ := a.Front(ctx, name)
		switch {
		case front.Problem != nil:
			report.failed("queues", front.Problem, "")
			return
		case !front.Missing:
			unread = append(unread, fmt.Sprintf("%s (messages: %d)", name, *front.Messages))
		}
	}
	if len(unread) > 0 {
		report.items(unread, Line{
			State: Warning,
			Check: "queues",
			Text:  "no function of this app reads",
			Next: "restore the folder of the function and deploy again; or let senders use another queue, and delete " +
				"this one; ignore this if another app reads it",
		}, "")
	}
}

// successors reports the queues that get envelopes of routes, and that no function of the app reads.
func (report Reporter) successors(routes route.Routes, read []string) {
	var unread []string
	for _, name := range slices.Sorted(maps.Keys(routes)) {
		to := routes[name].Successors
		if !slices.Contains(read, to) {
			unread = append(unread, fmt.Sprintf("%s (route of %s)", to, name))
		}
	}
	if len(unread) > 0 {
		report.items(unread, Line{
			State: Warning,
			Check: "routes",
			Text:  "no function of this app reads the queue to which the envelopes of failed calls go",
			Next: "restore the folder of its function and deploy again, or change the priority of the route; ignore " +
				"this if another app reads it",
		}, "")
	}
}

// executable checks the program that the host starts.
func (report Reporter) executable(app *functionapp.App) {
	handler := app.Host.Handler
	if handler.Executable == "" {
		return
	}
	path := handler.Executable
	if !filepath.IsAbs(path) {
		path = filepath.Join(app.Dir, path)
	}
	err := checkExecutable(path)
	next := "run `make build` for this machine; deploy the zip of `make package`: " +
		"other tools can lose the executable bit"
	if err == nil {
		err = checkArguments(path, handler.Arguments)
		next = redeploy
	}
	report.problems("executable", err, next, path+" can be started")
}

// checkExecutable checks the file that the host starts. Of another platform it says nothing: the file can be for the
// Function App.
func checkExecutable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !isExecutable(info.Mode()) {
		return fmt.Errorf("%s is not executable, so the host cannot start it: its mode is %v", path, info.Mode())
	}
	_, err = buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s cannot be read as async-caller: %w", path, err)
	}
	return nil
}

// checkArguments checks the arguments with which the host starts the executable.
func checkArguments(path string, arguments []string) error {
	given := strings.Fields(strings.Join(arguments, " ")) // as the host passes them
	if !slices.Equal(given, []string{functionapp.ServeArgument}) {
		return fmt.Errorf("%s ends at once with the arguments %q: in host.json, set "+
			"customHandler.description.arguments to [%q]", path, arguments, functionapp.ServeArgument)
	}
	return nil
}

func isExecutable(mode os.FileMode) bool {
	hasBit := mode&0o111 != 0 || runtime.GOOS == "windows" // which has no such bits
	return mode.IsRegular() && hasBit
}
