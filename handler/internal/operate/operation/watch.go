package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

const (
	// shortestPause and longestPause limit the time between two readings of the outcomes. It grows with the time that
	// has passed, and with the time that a reading takes.
	shortestPause = time.Second
	longestPause  = 10 * time.Second
	pausePart     = 20
	// canaryWait is how long the delivery of the first messages may take.
	canaryWait = 3 * time.Minute
	// noOutcome is why a command waits for outcomes if nothing else is known.
	noOutcome = "no outcome is recorded yet: does the function app run?"
	// minCalled is how many messages must have been called before the share of failures is judged.
	minCalled = 5
)

// watch watches the messages that a run has sent.
type watch struct {
	operations *Operations
	outcomes

	// mu guards sent, the request ids of the messages that were sent.
	mu   sync.Mutex
	sent map[string]bool
	// said has what was said of messages, by request id.
	said map[string]string
}

// newWatch returns the watch of a run with a token, or one that notes nothing.
func newWatch(op *Operations, token string) *watch {
	return &watch{
		operations: op,
		outcomes:   outcomes{table: op.Outcomes, token: token, messages: map[string]*messageState{}},
		sent:       map[string]bool{},
		said:       map[string]string{},
	}
}

// Sent implements [run.Hooks].
func (w *watch) Sent(s journal.Step) {
	if w.token == "" {
		return
	}
	id := w.operations.sentID(s)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent[id] = true
}

// sentID returns the request id of the message that a step sends. It is that of the text, because edits can change it,
// and because the row of a scheduled message does not prove it.
func (op *Operations) sentID(s journal.Step) string {
	id := ""
	if s.Take != nil {
		id = s.Take.ID
	}
	text := ""
	if s.Set != nil {
		text = s.Set.Text
	} else {
		text = s.Text()
	}
	e, err := envelope.Parse(op.Account.Rules.Content(text))
	if err != nil {
		return id
	}
	return cmp.Or(e.RequestID, id)
}

func (w *watch) watched(requestID string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent[requestID]
}

// poll reads the outcomes until ctx ends, or until judge, which judges them, has seen enough or returns an error.
func (w *watch) poll(ctx context.Context, judge func() (enough bool, err error)) error {
	began, pause := time.Now(), shortestPause
	for storage.Sleep(ctx, pause) {
		updated := time.Now()
		if err := w.update(ctx, w.watched); err != nil {
			return err
		}
		enough, err := judge()
		if enough || err != nil {
			return err
		}
		took := time.Since(updated)
		pause = max(took, min(max(time.Since(began)/pausePart, shortestPause), longestPause))
	}
	return nil
}

// Failures implements [run.Hooks].
func (w *watch) Failures(ctx context.Context, share float64) error {
	err := w.poll(ctx, func() (bool, error) {
		c := w.count()
		called := c.delivered + c.failed
		if called < minCalled || float64(c.failed) <= share*float64(called) {
			return false, nil
		}
		text := fmt.Sprintf("the calls of %d of %d messages have failed: %s",
			c.failed, called, failedText(c.lastFailed))
		if c.refused > 0 {
			text += fmt.Sprintf("; %d more are %s", c.refused, refusedText(c.lastRefused))
		}
		return false, run.StopError(text)
	})
	_, isStop := errors.AsType[run.StopError](err)
	switch {
	case ctx.Err() != nil: // all were sent, or the run is interrupted
		err = nil
	case err != nil && !isStop:
		err = run.StopError("cannot watch for failures: " + err.Error())
	}
	return err
}

// Canaries implements [run.Hooks].
func (w *watch) Canaries(ctx context.Context) error {
	total := len(w.sent)
	w.operations.observer().Note(
		fmt.Sprintf("sent %d first; waiting until they are delivered, at most %s", total, format.Duration(canaryWait)))
	deadline := time.Now().Add(canaryWait)
	return w.poll(ctx, func() (bool, error) {
		w.noteNews()
		c := w.count()
		why := noOutcome
		switch {
		case c.failed > 0:
			return false, run.StopError("a first message is not delivered: " + failedText(c.lastFailed))
		case c.delivered == total:
			return true, nil
		case time.Now().Before(deadline):
			return false, nil
		case c.refused > 0:
			why = refusedText(c.lastRefused)
		}
		return false, run.StopError(fmt.Sprintf("%d of %d first messages are delivered; %s", c.delivered, total, why))
	})
}

// noteNews notes the outcomes that were not said before, each with the number of its calls.
func (w *watch) noteNews() {
	news := map[string]int{}
	for id := range w.sent {
		if text := w.of(id).text(); text != w.said[id] {
			w.said[id] = text
			news[text]++
		}
	}
	for _, text := range slices.Sorted(maps.Keys(news)) {
		w.operations.observer().Note(format.Plural(news[text], "call") + ": " + text)
	}
}

// counts are the numbers of messages that were delivered, whose call has failed, whose call has failed for good, and
// that were refused without a call. Reasons counts those that have failed for good by their latest failures; the latest
// rows say why.
type counts struct {
	delivered, failed, over, refused int
	reasons                          map[string]int
	lastFailed, lastRefused          record.Outcome
}

func (w *watch) count() counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := counts{reasons: map[string]int{}}
	for id := range w.sent {
		outcome := w.of(id)
		switch {
		case outcome.delivered:
			c.delivered++
		case outcome.hasFailed():
			c.failed++
			row := outcome.failure()
			c.lastFailed = laterOutcome(c.lastFailed, row)
			if outcome.isOver() {
				c.over++
				c.reasons[outcomeText(row)]++
			}
		case !outcome.refused.WrittenAt.IsZero():
			c.refused++
			c.lastRefused = laterOutcome(c.lastRefused, outcome.refused)
		}
	}
	return c
}
