//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/tools/faults/judge"
	"asynccaller/handler/tools/faults/schedule"
)

// misspelt is the wrong setting of a bad deploy.
const misspelt = "ASYNC_CALLER_CALL_TIMOUT=2s"

// invalidDeploymentFile is the path of a file that exists during a bad deploy.
func (s *system) invalidDeploymentFile() string { return filepath.Join(s.dir, "bad-deploy") }

// deployInvalidSettings kills the handler and lets the next ones have a wrong setting. After a while it ends them by
// the planned fault, and the next one is right again.
func (s *system) deployInvalidSettings(f *schedule.Fault) {
	s.deploying.Lock()
	defer s.deploying.Unlock()
	if err := os.WriteFile(s.invalidDeploymentFile(), nil, 0o600); err != nil {
		s.result.fail(err)
		return
	}
	before := s.processes.ids()
	s.inject(&schedule.Fault{Action: schedule.KillHandler})
	held := s.awaitHold(before)
	began := s.now()
	storage.Sleep(s.ctx, f.Length)
	if held {
		s.record(judge.Event{Kind: judge.Held, At: began, Until: s.now()})
	}
	s.result.fail(os.Remove(s.invalidDeploymentFile()))
	s.inject(&schedule.Fault{Action: f.End})
}

// awaitHold waits until a new handler runs and no call of an earlier one can arrive any more, and reports whether that
// is so.
func (s *system) awaitHold(before []int) bool {
	for limit := time.Now().Add(stopGrace); time.Now().Before(limit); {
		if len(s.processes.ids()) > len(before) && !slices.ContainsFunc(before, s.processes.alive) &&
			s.target.Busy() == 0 {
			return storage.Sleep(s.ctx, idleFor)
		}
		if !storage.Sleep(s.ctx, replaceTick) {
			break
		}
	}
	return false
}

// minHeld is shorter than any delay of a held message, and longer than any other delay.
const minHeld = 3 * time.Minute

// held are the messages that a handler with a wrong setting has put back.
type held struct {
	mu       sync.Mutex
	messages []heldMessage
}

type heldMessage struct{ queue, id, receipt, text string }

func (h *held) add(messages ...heldMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.messages = append(h.messages, messages...)
}

func (h *held) take() (messages []heldMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	messages, h.messages = h.messages, nil
	return messages
}

// bringForward makes the held messages visible, because a run cannot wait for minutes. The receipt with which storage
// acknowledged such a message is valid until the message is received.
func (s *system) bringForward(ctx context.Context) {
	if !s.deploying.TryLock() {
		return // the handler would hold them again
	}
	defer s.deploying.Unlock()
	for _, m := range s.held.take() {
		if _, err := s.store.Update(ctx, m.queue, m.id, m.receipt, m.text, 0); err != nil &&
			!errors.Is(err, storage.ErrStale) {
			s.held.add(m) // storage is away
		}
	}
}
