package poison

import (
	"errors"
	"time"

	"asynccaller/handler/internal/poison/journal"
)

// RunSummary is what the journal of a run tells.
type RunSummary struct {
	Run     string    `json:"run"`
	Command string    `json:"command"`
	At      time.Time `json:"at"`
	Account string    `json:"account"`
	Total   int       `json:"total"`
	Done    int       `json:"done"`
	Skipped int       `json:"skipped,omitempty"`
	// State is one of "finished", "interrupted", "never agreed to", "under way" and "undone".
	State string `json:"state"`
	// Of is the run that this one undid, UndoneBy the run that undid this one.
	Of       string `json:"of,omitempty"`
	UndoneBy string `json:"undoneBy,omitempty"`
	// Problem says why the journal cannot be read; then all but Run is unknown.
	Problem string `json:"problem,omitempty"`
}

// Summaries lists the runs of this machine, the newest first.
func (a *Account) Summaries() ([]RunSummary, error) {
	ids, err := a.Runs.List()
	if err != nil {
		return nil, err
	}
	summaries := make([]RunSummary, 0, len(ids))
	for _, id := range ids {
		s, err := a.summary(id)
		if err != nil {
			s = RunSummary{Run: id, State: "unreadable", Problem: err.Error()}
		}
		summaries = append(summaries, s)
	}
	return summaries, nil
}

func (a *Account) summary(id string) (RunSummary, error) {
	h, err := a.Runs.Read(id)
	if err != nil {
		return RunSummary{}, err
	}
	defer h.Close()
	counts := h.Counts()
	s := RunSummary{
		Run: id, Command: h.Run.Command, At: h.Run.At, Account: h.Run.Account, Total: len(h.Steps),
		Done: counts[journal.Done], Skipped: counts[journal.Skipped], Of: h.Run.Of, UndoneBy: h.UndoneBy,
	}
	switch {
	case a.undone(h):
		s.State = "undone"
	case h.Ended && h.Agreed:
		s.State = "finished"
	case !h.Ended && a.busy(id):
		s.State = "under way"
	case h.Unfinished():
		s.State = "interrupted"
	default:
		s.State = "never agreed to"
	}
	return s, nil
}

func (a *Account) busy(id string) bool {
	j, err := a.Runs.Reopen(id)
	if err != nil {
		return errors.Is(err, journal.ErrBusy)
	}
	_ = j.Close()
	return false
}
