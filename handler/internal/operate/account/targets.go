package account

import (
	"context"
	"errors"
	"fmt"
	"time"

	"asynccaller/handler/internal/metrics"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/pause"
	"asynccaller/handler/internal/record"
	"asynccaller/handler/internal/text"
)

// TargetStatus has the scheduled messages for a host, and how it fails in the eyes of each app that calls it.
type TargetStatus struct {
	message.ScheduledGroup
	// Failing is empty if the target does not fail, or if no instance has recorded that it does.
	Failing []record.Target `json:"failing,omitempty"`
	// Numbers are those of the calls of all apps; nil if they are unknown.
	Numbers *metrics.Series `json:"numbers,omitempty"`
}

// Failing returns the targets that fail, or none if they are not recorded.
func (a *Account) Failing(ctx context.Context) ([]record.Target, error) {
	if a.AppTable == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, beatsTimeout)
	defer cancel()
	failing, err := record.ReadTargets(ctx, a.AppTable)
	if err != nil {
		return nil, fmt.Errorf("read which targets fail: %w", err)
	}
	return failing, nil
}

// ErrNoPauses means that no target can be paused.
var ErrNoPauses = errors.New("no target can be paused: the storage connection names no table service " +
	"(add TableEndpoint), or ASYNC_CALLER_SCHEDULED is off")

// Pauses returns the rows of pauses, also those that have ended or are invalid, or [ErrNoPauses].
func (a *Account) Pauses(ctx context.Context) ([]pause.Pause, error) {
	if a.AppTable == nil {
		return nil, ErrNoPauses
	}
	ctx, cancel := context.WithTimeout(ctx, beatsTimeout)
	defer cancel()
	pauses, err := pause.Read(ctx, a.AppTable)
	if err != nil {
		return nil, fmt.Errorf("read which targets are paused: %w", err)
	}
	return pauses, nil
}

// recentFailure is how long a target without scheduled messages is shown after its latest failure.
const recentFailure = time.Hour

// JoinTargets adds to groups of scheduled messages by host how the hosts fail. At the end it adds the targets without
// scheduled messages that have failed in the last hour before now; if that is zero, it adds none.
func JoinTargets(groups []message.ScheduledGroup, failing []record.Target, now time.Time) []TargetStatus {
	targets := make([]TargetStatus, 0, len(groups))
	index := map[string]int{}
	for _, group := range groups {
		index[group.Key] = len(targets)
		targets = append(targets, TargetStatus{ScheduledGroup: group})
	}
	for _, f := range failing {
		host := text.Printable(f.Host)
		at, has := index[host]
		isRecent := !now.IsZero() && now.Sub(f.Latest) < recentFailure
		switch {
		case has:
			targets[at].Failing = append(targets[at].Failing, f)
		case isRecent:
			index[host] = len(targets)
			targets = append(targets, TargetStatus{
				ScheduledGroup: message.ScheduledGroup{Key: host, Statuses: map[int]int{}}, Failing: []record.Target{f},
			})
		}
	}
	return targets
}
