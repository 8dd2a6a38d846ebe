// Package journal records what a run is about to do and what it has done, so that an interrupted run can be resumed and
// a finished one undone. Each run has one file of JSON lines. A line is written before the action that it describes,
// except for the lines that record a result.
//
// The files hold whole messages, including secrets. Only their owner can read them.
package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/plain/strictjson"
)

// version is the version of the format.
const version = 2

// Run is the first line of a journal. It describes the run.
type Run struct {
	// Version is the version of the format.
	Version int `json:"v"`
	// ID names the run and its file. IDs sort by time.
	ID string `json:"run"`
	// Command is the command that a person gave. Nothing depends on it but texts.
	Command string    `json:"command"`
	At      time.Time `json:"at"`
	// Account is the host and path of the account's queue endpoint.
	Account string `json:"account"`
	// Of is the run that an undo undoes.
	Of string `json:"of,omitempty"`
	Operator
	// Token marks the messages of a run that must know what becomes of them.
	Token string `json:"token,omitempty"`
	Pace
}

// Operator says who began a run, and on which messages.
type Operator struct {
	// Identity is the name or the object id of the Azure identity whose token the commands use; empty without one.
	// User and Machine are what the machine says.
	Identity string `json:"identity,omitempty"`
	User     string `json:"user,omitempty"`
	Machine  string `json:"machine,omitempty"`
	// Filter is the selection as a person would write it.
	Filter string `json:"filter,omitempty"`
	// CommandLine is the command line, without values that may be secrets.
	CommandLine string `json:"commandLine,omitempty"`
}

// By says who it is. What only the machine says is in parentheses.
func (o Operator) By() string {
	if o.Identity != "" || o.User+o.Machine == "" {
		return o.Identity
	}
	return "(" + o.User + "@" + o.Machine + ")"
}

// Pace controls how fast and how carefully a run sends messages.
type Pace struct {
	// Canary is how many messages are sent first. They must be delivered before the others follow.
	Canary int `json:"canary,omitempty"`
	// Rate limits the messages per second; 0 for no limit.
	Rate float64 `json:"rate,omitempty"`
	// StopAt is the share of called messages that may fail; 0 for no limit.
	StopAt float64 `json:"stopAt,omitempty"`
}

// NeedsOutcomes reports whether a run with this pace must know what becomes of its messages.
func (p Pace) NeedsOutcomes() bool { return p.Canary > 0 || p.StopAt > 0 }

// Step is what a run does with one message: it takes one away, writes one, or does both; or it changes one in place.
type Step struct {
	// N counts from 0.
	N int `json:"n"`
	// RequestID is the call's, if there is one.
	RequestID string `json:"requestId,omitempty"`
	// Take is the message to take away or, with Set, to change.
	Take *Take `json:"take,omitempty"`
	// Put is written before Take is taken away, Then afterwards.
	Put  *Put `json:"put,omitempty"`
	Then *Put `json:"then,omitempty"`
	// Set replaces the text of Take in place.
	Set *Set `json:"set,omitempty"`
	// Row is the row of a scheduled message, without its content, for those who keep the record.
	Row *record.Row `json:"row,omitempty"`
}

// Take is a message on a queue.
type Take struct {
	Queue string `json:"queue"`
	ID    string `json:"id"`
	// Receipt is the message's newest pop receipt. It keeps the message invisible until Until, if that is known.
	Receipt string    `json:"receipt,omitempty"`
	Until   time.Time `json:"until,omitzero"`
	// ByReceipt says that a function reads the queue, so that only the receipt claims the message.
	ByReceipt bool `json:"byReceipt,omitempty"`
	// Text is the message's text, unless NoText says that no copy is kept.
	Text   string `json:"text,omitempty"`
	NoText bool   `json:"noText,omitempty"`
	// Due, unless zero, is when the message becomes visible: a claim of it lasts until then. A change in place has
	// it for its undo.
	Due time.Time `json:"due,omitzero"`
	// Expires, unless zero, is when storage deletes the message.
	Expires time.Time `json:"expires,omitzero"`
}

