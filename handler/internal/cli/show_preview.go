package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"asynccaller/handler/internal/explain"
	"asynccaller/handler/internal/format"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/terminal"
)

// requeuePreview describes how requeue would process a message.
type requeuePreview struct {
	To string `json:"to,omitempty"`
	// Refused is the reason why requeue would refuse the message.
	Refused string `json:"refused,omitempty"`
	// Flags are what requeue needs so that it does not refuse the message.
	Flags       []string             `json:"flags,omitempty"`
	Explanation *explain.Explanation `json:"explanation,omitempty"`
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
	settings, err := s.account.Settings(ctx)
	if err != nil && !errors.Is(err, account.ErrNoSettings) {
		s.progress.printf("warning: %v", err)
	}
	return explain.About(rules.Decision, explain.Question{
		Queue:           queueName,
		MessageID:       id,
		Content:         content,
		Now:             at,
		MaxContentBytes: rules.Encoding.MaxContentBytes(),
		Guard:           rules.Guard,
		Live:            liveSettings(s.account, settings, at),
	})
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
		terminal.PrintLine(out, "  deadline", "%s; then %s", format.Moment(e.Deadline), consequence(e.IfExpired))
		terminal.PrintField(out, "  policy", e.Policy)
	}
}

// nextForPoison suggests commands for a poison message.
func nextForPoison(id, queueName string, requeue requeuePreview) []string {
	target := commandTarget(id, queueName)
	words := append([]string{"poison requeue", target}, requeue.Flags...)
	return []string{strings.Join(words, " "), "poison delete " + target}
}
