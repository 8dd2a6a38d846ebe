// Package config reads the operator's settings from the environment.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/envelope"
	"asynccaller/handler/functionapp"
	"asynccaller/handler/retry"
	"asynccaller/handler/settle"
)

// Prefix is what the names of all our settings begin with.
const Prefix = "ASYNC_CALLER_"

// Settings is what the operator decided.
type Settings struct {
	// CallTimeout is how long one call may last.
	CallTimeout time.Duration
	// Expiration is how long an envelope without a deadline is tried.
	Expiration time.Duration
	// Retry is the policy of envelopes that ask for none.
	Retry    retry.Policy
	GiveUp   envelope.GiveUp
	LogLevel zerolog.Level
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
		{Setting{Prefix + "PUT_BACK", "new", "how a message is put back: new (write a successor)"}, (*Settings).setPutBack},
		{Setting{Prefix + "RETRY", "exponential", "retry policy of envelopes that ask for none"}, (*Settings).setRetry},
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

// Load reads the settings from an environment as os.Environ gives it. The error joins every problem,
// each naming the setting and what is wanted; names with our prefix that are no setting are among them.
func Load(environ []string) (Settings, error) {
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
		if err := s.set(&loaded, value); err != nil {
			problems = append(problems, fmt.Errorf("%s: %q: %w", s.Name, value, err))
		}
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

func (s *Settings) setPutBack(value string) error {
	if value != "new" {
		return errors.New("give new")
	}
	return nil
}

func (s *Settings) setRetry(value string) (err error) {
	s.Retry, err = retry.Named(value)
	return err
}