// Put is a message to write. It is visible at once or, unless Due is zero, from then on.
type Put struct {
	Queue string `json:"queue"`
	// Text is the text to write; empty in Step.Put means the text that is taken away.
	Text string    `json:"text,omitempty"`
	Due  time.Time `json:"due,omitzero"`
}

// Set is the new text of a message. It is visible from Due on or, if that is zero, at once.
type Set struct {
	Text string    `json:"text"`
	Due  time.Time `json:"due,omitzero"`
}

// IsEdit reports whether the step changes a message that stays scheduled.
func (s Step) IsEdit() bool { return s.Set != nil && !s.Set.Due.IsZero() }

// Text returns the text to write to Put.
func (s Step) Text() string {
	if s.Put.Text == "" && s.Take != nil {
		return s.Take.Text
	}
	return s.Put.Text
}

// State is how far a step has come. It is also the kind of the line that records it.
type State string

// The states of a step. Claiming, Begun and Deleted are recorded before the action that follows them, the others after.
const (
	Planned State = "planned"
	// Claiming: the message may have a newer receipt, which is lost.
	Claiming State = "claiming"
	// Claimed: the run has the receipt.
	Claimed State = "claimed"
	// Begun: the next action may have been carried out: the put or, without one, the deletion or the change.
	Begun State = "begun"
	// Written: the message was put; the original may have been deleted.
	Written State = "written"
	// Deleted: the message was deleted; the last message may have been put.
	Deleted State = "deleted"
	Done    State = "done"
	Skipped State = "skipped"
)

// Progress is the recorded progress of one step.
type Progress struct {
	State State
	// Receipt is the newest known receipt of the message to take, which keeps it invisible until Until.
	Receipt string
	Until   time.Time
	// NewID and NewReceipt are of the message that was put at NewAt by storage's clock, or changed in place.
	NewID, NewReceipt string
	NewAt             time.Time
	// PossibleDuplicate says that the message was perhaps put twice, or is both where it was and where it was put.
	PossibleDuplicate bool
	// Unknown says of a skipped step that it is not known what became of the message. Why is why it was skipped.
	Unknown bool
	Why     string
}

// Unfinished reports whether the step still has to be carried out or completed.
func (p Progress) Unfinished() bool { return p.State != Done && p.State != Skipped }

// InBetween reports whether the step was begun and is not finished.
func (p Progress) InBetween() bool { return p.Unfinished() && p.State != Planned }

// The other kinds of lines.
const (
	kindRun = "run"
	kindGo  = "go"
	// kindReceived records a new receipt of a message on a queue that no function reads.
	kindReceived = "received"
	// kindBack records that storage has refused an action, so that a step is where it was before.
	kindBack   = "back"
	kindCanary = "canary"
	kindEnd    = "end"
	kindUndone = "undone"
)

// line holds the members of every kind of line, except for those that only a run or a step has.
type line struct {
	Is                string    `json:"is"`
	At                time.Time `json:"at,omitzero"`
	N                 *int      `json:"n,omitempty"`
	ID                string    `json:"id,omitempty"`
	Receipt           string    `json:"receipt,omitempty"`
	Until             time.Time `json:"until,omitzero"`
	PossibleDuplicate bool      `json:"twice,omitempty"`
	Unknown           bool      `json:"unknown,omitempty"`
	Why               string    `json:"why,omitempty"`
	// Take is of a planned step.
	Take *Take `json:"take,omitempty"`
}

// Journal is the journal of one run. It keeps the progress of each step in memory and the messages' texts on
// disk. The methods that concern a single step are safe for concurrent use.
type Journal struct {
	Run Run
	// Agreed is set when the user has confirmed the run, CanaryPassed when its first messages were delivered,
	// Ended when nothing is left to do, or will be done.
	Agreed, CanaryPassed, Ended bool
	// UndoneBy is the undo that was last about to change what the run has done; empty if there is none.
	UndoneBy string

	// held are the steps of a journal without a file.
	held []Step
	// lock keeps other processes from carrying out the run; nil in a journal that was opened to read.
	lock *flock.Flock

	mu      sync.Mutex
	file    *os.File
	size    int64
	steps   []Progress
	offsets []int64 // of the steps in the file
	synced  time.Time
	err     error
}

