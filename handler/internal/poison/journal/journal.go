// Package journal records what a run of a poison command is about to do and what it has done, so that an
// interrupted run can be resumed and a finished one undone. Each run has one file of JSON lines. A line is
// written before the action that it describes, except for the lines that record a result.
//
// The files hold whole messages, including secrets. Only their owner can read them.
package journal

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"asynccaller/handler/internal/scheduled"
	"asynccaller/handler/internal/strictjson"
)

// Run is the first line of a journal. It describes the run.
type Run struct {
	// ID names the run and its file. IDs sort by time.
	ID string `json:"run"`
	// Command is requeue, move, delete, import, keep, expedite, cancel or undo.
	Command string    `json:"command"`
	At      time.Time `json:"at"`
	// Account is the host and path of the account's queue endpoint.
	Account string `json:"account"`
	// Of is the run that an undo undoes.
	Of string `json:"of,omitempty"`
	Pace
}

// Pace controls how fast and how carefully a run sends messages.
type Pace struct {
	// Canary is how many messages are sent first. They must be delivered before the others follow.
	Canary int `json:"canary,omitempty"`
	// CanaryWait is how long their delivery may take.
	CanaryWait time.Duration `json:"canaryWait,omitempty"`
	// Rate limits the messages per second; 0 for no limit.
	Rate float64 `json:"rate,omitempty"`
	// StopAt is the share of sent messages that may come back to the poison queue; 0 for no limit.
	StopAt float64 `json:"stopAt,omitempty"`
	// Delay is how long written messages stay invisible. Spread distributes them evenly over a further period.
	Delay  time.Duration `json:"delay,omitempty"`
	Spread time.Duration `json:"spread,omitempty"`
}

// Step is the part of a run that handles one message: it writes the message to To, then deletes it from From.
type Step struct {
	// N counts from 0.
	N int `json:"n"`
	// From is the message's queue; empty for an import. ID and PopReceipt are the message's. Before is its
	// text; empty in a delete that keeps no copy.
	From       string `json:"from,omitempty"`
	ID         string `json:"id,omitempty"`
	PopReceipt string `json:"popReceipt,omitempty"`
	Before     string `json:"before,omitempty"`
	// To is the target queue; empty for a delete. After is the text to write; empty if it equals Before.
	To    string `json:"to,omitempty"`
	After string `json:"after,omitempty"`
	// RequestID is the call's, if there is one.
	RequestID string `json:"requestId,omitempty"`
	// Row is the row of a scheduled message, without its content. Then the step does not write After before it deletes
	// the message: expedite makes the message due, cancel deletes it, and After is the callback for its sender.
	Row *scheduled.Row `json:"row,omitempty"`
}

// Text returns the text to write to To.
func (s Step) Text() string { return cmp.Or(s.After, s.Before) }

// State is how far a step has come. It is also the kind of the line that records it.
type State string

// The states of a step.
const (
	Planned State = "step"
	// Begun: the message may or may not have been written to To.
	Begun State = "begun"
	// Deleting: the step has written no message, and may or may not have deleted the one on From, or made it due.
	Deleting State = "leaving"
	// Written: the message was written to To; it may still be on From as well.
	Written State = "written"
	// Done: the message was deleted from From.
	Done State = "deleted"
	// Skipped: the step ended without being carried out.
	Skipped State = "skipped"
)

// Progress is the recorded progress of one step.
type Progress struct {
	State State
	// PopReceipt is the newest receipt of the message on From.
	PopReceipt string
	// NewID and NewPopReceipt are of the message on To, written at WrittenAt by storage's clock.
	NewID, NewPopReceipt string
	WrittenAt            time.Time
	// Writes is how many copies may have been written to To.
	Writes int
	// Why is the reason for skipping the step.
	Why string
}

// Unfinished reports whether the step still has to be carried out or completed.
func (p Progress) Unfinished() bool { return p.State != Done && p.State != Skipped }

// The other kinds of lines.
const (
	kindRun     = "run"
	kindGo      = "go"
	kindRenewed = "renewed"
	kindLeased  = "leased"
	kindCanary  = "canary"
	kindUndone  = "undone"
	kindEnd     = "end"
)

