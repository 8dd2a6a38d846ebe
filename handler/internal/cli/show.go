package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/format"
	"asynccaller/handler/internal/history"
	"asynccaller/handler/internal/mask"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/internal/terminal"
	"asynccaller/handler/internal/text"
)

func newShow(env Env) *cobra.Command {
	shared := &sharedFlags{env: env, group: "show"}
	var o showOptions
	command := &cobra.Command{
		Use:   "show ID",
		Short: "Show one call, wherever it is: where it waits or ended, and what happened to it",
		Long: `Show where a call is and its timeline: its creation, attempts, end and callback, and what operators
did to it on this machine. ID is a request id, a message id, or the first 8 or more characters of a
message id. The command looks into the record of scheduled messages, the poison queues and the
history, if the app keeps one, and at the first 32 visible messages of all other queues. If several
calls have the ID, it lists them, and the exit code is 1.

If the ID is nowhere, the exit code is 3. If it is not found, and a part could not be looked at, the
exit code is 4. The history knows calls by their request ids only; those of a Nexus tenant need both
--organization and --environment, unless another message of the call is found.

Values with secret names, user info and query values are masked unless you give --reveal. A body
that is neither JSON nor XML nor a form is shown only with --reveal. Secrets in other places are not
recognized: check the output before you share it. A warning says where the row of a scheduled
message contradicts the content that the handler will process.`,
		Example: `  async-caller show order-4711
  async-caller show 4f1c2a9e --queue async-caller-poison --reveal
  async-caller show 4711 --organization acme --environment prd --json`,
		Args: cobra.ExactArgs(1),
	}
	flags := flagsOf(command)
	shared.declare(command)
	parsedCSV(flags, &o.queues, "queue", "`queue` to look at, with the history; may be repeated (default all)",
		parseQueue)
	flags.StringVar(&o.tenant.Organization, "organization", "", "`organization` of the tenant, of a Nexus message")
	flags.StringVar(&o.tenant.Environment, "environment", "", "`environment` of the tenant, of a Nexus message")
	flags.StringVar(&o.message, "message", "",
		"of several calls, only that of the message with this `id`, or with this beginning of it")
	flags.BoolVar(&o.reveal, "reveal", false, "show secrets")
	command.RunE = func(cmd *cobra.Command, args []string) error {
		flags.refuse(args[0] == "", "the id is empty")
		if err := flags.err(); err != nil {
			return err
		}
		return shared.withSession(func(ctx context.Context, s *session, args []string) error {
			return s.show(ctx, args[0], o)
		})(cmd, args)
	}
	return command
}

// showOptions are the flags of show.
type showOptions struct {
	queues  []string
	tenant  envelope.Tenant
	message string
	reveal  bool
}

// selects reports whether a call is one that the flags ask for.
func (o showOptions) selects(c foundCall) bool {
	isOfTenant := o.tenant == (envelope.Tenant{}) || o.tenant == c.tenant()
	return isOfTenant && (o.message == "" || c.hasMessage(o.message))
}

// show prints the call that an ID names, or lists several.
func (s *session) show(ctx context.Context, id string, o showOptions) error {
	found, err := s.account.LookUp(ctx, o.queues, []string{id, id + envelope.CallbackSuffix})
	if err != nil {
		return err
	}
	now := time.Now()
	messages := s.messagesOf(ctx, found, now)
	ended := s.endedCalls(ctx, keysToFind(messages, id, o.tenant))
	found.Unread = append(found.Unread, ended.unread...)
	var calls []foundCall
	for _, c := range joinCalls(messages, ended.entries, id) {
		if o.selects(c) {
			calls = append(calls, c)
		}
	}
	if ended.others > 0 {
		s.progress.printf("only the newest %d of %s calls and callbacks that have ended were looked at",
			history.MaxFound, format.Number(history.MaxFound+ended.others))
	}
	if len(calls) == 0 {
		return notFound(id, found, ended, o, now)
	}
	s.warnUnread(found.Unread)
	isChosen := o.message != "" || o.tenant != (envelope.Tenant{})
	if len(calls) == 1 && (found.Others == 0 || isChosen) {
		page := s.wholePage(ctx, calls[0], found.Unread, mask.Secrets(o.reveal), now)
		if s.json {
			return printJSON(s.out, page)
		}
		page.print(s.out, now)
		return nil
	}
	s.listCalls(calls, found.Unread, now)
	return &codeError{exitFailed, severalCalls(id, len(calls)+found.Others)}
}

// messagesOf returns the messages of a lookup, without the record's row of one that is gone or at the front of its
// queue.
func (s *session) messagesOf(ctx context.Context, l account.Lookup, now time.Time) (messages []foundMessage) {
	isStale := s.account.StaleCheck(ctx, now)
	rules := s.account.Rules
	for _, m := range l.Scheduled {
		messages = append(messages, newScheduledMessage(rules, m, isStale(m.Row), now))
	}
	for _, f := range l.Poison {
		messages = append(messages, newQueuedMessage(rules, f, isPoison, now))
	}
	for _, f := range l.Waiting {
		messages = append(messages, newQueuedMessage(rules, f, isQueued, now))
	}
	return withoutGone(messages)
}

