package storage

import "time"

// Differences between the clock of storage and that of a machine.
const (
	// ClockDifference is usual among machines that synchronize their clocks.
	ClockDifference = 5 * time.Second
	// ClockWarning is worth a warning.
	ClockWarning = time.Minute
	// ClockLimit is the difference from which storage refuses signatures
	// (https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key).
	ClockLimit = 15 * time.Minute
	// ClockMaximum is larger than any difference of a machine that works.
	ClockMaximum = 24 * time.Hour
)

// NeverExpires is the expiry that storage reports for a message that never expires.
var NeverExpires = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)

// WallTime returns the time without a monotonic clock reading: a lease goes on while this machine sleeps.
func WallTime() time.Time { return time.Now().Round(0) }
