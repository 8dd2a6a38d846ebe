package edit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"asynccaller/handler/internal/strictjson"
)

const (
	// textSuffix marks members that are laid out as lines of text instead of base64.
	textSuffix = ".text"
	// lineEnd ends the lines of a head in HTTP, so the lines of a text are split at it and nowhere else.
	lineEnd = "\r\n"
	// deepestIndented bounds the white space: with every level another indentation, a small message of
	// nothing but brackets would grow a thousandfold.
	deepestIndented = 64
)

// texts are the members of RawRequest that are base64 of text.
var texts = []string{"CallOut", "CallBack", "Context"}

// Editable lays content out for an editor: JSON indented, and in a Nexus envelope CallOut, CallBack and
// Context as arrays of lines, named CallOut.text and so on, as far as they are base64 of UTF-8. Characters
// that cannot be seen are written as JSON escapes. The lines of a text end with CR LF, which is not shown.
// Content that is not a JSON object is returned as it is, for a person to make JSON of.
func Editable(content []byte) (text []byte) {
	laid, ok := layOut(content)
	if !ok {
		return content
	}
	laid = escapeUnseen(laid)
	if depth, err := strictjson.Depth(laid); err == nil && depth <= deepestIndented {
		var w bytes.Buffer
		if err := json.Indent(&w, laid, "", "  "); err == nil {
			laid = w.Bytes()
		}
	}
	return append(slices.Clip(bytes.TrimSpace(laid)), '\n')
}

// Restore makes content again of what [Editable] laid out and a person edited. What was not edited keeps
// the bytes that it has in the original; if nothing was, the result is the original. White space between
// values and the order of members in which the person left them do not count as edits of a value. The error
// says where the text is not JSON, or what is wrong with a member, so that the person can go on editing.
func Restore(original, edited []byte) ([]byte, error) {
	if bytes.Equal(bytes.TrimSpace(edited), bytes.TrimSpace(Editable(original))) {
		return original, nil
	}
	edited = bytes.TrimSpace(edited)
	if _, err := strictjson.Object(edited); err != nil {
		return nil, fmt.Errorf("the edited message is no envelope: %w", err)
	}
	laid, ok := layOut(original)
	switch {
	case !ok:
		return edited, nil
	case sameText(laid, edited):
		return original, nil
	}
	merged, err := merge{same: sameText}.values(laid, edited, 0)
	if err != nil {
		return nil, fmt.Errorf("the edited message is no envelope: %w", err)
	}
	return takeUp(original, laid, merged)
}

// layOut replaces the base64 of a Nexus envelope by lines of text. It reports false for what is not a JSON
// object.
func layOut(content []byte) (json.RawMessage, bool) {
	content = bytes.TrimSpace(content)
	if _, err := strictjson.Object(content); err != nil {
		return nil, false
	}
	if formatOf(content) != (nexus{}) {
		return content, true
	}
	laid, err := names(foldName).at(content, []string{rawRequest}, func(old json.RawMessage) (json.RawMessage, error) {
		members, err := strictjson.Members(old)
		if err != nil {
			return old, nil //nolint:nilerr // there is nothing in it to be laid out
		}
		for i, m := range members {
			if lines, ok := linesOf(members, m); ok {
				members[i] = strictjson.Member{Name: m.Name + textSuffix, Value: lines}
			}
		}
		return object(members), nil
	})
	return laid, err == nil
}

// linesOf is the text of a member that is base64 of text, and whose laid out name is free.
func linesOf(members []strictjson.Member, m strictjson.Member) (json.RawMessage, bool) {
	isText := func(name string) bool { return strings.EqualFold(name, m.Name) }
	isTaken := func(other strictjson.Member) bool { return strings.EqualFold(other.Name, m.Name+textSuffix) }
	if !slices.ContainsFunc(texts, isText) || slices.ContainsFunc(members, isTaken) {
		return nil, false
	}
	text, err := messageIn(m.Value)
	if err != nil || text == nil || !utf8.Valid(text) {
		return nil, false
	}
	var lines []json.RawMessage
	for line := range strings.SplitSeq(string(text), lineEnd) {
		lines = append(lines, quote(line))
	}
	return array(lines), true
}

