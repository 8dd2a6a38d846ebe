package reconcile

import (
	"slices"
	"time"

	"asynccaller/handler/internal/rules/envelope"
)

// The states of a request id; those of a [Place] are the first four. Ended means that the call ended without being
// delivered, Several that the id has several calls, and Unknown that no place is certain: the call was never sent, is
// on a queue, in flight or due within 30 s, or nothing has kept how it ended. A lost call would look the same.
const (
	Delivered = "delivered"
	Scheduled = "scheduled"
	Poison    = "poison"
	Ended     = "ended"
	Several   = "several"
	Unknown   = "unknown"
)

// States returns all states, in the order in which a summary counts them.
func States() []string { return []string{Delivered, Scheduled, Poison, Ended, Several, Unknown} }

// Place is a message of a call, or its end in the history. Its texts are printable and bounded.
type Place struct {
	State string `json:"state"`
	// At is when the call was delivered, ended or became a dead letter, or when its next attempt is due.
	At time.Time `json:"at"`
	// Status is the target's latest answer.
	Status   envelope.StatusCode `json:"status"`
	Attempts int                 `json:"attempts"`
	Reason   string              `json:"reason"`
	Queue    string              `json:"queue"`
	ID       string              `json:"id"`
	// Doubt says why the call is perhaps not here; empty if there is no doubt.
	Doubt string `json:"doubt,omitempty"`

	createdAt time.Time
	// The others are those of an end in the history: the key of its call, its trace id, and whether the call went to a
	// poison queue.
	call, trace string
	toPoison    bool
}

// follows reports whether a place shows that a call has left another one. If that is not certain, both are listed: one
// call must not hide that another one with its id was not delivered.
func (p Place) follows(other Place) bool {
	const near = time.Minute
	switch {
	case other.State == Scheduled && p.call != "": // its row was read before the end, or was left behind
		return p.ID == other.ID && p.Queue == other.Queue || other.Doubt != "" && p.createdAt.Equal(other.createdAt)
	case !other.toPoison: // such an end only says that the call went to a poison queue
		return false
	case p.State == Poison:
		return p.Reason == other.Reason && p.At.Sub(other.At).Abs() < near
	case p.State == Scheduled: // a retry of a dead letter is created anew
		return p.Doubt == "" && !p.createdAt.Before(other.At)
	}
	// an edit of a dead letter changes the key of the call, and keeps its trace
	return (p.call == other.call || p.trace != "" && p.trace == other.trace) && p.At.After(other.At)
}

// settle returns the state of an id, and the last place of each of its calls.
func settle(found []Place) (state string, places []Place) {
	state, places = Unknown, []Place{} // as JSON, no places are an empty list
	for _, p := range found {
		if slices.ContainsFunc(found, func(other Place) bool { return other.follows(p) }) {
			continue
		}
		if p.toPoison {
			p.Doubt = "not seen on a poison queue: retried, deleted or moved since"
		}
		if p.Doubt == "" {
			state = p.State
		}
		places = append(places, p)
	}
	if state != Unknown && len(places) > 1 {
		state = Several
	}
	return state, places
}
