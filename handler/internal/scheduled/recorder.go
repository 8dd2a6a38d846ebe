package scheduled

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/logs"
	"asynccaller/handler/internal/queue"
)

const (
	// maxWaiting limits the memory of the changes that wait, in bytes; each takes changeBytes and its content.
	maxWaiting  = 4 << 20
	changeBytes = 1 << 10
	// maxBatch and maxBatchBytes limit the changes of one write. A table takes 100 rows of a queue at once.
	maxBatch      = 100
	maxBatchBytes = 1 << 20
	// gatherTime is how long a change waits for others to be written with it.
	gatherTime = time.Second
	// writeTimeout limits a write. A failed one is repeated once, after a pause that doubles until a write succeeds.
	writeTimeout = 10 * time.Second
	firstPause   = time.Second
	maxPause     = 30 * time.Second
	// closeTimeout is how long Close goes on writing.
	closeTimeout = 2 * time.Second
	// reportInterval is the interval between two log lines about changes that were not recorded.
	reportInterval = time.Minute
)

// Role is the role that an identity needs to use tables.
const Role = "Storage Table Data Contributor"

// Recorder writes the record of scheduled messages in the background. Its methods never wait: a change that finds no room,
// or cannot be written because the table is slow or away, is lost, counted, and logged once a minute. If the credential has
// no permission to use tables, the recorder logs that once and records nothing more. It is safe for concurrent use. A nil
// Recorder records nothing.
type Recorder struct {
	table Table
	route func(path string) string
	log   zerolog.Logger
	// wake has a value when a change waits. Stopping ends when Close is called, writing when Close gives up.
	wake           chan struct{}
	stopping       context.Context //nolint:containedctx // the life of the recorder, not of a call
	stop           context.CancelFunc
	done           chan struct{}
	pause          time.Duration
	writing        context.Context //nolint:containedctx // as above
	abandonWriting context.CancelFunc

	mu      sync.Mutex
	waiting []change
	bytes   int
	off     bool
	// lost counts the changes that were not recorded since the latest report, because of err if it is not nil.
	lost int
	err  error
}

// change is a row that is written, or removed.
type change struct {
	row    Row
	remove bool
	bytes  int
}

// NewRecorder returns a recorder that writes to the table. Route shortens the path of a call: see [Row]. The caller closes
// the recorder.
func NewRecorder(table Table, route func(path string) string, log zerolog.Logger) *Recorder {
	r := &Recorder{table: table, route: route, log: log, wake: make(chan struct{}, 1), done: make(chan struct{}), pause: firstPause}
	r.stopping, r.stop = context.WithCancel(context.Background())
	r.writing, r.abandonWriting = context.WithCancel(context.Background())
	go r.run()
	return r
}

// Scheduled records a message. The row's Route is the path of the call, unchanged.
func (r *Recorder) Scheduled(row Row) {
	r.add(change{row: row, bytes: changeBytes + len(row.Content) + len(row.Route)})
}

// Arrived removes a message from the record, because it was delivered again.
func (r *Recorder) Arrived(queueName, id string) {
	r.add(change{row: Row{Queue: queueName, ID: id}, remove: true, bytes: changeBytes})
}

func (r *Recorder) add(c change) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.off:
		return
	case r.bytes+c.bytes > maxWaiting:
		r.lost++
		return
	}
	r.waiting = append(r.waiting, c)
	r.bytes += c.bytes
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Close writes the changes that wait, for at most two seconds, and ends the recorder.
func (r *Recorder) Close() {
	if r == nil {
		return
	}
	r.stop()
	defer time.AfterFunc(closeTimeout, r.abandonWriting).Stop()
	<-r.done
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
			r.wait(gatherTime)
		}
		for b := r.take(); len(b) > 0; b = r.take() {
			r.write(b)
		}
	}
}

// wait waits unless the recorder is closed.
func (r *Recorder) wait(d time.Duration) {
	select {
	case <-r.stopping.Done():
	case <-time.After(d):
	}
}

// take removes the next changes of one queue from those that wait.
func (r *Recorder) take() []change {
	r.mu.Lock()
	defer r.mu.Unlock()
	var batch, rest []change
	size := 0
	for _, c := range r.waiting {
		if len(batch) == maxBatch || size > maxBatchBytes || len(batch) > 0 && c.row.Queue != batch[0].row.Queue {
			rest = append(rest, c)
			continue
		}
		batch = append(batch, c)
		size += c.bytes
	}
	r.waiting = rest
	r.bytes -= size
	return batch
}

// write writes changes of one queue. The latest change of a message counts.
func (r *Recorder) write(batch []change) {
	latest := map[string]int{}
	for i, c := range batch {
		latest[c.row.ID] = i
	}
	var rows []Row
	var removed []Key
	for i, c := range batch {
		switch {
		case latest[c.row.ID] != i:
		case c.remove:
			removed = append(removed, Key{ID: c.row.ID})
		default:
			c.row.Route = r.route(c.row.Route)
			rows = append(rows, c.row)
		}
	}
	err := r.change(batch[0].row.Queue, rows, removed)
	if err != nil && !errors.Is(err, queue.ErrRefused) && r.stopping.Err() == nil {
		r.wait(r.pause)
		r.pause = min(2*r.pause, maxPause)
		err = r.change(batch[0].row.Queue, rows, removed)
	}
	if err == nil {
		r.pause = firstPause
		return
	}
	err = r.Check(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost += len(batch) + len(r.waiting) // these are out of date when the table is back
	r.err, r.waiting, r.bytes = err, nil, 0
}

// Table returns the table, or nil if nothing is recorded.
func (r *Recorder) Table() Table {
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

// Check returns an error of the table, unless it means that the credential has no permission. Then the recorder logs it once,
// and ends.
func (r *Recorder) Check(err error) error {
	if !errors.Is(err, queue.ErrDenied) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.off {
		r.off = true
		r.log.Warn().Err(err).Msg("scheduled messages are not recorded until a restart: assign the role " + Role +
			" to the identity, or set ASYNC_CALLER_SCHEDULED=off; deliveries do not depend on it")
	}
	return nil
}

func (r *Recorder) change(queueName string, rows []Row, removed []Key) error {
	ctx, cancel := context.WithTimeout(r.writing, writeTimeout)
	defer cancel()
	var err error
	if len(rows) > 0 {
		err = r.table.Put(ctx, queueName, rows)
	}
	if len(removed) > 0 && err == nil {
		err = r.table.Delete(ctx, queueName, removed)
	}
	return err
}

// report logs how many changes were not recorded since the latest report.
func (r *Recorder) report() {
	r.mu.Lock()
	lost, err, off := r.lost, r.err, r.off
	r.lost, r.err = 0, nil
	r.mu.Unlock()
	if lost > 0 && !off {
		r.log.Warn().Err(err).Int(logs.Messages, lost).
			Msg("scheduled messages were not recorded in the last minute: the table is slow or away; deliveries do not depend on it")
	}
}
