package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/storage"
)

// sharedFlags are the flags that the commands on a storage account share.
type sharedFlags struct {
	env Env
	// group is the name of the command, or of the command that it belongs to, such as calls or runs.
	group     string
	app, runs string
	json      bool
	// yes is a flag of the commands that change messages.
	yes bool
}

// declare declares the flags that all commands of a group have.
func (shared *sharedFlags) declare(group *cobra.Command) {
	flags := group.PersistentFlags()
	flags.SortFlags = false
	shared.addApp(flags)
	flags.StringVar(&shared.runs, "runs", "", "folder for journals (default async-caller/runs in $XDG_STATE_HOME)")
}

// addApp declares --app and --json.
func (shared *sharedFlags) addApp(flags *pflag.FlagSet) {
	flags.StringVar(&shared.app, "app", ".", "app folder with host.json, function.json and local.settings.json")
	flags.BoolVar(&shared.json, "json", false, "print JSON, one object per line")
}

// addYes declares --yes.
func (shared *sharedFlags) addYes(flags *flagSet) {
	flags.BoolVar(&shared.yes, "yes", false, "do not ask for confirmation; required without a terminal")
}

// addConfirmation declares --dry-run, whose value it returns, and --yes.
func (shared *sharedFlags) addConfirmation(flags *flagSet) (dryRun *bool) {
	dryRun = flags.Bool("dry-run", false, "show what would change, and change nothing")
	shared.addYes(flags)
	return dryRun
}

func (shared *sharedFlags) folder() journal.Folder {
	return cmp.Or(journal.Folder(shared.runs), journal.Default(shared.env.getenv))
}

// session has the dependencies of a command on a storage account. Its env does not include local.settings.json, which
// may contain secrets: an editor that we start inherits it.
type session struct {
	*sharedFlags
	out      *output
	progress *progress
	// account is what the command reads, and operations what it does.
	account    *account.Account
	operations *operation.Operations
	// hasApp says that the app folder is one, and hasInvalid that something in it is invalid.
	hasApp, hasInvalid bool
	// keepsHistory says that the settings of the app folder keep a history of the calls of some targets.
	keepsHistory bool
	// ids are those that the user gives.
	ids []string
}

// newSession returns a session without an account.
func (shared *sharedFlags) newSession() *session {
	progress := newProgress(shared.env)
	shared.env.out.progress = progress
	return &session{sharedFlags: shared, out: shared.env.out, progress: progress}
}

// runFunc is the RunE of a command.
type runFunc = func(*cobra.Command, []string) error

// withSession returns the RunE of a command that works on the account of the app.
func (shared *sharedFlags) withSession(work func(context.Context, *session, []string) error) runFunc {
	return func(cmd *cobra.Command, args []string) error {
		a, invalid := readApp(shared.env, shared.app)
		if a.LocalErr != nil || invalid != nil && !slices.Contains(withoutApp, cmd.Name()) {
			return invalid
		}
		operations, closeAccount, err := operation.Open(a)
		if err != nil {
			return usageError(err)
		}
		defer closeAccount()
		s := shared.newSession()
		defer s.progress.clear()
		operations.Observer = s.progress
		operations.Journals, operations.Operator = shared.folder(), operator(cmd, args)
		s.account, s.operations = operations.Account, operations
		s.account.OnScanned = s.progress.Scanned
		s.keepsHistory = a.Settings.KeepsHistory()
		s.hasApp = !errors.Is(a.FunctionsErr, functionapp.ErrNoApp)
		s.warnOfApp(invalid)
		return withExitCode(cmd.Context(), s.searched(work(cmd.Context(), s, args)))
	}
}

// withoutApp are the commands that go on if the settings of the app, or values in host.json, are invalid: those that
// only read, and those that make or end live settings.
var withoutApp = []string{"console", "export", "list", "pause", "reconcile", "set", "show", "status"}

// warnOfApp warns of what is invalid in the app folder, if anything is.
func (s *session) warnOfApp(invalid error) {
	if invalid == nil {
		return
	}
	s.hasInvalid = true
	problems := strings.Split(invalid.Error(), "\n")
	first := problems[0]
	if len(problems) > 1 {
		first = fmt.Sprintf("the first of %d problems: %s", len(problems), first)
	}
	s.progress.printf("warning: the app is invalid: %s", first)
}

