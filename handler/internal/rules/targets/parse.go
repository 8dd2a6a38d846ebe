package targets

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/time/rate"

	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/plain/nearest"
	"asynccaller/handler/internal/plain/secret"
	"asynccaller/handler/internal/plain/strictjson"
	"asynccaller/handler/internal/plain/variable"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/rules/retry"
)

// The bounds of a call's timeout. A call and its settling should end before the host first renews its lease: a delete
// during the renewal fails, and the host delivers the message again (docs/host.md, "Leases").
const (
	MinTimeout = time.Second
	MaxTimeout = 270 * time.Second
)

// The bounds of the file and of its values.
const (
	maxFileBytes   = 1 << 20
	maxEntries     = 1000
	maxConcurrency = 10_000
	maxCalls       = 1_000_000 // of a rate or a burst
	maxFailures    = 1000
	minDelay       = time.Second
	maxDelay       = 24 * time.Hour
	// minSecret is the length of the shortest value of a variable that is secret in a header whose name is not:
	// shorter ones are versions, regions and the like, which answers may well have.
	minSecret = 8
)

// Parse reads targets.json. An entry's retry policy may be one of the operator's own by name. Getenv returns the value
// of an environment variable; if it is nil, references to variables are not resolved, and headers have only their
// names. The error joins all problems; each names the pattern and the member, and none repeats a header's value.
func Parse(content []byte, policies retry.Policies, getenv func(name string) string) (Profiles, error) {
	if len(content) > maxFileBytes {
		return Profiles{}, fmt.Errorf("has %d bytes: at most %d are read", len(content), maxFileBytes)
	}
	members, err := strictjson.Object(content)
	if err != nil {
		return Profiles{}, err
	}
	if len(members) > maxEntries {
		return Profiles{}, fmt.Errorf("has %d entries: at most %d are allowed", len(members), maxEntries)
	}
	profiles := Profiles{entries: make(map[string]Profile, len(members))}
	var problems []error
	for _, m := range members {
		key, profile, err := parseEntry(m, policies, getenv)
		other, isTaken := profiles.entries[key]
		if isTaken && err == nil {
			err = fmt.Errorf("means the same as the pattern %q: remove one", other.Pattern)
		}
		for _, problem := range each(err) {
			problems = append(problems, fmt.Errorf("%.300q: %w", m.Name, problem))
		}
		if err == nil {
			profiles.entries[key] = profile
			profiles.longest = max(profiles.longest, profile.Timeout)
		}
	}
	return profiles, errors.Join(append(problems, profiles.checkMoves()...)...)
}

// each returns the errors that an error joins.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

func parseEntry(
	m strictjson.Member, policies retry.Policies, getenv func(string) string,
) (key string, p Profile, err error) {
	p = defaultProfile
	p.Pattern = m.Name
	key, p.Scope, err = parsePattern(m.Name)
	problems := eachMember(m.Value, map[string]func(json.RawMessage) error{
		"auth":        func(value json.RawMessage) error { return p.setAuth(value, getenv) },
		"breaker":     p.Breaker.set,
		"ca":          func(value json.RawMessage) error { return p.setAuthorities(value, getenv) },
		"certificate": func(value json.RawMessage) error { return p.setCertificate(value, getenv) },
		"concurrency": into(&p.Concurrency, wholeNumber(maxConcurrency)),
		"headers":     func(value json.RawMessage) error { return p.setHeaders(value, getenv) },
		"history":     into(&p.History, parseHistory),
		"rate":        p.setRate,
		"retry":       func(value json.RawMessage) error { return p.setRetry(value, policies) },
		"sign":        func(value json.RawMessage) error { return p.setSign(value, getenv) },
		"statuses":    p.setStatuses,
		"timeout":     into(&p.Timeout, duration(MinTimeout, MaxTimeout)),
		"to":          p.setTo,
	})
	members, _ := strictjson.Object(m.Value) // eachMember has its error
	return key, p, errors.Join(slices.Concat(
		each(err), each(problems), each(p.checkAuth(key)), each(p.checkTo(key, len(members))),
		each(p.checkTLS(key)), each(p.checkSign(key)),
	)...)
}

