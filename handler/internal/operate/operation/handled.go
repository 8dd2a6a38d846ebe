package operation

import (
	"cmp"
	"context"
	"time"

	"asynccaller/handler/internal/operate/run/journal"
)

// Handled is what a run of this machine did to one message.
type Handled struct {
	Run     string    `json:"run"`
	Command string    `json:"command"`
	User    string    `json:"user"`
	Machine string    `json:"machine,omitempty"`
	At      time.Time `json:"at"`
	// Result says how far the run has come with the message.
	Result string `json:"result"`
}

// searchTime limits the search of journals, which may hold any number of messages.
const searchTime = 3 * time.Second

// HandledBy returns what the runs of this machine did to the messages that concerns selects, the newest run first. It
// stops after some seconds: then searchedSince is when the last run that was searched began. Journals that cannot be
// read are left out, and missing says why.
func (op *Operations) HandledBy(
	ctx context.Context, concerns func(journal.Step, journal.Progress) bool,
) (found []Handled, searchedSince time.Time, missing error) {
	ids, err := op.Journals.List()
	if err != nil {
		return nil, time.Time{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	var latest time.Time
	for _, id := range ids {
		j, err := op.Journals.Read(id)
		if err != nil {
			missing = cmp.Or(missing, err)
			continue
		}
		latest = j.Run.At
		if j.Run.Account == op.Account.Name && j.Agreed {
			handled, err := handledIn(ctx, j, concerns)
			found, missing = append(found, handled...), cmp.Or(missing, err)
		}
		_ = j.Close()         // nothing was written
		if ctx.Err() != nil { // perhaps within the journal
			return found, latest, missing
		}
	}
	return found, time.Time{}, missing
}

// handledIn returns what one run did to the messages, as far as there is time. Steps that cannot be read are left out,
// and missing says why.
func handledIn(
	ctx context.Context, j *journal.Journal, concerns func(journal.Step, journal.Progress) bool,
) (found []Handled, missing error) {
	for n, p := range j.Steps() {
		if ctx.Err() != nil {
			break
		}
		s, err := j.Step(n)
		missing = cmp.Or(missing, err)
		if err != nil || p.State == journal.Planned || !concerns(s, p) {
			continue
		}
		handled := Handled{
			Run: j.Run.ID, Command: j.Run.Command, User: j.Run.User, Machine: j.Run.Machine, At: j.Run.At,
			Result: handledResult(p),
		}
		if !p.NewAt.IsZero() {
			handled.At = p.NewAt.UTC()
		}
		found = append(found, handled)
	}
	return found, missing
}

// handledResult says how far a run has come with a message.
func handledResult(p journal.Progress) string {
	switch {
	case p.State == journal.Done && p.PossibleDuplicate:
		return "done, possible duplicate"
	case p.State == journal.Done:
		return "done"
	case p.State == journal.Skipped && p.Unknown:
		return "not known: " + p.Why
	case p.State == journal.Skipped:
		return "skipped: " + p.Why
	}
	return "not finished"
}
