package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/history"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/storage/azure"
	"asynccaller/handler/internal/terminal"
	"asynccaller/handler/internal/text"
)

func newHistory(env Env) *cobra.Command {
	shared := &sharedFlags{env: env, group: "history"}
	command := &cobra.Command{
		Use:   shared.group,
		Short: "Show how calls have ended",
		Long: `Show what became of calls that were delivered or given up. The handler keeps that in tables of the
storage account if ASYNC_CALLER_HISTORY, or history of the target in targets.json, is outcomes or
check.`,
		Example: "  async-caller history show order-4711",
	}
	onlyCommands(command)
	shared.addApp(command.PersistentFlags())
	command.AddCommand(newHistoryShow(shared))
	return command
}

func newHistoryShow(shared *sharedFlags) *cobra.Command {
	var tenant envelope.Tenant
	var filter message.Filter
	command := &cobra.Command{
		Use:   "show ID",
		Short: "Show what became of the calls with a request id",
		Long: `Show the calls with a request id that have ended, the newest first: the result, the target, the
attempts and the callback. At most 100 of them are shown: --host and --until select others. The
request id of a call without one is the id of its message. The calls of a Nexus tenant need both
--organization and --environment.

A call that has not ended is not in the history: use "scheduled show".`,
		Example: `  async-caller history show order-4711
  async-caller history show order-4711 --host crm.example.com --until 2h
  async-caller history show 4711 --organization acme --environment prd --json`,
		Args: cobra.ExactArgs(1),
	}
	flags := flagsOf(command)
	flags.StringVar(&tenant.Organization, "organization", "", "`organization` of the tenant, of a Nexus message")
	flags.StringVar(&tenant.Environment, "environment", "", "`environment` of the tenant, of a Nexus message")
	parsedCSV(flags, &filter.Hosts, "host",
		"only calls to this `host` on any port, or host:port, or *.example.com; may be repeated", parseHost)
	parsed(flags, &filter.Until, "until",
		"only calls that ended before this `time` (RFC 3339), or 2h for 2 hours ago", parseAgo)
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if err := flags.err(); err != nil {
			return err
		}
		return shared.withSession(func(ctx context.Context, s *session, args []string) error {
			return s.showHistory(ctx, tenant, args[0], filter)
		})(cmd, args)
	}
	return command
}

// endedCall is a call of the history, with its callback if there is one.
type endedCall struct {
	history.Entry
	Callback *history.Entry `json:"callback,omitempty"`
}

func (s *session) showHistory(
	ctx context.Context, tenant envelope.Tenant, id string, filter message.Filter,
) error {
	if s.operations.History == nil {
		return usageError(azure.ErrNoTables)
	}
	ctx, cancel := context.WithTimeout(ctx, account.ReachTimeout)
	defer cancel()
	entries, matching, err := history.Find(ctx, s.operations.History, tenant, id, func(e history.Entry) bool {
		return filter.Match(message.Message{Host: e.TargetHost, Since: e.EndedAt}, nil)
	})
	if err == nil && len(entries) == 0 {
		err = s.noHistory(ctx, tenant, id, filter)
	}
	if err != nil {
		return fmt.Errorf("history of %s: %w", s.account.Name, err)
	}
	printAll(s, joinCallbacks(entries), printHistory)
	if matching > history.MaxFound {
		s.progress.printf("only the newest %d of %s calls and callbacks are shown: "+
			"select others with --host and --until", history.MaxFound, thousands(matching))
	}
	return nil
}

// noHistory says why the history may not have a call.
func (s *session) noHistory(ctx context.Context, tenant envelope.Tenant, id string, filter message.Filter) error {
	names, err := s.operations.History.TableNames(ctx, history.TablePrefix)
	if err != nil {
		return err
	}
	selected := ""
	if len(filter.Hosts) > 0 || !filter.Until.IsZero() {
		selected = " that --host and --until select"
	}
	text := fmt.Sprintf("%.140q: no call with this request id%s has ended", id, selected)
	if tenant == (envelope.Tenant{}) {
		text += "; give --organization and --environment for the call of a Nexus tenant"
	} else {
		text += fmt.Sprintf(" for the tenant %.140q", tenantText(tenant.Organization, tenant.Environment))
	}
	if len(names) == 0 {
		text += "\nthe account has no history"
	} else {
		text += "\nthe account has tables since " + names[0]
	}
	text += ": the app keeps calls only if its ASYNC_CALLER_HISTORY, or history in its targets.json, is outcomes or " +
		"check, and only for its ASYNC_CALLER_HISTORY_RETENTION\n" +
		"a call that waits is in `async-caller scheduled list` and `async-caller status`"
	return &codeError{exitNothing, errors.New(text)}
}

