package world

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/storage"
)

// wrote notes a message that was written.
func (w *World) wrote(p *process, queue, id string, item storage.Item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	content := decoded(item.Text)
	token := tokenIn(content)
	next := &queueItem{token: token, queue: queue, writtenAt: w.now(), dueAt: w.now() + item.Delay}
	next.envelope = readEnvelope(content)
	before := w.heldBy(p, strings.TrimSuffix(token, replySuffix), token)
	w.items[id] = next
	w.note(token, fact{kind: wasPut, by: p.name, id: id, attempt: next.attempts(), queue: queue})
	w.touched(p, wasPut, queue, id, item.Text)
	if p.class == operator {
		return
	}
	defer func() { w.ledger(token).interrupted = 0 }()
	for _, m := range w.items {
		if (m.by == p.holder || m.by == p.name) && (m.token == token || token == m.token+replySuffix) {
			m.isSettled = true
		}
	}
	if p.class != instance {
		return
	}
	if item.TTL > 0 {
		w.brokenLocked("docs/reliability.md: %s: written to %s with a time to live of %v", token, queue, item.TTL)
	}
	if before != nil && before.token == token && before.envelope != nil && next.envelope != nil {
		w.judgeSuccessor(p, before, next)
	}
	isSecond := before != nil && next.token == before.token+replySuffix && w.isKeptAlready(before.token)
	isLater := isSecond && before.at > w.kept[before.token]+5*time.Second // otherwise both were called
	if isLater && !w.ledger(before.token).isEdited {
		w.brokenLocked("docs/history.md: %s: a second callback, and the history has its delivery at %v",
			before.token, w.kept[before.token])
	}
	isMoved := before != nil && strings.HasSuffix(before.queue, poisonSuffix) // the keeper's copy
	if before != nil && !isMoved && strings.TrimSuffix(queue, poisonSuffix) != before.queue &&
		before.queue != routedQueue && w.ledger(token).unsure == 0 { // a write can come late
		w.brokenLocked("docs/envelope.md: %s: went from %s to %s", token, before.queue, queue)
	}
}

// heldBy returns the message of one of two tokens that a process has received, if it has one of them.
func (w *World) heldBy(p *process, tokens ...string) (found *queueItem) {
	for _, m := range w.items {
		if m.by != p.holder || w.now() >= m.until || !slices.Contains(tokens, m.token) {
			continue
		}
		if found != nil {
			return nil
		}
		found = m
	}
	return found
}

// stateMembers are those that a handler changes.
var stateMembers = []string{
	"attempts", "createdAt", "latestAttemptAt", "nextAttemptAt", "trail", "trace", "deadLetter", "reserved",
	"latestStatus",
}

// judgeSuccessor compares what an instance wrote with what it had received.
func (w *World) judgeSuccessor(p *process, before, next *queueItem) {
	token := next.token
	isLetter := strings.HasSuffix(next.queue, poisonSuffix)
	l := w.ledger(token)
	attempts, had := next.attempts(), before.attempts()
	switch {
	case w.isDisturbed(token): // a write can come late
	case attempts != had && attempts != had+1:
		w.brokenLocked("docs/envelope.md: %s: attempts went from %d to %d", token, had, attempts)
	case l.interrupted == had+1 && attempts != had && !isLetter:
		w.brokenLocked("docs/operating.md: %s: attempt %d was interrupted, and counts", token, l.interrupted)
	}
	l.interrupted = 0
	for _, name := range slices.Sorted(maps.Keys(before.envelope)) {
		if slices.Contains(stateMembers, name) || l.isEdited && w.isDisturbed(token) { // of two, one was edited
			continue
		}
		if !reflect.DeepEqual(before.envelope[name], next.envelope[name]) {
			w.brokenLocked("docs/envelope.md: %s: member %s was changed", token, name)
		}
	}
	sent := w.byToken[token]
	lead := time.Second
	if attempts == had { // it was refused: a worker has 40 s then, and a host 10, but for a request that is slow
		lead = 8*time.Second - (next.writtenAt - before.at)
	}
	latest := time.Duration(0)
	if sent != nil {
		latest = max(sent.deadline-lead, sent.notBefore+lead) + max(p.ahead.Abs(), w.Ahead.Abs())
	}
	isLate := sent != nil && l.lives == 0 && !isLetter && next.dueAt > latest
	const room = 45 * time.Second // a worker makes its last attempt 40 s before the deadline
	if isLate && sent.deadline > next.writtenAt+room+2*sent.delays[0] {
		w.brokenLocked("docs/retry.md: %s: comes back at %v, too late for a last attempt before %v", token, next.dueAt,
			sent.deadline)
	}
	due, err := time.Parse(time.RFC3339Nano, fmt.Sprint(next.envelope["nextAttemptAt"]))
	if err != nil || isLetter || attempts == had { // one that waits for its turn stays due
		return
	}
	dueAt := due.Sub(w.begin) - p.ahead
	if next.dueAt > max(dueAt, next.writtenAt)+6*time.Second { // a request can be slow
		w.brokenLocked("docs/retry.md: %s: due at %v, and invisible until %v", token, dueAt, next.dueAt)
	}
}

