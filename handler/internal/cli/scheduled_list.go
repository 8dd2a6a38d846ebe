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

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
)

func newScheduledList(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "list",
		Short: "List scheduled messages, or count them",
		Long: `List messages that wait for their next attempt, with the beginning of the message id, the request
id, the time until the next attempt, the number of attempts, the latest status, the time until the
deadline, and the target. "due" means that the time has come. "stale" means that the message is long
due and gone: only its record is left. --group-by counts the messages, and those that are due within
the next minute and hour. Rows are cut to 100 columns; --json has the whole texts.`,
		Example: `  async-caller scheduled list --group-by host
  async-caller scheduled list --host '*.example.com' --due-within 1h
  async-caller scheduled list --queue async-caller-1 --status 503,none --json`,
		Args: cobra.NoArgs,
	}
	flags := flagsOf(command)
	var by message.By
	groupByFlag(flags, &by, message.ScheduledCriteria())
	command.RunE = shared.withScheduled(selectScheduled(flags),
		func(ctx context.Context, s *session, source account.ScheduledSource) error {
			if by != "" {
				return s.groupScheduled(ctx, source, by)
			}
			return s.listScheduled(ctx, source)
		})
	return command
}

// scheduledLine is a scheduled message in JSON.
type scheduledLine struct {
	Queue         string    `json:"queue"`
	ID            string    `json:"id"`
	RequestID     string    `json:"requestId,omitempty"`
	Host          string    `json:"host,omitempty"`
	Route         string    `json:"route,omitempty"`
	Reason        string    `json:"reason"`
	Status        int       `json:"status,omitempty"`
	Attempts      int       `json:"attempts"`
	CreatedAt     time.Time `json:"createdAt"`
	NextAttemptAt time.Time `json:"nextAttemptAt"`
	Deadline      time.Time `json:"deadline"`
	Organization  string    `json:"organization,omitempty"`
	Environment   string    `json:"environment,omitempty"`
	// State is waiting, due or stale.
	State string `json:"state"`
	// Repeated says that there may be a second message of the call, because storage did not answer when this one
	// was written.
	Repeated bool `json:"repeated,omitempty"`
}

func newScheduledLine(m message.Scheduled, stale bool, now time.Time) scheduledLine {
	state := "waiting"
	if stale {
		state = "stale"
	} else if m.Row.IsDue(now) {
		state = "due"
	}
	return scheduledLine{
		Queue:         m.Queue,
		ID:            m.ID,
		RequestID:     m.RequestID,
		Host:          m.Host,
		Route:         m.Route,
		Reason:        m.Reason,
		Status:        m.Status,
		Attempts:      m.Attempts,
		CreatedAt:     m.Since,
		NextAttemptAt: m.Row.NextAttemptAt.UTC(),
		Deadline:      m.Row.Deadline.UTC(),
		Organization:  m.Organization,
		Environment:   m.Environment,
		State:         state,
		Repeated:      m.Row.Repeated,
	}
}

// next says when the message is due.
func (l scheduledLine) next(now time.Time) string {
	if l.State != "waiting" {
		return l.State
	}
	return age(l.NextAttemptAt.Sub(now))
}

// listScheduled prints scheduled messages, one per line.
func (s *session) listScheduled(ctx context.Context, source account.ScheduledSource) error {
	const format = "%-8s  %-20s  %5s  %4s  %6s  %8s  %s"
	now := time.Now()
	isStale := s.runs.StaleCheck(ctx, now)
	queueName := ""
	return s.eachScheduled(ctx, source, func(m message.Scheduled) error {
		line := newScheduledLine(m, isStale(m.Row), now)
		if s.json {
			return printJSON(s.out, line)
		}
		if line.Queue != queueName {
			if queueName != "" {
				fmt.Fprintln(s.out)
			}
			queueName = line.Queue
			printRow(s.out, "%s", queueName)
			printRow(s.out, format, "ID", "REQUEST", "NEXT", "ATT", "STATUS", "DEADLINE", "TARGET")
		}
		printRow(s.out, format,
			shortID(line.ID), cut(line.RequestID, 20), line.next(now),
			cut(strconv.Itoa(line.Attempts), 4), cut(statusText(line.Status), 6),
			remaining(line.Deadline, now), line.Host+line.Route)
		return s.out.err
	})
}

// statusText formats the latest status; 0 means none.
func statusText(status int) string {
	if status == 0 {
		return "-"
	}
	return strconv.Itoa(status)
}

// remaining formats the time until a moment, which may be unknown or past.
func remaining(at, now time.Time) string {
	switch {
	case at.IsZero():
		return "-"
	case !at.After(now):
		return "past"
	}
	return age(at.Sub(now))
}

// groupScheduled counts scheduled messages by a property.
func (s *session) groupScheduled(ctx context.Context, source account.ScheduledSource, by message.By) error {
	groups := message.ScheduledGroups{By: by, Now: time.Now()}
	isStale := s.runs.StaleCheck(ctx, groups.Now)
	err := s.eachScheduled(ctx, source, func(m message.Scheduled) error {
		groups.Add(m, isStale(m.Row))
		return nil
	})
	if err != nil {
		return err
	}
	printAll(s, groups.Result(), func(out io.Writer, rows []message.ScheduledGroup) {
		printScheduledGroups(out, rows, groups.Now)
	})
	return nil
}

func printScheduledGroups(out io.Writer, groups []message.ScheduledGroup, now time.Time) {
	const format = "%7s  %7s  %7s  %7s  %5s  %5s  %-12s  %s"
	printRow(out, format, "COUNT", "1 MIN", "1 HOUR", "STALE", "FIRST", "LAST", "STATUS", "KEY")
	for _, g := range groups {
		printRow(out, format,
			thousands(g.Count), thousands(g.DueInMinute), thousands(g.DueInHour), thousands(g.Stale),
			age(g.Next.Sub(now)), age(g.Last.Sub(now)), cut(statusesText(g.Statuses), 12), g.Key)
	}
}

// statusesText lists the two most frequent statuses.
func statusesText(counts map[int]int) string {
	const most = 2
	mostFrequentFirst := func(a, b int) int { return cmp.Or(counts[b]-counts[a], a-b) }
	statuses := slices.SortedFunc(maps.Keys(counts), mostFrequentFirst)
	var parts []string
	for _, status := range statuses[:min(len(statuses), most)] {
		parts = append(parts, statusText(status))
	}
	if len(statuses) > most {
		parts = append(parts, "…")
	}
	return strings.Join(parts, ", ")
}

// eachScheduled shows the selected scheduled messages, and ends with their number.
func (s *session) eachScheduled(
	ctx context.Context, source account.ScheduledSource, see func(message.Scheduled) error,
) error {
	matched, err := s.runs.ListScheduled(ctx, source, false, see)
	if err != nil {
		return err
	}
	return s.summarize(account.Listed{Matched: matched})
}
