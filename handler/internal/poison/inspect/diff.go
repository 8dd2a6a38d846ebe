package inspect

import (
	"bytes"

	"github.com/rogpeppe/go-internal/diff"
)

// Diff tells what differs between two contents, as [ShowContent] lays them out, line by line in the unified
// format. It is empty when they are equal. A secret that differs is "*** (changed)" after. Contents that
// look the same and are not, because they differ in spacing or behind what is shown, make one line that says
// so.
func Diff(before, after []byte, secrets Secrets) []byte {
	if bytes.Equal(before, after) {
		return nil
	}
	was, is := newMasker(secrets), newMasker(secrets)
	old := was.content(before)
	is.before = was.hidden
	changes := diff.Diff("before", old, "after", is.content(after))
	if changes == nil {
		return []byte("(they differ only in what is not shown, such as spacing)\n")
	}
	_, changes, _ = bytes.Cut(changes, []byte("\n")) // a line that names a command
	return changes
}
