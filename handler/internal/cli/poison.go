package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/edit"
	"asynccaller/handler/internal/poison/journal"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/queue/azure"
)

// poisonOptions are what all poison commands have in common.
type poisonOptions struct {
	app, runs string
	json      bool
}

func newPoison(s Surroundings) *cobra.Command {
	var options poisonOptions
	command := &cobra.Command{
		Use:   "poison",
		Short: "See and mend what could not be delivered",
		Long: `Poison deals with the messages that could not be delivered. They stand on <queue>-poison: dead
letters, which say why they are there; malformed messages, as they came; and what the Functions
host moved there itself because the handler crashed or timed out, which storage deletes after 7
days.

The usual way: "queues" tells where something stands, "list" what and why, grouped if there is
much, "show" all about one message, "requeue" sends messages again, mended by flags or in an
editor.

A command that changes something says first what it will do, and asks, or wants --yes where nobody
can be asked. It keeps a journal: "runs" lists those of this machine, "undo" takes a run back,
"resume" goes on with one that was interrupted. It writes first and deletes after: a message may
for a moment be in two places, but never in none.

Settings come as for the other commands. Secrets are not shown unless --reveal asks for them, but
journals and exports hold whole messages: only their owner can read these files.`,
		Example: `  async-caller poison queues
  async-caller poison list --group-by error
  async-caller poison show 4f1c2a9e
  async-caller poison requeue --reason expired --since 2h --canary 5`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := command.PersistentFlags()
	flags.SortFlags = false
	flags.StringVar(&options.app, "app", ".", "app folder, for host.json, function.json and local.settings.json")
	flags.BoolVar(&options.json, "json", false, "print JSON: one object a line")
	flags.StringVar(&options.runs, "runs", "", "folder for journals (default async-caller/runs in $XDG_STATE_HOME)")
	command.AddCommand(
		newPoisonQueues(s, &options), newPoisonList(s, &options), newPoisonShow(s, &options), newPoisonWatch(s, &options),
		newPoisonRequeue(s, &options), newPoisonMove(s, &options), newPoisonDelete(s, &options), newPoisonKeep(s, &options),
		newPoisonExport(s, &options), newPoisonImport(s, &options),
		newPoisonRuns(s, &options), newPoisonUndo(s, &options), newPoisonResume(s, &options),
	)
	return command
}

// desk is what a poison command works with.
type desk struct {
	s       Surroundings
	options *poisonOptions
	account *poison.Account
	tell    *teller
	// environ is the environment as it came, for programs that we start: local.settings.json has secrets.
	environ []string
	now     func() time.Time
}

// atDesk runs a command at a desk, and gives its error the exit code that belongs to it.
func atDesk(ctx context.Context, s Surroundings, options *poisonOptions, work func(*desk, context.Context) error) error {
	book, err := readRules(s, options.app)
	if err != nil {
		return wrongUsage(err)
	}
	environ, runs := s.Environ, options.folder(s)
	s.Environ = book.environ
	connection, err := azure.ParseConnection(s.getenv, functionapp.ConnectionName)
	if err != nil {
		return wrongUsage(err)
	}
	live, err := liveQueues(options.app, book.environ)
	if err != nil {
		return wrongUsage(err)
	}
	store, err := azure.Open(connection)
	if err != nil {
		return wrongUsage(err)
	}
	defer store.Close()
	tell := &teller{err: s.Stderr}
	d := &desk{
		s: s, options: options, tell: tell, environ: environ, now: time.Now,
		account: &poison.Account{
			Store: store, Name: accountName(connection.Endpoint), AppQueues: live, Runs: runs, Observer: tell,
			Rules: edit.Rules{Encoding: book.encoding, Decision: book.rules, Targets: book.targets},
		},
	}
	defer d.tell.quiet()
	return withCode(ctx, work(d, ctx))
}

func (o *poisonOptions) folder(s Surroundings) journal.Folder {
	if o.runs != "" {
		return journal.Folder(o.runs)
	}
	return journal.Default(s.getenv)
}

// accountName is the endpoint without its scheme, so that a journal is found to be of this account
// whichever way it is reached.
func accountName(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return u.Host + strings.TrimRight(u.Path, "/")
}

// liveQueues are the queues of the app, as far as it can be read, and those that we ship: the tools may be
// used where the app is not.
func liveQueues(app string, environ []string) ([]string, error) {
	names := make([]string, 0, 11)
	for priority := range 11 {
		names = append(names, queueFor(priority))
	}
	read, err := functionapp.Load(app, environ)
	if read == nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return names, err
	}
	for _, f := range read.Functions { // what is wrong with the others is for serve to say
		if !slices.Contains(names, f.Queue) {
			names = append(names, f.Queue)
		}
	}
	return names, nil
}

// withCode gives an error the exit code that belongs to it, unless it has one.
func withCode(ctx context.Context, err error) error {
	if _, coded := errors.AsType[*codeError](err); err == nil || coded {
		return err
	}
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
	switch {
	case is(poison.ErrAppQueue, poison.ErrOtherAccount, poison.ErrAmbiguous, queue.ErrNoQueue, fs.ErrExist):
		return &codeError{exitUsage, err}
	case is(poison.ErrNothing, poison.ErrNothingLeft, journal.ErrNoRun):
		return &codeError{exitNothing, err}
	case ctx.Err() != nil:
		return errors.New("interrupted: nothing was changed") // else verdict has said how far it came
	}
	return err
}

// nothingMatched is the error of a command that found nothing to work on.
func nothingMatched(hidden int) error {
	text := poison.ErrNothing.Error()
	if hidden > 0 {
		text += "; " + hiddenText(hidden)
	}
	return &codeError{exitNothing, errors.New(text)}
}

// hiddenText says that messages could not be looked at.
func hiddenText(n int) string {
	return fmt.Sprintf("%s cannot be seen now: somebody has taken them, or they wait", messages(n))
}

// messages counts in words.
func messages(n int) string {
	if n == 1 {
		return "1 message"
	}
	return thousands(n) + " messages"
}

// age says roughly how long ago something was, or in how long it comes.
func age(d time.Duration) string {
	const (
		day  = 24 * time.Hour
		year = 365 * day
	)
	switch {
	case d < time.Second:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d < 2*year:
		return fmt.Sprintf("%dd", d/day)
	}
	return fmt.Sprintf("%dy", d/year)
}

// encode writes one line of JSON.
func encode(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// shellWord writes a text so that a shell takes it for one word as it stands.
func shellWord(text string) string {
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,@%+") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// complete suggests fixed words for a flag.
func complete(command *cobra.Command, flag string, words func() []string) {
	_ = command.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words(), cobra.ShellCompDirectiveNoFileComp
	}) // fails only for a flag that is not there
}

// flagsOf returns a command's flags, listed in the order in which they are declared.
func flagsOf(command *cobra.Command) *pflag.FlagSet {
	flags := command.Flags()
	flags.SortFlags = false
	return flags
}
