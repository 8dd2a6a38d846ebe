package world

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/operate/account"
	shown "asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

// records are what the judge of reports knows.
type records struct {
	// jobs are those of processes, by their names.
	jobs map[string]*job
	// effects are what was done to each message, by its id, and texts the latest text of each.
	effects map[string][]effect
	texts   map[string]string
	// strikes is how often something happened to a request of a process, and blind when that was a request to a table.
	// Repeated has the processes of which a request was repeated on its way, so that they know the second answer only.
	strikes  map[string]int
	blind    map[string]time.Duration
	repeated map[string]bool
	// tableFaults are when something happened to requests to tables.
	tableFaults []time.Duration
	// written counts the texts that each command has written.
	written map[writtenText]int
	// lowered are the limits that are lower than those of targets.json, by host.
	lowered map[string]pause
	// restored counts what undos restore, by run and what it was.
	restored map[string]int
}

func newRecords() records {
	return records{
		jobs: map[string]*job{}, effects: map[string][]effect{}, texts: map[string]string{},
		strikes: map[string]int{}, blind: map[string]time.Duration{}, repeated: map[string]bool{},
		written: map[writtenText]int{}, lowered: map[string]pause{}, restored: map[string]int{},
	}
}

// effect is what a process has done to a message. The text before is that of a message that was changed or deleted.
type effect struct {
	at           time.Duration
	kind         factKind
	by           *process
	queue, id    string
	text, before string
}

// writtenText is a text that a command has written to a queue.
type writtenText struct {
	job         *job
	queue, text string
}

// struck notes that something has happened to a request. It is called with the lock of the world.
func (w *World) struck(p *process, a about, f what) {
	if f == "" {
		return
	}
	w.strikes[p.name]++
	w.repeated[p.name] = w.repeated[p.name] || f == repeated
	if a.tables {
		const reading = 17 * time.Second
		if w.now()-max(w.blind[p.name], p.startedAt) > reading {
			w.readAt[p.name] = w.now() - reading
		}
		w.blind[p.name] = w.now()
		w.tableFaults = append(w.tableFaults, w.now())
	}
}

// isBlind reports whether an instance may not know the settings of targets. It is called with the lock of the world.
func (w *World) isBlind(name string) bool {
	at, wasStruck := w.blind[name]
	return wasStruck && w.now()-at < 45*time.Second
}

// touched notes what a process has done to a message, and what an operator changes of what is expected of it. It is
// called with the lock of the world.
func (w *World) touched(p *process, kind factKind, queue, id, text string) {
	e := effect{w.now(), kind, p, queue, id, text, w.texts[id]}
	w.effects[id] = append(w.effects[id], e)
	if kind != wasGone {
		w.texts[id] = text
	}
	j := w.jobs[p.name]
	if p.class != operator || j == nil || kind == wasLed || kind == wasSet && text == e.before {
		return
	}
	token := tokenIn(decoded(e.text + e.before))
	base := strings.TrimSuffix(token, replySuffix)
	if kind != wasGone {
		base = strings.TrimSuffix(tokenIn(decoded(text)), replySuffix)
	}
	l, r := w.ledger(base), w.ledger(base+replySuffix)
	isDeletion := j.command == deleteLetters || j.command == deleteScheduled || j.command == eraseCalls
	if kind == wasGone {
		if isDeletion || j.undoes != nil && j.undoes.command == importLetters {
			l.isRemoved = true
			r.isRemoved = r.isRemoved || strings.HasSuffix(token, replySuffix)
		}
		return
	}
	l.isCopied = l.isCopied || j.command == importLetters
	if kind == wasPut {
		l.isRemoved, r.isRemoved = l.isRemoved && isDeletion, false // a deletion puts callbacks
		key := writtenText{j, queue, text}
		w.written[key]++
		if w.written[key] > 1 { // as after a kill
			l.unsure++
			r.unsure++
		}
	}
	isSent := kind == wasPut && !strings.HasSuffix(queue, poisonSuffix)
	if isSent || j.command == retryScheduled || j.command == resumeTarget || j.command == importLetters {
		l.lives++
		r.lives++
	}
	w.expect(base, decoded(text), l)
}

