// Package secret knows the names of headers, JSON members and form fields whose values are secret. Redirects to another
// host drop the headers that it names, and output for people masks the values. [Text] is a secret of the operator, and
// [Hide] removes such secrets from answers. It is pure.
package secret

import (
	"slices"
	"strings"
	"unicode"
)

// parts mark a name as secret wherever they appear in it. Names are compared in lower case and without punctuation.
var parts = []string{
	"auth", "token", "secret", "key", "password", "passwd", "pwd", "passphrase", "passcode", "signature", "credential",
	"session", "sessid", "cookie", "bearer", "jwt", "dpop", "saml", "hmac",
	"connectionstring", "connstr", "sasuri", "sasurl",
}

// words mark a name as secret if they are one of its words, and ends if a word ends with them: net/http writes
// X-ClientSig as X-Clientsig. They are too short to look for within other words.
var (
	words = []string{"pass", "pw", "psk", "pin", "sid", "assertion"}
	ends  = []string{"sig", "sas", "otp"}
)

// harmless removes words that contain a part by chance. Idempotency-Key is not secret: it appears in every log.
var harmless = strings.NewReplacer(
	"authoriz", "authoriz", "authoris", "authoris", "author", " ",
	"idempotencykey", " ", "keyboard", " ", "keyword", " ", "monkey", " ",
)

// Is reports whether the value that belongs to a name is secret. It compares words and parts of the name, because no
// list of secret headers is complete.
func Is(name string) bool {
	spaced := split(name)
	for word := range strings.FieldsSeq(spaced) {
		endsSecret := slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(word, end) })
		if endsSecret || slices.Contains(words, word) {
			return true
		}
	}
	bare := harmless.Replace(strings.ReplaceAll(spaced, " ", ""))
	return strings.HasPrefix(strings.ToLower(name), "proxy-") ||
		slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(bare, part) })
}

// split returns the words of a name in lower case, with spaces instead of digits and punctuation: client sig for
// clientSig, Client-Sig, CLIENT_SIG and clientSIG256.
func split(name string) string {
	spaced := make([]byte, 0, 2*len(name))
	var before, earlier rune
	for _, r := range name {
		switch {
		case unicode.IsUpper(r) && unicode.IsLower(before):
			spaced = append(spaced, ' ')
		case unicode.IsLower(r) && unicode.IsUpper(before) && unicode.IsUpper(earlier):
			// the last capital begins a word
			last := len(spaced) - 1
			spaced = append(spaced[:last], ' ', spaced[last])
		}
		earlier, before = before, r
		letter := unicode.ToLower(r)
		if letter < 'a' || letter > 'z' {
			letter = ' '
		}
		spaced = append(spaced, byte(letter))
	}
	return string(spaced)
}
