package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/estimate"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/program/terminal"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
)

func newTargets(env Env) *cobra.Command {
	shared := &sharedFlags{env: env, group: "targets"}
	command := &cobra.Command{
		Use:   shared.group,
		Short: "Pause a target, or change its limits, while the apps run",
		Long: `Stop the calls to a target for a while, for example during its maintenance, or set its rate or
concurrency in the place of what targets.json says. HOST is the host of its URLs, which means all
ports, or host:port. The apps of the storage account read these settings from a table every 15 s.

Messages for a paused target are rescheduled without a call, attempts unchanged. Their deadlines do
not wait: a message whose deadline comes first expires, without a last attempt.`,
		Example: `  async-caller targets pause crm.example.com --for 2h --because 'maintenance, INC-4711'
  async-caller targets set crm.example.com --rate 5/s --concurrency 2 --for 1d
  async-caller targets list
  async-caller targets resume crm.example.com --rate 50/s`,
	}
	onlyCommands(command)
	shared.declare(command)
	command.AddCommand(
		newTargetsPause(shared), newTargetsResume(shared), newTargetsSet(shared), newTargetsList(shared),
	)
	return command
}

func newTargetsPause(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "pause HOST",
		Short: "Stop the calls to a target",
		Long: `Stop the calls to a target within 20 s. Calls in flight end as usual. Without --for, the pause lasts
until "targets resume". Pausing a paused target changes the end and --because.

The command prints what "targets list" shows of the host, and how many scheduled calls for it
expire before the pause ends or, without --for, within 24 hours. Messages that are not scheduled yet
are not counted. If something of this is not known, the exit code is 4.`,
		Example: `  async-caller targets pause crm.example.com --for 2h --because 'maintenance, INC-4711'
  async-caller targets pause '[2001:db8::1]:8443'`,
		Args: cobra.ExactArgs(1),
	}
	flags := flagsOf(command)
	change := addChange(flags, "pause", "until it is resumed")
	isDry := addDryEstimate(flags)
	command.RunE = withHost(flags, func(host string) runFunc {
		return shared.withSession(func(ctx context.Context, s *session, _ []string) error {
			pause := change.of(host, setting.Pause, "")
			if *isDry {
				return s.estimate(ctx, account.Change{Host: host, Made: []setting.Setting{pause}})
			}
			return s.pauseTarget(ctx, pause)
		})
	}, func() {})
	return command
}

// change has the flags of a command that makes settings.
type change struct {
	lasts  time.Duration
	reason string
}

// addChange declares the flags of a command that makes settings. Made is what it makes, and end when that ends by
// default.
func addChange(flags *flagSet, made, end string) *change {
	c := &change{}
	parsed(flags, &c.lasts, "for", "`duration` of the "+made+", at least 1m (default "+end+")",
		durationFrom(time.Minute))
	parsed(flags, &c.reason, "because", "why, as `text` for colleagues", parseReason)
	return c
}

// of returns the setting of a member of a host.
func (c *change) of(host, member, value string) setting.Setting {
	made := setting.Setting{
		Host: host, Member: member, Value: value, Since: time.Now().UTC().Truncate(time.Second), Reason: c.reason,
	}
	if c.lasts > 0 {
		made.Until = made.Since.Add(c.lasts)
	}
	return made
}

// addDryEstimate declares --dry-run of a command that changes settings.
func addDryEstimate(flags *flagSet) *bool {
	return flags.Bool("dry-run", false, "change nothing; say when the calls that wait will be done, now and then")
}

// estimate prints when the scheduled calls for a host will be done, as it is and after a change of the settings.
func (s *session) estimate(ctx context.Context, c account.Change) error {
	status, err := s.account.Status(ctx)
	if err != nil {
		return err
	}
	changed := status.Estimates(c)
	printAll(s, changed, func(out io.Writer, changed []account.Changed) {
		for _, e := range changed {
			terminal.PrintLine(out, "target", "%s: %s scheduled", e.Host, format.Plural(e.Now.Calls, "call"))
			terminal.PrintLine(out, "now", "%s", text.Printable(e.Now.Text()))
			terminal.PrintLine(out, "then", "%s", text.Printable(e.Then.Text()))
		}
	})
	isUnknown := func(e account.Changed) bool {
		return e.Now.State == estimate.Unknown || e.Then.State == estimate.Unknown
	}
	switch {
	case status.RecordProblem != "":
		return &codeError{exitPartly, errors.New("scheduled calls: " + status.RecordProblem)}
	case slices.ContainsFunc(changed, isUnknown):
		return &codeError{exitPartly, errUnknown}
	case len(changed) == 0:
		s.progress.printf("at most %d calls for %s are scheduled: no time is said; nothing was changed",
			estimate.Handful, c.Host)
	default:
		s.progress.printf("nothing was changed")
	}
	return nil
}