// expect makes a content that an operator has written what is expected of the call.
func (w *World) expect(token string, content []byte, l *ledger) {
	m := w.byToken[token]
	v := versionOf(content)
	if m == nil || m.isMalformed || !v.isKnown || strings.HasSuffix(tokenIn(content), replySuffix) {
		return
	}
	deadline := time.Duration(0)
	if !v.deadline.IsZero() && l.unsure == 0 { // another message of the call may have another one
		deadline = v.deadline.Sub(w.begin)
	}
	isSame := m.host == v.host && m.header.Get("X-Edited") == v.edited && m.deadline == deadline
	l.isEdited = l.isEdited || !isSame
	m.host, m.deadline = v.host, deadline
	m.header.Set("X-Edited", v.edited)
}

// version is what an edit can change of a call.
type version struct {
	host, edited string
	deadline     time.Time
	isKnown      bool
}

func versionOf(content []byte) (v version) {
	all := members(content)
	call := callOf(all)
	if call == nil {
		return v
	}
	v.isKnown = true
	for _, name := range []string{"deadline", "DeadlineAt"} {
		if at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(all[name])); err == nil {
			v.deadline = at
		}
	}
	v.host, _ = call["host"].(string)
	if text, isNative := call["url"].(string); isNative {
		_, rest, _ := strings.Cut(text, "://")
		v.host, _, _ = strings.Cut(rest, "/")
	}
	headers, _ := call["headers"].(map[string]any)
	v.edited, _ = headers["X-Edited"].(string)
	return v
}

// callOf returns the call of an envelope with such members, or nil.
func callOf(all map[string]any) map[string]any {
	call, isNative := all["call"].(map[string]any)
	if !isNative {
		raw, _ := all["RawRequest"].(map[string]any)
		call, _ = raw["CallOut"].(map[string]any)
	}
	return call
}

// judgeSaid judges what operators read.
func (w *World) judgeSaid(text string) {
	if strings.Contains(text, secretMark) {
		w.broken("SECURITY.md: an operator reads a secret: %s", text)
	}
}

// judgeAtOnce judges what must hold when a command has ended.
func (w *World) judgeAtOnce(j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.settings.tables || j.isKilled || w.strikesOf(j) > 0 || j.err != nil {
		return
	}
	if j.command == eraseCalls {
		w.judgeErased(j)
	}
	for _, e := range w.effectsOf(j) {
		if e.kind != wasGone || !strings.HasSuffix(e.queue, poisonSuffix) {
			continue
		}
		row, found, _ := w.tables.Open(storage.ScheduledTable).Get(context.Background(), e.queue, e.id)
		_, isMark := row.Values["deletedAt"]
		if !found || !isMark {
			w.untrue(tokenIn(decoded(e.before)), "%s has deleted %s, and left no mark", e.by.name, e.id)
		}
	}
}

// effectsOf returns what the processes of a job have done, in any order.
func (w *World) effectsOf(j *job) (all []effect) {
	for _, of := range w.effects {
		for _, e := range of {
			if slices.Contains(j.processes, e.by.name) {
				all = append(all, e)
			}
		}
	}
	return all
}

func (w *World) strikesOf(j *job) (n int) {
	for _, name := range j.processes {
		n += w.strikes[name]
	}
	return n
}

// knowsSecond reports whether a request of a command was repeated on its way.
func (w *World) knowsSecond(j *job) bool {
	return slices.ContainsFunc(j.processes, func(name string) bool { return w.repeated[name] })
}

// judgeReports compares the reports of operators with what has happened. It is called with the lock of the world.
func (w *World) judgeReports() {
	seen := map[*job]bool{}
	for _, j := range w.jobs {
		if !seen[j] {
			seen[j] = true
			w.judgeJob(j)
		}
	}
}

