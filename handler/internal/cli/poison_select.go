package cli

import (
	"fmt"
	"slices"
	"strings"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/internal/send"
)

// selection is the flags that select messages.
type selection struct {
	flags    *flagSet
	selected poison.Source
	// required refuses to select all messages unless the user gives --all.
	required, all bool
	// check, unless nil, refuses further flags.
	check func(ids []string)
}

// selectQueues declares the flags that select messages by queue.
func selectQueues(flags *flagSet) *selection {
	s := &selection{flags: flags}
	parsedCSV(flags, &s.selected.Queues, "queue", "`queue` to read; may be repeated (default every poison queue)", parseQueue)
	flags.BoolVar(&s.selected.Force, "force", false, "also read queues that a function app reads")
	var names []string
	for _, name := range send.Queues() {
		names = append(names, name+queue.PoisonSuffix)
	}
	flags.suggest("queue", names...)
	return s
}

// selectMessages declares all flags that select messages.
func selectMessages(flags *flagSet) *selection {
	s := selectQueues(flags)
	filter := &s.selected.Filter
	flags.StringSliceVar(&filter.Reasons, "reason", nil, "only messages with this `reason`, such as expired; may be repeated")
	parsedCSV(flags, &filter.Statuses, "status", "only messages with this latest `status`, or none; may be repeated", parseStatusOrNone)
	flags.StringSliceVar(&filter.Hosts, "host", nil, "only calls to this `host`, or *.example.com; may be repeated")
	flags.StringSliceVar(&filter.Methods, "method", nil, "only calls with this `method`; may be repeated")
	parsed(flags, &filter.Since, "since", "only messages given up after this `time` (RFC 3339), or 2h for 2 hours ago", parseAgo)
	parsed(flags, &filter.Until, "until", "only messages given up before this `time`", parseAgo)
	flags.StringVar(&filter.RequestID, "request-id", "", "only messages with this request `id`")
	flags.StringVar(&filter.Text, "text", "", "only messages that contain this `text`, ignoring case")
	parsed(flags, &filter.MinAttempts, "attempts-over", "only messages with more than this `number` of attempts", func(text string) (int, error) {
		n, err := atLeast(0)(text)
		return n + 1, err
	})
	parsed(flags, &filter.Group, "group", "only messages of this `group`, as BY=KEY from list --group-by", func(text string) (*inspect.Group, error) {
		group, err := inspect.ParseGroup(text)
		return &group, err
	})
	parsed(flags, &s.selected.Limit, "limit", "at most this `number` of messages", atLeast(1))
	flags.suggest("reason", string(decision.Rejected), string(decision.Expired), string(decision.Exhausted),
		inspect.Malformed, inspect.Undecodable, inspect.HostGaveUp, inspect.Unknown)
	flags.suggest("group", "reason=", "status=", "host=", "route=", "error=")
	return s
}

// requireSelection declares the flags that select messages, and --all for all of them.
func requireSelection(flags *flagSet) *selection {
	s := selectMessages(flags)
	s.required = true
	flags.BoolVar(&s.all, "all", false, "select all messages on all poison queues")
	return s
}

// source returns the selected messages. The error names every problem with the flags.
func (s *selection) source(ids []string) (poison.Source, error) {
	flags := s.flags
	flags.refuse(slices.Contains(ids, ""), "an id is empty")
	given := len(ids) > 0
	for _, name := range []string{
		"queue", "reason", "status", "host", "method", "since", "until", "request-id", "text", "attempts-over", "group", "limit",
	} {
		if flags.Changed(name) {
			given = true
			value := flags.Lookup(name).Value
			empty := strings.HasPrefix(value.Type(), "string") && strings.Trim(value.String(), "[],") == ""
			flags.refuse(empty, "--"+name+" is empty") // a script with an unset variable must not select all messages
		}
	}
	flags.refuse(s.all && len(ids) > 0, "--all and ids exclude each other")
	flags.refuse(s.required && !s.all && !given, "select messages by ids or filters, or give --all")
	if s.check != nil {
		s.check(ids)
	}
	source := s.selected
	source.IDs = ids
	return source, flags.err()
}

// parseStatusOrNone reads the status of an answer; none is 0.
func parseStatusOrNone(text string) (int, error) {
	if text == "none" {
		return 0, nil
	}
	status, err := parseStatus(text)
	if err != nil {
		err = fmt.Errorf("%w, or none", err)
	}
	return status, err
}
