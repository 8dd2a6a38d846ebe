package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/call"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/plain/format"
)

// The flags of a selection that a journal shows in a form of their own.
const (
	textFlag = "text"
	allFlag  = "all"
	// stateText is how the flag for the state begins.
	stateText = "--state "
)

// selection is the flags that select calls.
type selection struct {
	flags    *flagSet
	selected account.Source
	// filters are the names of the flags that select calls.
	filters []string
	// state is the one that is selected; empty for both.
	state string
	// by is the criterion of --group-by.
	by message.By
	// only, unless empty, is the state of the calls that the command can change.
	only string
	// required refuses to select all calls unless the user gives --all, and needs ids or a state.
	required, all bool
	// check, unless nil, refuses further flags.
	check func(ids []string)
}

// selectCalls declares the flags that select calls.
func selectCalls(flags *flagSet) *selection {
	s := &selection{flags: flags}
	filter := &s.selected.Filter
	parsed(flags, &s.state, "state", "only calls in this `state`: scheduled or poison", parseState)
	flags.suggest("state", call.StateScheduled, call.StatePoison)
	filterCSV(s, &s.selected.Queues, "queue", "only calls of this `queue`; may be repeated", parseQueue)
	reasons, criteria := union(message.Reasons(), message.ScheduledReasons()), allCriteria()
	filterCSV(s, &filter.Reasons, "reason",
		"only calls with this `reason`, such as timeout; may be repeated", message.ParseReason(reasons))
	filterCSV(s, &filter.Statuses, "status",
		"only calls with this latest `status`, or 5xx, 500-504 or none; may be repeated", parseStatuses)
	filterCSV(s, &filter.Methods, "method", "only calls with this `method`; may be repeated", parseText)
	filterCSV(s, &filter.Hosts, "host",
		"only calls to this `host` on any port, or host:port, or *.example.com; may be repeated", parseHost)
	filterCSV(s, &filter.Paths, "path",
		"only calls to this `path`, or one such as /orders/{n} or /orders/*; may be repeated", parsePath)
	filterFlag(s, &filter.Text, textFlag, "only messages that contain this `text`, ignoring case", parseText)
	filterFlag(s, &filter.Since, "since",
		"only calls created, dead letters given up, after this `time` (RFC 3339), or 2h for 2 hours ago", parseAgo)
	filterFlag(s, &filter.Until, "until", "the same before this `time`", parseAgo)
	filterFlag(s, &s.selected.DueBefore, "due-within",
		"only scheduled calls whose next attempt is due within this `duration`, such as 1h",
		func(text string) (time.Time, error) {
			d, err := durationFrom(0)(text)
			return time.Now().Add(d), err
		})
	filterFlag(s, &filter.RequestID, "request-id", "only calls with this request `id`", parseText)
	filterFlag(s, &filter.Organization, "organization", "only calls of this `organization`", parseText)
	filterFlag(s, &filter.Environment, "environment", "only calls of this `environment`", parseText)
	filterFlag(s, &filter.Group, "group", "only calls of this `group`, as BY=KEY or BY=#DIGEST from list --group-by",
		func(text string) (*message.Group, error) {
			group, err := message.ParseGroup(text, criteria)
			return &group, err
		})
	filterFlag(s, &s.selected.Limit, "limit", "at most this `number` of calls", atLeast(1))
	flags.BoolVar(&s.selected.Force, "force", false, "take --queue as it is, also if a function app reads it")
	var groups []string
	for _, by := range criteria {
		groups = append(groups, string(by)+"=")
	}
	flags.suggest("reason", reasons...)
	flags.suggest("group", groups...)
	return s
}

// requireCalls is [selectCalls] for commands that change calls.
func requireCalls(flags *flagSet) *selection {
	s := selectCalls(flags)
	s.required = true
	flags.BoolVar(&s.all, allFlag, false, "select all calls in the state")
	return s
}

