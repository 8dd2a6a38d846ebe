package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/call"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/program/terminal"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
)

func newCallsList(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "list",
		Short: "List calls that wait, or count them",
		Long: `List the scheduled calls, the next one first, and then the dead letters by queue. --state, or a
filter that only one of them has, such as --due-within, leaves out the others.

A scheduled call has the beginning of the message id, the time until the next attempt, the number
of attempts, the reason, the latest status, the time until the deadline (ENDS), the request id, and
the target. "due" means that the time has come. "stale" means that the message is gone: it was not
seen for longer than it can be held or received, and only its record is left.

A dead letter has the beginning of the id, the time since the handler gave up, the reason, the
latest status, the number of attempts, and the call, its path without ids and numbers, or the
problem. One with the request id of another one in the list is marked; the first 50,000 request ids
are compared. Dead letters are read from the record and by peeking, so that nothing is received; the
list says how many are recorded and on the queue if these numbers differ. The exit code is 4 if some
are missing. --read-queues receives the messages instead: they are invisible for a moment.

--group-by counts the calls instead: of scheduled ones also those that are due within the next
minute and hour, and NEXT and LAST are the times until the first and the last next attempt.
--group-by host shows why and since when each target fails, as ` + "`async-caller status`" + ` does.
Long texts are cut in the middle to fit the terminal; --json has the whole texts.`,
		Example: `  async-caller calls list --state poison --group-by error --since 24h
  async-caller calls list --host '*.example.com' --due-within 1h
  async-caller calls list --method POST --path '/orders/*' --text C069
  async-caller calls list --queue async-caller-1 --status 503,none --json`,
		Args: cobra.NoArgs,
	}
	flags := flagsOf(command)
	selected := selectCalls(flags)
	groupByFlag(flags, &selected.by, allCriteria())
	flags.BoolVar(&selected.selected.ReadQueues, "read-queues", false, "read the poison queues instead of the record")
	command.RunE = shared.withCalls(selected, func(ctx context.Context, s *session, from sources) error {
		if selected.by != "" {
			return s.groupCalls(ctx, from, selected.by)
		}
		return s.listCalls(ctx, from)
	})
	return command
}

// listCalls prints calls, one per line.
func (s *session) listCalls(ctx context.Context, from sources) error {
	ids := &message.RequestIDs{}
	isFirst := true
	scheduled := func(source account.Source) (account.Listed, error) {
		listed, err := s.listScheduled(ctx, source)
		isFirst = listed.Matched == 0
		return listed, err
	}
	poison := func(source account.Source) (account.Listed, error) {
		isOnly := isFirst && len(source.Queues) == 1
		return s.listPoison(ctx, source, isOnly, isFirst, ids)
	}
	listed, dead, err := s.eachState(from, scheduled, poison)
	if isFailure(err) {
		return err
	}
	s.summarize(listed, dead, err)
	if ids.Shared > 0 {
		have := format.Messages(ids.Shared) + " have"
		if ids.Shared == 1 {
			have = "1 message has"
		}
		s.progress.printf("%s the request id of another one: "+
			"`async-caller calls retry %s --dedupe` sends one of each", have, s.selectedPoison())
	}
	if ids.Full {
		s.progress.printf("only the first %s request ids were compared", format.Number(message.MaxRequestIDs))
	}
	return cmp.Or(err, lacking(dead))
}

// selectedPoison returns the flags that select the dead letters of this command.
func (s *session) selectedPoison() string {
	filter := cmp.Or(s.operations.Operator.Filter, "--"+allFlag)
	if strings.Contains(filter, stateText+call.StatePoison) {
		return filter
	}
	return stateText + call.StatePoison + " " + filter
}

