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

// Compose returns the message that settling a decision writes. The name is that of the original's queue.
func (r Rules) Compose(in Intake, d Decision, name string, now time.Time) Write {
	w := Write{Action: d.Action}
	var content envelope.Content
	switch d.Action {
	case Reschedule:
		w.Queue, w.Delay = name, d.Delay
		content, w.Problem = in.Envelope.WithState(d.State).Successor(in.Limit)
	case Callback:
		w.Queue = name
		content, w.Problem = in.Envelope.CallbackWith(r.Report(d, now), in.Limit)
	case DeadLetter:
		w.Queue, content, w.Problem = in.deadLetter(d, name, now)
	case Finish, Drop, Fault:
	case Call:
		w.Problem = fmt.Errorf("%s does not end a message", Call)
	}
	w.Content, w.LeftOut = content.Bytes, content.LeftOut
	return w
}

// deadLetter returns the name of the poison queue and the envelope with the reason, or the original content if
// that is not an envelope.
func (in Intake) deadLetter(d Decision, name string, now time.Time) (poison string, content envelope.Content, err error) {
	poison, ok := queue.PoisonName(name)
	switch {
	case !ok:
		return poison, content, fmt.Errorf("there is no poison queue for %q", name)
	case in.Envelope == nil:
		return poison, envelope.Content{Bytes: in.Content}, nil
	}
	content, err = in.Envelope.WithState(d.State).DeadLettered(envelope.DeadLetter{
		At: now.UTC().Truncate(time.Millisecond), Reason: string(d.Reason), Detail: d.Detail, Queue: name, Attempts: d.State.Attempts,
	}, in.Limit)
	return poison, content, err
}

// Report returns the callback's report to the sender: the latest response, or 504 if there was none.
func (r Rules) Report(d Decision, now time.Time) envelope.Report {
	report := envelope.Report{
		Status:   cmp.Or(d.Status, http.StatusGatewayTimeout),
		Attempts: d.State.Attempts,
		Reason:   string(d.Reason),
		At:       now,
		Deadline: now.Add(r.Expiration),
	}
	if latest := d.State.Latest; latest != nil {
		report.Payload, report.MediaType, report.Truncated = latest.Text(), latest.MediaType(), latest.Truncated
	}
	return report
}
