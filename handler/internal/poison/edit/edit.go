// Package edit prepares poison messages to be sent again. It makes the changes that a person asks for, restarts the
// envelope, and refuses messages that would only return to the poison queue. It is pure. Whatever nobody edits stays
// the same byte for byte.
package edit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/guard"
	"asynccaller/handler/internal/queue"
)

// Options says how to send a message again. The zero value restarts it and changes nothing else.
type Options struct {
	// Edited, unless nil, replaces the content before Edits are applied: the result of an editor. See [Restore].
	Edited []byte
	Edits  Edits
	// KeepState leaves attempts, trail, times and deadline as they are, and only removes the dead letter.
	KeepState bool
	// FixEncoding takes a text that is not base64 as the content itself. It does not change other texts.
	FixEncoding bool
}

// Rules are the rules of the handler that will receive the message. Prepare refuses messages that it would refuse.
type Rules struct {
	// Encoding is the encoding on the queue; empty means base64.
	Encoding queue.Encoding
	Decision decision.Rules
	Targets  guard.Rules
}

// Prepare returns the text to put on the main queue for the text of a message. Its error says why the message would only
// come back and, where possible, which option helps. The message id becomes the request id of an envelope without one.
//
// A restarted envelope has no dead letter, no attempts and no trail, is created now, and has no deadline unless an edit
// sets one; notBefore stays. State that does not fit beside the call is left out, as when the handler reschedules.
// The call stays byte for byte except for the edits. The context can stop a jq expression, which stops by itself after
// two seconds.
func (r Rules) Prepare(ctx context.Context, text, messageID string, o Options, now time.Time) (newText string, err error) {
	original, err := r.Encoding.Decode(text)
	switch {
	case err != nil && !o.FixEncoding:
		return "", errors.New("the text is not base64, as host.json requires: --fix-encoding takes it as the content and encodes it")
	case err != nil:
		original = []byte(text)
	}
	content := original
	if o.Edited != nil {
		content = o.Edited
	}
	if content, err = o.Edits.Apply(ctx, content); err != nil {
		return "", err
	}
	e, err := envelope.Parse(content)
	if err != nil {
		return "", fmt.Errorf("the message is malformed: %w", err)
	}
	deadline := e.Deadline
	e.DeadLetter = nil
	if !o.KeepState {
		// Accept restarts dead letters. A message that the host moved needs the same: its deadline may have passed.
		e.DeadLetter = &envelope.DeadLetter{}
	}
	if err := e.Accept(now, messageID, r.Encoding.MaxContentBytes()); err != nil {
		return "", err
	}
	if o.KeepState || o.Edits.setDeadline(content) || !bytes.Equal(envelope.RawDeadline(original), envelope.RawDeadline(content)) {
		e.Deadline = deadline
	}
	e.Expires = e.GiveUpAt(r.Decision.Expiration)
	written, err := e.Successor(r.Encoding.MaxContentBytes())
	if err != nil {
		return "", err
	}
	if err := r.check(written.Bytes, messageID, o.KeepState, now); err != nil {
		return "", err
	}
	newText = r.Encoding.Encode(written.Bytes)
	if err := queue.CheckText(newText); err != nil {
		return "", fmt.Errorf("no queue accepts the message: %w", err)
	}
	return newText, nil
}

// check applies the rules that the handler applies when the content arrives.
func (r Rules) check(content []byte, messageID string, keepState bool, now time.Time) error {
	in := r.Decision.Open(content, messageID, r.Encoding.MaxContentBytes(), now)
	switch {
	case in.Envelope == nil:
		return fmt.Errorf("the message would be malformed: %w", in.Malformed)
	case in.Malformed != nil:
		return fmt.Errorf("the retry policy is not usable: %w: choose one with --set retry=NAME, such as exponential", in.Malformed)
	}
	if d := r.Decision.BeforeCall(in, now); d.GivenUp {
		if keepState {
			return errors.New("its deadline has passed: omit --keep-state, or set a new deadline with --set deadline=TIME")
		}
		return errors.New("the deadline that was set has passed: set a later one with --set deadline=TIME, or none")
	}
	return r.checkTarget(in.Envelope.Call)
}

// checkTarget refuses targets that the operator's rules refuse by name. The handler judges addresses when it calls.
func (r Rules) checkTarget(call envelope.Call) error {
	if v := r.Targets.Judge(call.Target.Hostname(), netip.Addr{}); v.Verdict == guard.Refused {
		return fmt.Errorf("the target must not be called: %s", v.Detail)
	}
	if call.Host == "" {
		return nil
	}
	if v := r.Targets.Denied((&url.URL{Host: call.Host}).Hostname()); v.Verdict == guard.Refused {
		return fmt.Errorf("the target must not be called by its Host header: %s", v.Detail)
	}
	return nil
}