// withHost returns the RunE of a command whose argument is a target. Check refuses flags.
func withHost(flags *flagSet, work func(host string) runFunc, check func()) runFunc {
	return func(cmd *cobra.Command, args []string) error {
		check()
		host, err := targets.ParseHost(args[0])
		if err != nil {
			flags.problems = append(flags.problems, err)
		}
		if err := flags.err(); err != nil {
			return err
		}
		return work(host)(cmd, args)
	}
}

func parseReason(text string) (string, error) {
	if len(text) > setting.MaxText {
		return "", fmt.Errorf("want at most %d bytes", setting.MaxText)
	}
	return text, nil
}

// The commands that end settings, as formats for a host.
const (
	resumeCommand = "`async-caller targets resume %s`"
	clearCommand  = "`async-caller targets set %s --clear`"
)

// setTarget makes settings of one target by a command, and prints what is in force for it. The command of the format
// end ends them.
func (s *session) setTarget(ctx context.Context, command, end string, wanted ...setting.Setting) error {
	host := wanted[0].Host
	err := s.operations.Set(ctx, command, wanted...)
	var texts []string
	for _, made := range wanted {
		texts = append(texts, made.String())
	}
	what := strings.Join(texts, " and ") + " of " + host
	if err != nil {
		return s.changeError("set "+what, err)
	}
	s.progress.printf("set %s in %s, %s", what, s.account.Name, wanted[0].Text())
	s.progress.printf("an app that runs notices it within %s; calls in flight end as usual; end: %s",
		format.Duration(setting.Notice), fmt.Sprintf(end, format.ShellWord(host)))
	s.out.changed = settingsText
	listed, err := s.listSettings(ctx, host)
	if err != nil {
		return err
	}
	for _, made := range wanted {
		isMade := func(l account.Setting) bool {
			return l.Source == account.Live && l.Problem == "" && l.Host == host && l.Member == made.Member
		}
		if !slices.ContainsFunc(listed, isMade) {
			return &codeError{exitPartly, fmt.Errorf("the table does not show %s: another operator has ended it, or "+
				"it has more settings than an app reads", made)}
		}
	}
	return nil
}

// changeError returns the error of a change of settings, with its exit code.
func (s *session) changeError(what string, err error) error {
	err = fmt.Errorf("%s: %w", what, err)
	if errors.Is(err, setting.ErrUnanswered) {
		return &codeError{exitPartly, fmt.Errorf("%w\n%s", err, settingsText)}
	}
	return err
}

// pauseTarget pauses a target, and says how many scheduled messages expire meanwhile.
func (s *session) pauseTarget(ctx context.Context, pause setting.Setting) error {
	if err := s.setTarget(ctx, "pause", resumeCommand, pause); err != nil {
		return err
	}
	until := pause.Until
	if until.IsZero() {
		until = pause.Since.Add(openEndedPeriod)
	}
	expiring, first, err := s.operations.CountExpiring(ctx, pause.Host, until)
	if err != nil {
		err = fmt.Errorf("how many scheduled calls expire is unknown: %s", account.RecordProblem(err))
		return &codeError{exitPartly, err}
	}
	text := fmt.Sprintf("scheduled calls for it that expire until %s: %s", format.Moment(until),
		format.Number(expiring))
	if expiring > 0 {
		text += ", the first at " + format.Moment(first)
	}
	s.progress.printf("%s", text)
	return nil
}

// openEndedPeriod is the time for which expiring messages are counted if a pause has no end.
const openEndedPeriod = 24 * time.Hour

// settingsText says where the settings of an account are seen.
const settingsText = "the settings that are in force: `async-caller targets list`"

