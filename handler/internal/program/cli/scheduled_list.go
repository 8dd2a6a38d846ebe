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

func newScheduledList(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "list",
		Short: "List scheduled messages, or count them",
		Long: `List messages that wait for their next attempt, the next one first, with the beginning of the
message id, the time until the next attempt, the number of attempts, the reason, the latest status,
the time until the deadline (ENDS), the request id, and the target. "due" means that the time has
come. "stale" means that the message is gone: it was not seen for longer than it can be held or
received, and only its record is left.

--group-by counts the messages instead, and those that are due within the next minute and hour; NEXT
and LAST are the times until the first and the last next attempt. --group-by host shows why and
since when each target fails, as ` + "`async-caller status`" + ` does. --json has the whole texts.`,
		Example: `  async-caller scheduled list --group-by host
  async-caller scheduled list --host '*.example.com' --due-within 1h
  async-caller scheduled list --method POST --path '/orders/*' --text C069
  async-caller scheduled list --queue async-caller-1 --status 503,none --json`,
		Args: cobra.NoArgs,
	}
	flags := flagsOf(command)
	var by message.By
	groupByFlag(flags, &by, message.ScheduledCriteria())
	command.RunE = shared.withScheduled(selectScheduled(flags),
		func(ctx context.Context, s *session, source account.Source) error {
			if by != "" {
				return s.groupScheduled(ctx, source, by)
			}
			return s.listScheduled(ctx, source)
		})
	return command
}

// listedRequest is the largest width of request ids, enough for a GUID.
const listedRequest = 36

// listScheduled prints scheduled messages, one per line.
func (s *session) listScheduled(ctx context.Context, source account.Source) error {
	now := time.Now()
	presence := s.account.PresenceCheck(ctx, now)
	rows := terminal.Layout(s.out, terminal.Left("ID", 8), terminal.Right("NEXT", 5), terminal.Right("ATT", 3),
		terminal.Left("REASON", len(decision.Status)), terminal.Right("STATUS", 6), terminal.Right("ENDS", 4),
		terminal.Flex("REQUEST", listedRequest), terminal.Call("CALL"))
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
	matched, err := s.account.ListByNextAttempt(ctx, source, line, func(text string) error {
		if !hasHeadings {
			rows.Headings()
			hasHeadings = true
		}
		_, err := fmt.Fprint(s.out, text)
		return err
	})
	if err != nil {
		return err
	}
	s.summarize(account.Listed{Matched: matched})
	return nil
}

// groupScheduled counts scheduled messages by a property.
func (s *session) groupScheduled(ctx context.Context, source account.Source, by message.By) error {
	groups := message.ScheduledGroups{By: by, Now: time.Now()}
	presence := s.account.PresenceCheck(ctx, groups.Now)
	matched, err := s.account.ListScheduled(ctx, source, false, func(m message.Recorded) error {
		groups.Add(m, presence(m.Row) == record.Gone)
		return nil
	})
	if err != nil {
		return err
	}
	if by == message.ByHost {
		failing, err := s.account.Failing(ctx)
		if err != nil {
			s.progress.printf("warning: %v", err)
		}
		printAll(s, account.JoinTargets(groups.Result(), failing, time.Time{}),
			func(out io.Writer, targets []account.TargetStatus) {
				printTargets(out, targets, account.Status{At: groups.Now})
			})
	} else {
		printAll(s, groups.Result(), func(out io.Writer, rows []message.ScheduledGroup) {
			printScheduledGroups(out, rows, groups.Now)
		})
	}
	s.summarize(account.Listed{Matched: matched})
	return nil
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
