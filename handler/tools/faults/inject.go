package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/queue"
	"asynccaller/handler/tools/faults/judge"
	"asynccaller/handler/tools/faults/schedule"
	"asynccaller/handler/tools/faults/storageproxy"
	"asynccaller/handler/tools/faults/target"
)

// script is what is planned for the messages on a lane, and who they are.
type script struct {
	mu       sync.Mutex
	answers  map[string][]schedule.Word // by id, that of a callback included
	contents map[string]string          // ids of malformed messages by their content
	messages map[string]string          // ids by queue message
	faults   map[place][]*schedule.Fault
}

// place is where a fault waits for its message.
type place struct {
	point schedule.Point
	id    string
}

// forget begins anew.
func (s *script) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers, s.contents, s.messages = map[string][]schedule.Word{}, map[string]string{}, map[string]string{}
}

// arm lets faults wait for their messages.
func (s *script) arm(faults []schedule.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = map[place][]*schedule.Fault{}
	for _, f := range faults {
		p := place{f.Point, f.ID}
		s.faults[p] = append(s.faults[p], &f)
	}
}

// add adds a message and its content.
func (s *script) add(m schedule.Message, content []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[m.ID], s.answers[m.ID+schedule.CallbackSuffix] = m.Answers, m.Callbacks
	if m.Outcome == schedule.Malformed {
		s.contents[string(content)] = m.ID
	}
}

// disarm forgets faults that have not struck.
func (s *script) disarm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// word is the answer to a call.
func (s *script) word(c target.Call) schedule.Word {
	s.mu.Lock()
	defer s.mu.Unlock()
	answers := s.answers[c.ID]
	if len(answers) == 0 {
		return "410"
	}
	return answers[min(max(c.Attempt, 1), len(answers))-1]
}

// at returns the fault that strikes now that a message has come to a point, or nil.
func (s *script) at(p schedule.Point, id string) *schedule.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := s.faults[place{p, id}]
	if len(waiting) == 0 {
		return nil
	}
	first := waiting[0]
	if first.Skip > 0 {
		first.Skip--
		return nil
	}
	s.faults[place{p, id}] = waiting[1:]
	return first
}

// who tells whose message a text is; empty when it is nobody's.
func (s *script) who(text string) string {
	content, err := queue.Base64.Decode(text)
	if err != nil {
		return ""
	}
	s.mu.Lock()
	id, malformed := s.contents[string(content)]
	s.mu.Unlock()
	if malformed {
		return id
	}
	e, err := envelope.Parse(content)
	if err != nil {
		return ""
	}
	return target.IDOf(e.Call.URL)
}

// remember notes whose a queue message is, and returns it.
func (s *script) remember(message, text string) (id string) {
	id = s.who(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages[message] = id
	return id
}

func (s *script) whose(message string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.messages[message]
}

// partner makes the target of a lane.
type partner struct{ l *lane }

// Arrived implements [target.Partner].
func (p partner) Arrived(c target.Call) bool { return p.l.strikeCall(schedule.BeforeCall, c.ID) }

// Answer implements [target.Partner].
func (p partner) Answer(c target.Call) (schedule.Word, bool) {
	event := judge.Event{Kind: judge.Called, ID: c.ID, Attempt: c.Attempt, Told: c.Told}
	if !p.l.strikeCall(schedule.DuringCall, c.ID) {
		p.l.note(event)
		return "", false
	}
	event.Word = p.l.script.word(c)
	p.l.note(event)
	return event.Word, true
}

// Answered implements [target.Partner].
func (p partner) Answered(c target.Call) { p.l.strikeCall(schedule.AfterCall, c.ID) }

// strikeCall reports false when the connection is to be cut.
func (l *lane) strikeCall(p schedule.Point, id string) bool {
	f := l.script.at(p, id)
	return f == nil || !l.strike(f)
}

// handlerWatch watches what the handler does on storage.
type handlerWatch struct{ l *lane }

// Before implements [storageproxy.Watcher].
func (h handlerWatch) Before(r storageproxy.Request) storageproxy.Order {
	order := h.before(r)
	if order.Cut || order.Status >= 500 {
		h.l.unsettled.add(r.Text, h.l.processes)
	}
	return order
}

func (h handlerWatch) before(r storageproxy.Request) storageproxy.Order {
	if order, out := h.l.outage.now(); out {
		return order
	}
	if r.Operation != storageproxy.Put && r.Operation != storageproxy.Update {
		return storageproxy.Order{}
	}
	id := h.l.script.who(r.Text)
	f := h.l.script.at(schedule.BeforeWrite, id)
	if f == nil {
		return storageproxy.Order{}
	}
	order := h.l.obstruct(f)
	if r.Operation == storageproxy.Update && (order.Cut || order.Status != 0) {
		h.l.note(judge.Event{Kind: judge.Disturbed, ID: id, Cause: judge.UpdateUnsure})
	}
	return order
}

// After implements [storageproxy.Watcher].
func (h handlerWatch) After(r storageproxy.Request, a storageproxy.Answer) storageproxy.Order {
	order := h.after(r, a)
	if order.Cut || a.Status == 0 || a.Status >= 500 {
		h.l.unsettled.add(r.Text, h.l.processes)
	} else {
		h.l.unsettled.remove(r.Text)
	}
	return order
}

func (h handlerWatch) after(r storageproxy.Request, a storageproxy.Answer) storageproxy.Order {
	if r.Operation != storageproxy.Put && r.Operation != storageproxy.Update {
		return storageproxy.Order{}
	}
	id := h.l.script.who(r.Text)
	switch {
	case a.Status == 0: // it was stopped, or is about to be; it may have written
		h.l.note(judge.Event{Kind: judge.Unacknowledged, ID: id})
		return storageproxy.Order{Cut: true}
	case !a.Done():
		return storageproxy.Order{}
	case r.Operation == storageproxy.Update:
		h.l.note(judge.Event{Kind: judge.Rescheduled, ID: id, Message: r.Message})
	default:
		for _, m := range a.Messages {
			h.l.note(judge.Event{Kind: judge.Wrote, ID: id, Message: m.ID})
		}
	}
	f := h.l.script.at(schedule.AfterWrite, id)
	if f == nil {
		return storageproxy.Order{}
	}
	if f.Action == schedule.LoseAnswer || f.Action == schedule.WithholdAnswer {
		h.l.note(judge.Event{Kind: judge.Unacknowledged, ID: id})
	}
	return h.l.obstruct(f)
}

// unsettled are the writes that failed and that a handler will try again, by what they write.
type unsettled struct {
	mu     sync.Mutex
	writes map[string]unsettledWrite
}

type unsettledWrite struct {
	handler int
	since   time.Time
}

// settleLimit is how long the handler tries to settle.
const settleLimit = 75 * time.Second

func (u *unsettled) add(text string, p *processes) {
	if text == "" { // it is no write
		return
	}
	handler, alive := p.current()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.writes == nil {
		u.writes = map[string]unsettledWrite{}
	}
	if _, known := u.writes[text]; alive && !known {
		u.writes[text] = unsettledWrite{handler, time.Now()}
	}
}

func (u *unsettled) remove(text string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.writes, text)
}

