package decision_test

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
)

// The headers in which a target asks for a wait.
var waitHeaders = []string{
	"Retry-After", "RateLimit-Reset", "X-RateLimit-Reset", "X-RateLimit-Reset-After", "X-Rate-Limit-Reset",
}

// readableWaits has waits in each form, by their length; package bounds has the forms of a duration. The clock says
// Saturday, 31 January 2026, 12:00.
var readableWaits = map[time.Duration][]string{
	0: {"0", "0.0", "0s"},
	time.Second: {
		"0.503", ".5", "1769860801", "500ms", "100ns", "250 milliseconds", "PT0.5S",
		"Sat, 31 Jan 2026 12:00:00.5 GMT",
	},
	2 * time.Second:  {"2.0"},
	3 * time.Second:  {`"2.5"`},
	5 * time.Second:  {"5."},
	7 * time.Second:  {"007"},
	30 * time.Second: {`" 30s "`, "30s", "30 seconds", "PT30S", `"PT30S"`, "00:00:30", "00:00:30, 10"},
	time.Minute:      {"Sat, 31 Jan 2026 11:00:00 GMT, 60"},
	90 * time.Second: {"90 SEC"},
	120 * time.Second: {
		"120", " 120\t", `"120"`, "120, 120", "120,30", "30, 2m", `"30", "120";a`, "120,", ", ,120", "30\n120",
		"\n120", "120;w=60", "120 ; comment=\"a, b; c\"", "120;", "30;a=1, 120;b=2",
	},
	293 * time.Second: {"292.052427053"},
	5 * time.Minute: {
		`"Sat, 31 Jan 2026 12:05:00 GMT"`, `"2026-01-31T12:05:00Z";q=1`, "0, Sat, 31 Jan 2026 12:05:00 GMT",
		"Sat, 31 Jan 2026 12:05:00 GMT; x=y", "1769861100", "1769861100000", `"1769861100"`,
		"Sat, 31 Jan 2026 12:05:00 GMT", "Saturday, 31-Jan-26 12:05:00 GMT", "Sat Jan 31 12:05:00 2026",
		"Sat, 31 Jan 2026 12:05:00 UTC", "Sat, 31 Jan 2026 12:05:00 UT", "Sat, 31 Jan 2026 12:05:00 Z",
		"Sat, 31 Jan 2026 12:05:00 +0000", "Sat, 31 Jan 2026 07:05:00 -0500", "Sat, 31 Jan 2026 17:35:00 +05:30",
		"Sat, 31 Jan 2026 12:05:00", "31 Jan 2026 12:05:00 GMT", "Saturday, 31 Jan 2026 12:05:00 GMT",
		"Sat, 31-Jan-2026 12:05:00 GMT", "sat, 31 jan 2026 12:05:00 gmt", "SAT, 31 JAN 2026 12:05:00 GMT",
		"Sat,31 Jan 2026 12:05:00 GMT", "Sat 31 Jan 2026 12:05:00 GMT", "Sat, 31 Jan 2026 12:05:00 GMT+00:00",
		"Sat,  31 Jan  2026 12:05:00  GMT", "Sat Jan 31 12:05:00 UTC 2026",
		"Sat Jan 31 2026 13:05:00 GMT+0100 (Central European Time)",
		"Sat Jan 31 2026 12:05:00 GMT+0000 (Coordinated Universal Time)", "2026-01-31T12:05:00Z", "2026-01-31T12:05Z",
		"2026-01-31 12:05:00", "2026-01-31 12:05", "2026-01-31T12:05:00+00:00", "2026-01-31T13:05:00+01:00",
		"2026-01-31T12:05:00+0000", "2026-01-31 12:05:00 UTC", "2026-01-31T12:05:00", "2026-01-31t12:05:00z",
		"2026-01-31 12:05:00+00", "2026-01-31 12:05:00 GMT", "2026-01-31T13:05:00+01", "2026-01-31T12:05:00 +00:00",
		"2026-01-31 12:05:00 +0000 UTC", "2026-01-31 13:05:00 +0100 CET", "2026-01-31 09:05:00 -0300 -03",
	},
	301 * time.Second: {
		"1769861100.2", "1769861100001", "2026-01-31T12:05:00.250Z", "2026-01-31 12:05:00.123456+00:00",
		"2026-01-31T12:05:00.999999999", "2026-01-31 12:05:00.5 +0000 UTC m=+60.000001",
	},
	6 * time.Minute:              {"Sat, 31 Jan 2026 12:05:00 GMT, Sat, 31 Jan 2026 12:06:00 GMT"},
	time.Hour + time.Second:      {"1h0m0.5s"},
	90 * time.Minute:             {"1 hour 30 minutes"},
	12*time.Hour + 5*time.Minute: {`"12:05:00"`},
	24 * time.Hour: {
		"1.00:00:00", "Sun, 1 Feb 2026 12:00:00 GMT", "Sun Feb  1 12:00:00 2026", "Sun, 01 Feb 2026 12:00:00 GMT",
		"Sun, 1-Feb-26 12:00:00 UTC",
	},
	36 * time.Hour:        {"1d12h", "P1DT12H"},
	decision.MaxAskedWait: {"31622400"},
}

