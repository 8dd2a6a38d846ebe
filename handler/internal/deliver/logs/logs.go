// Package logs makes the handler's logger and names the fields of its log lines.
package logs

import (
	"bytes"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/plain/strictjson"
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
	// TraceID is the same for all attempts at a call, its callback and its dead letter; SpanID is one delivery of a
	// message.
	TraceID      = "trace_id"
	SpanID       = "span_id"
	Attempt      = "attempt"
	TargetHost   = "target_host"
	MovedTo      = "moved_to"
	Action       = "action"
	Reason       = "reason"
	Detail       = "detail"
	Status       = "status"
	Delay        = "delay"
	NextAttempt  = "next_attempt_at"
	Reschedule   = "reschedule"
	Took         = "took"
	LeftOut      = "left_out"
	RetryLimited = "retry_limited"
	// DeadlineLimited is the deadline that applies instead of a later one.
	DeadlineLimited = "deadline_limited"
	Ignored         = "ignored"
	Stack           = "stack"
	Account         = "account"
	// Failures are those in a row that opened a circuit breaker, Down is how long its target has been down.
	Failures = "failures"
	Down     = "down"
	// Messages is the number of messages that a line is about.
	Messages = "messages"
	// Depth is the approximate number of messages of a queue, Scheduled that of its scheduled messages, Poison that of
	// its poison queue. Oldest is when its oldest call was created, Age how long ago that was. On the line about a
	// message that ends, Age is how long its delivery took.
	Depth     = "depth"
	Scheduled = "scheduled"
	Poison    = "poison"
	Oldest    = "oldest"
	Age       = "age"
	// Credential is the name of a credential of targets.json.
	Credential = "credential"
	// Certificate is the name of a client certificate, and CertificateDays the whole days until it ends.
	Certificate     = "certificate"
	CertificateDays = "certificate_days"
	// Key is the name of the key with which a sender has posted, and Posts the number of posts that a line is about.
	Key   = "key"
	Posts = "posts"
	// Dropped is the number of lines that are missing before this one.
	Dropped = "dropped"
)

// Millis returns a duration as all lines of the log have it: in whole milliseconds. [zerolog.Event.Dur] writes
// fractions.
func Millis(d time.Duration) int64 { return d.Round(time.Millisecond).Milliseconds() }

// Panic is the cause of a panic. As fields of a line that is written where the panic is recovered, it has the stack.
type Panic struct{ Cause any }

// MarshalZerologObject adds the fields.
func (p Panic) MarshalZerologObject(event *zerolog.Event) {
	event.Str("panic", fmt.Sprint(p.Cause)).Str(Stack, string(debug.Stack()))
}

// New returns a logger that writes each event as one line of JSON, in which every character is printable.
func New(out io.Writer, level zerolog.Level) zerolog.Logger {
	lines, ok := out.(zerolog.LevelWriter)
	if !ok {
		lines = zerolog.LevelWriterAdapter{Writer: out}
	}
	return zerolog.New(zerolog.SyncWriter(printable{lines})).Level(level).With().Timestamp().Logger()
}

// printable escapes the characters of a line that a terminal would obey or that a person cannot see: a sender chooses
// some texts of the log. zerolog itself escapes those of ASCII.
type printable struct{ zerolog.LevelWriter }

// WriteLevel writes a line.
func (p printable) WriteLevel(level zerolog.Level, line []byte) (int, error) {
	var all byte
	for _, c := range line {
		all |= c
	}
	if all < utf8.RuneSelf {
		return p.LevelWriter.WriteLevel(level, line)
	}
	_, err := p.LevelWriter.WriteLevel(level, strictjson.EscapeUnprintable(line))
	return len(line), err
}

