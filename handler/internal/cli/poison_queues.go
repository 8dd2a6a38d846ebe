package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/poison"
)

// mostReasons is how many reasons a line tells. Who sends dead letters can invent any number.
const mostReasons = 5

func newPoisonQueues(s Surroundings, options *poisonOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "queues",
		Short: "Tell what stands on the poison queues",
		Long: `Queues tells, of every poison queue of the account, how many messages stand there, since when, and
for which reasons. EXPIRES is when storage deletes the first of those that the Functions host
moved there itself; "keep" keeps them.`,
		Example: `  async-caller poison queues
  async-caller poison queues --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return atDesk(cmd.Context(), s, options, (*desk).queues)
		},
	}
}

func (d *desk) queues(ctx context.Context) error {
	summaries, err := d.account.Queues(ctx)
	if err != nil {
		return err
	}
	d.tell.quiet()
	now := d.now()
	if d.options.json {
		for _, summary := range summaries {
			if err := encode(d.s.Stdout, summary); err != nil {
				return err
			}
		}
	} else if len(summaries) > 0 {
		printQueues(d.s.Stdout, summaries, now)
	}
	if len(summaries) == 0 {
		d.tell.say("no poison queues on %s: nothing has failed here", d.account.Name)
	}
	for _, q := range summaries {
		if q.Expiring > 0 {
			d.tell.say("%s on %s will be deleted by storage, the first in %s:\n  `async-caller poison keep --queue %s` keeps them",
				messages(q.Expiring), q.Queue, age(q.NextExpiry.Sub(now)), q.Queue)
		}
		if q.Hidden > 0 {
			d.tell.say("on %s %s", q.Queue, hiddenText(q.Hidden))
		}
	}
	return nil
}

func printQueues(out io.Writer, summaries []poison.QueueSummary, now time.Time) {
	width := len("QUEUE")
	for _, q := range summaries {
		width = max(width, utf8.RuneCountInString(q.Queue))
	}
	// Names are written whole, because people copy them; a long one has a line of its own.
	width = min(width, 36)
	t := table{out: out, columns: []column{
		{title: "QUEUE", width: width},
		{title: "MESSAGES", width: 8, right: true},
		{title: "OLDEST", width: 6, right: true},
		{title: "NEWEST", width: 6, right: true},
		{title: "EXPIRES", width: 7},
		{title: "REASONS"},
	}}
	t.head()
	for _, q := range summaries {
		name, oldest, newest, expires := q.Queue, "-", "-", "-"
		if utf8.RuneCountInString(name) > width {
			fmt.Fprintln(out, name)
			name = ""
		}
		if !q.Oldest.IsZero() {
			oldest, newest = age(now.Sub(q.Oldest)), age(now.Sub(q.Newest))
		}
		if q.Expiring > 0 {
			expires = "in " + age(q.NextExpiry.Sub(now))
		}
		cells := []string{name, thousands(q.Messages), oldest, newest, expires}
		for _, line := range wrap(reasonsText(q.Reasons), t.rest()) {
			t.row(append(cells, line)...)
			cells = make([]string, len(cells))
		}
	}
}

func reasonsText(counts []poison.ReasonCount) string {
	if len(counts) == 0 {
		return "-"
	}
	var parts []string
	for i, c := range counts {
		if i == mostReasons {
			parts = append(parts, fmt.Sprintf("%s others", thousands(len(counts)-i)))
			break
		}
		parts = append(parts, fmt.Sprintf("%s %s", c.Reason, thousands(c.Count)))
	}
	return strings.Join(parts, ", ")
}