// isDisturbed reports whether there may be several messages of a call or of its callback.
func (w *World) isDisturbed(token string) bool {
	token = strings.TrimSuffix(token, replySuffix)
	return w.ledger(token).unsure+w.ledger(token+replySuffix).unsure+w.ledger(token).lives > 0
}

// readEnvelope returns the members of a native envelope; nil for anything else.
func readEnvelope(content []byte) map[string]any {
	var members map[string]any
	err := json.Unmarshal(content, &members)
	if err != nil || members["asyncCaller"] == nil {
		return nil
	}
	return members
}

// attempts returns those of an envelope.
func (m *queueItem) attempts() int {
	attempts, _ := m.envelope["attempts"].(float64)
	return int(attempts)
}

// changed notes a message that was updated.
func (w *World) changed(p *process, queue, id, text string, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.items[id]
	if m == nil {
		return
	}
	w.touched(p, wasSet, queue, id, text)
	next := &queueItem{token: m.token, queue: queue, writtenAt: w.now(), dueAt: w.now() + delay}
	next.envelope = readEnvelope(decoded(text))
	if p.class == instance {
		if m.envelope != nil && next.envelope != nil {
			w.judgeSuccessor(p, m, next)
		}
		m.isSettled, m.until = true, 0
		if strings.HasSuffix(queue, poisonSuffix) { // the keeper claims it
			m.until = w.now() + delay
		}
	}
	m.envelope, m.writtenAt, m.dueAt = next.envelope, next.writtenAt, next.dueAt
	w.note(m.token, fact{kind: wasSet, by: p.name, id: id, attempt: m.attempts(), queue: queue})
}

// removed notes a message that was deleted. The first guarantee: what replaces it exists.
func (w *World) removed(p *process, queue, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.items[id]
	if m == nil {
		return
	}
	w.note(m.token, fact{kind: wasGone, by: p.name, id: id, queue: queue})
	m.until, m.goneAt = 0, w.now()
	w.touched(p, wasGone, queue, id, "")
	sent := w.byToken[strings.TrimSuffix(m.token, replySuffix)]
	isExpected := m.isSettled || p.class == operator || sent == nil || sent.giveUp != "" || w.mayBeDuplicate(m.token,
		sent)
	if !isExpected {
		w.brokenLocked("docs/reliability.md: %s: deleted from %s before anything was settled", m.token, queue)
	}
}

// mayBeDuplicate reports whether the history may have the call of a message, so that it needs no other end.
func (w *World) mayBeDuplicate(token string, m *message) bool {
	isFollowed := token == m.token && w.isAlone(m) && m.queue != routedQueue // others are not in kept
	return w.settings.history && (!isFollowed || w.kept[token] > 0)
}

// leased notes messages that were received.
func (w *World) leased(p *process, queue string, all []storage.Message, lease time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, received := range all {
		m := w.items[received.ID]
		if m == nil {
			continue
		}
		w.touched(p, wasLed, queue, received.ID, received.Text)
		m.envelope = readEnvelope(decoded(received.Text))
		m.by, m.at, m.until, m.isSettled = p.name, w.now(), w.now()+lease, false
		w.note(m.token, fact{kind: wasLed, by: p.name, id: received.ID, attempt: m.attempts(), queue: queue})
	}
}

// rowsWritten judges rows.
func (w *World) rowsWritten(table string, rows []storage.Entity) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, row := range rows {
		for name, value := range row.Values {
			text, isText := value.(string)
			if isText && strings.Contains(text, secretMark) {
				w.brokenLocked("SECURITY.md: a row of %s has a secret in %s: %.100s", table, name, text)
			}
		}
		id, _ := row.Values["requestId"].(string)
		m := w.byToken[id]
		if strings.HasPrefix(table, "asynccallerhistory") && row.Values["reason"] == "delivered" && m != nil &&
			w.isAlone(m) {
			w.judgeHistory(m)
		}
	}
}

