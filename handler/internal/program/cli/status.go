package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/call"
	"asynccaller/handler/internal/operate/estimate"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/program/terminal"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

// watchEvery is the time between two screens.
const watchEvery = 2 * time.Second

func newStatus(env Env) *cobra.Command {
	shared := &sharedFlags{env: env, group: "status"}
	var watch, all bool
	command := &cobra.Command{
		Use:   "status",
		Short: "Show what waits, calls per minute, why targets fail, and whether the app runs",
		Long: `Show the apps that make no calls although they run, and why: hold mode, or no queue function runs.
Then show the queues that functions read with their length (approximate), the age of the oldest
visible message, the scheduled calls and those due in the next minute, and the poison messages
with the reasons of the first 32; the targets that fail, and those for which most messages are
scheduled; and when the timer functions last ran. A value that cannot be read is "unknown", and the
exit code is 4. "(route)" marks a queue with a route.

For each target: CAUSE is why it fails or, if it does not, why the next of its messages waits. SINCE
is when the first call that failed since the last success began, and BREAKER whether an instance of
the app has opened its circuit breaker. WAITING counts its scheduled calls and 1 HOUR those that
are due by then; NEXT is the time until the first of them, for a paused target until the pause ends.
"no answer yet" is what an instance has last seen of calls that were in flight for 10 s or more.
Targets without scheduled calls are shown for an hour after they have failed.

Where more than 5 calls are scheduled, "done" says in which time nine of ten of them will be done,
and all: by their next attempts, the limits in force, and the calls of the last 5 minutes. If some
fail again, they are taken to come back as calls do that ask for no policy, and "likely before" is
right in nine of ten cases. With --watch, the times are made anew once a minute.

"(was 503)" is the cause of a target that is well again: calls were delivered since. SINCE and
BREAKER are exact to a minute.

For the same targets and the busiest ones: the calls per minute that were DELIVERED and that FAILED,
on average over the last 5 minutes (5M) and the last hour (1H), or since the first minute with a
call; and limits below which half (P50) and 99 % (P99) of the calls of the last 5 minutes took. "≥"
means at least: the target was perhaps not among the 50 busiest of a minute. A minute is shown 15 s
after its end.`,
		Example: `  async-caller status
  async-caller status --watch
  async-caller status --app ./my-app --json`,
		Args: cobra.NoArgs,
	}
	flags := flagsOf(command)
	flags.BoolVar(&watch, "watch", false, fmt.Sprintf("show it again every %s, until Ctrl-C",
		format.Duration(watchEvery)))
	flags.BoolVar(&all, "all", false, "show priority queues without messages, too")
	shared.addApp(flags.FlagSet)
	command.RunE = shared.withSession(func(ctx context.Context, s *session, _ []string) error {
		if !watch {
			return s.showStatus(ctx, false, all, nil)
		}
		redraw := s.env.canRedraw() && !s.json
		var last lastShown
		for {
			err := s.showStatus(ctx, redraw, all, &last)
			isStopped := ctx.Err() != nil
			if err != nil && !isStopped && !errors.Is(err, errUnknown) {
				return err
			}
			if !storage.Sleep(ctx, watchEvery) { // Ctrl-C is the normal end of a watch
				return nil
			}
		}
	})
	return command
}

// errUnknown means that a status has values that are unknown, and says why.
var errUnknown = errors.New("what could not be read is unknown")

// lastShown is what was shown of targets before: in which order, and when their calls would be done.
type lastShown struct {
	order     map[string]int
	estimates map[string]estimate.Estimate
}

// showStatus prints the status. Redraw replaces what is on the terminal; all shows idle queues, too. Last, unless nil,
// is what was shown before. The error is an [errUnknown] if a part could not be read.
func (s *session) showStatus(ctx context.Context, redraw, all bool, last *lastShown) error {
	status, err := s.account.Status(ctx)
	if err != nil {
		return err
	}
	if last != nil {
		last.keep(status.Targets)
	}
	switch {
	case s.json:
		_ = printJSON(s.out, struct { // output keeps the error
			account.Status
			Files string `json:"files"`
		}{status, config.FilesInForce(s.app)})
	default:
		if redraw {
			fmt.Fprint(s.out, "\x1b[H\x1b[2J") // to the corner, and clear the screen
		}
		s.printStatus(status, all)
	}
	if !status.IsKnown() {
		return &codeError{exitPartly, errUnknown}
	}
	return nil
}