// endedCalls are what the history has.
type endedCalls struct {
	entries []history.Entry
	// others is the number of entries that were not looked at.
	others int
	// since is the first table of the history; empty if there is none.
	since  string
	unread []account.UnreadError
}

// endedCalls reads what the history has of calls.
func (s *session) endedCalls(ctx context.Context, keys []message.RequestKey) (ended endedCalls) {
	unread := func(err error) endedCalls {
		ended.unread = []account.UnreadError{{Part: "history", Err: err}}
		return ended
	}
	if s.operations.History == nil {
		return unread(azure.ErrNoTables)
	}
	ctx, cancel := context.WithTimeout(ctx, account.ReachTimeout)
	defer cancel()
	names, err := s.operations.History.TableNames(ctx, history.TablePrefix)
	if err != nil {
		return unread(err)
	}
	if len(names) == 0 {
		return ended
	}
	ended.since = names[0]
	for _, key := range keys {
		tenant := envelope.Tenant{Organization: key.Organization, Environment: key.Environment}
		entries, matching, err := history.Find(ctx, s.operations.History, tenant, key.RequestID,
			func(history.Entry) bool { return true })
		if err != nil {
			return unread(err)
		}
		ended.entries = append(ended.entries, entries...)
		ended.others += max(matching-history.MaxFound, 0)
	}
	return ended
}

// warnUnread says what was not looked at.
func (s *session) warnUnread(unread []account.UnreadError) {
	for _, u := range unread {
		s.progress.printf("warning: not looked at: %s", text.Printable(u.Error()))
	}
}

// notFound returns the error that no call has an ID. If a part was not looked at, it is not known whether one has.
func notFound(id string, found account.Lookup, ended endedCalls, o showOptions, now time.Time) error {
	if unread := found.Unread; len(unread) > 0 {
		err := fmt.Errorf("%.128q: not found, and not known whether it is there, because a part was not looked at%s",
			id, message.ShortIDHint(id))
		for _, u := range unread {
			err = fmt.Errorf("%w\nnot looked at: %w", err, u)
		}
		return &codeError{exitPartly, err}
	}
	if found.Others+ended.others > 0 {
		err := fmt.Errorf("%.128q: the flags select none of the calls that were looked at, and there are more", id)
		return &codeError{exitPartly, err}
	}
	hint := message.ShortIDHint(id)
	if o.tenant == (envelope.Tenant{}) {
		hint += "; give --organization and --environment for the ended call of a Nexus tenant"
	}
	waits := "waits on a queue" + waitingText(found.Fronts, now)
	if len(o.queues) > 0 {
		waits = "waits on " + strings.Join(o.queues, " or ") + waitingText(found.Fronts, now) + ", is elsewhere"
	}
	return &codeError{exitNothing, fmt.Errorf("%.128q: not scheduled, not dead-lettered, no end is recorded: it %s, "+
		"is in flight, or ended before history was kept%s\n%s", id, waits, hint, keptText(ended.since))}
}

// mostFronts is how many queues a text names.
const mostFronts = 5

// waitingText says how many messages wait on the queues that functions read.
func waitingText(fronts []account.Front, now time.Time) string {
	var parts []string
	for i, f := range fronts {
		if i == mostFronts {
			parts = append(parts, "…")
			break
		}
		n, verb := format.Number(f.Visible), "wait"
		switch f.Visible {
		case 1:
			verb = "waits"
		case storage.MaxBatch:
			n += " or more"
		}
		parts = append(parts, fmt.Sprintf("%s %s on %s, the oldest for %s", n, verb, f.Queue,
			format.Age(now.Sub(f.Oldest))))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

// keptText says what the account keeps of calls that have ended.
func keptText(since string) string {
	text := "the account has no history"
	if since != "" {
		text = "the account has tables since " + since
	}
	return text + ": the app keeps calls only if its ASYNC_CALLER_HISTORY, or history in its targets.json, is " +
		"outcomes or check, and only for its ASYNC_CALLER_HISTORY_RETENTION"
}

// severalCalls returns the error that an ID names several calls.
func severalCalls(id string, n int) error {
	return fmt.Errorf("%.128q names %s calls: give the whole id of one message, with --queue if it is on two queues, "+
		"or add --message for a call that has ended", id, format.Number(n))
}

// listCalls prints calls, one per line.
func (s *session) listCalls(calls []foundCall, unread []account.UnreadError, now time.Time) {
	var pages []callPage
	for _, c := range calls {
		pages = append(pages, newCallPage(c, unread))
	}
	printAll(s, pages, func(out io.Writer, pages []callPage) {
		var rows [][]string
		for _, p := range pages {
			rows = append(rows, []string{p.State, shortID(p.ID), p.Queue, p.Host, p.Reason, format.AgeAt(p.at, now)})
		}
		terminal.PrintTable(out, rows, terminal.Left("STATE", 0), terminal.Left("ID", 0), terminal.Name("QUEUE"),
			terminal.Flex("HOST", 0), terminal.Flex("REASON", 0), terminal.Right("AGE", 0))
	})
}
