// Package config reads the operator's settings from the environment.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/rules/route"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
)

// Prefix is the beginning of the name of each setting.
const Prefix = "ASYNC_CALLER_"

// none is the value of a setting that is not set.
const none = "none"

// Settings are the operator's settings.
type Settings struct {
	// AppName is the name of the app, in lower case; empty means that of the platform.
	AppName string
	// CallTimeout is the longest duration of a call.
	CallTimeout time.Duration
	// Rules are the rules for messages, Routes the calls of queues with other contents than envelopes.
	Rules      decision.Rules
	Routes     route.Routes
	LogLevel   zerolog.Level
	Proxy      outbound.Proxy
	Reschedule settle.RescheduleMode
	// Tables says whether the app uses the tables of its account, beside those of the history.
	Tables Switch
	// History says what is kept of calls that have ended, and HistoryRetention how long.
	History          targets.History
	HistoryRetention time.Duration
	// Guard are the rules that say which targets may be called.
	Guard guard.Rules
	// Warnings say what will be a problem of a later version.
	Warnings []string
	// Variables are those that the optional files refer to by ${NAME}, by name.
	Variables []Variable

	// invalidRoutes says that Routes lacks those of routes.json that have problems.
	invalidRoutes bool
}

// Switch turns something on or off.
type Switch string

// The values of a [Switch].
const (
	On  Switch = "on"
	Off Switch = "off"
)

// LongestDeadline is the longest time from the creation of an envelope to its deadline that the settings allow.
const LongestDeadline = 10 * 365 * 24 * time.Hour

// Setting describes one setting.
type Setting struct {
	Name, Default, Meaning string
	// set parses a value into a field of the Settings.
	set func(value string) error
}

// proxySetting may contain a password, so its value is never shown.
const proxySetting = Prefix + "PROXY"

// tablesSetting was called scheduledSetting, which means the same in this version.
const (
	tablesSetting    = Prefix + "TABLES"
	scheduledSetting = Prefix + "SCHEDULED"
)

// table returns the settings by name. Their values go to s.
func table(s *Settings) []Setting {
	const week = 7 * 24 * time.Hour
	r := &s.Rules
	var all []Setting
	add := func(name, byDefault, meaning string, set func(string) error) {
		all = append(all, Setting{name, byDefault, meaning, set})
	}
	add(Prefix+"APP", none,
		fmt.Sprintf("name of the app, the same for all its instances: 1 to %d letters, digits, dots, hyphens and "+
			"underscores; none means the name that the platform has", maxAppName),
		into(&s.AppName, appName))
	add(Prefix+"CALL_TIMEOUT", "120s",
		fmt.Sprintf("longest duration of a call, at most %gs; %s may set another, and an envelope may ask for less",
			targets.MaxTimeout.Seconds(), TargetsFile),
		into(&s.CallTimeout, callTimeout))
	add(Prefix+"EXPIRATION", "168h", "how long an envelope without a deadline is tried",
		into(&r.Expiration, duration(time.Second, LongestDeadline)))
	add(Prefix+"GIVE_UP", "dead-letter",
		"action on giving up an envelope without a callback: dead-letter, drop or fault",
		into(&r.GiveUp, oneOf(envelope.GiveUpDeadLetter, envelope.GiveUpDrop, envelope.GiveUpFault)))
	add(Prefix+"HISTORY", "off",
		"what is kept of calls that have ended: off, outcomes, or check, which also keeps a call that was delivered "+
			"from being made again; "+TargetsFile+" may set another",
		into(&s.History, oneOf(targets.HistoryOff, targets.HistoryOutcomes, targets.HistoryCheck)))
	add(Prefix+"HISTORY_RETENTION", "90d",
		"how long it is kept, at least 31d; the calls that were created in a month go together",
		into(&s.HistoryRetention, duration(31*24*time.Hour, history.LongestRetention)))
	add(Prefix+"LOG_LEVEL", "info", "lowest level that is logged: debug, info, warn or error",
		into(&s.LogLevel, logLevel))
	add(Prefix+"MAX_DEADLINE", "720h",
		"longest time from creation or notBefore to an envelope's deadline; later deadlines are clamped",
		into(&r.MaxDeadline, duration(time.Second, LongestDeadline)))
	add(proxySetting, none, "proxy for calls: an http, https or socks5 URL; HTTP_PROXY and similar are ignored",
		into(&s.Proxy, outbound.ParseProxy))
	add(Prefix+"RESCHEDULE", "enqueue",
		"how a message is rescheduled: enqueue a successor, or update its visibility in place",
		into(&s.Reschedule, oneOf(settle.RescheduleEnqueue, settle.RescheduleUpdate)))
	add(Prefix+"RETRY", "exponential",
		"retry policy of an envelope that asks for none: a built-in one, or one of "+RetryFile+"; "+
			TargetsFile+" may set another",
		into(&r.Retry, r.Policies.Named))
	add(Prefix+"RETRY_MAX_ATTEMPTS", "0", "largest number of calls that an envelope may ask for; 0 means no limit",
		into(&r.Limits.MaxAttempts, within(bounds.New(0, 1_000_000), "a whole number", strconv.Atoi)))
	add(Prefix+"RETRY_MAX_DELAY", "168h", "longest wait between attempts that an envelope may ask for",
		into(&r.Limits.MaxDelay, duration(time.Second, LongestDeadline)))
	add(Prefix+"RETRY_MIN_DELAY", "1s", "shortest wait between attempts, except within cycles",
		into(&r.Limits.MinDelay, duration(0, week)))
	add(Prefix+"RETRY_STATUSES", decision.DefaultStatuses,
		"statuses that are retried: statuses and ranges; ! excludes; targets.json may set others",
		into(&r.Statuses, entries(decision.ParseStatuses)))
	add(tablesSetting, "on",
		"whether the app has records, limits of all instances and live settings in tables of its account: on or off",
		into(&s.Tables, oneOf(On, Off)))
	add(guard.AllowSetting, "*", "allowed targets: networks, addresses, names, *.suffix; * is all but "+
		"loopback and other special addresses",
		into(&s.Guard.Allow, entries(guard.ParseAllow)))
	add(guard.DenySetting, none, "refused targets, even if allowed: networks, addresses, names, *.suffix",
		into(&s.Guard.Deny, entries(guard.ParseDeny)))
	return all
}

