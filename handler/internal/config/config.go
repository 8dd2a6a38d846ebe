// Package config reads the operator's settings from the environment.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/guard"
	"asynccaller/handler/internal/outbound"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/retry"
	"asynccaller/handler/internal/settle"
)

// Prefix is what the names of all our settings begin with.
const Prefix = "ASYNC_CALLER_"

// retrySetting names a policy, which may be one of the operator's own.
const retrySetting = Prefix + "RETRY"

// proxySetting may hold a password, so its value is never shown.
const proxySetting = Prefix + "PROXY"

// none is the value of a setting that is not set.
const none = "none"

// Settings is what the operator decided.
type Settings struct {
	// CallTimeout is how long one call may last.
	CallTimeout time.Duration
	// Expiration is how long an envelope without a deadline is tried.
	Expiration time.Duration
	// Retry is the policy of envelopes that ask for none.
	Retry retry.Policy
	// RetryStatuses are the answers that are tried again.
	RetryStatuses decision.Statuses
	// RetryLimits is how much an envelope may ask for.
	RetryLimits retry.Limits
	GiveUp      envelope.GiveUp
	LogLevel    zerolog.Level
	// Proxy is the way that calls take.
	Proxy      outbound.Proxy
	Reschedule settle.RescheduleMode
	// Targets are what may be called.
	Targets guard.Rules
}

// Setting describes one setting for a person.
type Setting struct {
	Name, Default, Meaning string
}

type setting struct {
	Setting
	set func(*Settings, string) error
}

func settings() []setting {
	return []setting{
		{Setting{Prefix + "CALL_TIMEOUT", "120s", "how long one call may last; an envelope may ask for less"}, (*Settings).setCallTimeout},
		{Setting{Prefix + "EXPIRATION", "168h", "how long an envelope without a deadline is tried"}, (*Settings).setExpiration},
		{Setting{Prefix + "GIVE_UP", "dead-letter", "what happens to an envelope without a callback that is given up: dead-letter, drop or fault"}, (*Settings).setGiveUp},
		{Setting{Prefix + "LOG_LEVEL", "info", "what is logged: debug, info, warn or error"}, (*Settings).setLogLevel},
		{Setting{proxySetting, none, "proxy for the calls: an http, https or socks5 URL; HTTP_PROXY and the like are ignored"}, (*Settings).setProxy},
		{Setting{Prefix + "RESCHEDULE", "enqueue", "how a message is rescheduled: enqueue a successor, or update its visibility in place"}, (*Settings).setReschedule},
		{Setting{retrySetting, "exponential", "retry policy of envelopes that ask for none: a built-in one, or one of retry.json"}, nil},
		{Setting{Prefix + "RETRY_MAX_ATTEMPTS", "0", "how many calls an envelope may ask for; 0 for no limit"}, (*Settings).setRetryMaxAttempts},
		{Setting{Prefix + "RETRY_MAX_DELAY", "168h", "the longest wait between attempts that an envelope may ask for"}, (*Settings).setRetryMaxDelay},
		{Setting{Prefix + "RETRY_MIN_DELAY", "0s", "the shortest wait between attempts that an envelope may ask for"}, (*Settings).setRetryMinDelay},
		{Setting{Prefix + "RETRY_STATUSES", decision.DefaultStatuses, "answers that are tried again: statuses and ranges, ! takes out"}, (*Settings).setRetryStatuses},
		{Setting{guard.AllowSetting, "*", "targets allowed: networks, addresses, names, *.suffix; * is all but loopback and the like"}, (*Settings).setTargetsAllow},
		{Setting{guard.DenySetting, none, "targets refused, whatever is allowed: networks, addresses, names, *.suffix"}, (*Settings).setTargetsDeny},
	}
}

// Table lists the settings that [Load] knows, by name.
func Table() []Setting {
	var table []Setting
	for _, s := range settings() {
		table = append(table, s.Setting)
	}
	return table
}