// judgeJob judges a command.
func (w *World) judgeJob(j *job) {
	effects := w.effectsOf(j)
	if j.command == eraseCalls {
		w.judgeErase(j, effects)
		return
	}
	var steps []journal.Step // of a run that was confirmed
	var progress []journal.Progress
	if j.run != "" {
		read, err := j.of.folder.Read(j.run)
		if err != nil {
			w.brokenLocked("docs/calls.md: %v", err)
			return
		}
		defer func() { _ = read.Close() }()
		if read.Agreed {
			progress = read.Steps()
		}
		for n := range progress {
			s, err := read.Step(n)
			if err != nil {
				w.brokenLocked("docs/calls.md: %v", err)
				return
			}
			steps = append(steps, s)
		}
	}
	for n, s := range steps {
		w.judgeSelected(j, s)
		w.judgeStep(j, effects, steps, s, progress[n])
	}
	w.judgePace(j, effects)
	w.judgeForeign(effects, steps)
	w.judgeWhole(j, steps)
	if j.undoes != nil && len(steps) > 0 {
		w.judgeUndo(j, steps, progress)
	}
}

// untrue notes that a report about a call is not true, or that its command has done something else.
func (w *World) untrue(about, format string, args ...any) {
	w.brokenLocked("docs/calls.md: %s: %s", about, fmt.Sprintf(format, args...))
}

// count counts the effects that are meant.
func count(effects []effect, isMeant func(effect) bool) (n int) {
	for _, e := range effects {
		if isMeant(e) {
			n++
		}
	}
	return n
}

// isTouched reports whether others have done something to a message while a command was carried out.
func (w *World) isTouched(j *job, id string) bool {
	began, own := j.began, j.processes
	if j.undoes != nil { // its receipts are as old as its run
		began, own = j.undoes.began, slices.Concat(own, j.undoes.processes)
	}
	return slices.ContainsFunc(w.effects[id], func(e effect) bool {
		return e.at >= began && e.at <= j.ended && !slices.Contains(own, e.by.name)
	})
}

// judgeStep compares the report on a step with what has happened.
func (w *World) judgeStep(j *job, effects []effect, steps []journal.Step, s journal.Step, p journal.Progress) {
	var deleted, written, told, set int
	isPut := func(p *journal.Put, text string) func(effect) bool {
		return func(e effect) bool { return e.kind == wasPut && e.queue == p.Queue && e.text == text }
	}
	isUntouched := true
	if s.Take != nil {
		isUntouched = !w.isTouched(j, s.Take.ID)
		deleted = count(effects, func(e effect) bool { return e.kind == wasGone && e.id == s.Take.ID })
	}
	same := 0
	if s.Put != nil {
		written = count(effects, isPut(s.Put, s.Text()))
		for _, other := range steps {
			if other.Put != nil && other.Put.Queue == s.Put.Queue && other.Text() == s.Text() {
				same++
			}
		}
	}
	isOnlyTold := true
	if s.Then != nil {
		told = count(effects, isPut(s.Then, s.Then.Text))
		isOnlyTold = !slices.ContainsFunc(steps, func(other journal.Step) bool { // of two messages of a call
			return other.N != s.N && other.Then != nil && other.Then.Text == s.Then.Text
		})
	}
	if s.Set != nil {
		set = count(effects, func(e effect) bool {
			return e.kind == wasSet && e.id == s.Take.ID && e.text == s.Set.Text
		})
	}
	takes := s.Take != nil && s.Set == nil
	isDone, isSkipped := p.State == journal.Done, p.State == journal.Skipped
	isSure := !p.Unknown && !p.PossibleDuplicate
	isExplained := j.isKilled || w.strikesOf(j) > 0 || !isUntouched
	mustBeDone := !isExplained && (s.Take == nil || !s.Take.ByReceipt)
	isAlone, isChanged := same <= 1, deleted+written+told+set > 0
	for _, rule := range []struct {
		isBroken bool
		is       string
	}{
		{p.Unfinished() && !j.isLeft, "is not finished"},
		{isDone && isSure && takes && deleted != 1, "done, but not deleted by the run"},
		{
			isDone && isSure && isAlone && s.Put != nil && written != 1 && !w.knowsSecond(j),
			"done, but not written once",
		},
		{isDone && s.Put != nil && written == 0, "done, but not written"},
		{isDone && s.Then != nil && told == 0, "done, but without the callback"},
		{told > 1 && isOnlyTold && !isExplained, "the callback was sent again"},
		{told > 0 && isOnlyTold && deleted == 0, "the callback tells of a deletion that was none"},
		{told > 0 && isOnlyTold && !isDone, "the callback was sent, but this is not reported"},
		{isDone && s.Set != nil && set == 0, "done, but not changed"},
		{isSkipped && !p.Unknown && isAlone && isOnlyTold && isChanged && !w.knowsSecond(j), "skipped, but changed"},
		{p.Unknown && !isSkipped, "not known, but not skipped"},
		{!isSure && !isExplained, "not sure, without a reason"},
		{mustBeDone && !isDone && !j.isLeft, "not done, without a reason"},
	} {
		if rule.isBroken {
			w.untrue(s.RequestID, "step %d of %s: %s: %s %s; deleted %d, written %d, told %d, set %d",
				s.N, j.run, rule.is, p.State, p.Why, deleted, written, told, set)
		}
	}
	if j.dedupe && j.command == retryLetters {
		w.judgeDeduped(j, steps, s)
	}
	w.judgeText(j, s)
	base := w.tokenOfStep(s)
	if !isSure || w.knowsSecond(j) || p.Unfinished() {
		w.ledger(base).unsure++
		w.ledger(base+replySuffix).unsure++
	}
	if isDone && s.Then != nil {
		w.ledger(base).isRemoved = false // its sender must be told
	}
}