// Table lists the settings that [Load] knows, by name.
func Table() []Setting { return table(&Settings{}) }

// Load reads the settings from an environment in the form of os.Environ. A setting may name one of the operator's own
// retry policies. The error joins all problems; each names the setting and the values that it accepts. An
// unknown name with our prefix is a problem. A setting with an invalid value has its default.
func Load(environ []string, policies retry.Policies) (Settings, error) {
	loaded := Settings{Rules: decision.Rules{Policies: policies, MaxDelay: storage.MaxDelay}}
	known := table(&loaded)
	var names []string
	for _, s := range known {
		names = append(names, s.Name)
	}
	values := map[string]string{}
	var problems []error
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		isKnown := slices.Contains(names, name) || name == scheduledSetting
		if strings.HasPrefix(strings.ToUpper(name), Prefix) && !isKnown {
			problems = append(problems, fmt.Errorf("%s: no such setting: the settings are %s",
				name, strings.Join(names, ", ")))
		}
		values[name] = cleaned(value)
	}
	if old := values[scheduledSetting]; old != "" {
		loaded.Warnings = append(loaded.Warnings, fmt.Sprintf("%s is called %s: rename it, because the next version "+
			"refuses the old name, and then makes no calls", scheduledSetting, tablesSetting))
		if value := cmp.Or(values[tablesSetting], old); value != old {
			problems = append(problems, fmt.Errorf("%s is %q, but %s, its old name, is %q: remove %s",
				tablesSetting, value, scheduledSetting, old, scheduledSetting))
		}
		values[tablesSetting] = cmp.Or(values[tablesSetting], old)
	}
	for _, s := range known {
		value := cmp.Or(values[s.Name], s.Default)
		if value == none && s.Default == none {
			continue
		}
		if err := s.set(value); err != nil {
			if s.Name == proxySetting {
				value = "***"
			}
			problems = append(problems, fmt.Errorf("%s: %q: %w", s.Name, value, err))
			_ = s.set(s.Default)
		}
	}
	loaded.Guard = loaded.Proxy.Restrict(loaded.Guard)
	if err := loaded.Rules.Limits.Check(); err != nil {
		problems = append(problems, fmt.Errorf("%sRETRY_MIN_DELAY, %sRETRY_MAX_DELAY: %w", Prefix, Prefix, err))
	}
	r := &loaded.Rules
	if r.MaxDeadline > 0 && r.Expiration > r.MaxDeadline {
		problems = append(problems, fmt.Errorf("%sEXPIRATION, %sMAX_DEADLINE: "+
			"the default deadline, %v, is later than the latest one, %v: lower the first or raise the second",
			Prefix, Prefix, r.Expiration, r.MaxDeadline))
	}
	if len(problems) == 0 {
		// the other limits do not apply to the operator's own policy
		r.Retry = r.Retry.Within(retry.Limits{MinDelay: r.Limits.MinDelay})
	}
	return loaded, errors.Join(problems...)
}

