// Package edit prepares poison messages to be sent again. It makes the changes that a person asks for, restarts the
// envelope, and refuses messages that would only return to the poison queue. It is pure. Parts that no edit changes
// stay the same byte for byte.
package edit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/bom"
	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/storage"
)

// Options says how to send a message again. The zero value restarts it and changes nothing else.
type Options struct {
	// Edited, unless nil, replaces the content before Edits are applied: the result of an editor. See [Restore].
	Edited []byte
	Edits  Edits
	// FixEncoding takes what [FixEncoding] returns for the content.
	FixEncoding bool
	// Run is the token that the message gets, or empty. The message loses any other.
	Run string
	// Raw says that the message is the content of a call of a route. It is sent again as it is.
	Raw bool
}

// ErrRaw is why the content of a call of a route cannot be edited.
var ErrRaw = errors.New("the message is the content of a call of a route, and is sent again as it is: " +
	"omit --edit and the flags that edit an envelope")

// errRawRun is why the content of a call of a route cannot be a message of a run.
var errRawRun = errors.New("the message is the content of a call of a route, which has no room for the member run: " +
	"omit --canary and --stop-at-failure-ratio")

// ErrNoRoomForRun means that a message is too large for the token of a run.
var ErrNoRoomForRun = errors.New("the message has no room for the member run, without which its outcome " +
	"is not known: omit --canary and --stop-at-failure-ratio")

// Prepare returns the text to put on the main queue for the text of a message. Its error says why the message would
// only come back and, where possible, which option helps: it refuses what the handler with these rules would refuse.
// The message id becomes the request id of an envelope without one.
//
// A restarted envelope has no dead letter, no attempts and no trail, is created now, and has no deadline unless an edit
// sets one; notBefore stays. State that does not fit beside the call is left out, as when the handler reschedules.
// The call stays byte for byte except for the edits. The context can stop a jq expression, which stops by itself after
// two seconds.
func Prepare(
	ctx context.Context, r message.Rules, text, messageID string, o Options, now time.Time,
) (newText string, err error) {
	switch {
	case o.Raw && (o.Edited != nil || len(o.Edits) > 0):
		return "", ErrRaw
	case o.Raw && o.Run != "":
		return "", errRawRun
	}
	original := withoutMark(r.Content(text))
	fixed, change := FixEncoding(r, text, o.Raw)
	_, undecodable := r.Encoding.Decode(text)
	switch {
	case undecodable != nil && !o.FixEncoding:
		const why = "the text is not base64, as host.json requires"
		o.FixEncoding = true
		if _, err := Prepare(ctx, r, text, messageID, o, now); err != nil {
			return "", fmt.Errorf(why+", and --fix-encoding alone does not help: %w", err)
		}
		return "", errors.New(why + ": --fix-encoding takes it as the content and encodes it (" + change + ")")
	case o.Raw && undecodable != nil:
		newText = r.Encoding.Encode([]byte(text))
		return newText, storage.CheckText(newText)
	case o.Raw:
		return text, nil
	case o.FixEncoding:
		original = fixed
	}
	content := original
	if o.Edited != nil {
		content = o.Edited
	}
	content, err = o.Edits.Apply(ctx, content)
	if err != nil {
		return "", err
	}
	e, err := envelope.Parse(content)
	if err != nil && change != "" && o.Edited == nil && !o.FixEncoding {
		o.FixEncoding = true
		if _, fixErr := Prepare(ctx, r, text, messageID, o, now); fixErr != nil {
			const format = "the message is malformed: %w, and --fix-encoding alone does not help: %w"
			return "", fmt.Errorf(format, err, fixErr)
		}
		return "", fmt.Errorf("the message is malformed: %w: --fix-encoding repairs it (%s)", err, change)
	}
	if err != nil {
		return "", fmt.Errorf("the message is malformed: %w", err)
	}
	deadline := e.Deadline
	// Accept restarts dead letters. A message that the host moved needs the same: its deadline may have passed.
	e.DeadLetter = &envelope.DeadLetter{}
	err = e.Accept(now, messageID, r.Encoding.MaxContentBytes())
	if compressed, ok := envelope.Compress(content, err); ok {
		e, err = envelope.Parse(compressed)
		if err == nil {
			e.DeadLetter = &envelope.DeadLetter{}
			err = e.Accept(now, messageID, r.Encoding.MaxContentBytes())
		}
	}
	if err != nil {
		return "", err
	}
	if o.Edits.setDeadline() || EditsDeadline(original, content) {
		e.Deadline = deadline
	}
	e.Run = o.Run
	e.Expires = e.GiveUpAt(r.Decision.Expiration)
	written, err := e.Successor(r.Encoding.MaxContentBytes())
	if err != nil {
		return "", err
	}
	if err := check(r, written.Bytes, messageID, o.Run, now); err != nil {
		return "", err
	}
	newText = r.Encoding.Encode(written.Bytes)
	if err := storage.CheckText(newText); err != nil {
		return "", fmt.Errorf("no queue accepts the message: %w", err)
	}
	return newText, nil
}