// union returns the values of several lists, each once.
func union[T comparable](lists ...[]T) (all []T) {
	for _, value := range slices.Concat(lists...) {
		if !slices.Contains(all, value) {
			all = append(all, value)
		}
	}
	return all
}

// allCriteria are those of both states.
func allCriteria() []message.By { return union(message.PoisonCriteria(), message.ScheduledCriteria()) }

func parseState(text string) (string, error) {
	if text != call.StateScheduled && text != call.StatePoison {
		return "", fmt.Errorf("%.40q: want %s or %s", text, call.StateScheduled, call.StatePoison)
	}
	return text, nil
}

// lacked returns the first criterion of the selection that no call in a state has, or an empty text.
func (s *selection) lacked(state string) string {
	filter, reasons, criteria := s.selected.Filter, message.ScheduledReasons(), message.ScheduledCriteria()
	if state == call.StatePoison {
		reasons, criteria = message.Reasons(), message.PoisonCriteria()
	}
	hasReason := func(reason string) bool { return slices.Contains(reasons, reason) }
	switch {
	case len(filter.Reasons) > 0 && !slices.ContainsFunc(filter.Reasons, hasReason):
		return "--reason " + strings.Join(filter.Reasons, ",")
	case filter.Group != nil && !slices.Contains(criteria, filter.Group.By):
		return "--group " + string(filter.Group.By)
	case s.by != "" && !slices.Contains(criteria, s.by):
		return "--group-by " + string(s.by)
	case state == call.StatePoison && !s.selected.DueBefore.IsZero():
		return "--due-within"
	}
	return ""
}

// states returns the states in which the selection can match calls, and adds a problem if there is none.
func (s *selection) states(ids []string) (states []string) {
	names := map[string]string{call.StateScheduled: "scheduled call", call.StatePoison: "dead letter"}
	var problems []string
	for _, state := range []string{call.StateScheduled, call.StatePoison} {
		lacked := s.lacked(state)
		isOther := s.state != "" && s.state != state || s.only != "" && s.only != state && len(ids) == 0
		switch {
		case isOther:
		case lacked != "":
			problems = append(problems, "no "+names[state]+" has what "+lacked+" selects")
		default:
			states = append(states, state)
		}
	}
	s.flags.refuse(len(states) == 0 && len(s.flags.problems) == 0, strings.Join(problems, "; "))
	return states
}

// filterFlag declares a flag that selects messages, as [parsed] does.
func filterFlag[T any](s *selection, target *T, name, usage string, parse func(string) (T, error)) {
	s.filters = append(s.filters, name)
	parsed(s.flags, target, name, usage, parse)
}

// filterCSV declares a flag that selects messages, as [parsedCSV] does.
func filterCSV[T any](s *selection, target *[]T, name, usage string, parse func(string) (T, error)) {
	s.filters = append(s.filters, name)
	parsedCSV(s.flags, target, name, usage, parse)
}

// source returns the selected calls, and the states in which they can be. The error names every problem with the flags.
func (s *selection) source(ids []string) (source account.Source, states []string, err error) {
	flags := s.flags
	flags.refuse(slices.Contains(ids, ""), "an id is empty")
	filtered := slices.ContainsFunc(s.filters, flags.Changed)
	needsState := s.required && s.only == "" && s.state == "" && len(ids) == 0
	flags.refuse(s.all && len(ids) > 0, "--all and ids exclude each other")
	flags.refuse(s.required && !s.all && !filtered && len(ids) == 0, "select calls by ids or filters, or give --all")
	flags.refuse(needsState, "give --state scheduled or --state poison, or ids: a command changes one of them")
	flags.refuse(s.only != "" && s.state == call.StatePoison, errEditedOnRetry)
	if s.check != nil {
		s.check(ids)
	}
	source = s.selected
	source.IDs = ids
	return source, s.states(ids), flags.err()
}

