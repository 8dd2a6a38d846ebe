package decision_test

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/decision"
)

// TestBackPressure: a target is not called before the time that it asks for, and an invalid value changes nothing. The
// policy's own first delay is 4 s here, the deadline a week away. TestWaits has the forms of a wait.
func TestBackPressure(t *testing.T) {
	const policy = 4 * time.Second
	for name, c := range map[string]struct {
		status  int
		header  string
		want    time.Duration
		ignored bool
	}{
		"on_503":                   {503, "Retry-After: 120", 2 * time.Minute, false},
		"on_500":                   {500, "Retry-After: 120", 2 * time.Minute, false},
		"never_lowers":             {429, "Retry-After: 1", policy, false},
		"date_in_the_past":         {429, "Retry-After: Sat, 31 Jan 2026 11:00:00 GMT", policy, true},
		"no_number":                {429, "Retry-After: abc", policy, true},
		"absurd":                   {429, "Retry-After: 1000000000000", policy, true},
		"limit_not_reached":        {500, "X-RateLimit-Reset: 3600", policy, false},
		"some_remaining":           {429, "X-RateLimit-Remaining: 3\nX-RateLimit-Reset: 3600", policy, false},
		"none_remaining":           {500, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 60", time.Minute, false},
		"retry_after_first":        {429, "Retry-After: 30\nX-RateLimit-Reset: 60", 30 * time.Second, false},
		"nonsense_then_rate_limit": {429, "Retry-After: abc\nRateLimit-Reset: 60", time.Minute, true},
		"longest_reset":            {429, "RateLimit-Reset: 60\nX-RateLimit-Reset: 90", 90 * time.Second, false},

		"draft":                {429, `RateLimit: "default";r=0;t=30`, 30 * time.Second, false},
		"draft_token":          {500, `RateLimit: default;r=0;t=30`, 30 * time.Second, false},
		"draft_two_fields":     {429, "RateLimit: \"a\";r=0;t=30\nRateLimit: \"b\";r=0;t=40", 40 * time.Second, false},
		"draft_some_remaining": {429, `RateLimit: "a";r=1;t=3600, "b";r=0;t=30`, 30 * time.Second, false},
		"draft_window":         {429, "RateLimit: \"a\";r=0\nRateLimit-Policy: \"b\";q=1;w=9, \"a\";q=9;w=60", time.Minute, false},
		"draft_no_window":      {429, "RateLimit: \"a\";r=0\nRateLimit-Policy: ((", policy, false},
		"draft_partition":      {429, `RateLimit: "a";r=0;t=30;pk=:dXNlcjE=:`, 30 * time.Second, false},
		"draft_after_header":   {429, "Retry-After: 20\nRateLimit: \"a\";r=0;t=30", 20 * time.Second, false},
		"draft_and_older":      {429, "RateLimit: \"a\";r=0;t=30\nX-RateLimit-Reset: 60", time.Minute, false},
		"draft_inner_list":     {429, `RateLimit: ("a" "b");r=0;t=30`, policy, false},
		"draft_07":             {429, `RateLimit: limit=10, remaining=0, reset=30`, 30 * time.Second, false},
		"draft_07_remaining":   {429, `RateLimit: limit=10, remaining=1, reset=30`, policy, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := decision.Outcome{Status: c.status, Header: header(c.header)}
			d := decide(t, rules(), fmt.Sprintf(plain, ""), o, 0)
			if d.Action != decision.Reschedule || d.Delay != c.want || (len(d.Ignored) > 0) != c.ignored {
				t.Errorf("%s after %v, ignored %q; want after %v", d.Action, d.Delay, d.Ignored, c.want)
			}
			if late := decide(t, rules(), fmt.Sprintf(plain, ""), o, 0.5); late.Delay < c.want+c.want/10 {
				t.Errorf("jitter makes it %v, want more than %v", late.Delay, c.want)
			}
		})
	}
}

// TestBackPressureBeyond: the last attempt comes just before the deadline all the same, and a wait that no queue takes
// is made in parts.
func TestBackPressureBeyond(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		wait, deadline string
		visible, next  time.Duration
	}{
		"deadline": {"3600", "2026-01-31T12:10:00Z", 590 * time.Second, 590 * time.Second},
		"queue":    {"1209600", "2026-12-31T12:00:00Z", 7*day - time.Second, 14 * day},
	} {
		o := decision.Outcome{Status: 503, Header: header("Retry-After: " + c.wait)}
		d := decide(t, rules(), fmt.Sprintf(plain, `,"deadline":"`+c.deadline+`"`), o, 0)
		if d.Delay != c.visible || !d.State.NextAttemptAt.Equal(now.Add(c.next)) {
			t.Errorf("%s: visible after %v, next attempt at %v", name, d.Delay, d.State.NextAttemptAt)
		}
	}
}

