package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"asynccaller/handler/internal/plain/bom"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// Names reports whether two names mean the same member. It says how a format compares names.
type Names func(a, b string) bool

// The ways to compare names.
var (
	ExactNames Names = func(a, b string) bool { return a == b }
	FoldNames  Names = strings.EqualFold
)

// Change returns the new value of a member for its old one. Nil means a missing member.
type Change func(old json.RawMessage) (json.RawMessage, error)

// Change changes the value at a path inside another value. It adds missing objects on the way, and adds elements at the
// end of an array. Members outside the path keep their bytes. If nothing changes, it returns value itself.
func (n Names) Change(value json.RawMessage, path []string, change Change) (json.RawMessage, error) {
	if len(path) == 0 {
		return change(value)
	}
	kind, members, err := open(value)
	if err != nil {
		return nil, err
	}
	if kind == 0 {
		return nil, In(path[0], errors.New("is inside a value that is neither an object nor an array"))
	}
	i := slices.IndexFunc(members, func(m Member) bool { return n(m.Name, path[0]) })
	if i < 0 {
		i = len(members)
		if kind == '[' && path[0] != strconv.Itoa(i) {
			return nil, In(path[0], fmt.Errorf("want the number of an element: the array has %d, counted from 0", i))
		}
		members = append(members, Member{Name: path[0]})
	}
	changed, err := n.Change(members[i].Value, path[1:], change)
	switch {
	case err != nil:
		return nil, In(path[0], err)
	case bytes.Equal(changed, members[i].Value):
		return value, nil
	}
	members[i].Value = changed
	return Pack(kind, members), nil
}

// Set changes the value at a path to another one. A nil value removes the member.
func (n Names) Set(value json.RawMessage, path []string, to json.RawMessage) (json.RawMessage, error) {
	return n.Change(value, path, func(json.RawMessage) (json.RawMessage, error) { return to, nil })
}

// Get returns the value at a path, or nil.
func (n Names) Get(value json.RawMessage, path ...string) (found json.RawMessage) {
	_, _ = n.Change(value, path, func(old json.RawMessage) (json.RawMessage, error) {
		found = old
		return old, nil
	})
	return found
}

// Rewrite returns a value with each text in it, and each name of a member, replaced by what a function returns for it.
// Path is that of the text, or that of the object with the name, as in [MemberError]. An object that has a name twice
// stays as it is. If nothing changes, it returns value itself.
func Rewrite(value json.RawMessage, rewrite func(path, text string) string) json.RawMessage {
	return rewriteAt("", value, rewrite)
}

func rewriteAt(path string, value json.RawMessage, rewrite func(path, text string) string) json.RawMessage {
	text, err := String(value)
	if err == nil {
		rewritten := rewrite(path, text)
		if rewritten == text {
			return value
		}
		return AppendString(nil, rewritten)
	}
	kind, members, err := open(value)
	if err != nil {
		return value
	}
	isChanged := false
	for i, m := range members {
		name, inner := m.Name, Index(i)
		if kind == '{' {
			name, inner = rewrite(path, m.Name), Quotable(m.Name)
		}
		members[i] = Member{Name: name, Value: rewriteAt(joined(path, inner), m.Value, rewrite)}
		isChanged = isChanged || name != m.Name || !bytes.Equal(members[i].Value, m.Value)
	}
	if !isChanged {
		return value
	}
	return Pack(kind, members)
}

// PackArray writes an array. It leaves out nil elements.
func PackArray(elements []json.RawMessage) json.RawMessage {
	return Pack('[', numbered(elements))
}

// Merge returns edited JSON with the bytes of the original for each value that is the same. A program that rewrites an
// envelope must not rewrite a body that the target wants byte for byte.
type Merge struct {
	// Same reports whether the edit left a value as it was.
	Same func(original, edited json.RawMessage) bool
	// KeepOrder leaves members at their original position, for edits that know no order.
	KeepOrder bool
}

// maxMergeDepth is how deep Merge compares values. The envelope's own members are no deeper, and a hostile message
// could make each level cost as much as the whole message.
const maxMergeDepth = 16

// Values merges two JSON texts. Its error names the member that the edited text has twice.
func (m Merge) Values(original, edited json.RawMessage) (json.RawMessage, error) {
	return m.values(bytes.TrimSpace(original), bytes.TrimSpace(edited), 0)
}