// listScheduled prints scheduled calls.
func (s *session) listScheduled(ctx context.Context, source account.Source) (account.Listed, error) {
	now := time.Now()
	presence := s.account.PresenceCheck(ctx, now)
	rows := terminal.Layout(s.out, terminal.Left("ID", 8), terminal.Right("NEXT", 5), terminal.Right("ATT", 3),
		terminal.Left("REASON", len(decision.Status)), terminal.Right("STATUS", 6), terminal.Right("ENDS", 4),
		terminal.Left("REQUEST", 8), terminal.Call("CALL"))
	line := func(m message.Recorded) (string, error) {
		line := call.NewSummary(m, presence(m.Row), now)
		if s.json {
			text, err := strictjson.Line(line)
			return string(text), err
		}
		return rows.Format(shortID(line.ID), line.Next(now), strconv.Itoa(line.Attempts),
			terminal.Cut(line.Reason, len(decision.Status)), statusText(line.Status), remaining(line.Deadline, now),
			line.RequestID, callText(line.Method, line.Host, line.PathPattern)), nil
	}
	hasHeadings := s.json
	matched, err := s.account.ListByNextAttempt(ctx, source, line, func(_, text string) error {
		if !hasHeadings {
			rows.Headings()
			hasHeadings = true
		}
		_, err := fmt.Fprint(s.out, text)
		return err
	})
	return account.Listed{Matched: matched}, err
}

// listPoison prints dead letters, the oldest of each queue first. A table begins with each queue; it has the queue as
// its heading, unless that is the only one. IsFirst says that nothing is above it.
func (s *session) listPoison(
	ctx context.Context, source account.Source, isOnly, isFirst bool, ids *message.RequestIDs,
) (account.Listed, error) {
	rows := poisonTable(s.out)
	line := func(m message.Recorded) (string, error) {
		sameAs := ids.Earlier(m.Message)
		if s.json {
			text, err := strictjson.Line(listedMessage{m.Message, call.StatePoison, m.Unseen, sameAs})
			return string(text), err
		}
		return poisonLine(rows, m, sameAs), nil
	}
	latest := ""
	return s.account.LookByAge(ctx, source, line, func(queue, text string) error {
		if queue != latest && !s.json {
			if latest != "" || !isFirst {
				fmt.Fprintln(s.out)
			}
			if !isOnly {
				fmt.Fprintln(s.out, queue)
			}
			rows.Headings()
		}
		latest = queue
		_, err := fmt.Fprint(s.out, text)
		return err
	})
}

// listedMessage is a dead letter of a list in JSON.
type listedMessage struct {
	message.Message

	State string `json:"state"`
	// Unseen says that it is recorded, and not visible on the queue: perhaps another command has received it.
	Unseen bool `json:"unseen,omitempty"`
	// SameRequestAs is the id of another message of the list with the same request id.
	SameRequestAs string `json:"sameRequestAs,omitempty"`
}

// reasonColumns is the width of reasons. A sender of dead letters can invent longer ones than the handler has.
const reasonColumns = 14

func poisonTable(out io.Writer) *terminal.Table {
	return terminal.Layout(out,
		terminal.Left("ID", 8), terminal.Right("AGE", 4), terminal.Left("REASON", reasonColumns),
		terminal.Right("STATUS", 6), terminal.Right("ATT", 4), terminal.Call("CALL"))
}

// poisonLine describes a dead letter. SameAs is the id of another message with its request id, or empty.
func poisonLine(rows *terminal.Table, m message.Recorded, sameAs string) string {
	call := m.Detail
	if m.Format != "" && m.Method != "" {
		call = callText(m.Method, m.Host, cmp.Or(m.Path, m.PathPattern))
	}
	if sameAs != "" {
		call = "(request id of " + shortID(sameAs) + ") " + call
	}
	if m.Unseen {
		call = "(not seen) " + call
	}
	return rows.Format(shortID(m.ID), format.Age(time.Since(m.Since)), terminal.CutMiddle(m.Reason, reasonColumns),
		statusText(m.Status), strconv.Itoa(m.Attempts), call)
}

