package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

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
		Long: `Work with the messages on the poison queues, <queue>-poison. These are dead letters with a reason,
malformed messages, and messages that the Functions host moved there because the handler crashed or
timed out. Storage deletes the latter after 7 days; "keep" prevents that.

Start with "queues" and "list", look at one message with "show", and send messages again with
"requeue", which can edit them.

A command that changes messages shows its plan and asks for confirmation; without a terminal it
requires --yes. Each change is recorded in a journal: "runs" lists them, "undo" reverts one, and
"resume" continues one that was interrupted. Messages are written before they are deleted, so an
interruption can leave a message in two places, but never in none.

Secrets are masked unless you give --reveal. Journals and exports contain whole messages; only
their owner can read these files.`,
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

// open returns a session with the account of the app, and a function that closes it.
func (p *poisonFlags) open() (*session, func(), error) {
	a, err := readApp(p.env, p.app)
	if err != nil {
		return nil, nil, err
	}
	appQueues, err := appQueues(p.app, a.env.Environ)
	if err != nil {
		return nil, nil, usageError(err)
	}
	store, account, err := openStore(a.env)
	if err != nil {
		return nil, nil, err
	}
	s := p.newSession()
	s.account = &poison.Account{
		Store: store, Name: account, AppQueues: appQueues, Runs: p.folder(), Observer: s.status,
		Rules: edit.Rules{Encoding: a.encoding, Decision: a.rules, Targets: a.targets},
	}
	return s, store.Close, nil
}

// withSession returns the RunE of a command that works on the account.
func (p *poisonFlags) withSession(work func(context.Context, *session, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, closeStore, err := p.open()
		if err != nil {
			return err
		}
		defer closeStore()
		defer s.status.clear()
		if err := work(cmd.Context(), s, args); err != nil {
			return withExitCode(cmd.Context(), err)
		}
		return s.out.err
	}
}

// withSelection returns the RunE of a command that works on the selected messages.
func (p *poisonFlags) withSelection(selected *selection, work func(context.Context, *session, poison.Source) error) func(*cobra.Command, []string) error {
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
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return names, nil
	case app == nil:
		return names, err
	}
	for _, f := range app.Functions { // serve reports the problems of the others
		if !slices.Contains(names, f.Queue) {
			names = append(names, f.Queue)
		}
	}
	return names, nil
}

// withExitCode gives an error its exit code, unless it has one.
func withExitCode(ctx context.Context, err error) error {
	if _, coded := errors.AsType[*codeError](err); coded {
		return err
	}
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
	switch {
	case is(poison.ErrAppQueue, poison.ErrOtherAccount, poison.ErrAmbiguous, queue.ErrNoQueue, fs.ErrExist):
		return usageError(err)
	case is(poison.ErrNothing, poison.ErrNothingLeft, journal.ErrNoRun):
		return &codeError{exitNothing, err}
	case ctx.Err() != nil: // a run that was interrupted has an exit code
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
