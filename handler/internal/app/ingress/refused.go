package ingress

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/storage"
)

const (
	refusedEvery = time.Minute
	// maxRefusedLines is how many refused posts of a function have a line of their own in refusedEvery.
	maxRefusedLines = 10
)

// RefusedPosts counts the posts that are refused. [RefusedPosts.Run] logs their number once a minute: they leave no
// other trace, and a sender may not look at its answers. The zero value has counted none; nil counts nothing.
type RefusedPosts struct {
	mu     sync.Mutex
	counts map[string]int
}

// add counts a post that a function refuses, and reports whether it has a line of its own.
func (c *RefusedPosts) add(function string) bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[function]++
	return c.counts[function] <= maxRefusedLines
}

// take returns the counts since it was last called.
func (c *RefusedPosts) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.counts
	c.counts = nil
	return counts
}

// Run logs the counts once a minute until ctx ends.
func (c *RefusedPosts) Run(ctx context.Context, log zerolog.Logger) {
	for storage.Sleep(ctx, refusedEvery) {
		counts := c.take()
		for _, function := range slices.Sorted(maps.Keys(counts)) {
			line := log.Warn().Str(logs.Function, function).Int(logs.Posts, counts[function])
			if left := counts[function] - maxRefusedLines; left > 0 {
				line.Str(logs.LeftOut, fmt.Sprintf("the lines of %d of them", left))
			}
			line.Msg("posts were refused in the last minute")
		}
	}
}
