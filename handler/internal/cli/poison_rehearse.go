package cli

import (
	"bufio"
	"context"
	"fmt"

	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/inspect"
)

// rehearsal is what requeueing would do with one message.
type rehearsal struct {
	Message inspect.Message `json:"message"`
	To      string          `json:"to,omitempty"`
	Diff    string          `json:"diff,omitempty"`
	Refused string          `json:"refused,omitempty"`
}

// rehearse shows what requeueing would change.
func (d *desk) rehearse(ctx context.Context, source poison.Source, request poison.Requeue, secrets inspect.Secrets) error {
	out := bufio.NewWriter(d.s.Stdout)
	accepted, refused := 0, 0
	listed, err := d.account.Preview(ctx, source, request, func(f poison.Found, to string, after []byte, why error) {
		r := rehearsal{Message: f.Message, To: to}
		if why != nil {
			refused++
			r.Refused = why.Error()
		} else {
			accepted++
			r.Diff = string(inspect.Diff(f.Content, after, secrets))
		}
		d.tell.quiet()
		if d.options.json {
			_ = encode(out, r) // the writer keeps the error
		} else {
			r.print(out)
		}
	})
	if flushed := out.Flush(); err == nil {
		err = flushed
	}
	if err != nil {
		return err
	}
	if listed.Matched == 0 {
		return nothingMatched(listed.Hidden)
	}
	d.tell.say("%s would be requeued, %s refused; nothing was changed", messages(accepted), thousands(refused))
	if listed.Hidden > 0 {
		d.tell.say("%s", hiddenText(listed.Hidden))
	}
	return nil
}

func (r rehearsal) print(out *bufio.Writer) {
	if r.Refused != "" {
		fmt.Fprintf(out, "%s on %s would be refused\n", r.Message.ID, r.Message.Queue)
		for _, line := range wrap(r.Refused, textColumns-2) {
			fmt.Fprintf(out, "  %s\n", line)
		}
	} else {
		fmt.Fprintf(out, "%s from %s to %s\n%s", r.Message.ID, r.Message.Queue, r.To, r.Diff)
	}
	fmt.Fprintln(out)
}
