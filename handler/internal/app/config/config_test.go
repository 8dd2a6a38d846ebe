package config_test

import (
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
	"asynccaller/handler/internal/rules/retry"
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

func TestLoad(t *testing.T) {
	tests := map[string]struct {
		environ []string
		want    func(*settings)
	}{
		"nothing_set": {nil, func(*settings) {}},
		"others_ignored": {[]string{
			"PATH=/bin", "AzureWebJobsStorage=x", "ASYNC_CALLERX=1",
			"MY_ASYNC_CALLER_RETRY=x", "ASYNC_CALLER=1",
		}, func(*settings) {}},
		"empty_is_default": {
			[]string{"ASYNC_CALLER_CALL_TIMEOUT=", "ASYNC_CALLER_RETRY= ", "ASYNC_CALLER_LOG_LEVEL"},
			func(*settings) {},
		},
		"space_around": {
			[]string{"ASYNC_CALLER_CALL_TIMEOUT= 30s\t"},
			func(s *settings) { s.CallTimeout = 30 * time.Second },
		},
		"call_timeout": {
			[]string{"ASYNC_CALLER_CALL_TIMEOUT=1m30s"},
			func(s *settings) { s.CallTimeout = 90 * time.Second },
		},
		"call_timeout_least": {
			[]string{"ASYNC_CALLER_CALL_TIMEOUT=1s"},
			func(s *settings) { s.CallTimeout = time.Second },
		},
		"call_timeout_most": {
			[]string{"ASYNC_CALLER_CALL_TIMEOUT=270s"},
			func(s *settings) { s.CallTimeout = 270 * time.Second },
		},
		"call_timeout_seconds": {
			[]string{"ASYNC_CALLER_CALL_TIMEOUT=90"},
			func(s *settings) { s.CallTimeout = 90 * time.Second },
		},
		"call_timeout_span": {
			[]string{"ASYNC_CALLER_CALL_TIMEOUT=00:01:30"},
			func(s *settings) { s.CallTimeout = 90 * time.Second },
		},
		"call_timeout_iso": {
			[]string{"ASYNC_CALLER_CALL_TIMEOUT=PT1M30S"},
			func(s *settings) { s.CallTimeout = 90 * time.Second },
		},
		"expiration": {
			[]string{"ASYNC_CALLER_EXPIRATION=720h"},
			func(s *settings) { s.Expiration = 720 * time.Hour },
		},
		"expiration_least": {
			[]string{"ASYNC_CALLER_EXPIRATION=1s"},
			func(s *settings) { s.Expiration = time.Second },
		},
		"expiration_days": {
			[]string{"ASYNC_CALLER_EXPIRATION=2d12h"},
			func(s *settings) { s.Expiration = 60 * time.Hour },
		},
		"expiration_most": {
			[]string{"ASYNC_CALLER_EXPIRATION=87600h", "ASYNC_CALLER_MAX_DEADLINE=87600h"},
			func(s *settings) { s.Expiration, s.MaxDeadline = 87600*time.Hour, 87600*time.Hour },
		},
		"app":      {[]string{"ASYNC_CALLER_APP=Shop-2_a.b"}, func(s *settings) { s.AppName = "shop-2_a.b" }},
		"app_none": {[]string{"ASYNC_CALLER_APP=none"}, func(*settings) {}},
		"app_long": {
			[]string{"ASYNC_CALLER_APP=" + strings.Repeat("a", 60)},
			func(s *settings) { s.AppName = strings.Repeat("a", 60) },
		},
		"min_delay_none": {[]string{"ASYNC_CALLER_RETRY_MIN_DELAY=0s"}, func(s *settings) { s.MinDelay = 0 }},
		"min_delay_more": {
			[]string{"ASYNC_CALLER_RETRY_MIN_DELAY=10s"},
			func(s *settings) { s.MinDelay, s.FirstRetry = 10*time.Second, 10*time.Second },
		},
		"give_up_drop": {
			[]string{"ASYNC_CALLER_GIVE_UP=drop"},
			func(s *settings) { s.GiveUp = envelope.GiveUpDrop },
		},
		"give_up_fault": {
			[]string{"ASYNC_CALLER_GIVE_UP=fault"},
			func(s *settings) { s.GiveUp = envelope.GiveUpFault },
		},
		"log_debug": {
			[]string{"ASYNC_CALLER_LOG_LEVEL=debug"},
			func(s *settings) { s.LogLevel = zerolog.DebugLevel },
		},
		"log_warn": {
			[]string{"ASYNC_CALLER_LOG_LEVEL=warn"},
			func(s *settings) { s.LogLevel = zerolog.WarnLevel },
		},
		"log_error": {
			[]string{"ASYNC_CALLER_LOG_LEVEL=error"},
			func(s *settings) { s.LogLevel = zerolog.ErrorLevel },
		},
		"reschedule_update": {
			[]string{"ASYNC_CALLER_RESCHEDULE=update"},
			func(s *settings) { s.Reschedule = settle.RescheduleUpdate },
		},
		"several": {
			[]string{"ASYNC_CALLER_GIVE_UP=drop", "HOME=/", "ASYNC_CALLER_EXPIRATION=1h"},
			func(s *settings) { s.GiveUp, s.Expiration = envelope.GiveUpDrop, time.Hour },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			loaded, err := config.Load(test.environ, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := defaults()
			test.want(&want)
			if diff := cmp.Diff(want, flat(loaded)); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
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
		"different": {[]string{old + "off", name + "on"}, config.On, true, old[:len(old)-1]},
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
			if label == "different" && !strings.Contains(problem, "ASYNC_CALLER_TABLES") {
				t.Errorf("the problem does not name both: %s", problem)
			}
		})
	}
}

// TestPasted: a value means the same with what comes along when it is pasted.
func TestPasted(t *testing.T) {
	for name, form := range map[string]string{
		"double_quotes": `"%s"`, "single_quotes": `'%s'`, "typographic": "“%s”", "swedish": "”%s”", "german": "„%s“",
		"single_typographic": "‘%s’", "guillemets": "«%s»", "backticks": "`%s`", "both": `"'%s'"`,
		"byte_order_mark": "\ufeff%s", "crlf": "%s\r\n", "no_break_space": "\u00a0%s\u00a0", "zero_width": "\u200b%s\u200b",
		"word_joiner": "%s\u2060", "left_to_right": "\u200e%s", "mark_and_quotes": "\ufeff \"\u00a0%s \"\r\n",
		"narrow_space": "\u202f%s", "line_separator": "%s\u2028",
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
		"lines": "a.example\nb.example", "lines_with_commas": "a.example,\r\n  b.example,\r\n", "quoted": `"a.example", "b.example"`,
		"quoted_lines": "\"a.example\"\n\"b.example\"\n", "spaces": " a.example\u00a0,\u200bb.example", "twice": "a.example,,b.example",
		"typographic": "“a.example”,“b.example”", "all_quoted": "'a.example,b.example'",
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

func TestDefaultPolicyIsTheDefault(t *testing.T) {
	loaded, err := config.Load(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for attempt := range 20 {
		shortest, longest := loaded.Rules.Retry.Bounds(attempt)
		wantShortest, wantLongest := retry.Default().Bounds(attempt)
		if shortest != wantShortest || longest != wantLongest {
			t.Errorf("after attempt %d: %v to %v, want %v to %v", attempt, shortest, longest, wantShortest, wantLongest)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	tests := map[string]struct {
		variable string
		want     []string
	}{
		"app_long":            {"ASYNC_CALLER_APP=" + strings.Repeat("a", 61), []string{"1 to 60 letters"}},
		"app_space":           {"ASYNC_CALLER_APP=my app", []string{`"my app"`, "1 to 60 letters"}},
		"app_lines":           {"ASYNC_CALLER_APP=shop\n2", []string{`"shop\n2"`}},
		"app_umlaut":          {"ASYNC_CALLER_APP=müller", []string{`"müller"`}},
		"call_timeout_number": {"ASYNC_CALLER_CALL_TIMEOUT=0x78", []string{`"0x78"`, "90s", "from 1s to 4m30s"}},
		"call_timeout_word":   {"ASYNC_CALLER_CALL_TIMEOUT=soon", []string{`"soon"`, "90s"}},
		"call_timeout_quote":  {`ASYNC_CALLER_CALL_TIMEOUT="120s`, []string{`"\"120s"`, "90s"}},
		"call_timeout_break":  {"ASYNC_CALLER_CALL_TIMEOUT=120\ns", []string{`"120\ns"`, "90s"}},
		"call_timeout_inside": {"ASYNC_CALLER_CALL_TIMEOUT=1\u200b20s", []string{`"1\u200b20s"`, "90s"}},
		"allow_quotes":        {`ASYNC_CALLER_TARGETS_ALLOW="",''`, []string{"it names nothing"}},
		"allow_space": {
			"ASYNC_CALLER_TARGETS_ALLOW=a.example b.example",
			[]string{`entry "a.example b.example": want`},
		},
		"proxy_quote":        {`ASYNC_CALLER_PROXY="http://me:C4nary@proxy.example:3128`, []string{`"***"`}},
		"proxy_break":        {"ASYNC_CALLER_PROXY=http://me:C4nary@pro\nxy.example:3128", []string{`"***"`}},
		"call_timeout_zero":  {"ASYNC_CALLER_CALL_TIMEOUT=0s", []string{`"0s"`, "from 1s"}},
		"call_timeout_short": {"ASYNC_CALLER_CALL_TIMEOUT=999ms", []string{"from 1s"}},
		"call_timeout_long": {
			"ASYNC_CALLER_CALL_TIMEOUT=270.001s",
			[]string{"to 4m30s", "renews its lease", "5m", "deliver"},
		},
		"call_timeout_negative": {"ASYNC_CALLER_CALL_TIMEOUT=-5s", []string{`"-5s"`}},
		"call_timeout_timespan": {"ASYNC_CALLER_CALL_TIMEOUT=24:00:00", []string{`"24:00:00"`}},
		"expiration_days":       {"ASYNC_CALLER_EXPIRATION=3651d", []string{`"3651d"`, "7d"}},
		"expiration_short":      {"ASYNC_CALLER_EXPIRATION=1ms", []string{"from 1s"}},
		"expiration_long":       {"ASYNC_CALLER_EXPIRATION=87601h", []string{"to 87600h"}},
		"max_deadline_short": {
			"ASYNC_CALLER_MAX_DEADLINE=167h",
			[]string{"ASYNC_CALLER_EXPIRATION, ", "168h0m0s", "167h0m0s"},
		},
		"max_deadline_long":   {"ASYNC_CALLER_MAX_DEADLINE=87601h", []string{"to 87600h"}},
		"max_deadline_zero":   {"ASYNC_CALLER_MAX_DEADLINE=0s", []string{"from 1s"}},
		"expiration_overflow": {"ASYNC_CALLER_EXPIRATION=9999999999h", []string{`"9999999999h"`}},
		"give_up_unknown":     {"ASYNC_CALLER_GIVE_UP=poison", []string{`"poison"`, "dead-letter, drop or fault"}},
		"give_up_case":        {"ASYNC_CALLER_GIVE_UP=Drop", []string{`"Drop"`, "dead-letter, drop or fault"}},
		"log_level_unknown": {
			"ASYNC_CALLER_LOG_LEVEL=verbose",
			[]string{`"verbose"`, "debug, info, warn or error"},
		},
		"log_level_trace":  {"ASYNC_CALLER_LOG_LEVEL=trace", []string{`"trace"`, "debug, info, warn or error"}},
		"log_level_number": {"ASYNC_CALLER_LOG_LEVEL=1", []string{`"1"`}},
		"log_level_case":   {"ASYNC_CALLER_LOG_LEVEL=INFO", []string{`"INFO"`, "info"}},
		"proxy_no_url": {
			"ASYNC_CALLER_PROXY=C4nary:3128",
			[]string{`"***"`, "give an http, https or socks5 URL"},
		},
		"proxy_scheme": {"ASYNC_CALLER_PROXY=ftp://me:C4nary@proxy.example", []string{"socks5"}},
		"proxy_port": {
			"ASYNC_CALLER_PROXY=http://me:C4nary@proxy.example:0",
			[]string{"http://proxy.example:3128"},
		},
		"allow_network": {
			"ASYNC_CALLER_TARGETS_ALLOW=10.0.0.0/33,*",
			[]string{`entry "10.0.0.0/33": want a network`},
		},
		"allow_nothing": {"ASYNC_CALLER_TARGETS_ALLOW=,", []string{"it names nothing"}},
		"deny_several": {
			"ASYNC_CALLER_TARGETS_DENY=t.example,https://u.example,10.0.0.1/8,*",
			[]string{
				`entry "https://u.example": want`, `entry "10.0.0.1/8": the network is 10.0.0.0/8`,
				`entry "*": only ASYNC_CALLER_TARGETS_ALLOW`,
			},
		},
		"reschedule_unknown": {"ASYNC_CALLER_RESCHEDULE=old", []string{`"old"`, "enqueue or update"}},
		"retry_unknown":      {"ASYNC_CALLER_RETRY=linear", []string{`"linear"`, "exponential"}},
		"retry_parameters":   {`ASYNC_CALLER_RETRY={"factor":2}`, []string{"exponential"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := config.Load([]string{test.variable}, nil)
			if err == nil {
				t.Fatal("it was accepted")
			}
			setting, _, _ := strings.Cut(test.variable, "=")
			if strings.Contains(err.Error(), "C4nary") {
				t.Errorf("%q tells a password", err)
			}
			for _, want := range append(test.want, setting+": ") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

func TestUnknownNames(t *testing.T) {
	for _, name := range []string{
		"ASYNC_CALLER_TIMEOUT", "ASYNC_CALLER_", "async_caller_retry", "Async_Caller_Retry", "ASYNC_CALLER_RETRY_",
		"ASYNC_CALLER_RETRIES", "ASYNC_CALLER__RETRY",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Load([]string{name + "=C4nary"}, nil)
			if err == nil {
				t.Fatal("it was accepted")
			}
			if !strings.Contains(err.Error(), name+": no such setting") ||
				!strings.Contains(err.Error(), "ASYNC_CALLER_RETRY") {
				t.Errorf("%q does not tell which settings there are", err)
			}
			if strings.Contains(err.Error(), "C4nary") {
				t.Errorf("%q tells a value that may be secret", err)
			}
		})
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

// Nobody develops against the real world: local.settings.json opens this machine, and that only.
func TestLocalSettingsAllowLoopback(t *testing.T) {
	environ, err := functionapp.WithLocalSettings("../../../..", nil)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := config.Load(environ, nil)
	if err != nil {
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
	tests := map[string]struct {
		call, function time.Duration
		fits           bool
	}{
		"as_shipped":          {120 * time.Second, 5 * time.Minute, true},
		"just_above":          {120 * time.Second, 180*time.Second + 1, true},
		"exactly":             {120 * time.Second, 180 * time.Second, false},
		"call_fits_alone":     {120 * time.Second, 150 * time.Second, false},
		"below_the_call":      {120 * time.Second, time.Minute, false},
		"short_call":          {time.Second, 62 * time.Second, true},
		"call_of_5_minutes":   {5 * time.Minute, 5 * time.Minute, false},
		"function_never_ends": {24 * time.Hour, -1, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			settings := config.Settings{CallTimeout: test.call}
			err := settings.CheckTimeouts(functionapp.Host{FunctionTimeout: test.function})
			if test.fits {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil {
				t.Fatal("the host would end an invocation before it is settled")
			}
			for _, want := range []string{
				"host.json", "functionTimeout", test.function.String(), "ASYNC_CALLER_CALL_TIMEOUT", test.call.String(),
				(test.call + time.Minute).String(),
			} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

// The project's own host.json leaves time for the default settings.
func TestProjectsOwnTimeouts(t *testing.T) {
	loaded, err := config.Load(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	host, err := functionapp.LoadHost("../../../..", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := loaded.CheckTimeouts(host); err != nil {
		t.Error(err)
	}
}
