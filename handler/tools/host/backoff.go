package host

import (
	"math"
	"time"
)

const (
	// shortestPoll is the first wait after an empty poll.
	shortestPoll = 100 * time.Millisecond
	// longestPoll is the host's default for maxPollingInterval, and developmentPoll what a Development
	// host makes of that.
	longestPoll     = time.Minute
	developmentPoll = 2 * time.Second
	// pollSpread is how far a random wait lies from its middle, either way.
	pollSpread = 0.2
)

// backoff is the wait between polls that find nothing: section D.2 of the Functions host contract.
type backoff struct {
	longest time.Duration
	empty   int // polls since the latest message
	capped  bool
}

// pollLimit is the longest wait between polls. The default cannot be told from the same value asked
// for, and a Development host shortens both.
func pollLimit(maxPollingInterval time.Duration) time.Duration {
	if maxPollingInterval == 0 || maxPollingInterval == longestPoll {
		return developmentPoll
	}
	return maxPollingInterval
}

// found starts again at the shortest wait.
func (b *backoff) found() { b.empty, b.capped = 0, false }

// next returns the wait after an empty poll; random is in [0,1).
func (b *backoff) next(random float64) time.Duration {
	if b.capped {
		return b.longest
	}
	wait := shortestPoll.Seconds()
	if b.empty > 0 {
		wait += (1 - pollSpread + 2*pollSpread*random) * math.Pow(2, float64(b.empty-1)) * shortestPoll.Seconds()
	}
	b.empty++
	if wait >= b.longest.Seconds() {
		b.capped = true
		return b.longest
	}
	return time.Duration(wait * float64(time.Second))
}