// TestSignals tests the order of precedence: header, problem, Nexus error, status.
func TestSignals(t *testing.T) {
	const (
		problemYes = `{"type":"about:blank","retryable":true}`
		problemNo  = `{"type":"about:blank","retryable":false}`
		nexusYes   = `{"Type":"x","IsRetryMeaningful":true}`
		nexusNo    = `{"Type":"x","IsRetryMeaningful":false}`
		both       = `{"retryable":false,"Type":"x","IsRetryMeaningful":true}`

		yes, no = "X-Async-Caller-Retry: yes", "X-Async-Caller-Retry: no"
		problem = "Content-Type: application/problem+json"
		asJSON  = "Content-Type: application/json"
		asGzip  = "Content-Encoding: gzip"
	)
	for name, c := range map[string]struct {
		status       int
		header, body string
		again        bool
		rule         string
	}{
		"status_temporary":      {503, "", "", true, "status 503 is temporary"},
		"status_permanent":      {400, "", "", false, "status 400 is permanent"},
		"header_yes":            {400, yes, "", true, "header"},
		"header_in_capitals":    {503, "X-Async-Caller-Retry: NO", "", false, "header"},
		"header_nonsense":       {503, "X-Async-Caller-Retry: maybe", "", true, "status 503"},
		"header_before_problem": {503, no + "\n" + problem, problemYes, false, "header"},
		"header_before_nexus":   {400, yes, nexusNo, true, "header"},
		"problem_yes":           {400, problem, problemYes, true, "problem"},
		"problem_no":            {503, problem, problemNo, false, "problem"},
		"problem_in_plain_json": {503, asJSON, problemNo, true, "status 503"},
		"problem_before_nexus":  {503, problem, both, false, "problem"},
		"nexus_yes":             {400, asJSON, nexusYes, true, "Nexus"},
		"nexus_no":              {503, asJSON, nexusNo, false, "Nexus"},
		"nexus_without_type":    {503, "", `{"Type":null,"IsRetryMeaningful":false}`, true, "status 503"},
		"nexus_not_boolean":     {503, "", `{"Type":"x","IsRetryMeaningful":"no"}`, true, "status 503"},
		"nexus_1":               {400, "", `{"Type":"x","IsRetryMeaningful":1}`, false, "status 400"},
		"body_is_no_json":       {503, "", `{"Type":"x","IsRetryMeaningful":false`, true, "status 503"},
		"more_than_json":        {503, "", nexusNo + "}", true, "status 503"},
		"nested":                {503, "", `{"Type":"x","Inner":` + nexusNo + `}`, true, "status 503"},
		"in_an_array":           {503, "", `[` + nexusNo + `]`, true, "status 503"},
		"array_of_pairs":        {503, "", `["Type","x","IsRetryMeaningful",false]`, true, "status 503"},
		"odd_member":            {503, "", `{"retryable":"later","Type":"x","IsRetryMeaningful":false}`, false, "Nexus"},
		"odd_member_of_problem": {503, problem, `{"retryable":{},"Type":7,"IsRetryMeaningful":false}`, false, "Nexus"},
		"any_letter_case":       {503, "", `{"isretrymeaningful":false,"type":[]}`, false, "Nexus"},
		"escaped_names":         {503, "", `{"\u0054\u0079\u0070\u0065":"x","\u0049sRetryMeaningful":false}`, false, "Nexus"},
		"last_of_several": {
			503, "", `{"Type":"x","Type":null,"IsRetryMeaningful":true,` +
				`"IsRetryMeaningful":false,"IsRetryMeaningful":"?"}`, false, "Nexus",
		},
		"byte_order_mark":  {503, "", "\ufeff " + nexusNo, false, "Nexus"},
		"not_utf8":         {503, "", `{"Type":"` + "\xff" + `","IsRetryMeaningful":false}`, false, "Nexus"},
		"utf16":            {503, "", utf16(nexusNo), false, "Nexus"},
		"utf16_big":        {503, asJSON + "; charset=utf-16be", swapped(utf16(nexusNo)), false, "Nexus"},
		"utf16_big_mark":   {503, asJSON, swapped(utf16("\ufeff" + nexusNo)), false, "Nexus"},
		"utf16_mark":       {400, asJSON, utf16("\ufeff \r\n" + nexusYes), true, "Nexus"},
		"utf16_no_json":    {503, asJSON, utf16("\ufeff" + nexusNo + "x"), true, "status 503"},
		"latin1":           {503, asJSON + "; charset=iso-8859-1", strings.Replace(nexusNo, "{", "{\"a\":\"\xe5\",", 1), false, "Nexus"},
		"gzip":             {503, problem + "\n" + asGzip, gzipped(problemNo), false, "problem"},
		"gzip_of_utf16":    {503, asGzip, gzipped(utf16("\ufeff" + nexusNo)), false, "Nexus"},
		"gzip_not_encoded": {503, asGzip, nexusNo, false, "Nexus"},
		"gzip_cut":         {503, asGzip, gzipped(nexusNo)[:40], true, "status 503"},
		"gzip_damaged":     {503, asGzip, gzipped(nexusNo)[:50] + "12345678", true, "status 503"},
		"brotli":           {503, "Content-Encoding: br", "\x8b\x0d\x80" + nexusNo + "\x03", true, "status 503"},
	} {
		t.Run(name, func(t *testing.T) {
			o := decision.Outcome{Status: c.status, Header: header(c.header), Body: []byte(c.body)}
			d := decide(t, rules(), fmt.Sprintf(plain, ""), o, 0)
			if again := d.Action == decision.Reschedule; again != c.again || !strings.HasPrefix(d.Rule, c.rule) {
				t.Errorf("again %v by %q, want %v by %q", again, d.Rule, c.again, c.rule)
			}
		})
	}
}

