package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/call"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/program/terminal"
	"asynccaller/handler/internal/rules/mask"
)

func newShow(env Env) *cobra.Command {
	shared := &sharedFlags{env: env, group: "show"}
	var o showOptions
	command := &cobra.Command{
		Use:   "show ID",
		Short: "Show one call, wherever it is: where it waits or ended, and what happened to it",
		Long: `Show where a call is and its timeline: its creation, attempts, end and callback, and what operators
did to it on this machine. ID is a request id, a message id, or the first 8 or more characters of a
message id. The command looks into the record of calls that wait, the poison queues and the
history, if the app keeps one, and at the first 32 visible messages of all other queues. If several
calls have the ID, it lists them, and the exit code is 1.

If the ID is nowhere, the exit code is 3. If it is not found, and a part could not be looked at, the
exit code is 4. The history knows calls by their request ids only; those of a Nexus tenant need both
--organization and --environment, unless another message of the call is found.

Values with secret names, user info and query values are masked unless you give --reveal. Of a text
that is neither JSON nor a form only the first line or the title is shown, cut after the name of a
secret. Secrets in other places are not recognized: check the output before you share it. A warning
says where the row of a scheduled message contradicts the content that the handler will process.`,
		Example: `  async-caller show order-4711
  async-caller show 4f1c2a9e --queue async-caller-poison --reveal
  async-caller show 4711 --organization acme --environment prd --json`,
		Args: cobra.ExactArgs(1),
	}
	flags := flagsOf(command)
	shared.declare(command)
	parsedCSV(flags, &o.Queues, "queue", "`queue` to look at, with the history; may be repeated (default all)",
		parseQueue)
	flags.StringVar(&o.Tenant.Organization, "organization", "", "`organization` of the tenant, of a Nexus message")
	flags.StringVar(&o.Tenant.Environment, "environment", "", "`environment` of the tenant, of a Nexus message")
	flags.StringVar(&o.Message, "message", "",
		"of several calls, only that of the message with this `id`, or with this beginning of it")
	flags.BoolVar(&o.reveal, "reveal", false, "show secrets")
	flags.BoolVar(&o.ReadQueues, "read-queues", false, "read the poison queues instead of the record")
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
	call.Options

	reveal bool
}

// show prints the call that an ID names, or lists several.
func (s *session) show(ctx context.Context, id string, o showOptions) error {
	found, err := call.Find(ctx, s.operations, id, o.Options)
	if err != nil {
		return err
	}
	now := time.Now()
	if note := found.Note(); note != "" {
		s.progress.printf("%s", note)
	}
	one, err := found.One()
	if len(found.Calls) > 0 {
		s.warnUnread(found.Unread)
	}
	switch {
	case errors.Is(err, call.ErrNotFound):
		return &codeError{exitNothing, err}
	case errors.Is(err, call.ErrNotKnown):
		return &codeError{exitPartly, err}
	case err != nil:
		s.listFound(found.Summaries(), now)
		return &codeError{exitFailed, err}
	}
	page, notes := call.Describe(ctx, s.operations, one, found.Unread, mask.Secrets(o.reveal), now)
	if s.json {
		_ = printJSON(s.out, page) // output keeps the error
	} else {
		printPage(s.out, page, now)
	}
	if len(notes) > 0 {
		return &codeError{exitPartly, errors.New("incomplete: " + strings.Join(notes, "\n"))}
	}
	return nil
}

// warnUnread says what was not looked at.
func (s *session) warnUnread(unread []account.UnreadError) {
	for _, u := range unread {
		s.progress.printf("warning: not looked at: %s", text.Printable(u.Error()))
	}
}

// listFound prints calls, one per line.
func (s *session) listFound(pages []call.Page, now time.Time) {
	printAll(s, pages, func(out io.Writer, pages []call.Page) {
		var rows [][]string
		for _, p := range pages {
			rows = append(rows, []string{
				p.State, shortID(p.ID), p.Queue, p.Host, p.Reason, format.AgeAt(p.Since, now),
			})
		}
		terminal.PrintTable(out, rows, terminal.Left("STATE", 0), terminal.Left("ID", 0), terminal.Name("QUEUE"),
			terminal.Flex("HOST", 0), terminal.Flex("REASON", 0), terminal.Right("AGE", 0))
	})
}

// printPage prints the page of a call.
func printPage(out io.Writer, p call.Page, now time.Time) {
	for i, section := range p.Sections(now) {
		indent := ""
		if i > 0 {
			fmt.Fprintf(out, "\n%s\n", section.Title)
			indent = "  "
		}
		printLines(out, indent, section.Lines)
	}
	commands, warning := p.Commands()
	if len(commands) == 0 && warning == "" {
		return
	}
	fmt.Fprint(out, "\nnext\n")
	terminal.PrintField(out, "  warning", warning)
	for _, command := range commands {
		fmt.Fprintf(out, "  %s %s\n", programName, command)
	}
}

// printLines prints lines with indented labels, and their blocks without wrapping them.
func printLines(out io.Writer, indent string, lines []call.Line) {
	for _, line := range lines {
		if line.Label != "" || line.Text != "" {
			terminal.PrintLine(out, indent+line.Label, "%s", line.Text)
		}
		for text := range strings.Lines(line.Block) {
			fmt.Fprintf(out, "    %s\n", strings.TrimSuffix(text, "\n"))
		}
	}
}