// groupCalls counts calls by a property.
func (s *session) groupCalls(ctx context.Context, from sources, by message.By) error {
	isFirst := true
	scheduled := func(source account.Source) (account.Listed, error) {
		listed, err := s.groupScheduled(ctx, source, by)
		isFirst = listed.Matched == 0
		return listed, err
	}
	groups := message.NewGroups(by)
	poison := func(source account.Source) (account.Listed, error) {
		listed, err := s.account.Look(ctx, source, func(m message.Recorded) error { groups.Add(m.Message); return nil })
		if err != nil {
			return listed, err
		}
		if listed.Matched > 0 && !isFirst && !s.json {
			fmt.Fprintln(s.out)
		}
		rows := groups.Result()
		for i := range rows {
			rows[i].State = call.StatePoison
		}
		printAll(s, rows, printGroups)
		return listed, nil
	}
	listed, dead, err := s.eachState(from, scheduled, poison)
	if isFailure(err) {
		return err
	}
	s.summarize(listed, dead, err)
	if rows := groups.Result(); !s.json && len(rows) > 0 {
		s.progress.printf("list the first group of dead letters: `async-caller calls list --state poison --group %s`",
			groups.Arguments()(rows[0].Key))
	}
	return cmp.Or(err, lacking(dead))
}

// lacking returns an error if a list lacks dead letters.
func lacking(listed account.Listed) error {
	if listed.Lacks() == 0 {
		return nil
	}
	return &codeError{exitPartly, fmt.Errorf("the list lacks about %s; --read-queues receives the messages of the "+
		"queues to see all", format.Messages(listed.Lacks()))}
}

// groupScheduled counts scheduled calls by a property.
func (s *session) groupScheduled(ctx context.Context, source account.Source, by message.By) (account.Listed, error) {
	groups := message.ScheduledGroups{By: by, Now: time.Now()}
	presence := s.account.PresenceCheck(ctx, groups.Now)
	matched, err := s.account.ListScheduled(ctx, source, false, func(m message.Recorded) error {
		groups.Add(m, presence(m.Row) == record.Gone)
		return nil
	})
	listed := account.Listed{Matched: matched}
	if err != nil {
		return listed, err
	}
	rows := groups.Result()
	for i := range rows {
		rows[i].State = call.StateScheduled
	}
	if by != message.ByHost {
		printAll(s, rows, func(out io.Writer, rows []message.ScheduledGroup) {
			printScheduledGroups(out, rows, groups.Now)
		})
		return listed, nil
	}
	failing, err := s.account.Failing(ctx)
	if err != nil {
		s.progress.printf("warning: %v", err)
	}
	printAll(s, account.JoinTargets(rows, failing, time.Time{}), func(out io.Writer, targets []account.TargetStatus) {
		printTargets(out, targets, account.Status{At: groups.Now})
	})
	return listed, nil
}

func printGroups(out io.Writer, groups []message.Row) {
	rows := terminal.NewTable(out, terminal.Right("COUNT", 7), terminal.Right("FIRST", 5), terminal.Right("LAST", 4),
		terminal.Left("SAMPLE", 8), terminal.Flex("KEY", 0))
	for _, g := range groups {
		rows.Row(format.Number(g.Count), format.Age(time.Since(g.First)), format.Age(time.Since(g.Last)),
			shortID(g.Sample.ID), g.Key)
	}
}

func printScheduledGroups(out io.Writer, groups []message.ScheduledGroup, now time.Time) {
	rows := terminal.NewTable(out, terminal.Right("COUNT", 7), terminal.Right("1 MIN", 7), terminal.Right("1 HOUR", 7),
		terminal.Right("STALE", 5), terminal.Right("NEXT", 5), terminal.Right("LAST", 5), terminal.Left("STATUS", 12),
		terminal.Flex("KEY", 0))
	for _, g := range groups {
		rows.Row(format.Number(g.Count), format.Number(g.DueInMinute), format.Number(g.DueInHour),
			format.Number(g.Stale),
			format.Age(g.Next.Sub(now)), format.Age(g.Last.Sub(now)), terminal.Cut(statusesText(g.Statuses), 12), g.Key)
	}
}

// statusesText lists the two most frequent statuses.
func statusesText(counts map[int]int) string {
	const most = 2
	mostFrequentFirst := func(a, b int) int { return cmp.Or(counts[b]-counts[a], a-b) }
	statuses := slices.SortedFunc(maps.Keys(counts), mostFrequentFirst)
	var parts []string
	for _, status := range statuses[:min(len(statuses), most)] {
		parts = append(parts, statusText(envelope.StatusCode(status)))
	}
	if len(statuses) > most {
		parts = append(parts, "…")
	}
	return strings.Join(parts, ", ")
}