func newTargetsSet(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "set HOST",
		Short: "Set the rate or the concurrency of a target",
		Long: `Set the rate of a target, or its concurrency, or both, within 20 s and for all apps of the account.
The other members of its profile in targets.json apply as before. A rate has the burst of its calls
of a second, also if the file states another. --clear ends what was set for this host or host:port,
and what targets.json says is in force again; without such a setting the exit code is 3. A pause
stays until "targets resume".

The messages that wait keep their places and their next attempts. After a limit is raised, "calls
retry --state scheduled --host HOST --reason busy" makes them due. The command prints what "targets
list" shows of the host.`,
		Example: `  async-caller targets set crm.example.com --rate 5/s --for 2h --because INC-4711
  async-caller targets set crm.example.com:8443 --rate 100/m --concurrency 2
  async-caller targets set crm.example.com --clear`,
		Args: cobra.ExactArgs(1),
	}
	values, flags := map[string]string{}, flagsOf(command)
	addLimit := func(member, usage string) {
		parsed(flags, new(string), member, usage, func(value string) (string, error) {
			values[member] = value
			return value, setting.CheckValue(member, value)
		})
	}
	addLimit(setting.Rate, "largest `rate` of calls, such as 5/s, 30/m or 100/h")
	addLimit(setting.Concurrency, "largest `number` of calls at a time")
	clears := flags.Bool("clear", false, "end the rate and the concurrency that were set")
	change := addChange(flags, "setting", "until it is cleared")
	isDry := addDryEstimate(flags)
	command.RunE = withHost(flags, func(host string) runFunc {
		return shared.withSession(func(ctx context.Context, s *session, _ []string) error {
			switch {
			case *clears && *isDry:
				return s.estimate(ctx, account.Change{Host: host, Ended: []string{setting.Rate, setting.Concurrency}})
			case *clears:
				return s.clearLimits(ctx, host)
			}
			var limits []setting.Setting
			for _, member := range []string{setting.Rate, setting.Concurrency} {
				if value, isSet := values[member]; isSet {
					limits = append(limits, change.of(host, member, value))
				}
			}
			if *isDry {
				return s.estimate(ctx, account.Change{Host: host, Made: limits})
			}
			return s.setTarget(ctx, "set", clearCommand, limits...)
		})
	}, func() {
		flags.refuse(len(values) == 0 && !*clears, "give --rate, --concurrency or --clear")
		flags.refuse(*clears && (len(values) > 0 || change.lasts > 0),
			"--clear excludes --rate, --concurrency and --for")
	})
	return command
}

func (s *session) clearLimits(ctx context.Context, host string) error {
	ended, err := s.operations.Unset(ctx, "set", host, setting.Rate, setting.Concurrency)
	switch {
	case errors.Is(err, operation.ErrNotSet):
		return &codeError{exitNothing, fmt.Errorf("no limit of %s is set in %s", host, s.account.Name)}
	case err != nil:
		return s.changeError("clear", err)
	}
	for _, limit := range ended {
		s.progress.printf("cleared %s of %s in %s, which was set %s", limit, host, s.account.Name, limit.Text())
	}
	s.out.changed = settingsText
	_, err = s.listSettings(ctx, host)
	return err
}

func newTargetsResume(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "resume HOST",
		Short: "Allow the calls to a target again, and make its scheduled calls due",
		Long: `End the pause of a target, wait 20 s until the app has noticed it, and make the scheduled
calls due that have the reason "paused", except those that another pause still stops: of the host on
all ports, or of one of its ports. The other calls are made at their next attempt. --rate,
--canary and --stop-at-failure-ratio limit the load on the target, as in "calls retry". The
run is one of "runs list", and "runs resume" continues it.`,
		Example: `  async-caller targets resume crm.example.com
  async-caller targets resume crm.example.com --canary 3 --rate 50/s`,
		Args: cobra.ExactArgs(1),
	}
	var pace journal.Pace
	flags := flagsOf(command)
	addPace(flags, &pace)
	isDry := addDryEstimate(flags)
	command.RunE = withHost(flags, func(host string) runFunc {
		return shared.withSession(func(ctx context.Context, s *session, _ []string) error {
			if *isDry {
				return s.estimate(ctx, account.Change{Host: host, Ended: []string{setting.Pause}, Rate: pace.Rate})
			}
			s.operations.Operator.Filter = waitingFilter(host, decision.Paused)
			return s.resumeTarget(ctx, host, pace)
		})
	}, func() { checkPace(flags, pace) })
	return command
}

func (s *session) resumeTarget(ctx context.Context, host string, pace journal.Pace) error {
	ended, err := s.operations.Unset(ctx, "resume", host, setting.Pause)
	later := fmt.Sprintf("`async-caller calls retry --state scheduled %s`", waitingFilter(host, decision.Paused))
	switch {
	case errors.Is(err, operation.ErrNotSet):
		return &codeError{exitNothing, fmt.Errorf("%s is not paused in %s; messages that still wait: %s",
			host, s.account.Name, later)}
	case err != nil:
		return s.changeError("resume", err)
	}
	s.progress.printf("resumed %s in %s, which was paused %s", host, s.account.Name, ended[0].Text())
	s.out.changed = settingsText
	if s.json {
		_ = printJSON(s.out, s.account.WithFile(ended[0])) // output keeps the error
	}
	s.progress.printf("waiting %s until the app has noticed it", format.Duration(setting.Notice))
	if !storage.Sleep(ctx, setting.Notice) {
		err = errors.New("interrupted")
	}
	var plan *operation.Plan
	if err == nil {
		plan, err = s.operations.PlanResume(ctx, host, pace)
	}
	if err != nil {
		const text = "the target is resumed, but its scheduled calls wait for their next attempt: %w\n" +
			"make them due: %s"
		return &codeError{exitPartly, fmt.Errorf(text, err, later)}
	}
	if plan.Total+plan.Refused == 0 {
		s.announce(plan)
		plan.Discard(ctx)
		s.progress.printf("no scheduled message that may be called now is recorded as %s", decision.Paused)
		return nil
	}
	s.yes = true // the operator has asked for it
	return s.execute(ctx, plan, nil)
}

