package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/pause"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/targets"
	"asynccaller/handler/internal/terminal"
	"asynccaller/handler/internal/text"
)

func newTargets(env Env) *cobra.Command {
	shared := &sharedFlags{env: env, group: "targets"}
	command := &cobra.Command{
		Use:   shared.group,
		Short: "Pause and resume the calls to a target",
		Long: `Stop the calls to a target for a while, for example during its maintenance. HOST is the host of its
URLs, which means all ports, or host:port. The apps of the storage account read the pauses from a
table every 15 s. Messages for a paused target are rescheduled without a call, attempts unchanged.
Their deadlines do not wait: a message whose deadline comes first expires, without a last attempt.`,
		Example: `  async-caller targets pause crm.example.com --for 2h --reason 'maintenance, INC-4711'
  async-caller targets list
  async-caller targets resume crm.example.com --rate 50/s`,
	}
	onlyCommands(command)
	shared.declare(command)
	command.AddCommand(newTargetsPause(shared), newTargetsResume(shared), newTargetsList(shared))
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
known, the exit code is 4.`,
		Example: `  async-caller targets pause crm.example.com --for 2h --reason 'maintenance, INC-4711'
  async-caller targets pause '[2001:db8::1]:8443'`,
		Args: cobra.ExactArgs(1),
	}
	var wanted pause.Pause
	var lasts time.Duration
	flags := flagsOf(command)
	parsed(flags, &lasts, "for", "`duration` of the pause, at least 1m (default until it is resumed)",
		durationFrom(time.Minute))
	parsed(flags, &wanted.Reason, "reason", "why, as `text` for colleagues", parsePauseText)
	command.RunE = withHost(flags, func(host string) runFunc {
		return shared.withSession(func(ctx context.Context, s *session, _ []string) error {
			wanted.Host, wanted.Since = host, time.Now().UTC().Truncate(time.Second)
			if lasts > 0 {
				wanted.Until = wanted.Since.Add(lasts)
			}
			operator := s.operations.Operator
			wanted.By = text.Clip(operator.User+"@"+operator.Machine, pause.MaxText)
			return s.pauseTarget(ctx, wanted)
		})
	}, func() {})
	return command
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

func parsePauseText(text string) (string, error) {
	if len(text) > pause.MaxText {
		return "", fmt.Errorf("want at most %d bytes", pause.MaxText)
	}
	return text, nil
}

func (s *session) pauseTarget(ctx context.Context, wanted pause.Pause) error {
	paused, err := s.operations.PauseTarget(ctx, wanted)
	if err != nil {
		return err
	}
	end, counted := "until it is resumed", "within 24h"
	if !paused.Until.IsZero() {
		end, counted = "until "+moment(paused.Until), "before the pause ends"
	}
	s.progress.printf("paused %s in %s %s", paused.Host, paused.Account, end)
	s.progress.printf("an app that runs notices it within %s; calls in flight end as usual",
		exactly(pause.Notice))
	if paused.CountProblem == "" {
		text := fmt.Sprintf("scheduled messages for it: %s; %s of them expire %s",
			thousands(*paused.Scheduled), thousands(*paused.Expiring), counted)
		if *paused.Expiring > 0 {
			text += ", the first at " + moment(paused.FirstExpiry)
		}
		s.progress.printf("%s", text)
	}
	s.progress.printf("end: `async-caller targets resume %s`", shellWord(paused.Host))
	s.out.changed = pausesText
	if s.json {
		_ = printJSON(s.out, paused) // output keeps the error
	}
	if paused.CountProblem != "" {
		err := errors.New("how many scheduled messages expire is unknown: " + paused.CountProblem)
		return &codeError{exitPartly, err}
	}
	return nil
}

// pausesText says where the pauses of an account are seen.
const pausesText = "the pauses that are in force: `async-caller targets list`"

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
			s.operations.Operator.Filter = pausedFilter(host)
			return s.resumeTarget(ctx, host, pace)
		})
	}, func() { checkPace(flags, pace) })
	return command
}

func (s *session) resumeTarget(ctx context.Context, host string, pace journal.Pace) error {
	ended, err := s.operations.ResumeTarget(ctx, host)
	later := fmt.Sprintf("`async-caller scheduled expedite %s`", pausedFilter(host))
	switch {
	case errors.Is(err, operation.ErrNotPaused):
		return &codeError{exitNothing, fmt.Errorf("%w in %s; messages that still wait: %s", err, s.account.Name, later)}
	case err != nil:
		return err
	}
	s.progress.printf("resumed %s in %s, which was paused %s", host, s.account.Name, ended.Text())
	s.out.changed = pausesText
	if s.json {
		_ = printJSON(s.out, ended) // output keeps the error
	}
	s.progress.printf("waiting %s until the app has noticed it", exactly(pause.Notice))
	if !storage.Sleep(ctx, pause.Notice) {
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

// pausedFilter is the selection of the messages for a target that were paused, as a person would write it.
func pausedFilter(host string) string {
	return fmt.Sprintf("--host %s --reason %s", shellWord(host), decision.Paused)
}

func newTargetsList(shared *sharedFlags) *cobra.Command {
	command := &cobra.Command{
		Use:   "list",
		Short: "List the targets that are paused",
		Long: `List the targets that are paused, since when, until when, by whom and why. A host without a port is
paused on all ports. Rows of the table that are no valid pauses have no effect and are named. Then
list the patterns of targets.json with a credential, and when the token ends that an instance of
the app has fetched last.`,
		Example: "  async-caller targets list --json",
		Args:    cobra.NoArgs,
	}
	command.RunE = shared.withSession(func(ctx context.Context, s *session, _ []string) error {
		return s.listPauses(ctx)
	})
	return command
}

func (s *session) listPauses(ctx context.Context) error {
	pauses, err := s.account.Pauses(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	listed := slices.DeleteFunc(pauses, func(p pause.Pause) bool { return p.Problem == "" && !p.IsInForce(now) })
	credentials := s.account.Credentials(ctx)
	if len(listed) == 0 {
		s.progress.printf("no target is paused in %s", s.account.Name)
	}
	printAll(s, listed, func(out io.Writer, pauses []pause.Pause) { printPauses(out, pauses, now) })
	printAll(s, credentials, printCredentials)
	return nil
}

func printPauses(out io.Writer, pauses []pause.Pause, now time.Time) {
	var rows [][]string
	for _, p := range pauses {
		if p.Problem != "" {
			rows = append(rows, []string{p.Host, "-", "-", "-", p.Problem})
			continue
		}
		ends := "never"
		if !p.Until.IsZero() {
			ends = age(p.Until.Sub(now))
		}
		rows = append(rows, []string{p.Host, age(now.Sub(p.Since)), ends, p.By, p.Reason})
	}
	terminal.PrintTable(out, rows, terminal.Name("TARGET"), terminal.Right("SINCE", 0), terminal.Right("ENDS", 0),
		terminal.Flex("BY", 20), terminal.Flex("REASON", 0))
}
