package edit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/strictjson"
)

// Edit is a change to an envelope of either format. A function for each flag reads it from the flag's argument. Several
// goroutines may apply the same Edit.
type Edit struct {
	flag  string   // one of flags
	name  string   // the edited member, for errors; may be empty
	path  []string // of --set
	apply func(ctx context.Context, content []byte) ([]byte, error)
}

// flags are in the order in which edits are applied.
var flags = []string{"--jq", "--replace-host", "--set", "--set-header", "--delete-header"}

// Edits are changes to an envelope. They apply by kind: jq, hosts, values, headers, removed headers. Edits of one kind apply in
// the order of the list.
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
	edited := bytes.TrimSpace(content)
	byFlag := func(a, b Edit) int { return slices.Index(flags, a.flag) - slices.Index(flags, b.flag) }
	for _, edit := range slices.SortedStableFunc(slices.Values(e), byFlag) {
		var err error
		if edited, err = edit.apply(ctx, edited); err != nil {
			return nil, fmt.Errorf("%s: %w", strings.TrimSpace(edit.flag+" "+edit.name), err)
		}
	}
	if bytes.Equal(edited, bytes.TrimSpace(content)) {
		return content, nil
	}
	return edited, nil
}

// setDeadline reports whether a flag names the deadline, even if it sets the same one.
func (e Edits) setDeadline(content []byte) bool {
	return slices.ContainsFunc(e, func(edit Edit) bool { return edit.path != nil && envelope.IsDeadline(content, edit.path) })
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
	return Edit{flag: "--set", name: strictjson.Printable(name), path: path, apply: func(_ context.Context, content []byte) ([]byte, error) {
		return envelope.Set(content, path, text)
	}}, nil
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
	return Edit{flag: "--set-header", name: strictjson.Printable(name), apply: func(_ context.Context, content []byte) ([]byte, error) {
		return envelope.SetHeader(content, name, value)
	}}, nil
}

// ParseDeleteHeader reads the argument of --delete-header, a name. All headers of that name are removed, in any letter
// case. It is not an error if there are none.
func ParseDeleteHeader(argument string) (Edit, error) {
	if !httpguts.ValidHeaderFieldName(argument) {
		return Edit{}, errors.New("want the name of a header")
	}
	return Edit{flag: "--delete-header", name: strictjson.Printable(argument), apply: func(_ context.Context, content []byte) ([]byte, error) {
		return envelope.RemoveHeader(content, argument)
	}}, nil
}

// hostChange replaces a host by another one.
type hostChange struct {
	old, replacement url.URL // each with a host and perhaps a port
	scheme           string  // empty keeps the scheme
}

// ParseReplaceHost reads the argument of --replace-host, OLD=NEW. The edit replaces a host in the URLs of the call and of the
// callback, and in a Host header. OLD is a host with or without a port; with a port, it
// matches only URLs that have this port. NEW is a host, with the old port unless it has its own, and may have a scheme:
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
	if !strings.EqualFold(found.Hostname(), c.old.Hostname()) || (c.old.Port() != "" && port != c.old.Port()) {
		return scheme, host
	}
	newHost = c.replacement.Host
	if c.replacement.Port() == "" && port != "" {
		newHost += ":" + port
	}
	return cmp.Or(c.scheme, scheme), newHost
}
