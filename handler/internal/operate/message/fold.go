package message

import (
	"regexp"
	"strings"

	"asynccaller/handler/internal/strictjson"
)

// The placeholders for parts that differ from call to call. They appear in the keys of groups, see [By.Key].
const (
	foldedNumber = "{n}"
	foldedID     = "{id}"
	foldedDate   = "{date}"
)

const maxSegments = 8

// Route returns a path without the parts that differ from call to call, so that all calls of one kind have the same
// route: "/orders/4711" becomes "/orders/{n}". It replaces segments of digits, and three digits or more within a
// segment, by {n}; UUIDs, ULIDs, long tokens with digits and e-mail addresses by {id}; dates by {date}. It keeps
// escapes. The route is printable and has at most 8 segments and 200 bytes; a shortened route ends with "…". It follows
// from the first 512 bytes of the path. An empty path is "/". The route of a route is the route itself.
func Route(path string) string {
	if len(path) > maxPath { // a path may fill a message
		path = strictjson.Clip(path, maxPath) + cutMark
	}
	folded := foldPath(path)
	route := shown(folded, maxKey)
	if route != folded {
		route = shown(foldPath(route), maxKey) // the end of a shortened route may look like an id now
	}
	return route
}

func foldPath(path string) string {
	segments := strings.SplitN(strings.TrimPrefix(path, "/"), "/", maxSegments+1)
	if len(segments) > maxSegments {
		segments[maxSegments] = cutMark
	}
	for i, segment := range segments {
		if number.MatchString(segment) {
			segments[i] = foldedNumber
		} else {
			segments[i] = pieces.ReplaceAllStringFunc(segment, foldPiece)
		}
	}
	return "/" + strings.Join(segments, "/")
}

// foldText folds an error message like a route. It also folds every number that is a word of its own, and every
// address: lines, columns and sizes have one digit or two. It keeps statuses, because they say what went wrong.
func foldText(text string) string {
	statusNext := false
	return shown(pieces.ReplaceAllStringFunc(text, func(piece string) string {
		word := strings.TrimRight(piece, ".:") // the end of a sentence
		keep := statusNext && len(word) == 3 && number.MatchString(word)
		statusNext = word == "answered" || word == "status"
		switch {
		case keep:
			return piece
		case numeric.MatchString(word):
			return foldedNumber + piece[len(word):]
		}
		return foldPiece(piece)
	}), maxKey)
}

const (
	uuidPattern = `[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}`
	datePattern = `[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])`
	// timePattern is a time of day, whose colons and plus may be escaped.
	timePattern = `[Tt][0-9](?:%3[Aa]|%2[Bb]|[0-9Zz+.:-])*`
	endPattern  = `(?:[^0-9A-Za-z]|$)`
)

var (
	// pieces are runs of the characters of ids, escapes and e-mail addresses.
	pieces = regexp.MustCompile(`[0-9A-Za-z_.:~%+@-]+`)
	number = regexp.MustCompile(`^[0-9]+$`)
	// numeric is a number, or several as in an address or a time of day.
	numeric = regexp.MustCompile(`^[.:]*[0-9][0-9.:]*$`)
	escape  = regexp.MustCompile(`^%[0-9A-Fa-f]{2}`)
	uuid    = regexp.MustCompile(`^(` + uuidPattern + `)` + endPattern)
	date    = regexp.MustCompile(`^(?:(` + datePattern + `)` + endPattern + `|(` + datePattern + timePattern + `))`)
	// ulid has no I, L, O and U. A ULID also has a letter.
	ulid = regexp.MustCompile(`^[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$`)
	// longNumber is a number within a name. Fewer digits belong to the name: v1, oauth2.
	longNumber = regexp.MustCompile(`[0-9]{3,}`)
)

// foldPiece folds a match of pieces. It looks at each character a limited number of times.
func foldPiece(piece string) string {
	if isEmail(piece) {
		return foldedID
	}
	var b strings.Builder
	for at := 0; at < len(piece); {
		rest := piece[at:]
		folded, n := rest[:1], 1
		if escape.MatchString(rest) {
			folded, n = rest[:3], 3
		} else if token := span(rest, tokenChars); token > 0 {
			folded, n = foldToken(rest, token)
		}
		b.WriteString(folded)
		at += n
	}
	return b.String()
}