// count is how many there are whose handlers are alive and may still try.
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

// hostWatch watches what the host does on storage.
type hostWatch struct{ l *lane }

// Before implements [storageproxy.Watcher].
func (h hostWatch) Before(r storageproxy.Request) storageproxy.Order {
	if order, out := h.l.outage.now(); out {
		return order
	}
	if r.Operation != storageproxy.Delete {
		return storageproxy.Order{}
	}
	id := h.l.script.whose(r.Message)
	f := h.l.script.at(schedule.BeforeDelete, id)
	if f == nil {
		return storageproxy.Order{}
	}
	order := h.l.obstruct(f)
	switch {
	case f.Action == schedule.KillHandler:
		order.Cut = false // it was the handler's connections that broke
	case order.Cut || order.Status != 0:
		h.l.note(judge.Event{Kind: judge.Disturbed, ID: id, Cause: judge.DeleteFailed})
	}
	return order
}

// After implements [storageproxy.Watcher].
func (h hostWatch) After(r storageproxy.Request, a storageproxy.Answer) storageproxy.Order {
	if !a.Done() {
		return storageproxy.Order{Cut: a.Status == 0}
	}
	var f *schedule.Fault
	switch r.Operation {
	case storageproxy.Get:
		var ids []string
		for _, m := range a.Messages {
			id := h.l.script.remember(m.ID, m.Text)
			h.l.note(judge.Event{Kind: judge.Leased, ID: id, Message: m.ID})
			ids = append(ids, id)
			if f == nil {
				f = h.l.script.at(schedule.Leased, id)
			}
		}
		if a.ClientLeft || f != nil && f.Action == schedule.LoseAnswer {
			for _, id := range ids {
				h.l.note(judge.Event{Kind: judge.Disturbed, ID: id, Cause: judge.LeaseUnknown})
			}
		}
	case storageproxy.Put:
		h.l.note(judge.Event{Kind: judge.Moved, ID: h.l.script.who(r.Text)})
	case storageproxy.Delete:
		id := h.l.script.whose(r.Message)
		h.l.note(judge.Event{Kind: judge.Deleted, ID: id, Message: r.Message})
		f = h.l.script.at(schedule.AfterDelete, id)
	case storageproxy.Update, storageproxy.Other:
	}
	if f == nil {
		return storageproxy.Order{}
	}
	order := h.l.obstruct(f)
	order.Cut = order.Cut && f.Action != schedule.KillHandler
	return order
}

