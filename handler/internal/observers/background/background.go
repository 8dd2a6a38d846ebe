// Package background writes rows to a table of the storage account in the background, best effort, so that no message
// waits for it. It knows no row: the packages that put rows say what they mean.
package background

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/logs"
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
	// reportInterval is the interval between two log lines about changes that were not written.
	reportInterval = time.Minute
	// promptly is how long changes wait for others if an operator may be waiting for them.
	promptly = time.Second
)

const tablesSetting = "ASYNC_CALLER_TABLES"

// Limits of a writer in the handler: the memory that its changes may take while they wait, in bytes, and how long it
// may take to write the last of them when it is closed. The handler has little of both, because calls need the memory,
// and the host kills a handler that does not stop.
const (
	HandlerBytes = 512 << 10
	HandlerClose = 2 * time.Second
)

// Config says what a writer writes, and where.
type Config struct {
	Table storage.Table
	// Rows names the rows in the log, in the plural, and Setting the setting that ends them with off; empty means that
	// of all tables.
	Rows, Setting string
	// Bytes is the memory that changes may take while they wait.
	Bytes int
	// Gather is how long changes wait to be written together, unless they take half of the memory before; zero means a
	// second, because an operator may be waiting for them. A partition costs a transaction.
	Gather time.Duration
	Log    zerolog.Logger
}

// Writer writes and removes rows of one table. Its methods never wait: a change that finds no room, or cannot be
// written because the table is slow or away, is lost, counted, and logged once a minute. If the credential has no
// permission to use the table, the writer logs that once, and is off until a restart. It is safe for concurrent use. A
// nil Writer writes nothing.
type Writer struct {
	config Config
	// wake has a value when a change waits. Stopping ends when Close is called, writing when Close gives up.
	wake           chan struct{}
	stopping       context.Context //nolint:containedctx // the life of the writer, not of a call
	stop           context.CancelFunc
	writing        context.Context //nolint:containedctx // as above
	abandonWriting context.CancelFunc
	done           chan struct{}

	mu      sync.Mutex
	waiting []change
	bytes   int
	off     bool
	// lost counts the changes that were not written, reported those of them that the log has. Err is that of the latest
	// write that failed.
	lost, reported int
	err            error
}

// change is a row that is written, or removed.
type change struct {
	row  storage.Entity
	kind kind
}

// kind is what a change does.
type kind int

const (
	put kind = iota
	insert
	remove
)

func (c change) bytes() int {
	n := changeBytes + len(c.row.Partition) + len(c.row.ID) + len(c.row.Version)
	for _, value := range c.row.Values {
		text, _ := value.(string)
		large, _ := value.([]byte)
		n += valueBytes + len(text) + len(large)
	}
	return n
}

// New returns a writer. The caller closes it.
func New(c Config) *Writer {
	c.Setting, c.Gather = cmp.Or(c.Setting, tablesSetting), cmp.Or(c.Gather, promptly)
	w := &Writer{config: c, wake: make(chan struct{}, 1), done: make(chan struct{})}
	w.stopping, w.stop = context.WithCancel(context.Background())
	w.writing, w.abandonWriting = context.WithCancel(context.Background())
	go w.run()
	return w
}

// Put writes a row that [rows.Encode] takes. Of the changes of a row that wait, the latest counts.
func (w *Writer) Put(row any) { w.add(row, put) }

// Insert is like [Writer.Put], but leaves a row alone that is there already.
func (w *Writer) Insert(row any) { w.add(row, insert) }

// Remove removes the row of a key.
func (w *Writer) Remove(key storage.Key) { w.add(struct{ storage.Key }{key}, remove) }

// add adds the change of a row, whose texts may be small parts of a large message.
func (w *Writer) add(row any, kind kind) {
	if w == nil {
		return
	}
	entity, err := rows.Encode(row)
	c := change{entity, kind}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.off:
		return
	case err != nil || w.bytes+c.bytes() > w.config.Bytes:
		w.lost++
		w.err = cmp.Or(err, w.err)
		return
	}
	w.waiting = append(w.waiting, c)
	w.bytes += c.bytes()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Close writes the changes that wait, and ends the writer.
func (w *Writer) Close(timeout time.Duration) {
	if w == nil {
		return
	}
	w.stop()
	defer time.AfterFunc(timeout, w.abandonWriting).Stop()
	<-w.done
}

// Lost returns how many changes were lost since the start, and the error of the latest write that failed.
func (w *Writer) Lost() (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost, w.err
}

// run writes changes until the writer is closed.
func (w *Writer) run() {
	defer close(w.done)
	defer w.abandonWriting()
	defer w.report()
	tick := time.NewTicker(reportInterval)
	defer tick.Stop()
	for open := true; open; {
		select {
		case <-w.stopping.Done():
			open = false
		case <-tick.C:
			w.report()
			continue
		case <-w.wake:
			w.wait()
		}
		for b := w.take(); len(b) > 0; b = w.take() {
			w.write(b)
		}
	}
}

