package message

import "time"

// The intervals of [DueTimes].
const (
	DueMinutes = 60
	DueHours   = 8 * 24
)

// DueTimes counts scheduled messages by their next attempts, without the stale ones. The zero value counts from no
// time.
type DueTimes struct {
	// From is when the intervals begin. Due counts the messages that are due by then.
	From time.Time
	Due  int
	// Minutes and Hours count those that are due later, in each of the next minutes and hours, and Later the others. A
	// message of a minute is also one of an hour.
	Minutes [DueMinutes]int
	Hours   [DueHours]int
	Later   int
}

// Add counts a message.
func (d *DueTimes) Add(m Recorded, stale bool) {
	wait := m.Row.NextAttemptAt.Sub(d.From)
	minute, hour := int(wait/time.Minute), int(wait/time.Hour)
	switch {
	case stale:
		return
	case wait <= 0:
		d.Due++
		return
	case hour >= DueHours:
		d.Later++
		return
	case minute < DueMinutes:
		d.Minutes[minute]++
	}
	d.Hours[hour]++
}
