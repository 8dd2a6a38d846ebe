package cli

import (
	"math"
	"strconv"
	"time"
)

// moment formats a time to the millisecond. The last one of the year 9999 is not rounded up.
func moment(t time.Time) string {
	t = t.UTC()
	rounded := t.Round(time.Millisecond)
	if rounded.Year() <= 9999 {
		t = rounded
	}
	return t.Format("2006-01-02T15:04:05.999Z07:00")
}

// exactly formats a duration to the second.
func exactly[D ~int64](d D) string { return units(time.Duration(d), 4) }

// age formats a duration in its largest unit.
func age(d time.Duration) string { return units(max(d, 0).Truncate(time.Second), 1) }

// units formats a duration with at most the given number of units. It cuts the rest and does not round.
func units(d time.Duration, most int) string {
	if d >= time.Duration(math.MaxInt64).Truncate(time.Second) { // the largest result of time.Time.Sub
		return "over 292 years"
	}
	d = d.Round(100 * time.Millisecond) // the largest jitter is some nanoseconds short of its bound
	switch {
	case d < 0:
		return "-" + units(-max(d, -math.MaxInt64), most) // the shortest duration has no opposite
	case d < time.Minute:
		return d.String() // 0s, 1.5s
	}
	text := ""
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		n := int(d / unit.size)
		isLeading := n == 0 && text == ""
		if most == 0 || isLeading {
			continue
		}
		d %= unit.size
		if n > 0 {
			text += strconv.Itoa(n) + unit.name
		}
		most--
	}
	return text
}

// thousands formats a number with thousands separators.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// plural formats a number with a noun.
func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return thousands(n) + " " + noun
}

func messages(n int) string { return plural(n, "message") }