// takeUp makes base64 of the lines again. A text that is as it was keeps the base64 that it had.
func takeUp(original []byte, laid json.RawMessage, merged []byte) ([]byte, error) {
	if formatOf(original) != (nexus{}) {
		return merged, nil
	}
	whole := orNothing(names(foldName).get(bytes.TrimSpace(original), rawRequest))
	came, _ := strictjson.Members(whole)
	content, err := names(foldName).at(merged, []string{rawRequest}, func(edited json.RawMessage) (json.RawMessage, error) {
		if sameText(orNothing(names(foldName).get(laid, rawRequest)), orNothing(edited)) {
			return whole, nil
		}
		members, err := strictjson.Members(orNothing(edited))
		if err != nil {
			return edited, nil //nolint:nilerr // the handler finds fault with it
		}
		for i, m := range members {
			if members[i], err = fromLines(came, m); err != nil {
				return nil, strictjson.In(m.Name, err)
			}
		}
		taken := object(members)
		_, err = strictjson.Members(taken) // that both CallOut and CallOut.text stand there
		return taken, err
	})
	if err != nil {
		return nil, fmt.Errorf("the edited message is no envelope: %w", err)
	}
	return content, nil
}

// fromLines is the member that a laid out one stands for, be it one that the person added. Any other stays,
// and so does one that had such a name when it came.
func fromLines(came []strictjson.Member, m strictjson.Member) (strictjson.Member, error) {
	named := func(name string) int {
		return slices.IndexFunc(came, func(other strictjson.Member) bool { return strings.EqualFold(other.Name, name) })
	}
	for _, name := range texts {
		if !strings.EqualFold(m.Name, name+textSuffix) || named(m.Name) >= 0 {
			continue
		}
		if i := named(name); i >= 0 {
			name = came[i].Name
			if lines, ok := linesOf(came, came[i]); ok && sameText(lines, m.Value) {
				return came[i], nil
			}
		}
		text, err := joinLines(m.Value)
		return strictjson.Member{Name: name, Value: inBase64([]byte(text))}, err
	}
	return m, nil
}

func joinLines(value json.RawMessage) (string, error) {
	if value[0] != '[' {
		return "", errors.New("want an array of strings, one for each line")
	}
	elements, err := strictjson.Elements(value)
	if err != nil {
		return "", err
	}
	lines := make([]string, len(elements))
	for i, element := range elements {
		if lines[i], err = strictjson.String(element); err != nil {
			return "", strictjson.In(strictjson.Index(i), err)
		}
	}
	return strings.Join(lines, lineEnd), nil
}

// sameText compares values as Editable writes them, white space apart.
func sameText(a, b json.RawMessage) bool {
	return bytes.Equal(escapeUnseen(compact(a)), escapeUnseen(compact(b)))
}

// escapeUnseen writes characters that a terminal would obey, or a person not see, as JSON escapes. In JSON
// they can only stand in strings.
func escapeUnseen(text json.RawMessage) json.RawMessage {
	unseen := func(r rune) bool { return r >= 0x7f && !unicode.IsPrint(r) }
	if bytes.IndexFunc(text, unseen) < 0 {
		return text
	}
	escaped := make([]byte, 0, len(text)+len(text)/4)
	for _, r := range string(text) {
		switch {
		case !unseen(r):
			escaped = utf8.AppendRune(escaped, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			escaped = fmt.Appendf(escaped, `\u%04x\u%04x`, high, low)
		default:
			escaped = fmt.Appendf(escaped, `\u%04x`, r)
		}
	}
	return escaped
}