// isAlone reports whether no other message has the request id of a message.
func (w *World) isAlone(m *message) bool {
	return m.id == m.token && !slices.ContainsFunc(w.messages, func(o *message) bool { return o != m && o.id == m.id })
}

// judgeHistory judges a row that says that a message was delivered.
func (w *World) judgeHistory(m *message) {
	wasDelivered := slices.ContainsFunc(w.ledger(m.token).facts, func(f fact) bool {
		return f.kind == answered && f.status/100 == 2
	})
	isTold := !m.hasReply || len(w.ledger(m.token+replySuffix).facts) > 0
	if !wasDelivered || !isTold {
		w.brokenLocked("docs/history.md: %s: delivered before its call (%v) or its callback (%v) was",
			m.token, wasDelivered, isTold)
	}
	if w.kept[m.token] == 0 {
		w.kept[m.token] = w.now()
	}
}

// letter is a message on a poison queue.
type letter struct {
	storage.Message
	queue, reason string
}

// letters returns the messages on the poison queues by token.
func (w *World) letters() map[string][]letter {
	found := map[string][]letter{}
	for _, queue := range []string{mainQueue, priorityQueue, routedQueue} {
		for _, m := range w.store.All(queue + poisonSuffix) {
			content := decoded(m.Text)
			var e struct {
				DeadLetter struct{ Reason string }
			}
			_ = json.Unmarshal(content, &e)
			token := tokenIn(content)
			found[token] = append(found[token], letter{m, queue + poisonSuffix, e.DeadLetter.Reason})
		}
	}
	return found
}

// judge compares what has happened with what the pages promise.
func (w *World) judge() {
	letters := w.letters()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, w.differences(letters)...)
	w.judgeReports()
	for _, queue := range []string{mainQueue, priorityQueue, routedQueue} {
		for _, m := range w.store.All(queue) {
			w.brokenLocked("docs/reliability.md: %s is still on %s, %v after the calm", tokenIn(decoded(m.Text)), queue,
				w.now()-w.Calm)
		}
	}
	for _, m := range w.messages {
		w.judgeMessage(m, letters)
	}
	w.judgeTables()
	if w.now()-w.aliveAt > 150*time.Second {
		w.brokenLocked("docs/log.md: the log says that the app is alive at %v, and then no more", w.aliveAt)
	}
}

// judgeTables judges that no table grows with time: its rows are those of messages, targets, instances and runs, and
// of each delivery of a run for a day.
func (w *World) judgeTables() {
	const usual = 600
	deliveries := 0
	for _, l := range w.ledgers {
		for _, f := range l.facts {
			if f.kind == wasLed {
				deliveries++
			}
		}
	}
	names, err := w.tables.TableNames(context.Background(), "")
	if err != nil {
		w.brokenLocked("names of tables: %v", err)
	}
	for _, name := range names {
		rows := 0
		_ = w.tables.Open(name).List(context.Background(), storage.Query{}, func(storage.Entity) error {
			rows++
			return nil
		})
		most := usual
		if name == storage.RunTable {
			most += deliveries
		}
		if rows > most {
			w.brokenLocked("SECURITY.md: table %s has %d rows", name, rows)
		}
	}
}

// judgeMessage judges what became of a message.
func (w *World) judgeMessage(m *message, letters map[string][]letter) {
	l, r := w.ledger(m.token), w.ledger(m.token+replySuffix)
	ends := len(letters[m.token]) + len(letters[m.token+replySuffix])
	for _, letter := range letters[m.token] {
		w.judgeLetter(m, letter)
	}
	isDone := func(of *ledger) (done bool) {
		for _, f := range of.facts {
			done = done || f.kind == answered && f.status/100 == 2
		}
		return done
	}
	switch {
	case ends > 0, l.isRemoved, r.isRemoved, m.giveUp == "drop":
	case m.hasReply && !isDone(r):
		w.brokenLocked("docs/reliability.md: %s is lost: its sender was not told", m.token)
	case !m.hasReply && !isDone(l):
		w.brokenLocked("docs/reliability.md: %s is lost", m.token)
	}
	unsure := l.unsure + r.unsure
	if ends > 1+unsure+l.lives {
		w.brokenLocked("docs/reliability.md: %s ended %d times, faults explain %d", m.token, ends, 1+unsure)
	}
	if m.giveUp == "fault" {
		return // its last attempt is repeated
	}
	w.judgeCalls(m.token, l, unsure)
	w.judgeCalls(m.token+replySuffix, r, unsure)
	if unsure+l.lives+l.stops+r.stops == 0 {
		w.judgeLog(m, l)
		w.judgeOrder(m, m.token, l)
	}
}

