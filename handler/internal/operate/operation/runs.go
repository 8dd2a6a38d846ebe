package operation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// RunSummary describes a run of this machine by its journal, or one of another machine by its row.
type RunSummary struct {
	run.Summary
	// End is when the run ended or was interrupted; zero if that is not known.
	End time.Time `json:"end"`
	// Seen is when the row of the run was last written, by storage's clock; zero without one. A running run writes it
	// about once a minute.
	Seen time.Time `json:"seen"`
	// Here says that this machine has the journal, so that the run can be resumed and undone here.
	Here bool `json:"here"`
	// Setting says that it has changed a live setting of a target, and no messages.
	Setting bool `json:"setting,omitempty"`
}

// KeepsJournal reports whether runs like this one have a journal, here or on the machine of the command.
func (r RunSummary) KeepsJournal() bool { return !r.Setting && r.Command != EraseCommand }

// silence is how old the last sign of life of a running run may be before a person should know.
const silence = 3 * time.Minute

// StateText describes the state of the run. Whether one of another machine still runs is not known: only when it was
// last seen.
func (r RunSummary) StateText(now time.Time) string {
	state := r.State
	switch {
	case r.UndoneBy != "":
		state += " by " + r.UndoneBy
	case r.Of != "":
		state += ", undo of " + r.Of
	}
	isSilent := !r.Here && r.State == run.Running && now.Sub(r.Seen) > silence
	if isSilent {
		state += fmt.Sprintf(", last seen %s ago", format.Age(now.Sub(r.Seen)))
	}
	return state
}

// Runs are the runs of an account, the newest first.
type Runs struct {
	All []RunSummary
	// OtherAccounts is the number of journals here that belong to other accounts, which are left out.
	OtherAccounts int
	// Missing is why the runs of other machines could not be read.
	Missing error
}

// RunDetail describes one run whole.
type RunDetail struct {
	RunSummary
	// Result is that of the journal; zero for a run of another machine.
	Result run.Result
	// Undoable is the number of messages that an undo would restore, as far as the journal says.
	Undoable int
}

// runRow is the row of the run with its ID. Content is its [RunSummary] as JSON.
type runRow struct {
	storage.Key

	Content []byte `row:"content"`
}

const (
	// maxFilter limits the text of a selection, and of a command line, in a row.
	maxFilter = 1 << 10
	// runRowTimeout is how long the row of a run may take, which nothing depends on.
	runRowTimeout = 5 * time.Second
	// signOfLife is how often the row of a running run is written again.
	signOfLife = time.Minute
)

// beginning describes a run that begins.
func beginning(about journal.Run, total int) run.Summary {
	return run.Summary{
		Run: about.ID, Command: about.Command, At: about.At, Account: about.Account, Of: about.Of,
		Operator: about.Operator, Total: total,
	}
}

// publish writes the row of a run, so that colleagues see it.
func (op *Operations) publish(ctx context.Context, s RunSummary) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), runRowTimeout)
	defer cancel()
	s.Filter, s.CommandLine = text.Clip(s.Filter, maxFilter), text.Clip(s.CommandLine, maxFilter)
	content, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return storage.Persist(ctx, runRowTimeout/3, func(ctx context.Context) error {
		return rows.Put(ctx, op.Outcomes, runRow{storage.Key{Partition: record.RunsPartition, ID: s.Run}, content})
	}, storage.ErrRefused)
}

// publishRunning publishes a run that begins or goes on, and a sign of life from time to time. The caller calls end
// when the run has ended or was interrupted: it publishes that.
func (op *Operations) publishRunning(ctx context.Context, s run.Summary) (end func()) {
	if op.Outcomes == nil {
		return func() {}
	}
	s.State = run.Running
	if err := op.publish(ctx, RunSummary{Summary: s}); err != nil {
		op.noteUnpublished(err)
		return func() {}
	}
	var living sync.WaitGroup
	ended := make(chan struct{})
	living.Go(func() {
		ticker := time.NewTicker(signOfLife)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				if latest, err := run.Summarize(op.Journals, s.Run); err == nil {
					s.Done, s.Skipped = latest.Done, latest.Skipped
				}
				_ = op.publish(ctx, RunSummary{Summary: s}) // best effort; the end is published, too
			}
		}
	})
	return func() {
		close(ended)
		living.Wait() // an earlier state must not replace the end
		last, err := run.Summarize(op.Journals, s.Run)
		if err == nil {
			err = op.publish(ctx, RunSummary{Summary: last, End: time.Now().UTC().Truncate(time.Second)})
		}
		if err != nil {
			op.noteUnpublished(err)
		}
	}
}

