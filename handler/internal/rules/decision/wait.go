package decision

import (
	"cmp"
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/plain/bounds"
)

// Why a wait does not count, after the name of its header.
const (
	unreadable = "cannot be read"
	past       = "is in the past"
	tooFar     = "is more than 366 days ahead" // MaxAskedWait
)

// usableWait returns the wait that the value of a header asks for, from 0 to [MaxAskedWait]. The problem says why it
// does not count; it is empty if it does.
func usableWait(value string, now time.Time) (wait time.Duration, problem string) {
	wait, ok := readWait(value, now)
	switch {
	case !ok:
		return 0, unreadable
	case wait < 0:
		return 0, past
	case wait > MaxAskedWait:
		return 0, tooFar
	}
	return wait, ""
}

// readWait returns the wait that the value of a header asks for, in whole seconds, rounded up. Of a list the longest
// counts. A wait until a time that has passed is negative. readWait returns false if the value, or an element of the
// list, has none of the forms in docs/retry.md.
func readWait(value string, now time.Time) (wait time.Duration, ok bool) {
	texts := elements(value)
	longest := time.Duration(math.MinInt64)
	for _, text := range texts {
		wait, ok := readElement(text, now)
		if !ok {
			return 0, false
		}
		longest = max(longest, wait)
	}
	longest = min(longest, MaxAskedWait+time.Second) // leaves room to round up
	wait = longest.Truncate(time.Second)
	if wait < longest {
		wait += time.Second
	}
	return wait, len(texts) > 0
}

// nothingLeft reports whether the value of a header that says how much of a rate limit remains says that of one limit
// nothing does. It returns false for ok if the value cannot be read.
func nothingLeft(value string) (is, ok bool) {
	texts := elements(value)
	for _, text := range texts {
		digits, isNegative := strings.CutPrefix(text, "-")
		n, isNumber := parseNumber(digits)
		if !isNumber {
			return false, false
		}
		is = is || isNegative || n == 0
	}
	return is, len(texts) > 0
}

// maxValueBytes is the longest value of a header that is read.
const maxValueBytes = 1024

var (
	// listElement matches an element of a list. The comma after the day of the week does not end a date.
	listElement = regexp.MustCompile(`(?:\s*[A-Za-z]{3,9},)?(?:[^",]|"[^"]*"?)+`)
	// elementParts matches the element's value, with or without quotation marks, and its parameters.
	elementParts = regexp.MustCompile(`^\s*(?:"([^"]*)"|([^";]*))(?:\s*;.*|\s*)$`)
)

// elements returns the values of the elements of a list, or of the single value. An element that cannot be read is
// empty. A value that is too long has no elements.
func elements(value string) (texts []string) {
	if len(value) > maxValueBytes {
		return nil
	}
	for _, element := range listElement.FindAllString(value, -1) {
		if strings.TrimSpace(element) == "" {
			continue
		}
		text := ""
		parts := elementParts.FindStringSubmatch(element)
		if parts != nil {
			text = strings.TrimSpace(parts[1] + parts[2])
		}
		texts = append(texts, text)
	}
	return texts
}

// A number from epochSeconds on is a time since 1970 in seconds, not a wait; from epochMilliseconds on it is one in
// milliseconds.
const (
	epochSeconds      = 1_000_000_000
	epochMilliseconds = 1_000_000_000_000
)

// readElement reads one wait, not rounded.
func readElement(text string, now time.Time) (time.Duration, bool) {
	n, isNumber := parseNumber(text)
	wait, isDuration := parseDuration(text)
	at, isDate := parseDate(text)
	switch {
	case isNumber && n >= epochMilliseconds:
		return sinceEpoch(n).Sub(now), true
	case isNumber && n >= epochSeconds:
		return sinceEpoch(n * 1000).Sub(now), true
	case isNumber:
		return bounds.Seconds(n), true
	case isDuration:
		return wait, true
	}
	return at.Sub(now), isDate
}

func sinceEpoch(milliseconds float64) time.Time {
	const farFuture = 1e15 // longer than any duration
	return time.UnixMilli(int64(math.Round(min(milliseconds, farFuture))))
}

var numberForm = regexp.MustCompile(`^(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)$`)

// parseNumber reads a plain decimal number. One that is too large is infinite.
func parseNumber(text string) (float64, bool) {
	if !numberForm.MatchString(text) {
		return 0, false
	}
	n, _ := strconv.ParseFloat(text, 64)
	return n, true
}

// parseDuration reads a duration without a sign. One that is too long is longer than any that counts.
func parseDuration(text string) (time.Duration, bool) {
	d, err := bounds.ParseDuration(text)
	if errors.Is(err, bounds.ErrTooLong) {
		d, err = math.MaxInt64, nil
	}
	return d, err == nil && !strings.ContainsAny(text[:1], "+-")
}

// dateForm matches the day of the week, the date and time, and the offset from UTC: hours and minutes. Names of zones
// other than UTC count only beside an offset, because not every name has one meaning.
var dateForm = regexp.MustCompile(
	`^(?:(?:MON|TUES?|WED(?:NES)?|THU(?:RS)?|FRI|SAT(?:UR)?|SUN)(?:DAY)?,? ?)?` +
		`(.*?[0-9]:[0-9]{2}(?:\.[0-9]+)?(?: (?:GMT |UTC )?[0-9]{4})?)` +
		` ?(?:GMT|UTC?|Z|(?:GMT|UTC)?([+-][0-9]{2}):?([0-9]{2})?` +
		`(?: (?:[A-Z]{1,5}|[+-][0-9]{2,4}|M=[+-][0-9.]+|\(.*\)))*)?$`)

// dateLayouts are the forms of a date and time beside those of [bounds.ParseTime], in capitals, with single spaces.
var dateLayouts = []string{
	"2 Jan 2006 15:04:05", "2 Jan 06 15:04:05", "2-Jan-2006 15:04:05", "2-Jan-06 15:04:05",
	"Jan 2 15:04:05 2006", "Jan 2 15:04:05 GMT 2006", "Jan 2 15:04:05 UTC 2006", "Jan 2 2006 15:04:05",
}

// parseDate reads a date and time of HTTP, ISO 8601, Go and JavaScript. Without an offset it is in UTC.
func parseDate(text string) (time.Time, bool) {
	text = strings.ToUpper(strings.Join(strings.Fields(text), " "))
	parts := dateForm.FindStringSubmatch(text)
	if parts == nil {
		return time.Time{}, false
	}
	zone := cmp.Or(parts[2], "+00") + cmp.Or(parts[3], "00")
	at, err := bounds.ParseTime(parts[1] + zone)
	for i := 0; err != nil && i < len(dateLayouts); i++ {
		at, err = time.Parse(dateLayouts[i]+" -0700", parts[1]+" "+zone)
	}
	return at, err == nil
}
