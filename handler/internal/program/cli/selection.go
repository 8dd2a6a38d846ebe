package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

// The names of the flags of a selection that a journal shows in a form of their own.
const (
	textFlag = "text"
	allFlag  = "all"
)

// selection is the flags that select messages.
type selection struct {
	flags    *flagSet
	selected account.Source
	// filters are the names of the flags that select messages.
	filters []string
	// isScheduled says that the messages are scheduled ones.
	isScheduled bool
	// required refuses to select all messages unless the user gives --all.
	required, all bool
	// check, unless nil, refuses further flags.
	check func(ids []string)
}

// selectQueues declares the flags that select messages on poison queues by queue.
func selectQueues(flags *flagSet) *selection {
	s := &selection{flags: flags}
	filterCSV(s, &s.selected.Queues, "queue",
		"`queue` to read; may be repeated (default every poison queue)", parseQueue)
	flags.BoolVar(&s.selected.Force, "force", false, "also read queues that a function app reads")
	var names []string
	for _, name := range envelope.Queues() {
		names = append(names, name+storage.PoisonSuffix)
	}
	flags.suggest("queue", names...)
	return s
}

// selectPoison declares all flags that select messages on poison queues.
func selectPoison(flags *flagSet) *selection {
	s := selectQueues(flags)
	s.addFilters(message.Reasons(), message.PoisonCriteria(), "given up")
	return s
}

// selectScheduled declares the flags that select scheduled messages.
func selectScheduled(flags *flagSet) *selection {
	s := &selection{flags: flags, isScheduled: true}
	filterCSV(s, &s.selected.Queues, "queue", "`queue` to look at; may be repeated (default all)", parseQueue)
	s.addFilters(message.ScheduledReasons(), message.ScheduledCriteria(), "created")
	filterFlag(s, &s.selected.DueBefore, "due-within",
		"only messages whose next attempt is due within this `duration`, such as 1h",
		func(text string) (time.Time, error) {
			d, err := durationFrom(0)(text)
			return time.Now().Add(d), err
		})
	return s
}

// addFilters declares the filters of poison and of scheduled messages. Criteria are those by which the messages can be
// grouped, and since is what --since and --until are about.
func (s *selection) addFilters(reasons []string, criteria []message.By, since string) {
	filter := &s.selected.Filter
	filterCSV(s, &filter.Reasons, "reason",
		"only messages with this `reason`, such as timeout; may be repeated", message.ParseReason(reasons))
	filterCSV(s, &filter.Statuses, "status",
		"only messages with this latest `status`, or 5xx, 500-504 or none; may be repeated", parseStatuses)
	filterCSV(s, &filter.Methods, "method", "only calls with this `method`; may be repeated", parseText)
	filterCSV(s, &filter.Hosts, "host",
		"only calls to this `host` on any port, or host:port, or *.example.com; may be repeated", parseHost)
	filterCSV(s, &filter.Paths, "path",
		"only calls to this `path`, or one such as /orders/{n} or /orders/*; may be repeated", parsePath)
	filterFlag(s, &filter.Text, textFlag, "only messages that contain this `text`, ignoring case", parseText)
	filterFlag(s, &filter.Since, "since",
		"only messages "+since+" after this `time` (RFC 3339), or 2h for 2 hours ago", parseAgo)
	filterFlag(s, &filter.Until, "until", "only messages "+since+" before this `time`", parseAgo)
	filterFlag(s, &filter.RequestID, "request-id", "only messages with this request `id`", parseText)
	filterFlag(s, &filter.Group, "group", "only messages of this `group`, as BY=KEY or BY=#DIGEST from list --group-by",
		func(text string) (*message.Group, error) {
			group, err := message.ParseGroup(text, criteria)
			return &group, err
		})
	filterFlag(s, &s.selected.Limit, "limit", "at most this `number` of messages", atLeast(1))
	s.flags.suggest("reason", reasons...)
	var groups []string
	for _, by := range criteria {
		groups = append(groups, string(by)+"=")
	}
	s.flags.suggest("group", groups...)
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

// require declares --all, without which a selection must not be empty. Usage says what --all selects.
func (s *selection) require(usage string) *selection {
	s.required = true
	s.flags.BoolVar(&s.all, allFlag, false, usage)
	return s
}

// requirePoison is [selectPoison] for commands that change messages.
func requirePoison(flags *flagSet) *selection {
	return selectPoison(flags).require("select all messages on all poison queues")
}

// withSelection returns the RunE of a command that works on the selected messages.
func (shared *sharedFlags) withSelection(
	selected *selection, work func(context.Context, *session, account.Source) error,
) runFunc {
	return func(cmd *cobra.Command, ids []string) error {
		source, err := selected.source(ids)
		if err != nil {
			return err
		}
		return shared.withSession(func(ctx context.Context, s *session, _ []string) error {
			s.operations.Operator.Filter = selected.text(ids)
			s.ids = ids
			if err := s.account.ResolveGroup(ctx, &source, selected.isScheduled); err != nil {
				return err
			}
			return work(ctx, s, source)
		})(cmd, ids)
	}
}

// source returns the selected messages. The error names every problem with the flags.
func (s *selection) source(ids []string) (account.Source, error) {
	flags := s.flags
	flags.refuse(slices.Contains(ids, ""), "an id is empty")
	filtered := slices.ContainsFunc(s.filters, flags.Changed)
	flags.refuse(s.all && len(ids) > 0, "--all and ids exclude each other")
	flags.refuse(s.required && !s.all && !filtered && len(ids) == 0, "select messages by ids or filters, or give --all")
	if s.check != nil {
		s.check(ids)
	}
	source := s.selected
	source.IDs = ids
	return source, flags.err()
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
