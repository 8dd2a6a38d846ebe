package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/poison"
)

// mostWhys is how many refusals, or reasons for skipping, are told.
const mostWhys = 5

// consent is how a person agrees to what a command will change.
type consent struct {
	yes bool
	// typed wants the number of messages typed instead of a yes, for what cannot be taken back.
	typed bool
}

func (c *consent) addTo(command *cobra.Command) {
	flagsOf(command).BoolVar(&c.yes, "yes", false, "do it without asking; needed where nobody can be asked")
}

// everything is the flag without which a command wants to know which messages are meant.
type everything struct{ all bool }

func (e *everything) addTo(command *cobra.Command) {
	flagsOf(command).BoolVar(&e.all, "all", false, "all messages on all poison queues, or those that the filters leave")
}

// check refuses to take all messages unless that was said.
func (e *everything) check(which *selection, ids []string) error {
	switch {
	case e.all && len(ids) > 0:
		return wrongUsage(errors.New("--all and ids exclude one another"))
	case !e.all && !which.selects(ids):
		return wrongUsage(errors.New("say which messages: ids, filters or --all"))
	}
	return nil
}

// outcome is what a changing command prints as JSON.
type outcome struct {
	poison.Result
	Refused  int              `json:"refused"`
	Refusals []poison.Refusal `json:"refusals,omitempty"`
	// Unmatched is how many ids name no message that was found.
	Unmatched int `json:"unmatched,omitempty"`
}

// carryOut says what a plan will do, asks, does it, and says how it went.
func (d *desk) carryOut(ctx context.Context, plan *poison.Plan, agreement consent) error {
	d.tell.quiet()
	d.announce(plan)
	if plan.Total == 0 {
		plan.Discard(ctx)
		return d.nothingToDo(plan)
	}
	if err := d.agree(ctx, plan, agreement); err != nil {
		plan.Discard(ctx)
		return err
	}
	result, err := plan.Execute(ctx)
	o := outcome{Result: result, Refused: plan.Refused, Refusals: plan.Refusals, Unmatched: len(plan.Unmatched)}
	return d.report(ctx, o, undoable(plan.Command) && !agreement.typed, err)
}

func (d *desk) announce(plan *poison.Plan) {
	if plan.Total > 0 {
		for i, line := range wrap(planText(plan), textColumns-2) {
			d.tell.say("%s%s", strings.Repeat(" ", 2*min(i, 1)), line)
		}
	}
	if plan.Backup != "" && plan.Total > 0 {
		d.tell.say("they are kept in %s", plan.Backup)
	}
	if plan.Refused > 0 {
		more := thousands(plan.Refused) + " more"
		if plan.Total == 0 {
			more = messages(plan.Refused)
		}
		d.tell.say("%s cannot be %s:", more, pastOf(plan.Command))
		d.refusals(plan)
	}
	if plan.Hidden > 0 && plan.Total+plan.Refused > 0 {
		d.tell.say("%s", hiddenText(plan.Hidden))
	}
}

// refusals tells the first reasons, each with some of the messages that it is about.
func (d *desk) refusals(plan *poison.Plan) {
	ids := map[string][]string{}
	var whys []string
	for _, r := range plan.Refusals {
		if ids[r.Why] == nil {
			whys = append(whys, r.Why)
		}
		ids[r.Why] = append(ids[r.Why], beginning(r.Message.ID))
	}
	told := 0
	for _, why := range whys[:min(len(whys), mostWhys)] {
		const most = 3
		names := strings.Join(ids[why][:min(len(ids[why]), most)], ", ")
		if len(ids[why]) > most {
			names += ", …"
		}
		told += len(ids[why])
		for i, line := range wrap(names+": "+why, textColumns-4) {
			d.tell.say("%s%s", strings.Repeat(" ", 2+2*min(i, 1)), line)
		}
	}
	if n := plan.Refused - told; n > 0 {
		d.tell.say("  and %s more", thousands(n))
	}
}

// planText says what will be done, in one sentence.
func planText(plan *poison.Plan) string {
	text := plan.Command + " " + messages(plan.Total)
	switch plan.Command {
	case "keep":
		return text + " on " + queuesText(plan.From) + ", so that storage does not delete them"
	case "undo":
		text = "undo: reschedule " + messages(plan.Total)
	}
	if len(plan.From) > 0 {
		text += " from " + queuesText(plan.From)
	}
	if len(plan.To) > 0 {
		text += " to " + queuesText(plan.To)
	}
	return text
}

// queuesText lists queues, with how many messages each has where there are several.
func queuesText(counts map[string]int) string {
	names := slices.Sorted(maps.Keys(counts))
	if len(names) == 1 {
		return names[0]
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%s (%s)", name, thousands(counts[name]))
	}
	return strings.Join(names, ", ")
}

