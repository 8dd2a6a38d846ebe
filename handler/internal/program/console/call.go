package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/call"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/mask"
	"asynccaller/handler/internal/storage"
)

// callData is what the page of a call shows.
type callData struct {
	Page call.Page
	// Summary is the first section, and Details are those below the timeline.
	Summary  call.Section
	Details  []call.Section
	Timeline []call.Event
	// Earlier is the number of earlier events.
	Earlier  int
	Notes    []string
	Commands []string
}

// callsData is what the page of an ID shows that names several calls.
type callsData struct {
	Why   string
	Calls []call.Page
	// Others is the number of further calls, and Notes say what was not looked at.
	Others  int
	Notes   []string
	Command string
}

func (c *Console) call(ctx context.Context, q query) (page, error) {
	id := q.get("id")
	if id == "" {
		err := errors.New("enter a request id, a message id, or the first 8 or more characters of a message id")
		return page{}, &problemError{"Which call?", http.StatusNotFound, "show ID", err}
	}
	options := call.Options{
		Tenant:   envelope.Tenant{Organization: q.get("organization"), Environment: q.get("environment")},
		Message:  q.get("message"),
		PeekOnly: true,
	}
	if queue := q.get("queue"); queue != "" {
		options.Queues = []string{queue}
	}
	command := showCommand(q)
	found, err := call.Find(ctx, c.operations, id, options)
	if errors.Is(err, storage.ErrNoQueue) {
		return page{}, &problemError{"No such queue", http.StatusNotFound, command, err}
	}
	if err != nil {
		return page{}, err
	}
	one, err := found.One()
	switch {
	case errors.Is(err, call.ErrSeveral):
		data := callsData{err.Error(), found.Summaries(), found.Others, notLookedAt(found, id), command}
		return page{Template: "calls", Title: "Several calls", Data: data}, nil
	case err != nil:
		return page{}, &problemError{"Not found", http.StatusNotFound, command, err}
	}
	p, notes := call.Describe(ctx, c.operations, one, found.Unread, mask.Hidden, time.Now())
	d := newCallData(p, append(notes, notLookedAt(found, id)...))
	if command != "" {
		d.Commands = append([]string{command}, d.Commands...)
	}
	return page{Template: "call", Title: "Call " + cmp.Or(p.RequestID, p.ID), Data: d}, nil
}

// showCommand returns the command that shows the same, and reads whole queues. An id that looks like a flag has none,
// and neither has a text that a shell could read otherwise: the commands of a message name it by the id that storage
// gives.
func showCommand(q query) string {
	id := q.get("id")
	isSafe := !strings.HasPrefix(id, "-") && format.IsShellSafe(id)
	words := []string{"show", format.ShellWord(id)}
	for _, flag := range []string{"queue", "message", "organization", "environment"} {
		if value := q.get(flag); value != "" {
			isSafe = isSafe && format.IsShellSafe(value)
			words = append(words, "--"+flag+"="+format.ShellWord(value))
		}
	}
	if !isSafe {
		return ""
	}
	return strings.Join(words, " ")
}

// badge says in a word where a call is or how it ended, with the class of its colour.
type badge struct{ Text, Class string }

func newBadge(s call.Summary) badge {
	hasEnded := s.State == call.StateEnded
	switch {
	case hasEnded && slices.Contains([]string{string(decision.Delivered), string(decision.Duplicate)}, s.Reason):
		return badge{s.Reason, "good"}
	case hasEnded && s.Reason == string(decision.Cancelled):
		return badge{s.Reason, ""}
	case hasEnded:
		return badge{s.Reason, "bad"}
	case s.State == call.StatePoison:
		return badge{"dead letter", "bad"}
	case s.State == call.StateStale:
		return badge{s.State, ""}
	}
	return badge{s.State, "waiting"}
}

// notLookedAt says what was not looked at, or not as a whole. A message that was found by its whole id is no other one.
func notLookedAt(found call.Found, id string) (notes []string) {
	isWhole := len(found.Calls) == 1 && found.Calls[0].ID == id && storage.ValidID(id)
	for _, u := range found.Unread {
		if !isWhole || u.Part == "history" {
			notes = append(notes, "Incomplete: "+u.Error())
		}
	}
	if note := found.Note(); note != "" {
		notes = append(notes, note)
	}
	return notes
}

func newCallData(p call.Page, notes []string) callData {
	sections := p.Sections(time.Now())
	d := callData{Page: p, Summary: sections[0], Details: sections[2:], Notes: notes}
	d.Timeline, d.Earlier = p.Latest()
	commands, warning := p.Commands()
	d.Commands = commands
	if warning != "" {
		d.Notes = append(d.Notes, warning)
	}
	return d
}

// mostRuns is how many runs a page shows.
const mostRuns = 200

// runsData is what the page of runs shows.
type runsData struct {
	Runs []runRow
	// Others is the number of older runs.
	Others  int
	Missing string
}

// runRow is a run with its commands.
type runRow struct {
	operation.RunSummary

	StateNow string
	Commands []string
}

func (c *Console) runs(ctx context.Context, _ query) (page, error) {
	runs, err := c.operations.Runs(ctx)
	if err != nil {
		return page{}, err
	}
	now := time.Now()
	d := runsData{Others: max(len(runs.All)-mostRuns, 0)}
	for _, r := range runs.All[:len(runs.All)-d.Others] {
		d.Runs = append(d.Runs, runRow{r, r.StateText(now), runCommands(r)})
	}
	switch {
	case runs.Missing != nil:
		d.Missing = runs.Missing.Error()
	case c.operations.Outcomes == nil:
		d.Missing = account.ErrNoTable.Error()
	}
	return page{Template: "runs", Title: "Runs", Data: d}, nil
}

// runCommands returns the commands for a run. Only the machine with its journal can resume or undo it.
func runCommands(r operation.RunSummary) []string {
	name := format.ShellWord(r.Run)
	commands := []string{"runs list " + name}
	switch {
	case !r.Here || r.Setting:
	case r.State == run.Interrupted:
		commands = append(commands, "runs resume "+name)
	case r.State == run.Finished && r.Of == "" && r.Done > 0:
		commands = append(commands, "runs undo "+name+" --dry-run")
	}
	return commands
}
