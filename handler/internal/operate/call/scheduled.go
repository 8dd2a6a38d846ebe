package call

import (
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/plain/format"
)

// The states of a call. In lists, a scheduled message that is not due has the state waiting.
const (
	StateScheduled = "scheduled"
	StateWaiting   = "waiting"
	StateDue       = "due"
	StateUnseen    = "unseen" // due, and perhaps held or received
	StateStale     = "stale"
	StateQueued    = "queued" // among the first messages of its queue
	StatePoison    = "poison"
	StateEnded     = "ended"
)

// ScheduledLine is a scheduled message in JSON. Its Since is the same as CreatedAt.
type ScheduledLine struct {
	message.Message

	CreatedAt     time.Time `json:"createdAt"`
	NextAttemptAt time.Time `json:"nextAttemptAt"`
	Deadline      time.Time `json:"deadline"`
	// Answer is the beginning of the target's latest answer.
	Answer string `json:"answer,omitempty"`
	// State is waiting, due, unseen or stale.
	State string `json:"state"`
	// Repeated says that there may be a second message of the call, because storage did not answer when this one
	// was written.
	Repeated bool `json:"repeated,omitempty"`
}

// NewScheduledLine describes a scheduled message.
func NewScheduledLine(m message.Scheduled, presence record.Presence, now time.Time) ScheduledLine {
	state := StateWaiting
	switch {
	case presence == record.Gone:
		state = StateStale
	case presence == record.Unseen:
		state = StateUnseen
	case m.Row.IsDue(now):
		state = StateDue
	}
	return ScheduledLine{
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
func (l ScheduledLine) Next(now time.Time) string {
	switch l.State {
	case StateDue, StateUnseen:
		return StateDue
	case StateStale:
		return StateStale
	}
	return format.Age(l.NextAttemptAt.Sub(now))
}