// nothingToDo is how a plan without messages ends.
func (d *desk) nothingToDo(plan *poison.Plan) error {
	if plan.Refused == 0 {
		return nothingMatched(plan.Hidden)
	}
	if d.options.json {
		nothing := outcome{Result: poison.Result{Command: plan.Command}, Refused: plan.Refused, Refusals: plan.Refusals}
		if err := encode(d.s.Stdout, nothing); err != nil {
			return err
		}
	}
	return fmt.Errorf("nothing to %s: all that matched were refused", plan.Command)
}

// agree makes sure that a person wants what was announced. Meanwhile the messages stay taken.
func (d *desk) agree(ctx context.Context, plan *poison.Plan, agreement consent) error {
	if agreement.yes {
		return nil
	}
	if !d.s.canAsk() {
		return wrongUsage(errors.New("nobody can be asked here: give --yes to do it; nothing was changed"))
	}
	plan.RenewLeases(ctx)
	question := fmt.Sprintf("%s %s? [y/N]", plan.Command, messages(plan.Total))
	isYes := agreed
	if agreement.typed {
		count := strconv.Itoa(plan.Total)
		question = fmt.Sprintf("%s %s, which cannot be taken back? type %s to go on:", plan.Command, messages(plan.Total), count)
		isYes = func(answer string) bool { return answer == count }
	}
	answer, err := ask(ctx, d.s.Stdin, d.s.Stderr, question)
	switch {
	case err != nil:
		return errors.New("interrupted: nothing was changed")
	case !isYes(answer):
		return errors.New("not agreed to: nothing was changed")
	}
	return nil
}

// report says how a run went, and what can be done about it.
func (d *desk) report(ctx context.Context, o outcome, undoable bool, err error) error {
	d.tell.quiet()
	if o.Run == "" { // not even begun
		return err
	}
	d.tell.say("%s %s of %s", pastOf(o.Command), thousands(o.Done), thousands(o.Total))
	for _, why := range o.Why[:min(len(o.Why), mostWhys)] {
		d.tell.say("  left alone: %s", why)
	}
	if n := o.Skipped - min(len(o.Why), mostWhys); n > 0 {
		d.tell.say("  and %s more", thousands(n))
	}
	if o.Both > 0 {
		d.tell.say("%s where they should be, and still where they were too", areMessages(o.Both))
	}
	if o.Twice > 0 {
		d.tell.say("%s may have been written twice: a kill or a lost answer left that open", messages(o.Twice))
	}
	if o.Done+o.Both > 0 && undoable {
		d.tell.say("`async-caller poison undo %s` takes it back", o.Run)
	}
	if d.options.json {
		if failed := encode(d.s.Stdout, o); err == nil {
			err = failed
		}
	}
	return d.verdict(ctx, o, err)
}

// undoable reports whether a run of the command can be undone; an undo is taken back by doing it again.
func undoable(command string) bool { return command != "undo" }

// verdict makes the error of a run that did not do all that was meant.
func (d *desk) verdict(ctx context.Context, o outcome, err error) error {
	code := exitFailed
	if o.Done+o.Both > 0 {
		code = exitPartly
	}
	goesOn := fmt.Sprintf("`async-caller poison resume %s` goes on", o.Run)
	switch {
	case err != nil && o.Finished():
		return &codeError{code, err}
	case err != nil:
		return &codeError{code, fmt.Errorf("%w\n%s", err, goesOn)}
	case o.Stopped != "":
		return &codeError{code, fmt.Errorf("stopped: %s\n%s with the other %s", o.Stopped, goesOn, thousands(o.Left+o.Both))}
	case !o.Finished() && ctx.Err() != nil:
		return &codeError{code, fmt.Errorf("interrupted\n%s", goesOn)}
	case !o.Finished():
		return &codeError{code, fmt.Errorf("not all could be done\n%s", goesOn)}
	case o.Unmatched > 0:
		return &codeError{code, fmt.Errorf("of the ids %s or more match no message", thousands(o.Unmatched))}
	case o.Skipped+o.Refused > 0:
		return &codeError{code, fmt.Errorf("%s left alone", wereMessages(o.Skipped+o.Refused))}
	}
	return nil
}

func areMessages(n int) string {
	if n == 1 {
		return "1 message is"
	}
	return thousands(n) + " messages are"
}

func wereMessages(n int) string {
	if n == 1 {
		return "1 message was"
	}
	return thousands(n) + " messages were"
}

// pastOf says what a command has done.
func pastOf(command string) string {
	switch command {
	case "keep":
		return "kept"
	case "undo":
		return "reschedule"
	case "requeue", "move", "delete":
		return command + "d"
	}
	return command + "ed"
}
