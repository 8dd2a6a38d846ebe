package inspect

import (
	"bytes"

	"github.com/rogpeppe/go-internal/diff"
)

// Diff compares two contents as [ShowContent] shows them, line by line in the unified format. It is empty if they are equal.
// A secret that differs becomes "*** (changed)". If the contents differ only in spacing or beyond the limits, Diff returns
// one line that says so.
func Diff(before, after []byte, secrets Secrets) []byte {
	if bytes.Equal(before, after) {
		return nil
	}
	was, is := newMasker(secrets), newMasker(secrets)
	old := was.content(before)
	is.before = was.hidden
	changes := diff.Diff("before", old, "after", is.content(after))
	if changes == nil {
		return []byte("(the differences are not shown: they are spacing, or beyond the limit)\n")
	}
	_, changes, _ = bytes.Cut(changes, []byte("\n")) // the first line names a command
	return changes
}
