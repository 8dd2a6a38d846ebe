// Package cli is the command line. It reads flags and the environment, connects the packages that do the
// work, and reports the result: data on standard output, messages on standard error.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"asynccaller/handler/internal/config"
	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/doctor"
	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/guard"
	"asynccaller/handler/internal/logs"
	"asynccaller/handler/internal/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/internal/strictjson"
)

const programName = "async-caller"

// Exit codes. Scripts rely on them.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2 // wrong usage or configuration
	exitNothing = 3 // nothing matched
	exitPartly  = 4
)

// Env is the process environment that a command uses.
type Env struct {
	// Environ has the form of os.Environ.
	Environ []string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer

	// process is what Environ was without local.settings.json; nil if Environ has nothing of that file.
	process []string
}

// ProcessEnv returns the environment of this process.
func ProcessEnv() Env {
	return Env{Environ: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
}

func (e Env) getenv(name string) string {
	for _, variable := range slices.Backward(e.Environ) { // the last one counts, as in os/exec
		if key, value, _ := strings.Cut(variable, "="); key == name {
			return value
		}
	}
	return ""
}

// withLocalSettings returns the environment with the values of the app folder's local.settings.json.
func (e Env) withLocalSettings(folder string) (Env, error) {
	environ, err := functionapp.WithLocalSettings(folder, e.Environ)
	if err != nil {
		return e, err
	}
	if e.process == nil {
		e.process = append([]string{}, e.Environ...) // never nil
	}
	e.Environ = environ
	return e, nil
}

// open opens a file, or standard input for "-".
func (e Env) open(path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(e.Stdin), nil
	}
	return os.Open(path) //nolint:gosec // the operator names the file
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// printJSON writes a value as one line of JSON, in which every character is printable.
func printJSON(out io.Writer, value any) error {
	line, err := strictjson.Line(value)
	if err == nil {
		_, err = out.Write(line)
	}
	return err
}

// codeError is an error with an exit code other than exitFailed.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

// usageError marks an error as one of usage or configuration. It returns nil for nil.
func usageError(err error) error {
	if err == nil {
		return nil
	}
	return &codeError{exitUsage, err}
}

// Run runs the command line and returns the exit code. The first SIGINT or SIGTERM cancels ctx, the second
// one ends the process.
func Run(ctx context.Context, args []string, env Env) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer context.AfterFunc(ctx, stop)()

	started := false
	root := newRoot(env) //nolint:contextcheck // ExecuteContextC passes it to the commands
	root.PersistentPreRunE = func(command *cobra.Command, _ []string) error {
		err := errors.Join(command.ValidateRequiredFlags(), command.ValidateFlagGroups()) // cobra does it too late
		started = err == nil
		return err
	}
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	stderr := env.Stderr
	if command.Name() == serveName { // the host may have stopped reading
		lines := logs.NewBatch(stderr)
		defer lines.Close()
		stderr = lines
	}
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			fmt.Fprintf(stderr, "%s: %s\n", programName, strictjson.ReplaceUnprintable(line))
		}
	}
	if advice := storageAdvice(err); advice != "" {
		fmt.Fprintf(stderr, "%s: %s\n", programName, advice)
	}
	if coded, ok := errors.AsType[*codeError](err); ok {
		return coded.code
	}
	if !started { // cobra refused the command line
		fmt.Fprintf(stderr, "see `%s --help`\n", command.CommandPath())
		return exitUsage
	}
	return exitFailed
}

