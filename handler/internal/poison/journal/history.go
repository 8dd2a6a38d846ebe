package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// State is how far a step has come.
type State int

// The states of a step.
const (
	Planned State = iota
	// Begun may or may not have written its message.
	Begun
	// Leaving writes no message, and may or may not have deleted the one that it takes.
	Leaving
	// Written has written its message; the one that it takes may still be there too.
	Written
	// Done has deleted what it takes.
	Done
	// Skipped is over without having been done.
	Skipped
)

// Progress is what the journal says of one step.
type Progress struct {
	State State
	// PopReceipt is the newest of the message that the step takes.
	PopReceipt string
	// NewID and NewPopReceipt are of the message that it wrote, at the moment WrittenAt by storage's clock.
	NewID, NewPopReceipt string
	WrittenAt            time.Time
	// Writes is how often a message may have been written.
	Writes int
	// Why is why it was skipped.
	Why string
}

// History is a journal that was read. It keeps the texts on the disk.
type History struct {
	Run Run
	// Agreed is false for a run that was never begun.
	Agreed bool
	// CanaryPassed says that the first messages were delivered; Ended that nothing is left to do.
	CanaryPassed, Ended bool
	// UndoneBy is the run that undoes this one, or empty.
	UndoneBy string
	// Latest is the time of the last line that has one.
	Latest time.Time
	Steps  []Progress

	file    *os.File
	offsets []int64
	torn    bool
}

// maxLine is more than a step with two texts of 64 KiB, each byte up to six in JSON.
const maxLine = 2 << 20

func read(path string) (*History, error) {
	file, err := os.Open(path) //nolint:gosec // in the operator's folder
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	h := &History{file: file}
	if err := h.scan(); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("journal %s: %w", path, err)
	}
	return h, nil
}

// scan reads line by line. What stands behind the last line break was cut off by a kill, and says nothing.
func (h *History) scan() error {
	reader := bufio.NewReaderSize(h.file, maxLine)
	for n, at := 1, int64(0); ; n++ {
		text, err := reader.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			h.torn = len(text) > 0
			break
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if len(bytes.TrimSpace(text)) > 0 {
			if err := h.line(text, at); err != nil && n == 1 {
				return fmt.Errorf("line %d: not the journal of a run: %w", n, err)
			}
		}
		at += int64(len(text))
	}
	if h.Run.ID == "" {
		return errors.New("it does not begin with a run")
	}
	return nil
}

// line takes in one line. One that cannot be read was cut off by a kill, and was followed by others when the
// run was resumed.
func (h *History) line(text []byte, at int64) error {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return err
	}
	if !l.At.IsZero() {
		h.Latest = l.At
	}
	switch l.Is {
	case kindRun:
		return json.Unmarshal(text, &h.Run)
	case kindGo:
		h.Agreed = true
	case kindCanary:
		h.CanaryPassed = true
	case kindUndone:
		h.UndoneBy = l.By
	case kindEnd:
		h.Ended = true
	case kindStep:
		if l.N == nil || *l.N != len(h.Steps) {
			return fmt.Errorf("want step %d", len(h.Steps))
		}
		h.Steps = append(h.Steps, Progress{PopReceipt: l.PopReceipt})
		h.offsets = append(h.offsets, at)
	default:
		h.progress(l)
	}
	return nil
}

func (h *History) progress(l line) {
	if l.N == nil || *l.N < 0 || *l.N >= len(h.Steps) {
		return
	}
	p := &h.Steps[*l.N]
	switch l.Is {
	case kindRenewed:
		p.PopReceipt = l.PopReceipt
	case kindBegun:
		p.State = Begun
		p.Writes++
	case kindLeaving:
		p.State = Leaving
	case kindWritten:
		p.State, p.NewID, p.NewPopReceipt, p.WrittenAt = Written, l.ID, l.PopReceipt, l.At
		p.Writes += max(l.Tries, 1) - 1
	case kindDeleted:
		p.State = Done
	case kindSkipped:
		p.State, p.Why = Skipped, l.Why
	}
}

// Step reads a step again, with its texts.
func (h *History) Step(n int) (Step, error) {
	reader := bufio.NewReader(io.NewSectionReader(h.file, h.offsets[n], maxLine))
	text, err := reader.ReadBytes('\n')
	if err != nil {
		return Step{}, fmt.Errorf("journal %s: step %d: %w", h.file.Name(), n, err)
	}
	var s Step
	if err := json.Unmarshal(text, &s); err != nil {
		return Step{}, fmt.Errorf("journal %s: step %d: %w", h.file.Name(), n, err)
	}
	return s, nil
}

// Counts is how many steps are in each state.
func (h *History) Counts() map[State]int {
	counts := make(map[State]int)
	for _, p := range h.Steps {
		counts[p.State]++
	}
	return counts
}

// Unfinished reports whether the run can be resumed.
func (h *History) Unfinished() bool { return h.Agreed && !h.Ended }

// Close closes the file.
func (h *History) Close() { _ = h.file.Close() } // nothing was written
