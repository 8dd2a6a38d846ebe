package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/inspect"
)

// rowsAtOnce is how many rows are gathered before they are written: a person sees the first soon, and ids
// are compared with those of their neighbours.
const rowsAtOnce = 50

func newPoisonList(s Surroundings, options *poisonOptions) *cobra.Command {
	var which selection
	var groupBy string
	command := &cobra.Command{
		Use:   "list",
		Short: "List messages and why they are there",
		Long: `List shows the messages on the poison queues: the beginning of the id, for how long the message
has been given up, why, the latest answer, how often it was called, and the call, or what is wrong
with a message that is none. With --group-by it counts what is alike instead; --group takes a key
of that list, here and in the other commands.`,
		Example: `  async-caller poison list
  async-caller poison list --group-by error --since 24h
  async-caller poison list --queue async-caller-poison --status 503,none --host '*.example.com'
  async-caller poison list --group 'route=/orders/{n}' --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			source, err := which.source(nil, time.Now())
			if err != nil {
				return err
			}
			by, err := groupFlag(groupBy)
			if err != nil {
				return err
			}
			return atDesk(cmd.Context(), s, options, func(d *desk, ctx context.Context) error {
				if by != "" {
					return d.listGroups(ctx, source, by)
				}
				return d.list(ctx, source)
			})
		},
	}
	flagsOf(command).StringVar(&groupBy, "group-by", "", "count what is alike: by reason, status, host, route or error")
	complete(command, "group-by", func() []string { return []string{"reason", "status", "host", "route", "error"} })
	which.addTo(command)
	return command
}

func groupFlag(text string) (inspect.By, error) {
	if text == "" {
		return "", nil
	}
	by, err := inspect.ParseBy(text)
	if err != nil {
		return "", wrongUsage(fmt.Errorf("--group-by: %w", err))
	}
	return by, nil
}

// list shows messages, one a line.
func (d *desk) list(ctx context.Context, source poison.Source) error {
	out := bufio.NewWriter(d.s.Stdout)
	rows := &rows{out: out, now: d.now(), headings: len(source.Queues) != 1, before: d.tell.quiet}
	show := rows.add
	if d.options.json {
		show = func(m inspect.Message) { _ = encode(out, m) } // the writer keeps the error
	}
	listed, err := d.account.List(ctx, source, func(f poison.Found) { show(f.Message) })
	rows.write()
	if flushed := out.Flush(); err == nil {
		err = flushed
	}
	if err != nil {
		return err
	}
	return d.told(listed)
}

// told ends a list: with how complete it is.
func (d *desk) told(listed poison.Listed) error {
	if listed.Matched == 0 {
		return nothingMatched(listed.Hidden)
	}
	text := messages(listed.Matched)
	if listed.Hidden > 0 {
		text += ", " + thousands(listed.Hidden) + " cannot be seen now"
	}
	d.tell.say("%s", text)
	return nil
}

// rows writes messages as rows of a table, some at a time.
type rows struct {
	out *bufio.Writer
	now time.Time
	// headings names each queue above its messages.
	headings bool
	// before is called before anything is written.
	before func()

	waiting []inspect.Message
	// headed is the queue of the latest heading.
	headed string
}

func (r *rows) add(m inspect.Message) {
	if len(r.waiting) > 0 && r.waiting[0].Queue != m.Queue {
		r.write()
	}
	r.waiting = append(r.waiting, m)
	if len(r.waiting) >= rowsAtOnce {
		r.write()
	}
}

// write writes what waits. All of it stands on one queue.
func (r *rows) write() {
	if len(r.waiting) == 0 {
		return
	}
	r.before()
	t := messageTable(r.out)
	if name := r.waiting[0].Queue; name != r.headed {
		if r.headings {
			if r.headed != "" {
				fmt.Fprintln(r.out)
			}
			fmt.Fprintln(r.out, name)
		}
		r.headed = name
		t.head()
	}
	for i, id := range shortIDs(r.waiting) {
		t.row(messageCells(r.waiting[i], id, r.now)...)
	}
	r.waiting = r.waiting[:0]
	_ = r.out.Flush() // the writer keeps the error
}

func messageTable(out io.Writer) table {
	return table{out: out, columns: []column{
		{title: "ID", width: shortID, whole: true},
		{title: "AGE", width: 4, right: true},
		{title: "REASON", width: 14},
		{title: "STATUS", width: 6, right: true},
		{title: "ATT", width: 4, right: true},
		{title: "CALL"},
	}}
}

func messageCells(m inspect.Message, id string, now time.Time) []string {
	status := "-"
	if m.Status != 0 {
		status = strconv.Itoa(m.Status)
	}
	return []string{id, age(now.Sub(m.Since)), m.Reason, status, strconv.Itoa(m.Attempts), callText(m)}
}

// callText is the call of a message or, for what is none, what is wrong with it.
func callText(m inspect.Message) string {
	if m.Format == "" || m.Method == "" {
		return m.Detail
	}
	return m.Method + " " + m.Host + m.Path
}

// shortID is as much of an id as it takes to name a message.
const shortID = 8

// shortIDs are the beginnings of ids, longer where two would be the same.
func shortIDs(batch []inspect.Message) []string {
	count := map[string]int{}
	for _, m := range batch {
		count[beginning(m.ID)]++
	}
	short := make([]string, len(batch))
	for i, m := range batch {
		short[i] = beginning(m.ID)
		if count[short[i]] > 1 {
			short[i] = m.ID
		}
	}
	return short
}

func beginning(id string) string { return strings.ToLower(id[:min(len(id), shortID)]) }
