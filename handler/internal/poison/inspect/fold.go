package inspect

import "strings"

// What stands for what differs from call to call. These words are part of the keys of groups, see [By.Key].
const (
	foldedNumber = "{n}"
	foldedID     = "{id}"
	foldedDate   = "{date}"
)

const maxSegments = 8

// Route is a path without what differs from call to call, so that calls of one kind have the same:
// "/orders/4711" is "/orders/{n}". Segments of digits, and three digits or more within a segment, become {n}; UUIDs,
// ULIDs, long tokens with digits and e-mail addresses {id}; dates {date}. Escapes stay as they are. It is
// printable, of at most 8 segments and 200 bytes; a route that is cut ends with "…". An empty path is "/".
// Folding a route changes nothing.
func Route(path string) string {
	folded := foldPath(path)
	route := shown(folded, maxKey)
	if route != folded {
		route = shown(foldPath(route), maxKey) // the end of what was cut may look like an id now
	}
	return route
}

func foldPath(path string) string {
	segments := strings.SplitN(strings.TrimPrefix(path, "/"), "/", maxSegments+1)
	if len(segments) > maxSegments {
		segments[maxSegments] = cutMark
	}
	var b strings.Builder
	for _, segment := range segments {
		b.WriteByte('/')
		if isNumber(segment) {
			b.WriteString(foldedNumber)
			continue
		}
		foldPieces(&b, segment, foldPiece)
	}
	return b.String()
}

// foldText folds what an error says. It is Route's rule, but that every number is folded that is a word of
// its own, and every address: lines, columns and sizes have one digit or two. A status says what went wrong,
// and stays.
func foldText(text string) string {
	var b strings.Builder
	statusNext := false
	foldPieces(&b, text, func(b *strings.Builder, piece string) {
		word := strings.TrimRight(piece, ".:") // the end of a sentence
		switch {
		case isNumber(word) && statusNext && len(word) == 3:
			b.WriteString(piece)
		case isNumeric(word):
			b.WriteString(foldedNumber + piece[len(word):])
		default:
			foldPiece(b, piece)
		}
		statusNext = word == "answered" || word == "status"
	})
	return shown(b.String(), maxKey)
}

// foldPieces hands over each run of characters that an id, an escape or an e-mail address can have, and
// leaves the rest as it is.
func foldPieces(b *strings.Builder, text string, fold func(b *strings.Builder, piece string)) {
	for at := 0; at < len(text); {
		end := at
		for end < len(text) && inPiece(text[end]) {
			end++
		}
		if end == at {
			b.WriteByte(text[at])
			at++
			continue
		}
		fold(b, text[at:end])
		at = end
	}
}

func inPiece(c byte) bool {
	return isAlnum(c) || strings.IndexByte("-_.:~%+@", c) >= 0
}

// foldPiece folds a run of the characters that inPiece accepts. It looks at each of them a bounded number of
// times, because a path may fill a message.
func foldPiece(b *strings.Builder, piece string) {
	if isEmail(piece) {
		b.WriteString(foldedID)
		return
	}
	for at := 0; at < len(piece); {
		token := piece[at:][:spanOf(piece[at:], inToken)]
		switch {
		case isEscape(piece[at:]):
			b.WriteString(piece[at : at+3])
			at += 3
		case token == "":
			b.WriteByte(piece[at])
			at++
		default:
			at += foldToken(b, piece[at:], len(token))
		}
	}
}

// inToken reports whether a character can stand in base64url.
func inToken(c byte) bool { return isAlnum(c) || c == '-' || c == '_' }

// foldToken folds the beginning of a text whose first n bytes could be one token, and returns how much.
func foldToken(b *strings.Builder, text string, n int) int {
	if folded, length := knownForm(text); length > 0 {
		b.WriteString(folded)
		return length
	}
	for i := 1; i < n; i++ {
		if _, length := knownForm(text[i:]); length > 0 && isAlnum(text[i]) && !isAlnum(text[i-1]) {
			n = i // it is folded next, on its own
		}
	}
	if n >= minToken && isMixed(text[:n]) {
		b.WriteString(foldedID)
		return n
	}
	for at := 0; at < n; {
		if !isAlnum(text[at]) {
			b.WriteByte(text[at])
			at++
			continue
		}
		length := foldRun(b, text[at:])
		if at += length; at > n {
			return at
		}
	}
	return n
}

// knownForm returns what stands for the UUID or the date that a text begins with, and its length.
func knownForm(text string) (folded string, length int) {
	if isUUID(text) {
		return foldedID, uuidLength
	}
	return foldedDate, dateLength(text)
}

// foldRun folds the letters and digits that a text begins with, and returns how many bytes that took.
func foldRun(b *strings.Builder, text string) int {
	run := text[:spanOf(text, isAlnum)]
	if isToken(run) {
		b.WriteString(foldedID)
		return len(run)
	}
	for at := 0; at < len(run); {
		// Each part is judged as it will be when the route is folded again.
		part := run[at:][:untilNumber(run[at:])]
		switch {
		case at > 0 && isUUID(text[at:]):
			b.WriteString(foldedID)
			return at + uuidLength
		case isToken(part):
			b.WriteString(foldedID)
		default:
			b.WriteString(part)
		}
		at += len(part)
		if number := spanOf(run[at:], isDigit); number > 0 {
			b.WriteString(foldedNumber)
			at += number
		}
	}
	return len(run)
}