// judgeDeduped judges that a retry has sent one message of a call.
func (w *World) judgeDeduped(j *job, steps []journal.Step, s journal.Step) {
	m := w.byToken[s.RequestID]
	isShared := m != nil && !w.isAlone(m) // by another sender
	for _, other := range steps {
		if other.N < s.N && other.RequestID == s.RequestID && !isShared {
			w.brokenLocked("docs/commands.md: %s: %s has sent a call twice", s.RequestID, j.run)
		}
	}
}

// judgeLowered judges calls while an operator has lowered a limit. It is called with the lock of the world.
func (w *World) judgeLowered(host string) {
	lower, isLower := w.lowered[host]
	now := w.now()
	from := lower.from + setting.Notice
	isAnyBlind := false
	for _, at := range w.blind {
		isAnyBlind = isAnyBlind || now-at < 2*time.Minute
	}
	if !isLower || now > lower.to || isAnyBlind {
		return
	}
	recent := 0
	for _, at := range w.begun[host] {
		if at > max(from, now-10*time.Second) {
			recent++
		}
	}
	switch {
	case host == metered && recent > 3: // 1.1 times 12 a minute and one
		w.brokenLocked("docs/targets.md: %d calls to %s in 10 s, at 12/m since %v", recent, host, lower.from)
	case host == narrow && w.calls[host] > 1 && now > from+w.settings.callTimeout+time.Minute:
		w.brokenLocked("docs/targets.md: %d calls to %s in flight, one since %v", w.calls[host], host, lower.from)
	}
}

// tokenOfStep returns the token of a call, also for its callback.
func (w *World) tokenOfStep(s journal.Step) string {
	text := ""
	switch {
	case s.Put != nil:
		text = s.Text()
	case s.Take.NoText:
		text = w.texts[s.Take.ID]
	default:
		text = s.Take.Text
	}
	return strings.TrimSuffix(tokenIn(decoded(text)), replySuffix)
}

// judgeSelected judges that a command has selected a message.
func (w *World) judgeSelected(j *job, s journal.Step) {
	if s.Take == nil || j.undoes != nil {
		return
	}
	text := s.Take.Text
	if s.Take.NoText {
		text = w.texts[s.Take.ID]
	}
	isPoison := strings.HasSuffix(s.Take.Queue, poisonSuffix)
	wantsPoison := j.command == retryLetters || j.command == deleteLetters
	v := versionOf(decoded(text))
	isMoved := v.host == moving && j.host == secured // rows have both hosts
	switch {
	case isPoison != wantsPoison:
		w.untrue(s.RequestID, "%s was about a message on %s", j.command, s.Take.Queue)
	case j.host != "" && v.isKnown && v.host != j.host && !isMoved && s.Take.Queue != routedQueue+poisonSuffix:
		w.untrue(s.RequestID, "%s of calls to %s was about one to %s", j.command, j.host, v.host)
	case len(j.ids) > 0 && !slices.Contains(j.ids, s.RequestID):
		w.untrue(s.RequestID, "%s was about %v", j.command, j.ids)
	}
}