// withoutMark returns a text without its byte order mark, and any other content as it is.
func withoutMark(content []byte) []byte {
	text, err := bom.Text(content)
	if err != nil {
		return content
	}
	return text
}

// FixEncoding returns the content of a text, and in words how its encoding has to change: "1 layer of base64 removed".
// It takes a text that is not base64 as the content, and removes the forms around an envelope that [envelope.Unwrap]
// removes. The change is empty if the text is encoded as host.json says.
func FixEncoding(r message.Rules, text string, isRaw bool) (content []byte, change string) {
	content = r.Content(text)
	_, err := r.Encoding.Decode(text)
	isMissing := err != nil
	inner, forms := envelope.Unwrap(content)
	if isRaw {
		forms = nil
	} else {
		content = withoutMark(inner)
	}
	const base64 = string(storage.Base64)
	last := len(forms) - 1
	isKept := isMissing && last >= 0 && forms[last] == base64 // one layer is right, around the envelope
	if isKept {
		forms = forms[:last]
	}
	var changes []string
	for _, layer := range forms.Layers() {
		if layer == base64 {
			layer = "1 layer of base64"
		}
		changes = append(changes, layer+" removed")
	}
	switch {
	case isMissing && !isKept:
		changes = append(changes, "1 layer of base64 added")
	case isKept && last == 0:
		changes = append(changes, "characters around base64 removed") // a byte order mark, or unusual white space
	}
	return content, strings.Join(changes, ", ")
}

// Warnings returns the headers that the edits have added and that the C# app cannot read or send. Before is the content
// of the message, and after the edited one.
func (o Options) Warnings(before, after []byte) (warnings []string) {
	if o.Edited == nil && len(o.Edits) == 0 {
		return nil
	}
	wrong := envelope.NexusWarnings(before)
	for _, warning := range envelope.NexusWarnings(after) {
		if !slices.Contains(wrong, warning) {
			warnings = append(warnings, warning)
		}
	}
	return warnings
}

// WithoutEffect names the members without effect that the edits have added, probably by mistake. Before is the content
// of the message, and after the edited one.
func (o Options) WithoutEffect(before, after []byte) (idle []string) {
	if o.Edited == nil && len(o.Edits) == 0 {
		return nil
	}
	known := envelope.UnknownMembers(before)
	for _, u := range envelope.UnknownMembers(after) {
		isOld := slices.ContainsFunc(known, func(old envelope.Unknown) bool { return old.Path == u.Path })
		if !isOld {
			idle = append(idle, u.String())
		}
	}
	return idle
}

// check applies the rules that the handler applies when the content of a message of a run arrives.
func check(r message.Rules, content []byte, messageID, run string, now time.Time) error {
	in := r.Open(content, messageID, now)
	switch {
	case in.Envelope == nil:
		return fmt.Errorf("the message would be malformed: %w", in.Malformed)
	case in.Malformed != nil:
		return fmt.Errorf("the retry policy is not usable: %w: choose one with --set retry=NAME, such as exponential",
			in.Malformed)
	}
	if in.Envelope.Run != run {
		return ErrNoRoomForRun
	}
	if d := r.Decision.Decide(&in, nil, decision.World{Now: now}); d.GivenUp {
		return errors.New("the deadline that was set has passed: set a later one with --set deadline=TIME, or none")
	}
	// The handler judges addresses when it calls.
	call := in.Call()
	if refusal := cmp.Or(in.Refused, r.Guard.JudgeCall(call.Target, call.Host)); refusal != "" {
		return fmt.Errorf("the target must not be called: %s", refusal)
	}
	return nil
}

// maxIndentedDepth limits the white space. Each level adds indentation, so a small message that consists of brackets
// would otherwise grow a thousandfold.
const maxIndentedDepth = 64