const (
	// maxLine exceeds a step with two texts of 64 KiB, each byte taking up to six in JSON.
	maxLine = 2 << 20
	// syncInterval is how often a running journal is forced to disk. Later lines survive the death of the process,
	// but not that of the machine.
	syncInterval = time.Second
)

// InMemory returns a journal without a file, for a few steps that need not be resumed. It numbers them, and need not be
// closed.
func InMemory(steps []Step) *Journal {
	j := &Journal{held: slices.Clone(steps)}
	for n := range j.held {
		j.held[n].N = n
		j.apply(line{Is: string(Planned), N: &n, Take: j.held[n].Take})
	}
	return j
}

// load reads the file of a run. It ignores lines that were cut off by a kill before the run was resumed. If the last
// line was cut off as well, it completes the line in a journal that is opened for writing. The error for a file that a
// person has changed names the line.
func (j *Journal) load(id string) error {
	reader := bufio.NewReaderSize(j.file, 64<<10)
	text, err := reader.ReadBytes('\n')
	for number := 1; err == nil; number++ {
		switch problem := j.read(id, text); {
		case errors.Is(problem, ErrVersion):
			return j.failed(problem)
		case problem != nil:
			return j.failed(fmt.Errorf("line %d: %w%s", number, problem, damaged))
		}
		j.size += int64(len(text))
		text, err = reader.ReadBytes('\n')
	}
	j.size += int64(len(text))
	switch {
	case !errors.Is(err, io.EOF):
		return j.failed(err)
	case j.Run.ID == "":
		return j.failed(fmt.Errorf("line 1: %w%s", errNoRunLine, damaged))
	case len(text) > 0 && j.lock != nil: // the next line starts a line of its own
		n, err := j.file.WriteString("\n")
		j.size += int64(n)
		return err
	}
	return nil
}

// damaged says what to do about a journal that somebody has changed.
const damaged = "; the file was edited or cut: restore it from a copy; without one, look for the messages of the run " +
	"with `async-caller calls list`"

var errNoRunLine = errors.New("not the journal of a run")

// read applies a line of the file.
func (j *Journal) read(id string, text []byte) error {
	text = bytes.TrimRight(text, "\r\n")
	var l line
	err := json.Unmarshal(text, &l)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok && syntax.Offset == int64(len(text)) {
		return nil // cut off
	}
	if err == nil && l.Is == kindRun && j.Run.ID == "" {
		err = json.Unmarshal(text, &j.Run)
		switch {
		case err == nil && j.Run.Version != version:
			return fmt.Errorf("%w (%d, not %d): use the version of async-caller that wrote it",
				ErrVersion, j.Run.Version, version)
		case err == nil && j.Run.ID != id:
			return fmt.Errorf("the journal is that of the run %.80q", j.Run.ID)
		}
		return err
	}
	if err == nil {
		err = j.check(l)
	}
	if err == nil {
		j.apply(l)
	}
	return err
}

// check returns why a line cannot follow the earlier ones. A later version may have lines of other kinds.
func (j *Journal) check(l line) error {
	switch {
	case j.Run.ID == "":
		return errNoRunLine
	case l.Is == kindRun:
		return errors.New("a second run")
	case l.Is == string(Planned) && (l.N == nil || *l.N != len(j.steps)):
		return fmt.Errorf("not the plan of step %d, which comes next", len(j.steps))
	case l.Is == string(Planned) && j.Agreed:
		return errors.New("a step that was planned after the confirmation")
	case slices.Contains(ofSteps, l.Is) && (l.N == nil || *l.N < 0 || *l.N >= len(j.steps)):
		return errors.New("a line of a step that was not planned")
	case l.Is == string(Written) && l.ID == "":
		return errors.New("a message that was written, without its id")
	}
	return nil
}