// minNumber is how many digits within a name are a number. Fewer are part of it: v1, oauth2.
const minNumber = 3

// untilNumber is the length of what comes before a text's first number.
func untilNumber(text string) int {
	digits := 0
	for i := range len(text) {
		if !isDigit(text[i]) {
			digits = 0
			continue
		}
		if digits++; digits == minNumber {
			return i + 1 - minNumber
		}
	}
	return len(text)
}

// minToken is the length that random text has and a word with a digit hardly ever.
const minToken = 16

// isToken reports whether letters and digits are an id.
func isToken(run string) bool {
	return isULID(run) || len(run) >= minToken && spanOf(run, isDigit) < len(run) && (isHex(run) || isMixed(run))
}

func isHex(run string) bool {
	return spanOf(run, isHexDigit) == len(run) && strings.ContainsAny(run, "0123456789")
}

// isMixed reports whether letters and digits alternate as they do in random text. That a capital is followed
// by small letters does not count, nor do words that are put together.
func isMixed(text string) bool {
	const enough = 4
	changes, digits := 0, 0
	for i := range len(text) {
		if isDigit(text[i]) {
			digits++
		}
		if i == 0 || !isAlnum(text[i]) || !isAlnum(text[i-1]) {
			continue
		}
		before, now := classOf(text[i-1]), classOf(text[i])
		if before != now && (before != upper || now != lower) {
			changes++
		}
	}
	return digits > 0 && changes >= enough
}

type charClass int

const (
	digit charClass = iota
	upper
	lower
)

func classOf(c byte) charClass {
	switch {
	case isDigit(c):
		return digit
	case c <= 'Z':
		return upper
	}
	return lower
}

// isULID knows a ULID by its length and its alphabet, which has no I, L, O and U.
func isULID(run string) bool {
	return len(run) == 26 && run[0] <= '7' && spanOf(run, func(c byte) bool { return !strings.ContainsRune("ILOUilou", rune(c)) }) == len(run) &&
		spanOf(run, isDigit) < len(run)
}

const uuidLength = 36

func isUUID(text string) bool {
	if len(text) < uuidLength || len(text) > uuidLength && isAlnum(text[uuidLength]) {
		return false
	}
	for i := range uuidLength {
		switch i {
		case 8, 13, 18, 23:
			if text[i] != '-' {
				return false
			}
		default:
			if !isHexDigit(text[i]) {
				return false
			}
		}
	}
	return true
}

// dateLength is the length of the date that a text begins with, and of the time of day behind it; 0 for none.
func dateLength(text string) int {
	const layout = "dddd-dd-dd"
	if len(text) < len(layout) {
		return 0
	}
	for i := range len(layout) {
		if layout[i] == 'd' && !isDigit(text[i]) || layout[i] == '-' && text[i] != '-' {
			return 0
		}
	}
	if month, day := text[5:7], text[8:10]; month < "01" || month > "12" || day < "01" || day > "31" {
		return 0
	}
	rest := text[len(layout):]
	switch {
	case rest == "" || !isAlnum(rest[0]):
		return len(layout)
	case len(rest) > 1 && (rest[0] == 'T' || rest[0] == 't') && isDigit(rest[1]):
		return len(layout) + timeLength(rest)
	}
	return 0
}

// timeLength is the length of a time of day that begins with "T". Its colons and plus may be escaped.
func timeLength(text string) int {
	at := 1
	for at < len(text) {
		switch {
		case isEscape(text[at:]) && (strings.EqualFold(text[at:at+3], "%3A") || strings.EqualFold(text[at:at+3], "%2B")):
			at += 3
		case isDigit(text[at]) || strings.IndexByte("Zz+-.:", text[at]) >= 0:
			at++
		default:
			return at
		}
	}
	return at
}

// isEmail reports whether a piece has an at sign, escaped or not, between two names.
func isEmail(piece string) bool {
	for _, sign := range []string{"@", "%40"} {
		if name, host, ok := strings.Cut(piece, sign); ok && name != "" && strings.Contains(strings.Trim(host, "."), ".") {
			return true
		}
	}
	return false
}

// isNumber reports whether a text is all digits.
func isNumber(text string) bool { return text != "" && spanOf(text, isDigit) == len(text) }

// isNumeric reports whether a text is a number, or several as in an address or a time of day.
func isNumeric(text string) bool {
	return isNumber(strings.Map(func(r rune) rune {
		if r == '.' || r == ':' {
			return -1
		}
		return r
	}, text))
}

func isEscape(text string) bool {
	return len(text) >= 3 && text[0] == '%' && isHexDigit(text[1]) && isHexDigit(text[2])
}

// spanOf is how many bytes at the beginning of a text satisfy the condition.
func spanOf(text string, is func(c byte) bool) int {
	n := 0
	for n < len(text) && is(text[n]) {
		n++
	}
	return n
}

func isAlnum(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHexDigit(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