// Editable returns content for an editor: indented JSON in the form of [envelope.DecodeTexts] and [envelope.Inflate],
// in which characters that cannot be seen are escapes. Content that is not a JSON object is returned as it is.
func Editable(content []byte) []byte {
	text := bytes.TrimSpace(content)
	if _, err := strictjson.Object(text); err != nil {
		return content
	}
	text, _ = envelope.Inflate(text)
	text = strictjson.EscapeUnprintable(envelope.DecodeTexts(text))
	if depth, err := strictjson.Depth(text); err == nil && depth <= maxIndentedDepth {
		var w bytes.Buffer
		_ = json.Indent(&w, text, "", "  ") // of valid JSON
		text = w.Bytes()
	}
	return append(slices.Clip(bytes.TrimSpace(text)), '\n')
}

// Restore converts the edited result of [Editable] back to content. Values that are still the same keep their bytes
// from the original; if all are, the result is the original. Changed white space and a changed order of members are not
// changed values. The error says where the text is not JSON or which member is wrong, so that the person can correct
// it.
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
	inflated, restore := envelope.Inflate(bytes.TrimSpace(original))
	restored, err := envelope.EncodeTexts(inflated, edited)
	if err == nil {
		restored, err = strictjson.Merge{Same: sameText}.Values(inflated, restored)
	}
	if err == nil {
		restored, err = restore(restored)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("the edited message is not an envelope: %w", err)
	case bytes.Equal(restored, bytes.TrimSpace(original)):
		return original, nil
	}
	return restored, nil
}

// sameText compares values as Editable writes them, without white space.
func sameText(a, b json.RawMessage) bool {
	return bytes.Equal(strictjson.EscapeUnprintable(strictjson.Compact(a)),
		strictjson.EscapeUnprintable(strictjson.Compact(b)))
}

// Edit is a change to an envelope of either format. A function for each flag reads it from the flag's argument. Several
// goroutines may apply the same Edit.
type Edit struct {
	flag  string   // such as --set, for errors
	name  string   // the edited member, for errors; may be empty
	path  []string // of --set
	apply func(ctx context.Context, content []byte) ([]byte, error)
}

// Edits are changes to an envelope, which apply in this order.
type Edits []Edit

// Apply returns the edited content. Members that no edit names keep their bytes and their order, and unchanged content
// is returned as it is. Apply cannot edit content that is not a JSON object. Its errors name the flag and the member,
// and quote neither values nor URLs. The context and a limit of two seconds stop a jq expression that does not end.
func (e Edits) Apply(ctx context.Context, content []byte) ([]byte, error) {
	if len(e) == 0 {
		return content, nil
	}
	if _, err := strictjson.Object(content); err != nil {
		return nil, fmt.Errorf("flags cannot edit the message: %w: fix it with --edit", err)
	}
	inflated, restore := envelope.Inflate(bytes.TrimSpace(content))
	edited := inflated
	for _, edit := range e {
		var err error
		edited, err = edit.apply(ctx, edited)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.TrimSpace(edit.flag+" "+edit.name), err)
		}
	}
	if bytes.Equal(edited, inflated) {
		return content, nil
	}
	return restore(edited)
}

// setDeadline reports whether a flag names the deadline, even if it sets the same one.
func (e Edits) setDeadline() bool {
	return slices.ContainsFunc(e, func(edit Edit) bool { return slices.Equal(edit.path, []string{"deadline"}) })
}

// maxSegments is more than any member of an envelope needs outside the sender's own JSON.
const maxSegments = 32

// ParseSet reads the argument of --set, PATH=VALUE. The path has the names of the enclosing objects and of the member,
// separated by dots: call.url, retry.maxAttempts, retry.schedule[0]. It adds missing members and the objects around
// them; an array can grow by one element at a time. See [envelope.Set] for values and paths.
func ParseSet(argument string) (Edit, error) {
	name, text, found := strings.Cut(argument, "=")
	if !found {
		return Edit{}, errors.New("want PATH=VALUE, such as call.method=PUT")
	}
	path, err := parsePath(name)
	if err != nil {
		return Edit{}, err
	}
	if !utf8.ValidString(text) {
		return Edit{}, errors.New("the value is not UTF-8")
	}
	return Edit{
		flag: "--set", name: strictjson.Quotable(name), path: path,
		apply: func(_ context.Context, content []byte) ([]byte, error) {
			return envelope.Set(content, path, text)
		},
	}, nil
}