// line holds the members of every kind of line, except for those that only a run or a step has.
type line struct {
	Is         string    `json:"is"`
	At         time.Time `json:"at,omitzero"`
	N          *int      `json:"n,omitempty"`
	ID         string    `json:"id,omitempty"`
	PopReceipt string    `json:"popReceipt,omitempty"`
	Tries      int       `json:"tries,omitempty"`
	Why        string    `json:"why,omitempty"`
	By         string    `json:"by,omitempty"`
	// Lease is in nanoseconds.
	Lease time.Duration `json:"lease,omitempty"`
}

// Journal is the journal of one run. It keeps the progress of each step in memory and the messages' texts on
// disk. The methods that concern a single step are safe for concurrent use.
type Journal struct {
	Run Run
	// Agreed is set when the user has confirmed the run, CanaryPassed when its first messages were delivered,
	// Ended when nothing is left to do.
	Agreed, CanaryPassed, Ended bool
	// UndoneBy is the run that undoes this one, or empty.
	UndoneBy string

	// lock keeps other processes from carrying out the run; nil in a journal that was opened to read.
	lock *flock.Flock

	mu      sync.Mutex
	file    *os.File
	size    int64
	lease   time.Duration
	steps   []Progress
	offsets []int64 // of the steps in the file
	synced  time.Time
	err     error
}

const (
	// maxLine exceeds a step with two texts of 64 KiB, each byte taking up to six in JSON.
	maxLine = 2 << 20
	// syncEvery is how often a running journal is forced to disk. Later lines survive the death of the process,
	// but not that of the machine.
	syncEvery = time.Second
)

// load reads the file. It ignores lines that it cannot read: they were cut off by a kill before the run was resumed.
// If the last line was cut off as well, it completes the line in a journal that is opened for writing.
func (j *Journal) load() error {
	reader := bufio.NewReaderSize(j.file, maxLine)
	text, err := reader.ReadSlice('\n')
	for ; err == nil; text, err = reader.ReadSlice('\n') {
		var l line
		if json.Unmarshal(text, &l) == nil {
			if l.Is == kindRun && json.Unmarshal(text, &j.Run) != nil {
				j.Run = Run{}
			}
			if j.Run.Command == "run" { // its name in version 0.1.0
				j.Run.Command = "expedite"
			}
			j.apply(l)
		}
		j.size += int64(len(text))
	}
	j.size += int64(len(text))
	switch {
	case !errors.Is(err, io.EOF):
		return j.failed(err)
	case j.Run.ID == "":
		return j.failed(errors.New("not the journal of a run"))
	case len(text) > 0 && j.lock != nil: // the next line starts a line of its own
		n, err := j.file.WriteString("\n")
		j.size += int64(n)
		return err
	}
	return nil
}

func (j *Journal) failed(err error) error { return fmt.Errorf("journal %s: %w", j.file.Name(), err) }

// apply updates the journal's state for a line that starts at the end of the file, j.size.
func (j *Journal) apply(l line) {
	switch l.Is {
	case kindGo:
		j.Agreed = true
	case kindLeased:
		j.lease = max(j.lease, l.Lease)
	case kindCanary:
		j.CanaryPassed = true
	case kindUndone:
		j.UndoneBy = l.By
	case kindEnd:
		j.Ended = true
	case string(Planned):
		if l.N != nil && *l.N == len(j.steps) {
			j.steps = append(j.steps, Progress{State: Planned, PopReceipt: l.PopReceipt})
			j.offsets = append(j.offsets, j.size)
		}
	default:
		if l.N != nil && *l.N >= 0 && *l.N < len(j.steps) {
			j.steps[*l.N].apply(l)
		}
	}
}

func (p *Progress) apply(l line) {
	switch State(l.Is) {
	case kindRenewed:
		p.PopReceipt = l.PopReceipt
		return
	case Begun:
		p.Writes++
	case Written:
		p.NewID, p.NewPopReceipt, p.WrittenAt = l.ID, l.PopReceipt, l.At
		p.Writes += max(l.Tries, 1) - 1
	case Skipped:
		p.Why = l.Why
	case Deleting, Done:
	case Planned:
		return // a repeated line
	default:
		return // a later version's line
	}
	p.State = State(l.Is)
}