// ofSteps are the kinds of lines that follow the plan of a step.
var ofSteps = []string{
	kindReceived, kindBack, string(Claiming), string(Claimed), string(Begun), string(Written), string(Deleted),
	string(Done), string(Skipped),
}

func (j *Journal) failed(err error) error { return fmt.Errorf("journal %s: %w", j.file.Name(), err) }

// apply updates the journal's state for a line that starts at the end of the file, j.size.
func (j *Journal) apply(l line) {
	switch l.Is {
	case kindGo:
		j.Agreed = true
	case kindCanary:
		j.CanaryPassed = true
	case kindEnd:
		j.Ended = true
	case kindUndone:
		j.UndoneBy = l.ID
	case string(Planned):
		p := Progress{State: Planned}
		if l.Take != nil {
			p.Receipt, p.Until = l.Take.Receipt, l.Take.Until
		}
		j.steps = append(j.steps, p)
		j.offsets = append(j.offsets, j.size)
	default:
		if l.N != nil && *l.N < len(j.steps) {
			j.steps[*l.N].apply(l)
		}
	}
}

func (p *Progress) apply(l line) {
	state := State(l.Is)
	switch state {
	case kindReceived:
		p.Receipt, p.Until = l.Receipt, l.Until
		return
	case kindBack:
		state = Planned
	case Claimed:
		p.Receipt, p.Until = l.Receipt, l.Until
	case Begun:
		p.PossibleDuplicate = p.PossibleDuplicate || l.PossibleDuplicate
	case Written:
		p.NewID, p.NewReceipt, p.NewAt = l.ID, l.Receipt, l.At
		p.PossibleDuplicate = p.PossibleDuplicate || l.PossibleDuplicate
	case Skipped:
		p.Why, p.Unknown = l.Why, l.Unknown
	case Done:
		p.PossibleDuplicate = p.PossibleDuplicate || l.PossibleDuplicate
	case Claiming, Deleted, Planned:
	default:
		return // a later version's line
	}
	p.State = state
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
	if j.file == nil {
		return j.held[n], nil
	}
	var s Step
	err := json.NewDecoder(io.NewSectionReader(j.file, offset, maxLine)).Decode(&s)
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return Step{}, j.failed(fmt.Errorf("step %d in line %d: %w%s", n, j.lineAt(offset), err, damaged))
	}
	return s, nil
}

// check returns why a step cannot be carried out.
func (s Step) check() error {
	isMessage := s.Take == nil || s.Take.Queue != "" && s.Take.ID != ""
	hasQueues := (s.Put == nil || s.Put.Queue != "") && (s.Then == nil || s.Then.Queue != "")
	switch {
	case s.Take == nil && (s.Put == nil || s.Set != nil || s.Then != nil):
		return errors.New("it names no message")
	case !isMessage, !hasQueues:
		return errors.New("a message has no queue or no id")
	}
	return nil
}

// lineAt returns the number of the line that begins at an offset, from 1.
func (j *Journal) lineAt(offset int64) int {
	number := 1
	reader := bufio.NewReader(io.NewSectionReader(j.file, 0, offset))
	for {
		part, err := reader.ReadSlice('\n')
		number += bytes.Count(part, []byte("\n"))
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return number
		}
	}
}

// Progress returns the progress of a step.
func (j *Journal) Progress(n int) Progress {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.steps[n]
}

// Plan adds a step.
func (j *Journal) Plan(s Step) error {
	return j.write(line{Is: string(Planned), N: &s.N, Take: s.Take}, struct {
		Is string `json:"is"`
		Step
	}{string(Planned), s})
}

// Go records that the plan is complete and confirmed. It returns when the plan is on disk: before that,
// nothing may be changed.
func (j *Journal) Go() error { return j.record(line{Is: kindGo, At: now()}) }

