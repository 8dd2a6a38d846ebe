// Package cli is the command line: it reads flags and the environment, wires the packages that do the
// work, and says how it went. Data goes to standard output, talk to standard error.
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

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Exit codes. Scripts rely on them.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2 // wrong usage or configuration
	exitNothing = 3 // nothing matched
	exitPartly  = 4
	programName = "async-caller"
)

// Surroundings is what a command sees of the world outside.
type Surroundings struct {
	// Environ is as os.Environ gives it.
	Environ []string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
}

// System is the surroundings of this process.
func System() Surroundings {
	return Surroundings{Environ: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
}

func (s Surroundings) getenv(name string) string {
	for _, variable := range slices.Backward(s.Environ) { // the last one counts, as in os/exec
		if key, value, _ := strings.Cut(variable, "="); key == name {
			return value
		}
	}
	return ""
}

// isTerminal reports whether a person reads what is written there.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// codeError is an error that ends the program with another code than exitFailed.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

// wrongUsage marks an error of usage or configuration; nil stays nil.
func wrongUsage(err error) error {
	if err == nil {
		return nil
	}
	return &codeError{exitUsage, err}
}

// Run runs the command line and returns the program's exit code. The first SIGINT or SIGTERM ends ctx,
// a second one the process.
func Run(ctx context.Context, args []string, s Surroundings) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer context.AfterFunc(ctx, stop)() // from then on a signal does what it does by default

	started := false
	root := newRoot(s) //nolint:contextcheck // the commands get it from ExecuteContextC
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			fmt.Fprintf(s.Stderr, "%s: %s\n", programName, line)
		}
	}
	if coded, ok := errors.AsType[*codeError](err); ok {
		return coded.code
	}
	if !started {
		fmt.Fprintf(s.Stderr, "see `%s --help`\n", command.CommandPath())
		return exitUsage
	}
	return exitFailed
}

func newRoot(s Surroundings) *cobra.Command {
	root := &cobra.Command{
		Use:   programName,
		Short: "Deliver HTTP calls to systems that are sometimes down",
		Long: `Async Caller delivers HTTP calls to systems that are sometimes down.

A caller that does not want to wait puts an envelope, an HTTP call as data, on an Azure Storage
queue. The Functions host hands it to "async-caller serve", which makes the call and, when it fails
for now, puts it back with a growing delay until it is delivered or its deadline has passed.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 nothing matched, 4 partly done.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(s.Stdout)
	root.SetErr(s.Stderr)
	root.SetIn(s.Stdin)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", ".FlagUsagesWrapped 100 "))
	root.AddCommand(newServe(s), newSend(s), newSchedule(s), newExplain(s), newPoison(s), newHost(s), newVersion(s))
	return root
}