// pastWaits can be read, and the time has passed.
var pastWaits = []string{
	"Sat, 31 Jan 2026 11:59:00 GMT", "2026-01-31T11:00:00Z", "1769860000", "1769860000000",
	"Sat, 01 Jan 0000 00:00:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", "2026-01-31 12:59:00 +0100 CET",
	"0000-00-00 00:00:00", "0001-01-01T00:00:00Z",
}

// farWaits can be read, and are too long.
var farWaits = []string{
	"31622401", "31622400.5", "1000000000000000", "99999999999999999999", "367d", "P53W", "9000 hours",
	"Sat, 06 Feb 2027 12:00:00 GMT", "9999-12-31T23:59:59Z", strings.Repeat("9", 400), strings.Repeat("9", 400) + "s",
	"120, 31622401",
}

// unreadableWaits are in no known form, or ambiguous.
var unreadableWaits = []string{
	"soon", "-1", "-0.5", "+5", "0x10", "1e3", "NaN", "inf", "Infinity", "1_000", ".", "٣٠", "12 0", "\"120", `1"2"0`,
	",", ";w=60", "120, soon", "soon, 120", "-1, 120", "120\nsoon", `"120, "`, "30x", "30 parsecs", "-30s", "1h-30m",
	"+30s",
	"s", "PT", "P", "P1DT", "P1M", "P1Y", "-PT30S", "PT-30S", "PT30", "P30S", "Sat, 31 Jan 2026 12:05:00 EST",
	"Sat, 31 Jan 2026 12:05:00 CET", "Sat Jan 31 12:05:00 PST 2026", "2026-01-31 12:05:00 CEST",
	"Sat Jan 31 2026 12:05:00 (Central European Time)", "Sat, 31 Jan 2026 12:05:00 A", "Sat, 31 Jan 2026", "Sat,",
	"31/01/2026 12:05:00", "01/31/2026 12:05:00 PM", "12:05", "24:00:00", "-00:00:30", "Sat, 32 Jan 2026 12:05:00 GMT",
	"Sat, 31 Foo 2026 12:05:00 GMT", "2026-01-31T25:00:00Z", "2026-01-31T12:05:00+99:00",
	strings.Repeat("1,", 5000) + "1",
	"\x840", "120;\n\"", "2026-01-31", "in 30 seconds", "30 s 10", "1.2.3", "1.5.s", "30s ago",
	"Sat, 31 Jan 12:05:00 GMT",
}

