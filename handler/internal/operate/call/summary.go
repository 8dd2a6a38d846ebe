package call

import (
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/format"
)

// The states of a call.
const (
	StateScheduled = "scheduled"
	StateDue       = "due"
	StateUnseen    = "unseen" // due, and perhaps held or received
	StateStale     = "stale"
	StateQueued    = "queued" // among the first messages of its queue
	StatePoison    = "poison"
	StateEnded     = "ended"
)

// Summary says where a message is or, in the state ended, what was the last one of a call. Lists of scheduled messages
// print it as JSON. Its Since is CreatedAt of a scheduled message, and of an ended call the time of its end.
type Summary struct {
	message.Message

	CreatedAt     time.Time `json:"createdAt"`
	NextAttemptAt time.Time `json:"nextAttemptAt"`
	Deadline      time.Time `json:"deadline"`
	// Answer is the beginning of the target's latest answer, of a scheduled message.
	Answer string `json:"answer,omitempty"`
	// State is one of the constants.
	State string `json:"state"`
	// Repeated says that there may be a second message of the call, because storage did not answer when this one
	// was written.
	Repeated bool `json:"repeated,omitempty"`
}

// NewSummary describes a scheduled message in a list.
func NewSummary(m message.Recorded, presence record.Presence, now time.Time) Summary {
	state := StateScheduled
	switch {
	case presence == record.Gone:
		state = StateStale
	case presence == record.Unseen:
		state = StateUnseen
	case m.Row.IsDue(now):
		state = StateDue
	}
	return Summary{
		Message:       m.Message,
		CreatedAt:     m.Since,
		NextAttemptAt: m.Row.NextAttemptAt.UTC(),
		Deadline:      m.Row.Deadline.UTC(),
		Answer:        m.Answered,
		State:         state,
		Repeated:      m.Row.Repeated,
	}
}

// Next says when the message is due.
func (s Summary) Next(now time.Time) string {
	switch s.State {
	case StateDue, StateUnseen:
		return StateDue
	case StateStale:
		return StateStale
	}
	return format.Age(s.NextAttemptAt.Sub(now))
}