// LongestCall returns how long a call may take, and what says so.
func (s Settings) LongestCall() (longest time.Duration, source string) {
	ofProfiles := s.Rules.Profiles.LongestTimeout()
	if ofProfiles > s.CallTimeout {
		return ofProfiles, "the longest timeout in " + TargetsFile
	}
	return s.CallTimeout, Prefix + "CALL_TIMEOUT"
}

// CheckTimeouts reports a functionTimeout in host.json that is too short: the host would end an invocation before the
// call and then the settle write are done.
func (s Settings) CheckTimeouts(host functionapp.Host) error {
	longest, source := s.LongestCall()
	needed := longest + settle.Timeout
	if host.FunctionTimeout < 0 || host.FunctionTimeout > needed {
		return nil
	}
	return fmt.Errorf("host.json: functionTimeout is %v: set it above %v, the sum of %s, %v, and %v to settle; "+
		"at functionTimeout the host kills the handler and all its calls",
		host.FunctionTimeout, needed, source, longest, settle.Timeout)
}

// cleaned returns a value without what comes along when it is pasted: white space and invisible characters around it,
// such as a byte order mark or a zero width space, and quotes that enclose it.
func cleaned(value string) string {
	value = strings.TrimFunc(value, isInvisible)
	first, _ := utf8.DecodeRuneInString(value)
	last, length := utf8.DecodeLastRuneInString(value)
	if len(value) > length && isQuote(first) && isQuote(last) {
		return strings.TrimFunc(strings.TrimFunc(value, isQuote), isInvisible)
	}
	return value
}

func isInvisible(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) }

func isQuote(r rune) bool { return strings.ContainsRune("\"'`“”„‟‘’‚‛«»‹›", r) }

// entries returns a function that parses a list, whose entries are separated by commas or line breaks. Each entry may
// be quoted.
func entries[T any](parse func(string) (T, error)) func(string) (T, error) {
	return func(value string) (T, error) {
		var list []string
		for entry := range strings.FieldsFuncSeq(value, func(r rune) bool { return strings.ContainsRune(",\r\n", r) }) {
			entry = strings.TrimFunc(entry, func(r rune) bool { return isInvisible(r) || isQuote(r) })
			if entry != "" {
				list = append(list, entry)
			}
		}
		return parse(strings.Join(list, ","))
	}
}

// into returns a function that parses a value into a field. An invalid value does not change the field.
func into[T any](field *T, parse func(string) (T, error)) func(string) error {
	return func(value string) error {
		parsed, err := parse(value)
		if err == nil {
			*field = parsed
		}
		return err
	}
}

func duration(shortest, longest time.Duration) func(string) (time.Duration, error) {
	return within(bounds.New(shortest, longest), "a duration such as 90s, 6h or 7d,", bounds.ParseDuration)
}

// within returns a function that reads a value with parse and refuses one outside a range. Kind names such values.
func within[T cmp.Ordered](
	allowed bounds.Range[T], kind string, parse func(string) (T, error),
) func(string) (T, error) {
	return func(value string) (T, error) {
		parsed, ok := allowed.Parse(value, parse)
		if !ok {
			return parsed, fmt.Errorf("give %s %v", kind, allowed)
		}
		return parsed, nil
	}
}

// callTimeout parses the longest duration of a call.
func callTimeout(value string) (time.Duration, error) {
	d, err := duration(targets.MinTimeout, targets.MaxTimeout)(value)
	if err != nil {
		return 0, fmt.Errorf("%w: the host renews its lease on a message after 5m, "+
			"and may deliver the message again if the call ends at that moment", err)
	}
	return d, nil
}

// maxAppName is that of Azure for the name of a Function App.
const maxAppName = 60