// keep sorts targets as they were shown before, those that fail first. New ones follow, in their order. Estimates stay
// for a minute.
func (last *lastShown) keep(targets []account.TargetStatus) {
	if last.order == nil {
		last.order = map[string]int{}
	}
	estimates := map[string]estimate.Estimate{}
	for i, t := range targets {
		if _, isKnown := last.order[t.Key]; !isKnown {
			last.order[t.Key] = len(last.order)
		}
		if t.Estimate != nil {
			estimates[t.Key] = t.Estimate.Keep(last.estimates[t.Key])
			targets[i].Estimate = new(estimates[t.Key])
		}
	}
	last.estimates = estimates
	slices.SortStableFunc(targets, func(a, b account.TargetStatus) int {
		return cmp.Or(min(len(b.Failing), 1)-min(len(a.Failing), 1), last.order[a.Key]-last.order[b.Key])
	})
}

func (s *session) printStatus(status account.Status, all bool) {
	out := s.out
	for _, app := range status.NoCalls[:min(len(status.NoCalls), mostSettings)] {
		terminal.PrintLine(out, "no calls", "%s", text.Printable(app))
	}
	if len(status.NoCalls) > 0 {
		terminal.PrintLine(out, "",
			"messages wait: correct the settings of the app, or enable its functions, and restart it")
	}
	terminal.PrintLine(out, "account", "%s at %s", status.Account, status.At.Format(time.TimeOnly+" UTC"))
	terminal.PrintLine(out, "app", "%s", s.appText())
	terminal.PrintLine(out, "files", "%s", text.Printable(config.FilesInForce(s.app)))
	terminal.PrintLine(out, "running", "%s", runningText(status))
	for _, app := range status.Apps {
		terminal.PrintLine(out, "timers", "%s", timersText(app.App, status.At))
		first := account.ClientCertificate{Certificate: app.Certificate, Ends: app.CertificateEnds}
		if first.Certificate != "" {
			terminal.PrintLine(out, "certificate", "%s, the first to end: %s", text.Printable(app.Title()),
				strings.TrimSuffix(text.Printable(first.Text())+", "+first.Warning(status.At), ", "))
		}
	}
	if status.RecordProblem != "" {
		terminal.PrintLine(out, "scheduled", "unknown: %s", text.Printable(status.RecordProblem))
	}
	s.printSettings(status)
	fmt.Fprintln(out)
	notes := printQueueStates(out, status, all)
	isTraffic := func(t account.TargetStatus) bool { return t.Count == 0 && len(t.Failing) == 0 }
	if waiting := slices.DeleteFunc(slices.Clone(status.Targets), isTraffic); len(waiting) > 0 {
		fmt.Fprintln(out)
		printTargets(out, waiting, status)
		if printEstimates(out, waiting) && status.Unrecorded > 0 {
			notes = append(notes, "the times are those of the scheduled calls, not of "+
				format.Number(status.Unrecorded)+" others that are on the queues, about")
		}
	}
	printNumbers(out, status)
	if status.NumbersProblem != "" {
		notes = append(notes, "calls per minute are unknown: "+text.Printable(status.NumbersProblem))
	}
	if status.TargetProblem != "" {
		notes = append(notes, "why targets fail is unknown: "+text.Printable(status.TargetProblem))
	}
	if status.OtherTargets > 0 {
		notes = append(notes, "other targets: "+format.Number(status.OtherTargets)+
			"; `async-caller calls list --state scheduled --group-by host` has them")
	}
	for i, note := range notes {
		if i == 0 {
			fmt.Fprintln(out)
		}
		terminal.PrintLine(out, "note", "%s", note)
	}
	printFurther(out, status)
}

// fileText says what targets.json says about the member of a setting.
func (s *session) fileText(made account.Setting) string {
	switch {
	case made.File != "":
		return "targets.json has " + made.File
	case s.hasInvalid:
		return "what targets.json says is unknown"
	case s.hasApp:
		return "targets.json has none"
	}
	return "there is no targets.json here"
}

