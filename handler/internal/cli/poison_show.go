package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/explain"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/strictjson"
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
			found, err := s.runs.Find(ctx, source, source.IDs[0])
			if err != nil {
				return err
			}
			details := s.details(ctx, found, message.Secrets(reveal))
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

// contentDetails is what show says about the content of a message.
type contentDetails struct {
	// Trail, Answer and Call describe an envelope, Content a message that is none.
	Trail   []attempt       `json:"trail,omitempty"`
	Answer  *message.Answer `json:"answer,omitempty"`
	Call    *message.Call   `json:"call,omitempty"`
	Content string          `json:"content,omitempty"`
}

// attempt is one call of the trail.
type attempt struct {
	At     time.Time `json:"at"`
	Status int       `json:"status,omitempty"`
	Error  string    `json:"error,omitempty"`
	TookMs int64     `json:"tookMs"`
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

func (s *session) details(ctx context.Context, f account.Found, secrets message.Secrets) messageDetails {
	d := messageDetails{Message: f.Message, Requeue: s.previewRequeue(ctx, f)}
	if f.Raw { // whatever it looks like
		d.Content = string(message.ShowContent(f.Content, secrets))
	} else {
		d.contentDetails = newContentDetails(f.Content, secrets)
	}
	return d
}

func newContentDetails(content []byte, secrets message.Secrets) (d contentDetails) {
	e, err := envelope.Parse(content)
	if err != nil {
		d.Content = string(message.ShowContent(content, secrets))
		return d
	}
	d.Call = new(message.ShowCall(e, secrets))
	d.Answer = message.ShowAnswer(e, secrets)
	for _, a := range e.Trail {
		d.Trail = append(d.Trail, attempt{
			At:     a.At,
			Status: a.Status,
			Error:  strictjson.ReplaceUnprintable(a.Error),
			TookMs: a.Took.Milliseconds(),
		})
	}
	return d
}

// previewRequeue prepares a message as requeue does and explains the result.
func (s *session) previewRequeue(ctx context.Context, f account.Found) requeuePreview {
	rules, now := s.runs.Rules, time.Now()
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
	rules := s.runs.Rules
	pauses, err := s.runs.Pauses(ctx)
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

func (d contentDetails) print(out io.Writer) {
	if len(d.Trail) > 0 {
		fmt.Fprint(out, "\nattempts\n")
		for _, a := range d.Trail {
			took := time.Duration(a.TookMs) * time.Millisecond
			label, at := age(time.Since(a.At))+" ago", moment(a.At)
			if a.At.IsZero() {
				label, at = "", "at an unknown time"
			}
			printLine(out, "  "+label, "%s, %s, took %v", at, a.result(), took)
		}
	}
	if d.Answer != nil {
		fmt.Fprint(out, "\nlatest answer\n")
		printAnswer(out, *d.Answer)
	}
	if d.Call != nil {
		fmt.Fprint(out, "\ncall\n")
		printCall(out, *d.Call)
	}
	if d.Content != "" {
		fmt.Fprint(out, "\ncontent\n")
		printBlock(out, d.Content)
	}
}

func (a attempt) result() string {
	if a.Status == 0 {
		return cmp.Or(a.Error, "no answer")
	}
	return strings.TrimSuffix(fmt.Sprintf("answered %d, %s", a.Status, a.Error), ", ")
}

func printMessageFields(out io.Writer, m message.Message) {
	printLine(out, "message", "%s on %s", m.ID, m.Queue)
	printLine(out, "reason", "%s", strings.TrimSuffix(m.Reason+": "+m.Detail, ": "))
	printLine(out, "since", "%s, %s ago", moment(m.Since), age(time.Since(m.Since)))
	if !m.InsertedAt.Equal(m.Since) {
		printLine(out, "enqueued", "%s", moment(m.InsertedAt))
	}
	expires := "never"
	if !m.ExpiresAt.IsZero() {
		expires = moment(m.ExpiresAt) + ", in " + age(time.Until(m.ExpiresAt)) +
			": storage then deletes it; `async-caller poison keep` prevents that"
	}
	printLine(out, "expires", "%s", expires)
	printLine(out, "main queue", "%s", m.Main)
	kind := "no"
	if m.Format != "" {
		kind = "yes, " + string(m.Format)
	}
	printLine(out, "envelope", "%s, %d bytes", kind, m.Bytes)
	printField(out, "request id", m.RequestID)
	printField(out, "tenant", tenantText(m.Organization, m.Environment))
	attempts := attemptsText(m.Attempts, m.Status)
	if m.Error != "" {
		attempts += ", latest error " + m.Error
	}
	printLine(out, "attempts", "%s", attempts)
}

func tenantText(organization, environment string) string {
	return strings.Trim(organization+"/"+environment, "/")
}

func attemptsText(n, latestStatus int) string {
	if latestStatus == 0 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d, latest status %d", n, latestStatus)
}

func printCall(out io.Writer, c message.Call) {
	printLine(out, "  request", "%s %s", c.Method, c.URL)
	label := "  headers"
	for _, h := range c.Headers {
		printLine(out, label, "%s: %s", h.Name, h.Value)
		label = ""
	}
	body := bodyText(c.BodyKind, c.BodyBytes, c.Body)
	if c.Truncated {
		body += ", truncated here"
	}
	printLine(out, "  body", "%s", body)
	printBlock(out, c.Body)
	printField(out, "  callback", c.Callback)
	if c.Context != "" {
		printLine(out, "  context", "json")
		printBlock(out, c.Context)
	}
}

// bodyText describes a body, of which shown is shown.
func bodyText(kind message.BodyKind, length int, shown string) string {
	if kind == message.BodyNone {
		return "none"
	}
	text := fmt.Sprintf("%s, %d bytes", kind, length)
	if shown == "" {
		text += ", not shown without --reveal"
	}
	return text
}

func printAnswer(out io.Writer, a message.Answer) {
	printLine(out, "  status", "%d", a.Status)
	printField(out, "  media type", a.MediaType)
	body := bodyText(a.BodyKind, a.BodyBytes, a.Body)
	switch {
	case a.Truncated && a.BodyBytes == 0:
		body = "not kept: it broke off, or its encoding is not supported"
	case a.Truncated:
		body += ", only the beginning"
	}
	printLine(out, "  body", "%s", body)
	printBlock(out, a.Body)
}

// printBlock writes an indented text without wrapping it.
func printBlock(out io.Writer, text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(out, "    %s\n", strings.TrimSuffix(line, "\n"))
	}
}

func (r requeuePreview) print(out io.Writer) {
	if r.Refused != "" {
		printLine(out, "  refused", "%s", r.Refused)
		return
	}
	printLine(out, "  to", "%s", r.To)
	if r.Explanation != nil {
		printDelivery(out, *r.Explanation)
	}
}

// printDelivery says what the handler does on delivery, and until when it tries.
func printDelivery(out io.Writer, x explain.Explanation) {
	printStep(out, x.Arrival)
	if e := x.Envelope; e != nil {
		printLine(out, "  deadline", "%s; then %s", moment(e.Deadline), consequence(e.IfExpired))
		printField(out, "  policy", e.Policy)
	}
}

// nextCommands suggests commands.
func (d messageDetails) nextCommands() []string {
	target := commandTarget(d.Message.ID, d.Message.Queue)
	requeue := strings.Join(append([]string{"requeue", target}, d.Requeue.Flags...), " ")
	return []string{"poison " + requeue, "poison delete " + target}
}

// commandTarget names a message in a command. The queue saves reading the others.
func commandTarget(id, queueName string) string {
	return shellWord(id) + " --queue " + shellWord(queueName)
}

// printCommands prints commands for a message, which a person may copy to a shell; history may be empty. There are none
// for an id or a queue that storage cannot have given: somebody has forged the row, or the account.
func printCommands(out io.Writer, id, queueName string, commands []string, history string) {
	fmt.Fprint(out, "\nnext\n")
	if !storage.ValidID(id) || !storage.ValidName(queueName) {
		printLine(out, "  warning", "no commands are shown: storage gives no such id, or has no such queue")
		return
	}
	if history != "" {
		commands = append(commands, history)
	}
	for _, command := range commands {
		fmt.Fprintf(out, "  %s %s\n", programName, command)
	}
}