// errEditedOnRetry is why dead letters are not edited in place.
const errEditedOnRetry = "a dead letter is edited when it is retried: `async-caller calls retry ID`, with the edits"

// otherState returns the error for ids of which some name dead letters, and some perhaps scheduled calls.
func (s *selection) otherState(scheduled, dead []string) error {
	if s.only != "" {
		return usageError(errors.New(errEditedOnRetry))
	}
	line := func(ids []string, state string) string {
		return "\n`" + programName + " " + commandLine(s.flags.command, ids) + " " + stateText + state + "`"
	}
	return usageError(errors.New("the ids name scheduled calls and dead letters, which two commands change:" +
		line(scheduled, call.StateScheduled) + line(dead, call.StatePoison)))
}

// refuseFlags refuses the flags that the calls of the selected state do not have.
func (s *selection) refuseFlags(from sources, ofPoison, ofScheduled []string) error {
	names, of := ofScheduled, "scheduled calls"
	if from.scheduled != nil {
		names, of = ofPoison, "dead letters"
	}
	n := slices.IndexFunc(names, s.flags.Changed)
	switch {
	case n < 0:
		return nil
	case slices.Contains(editFlags(), names[n]):
		return usageError(fmt.Errorf("--%s: a retry edits only dead letters: edit scheduled calls first, with "+
			"calls edit", names[n]))
	}
	return usageError(fmt.Errorf("--%s is for %s", names[n], of))
}

// text returns the selection as a person would write it.
func (s *selection) text(ids []string) string {
	words := slices.Clone(ids)
	s.flags.Visit(func(f *pflag.Flag) {
		switch {
		case f.Name == textFlag: // it may be a secret
			words = append(words, "--"+textFlag+" …")
		case f.Name == allFlag:
			words = append(words, "--"+allFlag)
		case f.Name == "state":
			words = append(words, stateText+s.state)
		case slices.Contains(s.filters, f.Name):
			words = append(words, "--"+f.Name+" "+format.ShellWord(strings.Join(f.Annotations[annotationTexts], ",")))
		}
	})
	return strings.Join(words, " ")
}

// parseText refuses an empty text: a script with an unset variable must not select all messages.
func parseText(text string) (string, error) {
	if text == "" {
		return "", errors.New("is empty")
	}
	return text, nil
}

// parseHost reads a host with or without a port, and refuses a URL.
func parseHost(text string) (string, error) {
	if text == "" || strings.ContainsAny(text, "/@?# \t") {
		// a URL may hold a secret
		return "", errors.New("want a host such as example.com, example.com:8443 or *.example.com")
	}
	return text, nil
}

// parsePath reads a path, which begins with a slash.
func parsePath(text string) (string, error) {
	if !strings.HasPrefix(text, "/") || strings.ContainsAny(text, "?#") {
		// a query may hold a secret
		return "", errors.New("want a path such as /orders/4711, /orders/{n} or /orders/*")
	}
	return text, nil
}

// parseStatuses reads a status of answers, a class such as 5xx, or a range; none is 0.
func parseStatuses(text string) (bounds.Range[int], error) {
	if text == "none" {
		return bounds.New(0, 0), nil
	}
	lowest, highest, isRange := strings.Cut(text, "-")
	if !isRange {
		highest = lowest
	}
	first, err := parseStatus(fillClass(lowest, "0"))
	last, lastErr := parseStatus(fillClass(highest, "9"))
	if err != nil || lastErr != nil || first > last {
		const want = "%.40q: want a number %v, a class such as 5xx, a range such as 500-504, or none"
		return bounds.Range[int]{}, fmt.Errorf(want, text, allowedStatuses())
	}
	return bounds.New(first, last), nil
}

// fillClass replaces each x at the end of a class of statuses by a digit.
func fillClass(class, digit string) string {
	known := strings.TrimRight(class, "xX")
	return known + strings.Repeat(digit, len(class)-len(known))
}