// waitingFilter is the selection of the messages for a target that wait for a reason, as a person would write it.
func waitingFilter(host string, reason decision.Reason) string {
	return fmt.Sprintf("--host %s --reason %s", format.ShellWord(host), reason)
}

func newTargetsList(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "list",
		Short: "List what is set for targets, and when the calls that wait will be done",
		Long: `List the targets that are paused, the limits that are set, and what targets.json of the app folder
has of limits, credentials, client certificates, signatures and new addresses. SOURCE is "live" for
what an operator has set, with since when, until when, by whom and why: this is what an instance of
an app reads from the table, and in force within 20 s. SOURCE is "file" for targets.json, whose
TARGET is a pattern. A live setting replaces the same member of the file, and has no effect for a
host that has moved. SOURCE is "record" for targets with more than 5 scheduled calls: how many there
are, and when they will be done, as "status" says it.

A host without a port means all ports. Rows of the table that are not valid have no effect, and are
shown with their problem. If the table or the file cannot be read, the exit code is 4.`,
		Example: "  async-caller targets list --json",
		Args:    cobra.NoArgs,
	}
	command.RunE = shared.withSession(func(ctx context.Context, s *session, _ []string) error {
		listed, err := s.listSettings(ctx, "")
		if !s.hasApp {
			s.progress.printf("without the limits of targets.json: no app in %s", s.app)
		}
		switch {
		case err == nil && s.hasInvalid:
			return &codeError{exitPartly, errors.New("what targets.json says is unknown, because the app is invalid")}
		case err == nil && len(listed) == 0:
			s.progress.printf("no target is paused, and no limit is set, in %s", s.account.Name)
		}
		return err
	})
	return command
}

// listSettings prints the live settings and those of targets.json: of the ports of a host, or of all targets if it is
// empty.
func (s *session) listSettings(ctx context.Context, host string) (listed []account.Setting, err error) {
	now := time.Now()
	settings, err := s.account.Settings(ctx)
	for _, row := range settings {
		if row.Problem != "" || row.IsInForce(now) {
			listed = append(listed, s.account.WithFile(row))
		}
	}
	listed = append(listed, s.account.FileSettings()...)
	var unread error
	if host == "" {
		status, err := s.account.Status(ctx)
		listed, unread = append(listed, status.WaitingCalls()...), err
		if err == nil && status.RecordProblem != "" && status.RecordProblem != account.ErrNoTable.Error() {
			unread = errors.New(status.RecordProblem)
		}
	} else {
		pattern := s.account.Rules.Decision.Profiles.OfHost(host).Pattern
		listed = slices.DeleteFunc(listed, func(l account.Setting) bool {
			isFile := l.Source == account.FromFile && l.Host == pattern
			return !isFile && targets.WithoutPort(l.Host) != targets.WithoutPort(host)
		})
	}
	printAll(s, listed, func(out io.Writer, settings []account.Setting) { printSettings(out, settings, now) })
	switch {
	case err != nil && !errors.Is(err, account.ErrNoSettings):
		err = &codeError{exitPartly, fmt.Errorf("what is in force is unknown: %w", err)}
	case err == nil && unread != nil:
		err = &codeError{exitPartly, fmt.Errorf("what waits is unknown: %w", unread)}
	}
	return listed, err
}

// mostSet is the largest width of what is set: a credential has a long name.
const mostSet = 34

func printSettings(out io.Writer, settings []account.Setting, now time.Time) {
	var rows [][]string
	for _, s := range settings {
		if s.Problem != "" {
			continue
		}
		since, ends := "-", "-"
		if s.Source == account.Live {
			since, ends = format.Age(now.Sub(s.Since)), "never"
		}
		if !s.Until.IsZero() {
			ends = format.Age(s.Until.Sub(now))
		}
		why := strings.TrimSuffix(s.By+": "+s.Reason, ": ")
		if s.Estimate != nil {
			why = text.Printable(s.Estimate.Text())
		}
		rows = append(rows, []string{s.Host, terminal.CutMiddle(s.String(), mostSet), s.Source, since, ends, why})
	}
	terminal.PrintTable(out, rows, terminal.Name("TARGET"), terminal.Left("SET", 0), terminal.Left("SOURCE", 0),
		terminal.Right("SINCE", 0), terminal.Right("ENDS", 0), terminal.Flex("BY, REASON", 0))
	for _, s := range settings {
		if s.Problem != "" {
			terminal.PrintLine(out, "ignored", "%s %s: %s", s.Host, s, s.Problem)
		}
	}
}
