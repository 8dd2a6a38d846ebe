package azure

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// clock is storage's clock, as its answers show it.
type clock struct {
	next policy.Transporter
	// ahead is how much storage's clock is ahead of this machine's, in nanoseconds.
	ahead atomic.Int64
}

// tolerated is the difference of two clocks that is not corrected. The time in an answer is in whole seconds.
const tolerated = time.Second

// Do implements [policy.Transporter].
func (c *clock) Do(req *http.Request) (*http.Response, error) {
	began := time.Now()
	response, err := c.next.Do(req)
	if err != nil {
		return response, err
	}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		half := time.Since(began) / 2
		c.ahead.Store(int64(difference(date.Add(time.Second/2), began.Add(half))))
	}
	return response, nil
}

// difference returns how much storage's time is ahead, or zero if it is about the same.
func difference(storage, local time.Time) time.Duration {
	ahead := storage.Sub(local)
	if ahead.Abs() <= tolerated {
		return 0
	}
	return ahead
}

// Now returns storage's time. It is that of this machine until storage has answered.
func (t *Table) Now() time.Time { return time.Now().Add(time.Duration(t.clock.ahead.Load())) }
