package logs

import (
	"io"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	// heldFor is how late a line may be: a person does not see it, and a SIGKILL loses no more than the
	// lines of that time.
	heldFor = 10 * time.Millisecond
	// maxHeld is how much waits at most: half of what a pipe takes at a time.
	maxHeld = 32 << 10
)

// Batch writes the lines of a busy handler many at a time: each write costs us a system call and wakes the
// Functions host. A line that comes 10 ms or more after the last write is written at once, and so is every
// line above info level, after those that wait; others wait for the rest of the 10 ms. It is safe for
// concurrent use. [Batch.Flush] it at the end.
type Batch struct {
	out io.Writer

	mu      sync.Mutex
	held    []byte
	written time.Time
	// later flushes; it is set while something is held.
	later *time.Timer
}

// NewBatch returns a batch of lines for out.
func NewBatch(out io.Writer) *Batch { return &Batch{out: out} }

// Write writes a line of no level at once.
func (b *Batch) Write(line []byte) (int, error) { return b.WriteLevel(zerolog.NoLevel, line) }

// WriteLevel writes a line, now or soon. The error may be that of a line before.
func (b *Batch) WriteLevel(level zerolog.Level, line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = append(b.held, line...)
	wait := heldFor - time.Since(b.written)
	if level > zerolog.InfoLevel || wait <= 0 || len(b.held) >= maxHeld {
		return len(line), b.flush()
	}
	if b.later == nil {
		b.later = time.AfterFunc(wait, func() { _ = b.Flush() }) // nobody could be told
	}
	return len(line), nil
}

// Flush writes what waits.
func (b *Batch) Flush() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flush()
}

func (b *Batch) flush() error {
	if b.later != nil {
		b.later.Stop()
		b.later = nil
	}
	if len(b.held) == 0 {
		return nil
	}
	_, err := b.out.Write(b.held)
	b.held, b.written = b.held[:0], time.Now()
	return err
}
