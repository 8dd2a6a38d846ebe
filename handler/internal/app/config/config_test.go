package config_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/rules/envelope"
)

// settings is what Load makes of an environment, without the retry policy: that is compared by what it does.
type settings struct {
	CallTimeout, Expiration time.Duration
	MaxDeadline, MinDelay   time.Duration
	RetryName               string
	FirstRetry, LastRetry   time.Duration // the longest waits
	GiveUp                  envelope.GiveUp
	LogLevel                zerolog.Level
	Reschedule              settle.RescheduleMode
	AppName                 string
}

func flat(s config.Settings) settings {
	_, first := s.Rules.Retry.Bounds(1)
	_, last := s.Rules.Retry.Bounds(1000)
	r := s.Rules
	return settings{
		s.CallTimeout, r.Expiration, r.MaxDeadline, r.Limits.MinDelay, r.Retry.Name, first, last,
		r.GiveUp, s.LogLevel, s.Reschedule, s.AppName,
	}
}

// defaults returns the settings of an empty environment.
func defaults() settings {
	return settings{
		120 * time.Second,
		168 * time.Hour,
		720 * time.Hour,
		time.Second,
		"exponential",
		6 * time.Second,
		6 * time.Hour,
		envelope.GiveUpDeadLetter,
		zerolog.InfoLevel,
		settle.RescheduleEnqueue,
		"",
	}
}

