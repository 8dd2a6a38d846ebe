package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
)

// App is an app folder with the settings and the storage connection of an environment.
type App struct {
	Dir string
	// Environ is the environment, with the values of local.settings.json if a [Reader] asks for them.
	Environ []string
	// Functions is nil if host.json or the folder cannot be read.
	Functions *functionapp.App
	// Host is host.json. Without that file, its zero value has the encoding that we ship.
	Host       functionapp.Host
	Settings   Settings
	Connection azure.Connection

	// Problems with local.settings.json, host.json, any of the host's files, the settings with retry.json,
	// targets.json and routes.json, and the storage connection.
	LocalErr, HostErr, FunctionsErr, SettingsErr, ConnectionErr error
}

// Reader says for whom an app is read.
type Reader int

// The readers of an app.
const (
	// Handler reads all.
	Handler Reader = iota
	// Operator adds the values of local.settings.json, as `func start` does, and needs no host.json. It reads no
	// secrets of targets.json, because it makes no calls.
	Operator
	// Doctor is an operator who checks what the handler reads.
	Doctor
	// Worker is a process that makes the calls of the app without the Functions host. It reads what the handler reads,
	// and adds the values of local.settings.json.
	Worker
)

// ReadApp reads an app folder. It leaves to its caller which problems matter.
func ReadApp(dir string, environ []string, reader Reader) App {
	a := App{Dir: dir, Environ: environ}
	var trusted []string // nil trusts all
	if reader != Handler {
		a.Environ, a.LocalErr = functionapp.WithLocalSettings(dir, environ)
		if a.LocalErr != nil {
			a.Environ = environ
		}
		trusted = append([]string{}, environ...)
	}
	load, hasHost := functionapp.Load, reader == Handler || reader == Doctor
	if reader == Worker {
		load = functionapp.LoadForWorker
	}
	a.Functions, a.FunctionsErr = load(dir, a.Environ)
	a.Host, a.HostErr = functionapp.LoadHost(dir, a.Environ)
	if errors.Is(a.HostErr, fs.ErrNotExist) && reader != Handler {
		a.HostErr = nil
		a.Host.Queues.MessageEncoding = storage.Base64
	}
	getenv := Getenv(a.Environ)
	if reader == Operator {
		getenv = nil
	}
	a.Settings, a.SettingsErr = LoadApp(dir, a.Environ, getenv)
	a.Settings.setSources(environ)
	if reader != Operator && a.Functions != nil && !errors.Is(a.FunctionsErr, functionapp.ErrNoApp) {
		a.SettingsErr = errors.Join(a.SettingsErr, a.Settings.CheckRoutes(a.Functions))
	}
	if hasHost && a.Functions != nil {
		a.SettingsErr = errors.Join(a.SettingsErr, a.Functions.CheckForgery())
	}
	if hasHost && a.Functions != nil && a.Settings.CallTimeout > 0 {
		a.SettingsErr = errors.Join(a.SettingsErr, a.Settings.CheckTimeouts(a.Functions.Host))
	}
	a.Connection, a.ConnectionErr = readConnection(dir, a.Environ, trusted)
	return a
}

// Name returns the name that all instances of the app share.
func (a App) Name() string {
	return cmp.Or(a.Settings.AppName, functionapp.Name(Getenv(a.Environ)))
}

// RoutedQueues returns the queues whose messages are contents of calls, and no envelopes. The names of the functions
// say so as well as routes.json, which can be invalid.
func (a App) RoutedQueues() []string {
	names := slices.Collect(maps.Keys(a.Settings.Routes))
	if a.Functions != nil {
		names = append(names, a.Functions.RoutedQueues()...)
	}
	return names
}

// Getenv returns a function that looks up a variable of an environment.
func Getenv(environ []string) func(string) string {
	return func(name string) string {
		for _, variable := range slices.Backward(environ) { // the last one counts, as in os/exec
			key, value, _ := strings.Cut(variable, "=")
			if key == name {
				return value
			}
		}
		return ""
	}
}

// readConnection returns the storage connection of an environment. Unless trusted is nil, it is the part of the
// environment that does not come from local.settings.json. The folder of that file may be somebody else's, so the file
// must not choose who receives a token of the operator's identity.
func readConnection(dir string, environ, trusted []string) (azure.Connection, error) {
	connection, err := azure.ParseConnection(environ, storage.ConnectionName)
	err = errors.Join(checkSources(dir, environ), err)
	if err != nil || trusted == nil {
		return connection, err
	}
	settings := azure.UntrustedHosts(environ, trusted, storage.ConnectionName)
	if len(settings) == 0 {
		return connection, nil
	}
	return azure.Connection{}, fmt.Errorf("%s: %s: the host is not Azure Storage, and would receive a token of your "+
		"identity: correct the setting, or, if you trust the host, set it to the same value in the environment",
		filepath.Join(dir, functionapp.LocalSettings), strings.Join(settings, ", "))
}

// checkSources refuses a storage connection that the environment and local.settings.json share. Otherwise a connection
// string in the one would silently take precedence over an identity in the other. A variable that is set but empty is
// refused too: it often comes from a variable that is not set, and the file would silently choose another account.
func checkSources(dir string, environ []string) error {
	// the caller reports the error, and func start can decrypt the file
	values, _ := functionapp.WithLocalSettings(dir, nil)
	var outside, local, empty []string
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		isSet, isLocal := azure.Sets(variable, storage.ConnectionName), slices.Contains(values, variable)
		switch {
		case !azure.Sets(name+"=x", storage.ConnectionName):
		case isSet && isLocal:
			local = append(local, name)
		case isSet:
			outside = append(outside, name)
		case !isLocal:
			empty = append(empty, name)
		}
	}
	if len(local) > 0 && len(empty) > 0 && len(outside) == 0 {
		return fmt.Errorf("%s in the environment is empty: give it a value, or unset it to use %s of %s",
			strings.Join(empty, ", "), strings.Join(local, ", "), filepath.Join(dir, functionapp.LocalSettings))
	}
	if len(outside) == 0 || len(local) == 0 {
		return nil
	}
	return fmt.Errorf("%s in the environment and %s in %s may mean different accounts: "+
		"unset the former, remove the latter, or use another app folder",
		strings.Join(outside, ", "), strings.Join(local, ", "), filepath.Join(dir, functionapp.LocalSettings))
}
