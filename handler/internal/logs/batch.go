package logs

import (
	"io"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const (
	// maxHold is how late a line may be: a person does not notice it, and SIGKILL loses at most the lines of that time.
	maxHold = 10 * time.Millisecond
	// maxHeldBytes is half of the capacity of a pipe.
	maxHeldBytes = 32 << 10
)

// Batch writes the lines of a busy handler several at a time: each write costs a system call and wakes the Functions host.
// Without it calls of 1 KiB do not reach 0.60 of a bare forwarder's rate (docs/performance.md). It writes a line at once if
// the last write was 10 ms ago, or if its level is above info; other lines wait for the rest of the 10 ms. It is safe for
// concurrent use. Call [Batch.Flush] at the end.
type Batch struct {
	out io.Writer

	mu      sync.Mutex
	held    []byte
	written time.Time
	// flusher calls Flush; it is nil if no line is held.
	flusher *time.Timer
}

// NewBatch returns a batch that writes to out.
func NewBatch(out io.Writer) *Batch { return &Batch{out: out} }

// Write writes a line without a level at once.
func (b *Batch) Write(line []byte) (int, error) { return b.WriteLevel(zerolog.NoLevel, line) }

// WriteLevel writes a line, now or within 10 ms. The error may be that of an earlier line.
func (b *Batch) WriteLevel(level zerolog.Level, line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = append(b.held, line...)
	wait := maxHold - time.Since(b.written)
	if level > zerolog.InfoLevel || wait <= 0 || len(b.held) >= maxHeldBytes {
		return len(line), b.flush()
	}
	if b.flusher == nil {
		b.flusher = time.AfterFunc(wait, func() { _ = b.Flush() }) // an error has no reader
	}
	return len(line), nil
}

// Flush writes the lines that are held.
func (b *Batch) Flush() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flush()
}

func (b *Batch) flush() error {
	if b.flusher != nil {
		b.flusher.Stop()
		b.flusher = nil
	}
	if len(b.held) == 0 {
		return nil
	}
	_, err := b.out.Write(b.held)
	b.held, b.written = b.held[:0], time.Now()
	return err
}
