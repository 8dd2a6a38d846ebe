// Package cli is the command line. It reads flags and the environment, connects the packages that do the
// work, and reports the result: data on standard output, messages on standard error.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/program/terminal"
	"asynccaller/handler/internal/storage/azure"
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

	// out is Stdout, as all commands write to it but serve, whose output is a log.
	out *output
}

// ProcessEnv returns the environment of this process.
func ProcessEnv() Env {
	return Env{Environ: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
}

func (e Env) getenv(name string) string { return config.Getenv(e.Environ)(name) }

// open opens a file, or standard input for "-".
func (e Env) open(path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(e.Stdin), nil
	}
	return os.Open(path) //nolint:gosec // the operator names the file
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	env.out = &output{Writer: env.Stdout, stop: cancel}
	signal.Ignore(syscall.SIGPIPE) // a closed pipe is an error of a write instead

	started := false
	root := newRoot(env) //nolint:contextcheck // ExecuteContextC passes it to the commands
	root.PersistentPreRunE = func(command *cobra.Command, args []string) error {
		err := errors.Join(command.ValidateRequiredFlags(), command.ValidateFlagGroups()) // cobra does it too late
		err = errors.Join(err, checkDashes(args))
		started = err == nil
		return err
	}
	root.SetArgs(args)
	root.SetOut(env.out)
	command, err := root.ExecuteContextC(ctx)
	err = env.out.result(err)
	if err == nil {
		return exitDone
	}
	stderr := env.Stderr
	if command.Name() == serveName || command.Name() == workName { // the host may have stopped reading
		lines := logs.NewBatch(stderr)
		defer lines.Close()
		stderr = lines
	}
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		if line != "" {
			fmt.Fprintf(stderr, "%s: %s\n", programName, text.Printable(line))
		}
	}
	roles := azure.Roles
	if slices.Contains(lookOnly, command.Name()) {
		roles = azure.ReaderRoles
	}
	advice := azure.Advice(err, roles)
	if advice != "" {
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

// lookOnly are the commands that change nothing and receive no message, so that reader roles are enough.
var lookOnly = []string{"console", "list", "reconcile", "show", "status"}

// checkDashes refuses arguments that begin with a dash that programs put in the place of a hyphen, as in a flag that
// was copied from a document. No id, host or queue begins with one.
func checkDashes(args []string) error {
	for _, arg := range args {
		first, _ := utf8.DecodeRuneInString(arg)
		isDash := unicode.Is(unicode.Pd, first) || first == '−' // the minus is no dash in Unicode
		if first != '-' && isDash {
			return fmt.Errorf("%q begins with %q, which is not the hyphen of a flag: type it again", arg, first)
		}
	}
	return nil
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
		Example: `  async-caller send --url https://example.com/orders --json-body '{"id":42}'
  async-caller status
  async-caller show order-4711`,
		Version:       thisBuild().String(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetErr(env.Stderr)
	root.SetIn(env.Stdin)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ",
		fmt.Sprintf(".FlagUsagesWrapped %d ", terminal.DefaultWidth)))
	onlyCommands(root)
	addGroup(root, "Calls:",
		newSend(env), newShow(env), newReconcile(env), newCalls(env), newRuns(env), newErase(env))
	addGroup(root, "Targets and apps:",
		newStatus(env), newConsole(env), newTargets(env), newDoctor(env), newDrill(env))
	addGroup(root, "Development:", newDemo(env), newExplain(env), newLog(env), newRoutes(env))
	addGroup(root, "The app itself:", newServe(env), newWork(env))
	root.AddCommand(newVersion(env))
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	addCompletions(env, root)
	return root
}

// addGroup adds commands under a heading of the help.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, command := range commands {
		command.GroupID = title
	}
	root.AddCommand(commands...)
}

// readApp reads an app folder with the settings of the environment. The error joins every problem with the settings and
// with host.json.
func readApp(env Env, folder string) (config.App, error) {
	a := config.ReadApp(folder, env.Environ, config.Operator)
	if a.LocalErr != nil {
		return a, usageError(a.LocalErr)
	}
	return a, usageError(errors.Join(a.SettingsErr, a.HostErr))
}

// openStore opens the storage account of the app.
func openStore(a config.App) (*azure.Queues, error) {
	if a.ConnectionErr != nil {
		return nil, usageError(a.ConnectionErr)
	}
	store, err := azure.Open(a.Connection)
	return store, usageError(err)
}
