package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/explain"
	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/tools/capacity"
)

type capacityOptions struct {
	question                capacity.Question
	failing, spare, message string
	policy, app             string
	json                    bool
}

func newCapacity(s Surroundings) *cobra.Command {
	var options capacityOptions
	command := &cobra.Command{
		Use:   "capacity",
		Short: "Work out how many instances and queues a load needs, and what it costs",
		Long: `Capacity works out how many calls are under way at a time, how many instances of the Function App
and how many queues carry them, what limits them, how many storage transactions that costs, and with
--outage what piles up while no target answers and how long it takes to work that off.

It counts on what surely works: places in flight as the Functions host fills them at worst, and of
what Azure says about Queue Storage the careful reading. docs/capacity.md says how each figure comes
about. It reckons and calls nothing; the processor time of the Functions host is not in it.

Concurrency, polling and encoding come from host.json in the app folder, as shipped where there is
none; retry policy and deadline are those that "async-caller schedule" shows.`,
		Example: `  async-caller capacity --rate 500 --latency 2s
  async-caller capacity --rate 500 --latency 2s --failing 10% --queues 2 --message 4KiB --json
  async-caller capacity --rate 20 --latency 300ms --outage 1h --failing-latency 10s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runCapacity(s, options) },
	}
	q := &options.question
	flags := command.Flags()
	flags.SortFlags = false
	flags.Float64Var(&q.Rate, "rate", 0, "calls that come in a second; callbacks count")
	flags.DurationVar(&q.Latency, "latency", 0, "how long a target takes for a call on average, such as 200ms")
	flags.StringVar(&options.failing, "failing", "0%", "share of the attempts that fail and are tried again")
	flags.DurationVar(&q.FailingLatency, "failing-latency", 0, "how long those take (default as --latency)")
	flags.StringVar(&options.message, "message", "1KiB", "size of an envelope, in bytes or KiB")
	flags.IntVar(&q.Queues, "queues", 0, "queues over which the calls are spread evenly (default as many as needed)")
	flags.IntVar(&q.Instances, "instances", 0, "instances of the Function App (default as many as needed)")
	flags.StringVar(&options.spare, "spare", "25%", "how much more than needed there shall be")
	flags.DurationVar(&q.StorageLatency, "storage-latency", 10*time.Millisecond, "how long a request to storage takes")
	flags.DurationVar(&q.Outage, "outage", 0, "suppose that no target answers for so long")
	flags.StringVar(&options.policy, "policy", "", "retry policy, as of `schedule`: a name, delays or a JSON object (default as configured)")
	flags.BoolVar(&options.json, "json", false, "print one JSON object")
	flags.StringVar(&options.app, "app", ".", "app folder, for host.json, function.json, retry.json and local.settings.json")
	return command
}

func runCapacity(s Surroundings, options capacityOptions) error {
	q, source, err := options.read(s)
	if err != nil {
		return wrongUsage(err)
	}
	answer, err := capacity.Plan(q)
	if err != nil {
		return wrongUsage(errors.New("--" + strings.ReplaceAll(err.Error(), "\n", "\n--"))) // a line a flag
	}
	if options.json {
		return json.NewEncoder(s.Stdout).Encode(answer)
	}
	printCapacity(s.Stdout, source, answer)
	return nil
}

// read makes the question, and says where the app's part of it comes from.
func (o capacityOptions) read(s Surroundings) (q capacity.Question, source string, err error) {
	q = o.question
	var problems []error
	parse := func(flag string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("--%s: %w", flag, err))
		}
	}
	q.Failing, err = share(o.failing)
	parse("failing", err)
	q.Spare, err = share(o.spare)
	parse("spare", err)
	q.MessageBytes, err = size(o.message)
	parse("message", err)
	book, err := readRules(s, o.app)
	if err = errors.Join(append(problems, err)...); err != nil {
		return q, "", err
	}
	policy, err := choosePolicy(book.rules, "--policy", o.policy)
	if err != nil {
		return q, "", err
	}
	q.Timetable = explain.Schedule(book.rules, policy, book.rules.Expiration)
	q.Host, source, err = readHost(o.app, book.environ)
	return q, source, err
}

// readHost reads what counts of an app folder. Where there is no host.json, or no function that reads a
// queue, it is as shipped.
func readHost(app string, environ []string) (host capacity.Host, source string, err error) {
	host = capacity.Shipped()
	file, err := functionapp.LoadHost(app, environ)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return host, fmt.Sprintf("as shipped, for there is no host.json in %q", app), nil
	case err != nil:
		return host, "", err
	}
	host.BatchSize, host.NewBatchThreshold = file.Queues.BatchSize, file.Queues.NewBatchThreshold
	host.MaxPollingInterval, host.Encoding = file.Queues.MaxPollingInterval, file.Queues.MessageEncoding
	source = fmt.Sprintf("as host.json in %q says", app)
	// What is wrong with a function.json is not our concern: the host leaves that function out.
	if whole, _ := functionapp.Load(app, environ); whole != nil && len(whole.Functions) > 0 {
		host.QueueFunctions = len(whole.Functions)
	}
	return host, source, nil
}

// share reads a percentage or a share.
func share(text string) (float64, error) {
	digits, isPercent := strings.CutSuffix(text, "%")
	x, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.IsNaN(x) || x < 0 || (!isPercent && x > 1) {
		return 0, fmt.Errorf("%.20q: give a percentage such as 10%%, or a share such as 0.1", text)
	}
	if isPercent {
		x /= 100
	}
	return x, nil
}

// size reads a number of bytes or KiB.
func size(text string) (int, error) {
	digits, isKiB := strings.CutSuffix(text, "KiB")
	x, err := strconv.ParseFloat(digits, 64)
	if isKiB {
		x *= 1 << 10
	}
	if err != nil || x < 0 || x > 1<<30 || x != math.Trunc(x) { // NaN is not what it is cut to either
		return 0, fmt.Errorf("%.20q: give a size such as 4KiB, or a number of bytes", text)
	}
	return int(x), nil
}

func printCapacity(out io.Writer, source string, a capacity.Answer) {
	const labelWidth = 24
	figureWidths := []int{12, 18}
	g := a.Given
	about := fmt.Sprintf("batchSize %d, newBatchThreshold %d, maxPollingInterval %s, queue functions: %d, %s", g.BatchSize, g.NewBatchThreshold, g.MaxPollingInterval, g.QueueFunctions, source)
	for _, line := range wrap(about, textColumns) {
		fmt.Fprintln(out, line)
	}
	for _, group := range capacity.Report(a) {
		line := func(label string, figures []string, why string) {
			text := fmt.Sprintf("%-*s", labelWidth, label)
			for i, figure := range figures {
				text += fmt.Sprintf(" %*s", figureWidths[i], figure)
			}
			indent := len(text) + len(columnGap)
			for i, part := range wrap(why, textColumns-indent) {
				if i > 0 {
					text = strings.Repeat(" ", indent-len(columnGap))
				}
				fmt.Fprintln(out, strings.TrimRight(text+columnGap+part, " "))
			}
		}
		fmt.Fprintln(out)
		line(group.Titles[0], group.Titles[1:], "")
		for _, row := range group.Rows {
			line("  "+row.Label, row.Figures, row.Why)
		}
	}
	fmt.Fprint(out, "\nadvice\n")
	for _, advice := range a.Advice {
		for i, part := range wrap(advice.Text, textColumns-4) {
			fmt.Fprintf(out, "  %s %s\n", map[bool]string{true: "-", false: " "}[i == 0], part)
		}
	}
}
