// Package logs makes the handler's logger and names the fields of its log lines.
package logs

import (
	"bytes"
	"io"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Names of fields. Operators' queries rely on them.
const (
	InvocationID = "invocation_id"
	Function     = "function"
	Queue        = "queue"
	MessageID    = "message_id"
	DequeueCount = "dequeue_count"
	RequestID    = "request_id"
	// OriginalID is the request that a Nexus callback reports about.
	OriginalID   = "original_request_id"
	Organization = "organization"
	Environment  = "environment"
	// CorrelationID is the call's header X-Correlation-ID.
	CorrelationID = "correlation_id"
	Attempt       = "attempt"
	TargetHost    = "target_host"
	Action        = "action"
	Reason        = "reason"
	Detail        = "detail"
	Status        = "status"
	Delay         = "delay"
	NextAttempt   = "next_attempt_at"
	Reschedule    = "reschedule"
	Took          = "took"
	LeftOut       = "left_out"
	RetryLimited  = "retry_limited"
	// DeadlineLimited is the deadline that applies instead of a later one.
	DeadlineLimited = "deadline_limited"
	Ignored         = "ignored"
	Stack           = "stack"
)

// New returns a logger that writes each event as one line of JSON. Durations are in milliseconds.
func New(out io.Writer, level zerolog.Level) zerolog.Logger {
	return zerolog.New(zerolog.SyncWriter(out)).Level(level).With().Timestamp().Logger()
}

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

// maxLine is the number of bytes of an unfinished line that a readable writer holds back.
const maxLine = 64 << 10

// Readable returns a writer for people: it writes lines of JSON as text and all other lines unchanged. It is not
// safe for concurrent use.
func Readable(out io.Writer) io.Writer {
	return &readable{out: out, console: zerolog.ConsoleWriter{Out: out, TimeFormat: time.TimeOnly}}
}

type readable struct {
	out     io.Writer
	console zerolog.ConsoleWriter
	// pending is the beginning of an unfinished line.
	pending []byte
}

// Write ignores errors of out: the reader sees that output is missing.
func (r *readable) Write(p []byte) (int, error) {
	r.pending = append(r.pending, p...)
	for {
		end := bytes.IndexByte(r.pending, '\n') + 1
		if end == 0 && len(r.pending) > maxLine {
			end = len(r.pending)
		}
		if end == 0 {
			return len(p), nil
		}
		r.writeLine(r.pending[:end])
		r.pending = append(r.pending[:0], r.pending[end:]...)
	}
}

func (r *readable) writeLine(line []byte) {
	if line[0] == '{' {
		if _, err := r.console.Write(line); err == nil {
			return
		}
	}
	_, _ = r.out.Write(line)
}
