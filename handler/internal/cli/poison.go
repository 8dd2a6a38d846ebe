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

	"asynccaller/handler/internal/config"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/send"
	"asynccaller/handler/internal/storage"
)

// poisonFlags are the flags that all poison commands share.
type poisonFlags struct {
	env Env
	// group is the command that the others belong to: poison or scheduled.
	group string
	// sampleRun is a run in the examples of the help texts.
	sampleRun string
	app, runs string
	json      bool
	// yes is a flag of the commands that change messages.
	yes bool
}

func newPoison(env Env) *cobra.Command {
	p := &poisonFlags{env: env, group: "poison", sampleRun: "20261121-091500-requeue-k3xw"}
	command := &cobra.Command{
		Use:   p.group,
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
	p.declare(command)
	command.AddCommand(
		newPoisonQueues(p), newPoisonList(p), newPoisonShow(p),
		newPoisonRequeue(p), newPoisonMove(p), newPoisonDelete(p), newPoisonKeep(p),
		newPoisonExport(p), newPoisonImport(p),
		newPoisonRuns(p), newPoisonUndo(p), newPoisonResume(p),
	)
	return command
}

// declare declares the flags that all commands of a group have.
func (p *poisonFlags) declare(group *cobra.Command) {
	flags := group.PersistentFlags()
	flags.SortFlags = false
	flags.StringVar(&p.app, "app", ".", "app folder with host.json, function.json and local.settings.json")
	flags.BoolVar(&p.json, "json", false, "print JSON, one object per line")
	flags.StringVar(&p.runs, "runs", "", "folder for journals (default async-caller/runs in $XDG_STATE_HOME)")
}

// addYes declares --yes.
func (p *poisonFlags) addYes(flags *flagSet) {
	flags.BoolVar(&p.yes, "yes", false, "do not ask for confirmation; required without a terminal")
}

func (p *poisonFlags) folder() journal.Folder {
	return cmp.Or(journal.Folder(p.runs), journal.Default(p.env.getenv))
}

// session has the dependencies of a poison command. Its env does not include local.settings.json, which may contain
// secrets: an editor that we start inherits it.
type session struct {
	*poisonFlags
	out      *output
	progress *progress
	runs     *operation.Runs
}

// newSession returns a session without an account.
func (p *poisonFlags) newSession() *session {
	status := newProgress(p.env)
	return &session{poisonFlags: p, out: &output{Writer: p.env.Stdout, progress: status}, progress: status}
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
		appQueues, err := appQueues(a)
		if err != nil {
			return usageError(err)
		}
		store, err := openStore(a)
		if err != nil {
			return err
		}
		defer store.Close()
		s := p.newSession()
		defer s.progress.clear()
		record, outcomes := openTables(a)
		s.runs = &operation.Runs{
			Account: &account.Account{
				Store: store, Name: a.Connection.Account(), AppQueues: appQueues, Table: record,
				OnScanned: s.progress.Scanned,
				Rules:     handlerRules(a),
			},
			Journals: p.folder(), Outcomes: outcomes, Operator: operator(args), Observer: s.progress,
		}
		if err := work(cmd.Context(), s, args); err != nil {
			return withExitCode(cmd.Context(), err)
		}
		return s.out.err
	}
}

// operator returns who gives a command with these arguments.
func operator(args []string) journal.Operator {
	machine, _ := os.Hostname() // empty if unknown
	name := ""
	if person, err := user.Current(); err == nil {
		name = person.Username
	}
	return journal.Operator{User: name, Machine: machine, Filter: strings.Join(args, " ")}
}

