package edit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"asynccaller/handler/internal/strictjson"
)

// Edits are changes to an envelope in either format. They are applied in the order of the fields, and those
// of one field in the order in which they stand. Each is made by a function that reads a flag's argument. The
// zero value changes nothing. Edits may be applied by several goroutines at once.
type Edits struct {
	JQ           []JQ
	ReplaceHosts []HostChange
	Set          []Setting
	Headers      []HeaderChange
}

// Empty reports whether there is nothing to change.
func (e Edits) Empty() bool {
	return len(e.JQ) == 0 && len(e.ReplaceHosts) == 0 && len(e.Set) == 0 && len(e.Headers) == 0
}

// Apply returns the edited content. Members that no edit names keep their bytes and their order, and
// content that nothing was changed in is returned as it came. Content that is not a JSON object cannot be
// edited this way. Its errors name the flag and the member at fault and quote neither values nor URLs. The
// context, and a limit of two seconds, end an expression of jq that does not end by itself.
func (e Edits) Apply(ctx context.Context, content []byte) ([]byte, error) {
	if e.Empty() {
		return content, nil
	}
	if _, err := strictjson.Object(content); err != nil {
		return nil, fmt.Errorf("the message cannot be edited by flags: %w: mend it with --edit", err)
	}
	edited, err := e.apply(ctx, bytes.TrimSpace(content))
	switch {
	case err != nil:
		return nil, err
	case bytes.Equal(edited, bytes.TrimSpace(content)):
		return content, nil
	}
	return edited, nil
}

func (e Edits) apply(ctx context.Context, content []byte) (_ []byte, err error) {
	for _, filter := range e.JQ {
		if content, err = filter.apply(ctx, content); err != nil {
			return nil, fmt.Errorf("--jq: %w", err)
		}
	}
	for _, change := range e.ReplaceHosts {
		if content, err = formatOf(content).replaceHost(content, change); err != nil {
			return nil, fmt.Errorf("--replace-host: %w", err)
		}
	}
	for _, setting := range e.Set {
		if content, err = setting.apply(content); err != nil {
			return nil, fmt.Errorf("--set %s: %w", strictjson.Printable(setting.path), err)
		}
	}
	for _, change := range e.Headers {
		if content, err = formatOf(content).changeHeader(content, calls, change); err != nil {
			return nil, fmt.Errorf("%s: %w", change.flag(), err)
		}
	}
	return content, nil
}

// setDeadline reports whether a flag names the deadline, be it to set it to what it was.
func (e Edits) setDeadline() bool {
	return slices.ContainsFunc(e.Set, func(s Setting) bool {
		return s.path == "deadline" || strings.EqualFold(s.path, "DeadlineAt")
	})
}

// part is which of an envelope's two calls an edit is about.
type part string

const (
	calls     part = "call"
	callbacks part = "callback"
)

// format edits envelopes of one format. Its content is a JSON object, and its results are.
type format interface {
	set(content []byte, path []string, text string) ([]byte, error)
	changeHeader(content []byte, of part, change HeaderChange) ([]byte, error)
	replaceHost(content []byte, change HostChange) ([]byte, error)
}

// formatOf tells formats apart as the handler does. What is neither may lack nothing but the marker of a
// native envelope, and --set can give it that.
func formatOf(content []byte) format {
	members, _ := strictjson.Object(content)
	is := func(name string) bool {
		return slices.ContainsFunc(members, func(m strictjson.Member) bool { return strings.EqualFold(m.Name, name) })
	}
	if is("RawRequest") && !slices.ContainsFunc(members, func(m strictjson.Member) bool { return m.Name == "asyncCaller" }) {
		return nexus{}
	}
	return native{}
}

// deadlineOf is the deadline as it is written, or nil. The content may be anything.
func deadlineOf(content []byte) json.RawMessage {
	if _, err := strictjson.Object(content); err != nil {
		return nil
	}
	if formatOf(content) == (nexus{}) {
		return names(foldName).get(bytes.TrimSpace(content), "DeadlineAt")
	}
	return names(sameName).get(bytes.TrimSpace(content), "deadline")
}

// Setting gives a member a value.
type Setting struct {
	path, text string
	segments   []string
}

// maxSegments is more than any member of an envelope needs that is not within the sender's own JSON.
const maxSegments = 32