// TestLoad: what the settings of an environment change. Their names are without the prefix.
func TestLoad(t *testing.T) {
	calls := func(d time.Duration) func(*settings) { return func(s *settings) { s.CallTimeout = d } }
	expires := func(d time.Duration) func(*settings) { return func(s *settings) { s.Expiration = d } }
	named := func(app string) func(*settings) { return func(s *settings) { s.AppName = app } }
	gives := func(up envelope.GiveUp) func(*settings) { return func(s *settings) { s.GiveUp = up } }
	logs := func(level zerolog.Level) func(*settings) { return func(s *settings) { s.LogLevel = level } }
	long := strings.Repeat("a", 60)
	for variable, change := range map[string]func(*settings){
		"":                      func(*settings) {},
		"CALL_TIMEOUT=":         func(*settings) {},
		"RETRY= ":               func(*settings) {},
		"LOG_LEVEL":             func(*settings) {},
		"CALL_TIMEOUT= 30s\t":   calls(30 * time.Second),
		"CALL_TIMEOUT=1s":       calls(time.Second),
		"CALL_TIMEOUT=270s":     calls(270 * time.Second),
		"CALL_TIMEOUT=90":       calls(90 * time.Second),
		"CALL_TIMEOUT=00:01:30": calls(90 * time.Second),
		"EXPIRATION=720h":       expires(720 * time.Hour),
		"EXPIRATION=1s":         expires(time.Second),
		"EXPIRATION=2d12h":      expires(60 * time.Hour),
		"MAX_DEADLINE=87600h":   func(s *settings) { s.MaxDeadline = 87600 * time.Hour },
		"APP=Shop-2_a.b":        named("shop-2_a.b"),
		"APP=none":              named(""),
		"APP=" + long:           named(long),
		"RETRY_MIN_DELAY=0s":    func(s *settings) { s.MinDelay = 0 },
		"RETRY_MIN_DELAY=10s":   func(s *settings) { s.MinDelay, s.FirstRetry = 10*time.Second, 10*time.Second },
		"GIVE_UP=drop":          gives(envelope.GiveUpDrop),
		"GIVE_UP=fault":         gives(envelope.GiveUpFault),
		"LOG_LEVEL=debug":       logs(zerolog.DebugLevel),
		"LOG_LEVEL=warn":        logs(zerolog.WarnLevel),
		"LOG_LEVEL=error":       logs(zerolog.ErrorLevel),
		"RESCHEDULE=update":     func(s *settings) { s.Reschedule = settle.RescheduleUpdate },
	} {
		t.Run(variable, func(t *testing.T) {
			environ := []string{"PATH=/bin", "AzureWebJobsStorage=x", "ASYNC_CALLERX=1", "MY_ASYNC_CALLER_RETRY=x"}
			if variable != "" {
				environ = append(environ, config.Prefix+variable)
			}
			loaded, err := config.Load(environ, nil)
			want := defaults()
			change(&want)
			if diff := cmp.Diff(want, flat(loaded)); diff != "" || err != nil {
				t.Errorf("error %v, settings (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestOldNameOfTables: the old name of a setting means the same, with a warning, unless both names contradict each
// other.
func TestOldNameOfTables(t *testing.T) {
	const old, name = "ASYNC_CALLER_SCHEDULED=", "ASYNC_CALLER_TABLES="
	for label, test := range map[string]struct {
		environ []string
		want    config.Switch
		warned  bool
		problem string
	}{
		"new":       {[]string{name + "off"}, config.Off, false, ""},
		"old":       {[]string{old + `"off"`}, config.Off, true, ""},
		"old_on":    {[]string{old + "on"}, config.On, true, ""},
		"old_empty": {[]string{old, name + "off"}, config.Off, false, ""},
		"new_empty": {[]string{old + "off", name}, config.Off, true, ""},
		"same":      {[]string{old + "off", name + "off"}, config.Off, true, ""},
		"different": {[]string{old + "off", name + "on"}, config.On, true, `_TABLES is "on", but ASYNC_CALLER_SCHEDULED`},
		"no_value":  {[]string{old + "of"}, config.On, true, `"of": give on or off`},
		"misspelt":  {[]string{"ASYNC_CALLER_Scheduled=off"}, config.On, false, "no such setting"},
	} {
		t.Run(label, func(t *testing.T) {
			loaded, err := config.Load(test.environ, nil)
			warned := strings.Contains(strings.Join(loaded.Warnings, "\n"),
				"ASYNC_CALLER_SCHEDULED is called ASYNC_CALLER_TABLES")
			if loaded.Tables != test.want || warned != test.warned {
				t.Errorf("%s, warnings %q", loaded.Tables, loaded.Warnings)
			}
			problem := fmt.Sprint(err)
			if (err == nil) != (test.problem == "") || !strings.Contains(problem, test.problem) {
				t.Errorf("problem %s", problem)
			}
		})
	}
}

// TestPasted: a value means the same with what comes along when it is pasted.
func TestPasted(t *testing.T) {
	for name, form := range map[string]string{
		"double_quotes": `"%s"`, "single_quotes": `'%s'`, "typographic": "“%s”", "german": "„%s“", "both": `"'%s'"`,
		"guillemets": "«%s»", "backticks": "`%s`", "crlf": "%s\r\n", "no_break_space": "\u00a0%s\u00a0",
		"zero_width": "\u200b%s\u200b", "mark_and_quotes": "\ufeff \"\u00a0%s \"\r\n", "line_separator": "%s\u2028",
	} {
		t.Run(name, func(t *testing.T) {
			value := func(text string) string { return fmt.Sprintf(form, text) }
			loaded, err := config.Load([]string{
				"ASYNC_CALLER_CALL_TIMEOUT=" + value("30s"), "ASYNC_CALLER_GIVE_UP=" + value("drop"),
				"ASYNC_CALLER_LOG_LEVEL=" + value("debug"), "ASYNC_CALLER_RETRY=" + value("nexus"),
				"ASYNC_CALLER_TABLES=" + value("off"),
				"ASYNC_CALLER_RETRY_STATUSES=" + value("503"), "ASYNC_CALLER_TARGETS_ALLOW=" + value("t.example"),
				"ASYNC_CALLER_PROXY=" + value("http://me:C4nary@proxy.example:3128"),
				"ASYNC_CALLER_EXPIRATION=" + value(""),
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := flat(loaded)
			if got.CallTimeout != 30*time.Second || got.GiveUp != envelope.GiveUpDrop || got.RetryName != "nexus" ||
				got.LogLevel != zerolog.DebugLevel || got.Expiration != 168*time.Hour {
				t.Errorf("%+v", got)
			}
			if loaded.Tables != config.Off || !loaded.Rules.Statuses[503] ||
				loaded.Rules.Statuses[500] || loaded.Guard.Judge("t.example", netip.Addr{}) != "" ||
				loaded.Guard.Judge("u.example", netip.Addr{}) == "" {
				t.Errorf("%+v", loaded)
			}
		})
	}
}

// TestPastedLists: the entries of a list may be on lines of their own.
func TestPastedLists(t *testing.T) {
	for name, value := range map[string]string{
		"lines_with_commas": "a.example,\r\n  b.example,\r\n", "quoted": `"a.example", "b.example"`,
		"quoted_lines": "\"a.example\"\n\"b.example\"\n", "spaces": " a.example\u00a0,\u200bb.example",
		"typographic": "“a.example”,“b.example”", "all_quoted": "'a.example,b.example'", "twice": "a.example,,b.example",
	} {
		t.Run(name, func(t *testing.T) {
			loaded, err := config.Load(
				[]string{"ASYNC_CALLER_TARGETS_ALLOW=*", "ASYNC_CALLER_TARGETS_DENY=" + value}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for host, allowed := range map[string]bool{"a.example": false, "b.example": false, "c.example": true} {
				if refusal := loaded.Guard.Judge(host, netip.Addr{}); (refusal == "") != allowed {
					t.Errorf("%s: %q", host, refusal)
				}
			}
		})
	}
	loaded, err := config.Load([]string{"ASYNC_CALLER_RETRY_STATUSES=404,\n500-599,\n!501\n"}, nil)
	if s := loaded.Rules.Statuses; err != nil || !s[404] || !s[500] || s[501] {
		t.Errorf("%v, %v", s, err)
	}
}

// TestLoadRefuses: the error names the setting, its value and the values that it accepts, and shows no password.
func TestLoadRefuses(t *testing.T) {
	const duration = ": give a duration such as 90s, 6h or 7d, from 1s to "
	const proxy = `"***": give an http, https or socks5 URL`
	for variable, want := range map[string]string{
		"APP=" + strings.Repeat("a", 61): `aaa": give 1 to 60 letters, digits, dots, hyphens and underscores`,
		"APP=my app":                     `"my app": give 1 to 60 letters`,
		"APP=shop\n2":                    `"shop\n2": give`,
		"APP=müller":                     `"müller": give`,

		"CALL_TIMEOUT=soon":       `"soon"` + duration + "4m30s: the host renews its lease on a message after 5m",
		"CALL_TIMEOUT=0x78":       `"0x78"` + duration,
		`CALL_TIMEOUT="120s`:      `"\"120s"` + duration,
		"CALL_TIMEOUT=1\u200b20s": `"1\u200b20s"` + duration,
		"CALL_TIMEOUT=0s":         `"0s"` + duration,
		"CALL_TIMEOUT=999ms":      `"999ms"` + duration,
		"CALL_TIMEOUT=270.001s":   `"270.001s"` + duration,
		"CALL_TIMEOUT=-5s":        `"-5s"` + duration,
		"EXPIRATION=3651d":        `"3651d"` + duration + "87600h",
		"EXPIRATION=1ms":          `"1ms"` + duration,
		"EXPIRATION=9999999999h":  `"9999999999h"` + duration,
		"MAX_DEADLINE=87601h":     `"87601h"` + duration + "87600h",
		"MAX_DEADLINE=0s":         `"0s"` + duration,

		"GIVE_UP=poison":       `"poison": give dead-letter, drop or fault`,
		"GIVE_UP=Drop":         `"Drop": give dead-letter, drop or fault`,
		"LOG_LEVEL=trace":      `"trace": give debug, info, warn or error`,
		"LOG_LEVEL=1":          `"1": give debug, info, warn or error`,
		"LOG_LEVEL=INFO":       `"INFO": give debug, info, warn or error`,
		"RESCHEDULE=old":       `"old": give enqueue or update`,
		"RETRY=linear":         "exponential",
		`RETRY={"factor":2}`:   "exponential",
		"RETRY_MIN_DELAY=8d":   `"8d": give a duration such as 90s, 6h or 7d, from 0s to 168h0m0s`,
		"HISTORY_RETENTION=1d": `"1d": give a duration such as 90s, 6h or 7d, from 744h0m0s to`,

		`PROXY="http://me:C4nary@proxy.example:3128`:  proxy,
		"PROXY=http://me:C4nary@pro\nxy.example:3128": proxy,
		"PROXY=C4nary:3128":                           proxy,
		"PROXY=ftp://me:C4nary@proxy.example":         proxy,
		"PROXY=http://me:C4nary@proxy.example:0":      `"***": `,
		`TARGETS_ALLOW="",''`:                         "it names nothing",
		"TARGETS_ALLOW=,":                             "it names nothing",
		"TARGETS_ALLOW=a.example b.example":           `entry "a.example b.example": want`,
		"TARGETS_ALLOW=10.0.0.0/33,*":                 `entry "10.0.0.0/33": want a network`,
		"TARGETS_DENY=t.example,https://u.example,*":  `entry "https://u.example": want`,
		"TARGETS_DENY=t.example,*":                    `entry "*": only ASYNC_CALLER_TARGETS_ALLOW`,
	} {
		t.Run(variable, func(t *testing.T) {
			_, err := config.Load([]string{config.Prefix + variable}, nil)
			name, _, _ := strings.Cut(config.Prefix+variable, "=")
			text := fmt.Sprint(err)
			if !strings.HasPrefix(text, name+": ") || !strings.Contains(text, want) {
				t.Errorf("error %q, want %s: %s", text, name, want)
			}
			if strings.Contains(text, "C4nary") {
				t.Errorf("%q shows a password", text)
			}
		})
	}
	for _, name := range []string{
		"ASYNC_CALLER_TIMEOUT", "ASYNC_CALLER_", "async_caller_retry", "Async_Caller_Retry", "ASYNC_CALLER__RETRY",
	} {
		_, err := config.Load([]string{name + "=C4nary"}, nil)
		text := fmt.Sprint(err)
		if !strings.HasPrefix(text, name+": no such setting: the settings are ASYNC_CALLER_APP, ") ||
			strings.Contains(text, "C4nary") {
			t.Errorf("%s: error %q, want the settings and no value, which may be secret", name, text)
		}
	}
}

func TestEveryProblemAtOnce(t *testing.T) {
	var environ, want []string
	for _, s := range config.Table() {
		environ = append(environ, s.Name+"=wrong value")
		want = append(want, s.Name+": ")
	}
	environ = append(environ, "ASYNC_CALLER_NONSENSE=1", "ASYNC_CALLER_NONSENSE_TOO=1")
	want = append(want, "ASYNC_CALLER_NONSENSE: ", "ASYNC_CALLER_NONSENSE_TOO: ")
	loaded, err := config.Load(environ, nil)
	if err == nil {
		t.Fatal("no problem was reported")
	}
	if diff := cmp.Diff(defaults(), flat(loaded)); diff != "" {
		t.Errorf("hold mode works with the defaults (-want +got):\n%s", diff)
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		t.Errorf("%d problems, want %d:\n%v", len(lines), len(want), err)
	}
	for _, name := range want {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, name) }) {
			t.Errorf("no line begins with %s:\n%v", name, err)
		}
	}
}

func TestTargets(t *testing.T) {
	loaded, err := config.Load(
		[]string{
			"ASYNC_CALLER_TARGETS_ALLOW=t.example, 127.0.0.0/8,*",
			"ASYNC_CALLER_TARGETS_DENY= *.Denied.example ,127.0.0.9",
			"ASYNC_CALLER_PROXY=http://me:C4nary@proxy.example",
		},
		nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	for host, allowed := range map[string]bool{
		"t.example": true, "127.0.0.1": true, "127.0.0.9": false, "::1": false, "a.denied.example": false,
		"u.example": true,
	} {
		if refusal := loaded.Guard.Judge(host, netip.Addr{}); (refusal == "") != allowed {
			t.Errorf("%s: %q, want allowed: %v", host, refusal, allowed)
		}
	}
	if text := fmt.Sprintf("%+v %#v", loaded, loaded); strings.Contains(text, "C4nary") {
		t.Errorf("the settings show the proxy's password: %s", text)
	}
}

// TestProjectsOwnSettings: local.settings.json opens this machine in addition to the defaults, and host.json leaves
// time for the default settings.
func TestProjectsOwnSettings(t *testing.T) {
	const root = "../../../.."
	environ, localErr := functionapp.WithLocalSettings(root, nil)
	loaded, err := config.Load(environ, nil)
	host, hostErr := functionapp.LoadHost(root, nil)
	if err := errors.Join(localErr, err, hostErr, loaded.CheckTimeouts(host)); err != nil {
		t.Fatal(err)
	}
	for addr, allowed := range map[string]bool{
		"127.0.0.1": true, "::1": true, "8.8.8.8": true, "169.254.169.254": false, "168.63.129.16": false,
	} {
		if refusal := loaded.Guard.Judge("localhost", netip.MustParseAddr(addr)); (refusal == "") != allowed {
			t.Errorf("%s: %q, want allowed: %v", addr, refusal, allowed)
		}
	}
}

// What is wrong with one setting does not lose the others, so that they can be checked too.
func TestGoodSettingsBesideABadOne(t *testing.T) {
	loaded, err := config.Load([]string{"ASYNC_CALLER_GIVE_UP=wrong", "ASYNC_CALLER_CALL_TIMEOUT=30s"}, nil)
	if err == nil || loaded.CallTimeout != 30*time.Second {
		t.Errorf("got %v, %v", loaded.CallTimeout, err)
	}
}

// The table that a person reads tells the truth.
func TestTable(t *testing.T) {
	table := config.Table()
	if len(table) == 0 {
		t.Fatal("there are no settings")
	}
	if !slices.IsSortedFunc(table, func(a, b config.Setting) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the settings are not ordered by name")
	}
	plain, err := config.Load(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range table {
		t.Run(s.Name, func(t *testing.T) {
			if !strings.HasPrefix(s.Name, config.Prefix) || s.Meaning == "" || s.Default == "" ||
				strings.ContainsAny(s.Meaning+s.Default, "|\n`") {
				t.Errorf("%+v cannot stand in a table", s)
			}
			explicit, err := config.Load([]string{s.Name + "=" + s.Default}, nil)
			if err != nil {
				t.Fatalf("its own default is refused: %v", err)
			}
			if diff := cmp.Diff(flat(plain), flat(explicit)); diff != "" {
				t.Errorf("setting the default changes something (-unset +set):\n%s", diff)
			}
			if _, err := config.Load([]string{s.Name + "=\x00nonsense"}, nil); err == nil {
				t.Error("it takes any value")
			}
		})
	}
}

func TestCheckTimeouts(t *testing.T) {
	for name, test := range map[string]struct {
		call, function time.Duration
		want           string // empty: enough time
	}{
		"just_above":          {120 * time.Second, 180*time.Second + 1, ""},
		"function_never_ends": {24 * time.Hour, -1, ""},
		"exactly": {120 * time.Second, 180 * time.Second, "host.json: functionTimeout is 3m0s: set it above 3m0s, " +
			"the sum of ASYNC_CALLER_CALL_TIMEOUT, 2m0s, and 1m0s to settle"},
		"below_the_call": {120 * time.Second, time.Minute, "set it above 3m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			settings := config.Settings{CallTimeout: test.call}
			err := settings.CheckTimeouts(functionapp.Host{FunctionTimeout: test.function})
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}