// judgeRefusals judges that a retry refuses no dead letter that can be sent.
func (w *World) judgeRefusals(j *job, all []operation.Refusal) {
	for _, r := range all {
		m := w.byToken[r.Message.RequestID]
		isSendable := m != nil && w.isAlone(m) && !m.isMalformed && m.queue != routedQueue && m.extra == nil &&
			m.host != denied && m.notBefore == 0
		if isSendable && j.command == retryLetters && !j.dedupe {
			w.broken("docs/calls.md: %s: refused: %s", m.token, r.Why)
		}
	}
}

// judgeLook judges that a list has each dead letter once, and as it is.
func (w *World) judgeLook(j *job, listed account.Listed, seen []shown.Recorded) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j.ended = w.now()
	lacks, times := map[string]bool{}, map[string]int{}
	for _, v := range listed.Views {
		lacks[v.Queue] = v.Lacks() > 0
	}
	letters := map[string]letter{}
	for _, l := range j.before {
		letters[l.ID] = l
	}
	for _, m := range seen {
		times[m.ID]++
		item, l := w.items[m.ID], letters[m.ID]
		wasGone := item != nil && item.goneAt > 0 && item.goneAt < j.began
		switch {
		case times[m.ID] > 1:
			w.untrue(m.ID, "listed twice")
		case item == nil, wasGone && !m.Unseen && w.strikesOf(j) == 0:
			w.untrue(m.ID, "listed, and it is not on %s", m.Queue)
		case l.reason != "" && m.Reason != l.reason:
			w.untrue(m.ID, "listed because of %s, and is a dead letter because of %s", m.Reason, l.reason)
		case l.reason != "" && w.idOf(decoded(l.Text)) != "" && m.RequestID != w.idOf(decoded(l.Text)):
			w.untrue(m.ID, "listed as %s, and is of %s", m.RequestID, w.idOf(decoded(l.Text)))
		}
	}
	for _, l := range j.before {
		content := decoded(l.Text)
		isVisible := l.NextVisibleAt.Sub(w.begin) <= j.began && !lacks[l.queue]
		isHost := j.host == "" || l.reason != "" && l.reason != "malformed" && versionOf(content).host == j.host
		if times[l.ID] == 0 && isVisible && isHost && w.strikesOf(j) == 0 && !w.isTouched(j, l.ID) {
			w.untrue(tokenIn(content), "the dead letter %s is not listed", l.ID)
		}
	}
}

// idOf returns the request id of the call or the callback that a content is about; empty for one of a route.
func (w *World) idOf(content []byte) string {
	token := tokenIn(content)
	m := w.byToken[strings.TrimSuffix(token, replySuffix)]
	switch {
	case m == nil, m.queue == routedQueue:
		return ""
	case strings.HasSuffix(token, replySuffix):
		return envelope.CallbackID(m.id)
	}
	return m.id
}

// judgeWhole judges that a command has selected all dead letters that it should.
func (w *World) judgeWhole(j *job, steps []journal.Step) {
	isAboutLetters := j.command == retryLetters || j.command == deleteLetters
	if !isAboutLetters || !j.isPlanned || j.total != len(steps) || j.isKilled || w.strikesOf(j) > 0 {
		return
	}
	var left []string
	for _, l := range j.before {
		content := decoded(l.Text)
		v := versionOf(content)
		isVisible := l.NextVisibleAt.Sub(w.begin) <= j.began
		m := w.byToken[strings.TrimSuffix(tokenIn(content), replySuffix)]
		hasCall := m != nil && l.reason != "" && m.queue != routedQueue // so that its host and request id are known
		isHost := j.host == "" || hasCall && v.host == j.host
		isReply := strings.HasSuffix(tokenIn(content), replySuffix)
		isNamed := len(j.ids) == 0 || hasCall && !isReply && slices.Contains(j.ids, m.id)
		isTaken := slices.ContainsFunc(steps, func(s journal.Step) bool { return s.Take != nil && s.Take.ID == l.ID })
		if isVisible && isHost && isNamed && !isTaken && !w.isTouched(j, l.ID) {
			left = append(left, tokenIn(content)+" "+l.ID)
		}
	}
	if len(left) > j.refused {
		w.untrue(j.processes[0], "%s: refused %d, and left %v", j.command, j.refused, left)
	}
}