// parsePattern returns the key of a pattern in [Profiles], and the scope if the pattern names a port.
func parsePattern(text string) (key, scope string, err error) {
	if text == star {
		return star, "", nil
	}
	bare, isSuffix := strings.CutPrefix(text, "*.")
	u, err := envelope.ParseURL("http://" + bracketed(bare))
	if err != nil || strings.ContainsAny(bare, "/?#@%") || strings.HasSuffix(bare, ":") {
		return "", "", errors.New("not a pattern: want a host name or address, with or without a port, *.suffix or *")
	}
	host := guard.Canonical(u.Hostname())
	_, addressErr := netip.ParseAddr(host)
	isAddress := addressErr == nil
	switch {
	case isSuffix && (u.Port() != "" || isAddress):
		return "", "", errors.New("not a pattern: *. is followed by the name of a domain, without a port")
	case isSuffix:
		return "." + host, "", nil
	case u.Port() != "":
		return Address(u), Address(u), nil
	}
	return bracketed(host), "", nil
}

// ParseHost reads a host, or a host and port, and returns the one spelling of all texts that mean it: that of [HostOf],
// but never cut.
func ParseHost(text string) (string, error) {
	key, _, err := parsePattern(text)
	if err != nil || strings.HasPrefix(text, star) {
		return "", fmt.Errorf("%.80q: want a host name or address, with or without a port, such as "+
			"api.example.com or api.example.com:8443", text)
	}
	return key, nil
}

// eachMember calls the function of each member of an object. Its error joins all problems.
func eachMember(value json.RawMessage, known map[string]func(json.RawMessage) error) error {
	return inEach(value, func(m strictjson.Member) error {
		if set, ok := known[m.Name]; ok {
			return set(m.Value)
		}
		names := slices.Sorted(maps.Keys(known))
		return fmt.Errorf("unknown member: the members are %s%s",
			strings.Join(names, ", "), nearest.Hint(m.Name, names))
	})
}

// inEach calls a function for each member of an object. Its error joins all problems.
func inEach(value json.RawMessage, set func(strictjson.Member) error) error {
	members, err := strictjson.Object(value)
	problems := each(err)
	for _, m := range members {
		for _, problem := range each(set(m)) {
			problems = append(problems, strictjson.In(m.Name, problem))
		}
	}
	return errors.Join(problems...)
}

// into returns a function that parses a value into a field.
func into[T any](field *T, parse func(json.RawMessage) (T, error)) func(json.RawMessage) error {
	return func(value json.RawMessage) (err error) {
		*field, err = parse(value)
		return err
	}
}

func wholeNumber(highest int) func(json.RawMessage) (int, error) {
	return func(value json.RawMessage) (int, error) { return strictjson.Int(value, 1, highest) }
}

func duration(shortest, longest time.Duration) func(json.RawMessage) (time.Duration, error) {
	allowed := bounds.New(shortest, longest)
	return func(value json.RawMessage) (time.Duration, error) {
		d, err := strictjson.Duration(value)
		if err == nil && !allowed.Contains(d) {
			err = fmt.Errorf("want a duration %v", allowed)
		}
		return d, err
	}
}

func parseHistory(value json.RawMessage) (History, error) {
	text, err := strictjson.String(value)
	if err == nil && !slices.Contains([]History{HistoryOff, HistoryOutcomes, HistoryCheck}, History(text)) {
		err = errors.New(`want "off", "outcomes" or "check"`)
	}
	return History(text), err
}

func isString(value json.RawMessage) bool { return value[0] == '"' }

