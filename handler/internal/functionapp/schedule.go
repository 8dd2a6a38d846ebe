package functionapp

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

const (
	// shortestInterval keeps a timer from spinning; NCRONTAB cannot ask for less either.
	shortestInterval = time.Second
	longestInterval  = 3650 * 24 * time.Hour
	// searchYears is how far ahead the cron library looks for a date.
	searchYears = 5
	// everyBit is the library's mark of a field that was written as *. Where neither day field has it,
	// the library runs on days that match one of them.
	everyBit = 1 << 63
)

// Schedule says when a timer function runs. It is made by [ParseSchedule]; the zero value means never.
//
// Its times are UTC, as the host's are unless WEBSITE_TIME_ZONE says otherwise, which is not read here.
type Schedule struct {
	text string
	// One of the two is set.
	cron  *cron.SpecSchedule
	every time.Duration
}

// ParseSchedule reads a schedule as the host does: NCRONTAB of five fields (minute, hour, day of month,
// month, day of week) or of six (with seconds in front), or an interval as hh:mm:ss, which the host takes
// on App Service plans only. It takes no settings in percent signs.
//
// A day must match the day of month and the day of week, where classic cron is content with one of them.
// Names of months and days may be English names or their beginnings, three letters or more. The error
// says what is wrong without the schedule's text, because that may come from a setting.
func ParseSchedule(text string) (Schedule, error) {
	// Only blanks separate: the host does not split at a tab.
	fields := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' })
	schedule := Schedule{text: strings.Join(fields, " ")}
	var err error
	switch count := len(fields); {
	case count == 1 && strings.Contains(fields[0], ":"):
		schedule.every, err = parseInterval(fields[0])
	case count == 5 || count == 6:
		schedule.cron, err = parseCron(fields)
	default:
		err = fmt.Errorf(`it has %d fields: give 5 or 6, such as "0 0 * * * *", or an interval as hh:mm:ss`, count)
	}
	if err != nil {
		return Schedule{}, err
	}
	return schedule, nil
}

// Next returns the schedule's first time later than the given one, in UTC; the zero time means never.
func (s Schedule) Next(after time.Time) time.Time {
	after = after.UTC()
	if s.cron == nil {
		if s.every == 0 {
			return time.Time{}
		}
		return after.Add(s.every)
	}
	for {
		if next := s.cron.Next(after); !next.IsZero() {
			return next
		}
		// A Monday that is 29 February comes once in 28 years. ParseSchedule saw to it that the date
		// exists, so this ends.
		after = after.AddDate(searchYears, 0, 0)
	}
}

// String returns the schedule as it was written, settings filled in, with single spaces.
func (s Schedule) String() string { return s.text }

func parseInterval(text string) (time.Duration, error) {
	every, err := parseTimeSpan(text)
	if err != nil || every < shortestInterval || every > longestInterval {
		return 0, errors.New("it is no interval that works: give hh:mm:ss from 00:00:01 to 23:59:59, days in front as d.hh:mm:ss")
	}
	return every, nil
}

// cronField is one field of an NCRONTAB expression.
type cronField struct {
	name, values string
	option       cron.ParseOption
	names        []string // in the order of their numbers
	first        int      // the first name's number
}

var cronFields = []cronField{
	{name: "second", values: "0-59", option: cron.Second},
	{name: "minute", values: "0-59", option: cron.Minute},
	{name: "hour", values: "0-23", option: cron.Hour},
	{name: "day of month", values: "1-31", option: cron.Dom},
	{name: "month", values: "1-12 or names", option: cron.Month, first: 1, names: []string{
		"january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december",
	}},
	{name: "day of week", values: "0-6 or names", option: cron.Dow, names: []string{
		"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday",
	}},
}

var (
	cronParser = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	// The library takes more than the host: ?, *-5, +5, empty elements, @every, a time zone in front.
	validField = regexp.MustCompile(`^` + cronElement + `(,` + cronElement + `)*$`)
	cronName   = regexp.MustCompile(`[A-Za-z]+`)
)

const (
	cronValue   = `([0-9]{1,9}|[A-Za-z]{3,9})`
	cronElement = `(\*|` + cronValue + `(-` + cronValue + `)?)(/[0-9]{1,9})?`
)

func parseCron(fields []string) (*cron.SpecSchedule, error) {
	kinds := cronFields[len(cronFields)-len(fields):]
	numbers := make([]string, len(fields))
	for i, kind := range kinds {
		numbers[i] = kind.numbers(fields[i])
		if !kind.takes(numbers[i]) {
			return nil, fmt.Errorf("its %s (field %d) is not understood: give %s, with * , - and / only, ranges upwards", kind.name, i+1, kind.values)
		}
	}
	parsed, err := cronParser.Parse(strings.Join(numbers, " "))
	spec, ok := parsed.(*cron.SpecSchedule)
	if err != nil || !ok {
		return nil, errors.New(`it is no NCRONTAB expression such as "0 0 * * * *"`)
	}
	spec.Dom |= everyBit // NCRONTAB wants both days to match
	spec.Location = time.UTC
	if !dateExists(spec) {
		return nil, errors.New("it never comes: no month that it names has a day that it names")
	}
	return spec, nil
}

// numbers replaces names by their numbers, because the library knows names of three letters only. What is
// no name stays, and is refused as such.
func (f cronField) numbers(text string) string {
	return cronName.ReplaceAllStringFunc(text, func(word string) string {
		for i, name := range f.names {
			if len(word) >= 3 && strings.HasPrefix(name, strings.ToLower(word)) {
				return strconv.Itoa(f.first + i)
			}
		}
		return word
	})
}

func (f cronField) takes(text string) bool {
	if !validField.MatchString(text) {
		return false
	}
	_, err := cron.NewParser(f.option).Parse(text)
	return err == nil
}

// dateExists tells whether there is a day for the schedule in any year: February has 29 days then.
func dateExists(spec *cron.SpecSchedule) bool {
	for month := time.January; month <= time.December; month++ {
		const leapYear = 2024
		days := time.Date(leapYear, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
		if spec.Month&(1<<month) != 0 && spec.Dom&(1<<(days+1)-2) != 0 {
			return true
		}
	}
	return false
}