// TestWaits: the target's wait is read in the same forms from all headers.
func TestWaits(t *testing.T) {
	read := func(t *testing.T, name, value string, want time.Duration, note string) {
		t.Helper()
		o := decision.Outcome{Status: 429, Header: http.Header{}}
		for line := range strings.SplitSeq(value, "\n") {
			o.Header.Add(name, line)
		}
		var notes []string
		if note != "" {
			notes = []string{"header " + name + " " + note}
		}
		d := decide(t, rules(), fmt.Sprintf(plain, ""), o, 0)
		if got := o.AskedWait(now); got != want || !slices.Equal(d.Ignored, notes) {
			t.Errorf("%s: %.80q: got %v, %q; want %v, %q", name, value, got, d.Ignored, want, notes)
		}
	}
	for _, name := range waitHeaders {
		t.Run(name, func(t *testing.T) {
			for want, values := range readableWaits {
				for _, value := range values {
					read(t, name, value, want, "")
				}
			}
			for _, value := range pastWaits {
				read(t, name, value, 0, "is in the past")
			}
			for _, value := range farWaits {
				read(t, name, value, 0, "is more than 366 days ahead")
			}
			for _, value := range unreadableWaits {
				read(t, name, value, 0, "cannot be read")
			}
			read(t, name, " ", 0, "")
		})
	}
}

// TestDocumentedWaits: each form in docs/retry.md can be read.
func TestDocumentedWaits(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/retry.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(text), "| form of a wait | examples |\n")
	table, _, _ := strings.Cut(rows, "\n\n")
	examples := regexp.MustCompile("`[^`]+`").FindAllString(table, -1)
	if len(examples) < 20 {
		t.Errorf("%d examples", len(examples))
	}
	for _, example := range examples {
		o := decision.Outcome{Status: 503, Header: http.Header{"Retry-After": {strings.Trim(example, "`")}}}
		at := time.Date(2026, time.November, 26, 12, 0, 0, 0, time.UTC)
		if o.AskedWait(at) == 0 {
			t.Errorf("%s cannot be read", example)
		}
	}
}