// joinCallbacks joins each callback to the latest call with the same trace that ended before it. A callback without one
// is listed on its own, after the calls.
func joinCallbacks(entries []history.Entry) []endedCall {
	var calls []endedCall
	for _, entry := range entries {
		if !entry.IsCallback() {
			calls = append(calls, endedCall{Entry: entry})
		}
	}
	for _, callback := range entries {
		if !callback.IsCallback() {
			continue
		}
		at := slices.IndexFunc(calls, func(c endedCall) bool {
			isEarlier := !c.EndedAt.After(callback.EndedAt)
			return c.TraceID == callback.TraceID && isEarlier && c.Callback == nil && !c.IsCallback()
		})
		if at < 0 {
			calls = append(calls, endedCall{Entry: callback})
		} else {
			calls[at].Callback = new(callback)
		}
	}
	return calls
}

func printHistory(out io.Writer, calls []endedCall) {
	for i, c := range calls {
		if i > 0 {
			fmt.Fprintln(out)
		}
		c.print(out)
	}
}

// mostShown is the length of the longest text of a row that is shown. A row can be anyone's who writes to the table.
const mostShown = 256

func (c endedCall) print(out io.Writer) {
	e, now := shownEntry(c.Entry), time.Now()
	label := "call"
	if e.IsCallback() {
		label = "callback"
	}
	terminal.PrintLine(out, label, "%s", e.RequestID)
	terminal.PrintField(out, "reports on", e.OriginalRequestID)
	terminal.PrintField(out, "tenant", tenantText(e.Organization, e.Environment))
	terminal.PrintLine(out, "result", "%s", resultText(e))
	terminal.PrintLine(out, "target", "%s%s", e.TargetHost, e.Route)
	terminal.PrintLine(out, "message", "%s on %s", e.MessageID, e.Queue)
	terminal.PrintLine(out, "created", "%s, %s ago", moment(e.CreatedAt), age(now.Sub(e.CreatedAt)))
	terminal.PrintLine(out, "ended", "%s, %s ago", moment(e.EndedAt), age(now.Sub(e.EndedAt)))
	attempts := strconv.Itoa(e.Attempts)
	if n := len(e.Trail); n != e.Attempts {
		attempts += fmt.Sprintf(", of which %d are known", n)
	}
	terminal.PrintLine(out, "attempts", "%s", attempts)
	terminal.PrintField(out, "trace id", e.TraceID)
	if c.Callback != nil {
		callback := shownEntry(*c.Callback)
		terminal.PrintLine(out, "callback", "%s at %s, to %s, attempts %d",
			resultText(callback), moment(callback.EndedAt), callback.TargetHost, callback.Attempts)
	}
	if len(e.Trail) == 0 {
		return
	}
	rows := terminal.NewTable(out, terminal.Left("TIME", 24), terminal.Right("TOOK", 8), terminal.Right("STATUS", 6),
		terminal.Flex("REASON", 0))
	for _, a := range e.Trail {
		status := "-"
		if a.Status != 0 {
			status = strconv.Itoa(a.Status)
		}
		rows.Row(moment(a.At), a.Took.String(), status, cmp.Or(a.Error, "answered"))
	}
}

// shownEntry returns an entry with texts that can be printed.
func shownEntry(e history.Entry) history.Entry {
	e.Trail = slices.Clone(e.Trail)
	members := []*string{
		&e.RequestID, &e.Organization, &e.Environment, &e.Queue, &e.MessageID, &e.TargetHost, &e.Route, &e.Action,
		&e.Reason, &e.OriginalRequestID, &e.TraceID,
	}
	for i := range e.Trail {
		members = append(members, &e.Trail[i].Error)
	}
	for _, member := range members {
		*member = terminal.Text(text.Clip(*member, mostShown))
	}
	return e
}

func resultText(e history.Entry) string {
	text := e.Reason
	if e.Action != string(decision.Finish) {
		text += " (" + e.Action + ")"
	}
	if e.Status != 0 {
		text += fmt.Sprintf(", status %d", e.Status)
	}
	return text
}