func newRoot(env Env) *cobra.Command {
	root := &cobra.Command{
		Use:   programName,
		Short: "Deliver HTTP calls to systems that are sometimes down",
		Long: `Async Caller delivers HTTP calls to systems that are sometimes down.

A sender puts an envelope, an HTTP call described as data, on an Azure Storage queue. The Functions
host passes it to "async-caller serve", which makes the call. If the call fails temporarily, the
handler retries it with exponential back-off until the envelope's deadline.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 nothing matched, 4 partly done.`,
		Version:       thisBuild().String(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetIn(env.Stdin)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", ".FlagUsagesWrapped 100 "))
	root.AddCommand(newServe(env), newSend(env), newSchedule(env), newExplain(env), newPoison(env), newScheduled(env), newStatusCommand(env), newDoctor(env), newHost(env), newVersion(env))
	return root
}

// app holds the settings that the handler would have in an app folder.
type app struct {
	// env includes the values of local.settings.json.
	env      Env
	rules    decision.Rules
	targets  guard.Rules
	encoding storage.Encoding
	// scheduled says that scheduled messages are recorded.
	scheduled bool
	// wrong are the problems with the settings, retry.json and targets.json, which put a handler into hold mode.
	wrong error
}

// readApp reads the settings from the environment and, where they exist in the app folder, from
// local.settings.json, host.json, retry.json and targets.json. The error joins every problem.
func readApp(env Env, folder string) (app, error) {
	env, err := env.withLocalSettings(folder)
	if err != nil {
		return app{}, usageError(err)
	}
	// No call is made, and the secrets are in the app only.
	settings, settingsErr := config.LoadApp(folder, env.Environ, nil)
	host, hostErr := functionapp.LoadHost(folder, env.Environ)
	a := app{env, settings.Rules, settings.Targets, storage.Base64, settings.Scheduled == config.On, settingsErr}
	switch {
	case hostErr == nil:
		a.encoding = host.Queues.MessageEncoding
	case errors.Is(hostErr, fs.ErrNotExist):
		hostErr = nil
	}
	return a, usageError(errors.Join(a.wrong, hostErr))
}

// openStore opens the storage account of the app, for an environment that includes local.settings.json. Account is its
// endpoint without the scheme: a journal names its account this way, so that the protocol does not matter.
func openStore(env Env, folder string) (store *azure.Queues, account string, err error) {
	connection, err := readConnection(env, folder)
	if err != nil {
		return nil, "", usageError(err)
	}
	store, err = azure.Open(connection)
	return store, accountName(connection.Endpoint), usageError(err)
}

// readConnection returns the storage connection of the app, for an environment that includes local.settings.json. The
// folder of that file may be somebody else's, so the file must not choose who receives a token of the operator's
// identity.
func readConnection(env Env, folder string) (azure.Connection, error) {
	connection, err := azure.ParseConnection(env.Environ, functionapp.ConnectionName)
	err = errors.Join(checkSources(env.Environ, folder), err)
	if err != nil || env.process == nil {
		return connection, err
	}
	settings := azure.UntrustedHosts(env.Environ, env.process, functionapp.ConnectionName)
	if len(settings) == 0 {
		return connection, nil
	}
	return azure.Connection{}, fmt.Errorf("%s: %s: the host is not Azure Storage, and would receive a token of your "+
		"identity: correct the setting, or, if you trust the host, set it to the same value in the environment",
		filepath.Join(folder, functionapp.LocalSettings), strings.Join(settings, ", "))
}

// checkSources refuses a storage connection that the environment and local.settings.json share. Otherwise a connection
// string in the one would silently take precedence over an identity in the other.
func checkSources(environ []string, folder string) error {
	values, _ := functionapp.WithLocalSettings(folder, nil) // the caller reports the error, and func start can decrypt the file
	var own, local []string
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		switch {
		case !azure.Sets(variable, functionapp.ConnectionName):
		case slices.Contains(values, variable):
			local = append(local, name)
		default:
			own = append(own, name)
		}
	}
	if len(own) == 0 || len(local) == 0 {
		return nil
	}
	return fmt.Errorf("%s in the environment and %s in %s may mean different accounts: unset the former, remove the latter, or use another app folder",
		strings.Join(own, ", "), strings.Join(local, ", "), filepath.Join(folder, functionapp.LocalSettings))
}

// storageAdvice returns what to do about an error of storage that does not say it itself.
func storageAdvice(err error) string {
	return doctor.Advice(err, "roles Storage Queue Data Contributor and "+record.Role)
}

func accountName(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return u.Host + strings.TrimRight(u.Path, "/")
}