// parsePath splits a path. The name of a header is one segment, because it may contain dots.
func parsePath(path string) ([]string, error) {
	for _, headers := range []string{"call.headers.", "callback.headers."} {
		if name, found := strings.CutPrefix(path, headers); found {
			if !httpguts.ValidHeaderFieldName(name) {
				return nil, fmt.Errorf("%sNAME: not the name of a header", headers)
			}
			return append(strings.Split(headers, ".")[:2], name), nil
		}
	}
	if !utf8.ValidString(path) {
		return nil, errors.New("the path is not UTF-8")
	}
	// Error messages write elements as in retry.schedule[0].
	segments := strings.Split(strings.NewReplacer("[", ".", "]", "").Replace(path), ".")
	switch {
	case slices.Contains(segments, ""):
		return nil, errors.New("want PATH=VALUE with a path such as call.url or retry.schedule[0]")
	case len(segments) > maxSegments:
		return nil, fmt.Errorf("the path has more than %d names", maxSegments)
	}
	return segments, nil
}

// ParseHeader reads the argument of --set-header, "Name: value". The header replaces all headers of that name, in any
// letter case. The name Host is allowed as in an envelope; in a Nexus envelope it is the host of the URL.
func ParseHeader(argument string) (Edit, error) {
	name, value, found := strings.Cut(argument, ":")
	value = strings.Trim(value, " \t")
	switch {
	case !found || !httpguts.ValidHeaderFieldName(name):
		return Edit{}, errors.New(`want "Name: value"`)
	case !utf8.ValidString(value) || !httpguts.ValidHeaderFieldValue(value):
		return Edit{}, errors.New("the value is not UTF-8, or has a line break or another control character")
	}
	return Edit{
		flag: "--set-header", name: strictjson.Quotable(name),
		apply: func(_ context.Context, content []byte) ([]byte, error) {
			return envelope.SetHeader(content, name, &value)
		},
	}, nil
}

// ParseDeleteHeader reads the argument of --delete-header, a name. All headers of that name are removed, in any letter
// case. It is not an error if there are none.
func ParseDeleteHeader(argument string) (Edit, error) {
	if !httpguts.ValidHeaderFieldName(argument) {
		return Edit{}, errors.New("want the name of a header")
	}
	return Edit{
		flag: "--delete-header", name: strictjson.Quotable(argument),
		apply: func(_ context.Context, content []byte) ([]byte, error) {
			return envelope.SetHeader(content, argument, nil)
		},
	}, nil
}

// hostChange replaces a host by another one.
type hostChange struct {
	old, replacement url.URL // each with a host and perhaps a port
	scheme           string  // empty keeps the scheme
}

// ParseReplaceHost reads the argument of --replace-host, OLD=NEW. The edit replaces a host in the URLs of the call and
// of the callback, and in a Host header. OLD is a host with or without a port; with a port, it matches only URLs that
// have this port. NEW is a host, with the old port unless it has its own, and may have a scheme:
// https://new.example:8443. Letter case does not matter.
//
// It is not an error if OLD does not occur: [Edits.Apply] then returns equal content.
func ParseReplaceHost(argument string) (Edit, error) {
	from, to, found := strings.Cut(argument, "=")
	var change hostChange
	if scheme, rest, hasScheme := strings.Cut(to, "://"); hasScheme {
		change.scheme, to = strings.ToLower(scheme), rest
		found = found && (change.scheme == "http" || change.scheme == "https")
	}
	if !found || !isAuthority(from) || !isAuthority(to) {
		return Edit{}, errors.New("want OLD=NEW, such as old.example=https://new.example:8443")
	}
	change.old.Host, change.replacement.Host = from, strings.TrimSuffix(to, ":")
	return Edit{flag: "--replace-host", apply: func(_ context.Context, content []byte) ([]byte, error) {
		return envelope.ReplaceHost(content, change.replace)
	}}, nil
}

// isAuthority reports whether a text is a host with at most a port, and cannot make a URL into another one.
func isAuthority(text string) bool {
	parsed, err := url.Parse("http://" + text)
	if err != nil || parsed.Host != text {
		return false
	}
	_, err = envelope.ParseURL("http://" + text)
	return err == nil
}

// replace is an [envelope.HostReplacer].
func (c hostChange) replace(scheme, host string) (newScheme, newHost string) {
	found := url.URL{Host: host}
	port := found.Port()
	isHost := guard.Canonical(found.Hostname()) == guard.Canonical(c.old.Hostname())
	isPort := c.old.Port() == "" || port == c.old.Port()
	if !isHost || !isPort {
		return scheme, host
	}
	newHost = c.replacement.Host
	if c.replacement.Port() == "" && port != "" {
		newHost += ":" + port
	}
	return cmp.Or(c.scheme, scheme), newHost
}
