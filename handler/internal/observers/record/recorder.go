// Package record writes, in the background and best effort, rows about messages to tables of the storage account. The
// rows of scheduled messages describe the messages that wait for their next attempt: they are invisible on their queue,
// and no operation of Queue Storage lists them. Rows can be missing, and the message of a row can be gone. The record
// never decides what happens to a message. A second table has each [Outcome] of the messages whose sender wants to know
// it.
package record

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/plain/fold"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

const (
	// changeBytes is the memory that a change takes beside its values, and valueBytes that of a value beside its text.
	changeBytes = 192
	valueBytes  = 72
	// maxBatch and maxBatchBytes limit the changes of one write. A table takes 100 rows of a partition at once.
	maxBatch      = 100
	maxBatchBytes = 128 << 10
	// writeTimeout limits a write and its repetitions.
	writeTimeout = 10 * time.Second
	// reportInterval is the interval between two log lines about changes that were not recorded.
	reportInterval = time.Minute
)

// Limits of a recorder: the memory that its changes may take while they wait, in bytes, and how long it may take to
// write the last of them when it is closed. The handler has little of both, because calls need the memory, and the host
// kills a handler that does not stop.
const (
	HandlerBytes = 512 << 10
	HandlerClose = 2 * time.Second
	RunBytes     = 32 << 20
	RunClose     = 30 * time.Second
)

// The memory that the rows of the history may take while they wait: for the table of the present month, and for one of
// the past.
const (
	HistoryBytes     = 2 << 20
	PastHistoryBytes = 64 << 10
)

// atOnce writes rows promptly, because an operator may be waiting for them.
var atOnce = gather{time.Second, maxBatch, maxBatchBytes}

// Recorder writes the record of scheduled messages, or outcomes, in the background. Its methods never wait: a change
// that finds no room, or cannot be written because the table is slow or away, is lost, counted, and logged once a
// minute. If the credential has no permission to use tables, the recorder logs that once and records nothing more. It
// is safe for concurrent use. A nil Recorder records nothing.
type Recorder struct {
	table storage.Table
	limit int
	// gather says when the changes that wait are written.
	gather gather
	texts  texts
	log    zerolog.Logger
	// wake has a value when a change waits. Stopping ends when Close is called, writing when Close gives up.
	wake           chan struct{}
	stopping       context.Context //nolint:containedctx // the life of the recorder, not of a call
	stop           context.CancelFunc
	writing        context.Context //nolint:containedctx // as above
	abandonWriting context.CancelFunc
	done           chan struct{}

	mu      sync.Mutex
	waiting []change
	bytes   int
	off     bool
	// lost counts the changes that were not recorded, reported those of them that the log has. Err is that of the
	// latest write that failed.
	lost, reported int
	err            error
}

// gather limits how long changes wait to be written together: for a time, or until there are enough rows or bytes.
type gather struct {
	time        time.Duration
	rows, bytes int
}

// texts are the lines of the log: that nothing is recorded without permission, and that changes were lost.
type texts struct{ off, lost string }

const (
	offAdvice = " until a restart: assign the role " + storage.TableRole +
		" to the identity, or set ASYNC_CALLER_SCHEDULED=off; deliveries do not depend on it"
	lostAdvice = ": the table is slow or away, or has refused them; deliveries do not depend on it"
)

// change is a row that is written, or removed.
type change struct {
	row    storage.Entity
	remove bool
}

func (c change) bytes() int {
	n := changeBytes + len(c.row.Partition) + len(c.row.ID) + len(c.row.Version)
	for _, value := range c.row.Values {
		text, _ := value.(string)
		large, _ := value.([]byte)
		n += valueBytes + len(text) + len(large)
	}
	return n
}

// NewRecorder returns a recorder that writes to the table. Limit is the memory in bytes that the changes may take while
// they wait. The caller closes the recorder.
func NewRecorder(table storage.Table, limit int, log zerolog.Logger) *Recorder {
	return newRecorder(table, limit, atOnce, texts{
		off:  "scheduled messages are not recorded" + offAdvice,
		lost: "scheduled messages were not recorded in the last minute" + lostAdvice,
	}, log)
}

