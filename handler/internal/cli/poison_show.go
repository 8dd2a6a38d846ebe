package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/explain"
	"asynccaller/handler/internal/mask"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/terminal"
)

func newPoisonShow(shared *sharedFlags) *cobra.Command {
	var reveal bool
	command := &cobra.Command{
		Use:   "show ID",
		Short: "Show one message in detail",
		Long: `Show why a message is on the queue, its attempts, the target's latest answer, the call, and what
would happen if you requeued it now. ID is the message id, its first 8 or more characters, or the
request id.

Values with secret names, user info and query values are masked unless you give --reveal. A body
that is neither JSON nor XML nor a form is shown only with --reveal. Secrets in other places are not
recognized: check the output before you share it.`,
		Example: `  async-caller poison show 4f1c2a9e
  async-caller poison show order-4711 --queue async-caller-poison --reveal`,
		Args: cobra.ExactArgs(1),
	}
	flags := flagsOf(command)
	flags.BoolVar(&reveal, "reveal", false, "show secrets")
	command.RunE = shared.withSelection(selectQueues(flags),
		func(ctx context.Context, s *session, source account.Source) error {
			found, err := s.account.Find(ctx, source, source.IDs[0])
			if err != nil {
				return err
			}
			details := s.details(ctx, found, mask.Secrets(reveal))
			if s.json {
				return printJSON(s.out, details)
			}
			details.print(s.out)
			return nil
		})
	return command
}

// messageDetails is the output of show.
type messageDetails struct {
	Message message.Message `json:"message"`
	contentDetails
	Requeue requeuePreview `json:"requeue"`
}

// requeuePreview describes how requeue would process a message.
type requeuePreview struct {
	To string `json:"to,omitempty"`
	// Refused is the reason why requeue would refuse the message.
	Refused string `json:"refused,omitempty"`
	// Flags are what requeue needs so that it does not refuse the message.
	Flags       []string             `json:"flags,omitempty"`
	Explanation *explain.Explanation `json:"explanation,omitempty"`
}

func (s *session) details(ctx context.Context, f account.Found, secrets mask.Secrets) messageDetails {
	d := messageDetails{Message: f.Message, Requeue: s.previewRequeue(ctx, f)}
	if f.Raw { // whatever it looks like
		d.Content = string(mask.ShowContent(f.Content, secrets))
	} else {
		d.contentDetails = newContentDetails(f.Content, secrets)
	}
	return d
}

// previewRequeue prepares a message as requeue does and explains the result.
func (s *session) previewRequeue(ctx context.Context, f account.Found) requeuePreview {
	rules, now := s.account.Rules, time.Now()
	to, noTarget := operation.Target(f.Queue, "")
	text, invalid := edit.Prepare(ctx, rules, f.Text, f.ID, edit.Options{Raw: f.Raw}, now)
	preview := requeuePreview{To: to}
	if noTarget != nil {
		preview.Flags = append(preview.Flags, "--to QUEUE")
	}
	if invalid != nil {
		_, err := edit.Prepare(ctx, rules, f.Text, f.ID, edit.Options{Raw: f.Raw, FixEncoding: true}, now)
		switch {
		case err == nil:
			preview.Flags = append(preview.Flags, "--fix-encoding")
		case !f.Raw:
			preview.Flags = append(preview.Flags, "--edit")
		}
	}
	if err := cmp.Or(noTarget, invalid); err != nil {
		preview.Refused = err.Error()
		return preview
	}
	if f.Raw { // explain --queue describes the call of the route
		return preview
	}
	preview.Explanation = new(s.explain(ctx, preview.To, f.ID, rules.Content(text), now))
	return preview
}

// explain returns what the handler does with a message of a queue at a time.
func (s *session) explain(ctx context.Context, queueName, id string, content []byte, at time.Time) explain.Explanation {
	rules := s.account.Rules
	pauses, err := s.account.Pauses(ctx)
	if err != nil && !errors.Is(err, account.ErrNoPauses) {
		s.progress.printf("warning: %v", err)
	}
	return explain.About(rules.Decision, explain.Question{
		Queue:           queueName,
		MessageID:       id,
		Content:         content,
		Now:             at,
		MaxContentBytes: rules.Encoding.MaxContentBytes(),
		Guard:           rules.Guard,
		Paused:          pausedTargets(pauses, at),
	})
}

func (d messageDetails) print(out io.Writer) {
	printMessageFields(out, d.Message)
	d.contentDetails.print(out)
	fmt.Fprint(out, "\nif it is requeued now\n")
	d.Requeue.print(out)
	m := d.Message
	printCommands(out, m.ID, m.Queue, d.nextCommands(), historyCommand(m.RequestID, m.Organization, m.Environment))
}

func printMessageFields(out io.Writer, m message.Message) {
	terminal.PrintLine(out, "message", "%s on %s", m.ID, m.Queue)
	terminal.PrintLine(out, "reason", "%s", strings.TrimSuffix(m.Reason+": "+m.Detail, ": "))
	terminal.PrintLine(out, "since", "%s, %s ago", moment(m.Since), age(time.Since(m.Since)))
	if !m.InsertedAt.Equal(m.Since) {
		terminal.PrintLine(out, "enqueued", "%s", moment(m.InsertedAt))
	}
	expires := "never"
	if !m.ExpiresAt.IsZero() {
		expires = moment(m.ExpiresAt) + ", in " + age(time.Until(m.ExpiresAt)) +
			": storage then deletes it; `async-caller poison keep` prevents that"
	}
	terminal.PrintLine(out, "expires", "%s", expires)
	terminal.PrintLine(out, "main queue", "%s", m.Main)
	kind := "no"
	if m.Format != "" {
		kind = "yes, " + string(m.Format)
	}
	terminal.PrintLine(out, "envelope", "%s, %d bytes", kind, m.Bytes)
	terminal.PrintField(out, "request id", m.RequestID)
	terminal.PrintField(out, "tenant", tenantText(m.Organization, m.Environment))
	attempts := attemptsText(m.Attempts, m.Status)
	if m.Error != "" {
		attempts += ", latest error " + m.Error
	}
	terminal.PrintLine(out, "attempts", "%s", attempts)
}

func (r requeuePreview) print(out io.Writer) {
	if r.Refused != "" {
		terminal.PrintLine(out, "  refused", "%s", r.Refused)
		return
	}
	terminal.PrintLine(out, "  to", "%s", r.To)
	if r.Explanation != nil {
		printDelivery(out, *r.Explanation)
	}
}

// printDelivery says what the handler does on delivery, and until when it tries.
func printDelivery(out io.Writer, x explain.Explanation) {
	printStep(out, x.Arrival)
	if e := x.Envelope; e != nil {
		terminal.PrintLine(out, "  deadline", "%s; then %s", moment(e.Deadline), consequence(e.IfExpired))
		terminal.PrintField(out, "  policy", e.Policy)
	}
}

// nextCommands suggests commands.
func (d messageDetails) nextCommands() []string {
	target := commandTarget(d.Message.ID, d.Message.Queue)
	requeue := strings.Join(append([]string{"requeue", target}, d.Requeue.Flags...), " ")
	return []string{"poison " + requeue, "poison delete " + target}
}