const (
	// maxHold is how late a line may be: a person does not notice it, and SIGKILL loses at most the lines of that time.
	maxHold = 10 * time.Millisecond
	// writeBytes is half of the capacity of a pipe: so many bytes do not wait for maxHold.
	writeBytes = 32 << 10
	// maxHeldBytes bounds the lines that wait for a slow reader: those of some seconds. The last errorBytes of it are
	// for lines above level info.
	maxHeldBytes = 1 << 20
	errorBytes   = maxHeldBytes / 4
	// closeLimit is how long Close waits for a reader.
	closeLimit = time.Second
)

// Batch writes the lines of a busy handler several at a time: each write costs a system call and wakes the Functions
// host. It writes a line at once if the last write was 10 ms ago, or if its level is above info; other lines wait for
// the rest of the 10 ms.
//
// Its methods never wait for the reader of the lines. If nobody reads, it holds 1 MiB of lines and drops the others.
// When it can write again, it writes a line with their number. It is safe for concurrent use. Call [Batch.Close] at the
// end.
type Batch struct {
	out io.Writer
	// waiting receives a value when the first line is held, now when the held lines must not wait for maxHold.
	waiting, now chan struct{}
	done         chan struct{}

	mu     sync.Mutex
	held   []byte
	closed bool
	// dropped is the number of lines that were not written and not reported.
	dropped int
}

// NewBatch returns a batch that writes to out.
func NewBatch(out io.Writer) *Batch {
	b := &Batch{out: out, waiting: make(chan struct{}, 1), now: make(chan struct{}, 1), done: make(chan struct{})}
	go b.run()
	return b
}

// Write adds a line without a level, which is written at once.
func (b *Batch) Write(line []byte) (int, error) { return b.WriteLevel(zerolog.NoLevel, line) }

// WriteLevel adds a line or, if there is no room for it, drops it. It never returns an error.
func (b *Batch) WriteLevel(level zerolog.Level, line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	room := maxHeldBytes - len(b.held)
	if level <= zerolog.InfoLevel {
		room -= errorBytes
	}
	if b.closed || len(line) > room {
		b.dropped++
		return len(line), nil
	}
	if len(b.held) == 0 {
		b.waiting <- struct{}{} // it has room: run has received the value for the lines before
	}
	b.held = append(b.held, line...)
	if level > zerolog.InfoLevel || len(b.held) >= writeBytes {
		select {
		case b.now <- struct{}{}:
		default:
		}
	}
	return len(line), nil
}

// Close writes the lines that are held and ends the batch, which drops later lines. If nobody reads, it gives up after
// a second, and the lines are lost.
func (b *Batch) Close() {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.waiting)
		close(b.now)
	}
	b.mu.Unlock()
	select {
	case <-b.done:
	case <-time.After(closeLimit):
	}
}

// run writes the held lines, until the batch is closed.
func (b *Batch) run() {
	defer close(b.done)
	var spare []byte
	for range b.waiting {
		spare = b.write(spare)
		select {
		case <-b.now:
		case <-time.After(maxHold):
		}
	}
}

// write writes the held lines. Spare is an empty buffer for the next lines; write returns the next spare.
func (b *Batch) write(spare []byte) []byte {
	b.mu.Lock()
	lines, dropped := b.held, b.dropped
	b.held, b.dropped = spare, 0
	select {
	case <-b.now:
	default:
	}
	b.mu.Unlock()
	if dropped > 0 {
		report := bytes.NewBuffer(lines)
		log := New(report, zerolog.ErrorLevel)
		log.Error().Int(Dropped, dropped).Msg("log lines were dropped: standard output was not read in time")
		lines = report.Bytes()
	}
	if n, err := b.out.Write(lines); err != nil {
		b.mu.Lock()
		b.dropped += bytes.Count(lines[n:], []byte("\n"))
		if dropped > 0 {
			b.dropped += dropped - 1 // the report itself is no loss
		}
		b.mu.Unlock()
	}
	if cap(lines) > 4*writeBytes {
		return nil // the buffer grew for a slow reader: free it
	}
	return lines[:0]
}