// Load reads the settings from an environment as os.Environ gives it; own are the operator's own retry
// policies, which a setting may name. The error joins every problem,
// each naming the setting and what is wanted; names with our prefix that are no setting are among them.
func Load(environ []string, own retry.Policies) (Settings, error) {
	values := map[string]string{}
	var problems []error
	known := settings()
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(strings.ToUpper(name), Prefix) {
			continue
		}
		if !slices.ContainsFunc(known, func(s setting) bool { return s.Name == name }) {
			problems = append(problems, fmt.Errorf("%s: no such setting: there are %s", name, strings.Join(names(known), ", ")))
		}
		values[name] = strings.TrimSpace(value)
	}
	var loaded Settings
	for _, s := range known {
		value := cmp.Or(values[s.Name], s.Default)
		if s.Name == retrySetting {
			s.set = func(into *Settings, value string) (err error) {
				into.Retry, err = own.Named(value)
				return err
			}
		}
		if err := s.set(&loaded, value); err != nil {
			if s.Name == proxySetting {
				value = "***"
			}
			problems = append(problems, fmt.Errorf("%s: %q: %w", s.Name, value, err))
		}
	}
	if err := loaded.RetryLimits.Check(); err != nil {
		problems = append(problems, fmt.Errorf("%sRETRY_MIN_DELAY, %sRETRY_MAX_DELAY: %w", Prefix, Prefix, err))
	}
	return loaded, errors.Join(problems...)
}

func names(list []setting) []string {
	var names []string
	for _, s := range list {
		names = append(names, s.Name)
	}
	return names
}

// Rules are the rules for messages that the settings make, with the operator's own retry policies.
func (s Settings) Rules(own retry.Policies) decision.Rules {
	return decision.Rules{
		Expiration: s.Expiration,
		GiveUp:     s.GiveUp,
		Retry:      s.Retry,
		Policies:   own,
		Limits:     s.RetryLimits,
		Statuses:   s.RetryStatuses,
		MaxDelay:   queue.MaxDelay,
	}
}

// CheckTimeouts makes sure that the host does not end an invocation before it can be settled: the call
// and then the settle write must fit into host.json's functionTimeout.
func (s Settings) CheckTimeouts(host functionapp.Host) error {
	needed := s.CallTimeout + settle.Timeout
	if host.FunctionTimeout < 0 || host.FunctionTimeout > needed {
		return nil
	}
	return fmt.Errorf("host.json: functionTimeout is %v: set it above %v, which is the call's time (%sCALL_TIMEOUT, %v) and %v to settle; at functionTimeout the host kills the handler and every call in it",
		host.FunctionTimeout, needed, Prefix, s.CallTimeout, settle.Timeout)
}

func (s *Settings) setCallTimeout(value string) (err error) {
	s.CallTimeout, err = duration(value, time.Second, 24*time.Hour)
	return err
}

func (s *Settings) setExpiration(value string) (err error) {
	s.Expiration, err = duration(value, time.Second, 10*365*24*time.Hour)
	return err
}

func duration(value string, shortest, longest time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d < shortest || d > longest {
		return 0, fmt.Errorf("give a duration such as 90s or 6h, from %v to %v", shortest, longest)
	}
	return d, nil
}

func (s *Settings) setGiveUp(value string) error {
	giveUp, ok := envelope.ParseGiveUp(value)
	if !ok {
		return errors.New("give dead-letter, drop or fault")
	}
	s.GiveUp = giveUp
	return nil
}

func (s *Settings) setLogLevel(value string) error {
	switch value {
	case "debug", "info", "warn", "error":
		level, err := zerolog.ParseLevel(value)
		s.LogLevel = level
		return err
	}
	return errors.New("give debug, info, warn or error")
}

func (s *Settings) setReschedule(value string) error {
	mode, ok := settle.ParseRescheduleMode(value)
	if !ok {
		return errors.New("give enqueue or update")
	}
	s.Reschedule = mode
	return nil
}

func (s *Settings) setProxy(value string) (err error) {
	if value == none {
		return nil
	}
	s.Proxy, err = outbound.ParseProxy(value)
	return err
}

func (s *Settings) setTargetsAllow(value string) (err error) {
	s.Targets.Allow, err = guard.ParseAllow(value)
	return err
}

func (s *Settings) setTargetsDeny(value string) (err error) {
	if value == none {
		return nil
	}
	s.Targets.Deny, err = guard.ParseDeny(value)
	return err
}

func (s *Settings) setRetryStatuses(value string) (err error) {
	s.RetryStatuses, err = decision.ParseStatuses(value)
	return err
}

func (s *Settings) setRetryMinDelay(value string) (err error) {
	s.RetryLimits.MinDelay, err = duration(value, 0, 7*24*time.Hour)
	return err
}

func (s *Settings) setRetryMaxDelay(value string) (err error) {
	s.RetryLimits.MaxDelay, err = duration(value, time.Second, 10*365*24*time.Hour)
	return err
}

func (s *Settings) setRetryMaxAttempts(value string) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 || n > 1_000_000 {
		return errors.New("give a whole number from 0 to 1000000")
	}
	s.RetryLimits.MaxAttempts = n
	return nil
}
