package edit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/strictjson"
)

// Edits are changes to an envelope of either format. Apply makes them in the order of the fields, and within a field in
// the order of the list. Each comes from a function that reads the argument of a flag. The zero value changes nothing.
// Several goroutines may apply the same Edits.
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

// Apply returns the edited content. Members that no edit names keep their bytes and their order, and unchanged content
// is returned as it is. Apply cannot edit content that is not a JSON object. Its errors name the flag and the member,
// and quote neither values nor URLs. The context and a limit of two seconds stop a jq expression that does not end.
func (e Edits) Apply(ctx context.Context, content []byte) ([]byte, error) {
	if e.Empty() {
		return content, nil
	}
	if _, err := strictjson.Object(content); err != nil {
		return nil, fmt.Errorf("flags cannot edit the message: %w: fix it with --edit", err)
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
		if content, err = envelope.ReplaceHost(content, change.replace); err != nil {
			return nil, fmt.Errorf("--replace-host: %w", err)
		}
	}
	for _, setting := range e.Set {
		if content, err = envelope.Set(content, setting.path, setting.text); err != nil {
			return nil, fmt.Errorf("--set %s: %w", strictjson.Printable(setting.name), err)
		}
	}
	for _, change := range e.Headers {
		if content, err = change.apply(content); err != nil {
			return nil, err
		}
	}
	return content, nil
}

// setDeadline reports whether a flag names the deadline, even if it sets the same one.
func (e Edits) setDeadline(content []byte) bool {
	return slices.ContainsFunc(e.Set, func(s Setting) bool { return envelope.IsDeadline(content, s.path) })
}

// Setting gives a member a value.
type Setting struct {
	name, text string
	path       []string
}

// maxSegments is more than any member of an envelope needs outside the sender's own JSON.
const maxSegments = 32

// ParseSet reads the argument of --set, PATH=VALUE. The path has the names of the enclosing objects and of the member,
// separated by dots: call.url, retry.maxAttempts, retry.schedule[0]. It adds missing members and the objects around
// them; an array can grow by one element at a time. See [envelope.Set] for values and paths.
func ParseSet(argument string) (Setting, error) {
	name, text, found := strings.Cut(argument, "=")
	if !found {
		return Setting{}, errors.New("--set: want PATH=VALUE, such as call.method=PUT")
	}
	path, err := parsePath(name)
	if err != nil {
		return Setting{}, fmt.Errorf("--set: %w", err)
	}
	if !utf8.ValidString(text) {
		return Setting{}, fmt.Errorf("--set %s: the value is not UTF-8", strictjson.Printable(name))
	}
	return Setting{name: name, text: text, path: path}, nil
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

// HeaderChange replaces or removes a header of the call.
type HeaderChange struct {
	name, value string
	remove      bool
}

// ParseHeader reads the argument of --set-header, "Name: value". The header replaces all headers of that name, in any
// letter case. The name Host is allowed as in an envelope; in a Nexus envelope it is the host of the URL.
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

// ParseDeleteHeader reads the argument of --delete-header, a name. All headers of that name are removed, in any letter
// case. It is not an error if there are none.
func ParseDeleteHeader(argument string) (HeaderChange, error) {
	if !httpguts.ValidHeaderFieldName(argument) {
		return HeaderChange{}, errors.New("--delete-header: want the name of a header")
	}
	return HeaderChange{name: argument, remove: true}, nil
}

func (c HeaderChange) apply(content []byte) (_ []byte, err error) {
	flag := "--set-header"
	if c.remove {
		flag = "--delete-header"
		content, err = envelope.RemoveHeader(content, c.name)
	} else {
		content, err = envelope.SetHeader(content, c.name, c.value)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, strictjson.Printable(c.name), err)
	}
	return content, nil
}
