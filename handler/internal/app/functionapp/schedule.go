package functionapp

import (
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

var errSchedule = errors.New(`it is not an NCRONTAB expression of 5 or 6 fields, such as "0 0 * * * *"`)

// longName matches the name of a day or a month, which the library knows by three letters only.
var longName = regexp.MustCompile(`(?i)\b(?:(?:sun|mon|tues|wednes|thurs|fri|satur)day|january|february|march|` +
	`april|june|july|august|september|october|november|december)\b`)

// ParseCron reads an NCRONTAB expression as the host does (docs/host.md, "Timers"), in UTC. The error does not repeat
// the text, which may come from a setting.
func ParseCron(text string) (*cron.SpecSchedule, error) {
	// The library also knows question marks, and time zones, with which it panics if nothing follows.
	if strings.ContainsAny(text, "?=") {
		return nil, errSchedule
	}
	text = longName.ReplaceAllStringFunc(text, func(name string) string { return name[:len("jan")] })
	parser := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	parsed, err := parser.Parse(text)
	schedule, ok := parsed.(*cron.SpecSchedule)
	if err != nil || !ok {
		return nil, errSchedule
	}
	const star = 1 << 63 // the library's mark of a day field that is *; without it, one matching day field is enough
	schedule.Dom |= star
	schedule.Location = time.UTC
	return schedule, nil
}

// CheckSchedule checks that the host can read the schedule: an NCRONTAB expression or an interval. The error does not
// repeat it.
func (t Timer) CheckSchedule() error {
	_, err := ParseCron(t.Schedule)
	if err == nil {
		return nil
	}
	interval, notInterval := parseTimeSpan(t.Schedule)
	if notInterval == nil && interval > 0 {
		return nil
	}
	return err
}