// ParseSet reads the argument of --set, PATH=VALUE. The path is the member's name behind the names of the
// objects that it stands in, with dots between: call.url, retry.maxAttempts, retry.schedule[0]. Members that
// do not exist are made, with the objects around them; an array may grow by one element at a time.
//
// The value is taken as JSON if it is JSON, else as a string. Where only a string can stand (a URL, a
// method, an id, a moment) every value but null is one, quoted or not; in call.body and call.headers.NAME
// the value is the text itself, quotes and all. null takes a member away that only a string can be.
//
// The paths call.url, call.method, call.headers.NAME, call.body, call.bodyBase64, call.json, callback.url,
// callback.method, callback.headers.NAME, requestId, deadline (RFC 3339), priority and context mean the same
// in both formats. A call has one body: each way to write it takes the place of the others. Any other path is
// that of the format's own JSON; in Nexus envelopes its letter case does not count. What the Nexus format has
// no place for (retry, giveUp, notBefore, call.timeout) is an error of [Edits.Apply]. The Title of a Nexus
// envelope, which only logs show, stays as it is unless it is set.
func ParseSet(argument string) (Setting, error) {
	path, text, found := strings.Cut(argument, "=")
	if !found {
		return Setting{}, errors.New("--set: want PATH=VALUE, such as call.method=PUT")
	}
	segments, err := parsePath(path)
	if err != nil {
		return Setting{}, fmt.Errorf("--set: %w", err)
	}
	if !utf8.ValidString(text) {
		return Setting{}, fmt.Errorf("--set %s: the value is not UTF-8", strictjson.Printable(path))
	}
	return Setting{path: path, text: text, segments: segments}, nil
}

// parsePath splits a path. A header's name is one segment, because it may have dots in it.
func parsePath(path string) ([]string, error) {
	for _, headers := range []string{"call.headers.", "callback.headers."} {
		if name, found := strings.CutPrefix(path, headers); found {
			if !httpguts.ValidHeaderFieldName(name) {
				return nil, fmt.Errorf("%sNAME: not a header's name", headers)
			}
			return append(strings.Split(headers, ".")[:2], name), nil
		}
	}
	if !utf8.ValidString(path) {
		return nil, errors.New("the path is not UTF-8")
	}
	// Errors of the handler write elements as in retry.schedule[0].
	segments := strings.Split(strings.ReplaceAll(strings.ReplaceAll(path, "[", "."), "]", ""), ".")
	switch {
	case slices.Contains(segments, ""):
		return nil, errors.New("want PATH=VALUE with a path such as call.url or retry.schedule[0]")
	case len(segments) > maxSegments:
		return nil, fmt.Errorf("the path has more than %d names", maxSegments)
	}
	return segments, nil
}

func (s Setting) apply(content []byte) ([]byte, error) {
	return formatOf(content).set(content, s.segments, s.text)
}

// HeaderChange replaces or removes a header of the call.
type HeaderChange struct {
	name, value string
	remove      bool
}

// ParseHeader reads the argument of --set-header, "Name: value": all headers of that name, whatever their
// letter case, become this one. The name Host is allowed as in an envelope; in a Nexus envelope it is the
// host of the URL.
func ParseHeader(argument string) (HeaderChange, error) {
	name, value, found := strings.Cut(argument, ":")
	value = strings.Trim(value, " \t")
	switch {
	case !found || !httpguts.ValidHeaderFieldName(name):
		return HeaderChange{}, errors.New(`--set-header: want "Name: value"`)
	case !utf8.ValidString(value) || !httpguts.ValidHeaderFieldValue(value):
		return HeaderChange{}, fmt.Errorf("--set-header %s: the value is not UTF-8, or has a line break or another control character", strictjson.Printable(name))
	}
	return HeaderChange{name: name, value: value}, nil
}

// ParseDeleteHeader reads the argument of --delete-header, a name: all headers of that name, whatever their
// letter case, are removed. That there is none is no error.
func ParseDeleteHeader(argument string) (HeaderChange, error) {
	if !httpguts.ValidHeaderFieldName(argument) {
		return HeaderChange{}, errors.New("--delete-header: want the name of a header")
	}
	return HeaderChange{name: argument, remove: true}, nil
}

func (c HeaderChange) flag() string {
	if c.remove {
		return "--delete-header " + strictjson.Printable(c.name)
	}
	return "--set-header " + strictjson.Printable(c.name)
}
