package functionapp

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// disabling matches the setting that disables a function, and similar ones. Linux allows no dots in the names of
// variables.
var disabling = regexp.MustCompile(`(?i)^AzureWebJobs([._:]+)(.+?)([._:]+)Disabled=(?:1|true)$`)

// isRead reports whether the host reads a setting that disabling has matched. It takes two underscores anywhere for a
// colon.
func isRead(match []string) bool {
	isSeparator := match[1] == "." || match[1] == "_"
	return isSeparator && match[1] == match[3] && !strings.Contains(match[2], "__")
}

// Stopped returns the functions that the host does not run, although their files are valid: those that function.json or
// a setting of the environment disables, and those that host.json does not list.
func (a *App) Stopped(environ []string) (disabled, unlisted []string) {
	disabled = slices.Clone(a.Disabled)
	for _, variable := range environ {
		match := disabling.FindStringSubmatch(variable)
		if match != nil && isRead(match) {
			disabled = append(disabled, match[2])
		}
	}
	for _, name := range a.Names() {
		if len(a.Host.AllowList) > 0 && !ContainsName(a.Host.AllowList, name) {
			unlisted = append(unlisted, name)
		}
	}
	return disabled, unlisted
}

// Running returns the functions that are not stopped, see [App.Stopped].
func (a *App) Running(environ []string) (functions []Function, timers []Timer) {
	disabled, unlisted := a.Stopped(environ)
	stopped := slices.Concat(disabled, unlisted)
	for _, f := range a.Functions {
		if !ContainsName(stopped, f.Name) {
			functions = append(functions, f)
		}
	}
	for _, t := range a.Timers {
		if !ContainsName(stopped, t.Name) {
			timers = append(timers, t)
		}
	}
	return functions, timers
}

// WhyIdle returns why the host runs no queue function of the app, so that no call is made. It is empty if the host runs
// one.
func (a *App) WhyIdle(environ []string) string {
	running, _ := a.Running(environ)
	if len(running) > 0 {
		return ""
	}
	disabled, unlisted := a.Stopped(environ)
	var why []string
	for what, names := range map[string][]string{
		"disabled: ": disabled, `not listed by "functions" in host.json: `: unlisted,
	} {
		if len(names) > 0 {
			why = append(why, what+strings.Join(names, ", "))
		}
	}
	slices.Sort(why)
	return strings.TrimSuffix(fmt.Sprintf("no queue function runs; %s", strings.Join(why, "; ")), "; ")
}

// ContainsName reports whether a list has the name of a function, in any case.
func ContainsName(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}
