package world

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"asynccaller/handler/internal/storage"
)

// wrote notes a message that was written.
func (w *World) wrote(p *process, queue, id, text string, ttl time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	content := decoded(text)
	token := tokenIn(content)
	attempts, hasAttempts := attemptsIn(content)
	hasAttempts = hasAttempts && !strings.HasSuffix(token, replySuffix) // the text of a callback has those of its call
	w.messages[id] = &leasedMessage{token: token, queue: queue, attempts: attempts, writtenAt: w.now()}
	w.note(token, fact{kind: wasPut, by: p.name, id: id, attempt: attempts, queue: queue})
	w.touched(p, wasPut, queue, id, text)
	if p.class == operator {
		return
	}
	if ttl > 0 && p.class == instance {
		w.brokenLocked("docs/reliability.md: %s: written to %s with a time to live of %v", token, queue, ttl)
	}
	for _, m := range w.messages {
		if m.by != p.holder {
			continue
		}
		isReply := token == m.token+replySuffix
		if m.token == token || isReply {
			m.isSettled = true
		}
		isHeld := m.token == token && w.now() < m.until && m.hasAttempts && hasAttempts
		if isHeld && !strings.HasSuffix(queue, poisonSuffix) && attempts != m.attempts && attempts != m.attempts+1 &&
			!w.isOther(m, token) {
			w.brokenLocked("docs/envelope.md: %s: attempts went from %d to %d", token, m.attempts, attempts)
		}
	}
}

// isOther reports whether a process holds another message of a token.
func (w *World) isOther(m *leasedMessage, token string) bool {
	for _, other := range w.messages {
		if other != m && other.token == token && other.by == m.by && w.now() < other.until {
			return true
		}
	}
	return false
}

// changed notes a message that was updated.
func (w *World) changed(p *process, queue, id, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.messages[id]
	if m == nil {
		return
	}
	w.touched(p, wasSet, queue, id, text)
	content := decoded(text)
	attempts, hasAttempts := attemptsIn(content)
	if p.class == instance && hasAttempts && m.hasAttempts && attempts != m.attempts && attempts != m.attempts+1 {
		w.brokenLocked("docs/envelope.md: %s: attempts went from %d to %d", m.token, m.attempts, attempts)
	}
	m.attempts, m.hasAttempts, m.writtenAt = attempts, hasAttempts, w.now()
	if p.class == instance {
		m.isSettled, m.until = true, 0
	}
	w.note(m.token, fact{kind: wasSet, by: p.name, id: id, attempt: attempts, queue: queue})
}

// removed notes a message that was deleted. The first guarantee: what replaces it exists.
func (w *World) removed(p *process, queue, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.messages[id]
	if m == nil {
		return
	}
	w.note(m.token, fact{kind: wasGone, by: p.name, id: id, queue: queue})
	m.until, m.goneAt = 0, w.now()
	w.touched(p, wasGone, queue, id, "")
	sent := w.byToken[strings.TrimSuffix(m.token, replySuffix)]
	isExpected := m.isSettled || p.class == operator || sent == nil || sent.isDropped || w.settings.history
	if !isExpected {
		w.brokenLocked("docs/reliability.md: %s: deleted from %s before anything was settled", m.token, queue)
	}
}

// leased notes messages that were received.
func (w *World) leased(p *process, queue string, all []storage.Message, lease time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, received := range all {
		m := w.messages[received.ID]
		if m == nil {
			continue
		}
		w.touched(p, wasLed, queue, received.ID, received.Text)
		content := decoded(received.Text)
		m.attempts, m.hasAttempts = attemptsIn(content)
		m.hasAttempts = m.hasAttempts && !strings.HasSuffix(m.token, replySuffix)
		m.by, m.at, m.until, m.isSettled = p.name, w.now(), w.now()+lease, false
		w.note(m.token, fact{kind: wasLed, by: p.name, id: received.ID, attempt: m.attempts, queue: queue})
	}
}

// rowsWritten judges rows.
func (w *World) rowsWritten(table string, rows []storage.Entity) {
	for _, row := range rows {
		for name, value := range row.Values {
			text, isText := value.(string)
			if isText && strings.Contains(text, secretMark) {
				w.broken("SECURITY.md: a row of %s has a secret in %s: %.100s", table, name, text)
			}
		}
	}
}

// attemptsMember is that of both formats.
var attemptsMember = regexp.MustCompile(`"(?:attempts|Attempts)":(\d+)`)

