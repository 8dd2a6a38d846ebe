package strictjson

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep encoding/json follows arrays and objects.
const maxDepth = 10000

// valid reports whether a text is one JSON value. It agrees with json.Valid and takes a fraction of its time,
// which is what reading a message mostly consists of.
func valid(text []byte) bool {
	at := validValue(text, SkipSpace(text, 0), 0)
	return at >= 0 && SkipSpace(text, at) == len(text)
}

// The functions below return where what begins at a place ends, or -1 where it does not.

func validValue(text []byte, at, depth int) int {
	if at >= len(text) || depth > maxDepth {
		return -1
	}
	switch c := text[at]; {
	case c == '"':
		return validString(text, at)
	case c == '{':
		return validMembers(text, at, depth+1, nil)
	case c == '[':
		return validElements(text, at, depth+1)
	case c == '-' || isDigit(c):
		return validNumber(text, at)
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if string(text[at:min(at+len(word), len(text))]) == word {
			return at + len(word)
		}
	}
	return -1
}

// validMembers reads an object. Visit, if there is one, is shown each member, and can end it.
func validMembers(text []byte, at, depth int, visit func(name, value []byte) bool) int {
	if depth > maxDepth {
		return -1
	}
	if at = SkipSpace(text, at+1); at < len(text) && text[at] == '}' {
		return at + 1
	}
	for {
		begin := at
		if at = validString(text, at); at < 0 {
			return -1
		}
		name := text[begin:at]
		if at = SkipSpace(text, at); at >= len(text) || text[at] != ':' {
			return -1
		}
		begin = SkipSpace(text, at+1)
		if at = validValue(text, begin, depth); at < 0 {
			return -1
		}
		if visit != nil && !visit(name, text[begin:at:at]) {
			return -1
		}
		switch at = SkipSpace(text, at); {
		case at < len(text) && text[at] == ',':
			at = SkipSpace(text, at+1)
		case at < len(text) && text[at] == '}':
			return at + 1
		default:
			return -1
		}
	}
}

func validElements(text []byte, at, depth int) int {
	if depth > maxDepth {
		return -1
	}
	if at = SkipSpace(text, at+1); at < len(text) && text[at] == ']' {
		return at + 1
	}
	for {
		if at = validValue(text, at, depth); at < 0 {
			return -1
		}
		switch at = SkipSpace(text, at); {
		case at < len(text) && text[at] == ',':
			at = SkipSpace(text, at+1)
		case at < len(text) && text[at] == ']':
			return at + 1
		default:
			return -1
		}
	}
}

func validString(text []byte, at int) int {
	if at >= len(text) || text[at] != '"' {
		return -1
	}
	for at++; ; {
		if at = plainEnd(text, at); at == len(text) {
			return -1
		}
		switch text[at] {
		case '"':
			return at + 1
		case '\\':
			size := escapeSize(text[at:])
			if size == 0 {
				return -1
			}
			at += size
		default:
			return -1
		}
	}
}

// Many bytes are looked at at a time, as messages mostly consist of strings: a byte below n, which is at most
// 128, is one whose high bit n's subtraction sets; a borrow can only come from such a byte, so the lowest bit
// that is set is right.
const (
	width = 8
	ones  = ^uint64(0) / 0xff // 1 in each byte
	highs = ones << 7
	limit = ones * ' '
)

// plainEnd is where, from a place in a string on, something else than its plain characters comes: a quote, a
// backslash, or a control character, which must not stand there. It is the text's length where nothing does.
func plainEnd(text []byte, at int) int {
	const near = 8 * width // names, ids and what stands between escapes mostly end within
	for last := min(at+near, len(text)) - width; at <= last; at += width {
		word := binary.LittleEndian.Uint64(text[at:])
		quotes, escapes := word^ones*'"', word^ones*'\\'
		if special := ((quotes-ones)&^quotes | (escapes-ones)&^escapes | (word-limit)&^word) & highs; special != 0 {
			return at + bits.TrailingZeros64(special)/8
		}
	}
	// The rest is long, and searched faster for one thing after the other; by blocks, because what is found
	// first may be near, and looked for again.
	const block = 1 << 10
	for at < len(text) {
		part := text[at:min(at+block, len(text))]
		whole := len(part)
		if quote := bytes.IndexByte(part, '"'); quote >= 0 {
			part = part[:quote]
		}
		if escape := bytes.IndexByte(part, '\\'); escape >= 0 {
			part = part[:escape]
		}
		if holdsControl(part) {
			return at + slices.IndexFunc(part, func(c byte) bool { return c < ' ' })
		}
		if at += len(part); len(part) < whole {
			break
		}
	}
	return at
}

