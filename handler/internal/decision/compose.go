package decision

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/queue"
)

// Write is the message that must be on a queue before the host may delete the original. Only the actions
// Reschedule, Callback and DeadLetter write one; for the other actions all fields but Action are zero.
type Write struct {
	Action Action
	// Queue is the name of the queue to write to.
	Queue   string
	Content []byte
	// Delay is how long the message stays invisible.
	Delay time.Duration
	// LeftOut names the parts of the envelope that had no room; empty if it was written in full.
	LeftOut string
	// Problem says why the message cannot be written; the host must then keep the original.
	Problem error
}

// Compose returns the message that settling a decision writes. The name is that of the queue which the
// original came from.
func Compose(in Intake, d Decision, name string, now time.Time) Write {
	w := Write{Action: d.Action}
	var content envelope.Content
	switch d.Action {
	case Reschedule:
		w.Queue, w.Delay = name, d.Delay
		content, w.Problem = in.Envelope.WithState(d.State).Successor(in.Limit)
	case Callback:
		w.Queue = name
		content, w.Problem = in.Envelope.CallbackWith(d.Report(now), in.Limit)
	case DeadLetter:
		var ok bool
		switch w.Queue, ok = queue.PoisonName(name); {
		case !ok:
			w.Problem = fmt.Errorf("there is no poison queue for %q", name)
		case in.Envelope == nil: // not an envelope: the dead letter is the original, unchanged
			content.Bytes = in.Content
		default:
			content, w.Problem = in.Envelope.WithState(d.State).DeadLettered(d.deadLetter(name, now), in.Limit)
		}
	case Finish, Drop, Fault:
	case Call:
		w.Problem = fmt.Errorf("%s does not end a message", Call)
	}
	w.Content, w.LeftOut = content.Bytes, content.LeftOut
	return w
}

// Report returns the callback's report to the sender: the latest response.
func (d Decision) Report(now time.Time) envelope.Report {
	report := envelope.Report{
		Status:   cmp.Or(d.Status, http.StatusGatewayTimeout),
		Attempts: d.State.Attempts,
		Reason:   string(d.Reason),
		At:       now,
		Deadline: d.CallbackDeadline,
	}
	if latest := d.State.Latest; latest != nil {
		report.Payload, report.MediaType, report.Truncated = latest.Text(), latest.MediaType(), latest.Truncated
	}
	return report
}

// deadLetter returns the reason that a dead letter states.
func (d Decision) deadLetter(queueName string, now time.Time) envelope.DeadLetter {
	return envelope.DeadLetter{
		At: now.UTC().Truncate(time.Millisecond), Reason: string(d.Reason), Detail: d.Detail, Queue: queueName, Attempts: d.State.Attempts,
	}
}