// withSelection returns the RunE of a command that works on the selected messages.
func (p *poisonFlags) withSelection(
	selected *selection, work func(context.Context, *session, account.Source) error,
) runFunc {
	return func(cmd *cobra.Command, ids []string) error {
		source, err := selected.source(ids)
		if err != nil {
			return err
		}
		return p.withSession(func(ctx context.Context, s *session, _ []string) error {
			s.runs.Operator.Filter = selected.text(ids)
			return work(ctx, s, source)
		})(cmd, ids)
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
func appQueues(a config.App) ([]string, error) {
	names := send.Queues()
	if errors.Is(a.FunctionsErr, fs.ErrNotExist) {
		return names, nil
	}
	if a.Functions == nil {
		return nil, a.FunctionsErr
	}
	return append(names, a.Functions.QueueNames()...), nil // serve reports the problems of the other functions
}

// handlerRules returns the rules of the app's handler.
func handlerRules(a config.App) message.Rules {
	return message.Rules{
		Encoding: a.Host.Queues.MessageEncoding, Decision: a.Settings.Rules, Guard: a.Settings.Guard,
	}
}

// withExitCode gives an error its exit code, unless it has one.
func withExitCode(ctx context.Context, err error) error {
	if _, coded := errors.AsType[*codeError](err); coded {
		return err
	}
	is := func(kind error) bool { return errors.Is(err, kind) }
	usage := []error{
		account.ErrNoTable, operation.ErrNoOutcomes, account.ErrAppQueue, operation.ErrOtherQueue, run.ErrOtherAccount,
		account.ErrAmbiguous, storage.ErrNoQueue, fs.ErrExist,
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

// summarize ends a listing with the number of messages.
func (s *session) summarize(listed account.Listed) error {
	if listed.Matched == 0 {
		return s.nothingMatched(listed.Hidden)
	}
	text := messages(listed.Matched)
	if listed.Hidden > 0 {
		text += ", " + hiddenText(listed.Hidden)
	}
	s.progress.printf("%s", text)
	return nil
}

// nothingMatched returns the error of a command that found no message.
func (s *session) nothingMatched(hidden int) error {
	err := fmt.Errorf("%w in %s", account.ErrNothing, s.runs.Name)
	if hidden > 0 {
		err = fmt.Errorf("%w; %s", err, hiddenText(hidden))
	}
	return &codeError{exitNothing, err}
}

// hiddenText explains that messages are invisible.
func hiddenText(n int) string {
	return messages(n) + " invisible: scheduled, or received by another client"
}

// The names of the flags of a selection that a journal shows in a form of their own.
const (
	textFlag = "text"
	allFlag  = "all"
)

// selection is the flags that select messages.
type selection struct {
	flags    *flagSet
	selected account.Source
	// filters are the names of the flags without which a command selects all messages.
	filters []string
	// required refuses to select all messages unless the user gives --all.
	required, all bool
	// check, unless nil, refuses further flags.
	check func(ids []string)
}

// selectQueues declares the flags that select messages by queue.
func selectQueues(flags *flagSet) *selection {
	s := &selection{flags: flags}
	s.addQueue("`queue` to read; may be repeated (default every poison queue)")
	flags.BoolVar(&s.selected.Force, "force", false, "also read queues that a function app reads")
	var names []string
	for _, name := range send.Queues() {
		names = append(names, name+storage.PoisonSuffix)
	}
	flags.suggest("queue", names...)
	return s
}

func (s *selection) addQueue(usage string) {
	filterCSV(s, &s.selected.Queues, "queue", usage, parseQueue)
}

// filterFlag declares a flag that selects messages, as [parsed] does.
func filterFlag[T any](s *selection, target *T, name, usage string, parse func(string) (T, error)) {
	s.filters = append(s.filters, name)
	parsed(s.flags, target, name, usage, parse)
}

// filterCSV declares a flag that selects messages, as [parsedCSV] does.
func filterCSV[T any](s *selection, target *[]T, name, usage string, parse func(string) (T, error)) {
	s.filters = append(s.filters, name)
	parsedCSV(s.flags, target, name, usage, parse)
}

// selectMessages declares all flags that select messages.
func selectMessages(flags *flagSet) *selection {
	s := selectQueues(flags)
	s.addFilters(message.Reasons(), message.PoisonCriteria(), "given up")
	filter := &s.selected.Filter
	filterCSV(s, &filter.Methods, "method", "only calls with this `method`; may be repeated", parseText)
	filterFlag(s, &filter.Text, textFlag, "only messages that contain this `text`, ignoring case", parseText)
	return s
}

// addFilters declares the filters of poison and of scheduled messages, for which Since has a different meaning. Criteria
// are those by which the messages can be grouped.
func (s *selection) addFilters(reasons []string, criteria []message.By, since string) {
	filter := &s.selected.Filter
	filterCSV(s, &filter.Reasons, "reason", "only messages with this `reason`, such as timeout; may be repeated",
		message.ParseReason(reasons))
	filterCSV(s, &filter.Statuses, "status", "only messages with this latest `status`, or none; may be repeated",
		parseStatusOrNone)
	filterCSV(s, &filter.Hosts, "host",
		"only calls to this `host` on any port, or host:port, or *.example.com; may be repeated", parseHost)
	filterFlag(s, &filter.Since, "since",
		"only messages "+since+" after this `time` (RFC 3339), or 2h for 2 hours ago", parseAgo)
	filterFlag(s, &filter.Until, "until", "only messages "+since+" before this `time`", parseAgo)
	filterFlag(s, &filter.RequestID, "request-id", "only messages with this request `id`", parseText)
	filterFlag(s, &filter.MinAttempts, "attempts-over", "only messages with more than this `number` of attempts",
		func(text string) (int, error) {
			n, err := atLeast(0)(text)
			return n + 1, err
		})
	filterFlag(s, &filter.Group, "group", "only messages of this `group`, as BY=KEY from list --group-by",
		func(text string) (*message.Group, error) {
			group, err := message.ParseGroup(text, criteria)
			return &group, err
		})
	filterFlag(s, &s.selected.Limit, "limit", "at most this `number` of messages", atLeast(1))
	s.flags.suggest("reason", reasons...)
	var groups []string
	for _, by := range criteria {
		groups = append(groups, string(by)+"=")
	}
	s.flags.suggest("group", groups...)
}

// requireSelection declares the flags that select messages, and --all for all of them.
func requireSelection(flags *flagSet) *selection {
	s := selectMessages(flags)
	s.require("select all messages on all poison queues")
	return s
}

// require declares --all, without which a selection must not be empty.
func (s *selection) require(usage string) {
	s.required = true
	s.flags.BoolVar(&s.all, allFlag, false, usage)
}

// source returns the selected messages. The error names every problem with the flags.
func (s *selection) source(ids []string) (account.Source, error) {
	flags := s.flags
	flags.refuse(slices.Contains(ids, ""), "an id is empty")
	filtered := slices.ContainsFunc(s.filters, flags.Changed)
	flags.refuse(s.all && len(ids) > 0, "--all and ids exclude each other")
	flags.refuse(s.required && !s.all && !filtered && len(ids) == 0, "select messages by ids or filters, or give --all")
	if s.check != nil {
		s.check(ids)
	}
	source := s.selected
	source.IDs = ids
	return source, flags.err()
}

// text returns the selection as a person would write it.
func (s *selection) text(ids []string) string {
	words := slices.Clone(ids)
	s.flags.Visit(func(f *pflag.Flag) {
		switch {
		case f.Name == textFlag: // it may be a secret
			words = append(words, "--"+textFlag+" …")
		case f.Name == allFlag:
			words = append(words, "--"+allFlag)
		case slices.Contains(s.filters, f.Name):
			words = append(words, "--"+f.Name+" "+strings.Join(f.Annotations[annotationTexts], ","))
		}
	})
	return strings.Join(words, " ")
}

// parseText refuses an empty text: a script with an unset variable must not select all messages.
func parseText(text string) (string, error) {
	if text == "" {
		return "", errors.New("is empty")
	}
	return text, nil
}

// parseHost reads a host with or without a port, and refuses a URL.
func parseHost(text string) (string, error) {
	if text == "" || strings.ContainsAny(text, "/@?# \t") {
		// a URL may hold a secret
		return "", errors.New("want a host such as example.com, example.com:8443 or *.example.com")
	}
	return text, nil
}

// parseStatusOrNone reads the status of an answer; none is 0.
func parseStatusOrNone(text string) (int, error) {
	if text == "none" {
		return 0, nil
	}
	status, err := parseStatus(text)
	if err != nil {
		err = fmt.Errorf("%w, or none", err)
	}
	return status, err
}
