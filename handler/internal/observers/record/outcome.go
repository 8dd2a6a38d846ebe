package record

import (
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/observers/background"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// Outcome is the row of what became of a message of a run at one attempt.
type Outcome struct {
	// Key is that of [Outcome.Keyed]. WrittenAt is the time of storage.
	storage.Key
	// Run is the token of the run, 1 to 64 visible ASCII characters. A sender can invent one. It is not stored.
	Run string

	RequestID string `row:"requestId"`
	// Attempt is the number of the call, from 1. Called says whether it was made or the message was refused before. The
	// two are rows of their own, so that a refusal does not replace the outcome of the call.
	Attempt int  `row:"attempts"`
	Called  bool `row:"called"`
	// Action is that of the decision, and Reason that of the call or, without one, of the decision. Status is the
	// target's latest answer; 0 means none.
	Action     string    `row:"action"`
	Reason     string    `row:"reason"`
	Status     int       `row:"status"`
	TargetHost string    `row:"targetHost"`
	At         time.Time `row:"at"`
	// Cause is why the message was refused, in the words of the gate; empty after a call.
	Cause string `row:"cause"`
}

// Keyed returns the outcome with its key, as it is written.
func (o Outcome) Keyed() Outcome {
	kind := "refused"
	if o.Called {
		kind = "called"
	}
	o.Key = storage.Key{
		Partition: Partition(o.Run), ID: fmt.Sprintf("%s.%d.%s", rows.KeyOf(o.RequestID), o.Attempt, kind),
	}
	return o
}

// NewOutcomeWriter returns a writer of outcomes. It is not that of scheduled messages, so that a sender who invents
// tokens of runs cannot take its room.
func NewOutcomeWriter(table storage.Table, bytes int, log zerolog.Logger) *background.Writer {
	return background.New(background.Config{
		Table: table, Rows: "outcomes of messages of runs", Bytes: bytes, Log: log,
	})
}

// The PartitionKeys that no token has. RunsPartition has the rows that describe runs, and UndonePartition the rows that
// say which undo of a run has begun.
const (
	RunsPartition   = "run"
	UndonePartition = "undone"
)

// Partition returns the PartitionKey of the outcomes of a run. It is the token itself if that consists of letters,
// digits, dots, hyphens and underscores.
func Partition(token string) string {
	if token == RunsPartition || token == UndonePartition {
		return "=" + token // no other token has it
	}
	return rows.KeyOf(token)
}