// judgePace judges that a retry sends no faster than it should, and the others after the first was delivered.
func (w *World) judgePace(j *job, effects []effect) {
	if j.command != retryLetters || len(j.processes) > 1 || w.strikesOf(j) > 0 {
		return
	}
	puts := slices.DeleteFunc(slices.Clone(effects), func(e effect) bool { return e.kind != wasPut })
	slices.SortFunc(puts, func(x, y effect) int { return cmp.Compare(x.at, y.at) })
	for n, e := range puts {
		const second = 900 * time.Millisecond // a request takes some milliseconds
		if n > 0 && j.rate == 1 && e.at-puts[n-1].at < second {
			w.untrue(j.run, "two messages sent in %v, at one a second", e.at-puts[n-1].at)
		}
	}
	if j.canary == 0 || len(puts) < 2 {
		return
	}
	token := tokenIn(decoded(puts[0].text))
	isDelivered := slices.ContainsFunc(w.ledger(token).facts, func(f fact) bool {
		return f.kind == answered && f.status/100 == 2 && f.at > puts[0].at && f.at < puts[1].at
	})
	if !isDelivered && w.kept[token] == 0 {
		w.untrue(j.run, "%s was sent first, and not delivered before others were sent", token)
	}
}

// judgeForeign judges that a command has changed nothing but what its journal names.
func (w *World) judgeForeign(effects []effect, steps []journal.Step) {
	for _, e := range effects {
		isNamed := slices.ContainsFunc(steps, func(s journal.Step) bool {
			isTaken := s.Take != nil && s.Take.ID == e.id && s.Take.Queue == e.queue
			isPut := s.Put != nil && s.Put.Queue == e.queue && s.Text() == e.text
			isThen := s.Then != nil && s.Then.Queue == e.queue && s.Then.Text == e.text
			switch e.kind {
			case wasGone:
				return isTaken && s.Set == nil
			case wasPut:
				return isPut || isThen
			case wasSet:
				return isTaken && s.Set != nil && s.Set.Text == e.text
			case sent, wasLed, called, answered:
			}
			return false
		})
		isChange := e.kind != wasLed && (e.kind != wasSet || e.text != e.before)
		if isChange && !isNamed {
			w.untrue(tokenIn(decoded(e.text+e.before)), "%s on %s by %s, and not named by its run", e.kind, e.queue,
				e.by.name)
		}
	}
}

// judgeUndo judges that an undo restores what its run has changed, as it was, and once.
func (w *World) judgeUndo(j *job, steps []journal.Step, progress []journal.Progress) {
	read, err := j.of.folder.Read(j.undoes.run)
	if err != nil {
		w.brokenLocked("docs/calls.md: %v", err)
		return
	}
	defer func() { _ = read.Close() }()
	var was []string
	for n, p := range read.Steps() {
		s, err := read.Step(n)
		if err == nil && s.Take != nil && p.State == journal.Done && !p.PossibleDuplicate {
			was = append(was, s.Take.Queue+" "+s.Take.Text)
		}
	}
	for n, s := range steps {
		key := ""
		switch {
		case progress[n].State == journal.Skipped && !progress[n].Unknown:
			continue
		case s.Put != nil:
			key = s.Put.Queue + " " + s.Text()
		case s.Set != nil:
			key = s.Take.Queue + " " + s.Set.Text
		default:
			continue // of an import
		}
		w.restored[j.undoes.run+key]++
		times := 0
		for _, text := range was {
			if text == key {
				times++
			}
		}
		if w.restored[j.undoes.run+key] > times {
			w.untrue(s.RequestID, "undos of %s restore %d times what was there %d times", j.undoes.run,
				w.restored[j.undoes.run+key], times)
		}
	}
}