// judgeCalls judges how often each attempt was made.
func (w *World) judgeCalls(token string, l *ledger, unsure int) {
	made := map[int]int{}
	for _, f := range l.facts {
		if f.kind == called {
			made[f.attempt]++
		}
	}
	for attempt, times := range made {
		if times > 1+unsure+l.lives+l.stops {
			w.brokenLocked("docs/reliability.md: %s: attempt %d was made %d times, faults explain %d", token, attempt,
				times, 1+unsure+l.lives+l.stops)
		}
	}
}

// judgeLog judges the log of a message that nothing has disturbed: it has a line for each delivery.
func (w *World) judgeLog(m *message, l *ledger) {
	received, settled := 0, 0
	for _, f := range l.facts {
		if f.kind == wasLed && !strings.HasSuffix(f.queue, poisonSuffix) {
			received++
		}
	}
	for _, line := range w.lines {
		isOf := strings.Contains(line.text, `"request_id":"`+m.id+`"`)
		if isOf && strings.Contains(line.text, `"message":"settled"`) {
			settled++
		}
	}
	if w.isAlone(m) && m.queue != routedQueue && !m.isMalformed && received != settled {
		w.brokenLocked("docs/log.md: %s: %d deliveries, and %d lines", m.token, received, settled)
	}
}

// judgeOrder judges a message that nothing has disturbed: its attempts and delays.
func (w *World) judgeOrder(m *message, token string, l *ledger) {
	latest := 0
	var failedAt, asked time.Duration
	isOver := 0
	for _, f := range l.facts {
		switch f.kind {
		case called:
			if isOver > 0 {
				w.brokenLocked("docs/retry.md: %s: attempt %d after the last answer, %d", token, f.attempt, isOver)
			}
			isGap := f.attempt > latest+1 && !w.refused(m.host) && !l.isEdited
			if f.attempt <= latest || isGap {
				w.brokenLocked("docs/retry.md: %s: attempt %d after attempt %d", token, f.attempt, latest)
			}
			least := time.Duration(0)
			if latest > 0 {
				least = m.delays[min(latest-1, len(m.delays)-1)] * 3 / 4
			}
			least = max(least, asked) - w.drift()
			isLast := f.at > w.deadlineOf(m)-90*time.Second || l.isEdited
			if latest > 0 && f.at-failedAt < least && !isLast {
				w.brokenLocked("docs/retry.md: %s: attempt %d came %v after the one before, at least %v", token,
					f.attempt, f.at-failedAt, least)
			}
			latest = f.attempt
		case answered:
			failedAt, asked = f.at, f.asked
			if f.isLast {
				isOver = f.status
			}
		case sent, wasLed, wasPut, wasSet, wasGone:
		}
	}
}

// deadlineOf returns the deadline of a message, or the earliest that it may have if its sender gave none.
func (w *World) deadlineOf(m *message) time.Duration {
	if m.deadline > 0 {
		return m.deadline
	}
	return m.at + w.settings.expiration - w.Ahead.Abs()
}

// refused reports whether a target has refused connections: such a call is an attempt that the target does not see.
func (w *World) refused(host string) bool {
	return slices.ContainsFunc(w.troubles, func(t trouble) bool {
		return (t.host == host || host == moving && t.host == secured) && t.mode == refuses
	})
}

// keeperTime is longer than until the keeper has kept a message from expiring: it may have claimed it for 5 minutes.
const keeperTime = 8 * time.Minute

// ends are the reasons of dead letters.
var ends = []string{
	"rejected", "expired", "exhausted", "malformed", "host_gave_up", "redirected", "bad_url", "target_refused",
}