// TestWaitsOfRateLimit: the items of the structured fields are read in the same way.
func TestWaitsOfRateLimit(t *testing.T) {
	const unreadable, far = "header RateLimit cannot be read", "header RateLimit is more than 366 days ahead"
	for name, c := range map[string]struct {
		header string
		want   time.Duration
		note   string
	}{
		"decimal":               {`RateLimit: "a";r=0;t=29.5`, 30 * time.Second, ""},
		"string":                {`RateLimit: "a";r=0;t="30"`, 30 * time.Second, ""},
		"go_duration":           {`RateLimit: "a";r=0;t="30s"`, 30 * time.Second, ""},
		"date":                  {`RateLimit: "a";r=0;t="2026-01-31T12:05:00Z"`, 5 * time.Minute, ""},
		"unix_time":             {`RateLimit: "a";r=0;t=1769861100`, 5 * time.Minute, ""},
		"token":                 {`RateLimit: "a";r=0;t=PT30S`, 30 * time.Second, ""},
		"decimal_remaining":     {`RateLimit: "a";r=0.0;t=30`, 30 * time.Second, ""},
		"string_remaining":      {`RateLimit: "a";r="0";t=30`, 30 * time.Second, ""},
		"negative_remaining":    {`RateLimit: "a";r=-3;t=30`, 30 * time.Second, ""},
		"less_than_one_remains": {`RateLimit: "a";r=0.5;t=30`, 0, ""},
		"text_remaining":        {`RateLimit: "a";r=none;t=30`, 0, unreadable},
		"no_remaining":          {`RateLimit: "a";t=30`, 0, ""},
		"window":                {"RateLimit: \"a\";r=0\nRateLimit-Policy: \"a\";q=1;w=59.5", time.Minute, ""},
		"window_text":           {"RateLimit: \"a\";r=0\nRateLimit-Policy: \"a\";q=1;w=long", 0, unreadable},
		"text":                  {`RateLimit: "a";r=0;t="soon"`, 0, unreadable},
		"negative":              {`RateLimit: "a";r=0;t=-1`, 0, unreadable},
		"boolean":               {`RateLimit: "a";r=0;t`, 0, unreadable},
		"past":                  {`RateLimit: "a";r=0;t=1769860000`, 0, "header RateLimit is in the past"},
		"far":                   {`RateLimit: "a";r=0;t=31622401`, 0, far},
		"one_readable":          {`RateLimit: "a";r=0;t=x, "b";r=0;t=30`, 30 * time.Second, unreadable},
		"no_structure":          {`RateLimit: "a`, 0, unreadable},
		"long":                  {"RateLimit: " + strings.Repeat("a;r=0;t=1, ", 100) + "a;r=0;t=1", 0, unreadable},
		"empty":                 {"RateLimit: ", 0, ""},
		"older_decimal":         {`RateLimit: limit=10, remaining=0.0, reset=29.5`, 30 * time.Second, ""},
		"older_string":          {`RateLimit: limit=10, remaining="0", reset="30"`, 30 * time.Second, ""},
		"older_window":          {`RateLimit: limit=10;w=60, remaining=0;w=60, reset=30;w=60`, 30 * time.Second, ""},
		"older_negative":        {`RateLimit: limit=10, remaining=-1, reset=30`, 30 * time.Second, ""},
		"older_text":            {`RateLimit: limit=10, remaining=0, reset=soon`, 0, unreadable},
		"older_no_reset":        {`RateLimit: limit=10, remaining=0`, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := decision.Outcome{Status: 503, Header: header(c.header)}
			d := decide(t, rules(), fmt.Sprintf(plain, ""), o, 0)
			if got := o.AskedWait(now); got != c.want || strings.Join(d.Ignored, "\n") != c.note {
				t.Errorf("got %v, %q; want %v, %q", got, d.Ignored, c.want, c.note)
			}
			if shared := o.LimitWait(now); shared != c.want {
				t.Errorf("shared by all messages: %v, want %v", shared, c.want)
			}
		})
	}
}