// mostSettings is the largest number of settings of targets, of credentials, and of apps without calls, that the status
// names.
const mostSettings = 10

// printSettings names the targets that are paused, the limits that are set, and the credentials.
func (s *session) printSettings(status account.Status) {
	for _, made := range status.Settings[:min(len(status.Settings), mostSettings)] {
		if made.Member == setting.Pause {
			terminal.PrintLine(s.out, "paused", "%s %s", made.Host, made.Text())
		} else {
			terminal.PrintLine(s.out, "set", "%s %s (%s) %s", made.Host, made, s.fileText(made), made.Text())
		}
	}
	if more := len(status.Settings) - mostSettings; more > 0 {
		terminal.PrintLine(s.out, "set", "%s more: `async-caller targets list`", format.Number(more))
	}
	if status.SettingProblem != "" {
		terminal.PrintLine(s.out, "set", "unknown: %s", text.Printable(status.SettingProblem))
	}
	for _, m := range status.Moves[:min(len(status.Moves), mostSettings)] {
		terminal.PrintLine(s.out, "moved", "%s to %s", m.Pattern, m.To)
	}
	if more := len(status.Moves) - mostSettings; more > 0 {
		terminal.PrintLine(s.out, "moved", "%s more: `async-caller targets list`", format.Number(more))
	}
	for _, c := range status.Certificates[:min(len(status.Certificates), mostSettings)] {
		terminal.PrintLine(s.out, "certificate", "%s: %s", c.Pattern, c.Certificate)
	}
	if more := len(status.Certificates) - mostSettings; more > 0 {
		terminal.PrintLine(s.out, "certificate", "%s more: `async-caller targets list`", format.Number(more))
	}
	for _, c := range status.Credentials[:min(len(status.Credentials), mostSettings)] {
		terminal.PrintLine(s.out, "credential", "%s: %s", c.Pattern, text.Printable(c.Credential))
	}
	if more := len(status.Credentials) - mostSettings; more > 0 {
		terminal.PrintLine(s.out, "credential", "%s more: `async-caller targets list`", format.Number(more))
	}
	if status.SharedQueues != "" {
		terminal.PrintLine(s.out, "limits", "%s: %s", status.SharedQueues, heartbeat.OneName)
	}
	if status.Limits != "" {
		terminal.PrintLine(s.out, "limits", "%s", status.Limits)
	}
}

// printFurther names the commands that say more about what waits, or change it.
func printFurther(out io.Writer, status account.Status) {
	waits := func(t account.TargetStatus) bool { return t.Count > 0 }
	hasPoison := func(q account.QueueStatus) bool { return q.Poison != nil && *q.Poison > 0 }
	isSilent := func(app account.AppStatus) bool { return app.Silent != "" }
	var texts []string
	if len(status.Apps) == 0 && status.RecordProblem == "" || slices.ContainsFunc(status.Apps, isSilent) {
		texts = append(texts, "`async-caller doctor`: why the app does not run")
	}
	if slices.ContainsFunc(status.Targets, waits) {
		texts = append(texts, "`async-caller calls list --state scheduled --host TARGET`: its calls that wait; "+
			"`retry` instead of `list` makes them now, `delete` stops them")
	}
	if slices.ContainsFunc(status.Queues, hasPoison) {
		texts = append(texts, "`async-caller calls list --state poison --group-by error`: the calls that were given up")
	}
	if len(texts) > 0 {
		texts = append(texts, "`async-caller runs list`: who has changed messages")
		fmt.Fprintln(out)
	}
	for _, text := range texts {
		terminal.PrintLine(out, "next", "%s", text)
	}
}

// appText names the app folder.
func (s *session) appText() string {
	folder, err := filepath.Abs(s.app)
	if err != nil {
		folder = s.app
	}
	folder = text.Printable(folder)
	if s.hasApp {
		return folder
	}
	return "none in " + folder + ": the queues are the usual ones; --app names the folder of an app, such as dist"
}