// judgeLetter judges a dead letter.
func (w *World) judgeLetter(m *message, letter letter) {
	content := string(decoded(letter.Text))
	isOurs := letter.reason != ""
	switch {
	case m.isMalformed && content != string(m.content):
		w.brokenLocked("docs/envelope.md: %s: a malformed message was changed", m.token)
	case !m.isMalformed && isOurs && !m.isNexus && m.body != "" && !strings.Contains(content, string(encoded(m.body))):
		w.brokenLocked("docs/envelope.md: %s: the dead letter has another body", m.token)
	case letter.Expires() && (isOurs || w.now()-max(w.writtenAt(letter.ID), w.Calm) > keeperTime):
		w.brokenLocked("docs/reliability.md: %s: the dead letter expires at %v", m.token, letter.ExpiresAt)
	case isOurs && !slices.Contains(ends, letter.reason):
		w.brokenLocked("docs/log.md: %s: a dead letter because of %s", m.token, letter.reason)
	case isOurs && !m.isMalformed && m.giveUp == "drop" && letter.reason != "host_gave_up":
		w.brokenLocked("docs/envelope.md: %s: a dead letter, and its sender wants none", m.token)
	case isOurs && !m.isMalformed && m.hasReply && letter.reason != "host_gave_up":
		w.brokenLocked("docs/envelope.md: %s: a dead letter, and its sender is not told", m.token)
	case letter.reason == "rejected" && !w.isDisturbed(m.token) && !w.isOver(m.token):
		w.brokenLocked("docs/retry.md: %s: given up, although its target wants it again", m.token)
	case letter.reason == "expired" && w.ledger(m.token).stops == 0 && !w.isDisturbed(m.token) && w.hadTime(m):
		w.brokenLocked("docs/retry.md: %s: expired, and its target had answered in time", m.token)
	case letter.reason == "expired" && m.deadline > 0 && w.ledger(m.token).unsure == 0 &&
		m.deadline-w.writtenAt(letter.ID) > 2*time.Minute+m.delays[0]:
		w.brokenLocked("docs/retry.md: %s: given up %v before its deadline", m.token, m.deadline-w.writtenAt(letter.ID))
	}
}

// isOver reports whether the target of a message has given its last answer.
func (w *World) isOver(token string) bool {
	return slices.ContainsFunc(w.ledger(token).facts, func(f fact) bool { return f.isLast })
}

// hadTime reports whether a message had seven minutes to be delivered, in which nothing stood in its way.
func (w *World) hadTime(m *message) bool {
	from := max(m.at, m.notBefore)
	for _, t := range w.troubles {
		if t.host == m.host || m.host == moving && t.host == secured {
			from = max(from, t.to)
		}
	}
	for _, o := range w.outages {
		from = max(from, o.to+time.Minute)
	}
	if m.host == narrow || m.host == metered || m.host == pausing || len(w.kills) > 0 {
		from = max(from, w.Calm)
	}
	if m.host == narrow {
		from += w.workOf(narrow) / narrowConcurrency
	}
	for n := range min(m.fails, 1000) {
		from += m.took + max(m.delays[min(n, len(m.delays)-1)]*3/2, m.retryAfter*2)
	}
	isEverAnswered := m.took < w.settings.callTimeout-time.Second && (m.host != narrow ||
		w.settings.callTimeout > longest)
	return m.fails < 1000 && isEverAnswered && w.deadlineOf(m)-from > 7*time.Minute
}

// workOf returns how long all calls to a host last together, about.
func (w *World) workOf(host string) (all time.Duration) {
	const attempts = 10 // of a message that never succeeds
	for _, m := range w.messages {
		if m.host == host {
			all += min(m.took, w.settings.callTimeout) * time.Duration(1+min(m.fails, attempts))
		}
	}
	return all
}

func (w *World) writtenAt(id string) time.Duration {
	if m := w.items[id]; m != nil {
		return m.writtenAt
	}
	return 0
}

// rowsOf returns the rows of a partition of the record by their ids.
func (w *World) rowsOf(partition string) map[string]storage.Entity {
	rows := map[string]storage.Entity{}
	_ = w.tables.Open(storage.ScheduledTable).List(context.Background(), storage.Query{Partition: partition},
		func(e storage.Entity) error {
			rows[e.ID] = e
			return nil
		})
	return rows
}

