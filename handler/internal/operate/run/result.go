package run

import (
	"errors"
	"time"

	"asynccaller/handler/internal/operate/run/journal"
)

// Result is the result of a run so far, including its earlier parts.
type Result struct {
	Run     string `json:"run"`
	Command string `json:"command"`
	Account string `json:"account"`
	Total   int    `json:"total"`
	// Done and Skipped are the numbers of completed and skipped messages. Unknown is how many of the skipped ones
	// the run may have changed nevertheless. Why has the reasons for skipping.
	Done    int      `json:"done"`
	Skipped int      `json:"skipped,omitempty"`
	Unknown int      `json:"unknown,omitempty"`
	Why     []string `json:"why,omitempty"`
	// NotDeleted is how many messages are on both queues, Left how many are still to be done. Resume handles them.
	NotDeleted int `json:"both,omitempty"`
	Left       int `json:"left,omitempty"`
	// PossibleDuplicates is how many messages are done and may be in two places, because of a kill or a lost answer.
	// DuplicateMessages are the first of them, where the run has written them.
	PossibleDuplicates int    `json:"twice,omitempty"`
	DuplicateMessages  []Name `json:"twiceMessages,omitempty"`
	// Stopped is why the run stopped by itself before its end.
	Stopped string `json:"stopped,omitempty"`
}

// Name identifies a message.
type Name struct {
	Queue     string `json:"queue"`
	ID        string `json:"id"`
	RequestID string `json:"requestId"`
}

// mostNames limits the messages that a result names.
const mostNames = 20

// Finished reports whether nothing is left to resume.
func (r Result) Finished() bool { return r.NotDeleted == 0 && r.Left == 0 }

// resultOf sums up the progress of a run.
func resultOf(j *journal.Journal) Result {
	steps := j.Steps()
	result := Result{Run: j.Run.ID, Command: j.Run.Command, Account: j.Run.Account, Total: len(steps)}
	for n, p := range steps {
		switch p.State {
		case journal.Done:
			result.Done++
			if p.PossibleDuplicate {
				result.addDuplicate(j, n, p)
			}
		case journal.Skipped:
			result.Skipped++
			result.Why = append(result.Why, p.Why)
			if p.Unknown {
				result.Unknown++
			}
		case journal.Written:
			result.NotDeleted++
		case journal.Planned, journal.Claiming, journal.Claimed, journal.Begun, journal.Deleted:
			result.Left++
		}
	}
	return result
}

func (r *Result) addDuplicate(j *journal.Journal, n int, p journal.Progress) {
	r.PossibleDuplicates++
	if len(r.DuplicateMessages) == mostNames {
		return
	}
	if s, err := j.Step(n); err == nil && s.Put != nil {
		r.DuplicateMessages = append(r.DuplicateMessages, Name{s.Put.Queue, p.NewID, s.RequestID})
	}
}

// Summary describes a run by its journal.
type Summary struct {
	Run     string    `json:"run"`
	Command string    `json:"command"`
	At      time.Time `json:"at"`
	Account string    `json:"account"`
	Total   int       `json:"total"`
	Done    int       `json:"done"`
	Skipped int       `json:"skipped,omitempty"`
	// State is "finished", "interrupted", "not confirmed", "running", "undone", "partly undone" or "unreadable".
	State string `json:"state"`
	// Of is the run that this one undid, UndoneBy the run that undid this one.
	Of       string `json:"of,omitempty"`
	UndoneBy string `json:"undoneBy,omitempty"`
	// Problem is why the journal cannot be read. Then only Run and State are known.
	Problem string `json:"problem,omitempty"`
	journal.Operator
}

// Summaries describes the runs in a folder, the newest first. They are not marked as undone.
func Summaries(folder journal.Folder) ([]*Summary, error) {
	ids, err := folder.List()
	if err != nil {
		return nil, err
	}
	summaries := make([]*Summary, len(ids))
	for i, id := range ids {
		s, err := Summarize(folder, id)
		if err != nil {
			s = Summary{Run: id, State: "unreadable", Problem: err.Error()}
		}
		summaries[i] = &s
	}
	return summaries, nil
}

// MarkUndone marks the runs that others of the list undo. An undo can have an earlier name than its run, if the clock
// has gone back.
func MarkUndone(list []*Summary) {
	undos := map[string]*Summary{}
	for _, s := range list {
		if s.Of != "" && (s.Done > 0 || s.State == Interrupted) {
			undos[s.Of] = s
		}
	}
	for _, s := range list {
		if undo := undos[s.Run]; undo != nil {
			s.UndoneBy = undo.Run
			s.State = "undone"
			if undo.Done < undo.Total {
				s.State = "partly undone"
			}
		}
	}
}

// Summarize describes one run. It does not say whether the run was undone.
func Summarize(folder journal.Folder, id string) (Summary, error) {
	j, err := folder.Read(id)
	if err != nil {
		return Summary{}, err
	}
	defer func() { _ = j.Close() }() // nothing was written
	return summaryOf(folder, j, resultOf(j)), nil
}

func summaryOf(folder journal.Folder, j *journal.Journal, r Result) Summary {
	s := Summary{
		Run: j.Run.ID, Command: j.Run.Command, At: j.Run.At, Account: j.Run.Account, Total: r.Total,
		Done: r.Done, Skipped: r.Skipped, Of: j.Run.Of, Operator: j.Run.Operator, State: "not confirmed",
	}
	switch {
	case j.Ended && j.Agreed:
		s.State = Finished
	case !j.Ended && isBusy(folder, s.Run):
		s.State = Running
	case j.Agreed:
		s.State = Interrupted
	}
	return s
}

// States of a run that others compare with.
const (
	Finished    = "finished"
	Running     = "running"
	Interrupted = "interrupted"
)

// Describe describes one run as [Summarize] does, with its result, and counts the steps that an undo would reverse.
func Describe(folder journal.Folder, id string) (s Summary, r Result, undoable int, err error) {
	j, err := folder.Read(id)
	if err != nil {
		return s, r, 0, err
	}
	defer func() { _ = j.Close() }() // nothing was written
	for n, p := range j.Steps() {
		if p.State != journal.Done {
			continue
		}
		step, err := j.Step(n)
		if err != nil {
			return s, r, 0, err
		}
		_, why := opposite(step, p, func(string) bool { return true })
		if why == "" {
			undoable++
		}
	}
	r = resultOf(j)
	return summaryOf(folder, j, r), r, undoable, nil
}

func isBusy(folder journal.Folder, id string) bool {
	j, err := folder.Reopen(id)
	if err == nil {
		_ = j.Close()
	}
	return errors.Is(err, journal.ErrBusy)
}
