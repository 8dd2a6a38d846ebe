//go:build unix

package main

import (
	"fmt"
	"sync"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/tools/faults/judge"
	"asynccaller/handler/tools/faults/schedule"
	"asynccaller/handler/tools/storageproxy"
)

// inject injects a fault and returns what happens to the request at which it is injected. A fault that takes time
// continues in the background.
func (s *system) inject(f *schedule.Fault) (order storageproxy.Order) {
	s.result.inject(f.Action)
	switch f.Action {
	case schedule.KillHandler:
		s.killHandler()
		order.Reset = true
	case schedule.KillHost:
		s.killHost()
		// The host's requests end with it. The handler lives and may continue.
		order.Reset = f.Point == schedule.Leased || f.Point == schedule.BeforeDelete || f.Point == schedule.AfterDelete
	case schedule.KillBoth:
		s.killHandler()
		s.killHost()
		order.Reset = true
	case schedule.InterruptHost, schedule.TerminateHost:
		s.signalHost(f.Action)
	case schedule.StorageDown:
		order.Reset = true
		s.beginOutage(f.Length, order)
	case schedule.StorageBusy:
		order.Status, order.Code = 503, "ServerBusy"
		s.beginOutage(f.Length, order)
	case schedule.RestartStorage:
		s.restartStorage()
	case schedule.BadDeploy:
		s.injecting.Go(func() { s.deployInvalidSettings(f) })
	case schedule.RefuseCalls:
		s.injecting.Go(func() {
			if err := s.target.Refuse(s.ctx, f.Length); err != nil {
				s.result.fail(err)
			}
		})
	case schedule.Answer500:
		order.Status, order.Code = 500, "InternalError"
	case schedule.Answer503:
		order.Status = 503 // a proxy's, perhaps
	case schedule.HangRequest, schedule.WithholdAnswer:
		order.Hold, order.Reset = f.Length, true
	case schedule.SlowRequest:
		order.Hold = f.Length
	case schedule.ResetRequest, schedule.LoseAnswer:
		order.Reset = true
	}
	if order.Hold > 0 {
		s.injecting.Go(func() { storage.Sleep(s.ctx, order.Hold) })
	}
	return order
}

// during records a disturbance that began at a moment and lasts until wait returns, in the background.
func (s *system) during(cause judge.Cause, began time.Duration, wait func()) {
	s.injecting.Go(func() {
		wait()
		s.disturbed(cause, began)
	})
}

func (s *system) killHandler() {
	began, before := s.now(), len(s.processes.ids())
	if s.processes.kill(s.ctx) {
		s.during(judge.HandlerKilled, began, func() { s.awaitHandler(before) })
	}
}

func (s *system) killHost() {
	began, before := s.now(), len(s.processes.ids())
	host, _ := s.currentHost()
	_ = host.Kill() // it may have ended
	<-host.Done()
	s.during(judge.HostKilled, began, func() { s.awaitHandler(before) })
}

// replaceLimit is how long it may take until a new handler runs.
const replaceLimit, replaceTick = 10 * time.Second, 10 * time.Millisecond

// awaitHandler waits until a new handler runs. Until then the host may pass messages to a dead handler, and storage may
// still receive what a dead host had sent.
func (s *system) awaitHandler(before int) {
	limit := time.Now().Add(replaceLimit)
	for len(s.processes.ids()) <= before && time.Now().Before(limit) && storage.Sleep(s.ctx, replaceTick) {
	}
}

func (s *system) signalHost(how schedule.Action) {
	host, _ := s.currentHost()
	signal := host.Interrupt
	if how == schedule.TerminateHost {
		signal = host.Terminate
	}
	began := s.now()
	_ = signal() // it may have ended
	s.during(judge.HostStopped, began, func() {
		timer := time.NewTimer(stopGrace)
		defer timer.Stop()
		select {
		case <-host.Done():
		case <-timer.C:
			s.result.fail(fmt.Errorf("the host did not stop within %v of a signal", stopGrace))
			_ = host.Kill()
			<-host.Done()
		}
	})
}

func (s *system) beginOutage(length time.Duration, order storageproxy.Order) {
	s.outage.begin(length, order)
	s.during(judge.StorageDown, s.now(), func() { storage.Sleep(s.ctx, length) })
}

func (s *system) restartStorage() {
	s.during(judge.StorageDown, s.now(), func() {
		s.storageMu.Lock()
		defer s.storageMu.Unlock()
		if err := s.storage.Restart(s.ctx); err != nil {
			s.result.fail(fmt.Errorf("restarting Azurite: %w", err))
		}
	})
}

// handlerWatcher watches the handler's requests to storage.
type handlerWatcher struct{ *system }

// Before implements [storageproxy.Watcher].
func (s handlerWatcher) Before(r storageproxy.Request) storageproxy.Order {
	order, out := s.outage.active()
	if !out {
		order = storageproxy.Order{}
		if writes(r) {
			id := s.script.idOf(r.Text)
			if f := s.script.at(schedule.BeforeWrite, id); f != nil {
				order = s.inject(f)
			}
			if r.Operation == storageproxy.Update && (order.Reset || order.Status != 0) {
				s.note(judge.Event{Kind: judge.Disturbed, ID: id, Cause: judge.UpdateUnsure})
			}
		}
	}
	if order.Reset || order.Status >= 500 {
		s.unsettled.add(r.Text, s.processes)
	}
	return order
}

// writes reports whether a request writes a message.
func writes(r storageproxy.Request) bool {
	return r.Operation == storageproxy.Put || r.Operation == storageproxy.Update
}