// compareRows compares the record with the messages that wait, in a quiet minute.
func (w *World) compareRows() {
	if !w.settings.tables {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	const settled = 15 * time.Second
	now := w.now()
	for _, queue := range []string{mainQueue, priorityQueue} {
		rows := w.rowsOf(queue)
		for _, m := range w.store.All(queue) {
			known := w.items[m.ID]
			waits := m.NextVisibleAt.Sub(w.begin)
			if known == nil || known.writtenAt < w.Calm+time.Minute || now-known.writtenAt < settled ||
				waits-known.writtenAt < 31*time.Second || known.until > now || waits < now+time.Second {
				continue
			}
			row, found := rows[m.ID]
			recorded, _ := row.Values["content"].([]byte)
			attempts, _ := row.Values["attempts"].(int32)
			switch {
			case !found:
				w.brokenLocked("docs/calls.md: %s waits until %v, and the record has no row", known.token, waits)
			case row.Values["popReceipt"] != m.PopReceipt:
				w.brokenLocked("docs/calls.md: %s: the row has another receipt", known.token)
			case string(recorded) != string(decoded(m.Text)):
				w.brokenLocked("docs/calls.md: %s: the row has another content", known.token)
			case known.envelope != nil && int(attempts) != known.attempts():
				w.brokenLocked("docs/calls.md: %s: the row has %d attempts, not %d", known.token, attempts,
					known.attempts())
			}
			const late = 31 * time.Second // a wait is made of several delays, and a write can be slow
			due, _ := row.Values["nextAttemptAt"].(time.Time)
			if found && due.Sub(w.begin) < waits-late-w.drift() {
				w.brokenLocked("docs/calls.md: %s waits until %v, and its row until %v", known.token, waits,
					due.Sub(w.begin))
			}
		}
	}
}

// differences returns in what the record and the queues differ, when nothing waits for its next attempt.
func (w *World) differences(letters map[string][]letter) (all []string) {
	if !w.settings.tables {
		return nil
	}
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	onQueue := map[string]string{}
	for token, all := range letters {
		for _, letter := range all {
			onQueue[letter.queue+" "+letter.ID] = token
		}
	}
	recorded := map[string]bool{}
	for _, queue := range []string{mainQueue, priorityQueue, routedQueue} {
		for id := range w.rowsOf(queue) {
			m := w.items[id]
			if m == nil {
				continue
			}
			isRetried := w.ledger(m.token).lives > 0 // by a command that perhaps does not know it
			isWellKnown := w.drift() <= storage.ClockDifference && !isRetried
			if m.goneAt > w.Calm+time.Minute && isWellKnown && !w.wasGivenUp(m, letters) {
				add("docs/calls.md: %s: a row of %s without a message", m.token, queue)
			}
		}
		for id, row := range w.rowsOf(queue + poisonSuffix) {
			since, _ := row.Values["since"].(time.Time)
			deleted, _ := row.Values["deletedAt"].(time.Time)
			if since.IsZero() || !deleted.IsZero() {
				continue
			}
			recorded[queue+poisonSuffix+" "+id] = true
			if onQueue[queue+poisonSuffix+" "+id] == "" && !w.isPostponed(letters, queue+poisonSuffix) {
				add("docs/calls.md: a row of %s without a message: %s %s", queue+poisonSuffix, id, w.tokenOfLocked(id))
			}
		}
	}
	for key, token := range onQueue {
		queue, _, _ := strings.Cut(key, " ")
		if !recorded[key] && !w.isPostponed(letters, queue) {
			add("docs/calls.md: %s: a dead letter without a row: %s", token, key)
		}
	}
	return all
}

// wasGivenUp reports whether a host has moved a message to its poison queue: its row stays for an hour.
func (w *World) wasGivenUp(m *queueItem, letters map[string][]letter) bool {
	return slices.ContainsFunc(letters[m.token], func(l letter) bool {
		isOf := l.queue == m.queue+poisonSuffix && (l.reason == "" || l.reason == "host_gave_up")
		return isOf && w.writtenAt(l.ID) >= m.writtenAt
	})
}

// isPostponed reports whether a poison queue is not read for an hour: it was, while some of its messages were
// invisible, and the numbers of its rows, or of those with a message, and of its messages have stayed the same.
func (w *World) isPostponed(letters map[string][]letter, queue string) bool {
	rows := w.rowsOf(queue)
	reading := rows[record.ReadingID].Values
	messages := map[string]bool{}
	for _, all := range letters {
		for _, l := range all {
			if l.queue == queue {
				messages[l.ID] = true
			}
		}
	}
	recorded, seen := 0, 0
	for id, row := range rows {
		since, _ := row.Values["since"].(time.Time)
		deleted, _ := row.Values["deletedAt"].(time.Time)
		if !since.IsZero() && deleted.IsZero() {
			recorded++
			if messages[id] {
				seen++
			}
		}
	}
	rowsThen, _ := reading["rows"].(int32)
	messagesThen, _ := reading["messages"].(int32)
	isSame := int(rowsThen) == recorded || int(rowsThen) == seen
	return isSame && int(messagesThen) == len(messages)
}

func (w *World) tokenOfLocked(id string) string {
	if m := w.items[id]; m != nil {
		return m.token
	}
	return fmt.Sprintf("(message %s)", id)
}
