package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/poison"
	"asynccaller/handler/internal/poison/inspect"
	"asynccaller/handler/internal/queue"
)

// selection is which messages a command means, as flags say it.
type selection struct {
	queues, reasons, statuses, hosts, methods []string
	since, until, requestID, text, group      string
	attemptsOver, limit                       int
	force                                     bool
	// given reports whether a flag was.
	given func(name string) bool
}

// addTo declares the flags. All commands that choose messages have the same.
func (f *selection) addTo(command *cobra.Command) {
	flags := flagsOf(command)
	f.addQueue(command)
	flags.StringSliceVar(&f.reasons, "reason", nil, "only with this reason, such as expired; may be repeated")
	flags.StringSliceVar(&f.statuses, "status", nil, "only with this latest answer, or none; may be repeated")
	flags.StringSliceVar(&f.hosts, "host", nil, "only calls to this host, or *.example.com; may be repeated")
	flags.StringSliceVar(&f.methods, "method", nil, "only calls with this method; may be repeated")
	flags.StringVar(&f.since, "since", "", "only given up since then: RFC 3339, or how long ago, such as 2h")
	flags.StringVar(&f.until, "until", "", "only given up before then")
	flags.StringVar(&f.requestID, "request-id", "", "only with this request id")
	flags.StringVar(&f.text, "text", "", "only with this text in them, in any letter case")
	flags.IntVar(&f.attemptsOver, "attempts-over", 0, "only with more attempts than this (default any number)")
	flags.StringVar(&f.group, "group", "", "only this group of list --group-by, as BY=KEY, such as status=503")
	flags.IntVar(&f.limit, "limit", 0, "at most so many (default all)")
	complete(command, "reason", reasons)
	complete(command, "group", func() []string { return []string{"reason=", "status=", "host=", "route=", "error="} })
	f.given = flags.Changed
}

func (f *selection) addQueue(command *cobra.Command) {
	flags := flagsOf(command)
	flags.StringSliceVar(&f.queues, "queue", nil, "queue to look on; may be repeated (default every poison queue)")
	flags.BoolVar(&f.force, "force", false, "also on queues that a function app reads")
	complete(command, "queue", poisonQueueNames)
	f.given = flags.Changed
}

// reasons are those that are known; a dead letter may say any other.
func reasons() []string {
	return []string{
		string(decision.Rejected), string(decision.Expired), string(decision.Exhausted),
		inspect.Malformed, inspect.Undecodable, inspect.HostGaveUp, inspect.Unknown,
	}
}

func poisonQueueNames() []string {
	var names []string
	for priority := range 11 {
		names = append(names, queueFor(priority)+queue.PoisonSuffix)
	}
	return names
}

// selects reports whether anything says which messages are meant.
func (f *selection) selects(ids []string) bool {
	return len(ids) > 0 || slices.ContainsFunc([]string{
		"queue", "reason", "status", "host", "method", "since", "until", "request-id", "text", "attempts-over", "group", "limit",
	}, f.given)
}

// source reads the flags. It names all that is wrong with them.
func (f *selection) source(ids []string, now time.Time) (poison.Source, error) {
	source := poison.Source{
		Queues: f.queues, IDs: ids, Limit: f.limit, Force: f.force,
		Filter: inspect.Filter{
			Reasons: f.reasons, Hosts: f.hosts, Methods: f.methods, RequestID: f.requestID, Text: f.text,
		},
	}
	problems := f.empty(ids)
	for _, name := range f.queues {
		problems = append(problems, checkQueue("--queue", name))
	}
	for _, text := range f.statuses {
		status, err := statusFlag(text)
		source.Filter.Statuses = append(source.Filter.Statuses, status)
		problems = append(problems, err)
	}
	var err error
	source.Filter.Since, err = agoFlag("--since", f.since, now)
	problems = append(problems, err)
	source.Filter.Until, err = agoFlag("--until", f.until, now)
	problems = append(problems, err)
	if f.group != "" {
		group, err := inspect.ParseGroup(f.group)
		if err != nil {
			err = fmt.Errorf("--group: %w", err)
		}
		source.Filter.Group = &group
		problems = append(problems, err)
	}
	if f.given("attempts-over") {
		source.Filter.MinAttempts = f.attemptsOver + 1
		if f.attemptsOver < 0 {
			problems = append(problems, errors.New("--attempts-over: want a number of attempts, from 0"))
		}
	}
	if f.given("limit") && f.limit <= 0 {
		problems = append(problems, errors.New("--limit: want a number of messages above 0"))
	}
	return source, wrongUsage(errors.Join(problems...))
}

// empty refuses what says nothing: taken for "all" it would be the opposite of what a script with an unset
// variable meant.
func (f *selection) empty(ids []string) (problems []error) {
	for name, value := range map[string]string{
		"since": f.since, "until": f.until, "request-id": f.requestID, "text": f.text, "group": f.group,
		"queue": strings.Join(f.queues, ""), "reason": strings.Join(f.reasons, ""), "status": strings.Join(f.statuses, ""),
		"host": strings.Join(f.hosts, ""), "method": strings.Join(f.methods, ""),
	} {
		if value == "" && f.given(name) {
			problems = append(problems, fmt.Errorf("--%s: is empty", name))
		}
	}
	for _, id := range ids {
		if id == "" {
			problems = append(problems, errors.New("an id is empty"))
		}
	}
	return problems
}

func checkQueue(flag, name string) error {
	if queue.ValidName(name) {
		return nil
	}
	return fmt.Errorf("%s: %.70q is no queue's name: 3 to 63 lower-case letters, digits and single dashes", flag, name)
}

// statusFlag reads an answer's status; none is 0.
func statusFlag(text string) (int, error) {
	if text == "none" {
		return 0, nil
	}
	status, err := strconv.Atoi(text)
	if err != nil || status < 100 || status > 999 {
		return 0, fmt.Errorf("--status: %.20q: want a number from 100 to 999, or none", text)
	}
	return status, nil
}

// agoFlag reads a time, or how long ago it was. Nothing is the zero time.
func agoFlag(name, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil {
		if ago < 0 {
			return time.Time{}, fmt.Errorf("%s %.40q: lies in the future: give how long ago it was, such as 2h", name, text)
		}
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s %.40q: give a time such as 2026-01-31T12:00:00Z, or how long ago it was, such as 2h", name, text)
	}
	return at, nil
}