func (m Merge) values(original, edited json.RawMessage, depth int) (json.RawMessage, error) {
	if m.Same(original, edited) {
		return original, nil
	}
	kind, before, err := open(original)
	if err != nil || kind == 0 || original[0] != edited[0] || depth == maxMergeDepth {
		return Compact(edited), nil //nolint:nilerr // an original that has a name twice cannot guide the merge
	}
	_, after, err := open(edited)
	if err != nil {
		return nil, err
	}
	places := make(map[string]int, len(before)) // counted from the end, so that new names come last
	for i, member := range before {
		places[member.Name] = i - len(before)
	}
	for i, member := range after {
		place := places[member.Name] + len(before)
		if place == len(before) {
			after[i].Value = Compact(member.Value)
			continue
		}
		after[i].Value, err = m.values(before[place].Value, member.Value, depth+1)
		if err != nil {
			return nil, In(member.Name, err)
		}
	}
	if m.KeepOrder {
		slices.SortStableFunc(after, func(a, b Member) int { return places[a.Name] - places[b.Name] })
	}
	return Pack(kind, after), nil
}

// Compact returns JSON without the white space between its values. It returns other text as it is.
func Compact(value json.RawMessage) json.RawMessage {
	var w bytes.Buffer
	if err := json.Compact(&w, value); err != nil {
		return value
	}
	return w.Bytes()
}

// open reads the members of an object or the elements of an array, named by their number. A missing value and null are
// empty objects. The kind is '{' or '[', and 0 for any other value.
func open(value json.RawMessage) (kind byte, members []Member, err error) {
	value, err = bom.Text(value)
	switch {
	case err != nil:
		return 0, nil, err
	case len(value) == 0 || IsNull(value):
		return '{', nil, nil
	case value[0] == '{':
		members, err = Object(value)
		return '{', members, err
	case value[0] == '[':
		elements, err := Elements(value)
		return '[', numbered(elements), err
	}
	return 0, nil, nil
}

func numbered(elements []json.RawMessage) []Member {
	members := make([]Member, len(elements))
	for i, element := range elements {
		members[i] = Member{Name: strconv.Itoa(i), Value: element}
	}
	return members
}

// Pack writes an object or, if kind is '[', an array. It leaves out members without a value.
func Pack(kind byte, members []Member) json.RawMessage {
	packed := []byte{kind}
	for _, m := range members {
		if m.Value == nil {
			continue
		}
		if len(packed) > 1 {
			packed = append(packed, ',')
		}
		if kind == '{' {
			packed = append(AppendString(packed, m.Name), ':')
		}
		packed = append(packed, m.Value...)
	}
	return append(packed, kind+2) // in ASCII, the closing bracket is two places after the opening one
}

// EscapeUnprintable writes the characters of a JSON text that a terminal would obey, or that a person cannot see, as
// escapes. In JSON they only occur in strings.
func EscapeUnprintable(text []byte) []byte {
	unprintable := func(r rune) bool { return r >= 0x7f && !unicode.IsPrint(r) }
	if bytes.IndexFunc(text, unprintable) < 0 {
		return text
	}
	escaped := make([]byte, 0, len(text)+len(text)/4)
	for _, r := range string(text) {
		if !unprintable(r) {
			escaped = utf8.AppendRune(escaped, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			escaped = fmt.Appendf(escaped, `\u%04x`, unit)
		}
	}
	return escaped
}

// lineOptions are those of encoding/json, but for characters that only HTML must escape, and for times.
var lineOptions = jsonv2.JoinOptions(
	jsonv1.DefaultOptionsV1(), jsontext.EscapeForHTML(false), jsonv2.WithMarshalers(jsonv2.MarshalToFunc(appendTime)),
)

// appendTime writes a time in UTC. Zero means that it is not known, and is null.
func appendTime(to *jsontext.Encoder, at time.Time) error {
	at = at.UTC()
	if at.IsZero() || at.Year() < 1 || at.Year() > 9999 { // RFC 3339 has no other years
		return to.WriteToken(jsontext.Null)
	}
	return to.WriteToken(jsontext.String(at.Format(time.RFC3339Nano)))
}

// Line returns a value as one line of printable JSON, without the escapes that only HTML needs. A time that is zero, or
// that RFC 3339 cannot express, is null.
func Line(value any) ([]byte, error) {
	line, err := jsonv2.Marshal(value, lineOptions)
	return EscapeUnprintable(append(line, '\n')), err
}

// AppendString appends a text as a JSON string, without the escapes that only HTML needs. It replaces each byte
// that is not UTF-8 by U+FFFD, as encoding/json does.
func AppendString(to []byte, text string) []byte {
	to, _ = jsontext.AppendQuote(to, text) // the error says that a byte was replaced
	return to
}
