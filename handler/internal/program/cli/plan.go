package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/program/terminal"
)

// mostReports is the largest number of refusals, or of reasons for skipping a message, that are printed.
const mostReports = 5

// planResult returns the result of a plan that was not executed.
func planResult(plan *operation.Plan) operation.Result {
	r := plan.Result
	r.Run = "" // its journal is discarded
	return r
}

// execute shows a plan, asks for confirmation, executes the plan and reports the result. The arguments are the
// results of the function that made the plan.
func (s *session) execute(ctx context.Context, plan *operation.Plan, err error) error {
	if err != nil {
		return err
	}
	s.announce(plan)
	err = s.confirm(ctx, plan)
	switch {
	case plan.Total == 0 && plan.Refused == 0:
		err = s.nothingMatched(plan.Hidden)
	case plan.Total == 0:
		err = fmt.Errorf("nothing to %s in %s: all matching messages were refused", plan.Command, plan.Account)
		if s.json {
			_ = printJSON(s.out, planResult(plan))
		}
	}
	if err != nil {
		plan.Discard(ctx)
		return err
	}
	result, err := plan.Execute(ctx)
	return s.report(ctx, result, plan.Final, err)
}

func (s *session) announce(plan *operation.Plan) {
	if plan.Total > 0 {
		s.progress.printf("%s", planText(plan))
		s.printEncodings(plan.Result)
	}
	if plan.Refused > 0 {
		s.progress.printf("%s cannot be %s:", format.Messages(plan.Refused), pastTense(plan.Command))
		s.printRefusals(plan)
	}
	if plan.Untold > 0 {
		s.progress.printf("no sender is told of %s with a callback: --callback tells them",
			format.Messages(plan.Untold))
	}
	if plan.Hidden > 0 && plan.Total+plan.Refused > 0 {
		s.progress.printf("%s", hiddenText(plan.Hidden))
	}
	if plan.Unsearched > 0 {
		s.progress.printf("%s", unsearchedText(plan.Unsearched))
	}
	for _, w := range plan.Warnings {
		s.warn(w)
	}
}

// mostNames is the largest number of messages that a warning or a refusal names, requestColumns the width of their
// request ids.
const (
	mostNames      = 3
	requestColumns = 40
)

// warn prints a warning with the first of its messages.
func (s *session) warn(w operation.Warning) {
	var names []string
	for _, m := range w.Messages[:min(len(w.Messages), mostNames)] {
		name := shortID(m.ID) + " on " + m.Queue
		if m.RequestID != "" {
			name = terminal.CutMiddle(m.RequestID, requestColumns) + " (" + shortID(m.ID) + ") on " + m.Queue
		}
		names = append(names, name)
	}
	if w.Count > len(names) {
		names = append(names, "…")
	}
	s.progress.printf("warning: %s: %s: %s", format.Messages(w.Count), w.Why, strings.Join(names, ", "))
}

// printRefusals writes the first reasons for a refusal, each with some of its messages.
func (s *session) printRefusals(plan *operation.Plan) {
	ids := map[string][]string{}
	var reasons []string
	for _, r := range plan.Refusals {
		if ids[r.Why] == nil {
			reasons = append(reasons, r.Why)
		}
		ids[r.Why] = append(ids[r.Why], shortID(r.Message.ID))
	}
	printed := 0
	for _, reason := range reasons[:min(len(reasons), mostReports)] {
		names := ids[reason]
		printed += len(names)
		if len(names) > mostNames {
			names = append(names[:mostNames], "…")
		}
		s.progress.printf("  %s: %s", strings.Join(names, ", "), reason)
	}
	s.printMore(plan.Refused - printed)
}

// printEncodings writes how the encoding of messages changes.
func (s *session) printEncodings(r operation.Result) {
	for _, change := range slices.Sorted(maps.Keys(r.Encodings)) {
		s.progress.printf("  %s: %s", format.Messages(r.Encodings[change]), change)
	}
}

func (s *session) printMore(n int) {
	if n > 0 {
		s.progress.printf("  and %s more", format.Number(n))
	}
}

// planText describes a plan in one line.
func planText(plan *operation.Plan) string {
	in := " in " + plan.Account
	switch plan.Command {
	case "expedite", "edit", "cancel":
		text := plan.Command + " " + format.Plural(plan.Total, "scheduled message") + queuesText(" on ", plan.From) + in
		if plan.Command == "cancel" && len(plan.To) > 0 {
			text += ", and send callbacks" + queuesText(" to ", plan.To)
		}
		if plan.Command == "edit" && plan.Final {
			text += ", and make them due"
		}
		return text
	case "keep":
		return changeText(plan) + queuesText(" on ", plan.From) + in + ", so that storage does not delete them"
	}
	return changeText(plan) + queuesText(" from ", plan.From) + queuesText(" to ", plan.To) + in
}

// queuesText lists queues, with the number of messages on each if there are several queues.
func queuesText(preposition string, counts map[string]int) string {
	names := slices.Sorted(maps.Keys(counts))
	if len(names) == 0 {
		return ""
	}
	for i, name := range names {
		if len(names) > 1 {
			names[i] = fmt.Sprintf("%s (%s)", name, format.Number(counts[name]))
		}
	}
	return preposition + strings.Join(names, ", ")
}

// confirm asks for confirmation of a plan that changes something. The answer to a plan that cannot be undone is the
// number of messages instead of a yes.
func (s *session) confirm(ctx context.Context, plan *operation.Plan) error {
	if plan.Total == 0 {
		return nil
	}
	confirmed := terminal.IsYes
	if plan.Final {
		confirmed = func(answer string) bool { return answer == strconv.Itoa(plan.Total) }
	}
	return s.ask(ctx, question(plan), confirmed)
}