// NewOutcomeRecorder returns a recorder of outcomes. It is not that of scheduled messages, so that a sender who invents
// tokens of runs cannot take its room.
func NewOutcomeRecorder(table storage.Table, limit int, log zerolog.Logger) *Recorder {
	return newRecorder(table, limit, atOnce, texts{
		off:  "outcomes of messages of runs are not recorded" + offAdvice,
		lost: "outcomes of messages of runs were not recorded in the last minute" + lostAdvice,
	}, log)
}

// NewMetricsRecorder returns a recorder of the numbers of calls.
func NewMetricsRecorder(table storage.Table, limit int, log zerolog.Logger) *Recorder {
	return newRecorder(table, limit, atOnce, texts{
		off:  "calls per minute are not recorded" + offAdvice,
		lost: "calls per minute were not recorded in the last minute" + lostAdvice,
	}, log)
}

// NewHistoryRecorder returns a recorder of how calls ended. It waits for many rows of each partition, because a
// partition costs a transaction.
func NewHistoryRecorder(table storage.Table, limit int, log zerolog.Logger) *Recorder {
	return newRecorder(table, limit, gather{5 * time.Second, math.MaxInt, limit / 2}, texts{
		off:  "the history is not recorded" + strings.ReplaceAll(offAdvice, "SCHEDULED", "HISTORY"),
		lost: "ends of calls were not recorded in the last minute" + lostAdvice,
	}, log)
}

