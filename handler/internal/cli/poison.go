package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/edit"
	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/send"
)

// poisonFlags are the flags that all poison commands share.
type poisonFlags struct {
	env       Env
	app, runs string
	json      bool
}

func newPoison(env Env) *cobra.Command {
	p := &poisonFlags{env: env}
	command := &cobra.Command{
		Use:   "poison",
		Short: "Show, fix and resend messages that could not be delivered",
		Long: `Work with the messages on the poison queues, <queue>-poison: dead letters, malformed messages, and
messages that the Functions host moved there because the handler crashed or timed out.

A command that changes messages shows its plan and asks for confirmation; without a terminal it
requires --yes. A journal records each run: "runs" lists them, "undo" reverts one, and "resume"
continues one that was interrupted. Messages are written before they are deleted, so an interruption
can leave a message in two places, but never in none.

Secrets are masked unless you give --reveal. Journals and exports contain whole messages; only their
owner can read these files.`,
		Example: `  async-caller poison queues
  async-caller poison list --group-by error
  async-caller poison show 4f1c2a9e
  async-caller poison requeue --reason expired --since 2h --canary 5`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := command.PersistentFlags()
	flags.SortFlags = false
	flags.StringVar(&p.app, "app", ".", "app folder with host.json, function.json and local.settings.json")
	flags.BoolVar(&p.json, "json", false, "print JSON, one object per line")
	flags.StringVar(&p.runs, "runs", "", "folder for journals (default async-caller/runs in $XDG_STATE_HOME)")
	command.AddCommand(
		newPoisonQueues(p), newPoisonList(p), newPoisonShow(p), newPoisonWatch(p),
		newPoisonRequeue(p), newPoisonMove(p), newPoisonDelete(p), newPoisonKeep(p),
		newPoisonExport(p), newPoisonImport(p),
		newPoisonRuns(p), newPoisonUndo(p), newPoisonResume(p),
	)
	return command
}

func (p *poisonFlags) folder() journal.Folder {
	if p.runs != "" {
		return journal.Folder(p.runs)
	}
	return journal.Default(p.env.getenv)
}

// session is what a poison command works with. Its env does not include local.settings.json, which may
// contain secrets: an editor that we start inherits it.
type session struct {
	*poisonFlags
	out     *output
	status  *status
	account *poison.Account
}

// newSession returns a session without an account.
func (p *poisonFlags) newSession() *session {
	status := newStatus(p.env)
	return &session{poisonFlags: p, out: &output{Writer: p.env.Stdout, status: status}, status: status}
}

// runFunc is the RunE of a command.
type runFunc = func(*cobra.Command, []string) error

// withSession returns the RunE of a command that works on the account of the app.
func (p *poisonFlags) withSession(work func(context.Context, *session, []string) error) runFunc {
	return func(cmd *cobra.Command, args []string) error {
		a, err := readApp(p.env, p.app)
		if err != nil {
			return err
		}
		appQueues, err := appQueues(p.app, a.env.Environ)
		if err != nil {
			return usageError(err)
		}
		store, account, err := openStore(a.env)
		if err != nil {
			return err
		}
		defer store.Close()
		s := p.newSession()
		defer s.status.clear()
		s.account = &poison.Account{
			Store: store, Name: account, AppQueues: appQueues, Runs: p.folder(), Observer: s.status,
			Rules: edit.Rules{Encoding: a.encoding, Decision: a.rules, Targets: a.targets},
		}
		if err := work(cmd.Context(), s, args); err != nil {
			return withExitCode(cmd.Context(), err)
		}
		return s.out.err
	}
}

// withSelection returns the RunE of a command that works on the selected messages.
func (p *poisonFlags) withSelection(selected *selection, work func(context.Context, *session, poison.Source) error) runFunc {
	return func(cmd *cobra.Command, ids []string) error {
		source, err := selected.source(ids)
		if err != nil {
			return err
		}
		return p.withSession(func(ctx context.Context, s *session, _ []string) error { return work(ctx, s, source) })(cmd, ids)
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

// appQueues returns the queues that function apps read: those that we ship and those in the app folder, if
// there is one.
func appQueues(folder string, environ []string) ([]string, error) {
	names := send.Queues()
	app, err := functionapp.Load(folder, environ)
	if errors.Is(err, fs.ErrNotExist) {
		return names, nil
	}
	if app == nil {
		return nil, err
	}
	for _, f := range app.Functions { // serve reports the problems of the others
		names = append(names, f.Queue)
	}
	return names, nil
}

// withExitCode gives an error its exit code, unless it has one.
func withExitCode(ctx context.Context, err error) error {
	if _, coded := errors.AsType[*codeError](err); coded {
		return err
	}
	for _, usage := range []error{poison.ErrAppQueue, poison.ErrOtherAccount, poison.ErrAmbiguous, queue.ErrNoQueue, fs.ErrExist} {
		if errors.Is(err, usage) {
			return usageError(err)
		}
	}
	if errors.Is(err, poison.ErrNothing) || errors.Is(err, poison.ErrNothingLeft) || errors.Is(err, journal.ErrNoRun) {
		return &codeError{exitNothing, err}
	}
	if ctx.Err() != nil { // the error of a run has an exit code
		return errors.New("interrupted: nothing was changed")
	}
	return err
}

// summarize ends a listing with the number of messages.
func (s *session) summarize(listed poison.Listed) error {
	if listed.Matched == 0 {
		return nothingMatched(listed.Hidden)
	}
	text := messages(listed.Matched)
	if listed.Hidden > 0 {
		text += ", " + hiddenText(listed.Hidden)
	}
	s.status.printf("%s", text)
	return nil
}

// nothingMatched returns the error of a command that found no message.
func nothingMatched(hidden int) error {
	err := poison.ErrNothing
	if hidden > 0 {
		err = fmt.Errorf("%w; %s", err, hiddenText(hidden))
	}
	return &codeError{exitNothing, err}
}

// hiddenText explains that messages are invisible.
func hiddenText(n int) string {
	return messages(n) + " invisible: scheduled, or received by another client"
}