// ask asks for a confirmation, unless --yes is given.
func (s *session) ask(ctx context.Context, question string, confirmed func(answer string) bool) error {
	if s.yes {
		return nil
	}
	if !s.env.canAsk() {
		return usageError(errors.New("no terminal to ask for confirmation: give --yes; nothing was changed"))
	}
	answer, err := terminal.Ask(ctx, s.env.Stdin, s.env.Stderr, question)
	if err != nil {
		return errors.New("interrupted: nothing was changed")
	}
	if !confirmed(answer) {
		return errors.New("not confirmed: nothing was changed")
	}
	return nil
}

// changeText names a command and the number of its messages. How many messages of an undo are still there, only
// the undo itself shows.
func changeText(plan *operation.Plan) string {
	if plan.Command == "undo" {
		return "undo up to " + format.Messages(plan.Total)
	}
	return plan.Command + " " + format.Messages(plan.Total)
}

func question(plan *operation.Plan) string {
	text := fmt.Sprintf("%s in %s?", changeText(plan), plan.Account)
	if plan.Final {
		return fmt.Sprintf("%s This cannot be undone. Type %d to confirm:", text, plan.Total)
	}
	return text + " [y/N]"
}

// report prints the result of a run and returns its error. Final says that the run cannot be undone.
func (s *session) report(ctx context.Context, r operation.Result, final bool, err error) error {
	isLeft := r.Command == "" || !r.Finished() && r.Stopped == ""
	isWaiting := slices.Contains([]string{"expedite", "edit", "cancel"}, r.Command) // invisible until they are due
	if isLeft && !isWaiting {
		s.progress.printf("%s", operation.Hidden(time.Now()))
	}
	if r.Run == "" { // it did not begin
		return err
	}
	s.progress.printf("%s %s of %s in %s", pastTense(r.Command), format.Number(r.Done), format.Number(r.Total),
		r.Account)
	if r.Done == r.Total {
		s.printEncodings(r)
	}
	reasons := r.Why[:min(len(r.Why), mostReports)]
	for _, reason := range reasons {
		s.progress.printf("  skipped: %s", reason)
	}
	s.printMore(r.Skipped - len(reasons))
	if r.Unknown > 0 {
		s.progress.printf("result not known: %s", format.Messages(r.Unknown))
	}
	if r.NotDeleted > 0 {
		s.progress.printf("written, but not yet deleted at the source: %s", format.Messages(r.NotDeleted))
	}
	if r.PossibleDuplicates > 0 {
		s.warn(operation.Warning{
			Why:      "perhaps there twice, after a kill or a lost answer",
			Count:    r.PossibleDuplicates,
			Messages: r.DuplicateMessages,
		})
	}
	hasUndo := r.Command != "undo" && r.Command != "expedite" && !final
	hasEnded := r.Finished() || r.Stopped != ""
	if r.Done > 0 && hasUndo && hasEnded {
		s.progress.printf("undo: `async-caller runs undo %s`", format.ShellWord(r.Run))
	}
	if r.Done+r.NotDeleted+r.Unknown > 0 {
		s.out.changed = "what was changed: `async-caller runs list`"
	}
	err = s.incomplete(ctx, r, err)
	if s.json {
		_ = printJSON(s.out, r) // output keeps the error
	}
	return err
}

// incomplete returns the error of a run that is not complete.
func (s *session) incomplete(ctx context.Context, r operation.Result, err error) error {
	code := exitFailed
	if r.Done+r.NotDeleted+r.Skipped > 0 {
		code = exitPartly
	}
	resume := fmt.Sprintf("`async-caller runs resume %s`", format.ShellWord(r.Run))
	switch {
	case err != nil && r.Finished():
	case err != nil:
		err = fmt.Errorf("%w\ncontinue: %s", err, resume)
	case r.Stopped != "" && r.Finished(): // all were sent first
		err = fmt.Errorf("stopped: %s", r.Stopped)
	case r.Stopped != "":
		err = fmt.Errorf("stopped: %s\ncontinue: %s (%s left)", r.Stopped, resume, format.Number(r.Left+r.NotDeleted))
	case !r.Finished() && ctx.Err() != nil:
		err = fmt.Errorf("interrupted\ncontinue: %s", resume)
	case !r.Finished():
		err = fmt.Errorf("not all messages are done\ncontinue: %s", resume)
	case r.Unmatched > 0:
		err = notFound(r.UnmatchedIDs)
	case r.Command == "undo" && r.Skipped > 0 && r.Done+r.Unknown == 0:
		code = exitNothing
		err = fmt.Errorf("nothing was undone; delivered, received or moved since: %s", format.Messages(r.Skipped))
	case r.Command == "undo" && r.Skipped > 0 && r.Unknown == 0:
		err = fmt.Errorf("not undone; delivered, received or moved since: %s", format.Messages(r.Skipped))
	case r.Skipped+r.Refused > 0:
		err = fmt.Errorf("not %s: %s", pastTense(r.Command), format.Messages(r.Skipped+r.Refused))
	case r.PossibleDuplicates > 0:
		err = fmt.Errorf("perhaps there twice: %s", format.Messages(r.PossibleDuplicates))
	default:
		return nil
	}
	return &codeError{code, err}
}

// irregular are the past participles of some commands.
var irregular = map[string]string{"keep": "kept", "undo": "undone", "cancel": "cancelled"}

// pastTense returns the past participle of a command.
func pastTense(command string) string {
	return cmp.Or(irregular[command], strings.TrimSuffix(command, "e")+"ed")
}