// holdsControl finds a control character.
func holdsControl(text []byte) bool {
	for len(text) >= 4*width {
		a, b := binary.LittleEndian.Uint64(text), binary.LittleEndian.Uint64(text[width:])
		c, d := binary.LittleEndian.Uint64(text[2*width:]), binary.LittleEndian.Uint64(text[3*width:])
		if ((a-limit)&^a|(b-limit)&^b|(c-limit)&^c|(d-limit)&^d)&highs != 0 {
			return true
		}
		text = text[4*width:]
	}
	for _, c := range text {
		if c < ' ' {
			return true
		}
	}
	return false
}

func validNumber(text []byte, at int) int {
	if text[at] == '-' {
		at++
	}
	switch {
	case at >= len(text) || !isDigit(text[at]):
		return -1
	case text[at] == '0':
		at++
	default:
		at = skipDigits(text, at)
	}
	if at < len(text) && text[at] == '.' {
		if at = skipDigits(text, at+1); !isDigit(text[at-1]) {
			return -1
		}
	}
	if at < len(text) && (text[at] == 'e' || text[at] == 'E') {
		if at++; at < len(text) && (text[at] == '+' || text[at] == '-') {
			at++
		}
		if at = skipDigits(text, at); !isDigit(text[at-1]) {
			return -1
		}
	}
	return at
}

func skipDigits(text []byte, at int) int {
	for at < len(text) && isDigit(text[at]) {
		at++
	}
	return at
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// hexEscape is the length of a \u1234.
const hexEscape = 6

// meaning is what a letter behind a backslash says, or 0 where none may stand there, or u.
func meaning(letter byte) byte {
	switch letter {
	case '"', '\\', '/':
		return letter
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return 0
}

// escapeSize is the length of the escape that a text begins with, or 0 where it is none.
func escapeSize(text []byte) int {
	if len(text) > 1 && meaning(text[1]) != 0 {
		return len(`\n`)
	}
	if _, ok := hexRune(text); ok {
		return hexEscape
	}
	return 0
}

// AppendUnquoted decodes a text that should be one JSON string, and appends what it says. It is not ok for
// what is none, for text that is not UTF-8, and for half surrogates.
func AppendUnquoted(to, literal []byte) (text []byte, ok bool) {
	if len(literal) < len(`""`) || literal[0] != '"' {
		return nil, false
	}
	text = slices.Grow(to, len(literal))
	for at := 1; ; {
		begin := at
		if at = plainEnd(literal, at); at == len(literal) {
			return nil, false
		}
		text = append(text, literal[begin:at]...)
		switch literal[at] {
		case '"':
			return text, at == len(literal)-1 && utf8.Valid(text[len(to):])
		case '\\':
			size := 0
			if text, size = appendUnescaped(text, literal[at:]); size == 0 {
				return nil, false
			}
			at += size
		default:
			return nil, false
		}
	}
}

// appendUnescaped appends what the escape says that a text begins with. Its size is 0 where there is none that
// says a character.
func appendUnescaped(to, text []byte) (longer []byte, size int) {
	if len(text) > 1 {
		if c := meaning(text[1]); c != 0 {
			return append(to, c), len(`\n`)
		}
	}
	r, ok := hexRune(text)
	if !ok {
		return to, 0
	}
	size = hexEscape
	if utf16.IsSurrogate(r) {
		second, ok := hexRune(text[hexEscape:])
		if r = utf16.DecodeRune(r, second); !ok || r == utf8.RuneError {
			return to, 0
		}
		size = 2 * hexEscape
	}
	return utf8.AppendRune(to, r), size
}

// hexRune reads a \u1234.
func hexRune(text []byte) (r rune, ok bool) {
	if len(text) < hexEscape || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	for _, c := range text[2:hexEscape] {
		switch {
		case isDigit(c):
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
