// Package journal writes down what a run of the poison tools is about to do and what it has done, one file
// of JSON lines a run, so that an interrupted run can be resumed and a finished one undone. A line is
// written before the thing that it speaks of is done, but for those that say what came of it.
//
// The files hold whole messages, secrets included: only their owner can read them.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// Run is the first line of a journal: what the run is.
type Run struct {
	// ID names the run and its file. IDs sort by time.
	ID string `json:"run"`
	// Command is what is done: requeue, move, delete, import, keep or undo.
	Command string    `json:"command"`
	At      time.Time `json:"at"`
	// Account is the queue endpoint's host and path: a journal says nothing about another account.
	Account string `json:"account"`
	// Of is, for an undo, the run that it undoes.
	Of string `json:"of,omitempty"`
	// Pace is how the run goes about it.
	Pace
}

// Pace is how fast and how carefully a run goes.
type Pace struct {
	// Canary is how many messages go first, and must be delivered before the others follow.
	Canary int `json:"canary,omitempty"`
	// CanaryWait is how long they may take.
	CanaryWait time.Duration `json:"canaryWait,omitempty"`
	// Rate is the most messages a second; 0 for no limit.
	Rate float64 `json:"rate,omitempty"`
	// StopAt is the share of sent messages that may come back to the poison queue; 0 for no limit.
	StopAt float64 `json:"stopAt,omitempty"`
	// Delay is how long what is written stays invisible; Spread is over how long beyond that the messages
	// come, evenly.
	Delay  time.Duration `json:"delay,omitempty"`
	Spread time.Duration `json:"spread,omitempty"`
}

// Step is what a run does with one message: it writes After on To, then deletes the message on From.
type Step struct {
	// N counts from 0.
	N int `json:"n"`
	// From is where the message stands; empty where none is taken. ID and PopReceipt are the message's,
	// Before is its text; empty in a delete that was to keep no copy.
	From       string `json:"from,omitempty"`
	ID         string `json:"id,omitempty"`
	PopReceipt string `json:"popReceipt,omitempty"`
	Before     string `json:"before,omitempty"`
	// To is where it goes; empty where it is deleted. After is the text that is written; empty when it is
	// the same as Before.
	To    string `json:"to,omitempty"`
	After string `json:"after,omitempty"`
	// RequestID is the call's, where there is one.
	RequestID string `json:"requestId,omitempty"`
}

// Text is what is written on To.
func (s Step) Text() string {
	if s.After == "" {
		return s.Before
	}
	return s.After
}

// Kinds of lines.
const (
	kindRun     = "run"
	kindStep    = "step"
	kindGo      = "go"
	kindRenewed = "renewed"
	kindBegun   = "begun"
	kindLeaving = "leaving"
	kindWritten = "written"
	kindDeleted = "deleted"
	kindSkipped = "skipped"
	kindCanary  = "canary"
	kindUndone  = "undone"
	kindEnd     = "end"
)

// line is any line but the step's and the run's, which have members of their own beside "is".
type line struct {
	Is         string    `json:"is"`
	At         time.Time `json:"at,omitzero"`
	N          *int      `json:"n,omitempty"`
	ID         string    `json:"id,omitempty"`
	PopReceipt string    `json:"popReceipt,omitempty"`
	Tries      int       `json:"tries,omitempty"`
	Why        string    `json:"why,omitempty"`
	By         string    `json:"by,omitempty"`
}

// Journal is the file of one run, open for writing. It is safe for concurrent use.
type Journal struct {
	Run  Run
	path string

	// lock goes with its holder, however that ends. Its file is removed with the last that there is to do.
	lock *flock.Flock

	mu     sync.Mutex
	file   *os.File
	synced time.Time
	err    error
	over   bool
}

// syncEvery is how often a journal is forced to the disk while a run is under way. What was written since
// survives the death of the process all the same, only not that of the machine.
const syncEvery = time.Second

// Path is the file's.
func (j *Journal) Path() string { return j.path }

// Plan writes what will be done with one message.
func (j *Journal) Plan(s Step) error {
	return j.write(struct {
		Is string `json:"is"`
		Step
	}{kindStep, s})
}

// Go writes that the plan is complete and was agreed to, and returns when all of it is on the disk. Nothing
// may be done before.
func (j *Journal) Go() error {
	if err := j.write(line{Is: kindGo, At: now()}); err != nil {
		return err
	}
	return j.sync()
}

// Renewed writes the new pop receipt of the message that a step takes.
func (j *Journal) Renewed(n int, popReceipt string) error {
	return j.write(line{Is: kindRenewed, N: &n, PopReceipt: popReceipt})
}

// Begun writes that a step's message is about to be written.
func (j *Journal) Begun(n int) error { return j.write(line{Is: kindBegun, N: &n}) }

// Written writes which message a step has written, at which moment by storage's clock, and how many tries it
// took: one that got no answer may have written another.
func (j *Journal) Written(n int, id, popReceipt string, at time.Time, tries int) error {
	return j.write(line{Is: kindWritten, N: &n, ID: id, PopReceipt: popReceipt, At: at, Tries: tries})
}

// Leaving writes that a message is about to be deleted of which nothing is written anywhere.
func (j *Journal) Leaving(n int) error { return j.write(line{Is: kindLeaving, N: &n}) }

// Deleted writes that a step's message was deleted, and so is done.
func (j *Journal) Deleted(n int) error { return j.write(line{Is: kindDeleted, N: &n}) }

// Skipped writes that nothing more will be done in a step, and why.
func (j *Journal) Skipped(n int, why string) error {
	return j.write(line{Is: kindSkipped, N: &n, Why: why})
}

// Canary writes that the first messages were delivered.
func (j *Journal) Canary() error { return j.write(line{Is: kindCanary, At: now()}) }

// Undone writes that another run undoes this one.
func (j *Journal) Undone(by string) error { return j.write(line{Is: kindUndone, At: now(), By: by}) }

// End writes that the run has come to its end: nothing is left to be resumed.
func (j *Journal) End() error {
	j.over = true
	return j.write(line{Is: kindEnd, At: now()})
}

// Close closes the file, with all of it on the disk.
func (j *Journal) Close() error {
	err := errors.Join(j.sync(), j.file.Close())
	if j.over {
		_ = os.Remove(j.lock.Path())
	}
	return errors.Join(err, j.lock.Close())
}

// Discard removes a journal of which nothing was done.
func (j *Journal) Discard() error {
	_ = j.file.Close()
	_ = os.Remove(j.lock.Path())
	_ = j.lock.Close()
	return os.Remove(j.path)
}

// write appends a line. After an error it writes no more: half a line may stand at the end.
func (j *Journal) write(value any) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("journal %s: %w", j.path, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	if _, err := j.file.Write(b.Bytes()); err != nil {
		j.err = fmt.Errorf("journal %s: %w", j.path, err)
		return j.err
	}
	if time.Since(j.synced) < syncEvery {
		return nil
	}
	return j.syncLocked()
}

func (j *Journal) sync() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.syncLocked()
}

func (j *Journal) syncLocked() error {
	j.synced = time.Now()
	if err := j.file.Sync(); err != nil {
		j.err = fmt.Errorf("journal %s: %w", j.path, err)
	}
	return j.err
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
