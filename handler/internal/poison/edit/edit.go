// Package edit prepares a message that stands on a poison queue to be sent again: it changes what a person
// wants changed, lets the envelope start afresh, and refuses what would only come back. It is pure: values
// in, a message's text or the reason against it out. What nobody edits stays byte for byte.
package edit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"time"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/guard"
	"asynccaller/handler/internal/queue"
)

// Options says how a message starts again. The zero value starts it afresh and changes nothing else.
type Options struct {
	// Edited, unless nil, takes the place of the message's content before Edits are applied: what a person
	// made of it in an editor. See [Restore].
	Edited []byte
	Edits  Edits
	// KeepState leaves attempts, trail, times and deadline as they are; only the reason of the dead letter
	// is taken away.
	KeepState bool
	// FixEncoding takes a text that is not base64 for the content itself. It changes no other text.
	FixEncoding bool
}

// Rules is what the handler goes by that will get the message. What it would refuse is not prepared.
type Rules struct {
	// Encoding is how content stands on the queue; empty means base64.
	Encoding queue.Encoding
	Decision decision.Rules
	Targets  guard.Rules
}

// Prepare returns the text to be put on the main queue for the text of a message, or an error that says why
// it would only come back and, where there is one, the option that helps. The id is the message's own: it
// names the call where the envelope does not.
//
// A fresh start has no dead letter, no attempts and no trail, is created now, and has no deadline but one
// that an edit gives it; notBefore stays. What finds no room beside the call is left out, as when the
// handler puts a message back. The call stays byte for byte but for what is edited. The context can end an
// edit by jq, which ends by itself after two seconds.
func (r Rules) Prepare(ctx context.Context, text, messageID string, o Options, now time.Time) (newText string, err error) {
	original, err := r.decode(text, o.FixEncoding)
	if err != nil {
		return "", err
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
	ownDeadline := o.Edits.setDeadline() || !bytes.Equal(deadlineOf(original), deadlineOf(content))
	if err := r.start(e, messageID, o.KeepState, ownDeadline, now); err != nil {
		return "", err
	}
	written, err := e.Successor(r.Encoding.MaxContentBytes())
	if err != nil {
		return "", err
	}
	if err := r.check(written.Bytes, messageID, o.KeepState, now); err != nil {
		return "", err
	}
	newText = r.Encoding.Encode(written.Bytes)
	if err := queue.CheckText(newText); err != nil {
		return "", fmt.Errorf("no queue takes the message: %w", err)
	}
	return newText, nil
}

func (r Rules) decode(text string, fix bool) ([]byte, error) {
	content, err := r.Encoding.Decode(text)
	switch {
	case err == nil:
		return content, nil
	case fix:
		return []byte(text), nil
	}
	return nil, errors.New("the text is not base64, as host.json wants it: --fix-encoding takes it as it stands for the content and encodes it")
}

// start gives the envelope the state that it starts with.
func (r Rules) start(e *envelope.Envelope, messageID string, keepState, ownDeadline bool, now time.Time) error {
	deadline := e.Deadline
	e.DeadLetter = nil
	if !keepState {
		// Accept starts a dead letter again. What the host moved to the poison queue is none, but needs
		// the same: its deadline may have passed long ago.
		e.DeadLetter = &envelope.DeadLetter{}
	}
	if err := e.Accept(now, messageID, r.Encoding.MaxContentBytes()); err != nil {
		return err
	}
	if keepState || ownDeadline {
		e.Deadline = deadline
	}
	// The C# side takes a Nexus envelope without a deadline for expired.
	e.Expires = e.GiveUpAt(r.Decision.Expiration)
	return nil
}

// check does with content what the handler will do with it when it arrives.
func (r Rules) check(content []byte, messageID string, keepState bool, now time.Time) error {
	in := r.Decision.Open(content, messageID, r.Encoding.MaxContentBytes(), now)
	switch {
	case in.Envelope == nil:
		return fmt.Errorf("the message would be malformed: %w", in.Malformed)
	case in.Malformed != nil:
		return fmt.Errorf("the retry policy cannot be followed: %w: choose one with --set retry=NAME, such as exponential", in.Malformed)
	}
	if d := r.Decision.BeforeCall(in, now); d.GivenUp {
		if keepState {
			return errors.New("its deadline has passed: leave out --keep-state, or set a new deadline with --set deadline=TIME")
		}
		return errors.New("the deadline that was set has passed: set a later one with --set deadline=TIME, or none")
	}
	return r.checkTarget(in.Envelope.Call)
}

// checkTarget refuses what the operator's rules refuse whatever its name resolves to.
func (r Rules) checkTarget(call envelope.Call) error {
	target, err := url.Parse(call.URL)
	if err != nil {
		return errors.New("call.url: not a URL") // a *url.Error would quote it
	}
	if v := r.Targets.Judge(target.Hostname(), netip.Addr{}); v.Ruling == guard.Refused {
		return fmt.Errorf("the target must not be called: %s", v.Detail)
	}
	if call.Host == "" {
		return nil
	}
	host := call.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if v := r.Targets.Denied(host); v.Ruling == guard.Refused {
		return fmt.Errorf("the target must not be called by its Host header: %s", v.Detail)
	}
	return nil
}