func newRecorder(table storage.Table, limit int, together gather, lines texts, log zerolog.Logger) *Recorder {
	r := &Recorder{
		table: table, limit: limit, gather: together, texts: lines, log: log,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	r.stopping, r.stop = context.WithCancel(context.Background())
	r.writing, r.abandonWriting = context.WithCancel(context.Background())
	go r.run()
	return r
}

// Scheduled records a message. The row's PathPattern is the path of the call, which the recorder folds.
func (r *Recorder) Scheduled(row Scheduled) {
	if r != nil {
		row.PathPattern = fold.Path(rows.Text(row.PathPattern))
		r.add(row, false)
	}
}

// Write records a row that [rows.Encode] takes.
func (r *Recorder) Write(row any) { r.add(row, false) }

// Outcome records what became of a message of a run.
func (r *Recorder) Outcome(o Outcome) {
	o.Key = o.key()
	r.add(o, false)
}

// Gone removes the row of a message from the record, because the message was delivered again or deleted.
func (r *Recorder) Gone(key storage.Key) { r.add(struct{ storage.Key }{key}, true) }

// add adds the change of a row, whose texts may be small parts of a large message.
func (r *Recorder) add(row any, remove bool) {
	if r == nil {
		return
	}
	entity, err := rows.Encode(row)
	c := change{entity, remove}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.off:
		return
	case err != nil || r.bytes+c.bytes() > r.limit:
		r.lost++
		r.err = cmp.Or(err, r.err)
		return
	}
	r.waiting = append(r.waiting, c)
	r.bytes += c.bytes()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Close writes the changes that wait, and ends the recorder.
func (r *Recorder) Close(timeout time.Duration) {
	if r == nil {
		return
	}
	r.stop()
	defer time.AfterFunc(timeout, r.abandonWriting).Stop()
	<-r.done
}

// Lost returns how many changes were lost since the start, and the error of the latest write that failed.
func (r *Recorder) Lost() (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost, r.err
}

// run writes changes until the recorder is closed.
func (r *Recorder) run() {
	defer close(r.done)
	defer r.abandonWriting()
	defer r.report()
	tick := time.NewTicker(reportInterval)
	defer tick.Stop()
	for open := true; open; {
		select {
		case <-r.stopping.Done():
			open = false
		case <-tick.C:
			r.report()
			continue
		case <-r.wake:
			r.wait()
		}
		for b := r.take(); len(b) > 0; b = r.take() {
			r.write(b)
		}
	}
}

// wait waits until there are enough changes.
func (r *Recorder) wait() {
	timeout := time.After(r.gather.time)
	for {
		r.mu.Lock()
		full := len(r.waiting) >= r.gather.rows || r.bytes >= r.gather.bytes
		r.mu.Unlock()
		if full {
			return
		}
		select {
		case <-r.stopping.Done():
			return
		case <-timeout:
			return
		case <-r.wake:
		}
	}
}

// take removes the next changes of one partition from those that wait.
func (r *Recorder) take() []change {
	r.mu.Lock()
	defer r.mu.Unlock()
	var batch []change
	rest, size := r.waiting[:0], 0
	for _, c := range r.waiting {
		full := len(batch) == maxBatch || size > maxBatchBytes
		if full || len(batch) > 0 && c.row.Partition != batch[0].row.Partition {
			rest = append(rest, c)
			continue
		}
		batch = append(batch, c)
		size += c.bytes()
	}
	clear(r.waiting[len(rest):])
	r.waiting = rest
	r.bytes -= size
	return batch
}

// write writes changes of one partition. If storage refuses some, the others are written. If the table does not answer,
// all changes are lost, and those that wait: they are out of date when the table is back.
func (r *Recorder) write(batch []change) {
	ctx, cancel := context.WithTimeout(r.writing, writeTimeout)
	defer cancel()
	lost, err := len(batch), r.put(ctx, batch)
	if isRefusal(err) && len(batch) > 1 {
		lost, err = r.putEach(ctx, batch)
	}
	if err == nil {
		return
	}
	_ = r.Check(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost += lost
	r.err = err
	if !isRefusal(err) {
		r.lost += len(r.waiting)
		r.waiting, r.bytes = nil, 0
	}
}

// isRefusal reports whether storage refuses rows, and does not refuse all rows because of the credential.
func isRefusal(err error) bool {
	return errors.Is(err, storage.ErrRefused) && !errors.Is(err, storage.ErrDenied)
}

// putEach writes one change after the other, in their order, until the table does not answer. It returns how many were
// lost, and the last error.
func (r *Recorder) putEach(ctx context.Context, batch []change) (lost int, last error) {
	for i := range batch {
		err := r.put(ctx, batch[i:i+1])
		switch {
		case err == nil:
			continue
		case !isRefusal(err):
			return lost + len(batch) - i, err
		}
		lost++
		last = err
	}
	return lost, last
}

// put writes changes of one partition. The latest change of a message counts.
func (r *Recorder) put(ctx context.Context, batch []change) error {
	latest := map[string]change{}
	for _, c := range batch {
		latest[c.row.ID] = c
	}
	var written []storage.Entity
	var removed []storage.Key
	for _, c := range latest {
		if c.remove {
			removed = append(removed, c.row.Key)
		} else {
			written = append(written, c.row)
		}
	}
	return storage.Persist(ctx, writeTimeout, func(ctx context.Context) (err error) {
		if len(written) > 0 {
			err = r.table.Put(ctx, written)
		}
		if len(removed) > 0 && err == nil {
			err = r.table.Delete(ctx, removed)
		}
		return err
	}, storage.ErrRefused)
}

// Table returns the table, or nil if nothing is recorded.
func (r *Recorder) Table() storage.Table {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.off {
		return nil
	}
	return r.table
}

// Check returns an error of the table, unless it means that the credential has no permission. Then the recorder logs it
// once, and ends.
func (r *Recorder) Check(err error) error {
	if !errors.Is(err, storage.ErrDenied) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.off {
		r.off = true
		r.log.Warn().Err(err).Msg(r.texts.off)
	}
	return nil
}

// report logs how many changes were not recorded since the latest report.
func (r *Recorder) report() {
	r.mu.Lock()
	lost, err, off := r.lost-r.reported, r.err, r.off
	r.reported = r.lost
	r.mu.Unlock()
	if lost > 0 && !off {
		r.log.Warn().Err(err).Int(logs.Messages, lost).Msg(r.texts.lost)
	}
}