// isEmail reports whether a piece has an at sign, escaped or not, between two names.
func isEmail(piece string) bool {
	for _, sign := range []string{"@", "%40"} {
		name, host, ok := strings.Cut(piece, sign)
		isHost := strings.Contains(strings.Trim(host, "."), ".")
		if ok && name != "" && isHost {
			return true
		}
	}
	return false
}

// foldToken folds the beginning of a text whose first n bytes may be one token, and returns how many bytes it folded.
func foldToken(text string, n int) (folded string, length int) {
	if folded, length := foldKnown(text); length > 0 {
		return folded, length
	}
	for i := 1; i < n; i++ {
		if in(text[i], alnum) && !in(text[i-1], alnum) {
			if _, length := foldKnown(text[i:]); length > 0 {
				n = i // it is folded next, on its own
			}
		}
	}
	if n >= minToken && isMixed(text[:n]) {
		return foldedID, n
	}
	var b strings.Builder
	for length < n {
		folded, run := text[length:length+1], 1
		if in(text[length], alnum) {
			folded, run = foldRun(text[length:])
		}
		b.WriteString(folded)
		length += run
	}
	return b.String(), length
}

// foldKnown returns the placeholder for the UUID or date that a text begins with, and its length; 0 for none.
func foldKnown(text string) (folded string, length int) {
	if m := uuid.FindStringSubmatch(text); m != nil {
		return foldedID, len(m[1])
	}
	if m := date.FindStringSubmatch(text); m != nil {
		return foldedDate, len(m[1] + m[2])
	}
	return "", 0
}

// foldRun folds the letters and digits that a text begins with, and returns how many bytes it folded.
func foldRun(text string) (folded string, length int) {
	run := text[:span(text, alnum)]
	if isToken(run) {
		return foldedID, len(run)
	}
	for length < len(run) {
		if length > 0 {
			if m := uuid.FindStringSubmatch(text[length:]); m != nil {
				return folded + foldedID, length + len(m[1])
			}
		}
		// Each part is folded as it will be when the route is folded again.
		part, digits := run[length:], ""
		if at := longNumber.FindStringIndex(part); at != nil {
			part, digits = part[:at[0]], part[at[0]:at[1]]
		}
		length += len(part) + len(digits)
		if isToken(part) {
			part = foldedID
		}
		folded += part
		if digits != "" {
			folded += foldedNumber
		}
	}
	return folded, length
}

// minToken is a usual length of random text. Words with a digit are shorter.
const minToken = 16

// isToken reports whether letters and digits are an id.
func isToken(run string) bool {
	if number.MatchString(run) {
		return false
	}
	isHex := span(run, hexDigits) == len(run) && strings.ContainsAny(run, digits)
	return ulid.MatchString(run) || len(run) >= minToken && (isHex || isMixed(run))
}

// isMixed reports whether letters and digits alternate as in random text. A capital before a small letter does not
// count, nor do compound words.
func isMixed(text string) bool {
	const enough = 4
	changes := 0
	for i := 1; i < len(text); i++ {
		before, now := text[i-1], text[i]
		same := in(before, digits) == in(now, digits) && in(before, uppers) == in(now, uppers)
		capital := in(before, uppers) && in(now, lowers)
		if in(before, alnum) && in(now, alnum) && !same && !capital {
			changes++
		}
	}
	return changes >= enough && strings.ContainsAny(text, digits)
}

// Sets of characters.
const (
	digits     = "0123456789"
	uppers     = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	lowers     = "abcdefghijklmnopqrstuvwxyz"
	alnum      = digits + uppers + lowers
	hexDigits  = digits + "ABCDEFabcdef"
	tokenChars = alnum + "-_" // base64url
	nameChars  = tokenChars + "."
	spaces     = " \t\r\n"
)

// span returns how many bytes at the beginning of a text are in a set.
func span(text, set string) int { return len(text) - len(strings.TrimLeft(text, set)) }

func in(c byte, set string) bool { return strings.IndexByte(set, c) >= 0 }
