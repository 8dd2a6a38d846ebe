// Package variable puts the values of environment variables in the place of ${NAME} in a file of the app, so that the
// same file serves several environments. The values are no secrets: commands show them. It is pure.
package variable

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"asynccaller/handler/internal/plain/secret"
	"asynccaller/handler/internal/plain/strictjson"
)

// maxValueBytes limits the value of a variable.
const maxValueBytes = 500

// open begins a reference to a variable.
const open = "${"

// references matches references, valid or not.
var references = regexp.MustCompile(`\$\{[^}]*}?`)

var (
	errMalformed = errors.New("want ${NAME} after ${: letters, digits and _ between the brackets")
	errReference = errors.New(`begins with $ after ${NAME} is replaced: a secret is only a whole "$NAME"`)
)

// validName matches the name of an environment variable that a shell and Azure accept.
var validName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// ValidName reports whether a text is the name of an environment variable.
func ValidName(text string) bool { return validName.MatchString(text) }

// Environment says which variables there are.
type Environment struct {
	// Getenv returns the value of a variable; empty if it is not set.
	Getenv func(name string) string
	// Secrets are the names of variables that are secret although [secret.Is] does not say so.
	Secrets []string
}

// Names says what the names of a file's entries are.
type Names bool

// The values of [Names].
const (
	Expanded Names = true
	Literal  Names = false
)

// Expand replaces ${NAME} in the texts of a file, which is a JSON object, and in the names of members. Whatever its
// characters, a value stays within its text. It returns the values that were used, by the names of their variables. An
// entry with a problem is left out, so that the others can be checked. The error joins all problems; each names the
// entry and the member. A file that is no such object is returned as it is.
func (e Environment) Expand(content []byte, entries Names) (expanded []byte, used map[string]string, err error) {
	members, err := strictjson.Object(content)
	if err != nil {
		return content, nil, nil //nolint:nilerr // the parser of the file reports it
	}
	used = map[string]string{}
	var problems []error
	var kept []strictjson.Member
	for _, m := range members {
		before := len(problems)
		rewrite := func(path, text string) string {
			text, failures := e.expandText(text, used)
			for _, failure := range failures {
				if path != "" {
					failure = &strictjson.MemberError{Path: path, Err: failure}
				}
				problems = append(problems, fmt.Errorf("%.300q: %w", m.Name, failure))
			}
			return text
		}
		entry := strictjson.Member{Name: m.Name}
		if entries == Expanded {
			entry.Name = rewrite("", m.Name)
		}
		entry.Value = strictjson.Rewrite(m.Value, rewrite)
		if len(problems) == before {
			kept = append(kept, entry)
		}
	}
	if len(used) == 0 && len(problems) == 0 {
		return content, nil, nil
	}
	return strictjson.Pack('{', kept), used, errors.Join(problems...)
}

// expandText expands a text, and adds the values to used.
func (e Environment) expandText(text string, used map[string]string) (expanded string, problems []error) {
	expanded = references.ReplaceAllStringFunc(text, func(found string) string {
		name, isClosed := strings.CutSuffix(strings.TrimPrefix(found, open), "}")
		if !isClosed || !ValidName(name) {
			problems = append(problems, errMalformed)
			return found
		}
		value, err := e.value(name)
		if err != nil {
			problems = append(problems, err)
			return found
		}
		used[name] = value
		return value
	})
	if len(problems) == 0 && expanded != text && strings.HasPrefix(expanded, "$") {
		problems = append(problems, errReference)
	}
	return expanded, problems
}

// value returns the value of a variable.
func (e Environment) value(name string) (string, error) {
	if secret.Is(name) || slices.Contains(e.Secrets, name) {
		return "", fmt.Errorf(`the environment variable %s has the name of a secret, or targets.json has "$%s", and `+
			"commands show the values of ${NAME}: use one that is no secret, with another name", name, name)
	}
	value := e.Getenv(name)
	isUnprintable := func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }
	switch {
	case value == "":
		return "", fmt.Errorf("the environment variable %s is not set: add it to the app settings; "+
			"for commands, set it in their environment or in local.settings.json", name)
	case len(value) > maxValueBytes:
		return "", fmt.Errorf("the environment variable %s has more than %d bytes", name, maxValueBytes)
	case strings.ContainsFunc(value, isUnprintable):
		return "", fmt.Errorf("the environment variable %s holds a line break or another character "+
			"that is not printable", name)
	}
	return value, nil
}

// IsIn reports whether a text refers to a variable, by a valid name or not.
func IsIn(text string) bool { return strings.Contains(text, open) }

// IsUsed reports whether a text in a value refers to a variable.
func IsUsed(value json.RawMessage) bool {
	isUsed := false
	strictjson.Rewrite(value, func(_, text string) string {
		isUsed = isUsed || IsIn(text)
		return text
	})
	return isUsed
}

// Whole returns the names of the variables to which a file refers by a whole text, "$NAME".
func Whole(content []byte) (names []string) {
	strictjson.Rewrite(content, func(_, text string) string {
		name, isReference := strings.CutPrefix(text, "$")
		if isReference && ValidName(name) {
			names = append(names, name)
		}
		return text
	})
	return names
}
