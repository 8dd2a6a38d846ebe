package operation

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
	"asynccaller/handler/internal/text"
)

// RunSummary describes a run of this machine by its journal, or one of another machine by its row.
type RunSummary struct {
	run.Summary
	// End is when the run ended or was interrupted; zero if that is not known.
	End time.Time `json:"end,omitzero"`
	// Here says that this machine has the journal, so that the run can be resumed and undone here.
	Here bool `json:"here"`
}

// runRow is the row of the run with its ID. Content is its [RunSummary] as JSON.
type runRow struct {
	storage.Key

	Content []byte `row:"content"`
}

const (
	// maxFilter limits the text of a selection in a row.
	maxFilter = 1 << 10
	// runRowTimeout is how long the row of a run may take, which nothing depends on.
	runRowTimeout = 5 * time.Second
)

// publish writes the row of a run, so that colleagues see it.
func (op *Operations) publish(ctx context.Context, s run.Summary, end time.Time) error {
	if op.Outcomes == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), runRowTimeout)
	defer cancel()
	s.Filter = text.Clip(s.Filter, maxFilter)
	content, err := json.Marshal(RunSummary{Summary: s, End: end})
	if err == nil {
		err = storage.Persist(ctx, runRowTimeout/3, func(ctx context.Context) error {
			return rows.Put(ctx, op.Outcomes, runRow{storage.Key{Partition: record.RunsPartition, ID: s.Run}, content})
		}, storage.ErrRefused)
	}
	if err != nil {
		op.observer().Note(fmt.Sprintf("the list of runs does not show this one, or its end: %v; "+
			"the messages are not affected", err))
	}
	return err
}

// publishBegin publishes a run that begins.
func (op *Operations) publishBegin(ctx context.Context, about journal.Run, total int) error {
	return op.publish(ctx, run.Summary{
		Run: about.ID, Command: about.Command, At: about.At, Account: about.Account, Of: about.Of,
		Operator: about.Operator, Total: total, State: "running",
	}, time.Time{})
}

// publishEnd publishes a run that has ended or was interrupted.
func (op *Operations) publishEnd(ctx context.Context, id string) {
	if s, err := run.Summarize(op.Journals, id); err == nil {
		_ = op.publish(ctx, s, time.Now().UTC().Truncate(time.Second)) // it was noted
	}
}

// Summaries describes the runs of this machine and, if there is a table, those of others on the account, the
// newest first. Missing is why those of others could not be read.
func (op *Operations) Summaries(ctx context.Context) (all []RunSummary, missing, err error) {
	here, err := run.Summaries(op.Journals)
	if err != nil {
		return nil, nil, err
	}
	run.MarkUndone(here) // the rows are not used for runs of this machine
	published, missing := op.published(ctx)
	for _, s := range here {
		all = append(all, RunSummary{Summary: *s, End: published[s.Run].End, Here: true})
		delete(published, s.Run)
	}
	for _, s := range published {
		all = append(all, s)
	}
	slices.SortFunc(all, func(x, y RunSummary) int { return strings.Compare(y.Run, x.Run) })
	var elsewhere []*run.Summary
	for i := range all {
		if !all[i].Here {
			elsewhere = append(elsewhere, &all[i].Summary)
		}
	}
	run.MarkUndone(elsewhere)
	return all, missing, nil
}

// published reads the rows of runs. Anyone who can write to the table may have written them.
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
		if err := json.Unmarshal(row.Content, &s); err == nil && s.Run == row.ID && s.Account == op.Account.Name {
			s.Here = false
			published[row.ID] = s
		}
		return nil
	})
	return published, err
}
