package host

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// friday is a time between two full hours.
var friday = time.Date(2026, 11, 20, 22, 18, 5, 123456700, time.UTC)

func mustSchedule(t *testing.T, text string) schedule {
	t.Helper()
	parsed, err := parseSchedule(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestScheduleNext(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string // the first times after friday
	}{
		"every_hour":          {"0 0 * * * *", []string{"2026-11-20 23:00:00", "2026-11-21 00:00:00", "2026-11-21 01:00:00"}},
		"without_seconds":     {"*/5 * * * *", []string{"2026-11-20 22:20:00", "2026-11-20 22:25:00"}},
		"every_second":        {"* * * * * *", []string{"2026-11-20 22:18:06", "2026-11-20 22:18:07"}},
		"step_from":           {"50/5 18 22 * * *", []string{"2026-11-20 22:18:50", "2026-11-20 22:18:55", "2026-11-21 22:18:50"}},
		"lists_and_ranges":    {"0 30 9-11,14 * * *", []string{"2026-11-21 09:30:00", "2026-11-21 10:30:00", "2026-11-21 11:30:00", "2026-11-21 14:30:00"}},
		"weekdays":            {"0 30 9 * * 1-5", []string{"2026-11-23 09:30:00", "2026-11-24 09:30:00"}},
		"names":               {"0 30 9 * Jan Mon", []string{"2027-01-04 09:30:00", "2027-01-11 09:30:00"}},
		"long_names":          {"0 0 0 * DECEMBER sunday,Wednes", []string{"2026-12-02 00:00:00", "2026-12-06 00:00:00"}},
		"range_of_names":      {"0 0 12 * * tue-thu/2", []string{"2026-11-24 12:00:00", "2026-11-26 12:00:00", "2026-12-01 12:00:00"}},
		"both_days_match":     {"0 0 0 13 * 5", []string{"2027-08-13 00:00:00", "2028-10-13 00:00:00"}},
		"both_days_stepping":  {"0 0 0 */2 * 1", []string{"2026-11-23 00:00:00", "2026-12-07 00:00:00"}},
		"last_day":            {"0 0 0 31 * *", []string{"2026-12-31 00:00:00", "2027-01-31 00:00:00", "2027-03-31 00:00:00"}},
		"leap_day":            {"0 0 0 29 2 *", []string{"2028-02-29 00:00:00", "2032-02-29 00:00:00"}},
		"leap_day_on_monday":  {"0 0 0 29 2 1", []string{"2044-02-29 00:00:00", "2072-02-29 00:00:00", "2112-02-29 00:00:00"}},
		"blanks_around":       {"  0  0 0 * * * ", []string{"2026-11-21 00:00:00"}},
		"step_beyond_the_end": {"*/999999999 * * * *", []string{"2026-11-20 23:00:00"}},
		"interval":            {"00:10:00", []string{"2026-11-20 22:28:05", "2026-11-20 22:38:05"}},
		"interval_of_days":    {"2.12:00", []string{"2026-11-23 10:18:05"}},
		"shortest_interval":   {"00:00:01", []string{"2026-11-20 22:18:06"}},
	} {
		t.Run(name, func(t *testing.T) {
			parsed := mustSchedule(t, test.text)
			var got []string
			next := friday
			for range test.want {
				next = parsed.after(next)
				got = append(got, next.Format(time.DateTime))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("times (-want +got):\n%s", diff)
			}
			if next.Location() != time.UTC {
				t.Errorf("times are in %v, want UTC", next.Location())
			}
		})
	}
}

// A schedule is in UTC, whatever the time zone of the argument.
func TestScheduleIsUTC(t *testing.T) {
	zone := time.FixedZone("", 5*60*60+30*60)
	for text, want := range map[string]string{"0 0 0 * * *": "2026-11-21T00:00:00Z", "01:00:00": "2026-11-20T23:18:05Z"} {
		if got := mustSchedule(t, text).after(friday.In(zone)).Format(time.RFC3339); got != want {
			t.Errorf("%s: next is %s, want %s", text, got, want)
		}
	}
}

func TestScheduleText(t *testing.T) {
	if got := mustSchedule(t, "  0 0  * * * MON ").text; got != "0 0 * * * MON" {
		t.Errorf("got %q", got)
	}
	var never schedule
	if got := never.after(friday); !got.IsZero() || never.text != "" {
		t.Errorf("the zero schedule runs at %v", got)
	}
}

// badSchedules are refused, each with a hint. The cron library alone accepts most of them.
var badSchedules = map[string]struct{ text, want string }{
	"empty":             {"", "it has 0 fields"},
	"four_fields":       {"0 * * *", "it has 4 fields"},
	"seven_fields":      {"0 0 0 1 1 * 2026", "it has 7 fields"},
	"descriptor":        {"@hourly", "it has 1 fields"},
	"every":             {"@every 5m", "it has 2 fields"},
	"every_padded":      {"@every 5m * * *", "its minute (field 1)"},
	"time_zone":         {"CRON_TZ=Asia/Tokyo 0 * * * *", "its second (field 1)"},
	"time_zone_short":   {"TZ=UTC 0 0 * * * *", "it has 7 fields"},
	"time_zone_alone":   {"CRON_TZ=UTC", "it has 1 fields"},
	"tabs":              {"0\t0\t*\t*\t*\t*", "it has 1 fields"},
	"tab_in_a_field":    {"0 0 * * *\t1 *", "its month (field 5)"},
	"question_mark":     {"0 0 0 ? * 1", "its day of month (field 4)"},
	"star_in_range":     {"*-5 * * * *", "its minute (field 1)"},
	"plus":              {"+5 * * * *", "its minute (field 1)"},
	"empty_element":     {"1,,2 * * * *", "its minute (field 1)"},
	"comma_alone":       {"0 , * * * *", "its minute (field 2)"},
	"comma_at_end":      {"0 1, * * * *", "its minute (field 2)"},
	"step_zero":         {"*/0 * * * *", "its minute (field 1)"},
	"step_missing":      {"*/ * * * *", "its minute (field 1)"},
	"step_twice":        {"*/2/3 * * * *", "its minute (field 1)"},
	"range_twice":       {"1-2-3 * * * *", "its minute (field 1)"},
	"range_down":        {"* 22-2 * * *", "its hour (field 2)"},
	"second_60":         {"60 * * * * *", "its second (field 1) is invalid: give 0-59"},
	"minute_60":         {"0 60 * * * *", "its minute (field 2)"},
	"hour_24":           {"0 0 24 * * *", "its hour (field 3) is invalid: give 0-23"},
	"day_0":             {"0 0 0 0 * *", "its day of month (field 4)"},
	"day_32":            {"0 0 0 32 * *", "its day of month (field 4)"},
	"month_13":          {"0 0 0 1 13 *", "its month (field 5)"},
	"weekday_7":         {"0 0 0 * * 7", "its day of week (field 6) is invalid: give 0-6 or names"},
	"weekday_nth":       {"0 0 0 * * 1#2", "its day of week (field 6)"},
	"last_day":          {"0 0 0 L * *", "its day of month (field 4)"},
	"name_unknown":      {"0 0 0 * Foo *", "its month (field 5)"},
	"name_misplaced":    {"0 0 0 * Mon *", "its month (field 5)"},
	"name_too_short":    {"0 0 0 * * M", "its day of week (field 6)"},
	"name_too_long":     {"0 0 0 * * Mondays", "its day of week (field 6)"},
	"number_huge":       {"99999999999999999999 * * * *", "its minute (field 1)"},
	"not_ascii":         {"0 ٣ * * * *", "its minute (field 2)"},
	"control":           {"0 \x1b[0m * * * *", "its minute (field 2)"},
	"no_such_day":       {"0 0 0 30 2 *", "it never comes"},
	"no_such_days":      {"0 0 0 31 2,4,6,9,11 *", "it never comes"},
	"interval_zero":     {"00:00:00", "it is not a usable interval"},
	"interval_fraction": {"00:00:00.5", "it is not a usable interval"},
	"interval_24_hours": {"24:00:00", "it is not a usable interval"},
	"interval_negative": {"-00:05:00", "it is not a usable interval"},
	"interval_go":       {"5m:", "it is not a usable interval"},
	"interval_nan":      {"00:00:NaN", "it is not a usable interval"},
	"interval_exponent": {"00:00:1e1", "it is not a usable interval"},
	"interval_forever":  {"3651.00:00:00", "it is not a usable interval"},
	"interval_and_more": {"00:05:00 00:05:00", "it has 2 fields"},
}

func TestBadSchedules(t *testing.T) {
	for name, test := range badSchedules {
		t.Run(name, func(t *testing.T) {
			got, err := parseSchedule(test.text)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("%q: got %v, %v; want an error with %q", test.text, got, err, test.want)
			}
			if got != (schedule{}) {
				t.Errorf("%q: got a schedule with the error", test.text)
			}
		})
	}
}

// A schedule that is accepted has a next time, later than the argument, and its text has the same meaning. An error
// never repeats the schedule.
func FuzzParseSchedule(f *testing.F) {
	for _, test := range badSchedules {
		f.Add(test.text)
	}
	for _, text := range []string{"0 0 * * * *", "0 0 0 29 2 1", "0 30 9 * Jan Mon-Fri/2", "1.02:03:04.5", "*/5 1,2-3 * * *"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := parseSchedule(text)
		if err != nil {
			if len(text) > 20 && strings.Contains(err.Error(), text) {
				t.Errorf("the error repeats the schedule: %v", err)
			}
			return
		}
		next := parsed.after(friday)
		if !next.After(friday) {
			t.Errorf("%q: next is %v", text, next)
		}
		again, err := parseSchedule(parsed.text)
		if err != nil || !again.after(friday).Equal(next) {
			t.Errorf("%q: %q is another schedule: %v", text, parsed.text, err)
		}
	})
}
