package operation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
)

// hosts are the targets of a plan's messages, by host.
type hosts map[string]*hostUse

// hostUse says how a plan uses a target. Names are the first of its messages, longest is the longest delay by which the
// circuit breaker reschedules one.
type hostUse struct {
	count   int
	names   []Name
	longest time.Duration
}

// add adds a message, unless its target has no circuit breaker.
func (h hosts) add(row record.Scheduled, profile targets.Profile) {
	if profile.Breaker.Off {
		return
	}
	m := message.FromRow(row)
	if h[m.Host] == nil {
		h[m.Host] = &hostUse{}
	}
	use := h[m.Host]
	use.count++
	use.longest = max(use.longest, profile.Breaker.MaxDelay)
	if len(use.names) < maxRefusals {
		use.names = append(use.names, nameOf(row))
	}
}

// mostHosts is the largest number of hosts that a warning names.
const mostHosts = 3

// warnDown warns of targets whose circuit breaker was open when the handler last rescheduled a message for them.
// Whether it still is, only the instances of the handler know. A due message is the next probe by chance only: it
// may have to wait longer than until the time at which it is due without the command.
func (p *Plan) warnDown(ctx context.Context, used hosts) error {
	now := time.Now()
	open := map[string]time.Time{}
	s := account.Source{}
	s.Filter.Reasons = []string{string(decision.TargetDown)}
	_, err := p.operations.Account.ListScheduled(ctx, s, false, func(m message.Scheduled) error {
		isWaiting := m.Row.Presence(now) == record.Expected
		if used[m.Host] != nil && isWaiting && m.Row.WrittenAt.After(open[m.Host]) {
			open[m.Host] = m.Row.WrittenAt
		}
		return nil
	})
	if err != nil || len(open) == 0 {
		return err
	}
	var names []string
	var w Warning
	var longest time.Duration
	for host, at := range open {
		use := used[host]
		names = append(names, fmt.Sprintf("%s (%s)", host, at.UTC().Format(time.RFC3339)))
		w.Count += use.count
		w.Messages = append(w.Messages, use.names[:min(len(use.names), maxRefusals-len(w.Messages))]...)
		longest = max(longest, use.longest)
	}
	slices.Sort(names)
	text := strings.Join(names[:min(len(names), mostHosts)], ", ")
	if more := len(names) - mostHosts; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	w.Why = fmt.Sprintf("the circuit breaker of %s was open: while it is open, the handler makes one call at a time "+
		"as a probe, and reschedules the others, each time by up to %v or as long as the target asks, "+
		"perhaps beyond the time at which they are due now", text, longest)
	p.Warnings = append(p.Warnings, w)
	return nil
}