// Received records that the message to take was received, with its new receipt and the end of its lease.
func (j *Journal) Received(n int, receipt string, until time.Time) error {
	return j.record(line{Is: kindReceived, N: &n, Receipt: receipt, Until: until})
}

// Enter records that a step enters a state without further details.
func (j *Journal) Enter(n int, state State) error { return j.record(line{Is: string(state), N: &n}) }

// Back records that storage has refused an action, and that the step has changed nothing.
func (j *Journal) Back(n int) error { return j.record(line{Is: kindBack, N: &n}) }

// Claimed records the receipt that claims the message until the given time.
func (j *Journal) Claimed(n int, receipt string, until time.Time) error {
	return j.record(line{Is: string(Claimed), N: &n, Receipt: receipt, Until: until})
}

// Begun records that the next action is carried out. PossibleDuplicate says that it was perhaps carried out before.
func (j *Journal) Begun(n int, twice bool) error {
	return j.record(line{Is: string(Begun), N: &n, PossibleDuplicate: twice})
}

// Written records the message that a step has put or changed, the time by storage's clock, and whether it was
// perhaps put twice.
func (j *Journal) Written(n int, id, receipt string, at time.Time, twice bool) error {
	return j.record(line{Is: string(Written), N: &n, ID: id, Receipt: receipt, At: at, PossibleDuplicate: twice})
}

// Done records that the step is done, and whether the message is perhaps in two places.
func (j *Journal) Done(n int, twice bool) error {
	return j.record(line{Is: string(Done), N: &n, PossibleDuplicate: twice})
}

// Skipped records that a step ends without being done, and why. Unknown says that it is not known what became of the
// message.
func (j *Journal) Skipped(n int, why string, unknown bool) error {
	return j.record(line{Is: string(Skipped), N: &n, Why: why, Unknown: unknown})
}

// Canary records that the first messages were delivered.
func (j *Journal) Canary() error { return j.record(line{Is: kindCanary, At: now()}) }

// End records that nothing is left to do, or will be done.
func (j *Journal) End() error { return j.record(line{Is: kindEnd, At: now()}) }

// Undone records that an undo of this run is about to begin. It returns when that is on disk.
func (j *Journal) Undone(by string) error { return j.record(line{Is: kindUndone, ID: by, At: now()}) }

// Close writes the file to disk and closes it.
func (j *Journal) Close() error {
	if j.lock == nil {
		return j.file.Close()
	}
	err := errors.Join(j.file.Sync(), j.file.Close())
	if j.Ended {
		return errors.Join(err, j.unlock())
	}
	return errors.Join(err, j.lock.Close())
}

// unlock removes the lock. It is removed while it is held, so that it is never that of another process. On Windows,
// which removes no file that a process has open, it is removed afterwards.
func (j *Journal) unlock() error {
	failure := os.Remove(j.lock.Path())
	err := j.lock.Close()
	if failure != nil {
		_ = os.Remove(j.lock.Path())
	}
	return err
}

// Discard removes the journal. It is removed while it is locked, so that no other process begins to resume the run.
func (j *Journal) Discard() error {
	_ = j.file.Close()
	err := os.Remove(j.file.Name())
	_ = j.unlock()
	return err
}

func (j *Journal) record(l line) error { return j.write(l, l) }

// write applies a line, whatever happens to the file: it describes what was done. It appends value, the line's
// printable JSON form. After an error it writes no more, because the last line may be incomplete.
func (j *Journal) write(l line, value any) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.apply(l)
	if j.err != nil || j.file == nil {
		return j.err
	}
	text, err := strictjson.Line(value)
	if err == nil {
		var n int
		n, err = j.file.Write(text)
		j.size += int64(n)
	}
	if err == nil && (l.Is == kindGo || l.Is == kindUndone || time.Since(j.synced) >= syncInterval) {
		j.synced = time.Now()
		err = j.file.Sync()
	}
	if err != nil {
		j.err = j.failed(err)
	}
	return j.err
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