// judgeText judges that a command changes of a message only what it is asked to.
func (w *World) judgeText(j *job, s journal.Step) {
	after := ""
	switch {
	case s.Take == nil, s.Take.NoText, j.undoes != nil:
		return
	case s.Set != nil:
		after = s.Set.Text
	case s.Put != nil:
		after = s.Text()
	default:
		return
	}
	b, a := decoded(s.Take.Text), decoded(after)
	old, changed := members(b), members(a)
	if old == nil || changed == nil {
		if !bytes.Equal(a, b) {
			w.untrue(s.RequestID, "a content that is no envelope was changed")
		}
		return
	}
	j.apply(old)
	for name, value := range old {
		isCorrected := strings.EqualFold(name, "createdAt") && w.isFuture(j, value) // its writer's clock is ahead
		if !j.mayChange(name) && !isCorrected && !reflect.DeepEqual(value, changed[name]) {
			w.untrue(s.RequestID, "%s has changed %s from %v to %v", j.command, name, value, changed[name])
		}
	}
	for name, value := range changed {
		if _, was := old[name]; !was && !j.mayChange(name) {
			w.untrue(s.RequestID, "%s has added %s: %v", j.command, name, value)
		}
	}
	deadline := versionOf(a).deadline
	if j.command == retryLetters && !deadline.IsZero() && deadline.Before(w.begin.Add(j.began)) {
		w.untrue(s.RequestID, "it is sent again with the deadline %v, which has passed", deadline)
	}
	if j.edit == editDeadline && !versionOf(a).deadline.Equal(j.deadline) {
		w.untrue(s.RequestID, "the deadline is %v, not %v", versionOf(a).deadline, j.deadline)
	}
}

// isFuture reports whether a time is later than the beginning of a command.
func (w *World) isFuture(j *job, value any) bool {
	at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(value))
	return err == nil && at.After(w.begin.Add(j.began))
}

// mayChange reports whether a command changes a member of an envelope by itself.
func (j *job) mayChange(name string) bool {
	switch j.command { //nolint:exhaustive // the others change no text
	case retryLetters:
		return !slices.Contains([]string{
			"asyncCaller", "call", "callback", "context", "requestId", "retry", "giveUp",
			"x-unknown", "notBefore", "Organization", "Environment", "OriginalRequestId", "RawRequest",
		}, name)
	case retryScheduled, resumeTarget:
		return slices.Contains([]string{
			"nextAttemptAt", "NextAttemptAt", "deadline", "notBefore", "reserved", "Reserved", "run", "Run",
		}, name)
	case editScheduled:
		isDeadline := j.edit == editDeadline && (name == "deadline" || name == "DeadlineAt")
		return isDeadline || strings.EqualFold(name, "reserved")
	}
	return false
}

// apply makes the change of an edit.
func (j *job) apply(of map[string]any) {
	call := callOf(of)
	if call == nil {
		return
	}
	switch j.edit {
	case editHeader:
		headers, _ := call["headers"].(map[string]any)
		if headers == nil {
			headers = map[string]any{}
			call["headers"] = headers
		}
		headers["X-Edited"] = j.edited
	case editHost:
		for _, name := range []string{"url", "host"} {
			text, _ := call[name].(string)
			if text != "" {
				call[name] = strings.Replace(text, "a.example", "b.example", 1)
			}
		}
	}
}

// members returns the members of an envelope. The call of a Nexus message is an object with its parts.
func members(content []byte) (all map[string]any) {
	err := json.Unmarshal(content, &all)
	if err != nil {
		return nil
	}
	raw, _ := all["RawRequest"].(map[string]any)
	text, _ := raw["CallOut"].(string)
	out, _ := base64.StdEncoding.DecodeString(text)
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(out)))
	if err == nil {
		body, _ := io.ReadAll(r.Body)
		headers := map[string]any{}
		for name, values := range r.Header {
			headers[name] = values[0]
		}
		raw["CallOut"] = map[string]any{
			"method": r.Method, "path": r.RequestURI, "host": r.Host, "headers": headers, "body": string(body),
		}
	}
	return all
}

