//go:build unix

package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"

	"asynccaller/handler/internal/rules/dotnet"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/tools/faults/judge"
	"asynccaller/handler/tools/faults/schedule"
)

// content returns a message as its sender writes it.
func (s *system) content(m schedule.Message, now time.Time) []byte {
	if m.Outcome == schedule.Malformed {
		if m.Nexus {
			return fmt.Appendf(nil, `{"OriginalRequestId":%q,"RawRequest":{"Id":%q,"CallOut":null}}`, m.ID, m.ID)
		}
		return fmt.Appendf(nil, `{"asyncCaller":2,"requestId":%q}`, m.ID)
	}
	deadline := now.Add(24 * time.Hour)
	if m.Deadline > 0 {
		deadline = now.Add(m.Deadline)
	}
	if m.Nexus {
		return s.nexus(m, now, deadline)
	}
	callback := ""
	if m.Callbacks != nil {
		callback = fmt.Sprintf(`,"callback":{"url":%q},"context":{"n":%q}`, s.url("callback", m.ID), m.ID)
	}
	return fmt.Appendf(nil,
		`{"asyncCaller":1,"requestId":%q,"call":{"url":%q,"method":"POST","body":"order å %s"}%s,"deadline":%q}`,
		m.ID, s.url("call", m.ID), m.ID, callback, deadline.UTC().Format(time.RFC3339Nano))
}

// nexus returns a message as the C# SDK writes it.
func (s *system) nexus(m schedule.Message, createdAt, deadline time.Time) []byte {
	request := func(kind, rest string) []byte {
		text := "POST /" + kind + "/" + m.ID + " HTTP/1.1\r\nHost: " + s.target.Addr + "\r\n" + rest
		return strconv.AppendQuote(nil, base64.StdEncoding.EncodeToString([]byte(text)))
	}
	callBack, callContext, scheme := []byte("null"), []byte("null"), "null"
	if m.Callbacks != nil {
		n := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"n":%q}`, m.ID))
		callBack, callContext, scheme = request("callback", "\r\n"), strconv.AppendQuote(nil, n), `"http"`
	}
	never := dotnet.FormatTime(time.Time{})
	return fmt.Appendf(nil, `{"Organization":"acme","Environment":"test","OriginalRequestId":%q,"Attempts":0,`+
		`"CreatedAt":%q,"LatestAttemptAt":%q,"LatestResponse":null,"DeadlineAt":%q,"NextAttemptAt":%q,`+
		`"RawRequest":{"Id":%q,"Title":"POST %s (%s)","Context":%s,"CallOut":%s,"CallOutUriScheme":"http",`+
		`"CallBack":%s,"CallBackUriScheme":%s,"Priority":null}}`,
		m.ID, dotnet.FormatTime(createdAt), never, dotnet.FormatTime(deadline), never, m.ID, s.url("call", m.ID), m.ID,
		callContext, request("call", "Content-Type: application/octet-stream\r\n\r\norder å "+m.ID), callBack, scheme)
}

// send puts a message on its queue, visible after a delay. It tries once: a second try could make two messages of one.
func (s *system) send(ctx context.Context, m schedule.Message, delay time.Duration) error {
	content := s.content(m, time.Now())
	s.script.add(m, content)
	name := mainQueue
	if m.Priority {
		name = priorityQueue
	}
	_, err := s.store.Put(ctx, name, storage.Item{Text: storage.Base64.Encode(content), Delay: delay})
	if err != nil {
		return fmt.Errorf("sending message %s: %w", m.ID, err)
	}
	return nil
}

// left returns the number of messages on the main queues; -1 if storage does not answer.
func (s *system) left(ctx context.Context) (sum int) {
	for _, name := range queues {
		n, err := s.store.Count(ctx, name)
		if err != nil {
			return -1
		}
		sum += n
	}
	return sum
}

// idleFor is how long a system must be idle to be believed.
const idleFor = 500 * time.Millisecond

// awaitIdle waits until the main queues are empty and the handler does nothing any more, and returns the number of
// messages that are left at the limit. A handler may still work on a message that is gone: its lease ended, and another
// delivery was faster.
func (s *system) awaitIdle(ctx context.Context, limit time.Duration) int {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for since := time.Now(); time.Since(since) < idleFor; {
		s.bringForward(ctx)
		if s.left(ctx) != 0 || s.target.Busy() > 0 || s.handlerProxy.Busy() > 0 || s.unsettled.count(s.processes) > 0 {
			since = time.Now()
		}
		if !storage.Sleep(ctx, idleFor/5) {
			return s.left(context.WithoutCancel(ctx))
		}
	}
	return 0
}

// takeDeadLetters removes all messages from the poison queues.
func (s *system) takeDeadLetters(ctx context.Context) (all []judge.DeadLetter, err error) {
	for _, name := range queues {
		name += storage.PoisonSuffix
		for {
			messages, err := s.store.Receive(ctx, name, storage.MaxBatch, time.Hour)
			if errors.Is(err, storage.ErrNoQueue) || err == nil && len(messages) == 0 {
				break
			}
			if err != nil {
				return nil, err
			}
			for _, m := range messages {
				all = append(all, s.deadLetter(m.Text))
				if err := s.store.Delete(ctx, name, m.ID, m.PopReceipt); err != nil {
					return nil, err
				}
			}
		}
	}
	return all, nil
}

func (s *system) deadLetter(text string) judge.DeadLetter {
	d := judge.DeadLetter{ID: s.script.idOf(text)}
	content, err := storage.Base64.Decode(text)
	if err != nil {
		return d
	}
	e, err := envelope.Parse(content)
	if err != nil {
		d.Unchanged = true // otherwise it would have no id
	} else if e.DeadLetter != nil {
		d.Reason = e.DeadLetter.Reason
	}
	return d
}
