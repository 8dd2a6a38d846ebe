package edit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
)

// Reasons to refuse an edit of a scheduled message.
var (
	errSame       = errors.New("the edits change nothing in the message")
	errStateStays = errors.New("the edits change the format, the token of a run, or the state of the delivery " +
		"(attempts, times and trail), which stay: edit the call")
	errTooEarly = errors.New("the deadline that was set is before the next attempt: " +
		"set a later one with --set deadline=TIME")
)

// Scheduled returns the intake of a scheduled message after its edits, for a call that is due at a time. Unlike
// [Prepare] it restarts nothing: attempts, times and trail stay, but the message loses its place in the line of a
// limit. The error says why the handler would refuse the message, or why it must not be edited like this. FixEncoding,
// Run and Raw are not used. A requestID replaces that of the message, unless it is empty.
func (o Options) Scheduled(
	ctx context.Context, r message.Rules, content []byte, messageID, requestID string, due, now time.Time,
) (decision.Intake, error) {
	before := r.Open(content, messageID, now)
	if before.Envelope == nil {
		return before, fmt.Errorf("the message is malformed: %w", before.Malformed)
	}
	edited, err := o.editScheduled(ctx, content, requestID)
	if err != nil {
		return before, err
	}
	after := r.Open(edited, messageID, now)
	if compressed, ok := envelope.Compress(edited, after.Malformed); ok {
		edited = compressed
		after = r.Open(edited, messageID, now)
	}
	if after.Envelope != nil && !keepsState(before, after) {
		return before, errStateStays
	}
	if err := check(r, edited, messageID, before.Envelope.Run, now); err != nil {
		return before, err
	}
	if EditsDeadline(content, edited) && after.Envelope.GiveUpAt(r.Decision.Expiration).Before(due) {
		return before, errTooEarly
	}
	after.Envelope.Ticket = 0
	written, err := after.Envelope.Successor(after.Limit)
	if err == nil && written.LeftOut != "" {
		err = fmt.Errorf("the edited message is too large: it has no room for %s", written.LeftOut)
	}
	return after, err
}

// keepsState reports whether an edit leaves alone what only the handler and runs write.
func keepsState(before, after decision.Intake) bool {
	a, b := before.Envelope, after.Envelope
	return a.Format() == b.Format() && a.Run == b.Run && after.Received.DeadLetter == nil &&
		reflect.DeepEqual(a.State, b.State)
}

// editScheduled returns the edited content.
func (o Options) editScheduled(ctx context.Context, content []byte, requestID string) ([]byte, error) {
	edited := content
	if o.Edited != nil {
		edited = o.Edited
	}
	edited, err := o.Edits.Apply(ctx, edited)
	if err == nil && requestID != "" {
		edited, err = envelope.Set(edited, []string{"requestId"}, requestID)
	}
	if err == nil && bytes.Equal(edited, content) {
		err = errSame
	}
	return edited, err
}

// EditsDeadline reports whether two contents of a message have different deadlines.
func EditsDeadline(before, after []byte) bool {
	return !bytes.Equal(envelope.RawDeadline(before), envelope.RawDeadline(after))
}
