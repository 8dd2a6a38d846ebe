package host

import (
	"maps"
	"sync"

	"asynccaller/handler/functionapp"
)

// Stats is what a [Host] has counted since its start.
type Stats struct {
	// HandlerStarts is how often the handler process was started: 1 and one more for each restart.
	HandlerStarts int
	// Functions has an entry for every function of the app, by name.
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

func newCounters(functions []functionapp.Function) *counters {
	c := &counters{stats: Stats{Functions: make(map[string]FunctionStats, len(functions))}}
	for _, fn := range functions {
		c.stats.Functions[fn.Name] = FunctionStats{}
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

func (h *Host) logStart(cmd command, port int) {
	listening := make([]string, len(h.options.App.Functions))
	for i, fn := range h.options.App.Functions {
		listening[i] = fn.Name + " <- " + fn.Queue
	}
	h.options.Log.Info().Str("app", h.options.App.Dir).Str("handler", cmd.path).Int("port", port).
		Strs("listening", listening).Msg("host started")
}

func (h *Host) logSummary() {
	stats := h.Stats()
	var sum FunctionStats
	for _, fn := range stats.Functions {
		sum.Received += fn.Received
		sum.Succeeded += fn.Succeeded
		sum.Failed += fn.Failed
		sum.Poisoned += fn.Poisoned
		sum.MaxDequeueCount = max(sum.MaxDequeueCount, fn.MaxDequeueCount)
	}
	h.options.Log.Info().Int("received", sum.Received).Int("succeeded", sum.Succeeded).Int("failed", sum.Failed).
		Int("poisoned", sum.Poisoned).Int64("max_dequeue_count", sum.MaxDequeueCount).
		Int("handler_starts", stats.HandlerStarts).Msg("host stopped")
}
