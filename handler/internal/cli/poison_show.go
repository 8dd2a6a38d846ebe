package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/explain"
	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/edit"
	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/queue"
)

func newPoisonShow(s Surroundings, options *poisonOptions) *cobra.Command {
	var where selection
	var reveal bool
	command := &cobra.Command{
		Use:   "show ID",
		Short: "Show all about one message",
		Long: `Show tells all about one message: why it is there and since when, every attempt that it remembers,
the call, and what would become of it if it were requeued now. ID is the message's, or its first 8
characters or more, or the request id.

Values that are secret by their names, user info and the values of queries are masked unless
--reveal asks for them. A password in a sentence has no name: look before you pass it on.`,
		Example: `  async-caller poison show 4f1c2a9e
  async-caller poison show order-4711 --queue async-caller-poison --reveal
  async-caller poison show 4f1c2a9e --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			source, err := where.source(args, time.Now())
			if err != nil {
				return err
			}
			return atDesk(cmd.Context(), s, options, func(d *desk, ctx context.Context) error {
				found, err := d.account.Find(ctx, source, args[0])
				if err != nil {
					return err
				}
				d.tell.quiet()
				exhibit := d.exhibit(ctx, found, inspect.Secrets(reveal))
				if options.json {
					return encode(s.Stdout, exhibit)
				}
				exhibit.print(page{s.Stdout}, d.now())
				return nil
			})
		},
	}
	flagsOf(command).BoolVar(&reveal, "reveal", false, "show secrets too")
	where.addQueue(command)
	return command
}

// exhibit is all that is told of one message.
type exhibit struct {
	Message inspect.Message `json:"message"`
	// Trail and Call are of an envelope, Content is what else there is.
	Trail   []attempt     `json:"trail,omitempty"`
	Call    *inspect.Call `json:"call,omitempty"`
	Content string        `json:"content,omitempty"`
	Requeue prospect      `json:"requeue"`
}

// attempt is one call of the trail.
type attempt struct {
	At     time.Time `json:"at"`
	Status int       `json:"status,omitempty"`
	Error  string    `json:"error,omitempty"`
	TookMs int64     `json:"tookMs"`
}

// prospect is what would become of a message that is requeued.
type prospect struct {
	To string `json:"to"`
	// Refused says why it would not be sent; then nothing is explained.
	Refused     string               `json:"refused,omitempty"`
	Explanation *explain.Explanation `json:"explanation,omitempty"`
}

func (d *desk) exhibit(ctx context.Context, f poison.Found, secrets inspect.Secrets) exhibit {
	x := exhibit{Message: f.Message, Requeue: d.prospect(ctx, f)}
	e, err := envelope.Parse(f.Content)
	if err != nil {
		x.Content = string(inspect.ShowContent(f.Content, secrets))
		return x
	}
	call := inspect.ShowCall(e, secrets)
	x.Call = &call
	for _, a := range e.Trail {
		x.Trail = append(x.Trail, attempt{a.At, a.Status, explain.Printable(a.Error), a.Took.Milliseconds()})
	}
	return x
}

// prospect does with the message what requeue would, and lets the handler's rules judge what comes of it.
func (d *desk) prospect(ctx context.Context, f poison.Found) prospect {
	p := prospect{To: strings.TrimSuffix(f.Queue, queue.PoisonSuffix)}
	if p.To == f.Queue {
		p.To = f.Main
	}
	rules, now := d.account.Rules, d.now()
	text, err := rules.Prepare(ctx, f.Text, f.ID, edit.Options{}, now)
	if err != nil {
		p.Refused = err.Error()
		return p
	}
	explanation := explain.About(rules.Decision, explain.Question{
		Queue: p.To, MessageID: f.ID, Content: inspect.Rules{Encoding: rules.Encoding}.Content(text), Now: now,
		MaxContentBytes: rules.Encoding.MaxContentBytes(), Targets: rules.Targets,
	})
	p.Explanation = &explanation
	return p
}

func (x exhibit) print(p page, now time.Time) {
	p.message(x.Message, now)
	if len(x.Trail) > 0 {
		fmt.Fprint(p.out, "\nattempts\n")
		for _, a := range x.Trail {
			p.line("  "+age(now.Sub(a.At))+" ago", "%s, %s, took %v", moment(a.At), came(a), time.Duration(a.TookMs)*time.Millisecond)
		}
	}
	if x.Call != nil {
		fmt.Fprint(p.out, "\ncall\n")
		p.call(*x.Call)
	}
	if x.Content != "" {
		fmt.Fprint(p.out, "\ncontent\n")
		p.block(x.Content)
	}
	fmt.Fprint(p.out, "\nif it is requeued now\n")
	p.prospect(x.Requeue)
	fmt.Fprint(p.out, "\nnext\n")
	for _, command := range x.next() {
		fmt.Fprintf(p.out, "  async-caller poison %s\n", command)
	}
}

// came says what came of an attempt.
func came(a attempt) string {
	switch {
	case a.Status != 0 && a.Error != "":
		return fmt.Sprintf("answered %d, %s", a.Status, a.Error)
	case a.Status != 0:
		return fmt.Sprintf("answered %d", a.Status)
	case a.Error != "":
		return a.Error
	}
	return "no answer"
}

func (p page) message(m inspect.Message, now time.Time) {
	p.line("message", "%s on %s", m.ID, m.Queue)
	why := m.Reason
	if m.Detail != "" {
		why += ": " + m.Detail
	}
	p.line("why", "%s", why)
	p.line("since", "%s, %s ago", moment(m.Since), age(now.Sub(m.Since)))
	if !m.InsertedAt.Equal(m.Since) {
		p.line("came here", "%s", moment(m.InsertedAt))
	}
	if m.ExpiresAt.IsZero() {
		p.line("expires", "never")
	} else {
		p.line("expires", "%s, in %s: storage deletes it then; `async-caller poison keep` keeps it", moment(m.ExpiresAt), age(m.ExpiresAt.Sub(now)))
	}
	p.line("belongs to", "%s", m.Main)
	if m.Format == "" {
		p.line("envelope", "no, %d bytes", m.Bytes)
	} else {
		p.line("envelope", "yes, %s, %d bytes", m.Format, m.Bytes)
	}
	if m.RequestID != "" {
		p.line("request id", "%s", m.RequestID)
	}
	if m.Organization != "" || m.Environment != "" {
		p.line("tenant", "%s", strings.Trim(m.Organization+"/"+m.Environment, "/"))
	}
	attempts := fmt.Sprintf("%d", m.Attempts)
	if m.Status != 0 {
		attempts += fmt.Sprintf(", the latest answer is %d", m.Status)
	}
	if m.Error != "" {
		attempts += ", the latest ended as " + m.Error
	}
	p.line("attempts", "%s", attempts)
}

func (p page) call(c inspect.Call) {
	p.line("  request", "%s %s", c.Method, c.URL)
	for i, h := range c.Headers {
		label := ""
		if i == 0 {
			label = "  headers"
		}
		p.line(label, "%s: %s", h.Name, h.Value)
	}
	body := "none"
	if c.BodyKind != inspect.BodyNone {
		body = fmt.Sprintf("%s, %d bytes", c.BodyKind, c.BodyBytes)
	}
	if c.Truncated {
		body += ", of which this is the beginning"
	}
	p.line("  body", "%s", body)
	p.block(c.Body)
	if c.Callback != "" {
		p.line("  callback", "%s", c.Callback)
	}
	if c.Context != "" {
		p.line("  context", "json")
		p.block(c.Context)
	}
}

// block writes text as it is, but indented.
func (p page) block(text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(p.out, "    %s\n", strings.TrimSuffix(line, "\n"))
	}
}

func (p page) prospect(x prospect) {
	if x.Refused != "" {
		p.line("  refused", "%s", x.Refused)
		return
	}
	p.line("  to", "%s", x.To)
	p.step(x.Explanation.Arrival)
	if e := x.Explanation.Envelope; e != nil {
		if e.Refused != "" {
			p.line("  target", "%s", e.Refused)
		}
		p.line("  deadline", "%s; then %s", moment(e.Deadline), consequence(e.IfExpired))
		if e.Policy != "" {
			p.line("  policy", "%s", e.Policy)
		}
	}
}

// next suggests commands. They name the queue, so that no other is looked through.
func (x exhibit) next() []string {
	named := x.Message.ID + " --queue " + x.Message.Queue
	again := "requeue " + named
	switch {
	case x.Message.Reason == inspect.Undecodable && x.Message.Format != "":
		again += " --fix-encoding"
	case x.Requeue.Refused != "":
		again += " --edit"
	}
	return []string{again, "delete " + named}
}
