package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/program/terminal"
)

func newPoisonList(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "list",
		Short: "List poison messages with their reasons",
		Long: `List messages with the beginning of the id, the time since the handler gave up, the reason, the
latest status, the number of attempts, and the call or the problem. --group-by counts them instead.
Long texts are cut in the middle to fit the terminal; --json has the whole texts. A message with the
request id of an earlier one in the list is marked; the first 50,000 request ids are compared.`,
		Example: `  async-caller poison list --group-by error --since 24h
  async-caller poison list --queue async-caller-poison --status 503,none --host '*.example.com'
  async-caller poison list --group 'path=/orders/{n}' --json`,
		Args: cobra.NoArgs,
	}
	flags := flagsOf(command)
	var by message.By
	groupByFlag(flags, &by, message.PoisonCriteria())
	command.RunE = shared.withSelection(selectPoison(flags),
		func(ctx context.Context, s *session, source account.Source) error {
			if by != "" {
				return s.listGroups(ctx, source, by)
			}
			return s.list(ctx, source)
		})
	return command
}

// list prints messages, one per line.
func (s *session) list(ctx context.Context, source account.Source) error {
	ids := &message.RequestIDs{}
	listed, err := s.account.List(ctx, source, s.messagePrinter(source, ids))
	if err != nil {
		return err
	}
	s.summarize(listed)
	if ids.Shared > 0 {
		have := format.Messages(ids.Shared) + " have"
		if ids.Shared == 1 {
			have = "1 message has"
		}
		selected := cmp.Or(s.operations.Operator.Filter, "--"+allFlag)
		s.progress.printf("%s the request id of an earlier one: "+
			"`async-caller poison requeue %s --dedupe` sends one of each", have, selected)
	}
	if ids.Full {
		s.progress.printf("only the first %s request ids were compared", format.Number(message.MaxRequestIDs))
	}
	return nil
}

// messagePrinter returns a function that prints a message as JSON, or as a row of a table. A table begins
// when the queue changes; it has a heading unless the source is a single queue.
func (s *session) messagePrinter(source account.Source, ids *message.RequestIDs) func(account.Found) {
	latest := ""
	var rows *terminal.Table
	return func(f account.Found) {
		sameAs := ids.Earlier(f.Message)
		if s.json {
			_ = printJSON(s.out, listedMessage{f.Message, sameAs}) // output keeps the error
			return
		}
		if f.Queue != latest {
			if latest != "" {
				fmt.Fprintln(s.out)
			}
			if len(source.Queues) != 1 {
				fmt.Fprintln(s.out, f.Queue)
			}
			latest = f.Queue
			rows = newMessageTable(s.out)
		}
		printMessage(rows, f.Message, sameAs)
	}
}

// listedMessage is a message of a list in JSON.
type listedMessage struct {
	message.Message
	// SameRequestAs is the id of an earlier message of the list with the same request id.
	SameRequestAs string `json:"sameRequestAs,omitempty"`
}

// reasonColumns is the width of reasons. A sender of dead letters can invent longer ones than the handler has.
const reasonColumns = 14

func newMessageTable(out io.Writer) *terminal.Table {
	return terminal.NewTable(out,
		terminal.Left("ID", 8), terminal.Right("AGE", 4), terminal.Left("REASON", reasonColumns),
		terminal.Right("STATUS", 6), terminal.Right("ATT", 4), terminal.Call("CALL"))
}

// printMessage prints a message as a row. SameAs is the id of an earlier message with its request id, or empty.
func printMessage(rows *terminal.Table, m message.Message, sameAs string) {
	call := m.Detail
	if m.Format != "" && m.Method != "" {
		call = callText(m.Method, m.Host, m.Path)
	}
	if sameAs != "" {
		call = "(request id of " + shortID(sameAs) + ") " + call
	}
	rows.Row(shortID(m.ID), format.Age(time.Since(m.Since)), terminal.CutMiddle(m.Reason, reasonColumns),
		statusText(m.Status),
		strconv.Itoa(m.Attempts), call)
}

// listGroups counts messages by a property.
func (s *session) listGroups(ctx context.Context, source account.Source, by message.By) error {
	groups := message.NewGroups(by)
	listed, err := s.account.List(ctx, source, func(f account.Found) { groups.Add(f.Message) })
	if err != nil {
		return err
	}
	result := groups.Result()
	printAll(s, result, printGroups)
	s.summarize(listed)
	if s.json || len(result) == 0 {
		return nil
	}
	s.progress.printf("list the first group: `async-caller poison list --group %s`", groups.Arguments()(result[0].Key))
	return nil
}

func printGroups(out io.Writer, groups []message.Row) {
	rows := terminal.NewTable(out, terminal.Right("COUNT", 7), terminal.Right("FIRST", 5), terminal.Right("LAST", 4),
		terminal.Left("SAMPLE", 8), terminal.Flex("KEY", 0))
	for _, g := range groups {
		rows.Row(format.Number(g.Count), format.Age(time.Since(g.First)), format.Age(time.Since(g.Last)),
			shortID(g.Sample.ID), g.Key)
	}
}

func newPoisonQueues(shared *sharedFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "queues",
		Short: "Show which queues have poison messages, by reason",
		Long: `Show the number, age and reasons of the messages on each poison queue. EXPIRES is the time until
storage deletes the first message that the Functions host moved there; "keep" prevents that. Long
texts are cut in the middle to fit the terminal; --json has the whole names and all reasons.

Other queues follow if no function of the app reads them and a dead letter is among their first 32
messages.`,
		Example: `  async-caller poison queues`,
		Args:    cobra.NoArgs,
		RunE:    shared.withSession(func(ctx context.Context, s *session, _ []string) error { return s.queues(ctx) }),
	}
}

func (s *session) queues(ctx context.Context) error {
	summaries, err := s.account.Queues(ctx)
	if err != nil {
		return err
	}
	printAll(s, summaries, printQueues)
	if len(summaries) == 0 {
		s.progress.printf("no poison queues on %s: no message has failed", s.account.Name)
	}
	for _, q := range summaries {
		if q.Moved {
			s.progress.printf("%s has messages that were moved there; no function of the app reads it:\n"+
				"  `async-caller poison requeue --queue %s --to QUEUE` sends them again",
				q.Queue, format.ShellWord(q.Queue))
		}
		if q.Expiring > 0 {
			s.progress.printf("storage will delete %s on %s, the first in %s:\n"+
				"  `async-caller poison keep --queue %s` prevents that",
				format.Messages(q.Expiring), q.Queue, format.Age(time.Until(q.NextExpiry)), format.ShellWord(q.Queue))
		}
		if q.Hidden > 0 {
			s.progress.printf("%s: %s", q.Queue, hiddenText(q.Hidden))
		}
	}
	return nil
}

func printQueues(out io.Writer, summaries []account.QueueSummary) {
	var rows [][]string
	for _, q := range summaries {
		oldest, newest, expires := "-", "-", "-"
		if !q.Oldest.IsZero() {
			oldest = format.Age(time.Since(q.Oldest))
			newest = format.Age(time.Since(q.Newest))
		}
		if q.Expiring > 0 {
			expires = "in " + format.Age(time.Until(q.NextExpiry))
		}
		rows = append(rows,
			[]string{q.Queue, format.Number(q.Messages), oldest, newest, expires, reasonsText(q.Reasons)})
	}
	terminal.PrintTable(out, rows, terminal.Name("QUEUE"), terminal.Right("MESSAGES", 0), terminal.Right("OLDEST", 0),
		terminal.Right("NEWEST", 0), terminal.Left("EXPIRES", 0), terminal.List("REASONS"))
}