// attemptsIn returns the attempts of a content: 0 if it is an envelope that has none.
func attemptsIn(content []byte) (attempts int, isEnvelope bool) {
	if !json.Valid(content) {
		return 0, false
	}
	found := attemptsMember.FindSubmatch(content)
	if found == nil {
		return 0, true
	}
	attempts, err := strconv.Atoi(string(found[1]))
	return attempts, err == nil
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
	for _, m := range w.Schedule.messages {
		w.judgeMessage(m, letters)
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
	case ends > 0, l.isRemoved, m.isDropped:
	case m.hasReply && !isDone(r):
		w.brokenLocked("docs/reliability.md: %s is lost: its sender was not told", m.token)
	case !m.hasReply && !isDone(l):
		w.brokenLocked("docs/reliability.md: %s is lost", m.token)
	}
	unsure := l.unsure + r.unsure
	if ends > 1+unsure+l.lives {
		w.brokenLocked("docs/reliability.md: %s ended %d times, faults explain %d", m.token, ends, 1+unsure)
	}
	w.judgeCalls(m.token, l, unsure)
	w.judgeCalls(m.token+replySuffix, r, unsure)
	if unsure == 0 && l.lives == 0 {
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
		if times > 1+unsure+l.lives {
			w.brokenLocked("docs/reliability.md: %s: attempt %d was made %d times, faults explain %d", token, attempt, times,
				1+unsure+l.lives)
		}
	}
}

// judgeOrder judges a message that nothing has disturbed: its attempts and delays.
func (w *World) judgeOrder(m *message, token string, l *ledger) {
	latest := 0
	var failedAt, asked time.Duration
	for _, f := range l.facts {
		switch f.kind {
		case called:
			isGap := f.attempt > latest+1 && !w.refused(m.host) && !l.isEdited
			if f.attempt <= latest || isGap {
				w.brokenLocked("docs/retry.md: %s: attempt %d after attempt %d", token, f.attempt, latest)
			}
			least := time.Duration(0)
			if latest > 0 {
				least = m.delays[min(latest-1, len(m.delays)-1)] * 3 / 4
			}
			least = max(least, asked) - w.drift()
			isLast := f.at > w.deadlineOf(m)-90*time.Second
			if latest > 0 && f.at-failedAt < least && !isLast {
				w.brokenLocked("docs/retry.md: %s: attempt %d came %v after the one before, at least %v", token, f.attempt,
					f.at-failedAt, least)
			}
			latest = f.attempt
		case answered:
			failedAt, asked = f.at, f.asked
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
	return slices.ContainsFunc(w.troubles, func(t trouble) bool { return t.host == host && t.mode == refuses })
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
	case letter.Expires() && isOurs:
		w.brokenLocked("docs/reliability.md: %s: the dead letter expires at %v", m.token, letter.ExpiresAt)
	case letter.reason == "expired" && m.deadline > 0 && m.deadline-w.writtenAt(letter.ID) > 2*time.Minute+m.delays[0]:
		w.brokenLocked("docs/retry.md: %s: given up %v before its deadline", m.token, m.deadline-w.writtenAt(letter.ID))
	}
}

func (w *World) writtenAt(id string) time.Duration {
	if m := w.messages[id]; m != nil {
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
			known := w.messages[m.ID]
			waits := m.NextVisibleAt.Sub(w.begin)
			if known == nil || known.writtenAt < w.Calm+time.Minute || now-known.writtenAt < settled ||
				waits-known.writtenAt < 31*time.Second || known.until > now || waits < now+time.Second {
				continue
			}
			row, found := rows[m.ID]
			switch {
			case !found:
				w.brokenLocked("docs/calls.md: %s waits until %v, and the record has no row", known.token, waits)
			case row.Values["popReceipt"] != m.PopReceipt:
				w.brokenLocked("docs/calls.md: %s: the row has another receipt", known.token)
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
			m := w.messages[id]
			if m == nil {
				continue
			}
			if m.goneAt > w.Calm+time.Minute {
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
			if onQueue[queue+poisonSuffix+" "+id] == "" && !w.isNumberRight(letters, queue+poisonSuffix) {
				add("docs/calls.md: a row of %s without a message: %s %s", queue+poisonSuffix, id, w.tokenOfLocked(id))
			}
		}
	}
	for key, token := range onQueue {
		queue, _, _ := strings.Cut(key, " ")
		if !recorded[key] && !w.isNumberRight(letters, queue) {
			add("docs/calls.md: %s: a dead letter without a row: %s", token, key)
		}
	}
	return all
}

func (w *World) tokenOfLocked(id string) string {
	if m := w.messages[id]; m != nil {
		return m.token
	}
	return fmt.Sprintf("(message %s)", id)
}