// publishChange adds a change without a journal, which ends now, to the list of runs.
func (op *Operations) publishChange(ctx context.Context, s RunSummary) {
	if op.Outcomes == nil {
		return
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	s.Run, s.At, s.End = journal.NewID(now, s.Command), now, now
	s.Account, s.State = op.Account.Name, run.Finished
	if err := op.publish(ctx, s); err != nil {
		op.observer().Note(fmt.Sprintf("the list of runs does not show this change: %v", err))
	}
}

func (op *Operations) noteUnpublished(err error) {
	op.observer().Note(fmt.Sprintf("the list of runs does not show this one, or its end: %v; "+
		"the messages are not affected", err))
}

// Runs describes the runs on the account: those of this machine and, if there is a table, those of others.
func (op *Operations) Runs(ctx context.Context) (Runs, error) {
	here, err := run.Summaries(op.Journals)
	if err != nil {
		return Runs{}, err
	}
	all := len(here)
	here = slices.DeleteFunc(here, func(s *run.Summary) bool {
		return s.Problem == "" && s.Account != op.Account.Name
	})
	runs := Runs{OtherAccounts: all - len(here)}
	run.MarkUndone(here) // the rows are not used for runs of this machine
	published, missing := op.published(ctx)
	runs.Missing = missing
	for _, s := range here {
		row := published[s.Run]
		runs.All = append(runs.All, RunSummary{Summary: *s, End: row.End, Seen: row.Seen, Here: true})
		delete(published, s.Run)
	}
	for _, s := range published {
		runs.All = append(runs.All, s)
	}
	slices.SortFunc(runs.All, func(x, y RunSummary) int { return strings.Compare(y.Run, x.Run) })
	var elsewhere []*run.Summary
	for i := range runs.All {
		if !runs.All[i].Here {
			elsewhere = append(elsewhere, &runs.All[i].Summary)
		}
	}
	run.MarkUndone(elsewhere)
	return runs, nil
}

// Run describes one run. Its error is a [journal.ErrNoRun] if neither a journal here nor a row has it, and a
// [run.ErrOtherAccount] if its journal belongs to another account.
func (op *Operations) Run(ctx context.Context, id string) (RunDetail, error) {
	s, result, undoable, err := run.Describe(op.Journals, id)
	isElsewhere := errors.Is(err, journal.ErrNoRun)
	switch {
	case err != nil && !isElsewhere:
		return RunDetail{}, err
	case err == nil && s.Account != op.Account.Name:
		return RunDetail{}, op.otherAccount(id, s.Account)
	}
	runs, listErr := op.Runs(ctx)
	if listErr != nil {
		return RunDetail{}, listErr
	}
	for _, summary := range runs.All {
		if summary.Run == id {
			return RunDetail{summary, result, undoable}, nil
		}
	}
	if runs.Missing != nil {
		return RunDetail{}, fmt.Errorf("%s has no journal here, and the runs of other machines are not known: %w",
			id, runs.Missing)
	}
	return RunDetail{}, err
}

// CanUndo reports whether the journal of a run has messages that an undo would restore.
func (op *Operations) CanUndo(id string) bool {
	_, _, undoable, err := run.Describe(op.Journals, id)
	return err == nil && undoable > 0
}

// otherAccount is the error for a run of another account.
func (op *Operations) otherAccount(id, other string) error {
	return fmt.Errorf("%s: %w: %s, and this is %s", id, run.ErrOtherAccount, other, op.Account.Name)
}

// DeleteRun removes the journal of a run, and then its row. Force also removes one that is unfinished or damaged, but
// never one that another process carries out. Unlisted is why the row may still be there.
func (op *Operations) DeleteRun(ctx context.Context, id string, force bool) (unlisted, err error) {
	err = op.Journals.Delete(id, force, func(j *journal.Journal) error {
		switch {
		case j.Run.Account != op.Account.Name:
			return op.otherAccount(id, j.Run.Account)
		case j.Agreed && !j.Ended && !force:
			return fmt.Errorf("%s: it is not finished: `async-caller runs resume %s` finishes it; --force deletes the "+
				"journal nevertheless, and leaves the messages as they are", id, id)
		}
		return nil
	})
	if err != nil || op.Outcomes == nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), runRowTimeout)
	defer cancel()
	unlisted = storage.Persist(ctx, runRowTimeout/3, func(ctx context.Context) error {
		return op.Outcomes.Delete(ctx, []storage.Key{{Partition: record.RunsPartition, ID: id}})
	}, storage.ErrRefused)
	return unlisted, nil
}

// published reads the rows of runs. Anyone who can write to the table may have written them, so their texts are
// bounded, and printable. The time at which a row was written is storage's.
func (op *Operations) published(ctx context.Context) (map[string]RunSummary, error) {
	published := map[string]RunSummary{}
	if op.Outcomes == nil {
		return published, nil
	}
	ctx, cancel := context.WithTimeout(ctx, runRowTimeout)
	defer cancel()
	query := storage.Query{Partition: record.RunsPartition}
	err := rows.ListWhole(ctx, op.Outcomes, query, func(row runRow) error {
		var s RunSummary
		isValid := json.Unmarshal(row.Content, &s) == nil && s.Run == row.ID && journal.IsID(row.ID)
		if !isValid || s.Account != op.Account.Name {
			return nil
		}
		for _, member := range []*string{&s.Command, &s.State, &s.Of, &s.User, &s.Machine} {
			*member = text.Line(*member, maxShown)
		}
		s.Filter, s.CommandLine = text.Line(s.Filter, maxFilter), text.Line(s.CommandLine, maxFilter)
		s.Here, s.Problem, s.UndoneBy, s.Seen = false, "", "", row.WrittenAt.UTC()
		published[row.ID] = s
		return nil
	})
	return published, err
}
