package operation

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/heartbeat"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

// ErrNoOutcomes means that a run or a drill cannot know what becomes of its messages.
var ErrNoOutcomes = errors.New("not possible")

// checkOutcomes returns why a run with a pace cannot know what becomes of its messages, or nil if it can or need not.
func (op *Operations) checkOutcomes(ctx context.Context, pace journal.Pace) error {
	if !pace.NeedsOutcomes() {
		return nil
	}
	_, err := op.recordingApps(ctx, "--canary and --stop-at-failure-ratio are")
	return err
}

// recordingApps returns the apps on the account, at least one, if it can be known what becomes of messages. Otherwise
// the error says that what the subject and verb name is not possible.
func (op *Operations) recordingApps(ctx context.Context, subject string) ([]heartbeat.App, error) {
	if op.Account.Table == nil || op.Outcomes == nil {
		return nil, fmt.Errorf("%s %w: the table %s is needed, and the storage connection names no table service, "+
			"or ASYNC_CALLER_TABLES is off", subject, ErrNoOutcomes, storage.RunTable)
	}
	limited, cancel := context.WithTimeout(ctx, account.ReachTimeout)
	defer cancel()
	apps, err := heartbeat.Read(limited, op.Account.Table)
	if err == nil {
		none := storage.Query{Partition: record.Partition("none")}
		err = op.Outcomes.List(limited, none, func(storage.Entity) error { return nil })
	}
	switch {
	case errors.Is(err, storage.ErrDenied):
		return nil, fmt.Errorf("%s %w: %s", subject, ErrNoOutcomes, account.RecordProblem(err))
	case err != nil:
		return nil, fmt.Errorf("find out whether the app records outcomes: %w", err)
	case len(apps) == 0:
		return nil, fmt.Errorf("%s %w: no timer function of the app has recorded that it ran, so it is not known "+
			"whether the app records outcomes; start the app with the function %s, which runs every minute, and with "+
			"ASYNC_CALLER_TABLES on", subject, ErrNoOutcomes, functionapp.MonitorTimer)
	}
	return apps, nil
}

// paced returns a run with a pace. It has a token if it must know what becomes of its messages.
func paced(command string, pace journal.Pace) journal.Run {
	run := journal.Run{Command: command, Pace: pace}
	if pace.NeedsOutcomes() {
		run.Token = rand.Text()
	}
	return run
}

// messageState has the outcomes of the calls of a message of a run, as far as they are known.
type messageState struct {
	// delivered says that a call was answered 2xx. Failed is the latest call that was not, refused the latest refusal
	// without a call, and ended the end without a call; their WrittenAt is zero if there was none.
	delivered              bool
	failed, refused, ended record.Outcome
}

func (o *messageState) add(row record.Outcome) {
	switch {
	case row.Reason == string(decision.Delivered), row.Reason == string(decision.Duplicate): // or delivered before
		o.delivered = true
	case row.Called:
		o.failed = laterOutcome(o.failed, row)
	case waits(row):
		o.refused = laterOutcome(o.refused, row)
	default: // such as a message that has expired
		o.ended = row
	}
}

// waits reports whether the message was to be called later.
func waits(row record.Outcome) bool {
	return row.Action == string(decision.Reschedule) || row.Action == string(decision.Hold)
}

func laterOutcome(a, b record.Outcome) record.Outcome {
	if b.WrittenAt.Before(a.WrittenAt) {
		return a
	}
	return b
}

// hasFailed reports whether a call was made, or will not be made, and none is delivered.
func (o messageState) hasFailed() bool {
	return !o.delivered && (!o.failed.WrittenAt.IsZero() || !o.ended.WrittenAt.IsZero())
}

// isOver reports whether no further call of the message is expected.
func (o messageState) isOver() bool { return o.delivered || o.hasFailed() && !waits(o.failure()) }

// failure returns the row that says why a message has failed: that of its latest call or, without one, of the latest
// refusal. Its action says whether the message is over.
func (o messageState) failure() record.Outcome {
	row := o.ended
	for _, earlier := range []record.Outcome{o.refused, o.failed} {
		if !earlier.WrittenAt.IsZero() {
			row = earlier
		}
	}
	if !o.ended.WrittenAt.IsZero() {
		row.Action = o.ended.Action
	}
	return row
}

// text says what is known of a message; empty if nothing is.
func (o messageState) text() string {
	latest := laterOutcome(o.failed, o.refused)
	switch {
	case o.delivered:
		return "delivered"
	case o.isOver():
		return "failed: " + outcomeText(o.failure())
	case latest.Called:
		return outcomeText(latest)
	case !latest.WrittenAt.IsZero():
		return refusedText(latest)
	}
	return ""
}

// outcomes reads what becomes of the messages of a run.
type outcomes struct {
	table storage.Table
	token string
	// messages has the watched messages by request id.
	messages map[string]*messageState
	// read is the latest time at which a row was written.
	read time.Time
}

// rereadTime is how long before the latest row others may have been written that were not read: writes overlap, and a
// message can be delivered while its own write is repeated.
const rereadTime = time.Minute

// update reads the rows that were written since the latest update. It ignores messages that are not watched.
func (o *outcomes) update(ctx context.Context, watched func(requestID string) bool) error {
	query := storage.Query{Partition: record.Partition(o.token)}
	if !o.read.IsZero() {
		query.WrittenAfter = o.read.Add(-rereadTime)
	}
	_, err := storage.Retry(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, rows.List(ctx, o.table, query, func(row record.Outcome) error {
			if row.WrittenAt.After(o.read) {
				o.read = row.WrittenAt
			}
			if !watched(row.RequestID) {
				return nil
			}
			if o.messages[row.RequestID] == nil {
				o.messages[row.RequestID] = &messageState{}
			}
			o.messages[row.RequestID].add(row)
			return nil
		})
	})
	if err != nil {
		err = fmt.Errorf("read the outcomes of the messages: %w", err)
	}
	return err
}

// of returns what is known of a message.
func (o *outcomes) of(requestID string) messageState {
	if known := o.messages[requestID]; known != nil {
		return *known
	}
	return messageState{}
}

// maxShown limits the texts of a row that are shown, which may be anyone's who writes to the table.
const maxShown = 128

// failedText says how the call of a message has failed.
func failedText(row record.Outcome) string {
	return text.Line(row.RequestID, maxShown) + ": " + outcomeText(row)
}

func outcomeText(row record.Outcome) string {
	why := text.Line(row.Reason, maxShown)
	if row.Status != 0 {
		why += fmt.Sprintf(", status %d", row.Status)
	}
	if waits(row) {
		why += fmt.Sprintf("; it waits for attempt %d", row.Attempt+1)
	}
	return why
}

// refusedText says why a message was not called yet.
func refusedText(row record.Outcome) string {
	host := cmp.Or(text.Line(row.TargetHost, maxShown), "its target")
	why := ""
	switch decision.Reason(row.Reason) { //nolint:exhaustive // the others explain themselves
	case decision.TargetDown:
		why = "the circuit breaker of " + host + " is open"
	case decision.Busy:
		why = strings.TrimSuffix(host+" is busy: "+text.Line(row.Cause, maxShown), ": ")
	case decision.Auth:
		why = "there is no token for " + host + ": `async-caller status` says why"
	case decision.Paused:
		why = host + " is paused by an operator"
	case decision.BadSetting:
		why = "the app is in hold mode"
	default:
		why = text.Line(row.Reason, maxShown)
	}
	return "not called yet: " + why
}