// wait waits until there are enough changes.
func (w *Writer) wait() {
	timeout := time.After(w.config.Gather)
	for {
		w.mu.Lock()
		full := w.bytes >= w.config.Bytes/2
		w.mu.Unlock()
		if full {
			return
		}
		select {
		case <-w.stopping.Done():
			return
		case <-timeout:
			return
		case <-w.wake:
		}
	}
}

// take removes the next changes of one partition from those that wait.
func (w *Writer) take() []change {
	w.mu.Lock()
	defer w.mu.Unlock()
	var batch []change
	rest, size := w.waiting[:0], 0
	for _, c := range w.waiting {
		full := len(batch) == maxBatch || size > maxBatchBytes
		if full || len(batch) > 0 && c.row.Partition != batch[0].row.Partition {
			rest = append(rest, c)
			continue
		}
		batch = append(batch, c)
		size += c.bytes()
	}
	clear(w.waiting[len(rest):])
	w.waiting = rest
	w.bytes -= size
	return batch
}

// write writes changes of one partition. If storage refuses some, the others are written. If the table does not answer,
// all changes are lost, and those that wait: they are out of date when the table is back.
func (w *Writer) write(batch []change) {
	ctx, cancel := context.WithTimeout(w.writing, writeTimeout)
	defer cancel()
	lost, err := len(batch), w.put(ctx, batch)
	if isRefusal(err) && len(batch) > 1 {
		lost, err = w.putEach(ctx, batch)
	}
	if err == nil {
		return
	}
	w.offIfDenied(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost += lost
	w.err = err
	if !isRefusal(err) {
		w.lost += len(w.waiting)
		w.waiting, w.bytes = nil, 0
	}
}

// isRefusal reports whether storage refuses rows, and does not refuse all rows because of the credential.
func isRefusal(err error) bool {
	return errors.Is(err, storage.ErrRefused) && !errors.Is(err, storage.ErrDenied)
}

// putEach writes one change after the other, in their order, until the table does not answer. It returns how many were
// lost, and the last error.
func (w *Writer) putEach(ctx context.Context, batch []change) (lost int, last error) {
	for i := range batch {
		err := w.put(ctx, batch[i:i+1])
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

// put writes changes of one partition. The latest change of a row counts.
func (w *Writer) put(ctx context.Context, batch []change) error {
	latest := map[string]change{}
	for _, c := range batch {
		latest[c.row.ID] = c
	}
	var written, inserted []storage.Entity
	var removed []storage.Key
	for _, c := range latest {
		switch c.kind {
		case put:
			written = append(written, c.row)
		case insert:
			inserted = append(inserted, c.row)
		case remove:
			removed = append(removed, c.row.Key)
		}
	}
	return storage.Persist(ctx, writeTimeout, func(ctx context.Context) (err error) {
		if len(written) > 0 {
			err = w.config.Table.Put(ctx, written)
		}
		if len(inserted) > 0 && err == nil {
			err = w.config.Table.Insert(ctx, inserted)
		}
		if len(removed) > 0 && err == nil {
			err = w.config.Table.Delete(ctx, removed)
		}
		return err
	}, storage.ErrRefused)
}

// Table returns the table, or nil if nothing is written to it.
func (w *Writer) Table() storage.Table {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.off {
		return nil
	}
	return w.config.Table
}

// Use does other work on the table, unless the writer is off. If the credential has no permission for it, the writer is
// off as well; that is no error.
func (w *Writer) Use(work func(storage.Table) error) error {
	table := w.Table()
	if table == nil {
		return nil
	}
	err := work(table)
	if w.offIfDenied(err) {
		return nil
	}
	return err
}

// offIfDenied turns the writer off, and logs it once, if an error of the table means that the credential has no
// permission.
func (w *Writer) offIfDenied(err error) bool {
	if !errors.Is(err, storage.ErrDenied) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.off {
		w.off = true
		w.config.Log.Warn().Err(err).Msg(w.config.Rows + " are not recorded until a restart: assign the role " +
			storage.TableRole + " to the identity, or set " + w.config.Setting + "=off; deliveries do not depend on it")
	}
	return true
}

// report logs how many changes were not written since the latest report.
func (w *Writer) report() {
	w.mu.Lock()
	lost, err, off := w.lost-w.reported, w.err, w.off
	w.reported = w.lost
	w.mu.Unlock()
	if lost > 0 && !off {
		w.config.Log.Warn().Err(err).Int(logs.Messages, lost).Msg(w.config.Rows + " were not recorded in the last " +
			"minute: the table is slow or away, or has refused them; deliveries do not depend on it")
	}
}