// judgeErase judges an erase.
func (w *World) judgeErase(j *job, effects []effect) {
	token := j.erasure.RequestID + j.erasure.Text
	deleted := 0
	hasProblem := j.isKilled || j.err != nil || w.knowsSecond(j)
	for _, p := range j.places {
		hasProblem = hasProblem || p.Problem != ""
		isOfRows := p.Place == "outcomes" || p.Place == "history"
		if isOfRows && p.Left() > 0 && p.Problem == "" {
			w.brokenLocked("docs/commands.md: %s: an erase has left %d rows of %s", token, p.Left(), p.Place)
		}
	}
	isRepeated := slices.ContainsFunc(w.tableFaults, func(at time.Duration) bool { // the write of a row
		const late = 15 * time.Second
		return at > j.began-late && at < j.ended+late
	})
	for _, e := range effects {
		m := w.byToken[strings.TrimSuffix(tokenIn(decoded(e.before)), replySuffix)]
		isNamed := m != nil && j.erasure.RequestID == m.id && m.isNexus == (j.erasure.Tenant.Organization != "")
		isOf := isNamed || j.erasure.RequestID == "" && strings.Contains(string(decoded(e.before)), token)
		switch {
		case e.kind == wasGone && !isOf:
			w.brokenLocked("docs/commands.md: %s: deleted by the erase of %s", tokenIn(decoded(e.before)), token)
		case e.kind == wasGone:
			deleted++
			row, _, _ := w.tables.Open(storage.ScheduledTable).Get(context.Background(), e.queue, e.id)
			if content, hasContent := row.Values["content"]; hasContent && !hasProblem && !isRepeated {
				w.brokenLocked("docs/commands.md: %s: a row of %s has a content that was erased: %.40v", token, e.queue,
					content)
			}
		case e.kind == wasPut, e.kind == wasSet && e.text != e.before:
			w.brokenLocked("docs/commands.md: %s: %s by an erase", tokenIn(decoded(e.text)), e.kind)
		}
	}
	said := 0
	for _, p := range j.places {
		if p.Place == "poison queues" || p.Place == "scheduled calls" {
			said += p.Deleted
		}
	}
	if said < deleted && !hasProblem {
		w.brokenLocked("docs/commands.md: %s: the erase has deleted %d messages, and says %d", token, deleted, said)
	}
}

// judgeErased judges what an erase without problems leaves, when it has ended.
func (w *World) judgeErased(j *job) {
	for _, p := range j.places {
		if p.Problem != "" || p.Left()+p.Hidden+p.Unsearched > 0 {
			return
		}
	}
	id := j.erasure.RequestID
	for token, all := range w.letters() {
		m := w.byToken[strings.TrimSuffix(token, replySuffix)]
		isNamed := m != nil && token == m.token && m.id == id && m.isNexus == (j.erasure.Tenant.Organization != "") &&
			!m.isMalformed && m.queue != routedQueue
		isOf := id != "" && isNamed || id == "" && m != nil && m.token == j.erasure.Text
		for _, l := range all {
			isOld := slices.ContainsFunc(j.before, func(b letter) bool { return b.ID == l.ID })
			if isOf && isOld && !w.isTouched(j, l.ID) {
				w.brokenLocked("docs/commands.md: %s: the dead letter %s was not erased", token, l.ID)
			}
		}
	}
	if id == "" {
		return
	}
	names, _ := w.tables.TableNames(context.Background(), "asynccallerhistory")
	for _, name := range append(names, storage.RunTable) {
		_ = w.tables.Open(name).List(context.Background(), storage.Query{}, func(e storage.Entity) error {
			organization, _ := e.Values["organization"].(string)
			isTenant := name == storage.RunTable || organization == j.erasure.Tenant.Organization
			if isTenant && e.Values["requestId"] == id && e.WrittenAt.Before(w.begin.Add(j.began)) {
				w.brokenLocked("docs/commands.md: %s: a row of %s was not erased", id, name)
			}
			return nil
		})
	}
	for _, run := range j.had {
		if !slices.Contains(j.copies, run) && w.hasCopy(j, run) {
			w.brokenLocked("docs/commands.md: %s: the journal %s has a copy, and the erase names %v", id, run, j.copies)
		}
	}
}

// hasCopy reports whether a journal names the call that was erased.
func (w *World) hasCopy(j *job, run string) (found bool) {
	read, err := j.of.folder.Read(run)
	if err != nil {
		return false
	}
	defer func() { _ = read.Close() }()
	for n := range read.Steps() {
		s, err := read.Step(n)
		found = found || err == nil && s.RequestID == j.erasure.RequestID
	}
	return found
}
