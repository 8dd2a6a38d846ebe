package poison

import (
	"errors"
	"time"

	"asynccaller/handler/internal/poison/journal"
)

// RunSummary describes a run by its journal.
type RunSummary struct {
	Run     string    `json:"run"`
	Command string    `json:"command"`
	At      time.Time `json:"at"`
	Account string    `json:"account"`
	Total   int       `json:"total"`
	Done    int       `json:"done"`
	Skipped int       `json:"skipped,omitempty"`
	// State is "finished", "interrupted", "never agreed to", "under way", "undone" or "unreadable".
	State string `json:"state"`
	// Of is the run that this one undid, UndoneBy the run that undid this one.
	Of       string `json:"of,omitempty"`
	UndoneBy string `json:"undoneBy,omitempty"`
	// Problem is why the journal cannot be read. Then only Run and State are known.
	Problem string `json:"problem,omitempty"`
}

// Summaries describes the runs of this machine, the newest first.
func (a *Account) Summaries() ([]RunSummary, error) {
	ids, err := a.Runs.List()
	if err != nil {
		return nil, err
	}
	summaries := make([]RunSummary, len(ids))
	for i, id := range ids {
		if summaries[i], err = a.summary(id); err != nil {
			summaries[i] = RunSummary{Run: id, State: "unreadable", Problem: err.Error()}
		}
	}
	return summaries, nil
}

func (a *Account) summary(id string) (RunSummary, error) {
	j, err := a.Runs.Read(id)
	if err != nil {
		return RunSummary{}, err
	}
	defer j.Close()
	result := resultOf(j)
	s := RunSummary{
		Run: id, Command: j.Run.Command, At: j.Run.At, Account: j.Run.Account, Total: result.Total,
		Done: result.Done, Skipped: result.Skipped, Of: j.Run.Of, UndoneBy: j.UndoneBy,
	}
	switch {
	case a.isUndone(j):
		s.State = "undone"
	case j.Ended && j.Agreed:
		s.State = "finished"
	case !j.Ended && a.isBusy(id):
		s.State = "under way"
	case j.Agreed:
		s.State = "interrupted"
	default:
		s.State = "never agreed to"
	}
	return s, nil
}

func (a *Account) isBusy(id string) bool {
	j, err := a.Runs.Reopen(id)
	if err != nil {
		return errors.Is(err, journal.ErrBusy)
	}
	_ = j.Close()
	return false
}
