//go:build long

package e2e_test

import (
	"testing"
	"time"
)

// TestManyPosts is TestPostsDuringAnOutage with many posts.
func TestManyPosts(t *testing.T) {
	needsHost(t, noPostsYet)
	onlyLocal(t, noPosts)
	postMany(t, 10_000, 5*time.Second)
}
