package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/tools/faults/judge"
	"asynccaller/handler/tools/faults/schedule"
)

// content writes a message as its sender would.
func (l *lane) content(m schedule.Message, now time.Time) ([]byte, error) {
	if m.Outcome == schedule.Malformed {
		if m.Format == schedule.Nexus {
			return fmt.Appendf(nil, `{"OriginalRequestId":%q,"RawRequest":{"Id":%q,"CallOut":null}}`, m.ID, m.ID), nil
		}
		return fmt.Appendf(nil, `{"asyncCaller":2,"requestId":%q}`, m.ID), nil
	}
	members := ""
	if m.Callbacks != nil {
		members += fmt.Sprintf(`,"callback":{"url":%q},"context":{"n":%q}`, l.target.CallbackURL(m.ID), m.ID)
	}
	deadline := now.Add(24 * time.Hour)
	if m.Deadline > 0 {
		deadline = now.Add(m.Deadline)
	}
	members += fmt.Sprintf(`,"deadline":%q`, deadline.UTC().Format(time.RFC3339Nano))
	content := fmt.Appendf(nil, `{"asyncCaller":1,"requestId":%q,"call":{"url":%q,"method":"POST","body":"order å %s"}%s}`,
		m.ID, l.target.CallURL(m.ID), m.ID, members)
	if m.Format == schedule.Native {
		return content, nil
	}
	e, err := envelope.Parse(content)
	if err != nil {
		return nil, err
	}
	if err := e.Accept(now, m.ID, queue.Base64.MaxContentBytes()); err != nil {
		return nil, err
	}
	return e.ToNexus(envelope.Tenant{Organization: "acme", Environment: "test"}, deadline)
}

// send puts a message on its queue, to be visible after a delay. It is tried once: no fault is at work yet,
// and a second try could make two messages of one.
func (l *lane) send(ctx context.Context, m schedule.Message, delay time.Duration) error {
	content, err := l.content(m, time.Now())
	if err != nil {
		return fmt.Errorf("writing message %s: %w", m.ID, err)
	}
	l.script.add(m, content)
	name := mainQueue
	if m.Priority {
		name = priorityQueue
	}
	if _, err = l.store.Put(ctx, name, queue.Item{Text: queue.Base64.Encode(content), Delay: delay}); err != nil {
		return fmt.Errorf("sending message %s: %w", m.ID, err)
	}
	return nil
}

// left is the number of messages on the main queues; -1 when storage does not tell.
func (l *lane) left(ctx context.Context) int {
	sum := 0
	for _, name := range []string{mainQueue, priorityQueue} {
		n, err := l.store.Count(ctx, name)
		if err != nil {
			return -1
		}
		sum += n
	}
	return sum
}

// quietFor is how long queues must be empty to be believed.
const quietFor = 500 * time.Millisecond

// awaitQuiet waits until nothing is left on the main queues and the handler does nothing any more, or all
// patience is spent, and returns how many messages are left. A handler may go on with a message that is
// gone already: its lease had ended, and another delivery was faster.
func (l *lane) awaitQuiet(ctx context.Context, patience time.Duration) int {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var since time.Time
	for {
		left := l.left(ctx)
		switch {
		case left != 0 || l.target.Busy() > 0 || l.ourSide.Busy() > 0 || l.unsettled.count(l.processes) > 0:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > quietFor:
			return 0
		}
		if !pause(ctx, quietFor/5) {
			return l.left(context.WithoutCancel(ctx))
		}
	}
}

// letters takes everything off the poison queues.
func (l *lane) letters(ctx context.Context) (letters []judge.Letter, err error) {
	for _, name := range []string{mainQueue, priorityQueue} {
		name, _ = queue.PoisonName(name)
		for {
			messages, err := l.store.Receive(ctx, name, queue.MaxBatch, time.Hour)
			if errors.Is(err, queue.ErrNoQueue) || err == nil && len(messages) == 0 {
				break
			}
			if err != nil {
				return letters, err
			}
			for _, m := range messages {
				letters = append(letters, l.letter(m.Text))
				if err := l.store.Delete(ctx, name, m.ID, m.PopReceipt); err != nil {
					return letters, err
				}
			}
		}
	}
	return letters, nil
}

func (l *lane) letter(text string) judge.Letter {
	letter := judge.Letter{ID: l.script.who(text)}
	content, err := queue.Base64.Decode(text)
	if err != nil {
		return letter
	}
	e, err := envelope.Parse(content)
	switch {
	case err != nil:
		letter.Untouched = true // or nobody would know whose it is
	case e.DeadLetter != nil:
		letter.Reason = e.DeadLetter.Reason
	}
	return letter
}