var validAppName = regexp.MustCompile(fmt.Sprintf(`^[A-Za-z0-9._-]{1,%d}$`, maxAppName))

// appName parses the name of the app, which is the same in any letter case.
func appName(value string) (string, error) {
	switch {
	case value == none:
		return "", nil
	case !validAppName.MatchString(value):
		return "", fmt.Errorf("give 1 to %d letters, digits, dots, hyphens and underscores", maxAppName)
	}
	return strings.ToLower(value), nil
}

func oneOf[T ~string](allowed ...T) func(string) (T, error) {
	return func(value string) (T, error) {
		if slices.Contains(allowed, T(value)) {
			return T(value), nil
		}
		var names []string
		for _, name := range allowed {
			names = append(names, string(name))
		}
		last := len(names) - 1
		return "", fmt.Errorf("give %s or %s", strings.Join(names[:last], ", "), names[last])
	}
}

func logLevel(value string) (zerolog.Level, error) {
	name, err := oneOf("debug", "info", "warn", "error")(value)
	if err != nil {
		return zerolog.NoLevel, err
	}
	return zerolog.ParseLevel(name)
}

// The optional files in the app folder: the operator's own retry policies, the profiles of targets, and the calls of
// queues with other contents than envelopes.
const (
	RetryFile   = "retry.json"
	TargetsFile = "targets.json"
	RoutesFile  = "routes.json"
)

// OptionalFiles returns the names of the optional files.
func OptionalFiles() []string { return []string{RetryFile, TargetsFile, RoutesFile} }

// FilesInForce says which of the optional files an app folder has, and names the folder.
func FilesInForce(dir string) string {
	folder, err := filepath.Abs(dir)
	if err != nil {
		folder = dir
	}
	missing := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return errors.Is(err, fs.ErrNotExist)
	}
	names := slices.DeleteFunc(OptionalFiles(), missing)
	if len(names) == 0 {
		return "no " + strings.Join(OptionalFiles(), ", ") + " in " + folder
	}
	return strings.Join(names, ", ") + " in " + folder
}

// LoadApp reads the settings from an environment, and the optional files in an app folder. Getenv returns the values of
// the environment variables to which targets.json refers by "$NAME"; see [targets.Parse]. The error joins all problems.
func LoadApp(dir string, environ []string, getenv func(string) string) (Settings, error) {
	vars := newVariables(dir, environ)
	policies, policiesErr := readFile(dir, RetryFile, expanding(vars, RetryFile, retry.ParsePolicies))
	settings, err := Load(environ, policies)
	parseTargets := func(content []byte) (targets.Profiles, error) { return targets.Parse(content, policies, getenv) }
	profiles, profilesErr := readFile(dir, TargetsFile, expanding(vars, TargetsFile, parseTargets))
	settings.Rules.Profiles = profiles
	settings.Guard.Profiles = profiles.Patterns()
	if err == nil && profilesErr == nil {
		profilesErr = settings.checkMoves()
	}
	parseRoutes := func(content []byte) (route.Routes, error) { return route.Parse(content, settings.checkEnvelope) }
	routes, routesErr := readFile(dir, RoutesFile, expanding(vars, RoutesFile, parseRoutes))
	settings.Routes, settings.invalidRoutes = routes, routesErr != nil
	routesErr = errors.Join(routesErr, settings.checkKept())
	settings.Variables = vars.used()
	return settings, errors.Join(policiesErr, err, profilesErr, routesErr)
}

// KeepsHistory reports whether something is kept of the calls of any target.
func (s Settings) KeepsHistory() bool {
	return s.History != targets.HistoryOff && s.History != "" || s.Rules.Profiles.KeepHistory()
}

// checkMoves returns the hosts to which targets.json moves calls, and which the settings do not allow.
func (s Settings) checkMoves() error {
	var problems []error
	moves := s.Rules.Profiles.Moves()
	for _, pattern := range slices.Sorted(maps.Keys(moves)) {
		if refusal := s.Guard.JudgeCall(moves[pattern], ""); refusal != "" {
			problems = append(problems, fmt.Errorf("%s: %q: to: %s", TargetsFile, pattern, refusal))
		}
	}
	return errors.Join(problems...)
}