// printQueueStates prints the queues except for idle ones, and returns notes about them.
func printQueueStates(out io.Writer, s account.Status, all bool) (notes []string) {
	var rows [][]string
	var missing []string
	idle, unread := 0, 0
	for _, q := range s.Queues {
		if q.Problem != "" {
			unread++
		}
		if q.Expiring > 0 {
			notes = append(notes, fmt.Sprintf(
				"storage will delete at least %s on %s%s, unless timer "+functionapp.KeeperTimer+" keeps them: "+
					"`async-caller doctor` says whether it runs",
				format.Messages(q.Expiring), q.Queue, storage.PoisonSuffix))
		}
		if hidden := q.Hidden(); hidden > 0 {
			notes = append(notes, fmt.Sprintf("%s: %s more: invisible and not in the record (held, received, or due "+
				"in less than %s)", q.Queue, format.Number(hidden), format.Duration(decision.MinRecordedDelay)))
		}
		isPriority := slices.Contains(envelope.Queues()[1:], q.Queue)
		switch {
		case q.IsIdle() && isPriority && !all:
			idle++
		case q.IsIdle() && q.Missing:
			missing = append(missing, q.Queue)
		default:
			rows = append(rows, queueCells(q, s.At))
		}
	}
	terminal.PrintTable(out, rows, terminal.Name("QUEUE"), terminal.Right("MESSAGES", 0), terminal.Right("OLDEST", 0),
		terminal.Right("SCHEDULED", 0), terminal.Right("1 MIN", 0), terminal.Right("STALE", 0),
		terminal.Right("POISON", 0), terminal.List("REASONS"))
	if unread > 0 {
		first := s.Queues[slices.IndexFunc(s.Queues, func(q account.QueueStatus) bool { return q.Problem != "" })]
		notes = append(notes, format.Plural(unread, "queue")+" not fully read: "+text.Printable(first.Problem))
	}
	if idle > 0 {
		notes = append(notes, format.Plural(idle, "idle priority queue")+" not shown: --all shows them")
	}
	if len(missing) > 0 {
		notes = append(notes, "not created yet: "+strings.Join(missing, ", "))
	}
	return notes
}

func queueCells(q account.QueueStatus, now time.Time) []string {
	oldest := "-"
	if !q.Oldest.IsZero() {
		oldest = format.Age(now.Sub(q.Oldest))
	}
	waiting, soon, stale := "unknown", "-", "-"
	if q.Scheduled != nil {
		waiting = format.Number(q.Scheduled.Waiting())
		soon = format.Number(q.Scheduled.DueInMinute)
		stale = format.Number(q.Scheduled.Stale)
	}
	name := q.Queue
	if q.Routed {
		name += " (route)"
	}
	reasons := reasonsText(q.Sample)
	if q.LacksRows() {
		reasons = fmt.Sprintf("%s of %s seen: %s", format.Number(q.Sampled()), format.Number(*q.Poison), reasons)
	}
	return []string{name, known(q.Messages), oldest, waiting, soon, stale, known(q.Poison), reasons}
}

// known returns a number, or that it is unknown.
func known(n *int) string {
	if n == nil {
		return "unknown"
	}
	return format.Number(*n)
}

// printTargets prints how targets fail and what waits for them, and then what the targets said that fail.
func printTargets(out io.Writer, targets []account.TargetStatus, s account.Status) {
	now := s.At
	var rows [][]string
	for _, t := range targets {
		next := "-"
		if t.Waiting() > 0 {
			next = nextText(t.Next, now)
		}
		waiting := []string{format.Number(t.Waiting()), format.Number(t.DueInHour), next}
		if s.RecordProblem != "" {
			waiting = []string{"unknown", "-", "-"}
		}
		if len(t.Failing) == 0 {
			rows = append(rows, append([]string{t.Key, cmp.Or(t.Why(), "-"), "-", "-"}, waiting...))
		}
		for _, f := range t.Failing {
			name, breaker := t.Key, "-"
			if len(t.Failing) > 1 {
				name += " (app " + f.App + ")"
			}
			if f.IsOpen() {
				breaker = "open"
			}
			cells := []string{name, call.CauseText(f, now), format.Age(f.Age(now)), breaker}
			rows = append(rows, append(cells, waiting...))
			waiting = []string{"", "", ""} // they are those of all apps
		}
	}
	terminal.PrintTable(out, rows, terminal.Name("TARGET"), terminal.Flex("CAUSE", 0),
		terminal.Right("SINCE", 0), terminal.Left("BREAKER", 0), terminal.Right("WAITING", 0),
		terminal.Right("1 HOUR", 0), terminal.Right("NEXT", 0))
	isFirst := true
	for _, t := range targets {
		for _, f := range t.Failing {
			if f.Answer == "" {
				continue
			}
			if isFirst {
				fmt.Fprintln(out)
				isFirst = false
			}
			text := terminal.CutMiddle(t.Key, 40) + ": " + text.Printable(f.Answer)
			terminal.PrintLine(out, "answer", "%s", terminal.Cut(text, terminal.Width(out)-terminal.LabelWidth))
		}
	}
}

