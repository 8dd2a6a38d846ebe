//go:build unix

package journal

import (
	"os"
	"syscall"
)

// isOfOther reports whether another user owns a folder, or the symbolic link in its place.
func isOfOther(path string) bool {
	about, err := os.Lstat(path)
	if err != nil {
		return false // it is created
	}
	owner, ok := about.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) != os.Geteuid()
}
