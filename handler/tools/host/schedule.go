package host

import (
	"errors"
	"fmt"
	"math/bits"
	"regexp"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"asynccaller/handler/internal/functionapp"
)

const (
	// shortestInterval is also the shortest that NCRONTAB can express.
	shortestInterval = time.Second
	longestInterval  = 3650 * 24 * time.Hour
)

// schedule is when a timer function runs. parseSchedule returns one; the zero value is never.
//
// Its times are in UTC, as the host's are unless WEBSITE_TIME_ZONE is set, which is ignored here.
type schedule struct {
	// text is the schedule as written, with single spaces.
	text string
	next cron.Schedule
	// frequent means that it comes more than once in every minute. The host stores no status of such a timer.
	frequent bool
}

// parseSchedule reads a schedule as the host does: NCRONTAB of five fields (minute, hour, day of month, month, day
// of week) or of six (with seconds in front), or an interval as hh:mm:ss, which the host supports on App Service
// plans only. Settings in percent signs must be resolved.
//
// A day must match both the day of month and the day of week, unlike in classic cron. Months and days may be English
// names, or their beginnings of three letters or more. The error does not repeat the schedule, which may come from a
// setting.
func parseSchedule(text string) (schedule, error) {
	fields := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' }) // the host does not split at tabs
	parsed := schedule{text: strings.Join(fields, " ")}
	var err error
	switch count := len(fields); {
	case count == 1 && strings.Contains(fields[0], ":"):
		parsed.next, parsed.frequent, err = parseInterval(fields[0])
	case count == 5 || count == 6:
		parsed.next, parsed.frequent, err = parseCron(fields)
	default:
		err = fmt.Errorf(`it has %d fields: give 5 or 6, such as "0 0 * * * *", or an interval as hh:mm:ss`, count)
	}
	if err == nil && parsed.after(time.Unix(0, 0)).IsZero() {
		err = errors.New("it never comes: no month that it names has a day that it names")
	}
	if err != nil {
		return schedule{}, err
	}
	return parsed, nil
}

// after returns the schedule's first time after the given one, in UTC. The zero time means never.
func (s schedule) after(begin time.Time) time.Time {
	if s.next == nil {
		return time.Time{}
	}
	// The library looks five years ahead, but 29 February may be on a Monday only after 40 years.
	const years, tries = 5, 9
	begin = begin.UTC()
	for range tries {
		if next := s.next.Next(begin); !next.IsZero() {
			return next
		}
		begin = begin.AddDate(years, 0, 0)
	}
	return time.Time{}
}

func parseInterval(text string) (_ cron.Schedule, frequent bool, err error) {
	interval, err := functionapp.ParseTimeSpan(text)
	if err != nil || interval < shortestInterval || interval > longestInterval {
		return nil, false, errors.New("it is not a usable interval: give hh:mm:ss from 00:00:01 to 23:59:59, with days as d.hh:mm:ss")
	}
	return cron.ConstantDelaySchedule{Delay: interval}, interval < time.Minute, nil
}

// cronFields are the fields of an NCRONTAB expression.
var cronFields = []struct {
	name, values string
	option       cron.ParseOption
}{
	{"second", "0-59", cron.Second},
	{"minute", "0-59", cron.Minute},
	{"hour", "0-23", cron.Hour},
	{"day of month", "1-31", cron.Dom},
	{"month", "1-12 or names", cron.Month},
	{"day of week", "0-6 or names", cron.Dow},
}

const (
	cronValue   = `([0-9]{1,9}|[A-Za-z]{3,9})`
	cronElement = `(\*|` + cronValue + `(-` + cronValue + `)?)(/[0-9]{1,9})?`
)

var (
	// validField matches what the host accepts. The library also accepts ?, *-5, +5, empty elements and @every, and
	// panics on a time zone without an expression.
	validField = regexp.MustCompile(`^` + cronElement + `(,` + cronElement + `)*$`)
	cronName   = regexp.MustCompile(`[A-Za-z]+`)
	cronNames  = strings.Fields("january february march april may june july august september october november december " +
		"sunday monday tuesday wednesday thursday friday saturday")
)

func parseCron(fields []string) (_ cron.Schedule, frequent bool, err error) {
	kinds := cronFields[len(cronFields)-len(fields):]
	for i, kind := range kinds {
		fields[i] = cronName.ReplaceAllStringFunc(fields[i], abbreviate)
		valid := validField.MatchString(fields[i])
		if valid {
			_, err := cron.NewParser(kind.option).Parse(fields[i])
			valid = err == nil
		}
		if !valid {
			return nil, false, fmt.Errorf("its %s (field %d) is invalid: give %s, with * , - and / only, and ranges upwards", kind.name, i+1, kind.values)
		}
	}
	parser := cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	parsed, err := parser.Parse(strings.Join(fields, " "))
	spec, ok := parsed.(*cron.SpecSchedule)
	if err != nil || !ok {
		return nil, false, errors.New(`it is not an NCRONTAB expression such as "0 0 * * * *"`)
	}
	const star = 1 << 63 // the library's mark of a day field that is *; without it, one matching field is enough
	every := func(field uint64, values int) bool { return bits.OnesCount64(field&^star) == values }
	frequent = bits.OnesCount64(spec.Second&^star) > 1 &&
		every(spec.Minute, 60) && every(spec.Hour, 24) && every(spec.Dom, 31) && every(spec.Month, 12) && every(spec.Dow, 7)
	spec.Dom |= star
	spec.Location = time.UTC
	return spec, frequent, nil
}

// abbreviate returns the first three letters of a name of a month or day, or of its beginning: the library
// understands only those.
func abbreviate(word string) string {
	for _, name := range cronNames {
		if strings.HasPrefix(name, strings.ToLower(word)) {
			return word[:min(len(word), 3)]
		}
	}
	return word
}