// Steps returns the progress of all steps.
func (j *Journal) Steps() []Progress {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.steps)
}

// Step reads a step from the file.
func (j *Journal) Step(n int) (Step, error) {
	j.mu.Lock()
	offset := j.offsets[n]
	j.mu.Unlock()
	var s Step
	if err := json.NewDecoder(io.NewSectionReader(j.file, offset, maxLine)).Decode(&s); err != nil {
		return Step{}, j.failed(fmt.Errorf("step %d: %w", n, err))
	}
	return s, nil
}

// Progress returns the progress of a step.
func (j *Journal) Progress(n int) Progress {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.steps[n]
}

// Plan adds a step.
func (j *Journal) Plan(s Step) error {
	return j.write(line{Is: string(Planned), N: &s.N, PopReceipt: s.PopReceipt}, struct {
		Is string `json:"is"`
		Step
	}{string(Planned), s})
}

// Go records that the plan is complete and confirmed. It returns when the plan is on disk: before that,
// nothing may be changed.
func (j *Journal) Go() error { return j.record(line{Is: kindGo, At: now()}) }

// Leased records that leases of the run may have this length from now on.
func (j *Journal) Leased(lease time.Duration) error {
	if lease <= j.Lease() {
		return nil
	}
	return j.record(line{Is: kindLeased, Lease: lease})
}

// Lease returns the longest lease of the run so far, by all processes that have carried it out.
func (j *Journal) Lease() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lease
}

// Renewed records the new pop receipt of the message on From.
func (j *Journal) Renewed(n int, popReceipt string) error {
	return j.record(line{Is: kindRenewed, N: &n, PopReceipt: popReceipt})
}

// Enter records that a step enters a state without further details: Begun and Deleting before the message is written
// or deleted, Done afterwards.
func (j *Journal) Enter(n int, state State) error { return j.record(line{Is: string(state), N: &n}) }

// Written records the message that a step has written, the time by storage's clock, and the number of tries:
// a try without an answer may have written another copy.
func (j *Journal) Written(n int, id, popReceipt string, at time.Time, tries int) error {
	return j.record(line{Is: string(Written), N: &n, ID: id, PopReceipt: popReceipt, At: at, Tries: tries})
}

// Skipped records that a step ends without being carried out, and why.
func (j *Journal) Skipped(n int, why string) error {
	return j.record(line{Is: string(Skipped), N: &n, Why: why})
}

// Canary records that the first messages were delivered.
func (j *Journal) Canary() error { return j.record(line{Is: kindCanary, At: now()}) }

// Undone records that another run undoes this one.
func (j *Journal) Undone(by string) error { return j.record(line{Is: kindUndone, At: now(), By: by}) }

// End records that nothing is left to do.
func (j *Journal) End() error { return j.record(line{Is: kindEnd, At: now()}) }

// Close writes the file to disk and closes it.
func (j *Journal) Close() error {
	if j.lock == nil {
		return j.file.Close()
	}
	err := errors.Join(j.file.Sync(), j.file.Close())
	if j.Ended {
		_ = os.Remove(j.lock.Path())
	}
	return errors.Join(err, j.lock.Close())
}

// Discard removes the journal of a run that was not started.
func (j *Journal) Discard() error {
	_ = j.file.Close()
	_ = os.Remove(j.lock.Path())
	_ = j.lock.Close()
	return os.Remove(j.file.Name())
}

func (j *Journal) record(l line) error { return j.write(l, l) }

// write applies a line, whatever happens to the file: it describes what was done. It appends value, the line's
// printable JSON form. After an error it writes no more, because the last line may be incomplete.
func (j *Journal) write(l line, value any) error {
	text, err := strictjson.Line(value)
	if err != nil {
		return j.failed(err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.apply(l)
	if j.err != nil {
		return j.err
	}
	n, err := j.file.Write(text)
	j.size += int64(n)
	if err == nil && (l.Is == kindGo || time.Since(j.synced) >= syncEvery) {
		j.synced = time.Now()
		err = j.file.Sync()
	}
	if err != nil {
		j.err = j.failed(err)
	}
	return j.err
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