// checkEnvelope returns why an envelope could not be delivered, whatever its target says.
func (s Settings) checkEnvelope(e *envelope.Envelope) error {
	moved, refusal := s.Rules.Profiles.Moved(e.Call)
	made := cmp.Or(moved, &e.Call)
	refusal = cmp.Or(refusal, s.Guard.JudgeCall(made.Target, made.Host))
	if refusal != "" {
		return strictjson.In("url", errors.New(refusal))
	}
	_, err := s.Rules.PolicyFor(e, nil)
	return err
}

// checkKept returns the headers of posts that would replace headers of targets.json, which may be credentials.
func (s Settings) checkKept() error {
	var problems []error
	for _, name := range s.Routes.Posts() {
		r := s.Routes[name]
		in := s.Rules.OpenRouted(r, route.Arrival{MessageID: "sample"}, 0, storage.MaxTextBytes, time.Now())
		for _, header := range r.Kept {
			if _, isSet := in.Profile.Headers[header]; isSet {
				problems = append(problems, fmt.Errorf("%s: %q: keepHeaders: %s sets %s for the target: "+
					"remove it from one of them", RoutesFile, name, TargetsFile, header))
			}
		}
	}
	return errors.Join(problems...)
}

// LoadRoutes reads routes.json from the app folder without the settings, because the app may have others; see
// [route.Parse]. The error has one line per problem; each names the file, the queue and the member.
func LoadRoutes(dir string) (route.Routes, error) {
	return readFile(dir, RoutesFile, func(content []byte) (route.Routes, error) { return route.Parse(content, nil) })
}

// CheckRoutes returns why routes and their functions do not belong together. [functionapp.SyncRoutes] makes the
// functions that a route needs. An invalid routes.json has to be corrected first.
func (s Settings) CheckRoutes(app *functionapp.App) error {
	if s.invalidRoutes {
		return nil
	}
	const advice = "run `async-caller routes sync` in the app folder, and deploy again"
	var problems []error
	present := slices.Clone(app.Disabled)
	for _, f := range app.Functions {
		present = append(present, f.Name)
		to, hasRoute := s.Routes[f.Queue]
		switch {
		case f.IsRouted() && (!hasRoute || to.HTTPOnly || f.Name != functionapp.RouteFunction(f.Queue)):
			problems = append(problems, fmt.Errorf("function %s is for a route, but %s has none of this name for its "+
				"queue %s: add the route, or %s", f.Name, RoutesFile, f.Queue, advice))
		case f.IsRouted() && f.DataType != functionapp.DataBinary:
			problems = append(problems, fmt.Errorf("%s/function.json: dataType is %q: "+
				`set "binary", otherwise contents do not arrive byte for byte`, f.Name, f.DataType))
		case hasRoute && !f.IsRouted():
			problems = append(problems, fmt.Errorf("%s: %q: function %s reads envelopes from this queue: "+
				"delete its folder, or give the route another queue", RoutesFile, f.Queue, f.Name))
		}
	}
	for _, p := range app.Posts {
		present = append(present, p.Name)
		if !s.Routes[p.Queue].HTTP || p.Name != functionapp.PostFunction(p.Queue) {
			problems = append(problems, fmt.Errorf(`function %s is for posts, but %s has no route of this name with `+
				`"http": true: add the route, or %s`, p.Name, RoutesFile, advice))
		}
	}
	need := func(name, function, purpose string) {
		if !slices.Contains(present, function) {
			problems = append(problems, fmt.Errorf("%s: %q: there is no function %s to %s: %s",
				RoutesFile, name, function, purpose, advice))
		}
	}
	for _, name := range s.Routes.Queues() {
		need(name, functionapp.RouteFunction(name), "read the queue")
	}
	for _, name := range s.Routes.Posts() {
		need(name, functionapp.PostFunction(name), "take posts")
	}
	return errors.Join(problems...)
}

// readFile reads an optional file. Each line of the error names the file.
func readFile[T any](dir, name string, parse func([]byte) (T, error)) (parsed T, err error) {
	content, err := os.ReadFile(filepath.Join(dir, name)) //nolint:gosec // the app folder is the operator's choice
	if errors.Is(err, fs.ErrNotExist) {
		return parsed, nil
	}
	if err != nil {
		return parsed, err
	}
	parsed, err = parse(content)
	if err != nil {
		prefix := name + ": "
		return parsed, errors.New(prefix + strings.ReplaceAll(err.Error(), "\n", "\n"+prefix))
	}
	return parsed, nil
}