// TestRemaining: the wait of a rate limit counts if the limit is reached.
func TestRemaining(t *testing.T) {
	for value, want := range map[string]bool{
		"0": true, "0.0": true, `"0"`: true, "0, 10": true, "10, 0": true, "0;w=60": true, "-1": true, "-0.5": true,
		" 0 ": true, "00": true, "10\n0": true, `"10", "0";w=1`: true, "-0": true,
		"1": false, "10": false, "0.5": false, "10, 20": false, "10;w=0": false, `"10"`: false,
	} {
		o := decision.Outcome{Status: 503, Header: http.Header{"X-Ratelimit-Reset": {"60"}}}
		for line := range strings.SplitSeq(value, "\n") {
			o.Header.Add("X-RateLimit-Remaining", line)
		}
		if got := o.AskedWait(now) == time.Minute; got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
	for _, value := range []string{"none", "0x0", "NaN", "0, none", ",", "--1", "0 of 10"} {
		for status, want := range map[int]time.Duration{503: 0, 429: time.Minute} { // as without the header
			lines := "X-RateLimit-Reset: 60\nRateLimit-Remaining: " + value
			o := decision.Outcome{Status: status, Header: header(lines)}
			d := decide(t, rules(), fmt.Sprintf(plain, ""), o, 0)
			notes := []string{"header RateLimit-Remaining cannot be read"}
			if got := o.AskedWait(now); got != want || !slices.Equal(d.Ignored, notes) {
				t.Errorf("%q, status %d: got %v, %q; want %v, %q", value, status, got, d.Ignored, want, notes)
			}
		}
	}
	for _, headers := range []string{
		"RateLimit-Remaining: 5\nX-RateLimit-Remaining: 0", "X-Rate-Limit-Remaining: 0", `RateLimit: "a";r=0`,
	} {
		o := decision.Outcome{Status: 503, Header: header(headers + "\nX-RateLimit-Reset: 60")}
		if got := o.AskedWait(now); got != time.Minute {
			t.Errorf("%q: %v", headers, got)
		}
	}
}

// TestTemporary4xx: a target that says when a call may be repeated does not reject it for good.
func TestTemporary4xx(t *testing.T) {
	const after, limit = " with Retry-After is temporary", " with a rate limit that is reached is temporary"
	for name, c := range map[string]struct {
		status       int
		header, body string
		again        bool
		rule         string
		delay        time.Duration // 0: the policy's own
	}{
		"retry_after":         {403, "Retry-After: 60", "", true, "status 403" + after, time.Minute},
		"any_4xx":             {400, "Retry-After: 30s", "", true, "status 400" + after, 30 * time.Second},
		"429":                 {429, "Retry-After: 60", "", true, "status 429" + after, time.Minute},
		"zero":                {409, "Retry-After: 0", "", true, "status 409" + after, 0},
		"past":                {409, "Retry-After: Sat, 31 Jan 2026 11:00:00 GMT", "", true, "status 409" + after, 0},
		"unreadable":          {403, "Retry-After: soon", "", false, "status 403 is permanent", 0},
		"far":                 {403, "Retry-After: 31622401", "", false, "status 403 is permanent", 0},
		"empty":               {403, "Retry-After: ", "", false, "status 403 is permanent", 0},
		"redirect":            {304, "Retry-After: 60", "", false, "status 304 is permanent", 0},
		"510":                 {510, "Retry-After: 60", "", false, "status 510 is permanent", 0},
		"526":                 {526, "Retry-After: 60", "", false, "status 526 is permanent", 0},
		"exhausted":           {403, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 60", "", true, "status 403" + limit, time.Minute},
		"exhausted_no_reset":  {403, "RateLimit-Remaining: 0", "", true, "status 403" + limit, 0},
		"exhausted_item":      {403, `RateLimit: "a";r=0;t=60`, "", true, "status 403" + limit, time.Minute},
		"exhausted_partition": {403, `RateLimit: "a";r=0;t=60;pk=:dXNlcjE=:`, "", true, "status 403" + limit, time.Minute},
		"exhausted_older":     {403, `RateLimit: limit=9, remaining=0, reset=60`, "", true, "status 403" + limit, time.Minute},
		"exhausted_bad_after": {
			403, "Retry-After: soon\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 60", "", true, "status 403" + limit,
			time.Minute,
		},
		"some_remaining":    {403, "X-RateLimit-Remaining: 1\nX-RateLimit-Reset: 60", "", false, "status 403 is permanent", 0},
		"reset_only":        {403, "X-RateLimit-Reset: 60", "", false, "status 403 is permanent", 0},
		"exhausted_400":     {400, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 60", "", false, "status 400 is permanent", 0},
		"header_wins":       {403, "Retry-After: 60\nX-Async-Caller-Retry: no", "", false, "header", 0},
		"nexus_error_wins":  {403, "Retry-After: 60", `{"Type":"x","IsRetryMeaningful":false}`, false, "Nexus", 0},
		"after_and_problem": {403, "Retry-After: 60", `{"retryable":false}`, true, "status 403" + after, time.Minute},
		"problem_wins": {
			403, "Retry-After: 60\nContent-Type: application/problem+json", `{"retryable":false}`, false, "problem", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := decision.Outcome{Status: c.status, Header: header(c.header), Body: []byte(c.body)}
			for _, jitter := range []float64{0, 0.5} {
				d := decide(t, rules(), fmt.Sprintf(plain, ""), o, jitter)
				if again := d.Action == decision.Reschedule; again != c.again || !strings.HasPrefix(d.Rule, c.rule) {
					t.Fatalf("again %v by %q, want %v by %q", again, d.Rule, c.again, c.rule)
				}
				if jitter == 0 && c.again && d.Delay != max(c.delay, 4*time.Second) {
					t.Errorf("after %v, want %v", d.Delay, c.delay)
				}
			}
		})
	}
}

// TestNotesOnARejection: who asks why a call was not repeated learns that the target's header cannot be read.
func TestNotesOnARejection(t *testing.T) {
	for status, notes := range map[int][]string{403: {"header Retry-After cannot be read"}, 200: nil} {
		o := decision.Outcome{Status: status, Header: header("Retry-After: soon")}
		d := decide(t, rules(), fmt.Sprintf(plain, ""), o, 0)
		if d.Action == decision.Reschedule || !slices.Equal(d.Ignored, notes) {
			t.Errorf("%d: %s, %q", status, d.Action, d.Ignored)
		}
	}
}

// TestStatusesOfTheProfile: the statuses of the target's profile come after the target's own signals, and before all
// other rules.
func TestStatusesOfTheProfile(t *testing.T) {
	profiles, err := targets.Parse([]byte(`{"target.example":{"statuses":{"retry":[409,499,510,304],
		"reject":[404,503,429]}},"*":{"statuses":{"reject":[500]}}}`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		outcome decision.Outcome
		again   bool
		rule    string
	}{
		"retry":         {decision.Outcome{Status: 409}, true, "status 409 is temporary (targets.json)"},
		"retry_510":     {decision.Outcome{Status: 510}, true, "status 510 is temporary (targets.json)"},
		"retry_304":     {decision.Outcome{Status: 304}, true, "status 304 is temporary (targets.json)"},
		"reject":        {decision.Outcome{Status: 404}, false, "status 404 is permanent (targets.json)"},
		"reject_503":    {decision.Outcome{Status: 503}, false, "status 503 is permanent (targets.json)"},
		"others":        {decision.Outcome{Status: 500}, true, "status 500 is temporary"},
		"others_reject": {decision.Outcome{Status: 400}, false, "status 400 is permanent"},
		"before_retry_after": {
			decision.Outcome{Status: 429, Header: header("Retry-After: 60")},
			false, "status 429 is permanent (targets.json)",
		},
		"after_header": {
			decision.Outcome{Status: 404, Header: header("X-Async-Caller-Retry: yes")},
			true, "header X-Async-Caller-Retry: yes",
		},
		"after_body": {
			decision.Outcome{Status: 409, Body: []byte(`{"Type":"x","IsRetryMeaningful":false}`)},
			false, "Nexus error body, IsRetryMeaningful: false",
		},
		"broken_off": {decision.Outcome{Status: 404, Failure: decision.FailureConnection}, true, "no answer: connection"},
	} {
		t.Run(name, func(t *testing.T) {
			r := rules()
			r.Profiles = profiles
			d := decide(t, r, fmt.Sprintf(plain, ""), c.outcome, 0)
			if again := d.Action == decision.Reschedule; again != c.again || d.Rule != c.rule {
				t.Errorf("again %v by %q, want %v by %q", again, d.Rule, c.again, c.rule)
			}
		})
	}
}

// FuzzWait: whatever a target asks for, in any header, the wait is within its bounds and in whole seconds.
func FuzzWait(f *testing.F) {
	readable := slices.Concat(slices.Collect(maps.Values(readableWaits))...)
	for _, value := range slices.Concat(readable, pastWaits, farWaits, unreadableWaits) {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for _, name := range append(waitHeaders, "RateLimit", "X-RateLimit-Remaining") {
			for _, at := range []time.Time{now, now.Add(time.Nanosecond), {}, time.Unix(math.MaxInt32, 999)} {
				o := decision.Outcome{Status: 429, Header: http.Header{}}
				o.Header.Set(name, value)
				for _, wait := range []time.Duration{o.AskedWait(at), o.LimitWait(at)} {
					if wait < 0 || wait > decision.MaxAskedWait || wait%time.Second != 0 {
						t.Errorf("%s: %q: %v", name, value, wait)
					}
				}
			}
		}
	})
}