// obstruct carries out a fault that struck at a storage proxy and says what becomes of the request.
func (l *lane) obstruct(f *schedule.Fault) storageproxy.Order {
	order := storageproxy.Order{Cut: l.strike(f)}
	switch f.Action {
	case schedule.Answer500:
		order.Status = 500
	case schedule.Answer503:
		order.Status = 503
	case schedule.HangRequest, schedule.WithholdAnswer:
		order.Hold, order.Cut = f.For, true
	case schedule.SlowRequest:
		order.Hold = f.For
	case schedule.ResetRequest, schedule.LoseAnswer:
		order.Cut = true
	case schedule.StorageAway, schedule.StorageBusy:
		order, _ = l.outage.now()
	case schedule.KillHandler, schedule.KillHost, schedule.KillBoth, schedule.InterruptHost, schedule.TerminateHost,
		schedule.RestartStorage, schedule.RefuseCalls:
	}
	if order.Hold > 0 {
		l.strikes.Go(func() { pause(l.ctx, order.Hold) })
	}
	return order
}

// strike carries out a fault and reports whether the connection at which it struck is dead with it. What
// takes its time goes on beside.
func (l *lane) strike(f *schedule.Fault) (cut bool) {
	l.record.strike(f.Action)
	switch f.Action {
	case schedule.KillHandler:
		l.killHandler()
		return true
	case schedule.KillHost:
		l.killHost()
		// A request of the host's dies with it; the handler is alive and may do what it can.
		return f.Point == schedule.Leased || f.Point == schedule.BeforeDelete || f.Point == schedule.AfterDelete
	case schedule.KillBoth:
		l.killHandler()
		l.killHost()
		return true
	case schedule.InterruptHost, schedule.TerminateHost:
		l.stopHost(f.Action)
	case schedule.StorageAway:
		l.away(f.For, storageproxy.Order{Cut: true})
	case schedule.StorageBusy:
		l.away(f.For, storageproxy.Order{Status: 503})
	case schedule.RestartStorage:
		l.restartStorage()
	case schedule.RefuseCalls:
		l.strikes.Go(func() {
			if err := l.target.Refuse(l.ctx, f.For); err != nil {
				l.record.trouble(err)
			}
		})
	case schedule.Answer500, schedule.Answer503, schedule.HangRequest, schedule.ResetRequest, schedule.SlowRequest,
		schedule.LoseAnswer, schedule.WithholdAnswer:
	}
	return false
}

// disturbed notes a fault that began at a moment and is over now.
func (l *lane) disturbed(cause judge.Cause, began time.Duration) {
	l.record.add(judge.Event{Kind: judge.Disturbed, At: began, Until: l.now(), Cause: cause})
}

func (l *lane) killHandler() {
	began, handlers := l.now(), len(l.processes.ids())
	if l.processes.kill(l.ctx) {
		l.disturbedUntilReplaced(judge.HandlerKilled, began, handlers)
	}
}

// disturbedUntilReplaced notes the end of a process that lasts until there are more handlers than before:
// until then the host may hand messages to one that is dead, and storage may still get what a host had sent
// before it was killed.
func (l *lane) disturbedUntilReplaced(cause judge.Cause, began time.Duration, handlers int) {
	l.strikes.Go(func() {
		ctx, cancel := context.WithTimeout(l.ctx, replaceLimit)
		defer cancel()
		for len(l.processes.ids()) <= handlers && pause(ctx, replaceTick) {
		}
		l.disturbed(cause, began)
	})
}

// replaceLimit is how long nobody may have noticed that a process is dead.
const replaceLimit, replaceTick = 10 * time.Second, 10 * time.Millisecond

func (l *lane) killHost() {
	began, handlers := l.now(), len(l.processes.ids())
	host := l.currentHost()
	_ = host.Kill() // it may have ended
	<-host.Done()
	l.disturbedUntilReplaced(judge.HostKilled, began, handlers)
}

func (l *lane) stopHost(how schedule.Action) {
	began := l.now()
	host := l.currentHost()
	signal := host.Interrupt
	if how == schedule.TerminateHost {
		signal = host.Terminate
	}
	_ = signal() // it may have ended
	l.strikes.Go(func() {
		select {
		case <-host.Done():
		case <-time.After(stopGrace):
			l.record.trouble(fmt.Errorf("the host did not stop within %v of a signal", stopGrace))
			_ = host.Kill()
			<-host.Done()
		}
		l.disturbed(judge.HostStopped, began)
	})
}

func (l *lane) away(length time.Duration, order storageproxy.Order) {
	began := l.now()
	l.outage.begin(length, order)
	l.strikes.Go(func() {
		pause(l.ctx, length)
		l.disturbed(judge.StorageGone, began)
	})
}

func (l *lane) restartStorage() {
	began := l.now()
	l.strikes.Go(func() {
		l.storageMu.Lock()
		defer l.storageMu.Unlock()
		if err := l.storage.Restart(l.ctx); err != nil {
			l.record.trouble(fmt.Errorf("restarting Azurite: %w", err))
		}
		l.disturbed(judge.StorageGone, began)
	})
}
