package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/explain"
	"asynccaller/handler/internal/mask"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/record"
	"asynccaller/handler/internal/terminal"
	"asynccaller/handler/internal/text"
)

func newScheduledShow(shared *sharedFlags) *cobra.Command {
	var reveal bool
	command := &cobra.Command{
		Use:   "show ID",
		Short: "Show one scheduled message in detail",
		Long: `Show when a scheduled message is due, why it waits, its attempts, the target's latest answer, since
when the target fails, the call, and what the handler will do at its next attempt. ID is the message
id, its first 8 or more characters, or the request id. A warning says where the row of the record,
by which you choose a message, contradicts the content that the handler will process.

Values with secret names, user info and query values are masked unless you give --reveal. A body
that is neither JSON nor XML nor a form is shown only with --reveal. Secrets in other places are not
recognized: check the output before you share it.`,
		Example: `  async-caller scheduled show 4f1c2a9e
  async-caller scheduled show order-4711 --queue async-caller --reveal`,
		Args: cobra.ExactArgs(1),
	}
	flags := flagsOf(command)
	flags.BoolVar(&reveal, "reveal", false, "show secrets")
	selected := &scheduledSelection{selection: &selection{flags: flags}}
	selected.addQueue("`queue` to look at; may be repeated (default all)")
	command.RunE = shared.withScheduled(selected,
		func(ctx context.Context, s *session, source account.ScheduledSource) error {
			found, err := s.account.FindScheduled(ctx, source, source.IDs[0])
			if err != nil {
				return err
			}
			details := s.scheduledDetails(ctx, found, mask.Secrets(reveal))
			if s.json {
				return printJSON(s.out, details)
			}
			details.print(s.out)
			return nil
		})
	return command
}

// scheduledDetails is the output of show for a scheduled message.
type scheduledDetails struct {
	Message scheduledLine `json:"message"`
	// Target is how the target fails, in the eyes of each app that calls it.
	Target []record.Target `json:"target,omitempty"`
	// Warnings say where the row of the message contradicts its content.
	Warnings []string `json:"warnings,omitempty"`
	contentDetails
	Next explain.Explanation `json:"next"`
}

func (s *session) scheduledDetails(ctx context.Context, m message.Scheduled, secrets mask.Secrets) scheduledDetails {
	now := time.Now()
	isStale := s.account.StaleCheck(ctx, now)
	line := newScheduledLine(m, isStale(m.Row), now)
	at := now
	if line.NextAttemptAt.After(now) {
		at = line.NextAttemptAt
	}
	failing, err := s.account.Failing(ctx)
	if err != nil {
		s.progress.printf("warning: %v", err)
	}
	host := record.RowHost(m.Row.TargetHost)
	failing = slices.DeleteFunc(failing, func(t record.Target) bool { return t.Host != host })
	return scheduledDetails{
		Message:        line,
		Target:         failing,
		Warnings:       message.CheckRow(m.Row),
		contentDetails: newContentDetails(m.Row.Content, secrets),
		Next:           s.explain(ctx, m.Row.Partition, m.Row.ID, m.Row.Content, at),
	}
}

// failureText says how a target fails.
func failureText(t record.Target, now time.Time) string {
	since, latest := age(now.Sub(t.Since)), age(now.Sub(t.Latest))
	failure := fmt.Sprintf("since %s ago, the last time %s ago: %s", since, latest, t.Cause)
	if t.IsOpen() {
		failure += "; the circuit breaker is open"
	}
	return text.Printable(failure + " (app " + t.App + ")")
}

func (d scheduledDetails) print(out io.Writer) {
	m := d.Message
	now := time.Now()
	terminal.PrintLine(out, "message", "%s on %s", m.ID, m.Queue)
	for _, warning := range d.Warnings {
		terminal.PrintLine(out, "warning", "%s", warning)
	}
	terminal.PrintField(out, "request id", m.RequestID)
	terminal.PrintField(out, "tenant", tenantText(m.Organization, m.Environment))
	terminal.PrintLine(out, "target", "%s%s", m.Host, m.Route)
	terminal.PrintLine(out, "reason", "%s", m.Reason)
	terminal.PrintField(out, "cause", m.Cause)
	terminal.PrintField(out, "answer", m.Answer)
	for _, t := range d.Target {
		terminal.PrintLine(out, "target fails", "%s", failureText(t, now))
	}
	terminal.PrintLine(out, "attempts", "%s", attemptsText(m.Attempts, m.Status))
	terminal.PrintLine(out, "created", "%s, %s ago", moment(m.CreatedAt), age(now.Sub(m.CreatedAt)))
	next := "in " + age(m.NextAttemptAt.Sub(now))
	switch m.State {
	case "due":
		next = "due: the host receives it after the messages before it"
	case "stale":
		next = "stale: the message is gone, and only its record is left"
	}
	terminal.PrintLine(out, "next attempt", "%s, %s", moment(m.NextAttemptAt), next)
	if m.Repeated {
		terminal.PrintLine(out, "written",
			"repeatedly, because storage did not answer: there may be a second message of the call")
	}
	if !m.Deadline.IsZero() {
		terminal.PrintLine(out, "deadline", "%s, %s", moment(m.Deadline), remaining(m.Deadline, now))
	}
	d.contentDetails.print(out)
	fmt.Fprint(out, "\nat its next attempt\n")
	printDelivery(out, d.Next)
	target := commandTarget(m.ID, m.Queue)
	printCommands(out, m.ID, m.Queue, []string{"scheduled expedite " + target, "scheduled cancel " + target},
		historyCommand(m.RequestID, m.Organization, m.Environment))
}
