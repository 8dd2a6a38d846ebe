package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/delivery"
	"asynccaller/handler/internal/record"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

const (
	// maxWaiting limits the minutes that wait while the table is slow or away.
	maxWaiting = 10
	// writeTimeout limits the writes that are made at the end of a minute.
	writeTimeout = 10 * time.Second
)

// Collector counts the calls of an instance, and writes the row of each minute. Its methods never wait for the table,
// but for Run and Close. It is safe for concurrent use. A nil Collector counts nothing.
type Collector struct {
	table         storage.Table
	app, instance string
	// scheduled is the recorder of the account: without permission to use tables, neither writes.
	scheduled *record.Recorder
	log       zerolog.Logger

	mu sync.Mutex
	// minute is that of current, and never goes back: a row of the same key would replace the first one.
	minute  time.Time
	current Interval
	// waiting are the rows of minutes that are over. Lost counts those that were given up since the log last said so.
	waiting []row
	lost    int
}

// NewCollector returns a collector for an instance of an app. The rows are written while [Collector.Run] runs, and by
// [Collector.Close].
func NewCollector(
	table storage.Table, app, instance string, scheduled *record.Recorder, log zerolog.Logger,
) *Collector {
	return &Collector{table: table, app: app, instance: instance, scheduled: scheduled, log: log}
}

// Observe implements [delivery.Observer]. It counts a call also if its message cannot be settled.
func (c *Collector) Observe(r *delivery.Report) func(context.Context, *delivery.Result) {
	if r.Verdict == nil {
		return nil
	}
	host := r.Intake.Envelope.Call.Target.Host
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(r.World.Now)
	numbers := c.current.Hosts[host]
	if numbers == nil {
		numbers = c.current.of(record.RowHost(host))
	}
	outcome := r.Verdict.Outcome
	switch {
	case outcome == nil:
		addReason(&numbers.Refused, string(r.Reason), 1)
		return nil
	case r.Outcome == decision.Delivered:
		numbers.Delivered = sum(numbers.Delivered, 1)
	default:
		addReason(&numbers.Failed, string(r.Outcome), 1)
	}
	if record.IsOfTarget(outcome.Failure) {
		numbers.Durations.add(outcome.Took)
	}
	return nil
}

// advance finishes the minute if it is over.
func (c *Collector) advance(now time.Time) {
	minute := now.UTC().Truncate(time.Minute)
	if !minute.After(c.minute) {
		return
	}
	c.finish()
	c.minute = minute
}

// finish moves what was counted to the minutes that wait.
func (c *Collector) finish() {
	if c.current.isEmpty() {
		return
	}
	c.waiting = append(c.waiting, row{
		Key: minuteKey(c.app, c.instance, c.minute), Numbers: encode(&c.current, minuteHosts),
	})
	c.current = Interval{}
	if len(c.waiting) > maxWaiting {
		c.waiting = c.waiting[1:]
		c.lost++
	}
}

// Run writes the row of each minute when it is over, until ctx ends.
func (c *Collector) Run(ctx context.Context) {
	for c != nil && c.scheduled.Table() != nil {
		now := time.Now()
		if !storage.Sleep(ctx, now.Truncate(time.Minute).Add(time.Minute).Sub(now)) {
			return
		}
		c.mu.Lock()
		c.advance(time.Now())
		c.mu.Unlock()
		c.write(ctx, writeTimeout)
	}
}

// Close writes what was counted since the last row, after the last call of Observe.
func (c *Collector) Close(timeout time.Duration) {
	if c == nil || c.scheduled.Table() == nil {
		return
	}
	c.mu.Lock()
	c.finish()
	c.mu.Unlock()
	c.write(context.Background(), timeout)
}

// write writes the rows that wait. What cannot be written is tried again a minute later.
func (c *Collector) write(ctx context.Context, timeout time.Duration) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var err error
	for next, isAny := c.next(); isAny && err == nil; next, isAny = c.next() {
		err = storage.Persist(limited, timeout, func(ctx context.Context) error {
			return rows.Put(ctx, c.table, next)
		}, storage.ErrRefused)
		if err == nil {
			c.written(next)
		}
	}
	err = c.scheduled.Check(err)
	c.mu.Lock()
	lost := c.lost
	c.lost = 0
	c.mu.Unlock()
	if lost > 0 {
		c.log.Warn().Err(err).Int("minutes", lost).Msg("numbers per minute were not written: the table is slow or " +
			"away, or has refused them; deliveries do not depend on it")
	}
}

// next returns the oldest row that waits.
func (c *Collector) next() (next row, isAny bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		return row{}, false
	}
	return c.waiting[0], true
}

// written removes a row from those that wait, unless it was given up meanwhile.
func (c *Collector) written(r row) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) > 0 && c.waiting[0].Key == r.Key {
		c.waiting = c.waiting[1:]
	}
}
