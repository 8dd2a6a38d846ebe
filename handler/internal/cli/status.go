package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/functionapp"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/strictjson"
)

// watchEvery is the time between two screens.
const watchEvery = 2 * time.Second

func newStatus(env Env) *cobra.Command {
	shared := &sharedFlags{env: env, group: "status"}
	var watch bool
	command := &cobra.Command{
		Use:   "status",
		Short: "Show waiting messages by queue and target, and whether the app runs",
		Long: `Show the queues that functions read with their length (approximate), the age of the oldest visible
message, the scheduled messages and those due in the next minute, and the poison messages with the
reasons of the first 32; the targets for which most messages are scheduled; and when the timer
functions last ran. A value that the record of scheduled messages does not have is "unknown".`,
		Example: `  async-caller status
  async-caller status --watch
  async-caller status --app ./my-app --json`,
		Args: cobra.NoArgs,
	}
	flags := flagsOf(command)
	flags.BoolVar(&watch, "watch", false, fmt.Sprintf("show it again every %s, until Ctrl-C", exactly(watchEvery)))
	shared.addApp(flags.FlagSet)
	command.RunE = shared.withSession(func(ctx context.Context, s *session, _ []string) error {
		if !watch {
			return s.showStatus(ctx, false)
		}
		redraw := isTerminal(s.env.Stdout) && !s.json
		for {
			err := s.showStatus(ctx, redraw)
			isStopped := ctx.Err() != nil
			if err != nil && !isStopped {
				return err
			}
			if !storage.Sleep(ctx, watchEvery) { // Ctrl-C is the normal end of a watch
				return nil
			}
		}
	})
	return command
}

// showStatus prints the status. Redraw replaces what is on the terminal.
func (s *session) showStatus(ctx context.Context, redraw bool) error {
	status, err := s.runs.Status(ctx)
	if err != nil {
		return err
	}
	if s.json {
		return printJSON(s.out, status)
	}
	if redraw {
		fmt.Fprint(s.out, "\x1b[H\x1b[2J") // to the corner, and clear the screen
	}
	printStatus(s.out, status, s.app)
	return s.out.err
}

func printStatus(out io.Writer, s account.Status, app string) {
	printLine(out, "account", "%s at %s", s.Account, s.At.Format(time.TimeOnly+" UTC"))
	printLine(out, "app", "%s", strictjson.ReplaceUnprintable(app))
	printLine(out, "running", "%s", runningText(s))
	printLine(out, "timers", "%s %s, %s %s",
		functionapp.MonitorTimer, lastRun(s.Monitor, s.At),
		functionapp.KeeperTimer, lastRun(s.Keeper, s.At))
	if s.RecordProblem != "" {
		printLine(out, "scheduled", "unknown: %s", strictjson.ReplaceUnprintable(s.RecordProblem))
	}
	fmt.Fprintln(out)
	printRow(out, queueRow, "QUEUE", "MESSAGES", "OLDEST", "SCHEDULED", "1 MIN", "STALE", "POISON", "REASONS (SAMPLE)")
	var missing, notes []string
	for _, q := range s.Queues {
		if q.Problem != "" {
			notes = append(notes, q.Queue+": "+strictjson.ReplaceUnprintable(q.Problem))
		}
		if q.Expiring > 0 {
			notes = append(notes, fmt.Sprintf(
				"storage will delete at least %s on %s%s: `async-caller poison keep` prevents that",
				messages(q.Expiring), q.Queue, storage.PoisonSuffix))
		}
		isScheduled := q.Scheduled != nil && q.Scheduled.Count > 0
		if q.Missing && q.Problem == "" && q.Poison == 0 && !isScheduled {
			missing = append(missing, q.Queue)
			continue
		}
		printQueueStatus(out, q, s.At)
	}
	if len(s.Targets) > 0 {
		fmt.Fprintln(out)
		printScheduledGroups(out, s.Targets, s.At)
	}
	if s.OtherTargets > 0 {
		notes = append(notes,
			"other targets: "+thousands(s.OtherTargets)+"; `async-caller scheduled list --group-by host` has them")
	}
	if len(missing) > 0 {
		notes = append(notes, "not created yet: "+strings.Join(missing, ", "))
	}
	for i, note := range notes {
		if i == 0 {
			fmt.Fprintln(out)
		}
		printLine(out, "note", "%s", note)
	}
}

// queueRow is the format of a row of the queues, queueColumns the width of the names.
const (
	queueRow     = "%-24s  %9s  %6s  %9s  %7s  %5s  %7s  %s"
	queueColumns = 24
)

func printQueueStatus(out io.Writer, q account.QueueStatus, now time.Time) {
	name := q.Queue
	if len(name) > queueColumns { // a command may need the whole name
		fmt.Fprintln(out, name)
		name = ""
	}
	oldest := "-"
	if !q.Oldest.IsZero() {
		oldest = age(now.Sub(q.Oldest))
	}
	waiting, soon, stale := "unknown", "-", "-"
	if q.Scheduled != nil {
		waiting = thousands(q.Scheduled.Count - q.Scheduled.Stale)
		soon = thousands(q.Scheduled.DueInMinute)
		stale = thousands(q.Scheduled.Stale)
	}
	printRow(out, queueRow, name, thousands(q.Messages), oldest, waiting, soon, stale, thousands(q.Poison),
		reasonsText(q.Sample))
}

// runningText says in words whether the app runs.
func runningText(s account.Status) string {
	isUnknown := s.Monitor.IsZero() && s.Keeper.IsZero()
	switch {
	case isUnknown && s.RecordProblem != "":
		return "unknown: the record cannot be read"
	case isUnknown:
		return "unknown: no timer function has recorded a run"
	case s.Silent != "":
		return "no: the app or its timer functions do not run"
	}
	return "yes"
}

func lastRun(at, now time.Time) string {
	if at.IsZero() {
		return "unknown"
	}
	return age(now.Sub(at)) + " ago"
}
