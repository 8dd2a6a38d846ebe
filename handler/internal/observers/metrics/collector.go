package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/observers/background"
	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
)

// Collector counts the calls of an instance, and hands the row of each minute to a writer. It is safe for concurrent
// use. A nil Collector counts nothing.
type Collector struct {
	writer        *background.Writer
	app, instance string

	mu sync.Mutex
	// minute is that of current, and never goes back: a row of the same key would replace the first one.
	minute  time.Time
	current Interval
}

// NewWriter returns a writer of the numbers of calls.
func NewWriter(table storage.Table, bytes int, log zerolog.Logger) *background.Writer {
	return background.New(background.Config{
		Table: table, Rows: "calls per minute", Bytes: bytes, Log: log,
	})
}

// NewCollector returns a collector for an instance of an app. It writes while [Collector.Run] runs, and a last time in
// [Collector.Close].
func NewCollector(writer *background.Writer, app, instance string) *Collector {
	return &Collector{writer: writer, app: app, instance: instance}
}

// Observe implements [delivery.Observer]. It counts a call also if its message cannot be settled.
func (c *Collector) Observe(r *delivery.Report) func(context.Context, *delivery.Result) {
	if r.Verdict == nil {
		return nil
	}
	host := targets.Host(r.Intake.Envelope.Call.Target)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(r.World.Now)
	numbers := c.current.of(host)
	outcome := r.Verdict.Outcome
	switch {
	case outcome == nil:
		addReason(&numbers.Refused, string(r.Reason), 1)
		return nil
	case r.Outcome == decision.Delivered:
		numbers.Delivered++
	default:
		addReason(&numbers.Failed, string(r.Outcome), 1)
	}
	if record.IsOfTarget(outcome.Failure) {
		numbers.Durations.add(outcome.Took)
	}
	return nil
}

// advance writes the minute if it is over.
func (c *Collector) advance(now time.Time) {
	minute := now.UTC().Truncate(time.Minute)
	if !minute.After(c.minute) {
		return
	}
	c.write()
	c.minute = minute
}

// write hands what was counted to the writer, if anything happened.
func (c *Collector) write() {
	if c.current.isEmpty() {
		return
	}
	c.writer.Put(row{
		Key: minuteKey(c.app, c.instance, c.minute), Numbers: encode(&c.current, minuteHosts),
	})
	c.current = Interval{}
}

// Run writes each minute when it is over, until ctx ends.
func (c *Collector) Run(ctx context.Context) {
	for c != nil {
		now := time.Now()
		if !storage.Sleep(ctx, now.Truncate(time.Minute).Add(time.Minute).Sub(now)) {
			return
		}
		c.mu.Lock()
		c.advance(time.Now())
		c.mu.Unlock()
	}
}

// Close writes what was counted of the present minute, after the last call of Observe, and closes the writer.
func (c *Collector) Close(timeout time.Duration) {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.write()
	c.mu.Unlock()
	c.writer.Close(timeout)
}