// After implements [storageproxy.Watcher].
func (s handlerWatcher) After(r storageproxy.Request, a storageproxy.Answer) storageproxy.Order {
	s.noteStall(a)
	order := s.afterWrite(r, a)
	if order.Reset || a.Status == 0 || a.Status >= 500 {
		s.unsettled.add(r.Text, s.processes)
	} else {
		s.unsettled.remove(r.Text)
	}
	return order
}

func (s handlerWatcher) afterWrite(r storageproxy.Request, a storageproxy.Answer) (order storageproxy.Order) {
	if !writes(r) {
		return order
	}
	id := s.script.idOf(r.Text)
	if a.Done() {
		s.noteDelay(r.Delay)
	}
	switch {
	case a.Status == 0: // storage is stopped or stopping, and may have written
		s.note(judge.Event{Kind: judge.Unacknowledged, ID: id})
		return storageproxy.Order{Reset: true}
	case !a.Done():
		return order
	case r.Operation == storageproxy.Update:
		s.note(judge.Event{Kind: judge.Updated, ID: id, Message: r.Message})
	default:
		for _, m := range a.Messages {
			s.note(judge.Event{Kind: judge.Wrote, ID: id, Message: m.ID})
			if r.Delay > minHeld {
				s.result.hold()
				s.held.add(heldMessage{r.Queue, m.ID, m.PopReceipt, r.Text})
			}
		}
	}
	f := s.script.at(schedule.AfterWrite, id)
	if f == nil {
		return order
	}
	if f.Action == schedule.LoseAnswer || f.Action == schedule.WithholdAnswer {
		s.note(judge.Event{Kind: judge.Unacknowledged, ID: id})
	}
	return s.inject(f)
}

// hostWatcher watches the host's requests to storage.
type hostWatcher struct{ *system }

// Before implements [storageproxy.Watcher].
func (s hostWatcher) Before(r storageproxy.Request) storageproxy.Order {
	if order, out := s.outage.active(); out {
		return order
	}
	if r.Operation != storageproxy.Delete {
		return storageproxy.Order{}
	}
	id := s.script.idOfMessage(r.Message)
	order := s.injectHost(s.script.at(schedule.BeforeDelete, id))
	if order.Reset || order.Status != 0 {
		s.note(judge.Event{Kind: judge.Disturbed, ID: id, Cause: judge.DeleteFailed})
	}
	return order
}

// injectHost injects a fault, if there is one, at a request of the host's. If only the handler is killed, the host's
// connection lives on.
func (s hostWatcher) injectHost(f *schedule.Fault) storageproxy.Order {
	if f == nil {
		return storageproxy.Order{}
	}
	order := s.inject(f)
	order.Reset = order.Reset && f.Action != schedule.KillHandler
	return order
}

// After implements [storageproxy.Watcher].
func (s hostWatcher) After(r storageproxy.Request, a storageproxy.Answer) storageproxy.Order {
	s.noteStall(a)
	if !a.Done() {
		return storageproxy.Order{Reset: a.Status == 0}
	}
	switch r.Operation {
	case storageproxy.Get:
		return s.leased(a)
	case storageproxy.Put:
		s.note(judge.Event{Kind: judge.Moved, ID: s.script.idOf(r.Text)})
	case storageproxy.Delete:
		id := s.script.idOfMessage(r.Message)
		s.note(judge.Event{Kind: judge.Deleted, ID: id, Message: r.Message})
		return s.injectHost(s.script.at(schedule.AfterDelete, id))
	case storageproxy.Update, storageproxy.Other:
	}
	return storageproxy.Order{}
}

// noteStall records that this machine is too busy for Azurite to answer in time.
func (s *system) noteStall(a storageproxy.Answer) {
	if a.Took > stallLimit {
		s.disturbed(judge.Stalled, s.now()-a.Took)
	}
}

// leased records the messages that storage leases to the host, and injects the first fault that waits for one of them.
func (s hostWatcher) leased(a storageproxy.Answer) storageproxy.Order {
	var f *schedule.Fault
	var ids []string
	for _, m := range a.Messages {
		id := s.script.learn(m.ID, m.Text)
		ids = append(ids, id)
		s.note(judge.Event{Kind: judge.Leased, ID: id, Message: m.ID, DequeueCount: m.DequeueCount})
		if f == nil {
			f = s.script.at(schedule.Leased, id)
		}
	}
	if a.ClientLeft || f != nil && f.Action == schedule.LoseAnswer {
		for _, id := range ids {
			s.note(judge.Event{Kind: judge.Disturbed, ID: id, Cause: judge.LeaseUnknown})
		}
	}
	return s.injectHost(f)
}

// unsettled are the writes, by their text, that failed and that a handler retries.
type unsettled struct {
	mu     sync.Mutex
	writes map[string]failedWrite
}

type failedWrite struct {
	handler int
	since   time.Time
}

// settleLimit is longer than the handler retries a settle write.
const settleLimit = 75 * time.Second

func (u *unsettled) add(text string, p *processes) {
	handler, alive := p.current()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.writes == nil {
		u.writes = map[string]failedWrite{}
	}
	if _, known := u.writes[text]; alive && !known && text != "" {
		u.writes[text] = failedWrite{handler, time.Now()}
	}
}

func (u *unsettled) remove(text string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.writes, text)
}

// count returns the number of writes whose handlers are alive and may still retry.
func (u *unsettled) count(p *processes) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	for text, w := range u.writes {
		if !p.alive(w.handler) || time.Since(w.since) > settleLimit {
			delete(u.writes, text)
		}
	}
	return len(u.writes)
}