func (b *Breaker) set(value json.RawMessage) error {
	if isString(value) {
		b.Off = string(value) == `"off"`
		if !b.Off {
			return errors.New(`want "off" or an object with its parameters`)
		}
		return nil
	}
	err := eachMember(value, map[string]func(json.RawMessage) error{
		"failures": into(&b.Failures, wholeNumber(maxFailures)),
		"minDelay": into(&b.MinDelay, duration(minDelay, maxDelay)),
		"maxDelay": into(&b.MaxDelay, duration(minDelay, maxDelay)),
	})
	if err == nil && b.MinDelay > b.MaxDelay {
		err = fmt.Errorf("minDelay, %v, is longer than maxDelay, %v", b.MinDelay, b.MaxDelay)
	}
	return err
}

// units are the units of a rate.
var units = map[string]int{"s": 1, "m": 60, "h": 3600}

func (p *Profile) setRate(value json.RawMessage) error {
	if isString(value) {
		return p.setLimit(value)
	}
	var burst int
	err := eachMember(value, map[string]func(json.RawMessage) error{
		"burst": into(&burst, wholeNumber(maxCalls)),
		"limit": p.setLimit,
	})
	if err == nil && p.Rate == 0 {
		err = strictjson.In("limit", errors.New("missing"))
	}
	if burst > 0 {
		p.Burst = burst
	}
	return err
}

// setLimit reads the text of a rate.
func (p *Profile) setLimit(value json.RawMessage) error {
	text, err := strictjson.String(value)
	if err != nil {
		return errRate
	}
	return p.SetRate(text)
}

var errRate = fmt.Errorf(
	`want 1 to %d calls per second, minute or hour, such as "50/s", "30/m" or "100/h"`, maxCalls)

// SetRate sets the rate to a number of calls per unit of time, as in the file. Without a burst of its own, a limit
// allows the calls of a second at once.
func (p *Profile) SetRate(text string) error {
	number, unit, _ := strings.Cut(text, "/")
	calls, isNumber := bounds.New(1, maxCalls).Parse(number, strconv.Atoi)
	seconds, isUnit := units[unit]
	if !isNumber || !isUnit {
		return errRate
	}
	p.Rate = rate.Limit(calls) / rate.Limit(seconds)
	p.Burst = max(1, calls/seconds)
	p.RateText = text
	return nil
}

// SetConcurrency sets the concurrency to a number of calls.
func (p *Profile) SetConcurrency(text string) error {
	calls, isNumber := bounds.New(1, maxConcurrency).Parse(text, strconv.Atoi)
	if !isNumber {
		return fmt.Errorf("want 1 to %d calls at a time", maxConcurrency)
	}
	p.Concurrency = calls
	return nil
}

func (p *Profile) setRetry(value json.RawMessage, policies retry.Policies) error {
	policy, err := policies.Parse(value)
	p.Retry = &policy
	return err
}

func (p *Profile) setStatuses(value json.RawMessage) error {
	p.Statuses = map[int]bool{}
	err := eachMember(value, map[string]func(json.RawMessage) error{
		"reject": func(list json.RawMessage) error { return p.addStatuses(list, false) },
		"retry":  func(list json.RawMessage) error { return p.addStatuses(list, true) },
	})
	if err == nil && len(p.Statuses) == 0 {
		err = errors.New("want a list retry or reject, or both")
	}
	return err
}

// addStatuses reads a list of statuses that are retried, or rejected.
func (p *Profile) addStatuses(list json.RawMessage, isRetried bool) error {
	elements, err := strictjson.Elements(list)
	if err == nil && len(elements) == 0 {
		err = errors.New("want at least one status")
	}
	problems := each(err)
	for i, element := range elements {
		status, err := strictjson.Int(element, 100, 999)
		listed, isListed := p.Statuses[status]
		switch {
		case err != nil:
		case status/100 == 2:
			err = errors.New("2xx means delivered and is never retried")
		case isListed && listed != isRetried:
			err = fmt.Errorf("%d is in both lists: remove one", status)
		default:
			p.Statuses[status] = isRetried
		}
		problems = append(problems, each(strictjson.In(strictjson.Index(i), err))...)
	}
	return errors.Join(problems...)
}

