// Package edit prepares poison messages to be sent again. It makes the changes that a person asks for, restarts the
// envelope, and refuses messages that would only return to the poison queue. It is pure. Whatever nobody edits stays
// the same byte for byte.
package edit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/guard"
	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/strictjson"
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

// Prepare returns the text to put on the main queue for the text of a message. Its error says why the message would only
// come back and, where possible, which option helps: it refuses what the handler with these rules would refuse. The
// message id becomes the request id of an envelope without one.
//
// A restarted envelope has no dead letter, no attempts and no trail, is created now, and has no deadline unless an edit
// sets one; notBefore stays. State that does not fit beside the call is left out, as when the handler reschedules.
// The call stays byte for byte except for the edits. The context can stop a jq expression, which stops by itself after
// two seconds.
func Prepare(ctx context.Context, r inspect.Rules, text, messageID string, o Options, now time.Time) (newText string, err error) {
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
	if err := check(r, written.Bytes, messageID, o.KeepState, now); err != nil {
		return "", err
	}
	newText = r.Encoding.Encode(written.Bytes)
	if err := queue.CheckText(newText); err != nil {
		return "", fmt.Errorf("no queue accepts the message: %w", err)
	}
	return newText, nil
}

// check applies the rules that the handler applies when the content arrives.
func check(r inspect.Rules, content []byte, messageID string, keepState bool, now time.Time) error {
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
	return checkTarget(r.Targets, in.Envelope.Call)
}

// checkTarget refuses targets that the operator's rules refuse by name. The handler judges addresses when it calls.
func checkTarget(targets guard.Rules, call envelope.Call) error {
	if v := targets.Judge(call.Target.Hostname(), netip.Addr{}); v.Verdict == guard.Refused {
		return fmt.Errorf("the target must not be called: %s", v.Detail)
	}
	if call.Host == "" {
		return nil
	}
	if v := targets.Denied((&url.URL{Host: call.Host}).Hostname()); v.Verdict == guard.Refused {
		return fmt.Errorf("the target must not be called by its Host header: %s", v.Detail)
	}
	return nil
}

// maxIndentedDepth limits the white space. Each level adds indentation, so a small message that consists of brackets
// would otherwise grow a thousandfold.
const maxIndentedDepth = 64

// Editable returns content for an editor: indented JSON in the form of [envelope.Unpack]. Characters that cannot be seen
// are JSON escapes. Lines of text end with CR LF, which is not shown. Content that is not a JSON object is returned
// as it is.
func Editable(content []byte) []byte {
	text := bytes.TrimSpace(content)
	if _, err := strictjson.Object(text); err != nil {
		return content
	}
	if unpacked, err := envelope.Unpack(text); err == nil {
		text = unpacked
	}
	text = strictjson.EscapeUnprintable(text)
	if depth, err := strictjson.Depth(text); err == nil && depth <= maxIndentedDepth {
		var w bytes.Buffer
		if err := json.Indent(&w, text, "", "  "); err == nil {
			text = w.Bytes()
		}
	}
	return append(slices.Clip(bytes.TrimSpace(text)), '\n')
}

// Restore converts the edited result of [Editable] back to content. Values that are still the same keep their bytes from
// the original; if all are, the result is the original. Changed white space and a changed order of members are not
// changed values. The error says where the text is not JSON or which member is wrong, so that the person can correct it.
func Restore(original, edited []byte) ([]byte, error) {
	edited = bytes.TrimSpace(edited)
	if bytes.Equal(edited, bytes.TrimSpace(Editable(original))) {
		return original, nil
	}
	if _, err := strictjson.Object(edited); err != nil {
		return nil, fmt.Errorf("the edited message is not an envelope: %w", err)
	}
	if _, err := strictjson.Object(original); err != nil {
		return edited, nil //nolint:nilerr // nothing of it can be kept
	}
	packed, err := envelope.Repack(bytes.TrimSpace(original), edited)
	if err == nil {
		packed, err = strictjson.Merge{Same: sameText}.Values(original, packed)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("the edited message is not an envelope: %w", err)
	case bytes.Equal(packed, bytes.TrimSpace(original)):
		return original, nil
	}
	return packed, nil
}

// sameText compares values as Editable writes them, without white space.
func sameText(a, b json.RawMessage) bool {
	return bytes.Equal(strictjson.EscapeUnprintable(strictjson.Compact(a)), strictjson.EscapeUnprintable(strictjson.Compact(b)))
}
