package cli

import (
	"cmp"
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
		Example: `  async-caller targets pause crm.example.com --for 2h --reason 'maintenance, INC-4711'
  async-caller targets set crm.example.com --rate 5/s --concurrency 2 --for 1d
  async-caller targets list
  async-caller targets resume crm.example.com --rate 50/s`,
	}
	onlyCommands(command)
	shared.declare(command)
	command.AddCommand(
		newTargetsPause(shared), newTargetsResume(shared), newTargetsSet(shared), newTargetsClear(shared),
		newTargetsList(shared),
	)
	return command
}

func newTargetsPause(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "pause HOST",
		Short: "Stop the calls to a target",
		Long: `Stop the calls to a target within 20 s. Calls in flight end as usual. Without --for, the pause lasts
until "targets resume". Pausing a paused target changes the end and the reason.

The command says how many scheduled messages for the target expire before the pause ends or, without
--for, within 24 hours. Messages that are not scheduled yet are not counted. If that number is not
known, the exit code is 4. If no call to the host is known, the command asks before it pauses it.`,
		Example: `  async-caller targets pause crm.example.com --for 2h --reason 'maintenance, INC-4711'
  async-caller targets pause '[2001:db8::1]:8443'`,
		Args: cobra.ExactArgs(1),
	}
	flags := flagsOf(command)
	change := addChange(shared, flags, "pause", "until it is resumed")
	command.RunE = withHost(flags, func(host string) runFunc {
		return shared.withSession(func(ctx context.Context, s *session, _ []string) error {
			return s.pauseTarget(ctx, change.of(s, host, setting.Pause, ""))
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
func addChange(shared *sharedFlags, flags *flagSet, made, end string) *change {
	c := &change{}
	parsed(flags, &c.lasts, "for", "`duration` of the "+made+", at least 1m (default "+end+")",
		durationFrom(time.Minute))
	parsed(flags, &c.reason, "reason", "why, as `text` for colleagues", parseReason)
	shared.addYes(flags)
	return c
}

// of returns the setting of a member of a host.
func (c *change) of(s *session, host, member, value string) setting.Setting {
	operator := s.operations.Operator
	made := setting.Setting{
		Host: host, Member: member, Value: value, Since: time.Now().UTC().Truncate(time.Second), Reason: c.reason,
		By: text.Clip(operator.User+"@"+operator.Machine, setting.MaxText),
	}
	if c.lasts > 0 {
		made.Until = made.Since.Add(c.lasts)
	}
	return made
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

// askUnknown asks before a setting is made for a host to which no call is known: its name is probably misspelt.
func (s *session) askUnknown(ctx context.Context, host string) error {
	isKnown, err := s.operations.Knows(ctx, host)
	switch {
	case isKnown, errors.Is(err, account.ErrNoSettings), ctx.Err() != nil:
		return err
	case err != nil: // the change itself matters more
		s.progress.printf("warning: whether a call to %s is known could not be read: %v", host, err)
		return nil
	}
	s.progress.printf("no call to %s is known: neither targets.json, nor the table, nor a scheduled message names it",
		host)
	return s.ask(ctx, "is the host right? [y/N]", terminal.IsYes)
}

func (s *session) pauseTarget(ctx context.Context, wanted setting.Setting) error {
	if err := s.askUnknown(ctx, wanted.Host); err != nil {
		return err
	}
	made, err := s.operations.Set(ctx, "pause", wanted)
	if err != nil {
		return err
	}
	end, counted := "until it is resumed", "within 24h"
	if !wanted.Until.IsZero() {
		end, counted = "until "+format.Moment(wanted.Until), "before the pause ends"
	}
	s.progress.printf("paused %s in %s %s", wanted.Host, s.account.Name, end)
	s.progress.printf("end: `async-caller targets resume %s`", format.ShellWord(wanted.Host))
	return s.reportChange(ctx, made, func(c operation.ScheduledCalls) string {
		text := fmt.Sprintf("%s of them expire %s", format.Number(*c.Expiring), counted)
		if *c.Expiring > 0 {
			text += ", the first at " + format.Moment(c.FirstExpiry)
		}
		return text
	})
}

// changeResult is what a command prints as JSON that has made or ended settings.
type changeResult struct {
	operation.ScheduledCalls

	Account  string            `json:"account"`
	Settings []account.Setting `json:"settings"`
}

// reportChange says for which calls settings were made or ended, and how many wait. About adds what the change means
// for these.
func (s *session) reportChange(
	ctx context.Context, settings []setting.Setting, about func(operation.ScheduledCalls) string,
) error {
	host := settings[0].Host
	s.out.changed = settingsText
	calls := s.operations.CountScheduled(ctx, host, settings[0].Until)
	s.progress.printf("an app that runs notices it within %s; calls in flight end as usual",
		format.Duration(setting.Notice))
	s.printPorts(host, calls.Hosts)
	if calls.CountProblem == "" {
		s.progress.printf("scheduled messages for it: %s; %s", format.Number(*calls.Scheduled), about(calls))
	}
	if s.json {
		result := changeResult{ScheduledCalls: calls, Account: s.account.Name}
		for _, changed := range settings {
			result.Settings = append(result.Settings, s.account.WithFile(changed))
		}
		_ = printJSON(s.out, result) // output keeps the error
	}
	if calls.CountProblem != "" {
		err := fmt.Errorf("how many scheduled messages it is about is unknown: %s", calls.CountProblem)
		return &codeError{exitPartly, err}
	}
	return nil
}

// printPorts says that a host without a port means all ports, and which are known from calls and targets.json.
func (s *session) printPorts(host string, known []string) {
	if targets.WithoutPort(host) != host {
		return
	}
	for _, pattern := range s.account.Rules.Decision.Profiles.Patterns() {
		if targets.WithoutPort(pattern) == host && !slices.Contains(known, pattern) {
			known = append(known, pattern)
		}
	}
	ports := "it is for all ports of the host"
	if len(known) > 0 {
		ports += "; known are " + strings.Join(known, ", ")
	}
	s.progress.printf("%s", ports)
}

// settingsText says where the settings of an account are seen.
const settingsText = "the settings that are in force: `async-caller targets list`"

func newTargetsSet(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "set HOST",
		Short: "Set the rate or the concurrency of a target",
		Long: `Set the rate of a target, or its concurrency, or both, within 20 s and for all apps of the account.
The other members of its profile in targets.json apply as before. A rate has the burst of its calls
of a second, also if the file states another.

A limit goes on in its line: the messages that wait keep their places and their next attempts. The
command says how many wait and, if the target may get more calls than before, how to make them due.
If no call to the host is known, it asks before it sets anything.`,
		Example: `  async-caller targets set crm.example.com --rate 5/s --for 2h --reason INC-4711
  async-caller targets set crm.example.com:8443 --rate 100/m --concurrency 2`,
		Args: cobra.ExactArgs(1),
	}
	values, flags := map[string]string{}, flagsOf(command)
	addLimit := func(member, usage string) {
		parsed(flags, new(string), member, usage, func(value string) (string, error) {
			values[member] = value
			return value, setting.CheckValue(member, value)
		})
	}
	addLimit(setting.Rate, "calls per second, minute or hour, as in targets.json: `5/s`, 30/m or 100/h")
	addLimit(setting.Concurrency, "largest `number` of calls at a time")
	change := addChange(shared, flags, "setting", "until it is cleared")
	command.RunE = withHost(flags, func(host string) runFunc {
		return shared.withSession(func(ctx context.Context, s *session, _ []string) error {
			var limits []setting.Setting
			for _, member := range []string{setting.Rate, setting.Concurrency} {
				if value, isSet := values[member]; isSet {
					limits = append(limits, change.of(s, host, member, value))
				}
			}
			return s.setLimits(ctx, limits)
		})
	}, func() { flags.refuse(len(values) == 0, "give --rate or --concurrency") })
	return command
}

func (s *session) setLimits(ctx context.Context, limits []setting.Setting) error {
	host := limits[0].Host
	if err := s.askUnknown(ctx, host); err != nil {
		return err
	}
	before := s.operations.ProfileInForce(ctx, host)
	made, err := s.operations.Set(ctx, "set", limits...)
	for _, limit := range made {
		end := "until it is cleared"
		if !limit.Until.IsZero() {
			end = "until " + format.Moment(limit.Until)
		}
		s.progress.printf("set %s of %s in %s %s; %s",
			limit, host, s.account.Name, end, s.fileText(s.account.WithFile(limit)))
		s.out.changed = settingsText
	}
	if err != nil {
		return err
	}
	s.progress.printf("end: `async-caller targets clear %s`", format.ShellWord(host))
	return s.reportChange(ctx, made, s.whatWaits(ctx, host, before))
}

// whatWaits says how many messages wait for a target because it was busy and, if it may get more calls than before, how
// to make them due.
func (s *session) whatWaits(
	ctx context.Context, host string, before targets.Profile,
) func(operation.ScheduledCalls) string {
	after := s.operations.ProfileInForce(ctx, host)
	isMore := func(before, after float64) bool { return before > 0 && (after == 0 || after > before) }
	getsMore := !s.hasApp || isMore(float64(before.Rate), float64(after.Rate)) ||
		isMore(float64(before.Concurrency), float64(after.Concurrency))
	return func(c operation.ScheduledCalls) string {
		text := format.Number(*c.Busy) + " of them wait because it was busy"
		if *c.Busy > 0 && getsMore {
			text += fmt.Sprintf("; they keep their next attempts, and in %s this makes them due: "+
				"`async-caller scheduled expedite %s`",
				format.Duration(setting.Notice), waitingFilter(host, decision.Busy))
		}
		return text
	}
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

func newTargetsClear(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "clear HOST",
		Short: "End the rate and the concurrency that were set for a target",
		Long: `End what "targets set" has set for this host or host:port, within 20 s. What targets.json says about
it is in force again. A pause stays until "targets resume". Without such a setting the exit code
is 3.`,
		Example: "  async-caller targets clear crm.example.com",
		Args:    cobra.ExactArgs(1),
	}
	command.RunE = withHost(flagsOf(command), func(host string) runFunc {
		return shared.withSession(func(ctx context.Context, s *session, _ []string) error {
			return s.clearLimits(ctx, host)
		})
	}, func() {})
	return command
}

func (s *session) clearLimits(ctx context.Context, host string) error {
	before := s.operations.ProfileInForce(ctx, host)
	ended, err := s.operations.Unset(ctx, "clear", host, setting.Rate, setting.Concurrency)
	for _, limit := range ended {
		s.progress.printf("cleared %s of %s in %s, which was set %s; %s",
			limit, host, s.account.Name, limit.Text(), s.fileText(s.account.WithFile(limit)))
		s.out.changed = settingsText
	}
	switch {
	case errors.Is(err, operation.ErrNotSet):
		return &codeError{exitNothing, fmt.Errorf("no limit of %s is set in %s", host, s.account.Name)}
	case err != nil:
		return err
	}
	return s.reportChange(ctx, ended, s.whatWaits(ctx, host, before))
}

func newTargetsResume(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "resume HOST",
		Short: "Allow the calls to a target again, and make its scheduled messages due",
		Long: `End the pause of a target, wait 20 s until the app has noticed it, and expedite the scheduled
messages that have the reason "paused", except those that another pause still stops: of the host on
all ports, or of one of its ports. The other messages come back at their next attempt. --rate,
--canary and --stop-at-failure-ratio limit the load on the target, as in "scheduled expedite". The
run is one of "runs list", and "runs resume" continues it.`,
		Example: `  async-caller targets resume crm.example.com
  async-caller targets resume crm.example.com --canary 3 --rate 50/s`,
		Args: cobra.ExactArgs(1),
	}
	var pace journal.Pace
	flags := flagsOf(command)
	addPace(flags, &pace)
	command.RunE = withHost(flags, func(host string) runFunc {
		return shared.withSession(func(ctx context.Context, s *session, _ []string) error {
			s.operations.Operator.Filter = waitingFilter(host, decision.Paused)
			return s.resumeTarget(ctx, host, pace)
		})
	}, func() { checkPace(flags, pace) })
	return command
}

func (s *session) resumeTarget(ctx context.Context, host string, pace journal.Pace) error {
	ended, err := s.operations.Unset(ctx, "resume", host, setting.Pause)
	later := fmt.Sprintf("`async-caller scheduled expedite %s`", waitingFilter(host, decision.Paused))
	switch {
	case errors.Is(err, operation.ErrNotSet):
		return &codeError{exitNothing, fmt.Errorf("%s is not paused in %s; messages that still wait: %s",
			host, s.account.Name, later)}
	case err != nil:
		return err
	}
	s.progress.printf("resumed %s in %s, which was paused %s", host, s.account.Name, ended[0].Text())
	s.out.changed = settingsText
	if s.json {
		_ = printJSON(s.out, ended[0]) // output keeps the error
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
		const text = "the target is resumed, but its scheduled messages wait for their next attempt: %w\n" +
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
		Short: "List the targets that are paused, and the limits that are set",
		Long: `List the targets that are paused, and the limits that are set, with what targets.json of the app
folder says (FILE), since when, until when, by whom and why. The list is what an instance of an app
reads from the table: what it shows is in force within 20 s. If the table cannot be read, or no app
of the account has recorded that it runs, that is not known, and the exit code is 4.

A host without a port means all ports. Rows of the table that are not valid have no effect and are
shown with their problem. Then the list has the patterns of targets.json with a credential, and when
the token ends that an instance of the app has fetched last.`,
		Example: "  async-caller targets list --json",
		Args:    cobra.NoArgs,
	}
	command.RunE = shared.withSession(func(ctx context.Context, s *session, _ []string) error {
		return s.listSettings(ctx)
	})
	return command
}

func (s *session) listSettings(ctx context.Context) error {
	settings, err := s.account.Settings(ctx)
	if err != nil && !errors.Is(err, account.ErrNoSettings) {
		err = &codeError{exitPartly, fmt.Errorf("what is in force is unknown: %w", err)}
	}
	if err != nil {
		return err
	}
	now := time.Now()
	var listed []account.Setting
	for _, row := range settings {
		if row.Problem != "" || row.IsInForce(now) {
			listed = append(listed, s.account.WithFile(row))
		}
	}
	printAll(s, listed, func(out io.Writer, settings []account.Setting) { printSettings(out, settings, now) })
	printAll(s, s.account.Credentials(), printCredentials)
	if len(listed) == 0 {
		s.progress.printf("no target is paused, and no limit is set, in %s", s.account.Name)
		return nil
	}
	if err := s.account.CheckApps(ctx, now); err != nil {
		return &codeError{exitPartly, fmt.Errorf("whether an app reads the settings is unknown: %w", err)}
	}
	return nil
}

func printSettings(out io.Writer, settings []account.Setting, now time.Time) {
	var rows [][]string
	for _, s := range settings {
		if s.Problem != "" {
			rows = append(rows, []string{s.Host, s.String(), "-", "-", "-", s.Problem})
			continue
		}
		ends := "never"
		if !s.Until.IsZero() {
			ends = format.Age(s.Until.Sub(now))
		}
		why := strings.TrimSuffix(s.By+": "+s.Reason, ": ")
		rows = append(rows, []string{s.Host, s.String(), cmp.Or(s.File, "-"), format.Age(now.Sub(s.Since)), ends, why})
	}
	terminal.PrintTable(out, rows, terminal.Name("TARGET"), terminal.Left("SET", 0), terminal.Left("FILE", 0),
		terminal.Right("SINCE", 0), terminal.Right("ENDS", 0), terminal.Flex("BY, REASON", 0))
}