func (p *Profile) setHeaders(value json.RawMessage, getenv func(string) string) error {
	p.Headers = http.Header{}
	return inEach(value, func(m strictjson.Member) error {
		canonical := http.CanonicalHeaderKey(m.Name)
		_, isRepeated := p.Headers[canonical]
		switch {
		case !httpguts.ValidHeaderFieldName(m.Name):
			return errors.New("not a header name")
		case isRepeated:
			return errors.New("appears twice: the letter case of names does not matter")
		case canonical == "Host" || slices.Contains(envelope.HopByHop, canonical):
			return errors.New("cannot be set here: it follows from the call or its connection")
		case differsByCall(canonical):
			return errors.New("cannot be set here: it must differ from call to call")
		}
		isSecret := secret.Is(m.Name)
		values, fromVariables, err := headerValues(m.Value, isSecret, getenv)
		for _, value := range fromVariables {
			if isSecret || len(value) >= minSecret {
				p.Secrets = append(p.Secrets, secret.OfHeader(value)...)
			}
		}
		p.Spelling.Add(p.Headers, m.Name, values...)
		return err
	})
}

// differsByCall reports whether the handler sets a header for each call, or the sender must.
func differsByCall(canonical string) bool {
	return strings.HasPrefix(canonical, "X-Async-Caller-") ||
		canonical == "Idempotency-Key" || canonical == "X-Idempotency-Key"
}

// headerValues reads the value of a header, or an array of values. FromVariables are those of the environment.
func headerValues(
	value json.RawMessage, isSecret bool, getenv func(string) string,
) (values, fromVariables []string, err error) {
	elements := []json.RawMessage{value}
	if value[0] == '[' {
		elements, err = strictjson.Elements(value)
		if err != nil || len(elements) == 0 {
			return nil, nil, errors.New("want a string or an array of strings")
		}
	}
	var problems []error
	for _, element := range elements {
		text, isVariable, err := headerValue(element, isSecret, getenv)
		values = append(values, text)
		if isVariable {
			fromVariables = append(fromVariables, text)
		}
		problems = append(problems, err)
	}
	return values, fromVariables, errors.Join(problems...)
}

var errSecret = errors.New(`may be secret, and the file must not contain secrets: ` +
	`want "$NAME", and the value in the environment variable NAME`)

func headerValue(
	value json.RawMessage, isSecret bool, getenv func(string) string,
) (text string, isVariable bool, err error) {
	if !isString(value) {
		return "", false, errors.New("want a string or an array of strings")
	}
	text, err = strictjson.String(value)
	if err != nil {
		return "", false, err
	}
	name, isVariable := strings.CutPrefix(text, "$")
	switch {
	case isSecret && !isVariable:
		return "", false, errSecret
	case isVariable:
		text, err = resolve(name, getenv)
		return text, true, err
	case !httpguts.ValidHeaderFieldValue(text):
		return "", false, errors.New("holds a line break or another control character")
	}
	return text, false, nil
}

// resolve returns the value of an environment variable that a header can have; empty if there is no environment.
func resolve(name string, getenv func(string) string) (string, error) {
	value, err := lookUp(name, getenv)
	if err == nil && !httpguts.ValidHeaderFieldValue(value) {
		return "", fmt.Errorf("the environment variable %s holds a line break or another control character", name)
	}
	return value, err
}

// lookUp returns the value of an environment variable; empty if there is no environment.
func lookUp(name string, getenv func(string) string) (string, error) {
	if !variable.ValidName(name) {
		return "", errors.New(`want "$NAME": letters, digits and _ after the $, and nothing else`)
	}
	if getenv == nil {
		return "", nil
	}
	value := getenv(name)
	if value == "" {
		return "", fmt.Errorf("the environment variable %s is not set: add it to the app settings", name)
	}
	return value, nil
}
