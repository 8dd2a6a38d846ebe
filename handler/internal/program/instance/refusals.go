package instance

import (
	"cmp"
	"context"
	"sync"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/logs"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
)

// Refusals observes how many messages for each target are rescheduled without a call, because it is down or a limit is
// reached. The log has a line about each once a minute. The zero value has counted none.
type Refusals struct {
	mu     sync.Mutex
	counts map[Refusal]int
}

// Refusal is what messages have in common that are refused. Target is in the form of [targets.Host], or empty for all
// targets that are not counted by name.
type Refusal struct {
	Target string
	Reason decision.Reason
	Detail string
}

// maxRefusals bounds the refusals that are counted by target.
const maxRefusals = 100

// Observe implements [delivery.Observer].
func (c *Refusals) Observe(r *delivery.Report) func(context.Context, *delivery.Result) {
	if r.Verdict == nil || r.Verdict.Refusal == nil || r.Verdict.Refusal.Reason == decision.Paused {
		return nil
	}
	of := Refusal{targets.Host(r.Intake.Call().Target), r.Verdict.Refusal.Reason, r.Verdict.Refusal.Detail}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[Refusal]int{}
	}
	_, isKnown := c.counts[of]
	if !isKnown && len(c.counts) >= maxRefusals {
		of.Target = ""
	}
	c.counts[of]++
	return nil
}

// Take returns the counts since it was last called.
func (c *Refusals) Take() map[Refusal]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.counts
	c.counts = nil
	return counts
}

// run logs the counts once a minute until ctx ends.
func (c *Refusals) run(ctx context.Context, log zerolog.Logger) {
	for storage.Sleep(ctx, remindEvery) {
		for of, messages := range c.Take() {
			log.Warn().Str(logs.TargetHost, cmp.Or(of.Target, "others")).Str(logs.Reason, string(of.Reason)).
				Str(logs.Detail, of.Detail).Int(logs.Messages, messages).
				Msg("rescheduled without a call in the last minute")
		}
	}
}
