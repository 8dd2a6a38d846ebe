package record

import (
	"fmt"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// Outcome is the row of what became of a message of a run at one attempt.
type Outcome struct {
	// The recorder sets the key. WrittenAt is the time of storage.
	storage.Key
	// Run is the token of the run, 1 to 64 visible ASCII characters. A sender can invent one. It is not stored.
	Run string

	RequestID string `row:"requestId"`
	// Attempt is the number of the call, from 1. Called says whether it was made or the message was refused before. The
	// two are rows of their own, so that a refusal does not replace the outcome of the call.
	Attempt int  `row:"attempts"`
	Called  bool `row:"called"`
	// Action and Reason are those of the decision. Status is the target's latest answer; 0 means none.
	Action     string    `row:"action"`
	Reason     string    `row:"reason"`
	Status     int       `row:"status"`
	TargetHost string    `row:"targetHost"`
	At         time.Time `row:"at"`
	// Cause is why the message was refused, in the words of the gate; empty after a call.
	Cause string `row:"cause"`
}

// key returns the key of an outcome.
func (o Outcome) key() storage.Key {
	kind := "refused"
	if o.Called {
		kind = "called"
	}
	return storage.Key{
		Partition: Partition(o.Run), ID: fmt.Sprintf("%s.%d.%s", rows.KeyOf(o.RequestID), o.Attempt, kind),
	}
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
