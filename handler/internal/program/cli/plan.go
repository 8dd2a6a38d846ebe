package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
		err = fmt.Errorf("nothing to %s in %s: all matching messages were refused", verb(plan.Command), plan.Account)
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

// mostNames is the largest number of messages that a warning or a refusal names.
const mostNames = 3

// warn prints a warning with the first of its messages.
func (s *session) warn(w operation.Warning) {
	var names []string
	for _, m := range w.Messages[:min(len(w.Messages), mostNames)] {
		name := shortID(m.ID) + " on " + m.Queue
		if m.RequestID != "" {
			name = m.RequestID + " (" + shortID(m.ID) + ") on " + m.Queue
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
	in := " in " + plan.Account + tenantsText(plan.Tenants)
	if !isOfScheduled(plan.Command) {
		return changeText(plan) + queuesText(" from ", plan.From) + queuesText(" to ", plan.To) + in
	}
	text := verb(plan.Command) + " " + format.Plural(plan.Total, "scheduled call") + queuesText(" on ", plan.From) + in
	if len(plan.To) > 0 && plan.Command == "cancel" {
		callbacks := 0
		for _, n := range plan.To {
			callbacks += n
		}
		text += ", and send " + format.Plural(callbacks, "callback") + queuesText(" to ", plan.To)
	}
	return text
}

// isOfScheduled reports whether the runs of a command change scheduled calls, which are invisible until they are due.
func isOfScheduled(command string) bool {
	return slices.Contains([]string{"expedite", "edit", "cancel"}, command)
}

// verb returns what the command of a journal is called today.
func verb(command string) string {
	return cmp.Or(map[string]string{"requeue": "retry", "expedite": "retry", "cancel": "delete"}[command], command)
}

// mostTenants is the largest number of tenants that a plan names.
const mostTenants = 5

// tenantsText names the tenants of a plan, if there are two or more.
func tenantsText(counts map[string]int) string {
	if len(counts) < 2 {
		return ""
	}
	tenants := largestFirst(counts)
	var names []string
	for _, tenant := range tenants[:min(len(tenants), mostTenants)] {
		names = append(names, fmt.Sprintf("%s (%s)", tenant, format.Number(counts[tenant])))
	}
	if more := len(tenants) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf(", of %d tenants: %s", len(tenants), strings.Join(names, ", "))
}

// largestFirst returns the keys of some numbers, that of the largest one first.
func largestFirst(counts map[string]int) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
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
	return verb(plan.Command) + " " + format.Messages(plan.Total)
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
	if isLeft && !isOfScheduled(r.Command) {
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

// pastTense returns the past participle of what a command is called today.
func pastTense(command string) string {
	irregular := map[string]string{"undo": "undone", "retry": "retried"}
	return cmp.Or(irregular[verb(command)], strings.TrimSuffix(verb(command), "e")+"ed")
}

// executeOrPreview executes a plan or, in a dry run, only shows it. The arguments are the results of the function that
// made the plan.
func (s *session) executeOrPreview(ctx context.Context, plan *operation.Plan, err error, dryRun bool) error {
	if err == nil && dryRun {
		return s.preview(ctx, plan)
	}
	return s.execute(ctx, plan, err)
}

// preview shows a plan and discards it.
func (s *session) preview(ctx context.Context, plan *operation.Plan) error {
	defer plan.Discard(ctx)
	return s.showPreview(plan)
}

// showPreview shows a plan that nobody executes.
func (s *session) showPreview(plan *operation.Plan) error {
	if plan.Total+plan.Refused == 0 {
		return s.nothingMatched(plan.Hidden)
	}
	s.announce(plan)
	if plan.Total > 0 && !s.json {
		printCounts(s.out, "reason", plan.Reasons)
		printCounts(s.out, "host", plan.Hosts)
	}
	s.progress.printf("dry run: nothing was changed")
	if s.json {
		_ = printJSON(s.out, previewResult{planResult(plan), plan.Counts, plan.Untold}) // output keeps the error
	}
	return notFound(plan.UnmatchedIDs)
}

// previewResult is the result of a dry run, with the numbers of messages by reason and by host.
type previewResult struct {
	operation.Result
	operation.Counts

	Untold int `json:"untold,omitempty"`
}

// mostCounts is the largest number of reasons or hosts that a dry run prints.
const mostCounts = 10

// printCounts prints the numbers of messages by a property, the largest first.
func printCounts(out io.Writer, property string, counts map[string]int) {
	keys := largestFirst(counts)
	shown := keys[:min(len(keys), mostCounts)]
	for _, key := range shown {
		fmt.Fprintf(out, "%s %s: %s\n", property, key, format.Number(counts[key]))
	}
	if more := len(keys) - len(shown); more > 0 {
		fmt.Fprintf(out, "%s: %s more, see --json\n", property, format.Number(more))
	}
}
