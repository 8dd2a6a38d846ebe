package host

import (
	"maps"
	"sync"

	"asynccaller/handler/internal/functionapp"
)

// Stats is what a [Host] has counted since its start.
type Stats struct {
	// HandlerStarts is how often the handler process was started: 1 and one more for each restart.
	HandlerStarts int
	// Functions has an entry for every function of the app, by name; those of timers only count their
	// invocations.
	Functions map[string]FunctionStats
}

// FunctionStats is what was counted for one function.
type FunctionStats struct {
	// Received is the number of messages received, those included that were not handed to the handler.
	Received int
	// Succeeded and Failed are the invocations by result. A message whose text mode binding fails
	// counts as failed, although the handler never sees it.
	Succeeded, Failed int
	// Poisoned is the number of messages moved to the poison queue.
	Poisoned int
	// MaxDequeueCount is the largest dequeue count seen on a message; 0 before the first.
	MaxDequeueCount int64
}

// counters is the live form of Stats, safe for concurrent use.
type counters struct {
	mu    sync.Mutex
	stats Stats
}

// newCounters starts at nothing for each function of the app, which may be missing.
func newCounters(app *functionapp.App) *counters {
	c := &counters{stats: Stats{Functions: map[string]FunctionStats{}}}
	if app == nil {
		return c
	}
	for _, fn := range app.Functions {
		c.stats.Functions[fn.Name] = FunctionStats{}
	}
	for _, timer := range app.Timers {
		c.stats.Functions[timer.Name] = FunctionStats{}
	}
	return c
}

func (c *counters) snapshot() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{HandlerStarts: c.stats.HandlerStarts, Functions: maps.Clone(c.stats.Functions)}
}

func (c *counters) handlerStarted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.HandlerStarts++
}

func (c *counters) count(function string, change func(*FunctionStats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stats := c.stats.Functions[function]
	change(&stats)
	c.stats.Functions[function] = stats
}

// countInvocation counts an invocation by its result; one that did not come about does not count.
func (c *counters) countInvocation(function string, out outcome) {
	c.count(function, func(s *FunctionStats) {
		switch out {
		case succeeded:
			s.Succeeded++
		case failedTry:
			s.Failed++
		case notInvoked:
		}
	})
}

func (h *Host) logStart(cmd command, port int) {
	listening := make([]string, len(h.options.App.Functions))
	for i, fn := range h.options.App.Functions {
		listening[i] = fn.Name + " <- " + fn.Queue
	}
	timers := make([]string, len(h.options.App.Timers))
	for i, timer := range h.options.App.Timers {
		timers[i] = timer.Name + " <- " + timer.Schedule.String()
	}
	h.options.Log.Info().Str("app", h.options.App.Dir).Str("handler", cmd.path).Int("port", port).
		Strs("listening", listening).Strs("timers", timers).Msg("host started")
}

// logSummary keeps timers out of the sums over messages: whoever compares sent with succeeded does not
// think of them.
func (h *Host) logSummary() {
	stats := h.Stats()
	var sum, timers FunctionStats
	for _, fn := range h.options.App.Functions {
		counted := stats.Functions[fn.Name]
		sum.Received += counted.Received
		sum.Succeeded += counted.Succeeded
		sum.Failed += counted.Failed
		sum.Poisoned += counted.Poisoned
		sum.MaxDequeueCount = max(sum.MaxDequeueCount, counted.MaxDequeueCount)
	}
	for _, timer := range h.options.App.Timers {
		timers.Succeeded += stats.Functions[timer.Name].Succeeded
		timers.Failed += stats.Functions[timer.Name].Failed
	}
	h.options.Log.Info().Int("received", sum.Received).Int("succeeded", sum.Succeeded).Int("failed", sum.Failed).
		Int("poisoned", sum.Poisoned).Int64("max_dequeue_count", sum.MaxDequeueCount).
		Int("timer_runs_succeeded", timers.Succeeded).Int("timer_runs_failed", timers.Failed).
		Int("handler_starts", stats.HandlerStarts).Msg("host stopped")
}