// searched returns the error of a command that says how many messages could not be searched for the text of --text. One
// that has found none does not know that there is none.
func (s *session) searched(err error) error {
	coded, _ := errors.AsType[*codeError](err)
	isKnown := err != nil && (coded == nil || coded.code != exitNothing)
	if s.account.Unsearched == 0 || isKnown {
		return err
	}
	return &codeError{exitPartly, errors.Join(err, errors.New(unsearchedText(s.account.Unsearched)))}
}

// operator returns who gives a command with these arguments.
func operator(cmd *cobra.Command, args []string) journal.Operator {
	machine, _ := os.Hostname() // empty if unknown
	name := ""
	if person, err := user.Current(); err == nil {
		name = person.Username
	}
	return journal.Operator{
		User: name, Machine: machine, Filter: strings.Join(args, " "), CommandLine: commandLine(cmd, args),
	}
}

// printAll prints values as JSON lines or, if there are any, as a table.
func printAll[T any](s *session, values []T, table func(io.Writer, []T)) {
	switch {
	case s.json:
		for _, value := range values {
			_ = printJSON(s.out, value) // output keeps the error
		}
	case len(values) > 0:
		table(s.out, values)
	}
}

// withExitCode gives an error its exit code, unless it has one. It returns nil for nil.
func withExitCode(ctx context.Context, err error) error {
	if _, coded := errors.AsType[*codeError](err); coded || err == nil {
		return err
	}
	is := func(kind error) bool { return errors.Is(err, kind) }
	usage := []error{
		account.ErrAmbiguous, account.ErrAppQueue, account.ErrNoTable, account.ErrNoSettings,
		operation.ErrNoCall, operation.ErrNoOutcomes, operation.ErrOtherQueue, operation.ErrNoEffect,
		run.ErrOtherAccount, storage.ErrNoQueue, fs.ErrExist,
	}
	switch {
	case slices.ContainsFunc(usage, is):
		return usageError(err)
	case is(account.ErrNothing), is(run.ErrNothingLeft), is(journal.ErrNoRun):
		return &codeError{exitNothing, err}
	case ctx.Err() != nil: // the error of a run has an exit code
		return errors.New("interrupted: nothing was changed")
	}
	return err
}

// summarize ends a listing with the number of scheduled calls and of dead letters. An empty list is no error, but of
// what could not be read it does not say that there is none.
func (s *session) summarize(scheduled, dead account.Listed, unread error) {
	text := format.Messages(scheduled.Matched + dead.Matched)
	switch {
	case scheduled.Matched+dead.Matched == 0 && unread != nil:
		return
	case scheduled.Matched+dead.Matched == 0:
		text = fmt.Sprintf("%v in %s", account.ErrNothing, s.account.Name)
	case scheduled.Matched > 0 && dead.Matched > 0:
		text += fmt.Sprintf(": %s scheduled, %s poison", format.Number(scheduled.Matched), format.Number(dead.Matched))
	}
	if dead.Hidden > 0 {
		text += ", " + hiddenText(dead.Hidden)
	}
	s.progress.printf("%s", text)
	for _, v := range dead.Views {
		if said := v.Text(); said != "" {
			s.progress.printf("%s: %s", v.Queue, said)
		}
	}
}

// isFailure reports whether an error is more than that a part is missing.
func isFailure(err error) bool {
	coded, isCoded := errors.AsType[*codeError](err)
	isPartly := isCoded && coded.code == exitPartly
	return err != nil && !isPartly
}

// nothingMatched returns the error of a command that found no message.
func (s *session) nothingMatched(hidden int) error {
	err := fmt.Errorf("%w in %s%s", account.ErrNothing, s.account.Name, message.ShortIDHint(s.ids...))
	if len(s.ids) > 0 {
		err = fmt.Errorf("%w\n%w", err, notFound(s.ids))
	}
	if hidden > 0 {
		err = fmt.Errorf("%w; %s", err, hiddenText(hidden))
	}
	return &codeError{exitNothing, err}
}

// notFound names ids that match no message. It returns nil if there are none.
func notFound(ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return &codeError{exitPartly, fmt.Errorf("not found: %.300s", strings.Join(ids, ", "))}
}

// unsearchedText explains that messages were left out.
func unsearchedText(n int) string {
	return "left out, although a part could not be searched for the text (compressed, encrypted, binary or in an " +
		"unknown charset): " + format.Messages(n)
}

// hiddenText explains that messages are invisible.
func hiddenText(n int) string {
	return format.Messages(n) + " invisible: scheduled, or received by another client"
}
