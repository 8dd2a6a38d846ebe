// Package secret knows the names of headers, JSON members and form fields whose values are secret. Redirects to another
// host drop the headers that it names, and output for people masks the values. It is pure.
package secret

import (
	"slices"
	"strings"
)

// parts mark a name as secret wherever they appear in it. Names are compared in lower case and without punctuation.
var parts = []string{
	"auth", "token", "secret", "key", "password", "passwd", "pwd", "passphrase", "signature", "credential", "session",
	"cookie", "bearer", "jwt", "connectionstring",
}

// names are secret as a whole. They are too short to look for within other names.
var names = []string{"sig", "sas", "pass", "pin", "assertion"}

// Is reports whether the value that belongs to a name is secret. It compares parts of the name, because no list of
// secret headers is complete. Idempotency-Key is not secret: it appears in every log.
func Is(name string) bool {
	name = strings.ToLower(name)
	bare := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, name)
	if bare == "idempotencykey" {
		return false
	}
	return strings.HasPrefix(name, "proxy-") || slices.Contains(names, bare) ||
		slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(bare, part) })
}
