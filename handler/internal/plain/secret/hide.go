package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"html"
	"strings"
	"unicode/utf8"
)

const (
	// shortest is the length of the shortest text that [Hide] takes for a secret. To replace less would make an answer
	// unreadable, and protect nothing.
	shortest = 4
	// deepest is how many escapes within each other are read: JSON in JSON in JSON has seven backslashes.
	deepest = 8
	// longestEscape exceeds the length of any escape that [escaped] reads.
	longestEscape = 32
	// widest is the number of bytes of a character in UTF-32.
	widest = 4
)

// OfHeader returns what is secret in the value of a header: the value, what follows the scheme of an Authorization,
// and the user and password in Basic.
func OfHeader(value string) []Text {
	secrets := []Text{Text(value)}
	scheme, credential, isPair := strings.Cut(value, " ")
	if !isPair {
		return secrets
	}
	secrets = append(secrets, Text(credential))
	user, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(credential, "="))
	if err == nil && strings.EqualFold(scheme, "Basic") {
		_, password, _ := bytes.Cut(user, []byte(":"))
		secrets = append(secrets, Text(user), Text(password))
	}
	return secrets
}

// Hide returns a text with *** in place of secrets. A secret is found in UTF-8, UTF-16 and UTF-32, and with any of its
// characters escaped as in JSON, JavaScript, URLs and HTML, more than once, too. If the text is cut, the beginning of a
// secret at its end goes, too. Secrets of less than four bytes are not looked for.
func Hide(text []byte, isCut bool, secrets []Text) []byte {
	characters := []rune(`+ \%&`) // with which a secret can begin
	for _, s := range secrets {
		first, _ := utf8.DecodeRuneInString(string(s))
		characters = append(characters, first)
	}
	starts := string(characters)
	var hidden []byte
	kept := 0 // the bytes that are in hidden, or hidden
	for i := 0; i < len(text) && len(secrets) > 0; {
		next := bytes.IndexAny(text[i:], starts)
		if next < 0 {
			break
		}
		i += next
		n, ends := find(text[i:], secrets)
		switch {
		case ends && isCut:
			text = text[:i]
		case n > 0:
			zeros := zerosIn(text[i+1:]) // in UTF-16 and UTF-32
			stars := strings.Join(strings.Split(masked, ""), strings.Repeat("\x00", zeros))
			hidden = append(append(hidden, text[kept:i]...), stars...)
			i += n
			kept = i
		default:
			i++
		}
	}
	if kept > 0 {
		text = append(hidden, text[kept:]...)
	}
	return text
}

// find returns the length of the longest secret at the beginning of a text, or 0, and whether the text ends within one.
func find(text []byte, secrets []Text) (longest int, ends bool) {
	for _, s := range secrets {
		if len(s) < shortest {
			continue
		}
		n, endsInIt := match(text, string(s))
		longest, ends = max(longest, n), ends || endsInIt
	}
	return longest, ends
}

// match returns the length of a secret at the beginning of a text, or 0, and whether the text ends within the secret.
func match(text []byte, want string) (n int, ends bool) {
	escape := len(text) // where the latest character that may begin an escape is
	for want != "" {
		if n > 0 {
			n += zerosIn(text[n:])
		}
		if n == len(text) {
			return 0, true
		}
		if strings.IndexByte(`\%&`, text[n]) >= 0 {
			escape = n
		}
		size, matched := matchCharacter(text[n:], want)
		if matched == 0 {
			return 0, escape < len(text) && len(text)-escape < longestEscape
		}
		n += size
		want = want[matched:]
	}
	return n, false
}

// zerosIn returns the number of zeros at the beginning of a text that belong to a character.
func zerosIn(text []byte) int {
	text = text[:min(len(text), widest-1)]
	return len(text) - len(bytes.TrimLeft(text, "\x00"))
}

// matchCharacter compares the first character of a text with the beginning of a secret, and returns the length of the
// character in both; 0 if they differ. In a form a space is a plus.
func matchCharacter(text []byte, want string) (size, matched int) {
	char, size := escaped(text)
	switch {
	case size > 0 && strings.HasPrefix(want, char):
		return size, len(char)
	case size > 0 && char == "+" && want[0] == ' ':
		return size, 1
	case want[0] == '%' && bytes.HasPrefix(text, []byte("%25")): // whatever follows
		return len("%25"), 1
	case text[0] == want[0], text[0] == '+' && want[0] == ' ', text[0] == ' ' && want[0] == '+':
		return 1, 1
	}
	return 0, 0
}

// escaped returns the character for which the escape at the beginning of a text stands, and the length of the escape,
// or 0 if there is none.
func escaped(text []byte) (char string, size int) {
	n := 1
	switch text[0] {
	case '\\':
		for n < min(len(text), deepest) && text[n] == '\\' {
			n++
		}
		if n == len(text) {
			return "", 0
		}
		end := n
		switch text[n] {
		case 'u':
			end += len("u002f")
		case 'x':
			end += len("x2f")
		}
		code, ok := hexadecimal(text, n+1, end)
		if !ok {
			return string(text[n : n+1]), n + 1
		}
		r := rune(0)
		for _, b := range code {
			r = r<<8 | rune(b)
		}
		return string(r), end
	case '%':
		for n < deepest && bytes.HasPrefix(text[n:], []byte("25")) {
			n += len("25")
		}
		code, ok := hexadecimal(text, n, n+len("2f"))
		if !ok {
			return "", 0
		}
		return string(code), n + len("2f")
	case '&':
		for n < longestEscape/2 && bytes.HasPrefix(text[n:], []byte("amp;")) {
			n += len("amp;")
		}
		end := n + bytes.IndexByte(text[n:min(len(text), longestEscape)], ';') + 1
		char = html.UnescapeString("&" + string(text[n:end]))
		if utf8.RuneCountInString(char) == 1 {
			return char, end
		}
		return "&", n
	}
	return "", 0
}

func hexadecimal(text []byte, from, to int) (code []byte, ok bool) {
	if to <= from || to > len(text) {
		return nil, false
	}
	code, err := hex.AppendDecode(nil, text[from:to])
	return code, err == nil
}