func gzipped(text string) string {
	var b strings.Builder
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

// utf16 returns a text in little-endian UTF-16.
func utf16(text string) string {
	var b strings.Builder
	for _, r := range text {
		b.Write([]byte{byte(r), byte(r >> 8)})
	}
	return b.String()
}

// swapped returns the bytes of a text in the other byte order.
func swapped(text string) string {
	b := []byte(text)
	for i := 0; i+1 < len(b); i += 2 {
		b[i], b[i+1] = b[i+1], b[i]
	}
	return string(b)
}

// TestLongSignals: a signal counts in the first MiB, whatever stands before it, and takes little memory.
func TestLongSignals(t *testing.T) {
	const no = `"Type":"x","IsRetryMeaningful":false`
	long := func(text string, size int) string { return strings.Repeat(text, size/len(text)+1) }
	const far = 900 << 10
	for name, c := range map[string]struct {
		body string
		want bool
	}{
		"string":         {`{"StackTrace":"` + long("at x.Y() ", far) + `",` + no + `}`, true},
		"escapes":        {`{"StackTrace":"` + long(`\r\n\u00e5\\\"`, far) + `",` + no + `}`, true},
		"odd_escapes":    {`{"StackTrace":".` + long(`\u00e5`, far) + `",` + no + `}`, true},
		"name":           {`{"` + long("x", far) + `":1,` + no + `}`, true},
		"number":         {`{"n":-` + long("1", far/2) + "." + long("2", far/2) + `e5,` + no + `}`, true},
		"spaces":         {`{` + long(" \t\r\n", far) + no + `}`, true},
		"members":        {`{` + long(`"a":[true,null,{"b":0.5}],`, far) + no + `}`, true},
		"spaces_behind":  {`{` + no + `}` + long(" ", far), true},
		"goes_on":        {`{` + no + `,"StackTrace":"` + long("x", 2<<20) + `"}`, true},
		"beyond_1_mib":   {`{"StackTrace":"` + long("x", 1<<20) + `",` + no + `}`, false},
		"utf8_mark":      {"\xef\xbb\xbf" + `{"StackTrace":"` + long("x", far) + `",` + no + `}`, true},
		"utf16":          {utf16("\ufeff" + `{"StackTrace":"` + long("x", far/2) + `",` + no + `}`), true},
		"utf16_big":      {swapped(utf16(`{"StackTrace":"` + long("å", far/2) + `",` + no + `}`)), true},
		"not_closed":     {`{` + no + `,"StackTrace":"` + long("x", far) + `"`, false},
		"no_json_behind": {`{` + no + `}` + long(" ", far) + "x", false},
		"no_json_within": {`{` + no + `,"a":` + long("x", far) + `}`, false},
		"deep":           {`{` + no + `,"a":` + long("[", far) + long("]", far) + `}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			signal, err := decision.ReadSignal(nil, []byte(c.body[:5]), strings.NewReader(c.body[5:]))
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 || err != nil {
				t.Errorf("error %v, %d bytes of memory", err, n)
			}
			if got := signal.IsRetryMeaningful != nil && !*signal.IsRetryMeaningful; got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestLongEncodedSignals: of an encoded body the first MiB counts as well, before and after decoding.
func TestLongEncodedSignals(t *testing.T) {
	const no = `"Type":"x","IsRetryMeaningful":false`
	object := func(size int) string { return `{"StackTrace":"` + strings.Repeat("x", size) + `",` + no + `}` }
	noise := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	for name, c := range map[string]struct {
		body string
		want bool
	}{
		"within":       {gzipped(object(900 << 10)), true},
		"beyond":       {gzipped(object(1 << 20)), false},
		"bomb":         {gzipped(object(16 << 20)), false},
		"long_encoded": {gzipped(`{"a":"` + hex.EncodeToString(noise) + `",` + no + `}`), false},
		"no_output":    {strings.Repeat(gzipped(""), 60_000) + gzipped("{"+no+"}"), false},
	} {
		t.Run(name, func(t *testing.T) {
			rest := strings.NewReader(c.body[5:])
			signal, err := decision.ReadSignal(header("Content-Encoding: gzip"), []byte(c.body[:5]), rest)
			if got := signal.IsRetryMeaningful != nil; got != c.want || err != nil {
				t.Errorf("got %v, %v", got, err)
			}
			if read := len(c.body) - rest.Len(); read > 1<<20 {
				t.Errorf("read %d bytes", read)
			}
		})
	}
}

func TestDeliveredWhateverTheHeaderSays(t *testing.T) {
	o := decision.Outcome{Status: 200, Header: header("X-Async-Caller-Retry: yes\nRetry-After: 10")}
	if d := decide(t, rules(), fmt.Sprintf(plain, ""), o, 0); d.Action != decision.Finish {
		t.Errorf("%s", d.Action)
	}
}

func TestStatuses(t *testing.T) {
	s, err := decision.ParseStatuses("404, 408,500-599,!510,!520-529,599")
	if err != nil {
		t.Fatal(err)
	}
	for status, want := range map[int]bool{
		404: true, 400: false, 408: true, 500: true, 510: false, 519: true,
		520: false, 529: false, 599: true, 600: false,
	} {
		if s.Temporary(status) != want {
			t.Errorf("%d: %v", status, !want)
		}
	}
}

func TestDefaultStatuses(t *testing.T) {
	parsed, err := decision.ParseStatuses(decision.DefaultStatuses)
	if err != nil {
		t.Fatal(err)
	}
	temporary := []int{404, 408, 423, 425, 429}
	for status := 100; status < 1000; status++ {
		want := slices.Contains(temporary, status) || (status >= 500 && status != 510 && status != 526)
		if parsed.Temporary(status) != want || decision.Statuses(nil).Temporary(status) != want {
			t.Errorf("%d: want %v", status, want)
		}
	}
}

func TestStatusesRefused(t *testing.T) {
	for _, text := range []string{
		"", "abc", "404,", "99", "1000", "500-400", "200", "404,200-299", "100-600", "!404", "-", "4 04",
	} {
		if _, err := decision.ParseStatuses(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestConfiguredStatuses(t *testing.T) {
	r := rules()
	var err error
	r.Statuses, err = decision.ParseStatuses("400")
	if err != nil {
		t.Fatal(err)
	}
	for status, want := range map[int]decision.Action{400: decision.Reschedule, 503: decision.DeadLetter} {
		if d := decide(t, r, fmt.Sprintf(plain, ""), decision.Outcome{Status: status}, 0); d.Action != want {
			t.Errorf("%d: %s", status, d.Action)
		}
	}
}

func FuzzBackPressure(f *testing.F) {
	f.Add("120", "1")
	f.Add("Sat, 31 Jan 2026 12:05:00 GMT", "1e300")
	f.Add("Sat, 01 Jan 0000 00:00:00 GMT", "")
	f.Add("", "1e300")
	f.Add("\x840", "NaN")
	f.Add(" ", "soon")
	f.Fuzz(func(t *testing.T, retryAfter, reset string) {
		o := decision.Outcome{
			Status: 429,
			Header: http.Header{"Retry-After": {retryAfter}, "X-Ratelimit-Reset": {reset}},
		}
		d := decide(t, rules(), fmt.Sprintf(plain, ""), o, 0)
		if d.Delay < 4*time.Second || d.Delay > 7*24*time.Hour {
			t.Errorf("delay %v", d.Delay)
		}
	})
}

func header(lines string) http.Header {
	h := http.Header{}
	for line := range strings.SplitSeq(lines, "\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			h.Add(name, value)
		}
	}
	return h
}

// FuzzRateLimit: whatever a target writes into its rate limit fields, the wait is within its bounds.
func FuzzRateLimit(f *testing.F) {
	f.Add(`"default";r=0;t=30`, `"default";q=10;w=60`)
	f.Add(`("a" b);r=0, :YQ==:;r=0;t=1, ?1, @1, 1.5;r=0;t=2`, `a;w=-9223372036854775808`)
	f.Add(`limit=10, remaining=0, reset=30`, ``)
	f.Fuzz(func(t *testing.T, limit, policy string) {
		h := http.Header{"Ratelimit": {limit}, "Ratelimit-Policy": {policy}}
		o := decision.Outcome{Status: 429, Header: h}
		for _, wait := range []time.Duration{o.LimitWait(now), o.AskedWait(now)} {
			if wait < 0 || wait > decision.MaxAskedWait {
				t.Errorf("%v", wait)
			}
		}
	})
}
