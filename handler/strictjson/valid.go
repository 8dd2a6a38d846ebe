package strictjson

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
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
	if end := shortEnd(text, at); end >= 0 {
		return end
	}
	end := StringEnd(text, at)
	if end < 0 || holdsControl(text[at:end]) {
		return -1
	}
	for at < end {
		escape := bytes.IndexByte(text[at:end], '\\')
		if escape < 0 {
			break
		}
		at += escape
		switch {
		case strings.IndexByte(escapeLetters, text[at+1]) >= 0:
			at += 2
		default:
			if _, ok := hexRune(text[at:end]); !ok {
				return -1
			}
			at += hexEscape
		}
	}
	return end
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

// shortEnd is where a string ends that is short and has no escapes, as names and ids are. It returns -1 where
// it finds no such string: what there is a closer look tells.
func shortEnd(text []byte, at int) int {
	const short = 8 * width
	if at >= len(text) || text[at] != '"' {
		return -1
	}
	at++
	for last := min(at+short, len(text)) - width; at <= last; at += width {
		word := binary.LittleEndian.Uint64(text[at:])
		quotes, escapes := word^ones*'"', word^ones*'\\'
		if special := ((quotes-ones)&^quotes | (escapes-ones)&^escapes | (word-limit)&^word) & highs; special != 0 {
			if at += bits.TrailingZeros64(special) / 8; text[at] == '"' {
				return at + 1
			}
			return -1
		}
	}
	return -1
}

// holdsControl finds a control character, which must not stand in a string.
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

// What may stand behind a backslash but u, and what it means.
const (
	escapeLetters  = `"\/bfnrt`
	escapeMeanings = "\"\\/\b\f\n\r\t"
	// hexEscape is the length of a \u1234.
	hexEscape = 6
)

// AppendUnquoted decodes a text that should be one JSON string, and appends what it says. It is not ok for
// what is none, for text that is not UTF-8, and for half surrogates.
func AppendUnquoted(to, literal []byte) (text []byte, ok bool) {
	if len(literal) == 0 || StringEnd(literal, 0) != len(literal) || holdsControl(literal) {
		return nil, false
	}
	rest := literal[1 : len(literal)-1]
	text = slices.Grow(to, len(rest))
	for {
		escape := bytes.IndexByte(rest, '\\')
		if escape < 0 {
			text = append(text, rest...)
			return text, utf8.Valid(text[len(to):])
		}
		r, size := unescape(rest[escape:])
		if size == 0 {
			return nil, false
		}
		text, rest = utf8.AppendRune(append(text, rest[:escape]...), r), rest[escape+size:]
	}
}

// unescape reads the escape that a text begins with. Its size is 0 where there is none that says a character.
func unescape(text []byte) (r rune, size int) {
	if len(text) < 2 || text[0] != '\\' {
		return 0, 0
	}
	if at := strings.IndexByte(escapeLetters, text[1]); at >= 0 {
		return rune(escapeMeanings[at]), 2
	}
	r, ok := hexRune(text)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, hexEscape
	}
	second, ok := hexRune(text[hexEscape:])
	if r = utf16.DecodeRune(r, second); !ok || r == utf8.RuneError {
		return 0, 0
	}
	return r, 2 * hexEscape
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