// printEstimates says when the calls that wait for targets will be done, and reports whether there was anything to say.
func printEstimates(out io.Writer, targets []account.TargetStatus) (isPrinted bool) {
	for _, t := range targets {
		if t.Estimate == nil {
			continue
		}
		if !isPrinted {
			fmt.Fprintln(out)
		}
		isPrinted = true
		terminal.PrintLine(out, "done", "%s: %s", terminal.CutMiddle(t.Key, 40), text.Printable(t.Estimate.Text()))
	}
	return isPrinted
}

// nextText says when the next message of a target is due. Those for a target that is paused without an end are not.
func nextText(next, now time.Time) string {
	if !next.Before(storage.NeverExpires) {
		return "resume"
	}
	return format.Age(next.Sub(now))
}

// printNumbers prints the calls per minute of the targets that were called in the last hour, and of the others.
func printNumbers(out io.Writer, status account.Status) {
	var rows [][]string
	add := func(name string, n *sight.Series) {
		if n == nil || n.LastHour.Messages() == 0 && !n.LastHour.AtLeast {
			return
		}
		last, hour := n.Last5Minutes, n.LastHour
		rows = append(rows, []string{
			name,
			format.PerMinute(last.Delivered, last.Known, last.AtLeast),
			format.PerMinute(hour.Delivered, hour.Known, hour.AtLeast),
			format.PerMinute(last.FailedCalls(), last.Known, last.AtLeast),
			format.PerMinute(hour.FailedCalls(), hour.Known, hour.AtLeast),
			last.P50, last.P99,
		})
	}
	for _, t := range status.Targets {
		add(t.Key, t.Numbers)
	}
	add("(other targets)", status.OtherNumbers)
	if len(rows) == 0 {
		return
	}
	fmt.Fprintln(out)
	terminal.PrintTable(out, rows, terminal.Name("TARGET (PER MINUTE)"), terminal.Right("DELIVERED 5M", 0),
		terminal.Right("DELIVERED 1H", 0), terminal.Right("FAILED 5M", 0), terminal.Right("FAILED 1H", 0),
		terminal.Right("P50", 0), terminal.Right("P99", 0))
}

// runningText says in words which apps run.
func runningText(s account.Status) string {
	var silent []string
	for _, app := range s.Apps {
		if app.Silent != "" {
			sign := lastRun(app.LastSign(), s.At)
			silent = append(silent, text.Printable(app.Name)+" (last sign of life: "+sign+")")
		}
	}
	switch {
	case len(s.Apps) == 0 && s.RecordProblem != "":
		return "unknown: the record cannot be read"
	case len(s.Apps) == 0:
		return "unknown: no timer function has recorded that it ran"
	case len(silent) > 0:
		return "no: these apps or their timer functions do not run: " + strings.Join(silent, ", ")
	case len(s.NoCalls) > 0:
		return "yes, but no calls are made; last sign of life " + format.Age(s.At.Sub(s.LastSign())) + " ago"
	}
	return "yes, last sign of life " + format.Age(s.At.Sub(s.LastSign())) + " ago"
}

// timersText says when the timer functions of an app last ran.
func timersText(app heartbeat.App, now time.Time) string {
	return fmt.Sprintf("%s: %s %s, %s %s", text.Printable(app.Title()),
		functionapp.MonitorTimer, lastRun(app.Monitor, now), functionapp.KeeperTimer, lastRun(app.Keeper, now))
}

func lastRun(at, now time.Time) string {
	if at.IsZero() {
		return "not yet"
	}
	return format.Age(now.Sub(at)) + " ago"
}
