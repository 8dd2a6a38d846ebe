// Package world is one simulated world, in which everything happens that a message can meet: it has instances of the
// app with their whole path, storage that fails in each way that it can, targets, senders and operators. All of it runs
// in the virtual time of a bubble of testing/synctest. A [Schedule] follows from a seed; the judge then compares what
// happened with what the pages promise.
//
// The seed decides what happens and when, but not the order of what happens at the same moment: a schedule that fails
// may pass the next time.
package world

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// World is a world in which a schedule is played.
type World struct {
	Schedule

	folder string
	store  *memory.Queues
	tables *memory.Tables
	begin  time.Time
	over   chan struct{}
	buried chan struct{}
	// running are the processes and the senders, pending what happens later, and acting the operators.
	running, pending, acting sync.WaitGroup
	network                  *network

	mu       sync.Mutex
	rand     *rand.Rand
	lines    []line
	problems []string
	byToken  map[string]*message
	ledgers  map[string]*ledger
	items    map[string]*queueItem // the messages on queues, by their ids
	// kills are the ends of processes, stops included.
	kills []ending
	// graves are what killed processes left running, and hosts the hosts that run, the oldest first.
	graves []*grave
	hosts  []string
	// hostings are the hosts that run, by name.
	hostings map[string]*hosting
	// calls are those in flight, by host, and begun when each began.
	calls map[string]int
	begun map[string][]time.Duration
	// pauses are those in force, by host.
	pauses []pause
	// kept are the tokens that the history has as delivered, and when.
	kept           map[string]time.Duration
	isLimitChanged bool
	// isMoved says that the host moving has moved.
	isMoved bool
	// tableFaultAt is when a request to a table failed latest, and aliveAt when the log said so.
	tableFaultAt, aliveAt time.Duration
	records
	refusals
}

// ending is the end of a process.
type ending struct {
	at  time.Duration
	who string
	how string
}

// pause is a pause of the host pausing.
type pause struct{ from, to time.Duration }

// ledger has what happened to a message, or to its callback.
type ledger struct {
	facts []fact
	// unsure is how often a request got no answer that says what has happened, and lives how often an operator has sent
	// it again.
	unsure, lives int
	// stops is how often a process that handled it was stopped: its call may be interrupted, and is made again.
	stops int
	// interrupted is the attempt of a call that a stop has interrupted, which is made again; 0 for none.
	interrupted int
	// served is how many calls got an answer of the script.
	served    int
	isEdited  bool
	isRemoved bool // by an operator
	// isCopied says that an import has written a message of it beside those that there are.
	isCopied bool
	// webhook is the id of its signed calls.
	webhook string
}

// fact is something that happened to a message.
type fact struct {
	at      time.Duration
	kind    factKind
	by      string
	id      string
	attempt int
	status  int
	// asked is the Retry-After of an answer.
	asked time.Duration
	isCut bool
	// isLast says that the target has no other answer.
	isLast bool
	queue  string
}

type factKind string

const (
	sent     factKind = "sent"
	wasLed   factKind = "received"
	wasPut   factKind = "written"
	wasSet   factKind = "updated"
	wasGone  factKind = "deleted"
	called   factKind = "called"
	answered factKind = "answered"
)

// queueItem is a message on a queue.
type queueItem struct {
	token, queue string
	// envelope has the members of a native envelope; nil for anything else.
	envelope map[string]any
	// by is the process that has received it latest, until when; isSettled says that something was written since.
	by                       string
	at, until                time.Duration
	writtenAt, dueAt, goneAt time.Duration
	isSettled                bool
}

// line is a line of what happened.
type line struct {
	at   time.Duration
	who  string
	text string
}

// New returns the world of a schedule. It uses a folder for the app folder and for journals.
func New(s Schedule, folder string) *World {
	w := &World{
		Schedule: s, folder: folder, store: memory.New(), tables: &memory.Tables{}, begin: time.Now(),
		over: make(chan struct{}), buried: make(chan struct{}),
		rand:    rand.New(rand.NewPCG(s.Seed, 72)), //nolint:gosec // keeps no secret
		byToken: map[string]*message{}, ledgers: map[string]*ledger{}, items: map[string]*queueItem{},
		hostings: map[string]*hosting{},
		calls:    map[string]int{}, begun: map[string][]time.Duration{}, kept: map[string]time.Duration{},
		records: newRecords(),
		refusals: refusals{
			triedAt: map[instanceAndHost]time.Duration{}, deafSince: map[instanceAndHost]time.Duration{},
			pausedUntil: map[string]time.Duration{}, circuits: map[instanceAndHost]*circuit{},
			idleSince: map[instanceAndHost]time.Duration{}, readAt: map[string]time.Duration{},
		},
	}
	for _, m := range s.messages {
		w.byToken[m.token] = m
	}
	w.network = newNetwork(w)
	return w
}

// now returns the time since the beginning.
func (w *World) now() time.Duration { return time.Since(w.begin) }

func (w *World) random(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.IntN(n)
}

// tell adds a line to what happened.
func (w *World) tell(who, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line{w.now(), who, fmt.Sprintf(format, args...)})
}

// broken notes that a promise was broken.
func (w *World) broken(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.brokenLocked(format, args...)
}

func (w *World) brokenLocked(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.lines = append(w.lines, line{w.now(), "judge", text})
	w.problems = append(w.problems, text)
}

// later carries something out after some seconds.
func (w *World) later(do func()) {
	after := time.Second + time.Duration(w.random(4000))*time.Millisecond
	w.pending.Go(func() {
		<-time.After(after)
		do()
	})
}

// until waits until a time, and reports false if the world ends before.
func (w *World) until(at time.Duration) bool {
	select {
	case <-w.over:
		return false
	case <-time.After(at - w.now()):
		return true
	}
}

// Play plays the schedule, and returns the promises that were broken.
func (w *World) Play() (problems []string, err error) {
	if err := w.writeApp(); err != nil {
		return nil, err
	}
	for _, name := range []string{mainQueue, priorityQueue, routedQueue} {
		if err := w.store.Create(context.Background(), name); err != nil {
			return nil, err
		}
	}
	for n, plan := range w.instances {
		w.running.Go(func() { w.live(n, plan) })
	}
	for _, m := range w.messages {
		w.running.Go(func() { w.send(m) })
	}
	w.running.Go(w.deploy)
	w.operate()
	w.until(w.Calm)
	w.tell("world", "calm")
	w.acting.Wait()
	w.settleDown()
	close(w.over)
	w.running.Wait()
	w.judge()
	close(w.buried)
	w.bury()
	w.pending.Wait()
	w.network.close()
	return w.problems, nil
}

const (
	// patience is how long the world waits after the calm until nothing is left to do.
	patience = 40 * time.Minute
	// quiet is how long it waits then, so that rows and queues agree: a poison queue whose rows differ is read once in
	// ten minutes.
	quiet = 23 * time.Minute
)

// settleDown waits until nothing is on the queues of the app.
func (w *World) settleDown() {
	for w.now() < w.Calm+patience {
		w.until(w.now() + time.Minute)
		w.compareRows()
		if w.isDrained() && w.now() > w.Calm+5*time.Minute && (w.isKept() || w.now() > w.Calm+keeperTime) {
			break
		}
	}
	w.tell("world", "quiet")
	for end := w.now() + quiet; w.now() < end; {
		w.until(w.now() + time.Minute)
		letters := w.letters()
		w.mu.Lock()
		doDiffer := len(w.differences(letters)) > 0
		w.mu.Unlock()
		if !doDiffer {
			return
		}
	}
}

// isKept reports whether no message on a poison queue will expire.
func (w *World) isKept() bool {
	for _, letters := range w.letters() {
		if slices.ContainsFunc(letters, func(l letter) bool { return l.Expires() }) {
			return false
		}
	}
	return true
}

func (w *World) isDrained() bool {
	for _, name := range []string{mainQueue, priorityQueue, routedQueue} {
		if len(w.store.All(name)) > 0 {
			return false
		}
	}
	return true
}

// send puts a message on its queue.
func (w *World) send(m *message) {
	w.until(m.at)
	m.write(time.Now(), w.begin)
	text := storage.Base64.Encode(m.content)
	if m.isUndecodable {
		text = "this is no base64: " + m.token
		m.content = []byte(text)
	}
	if m.isPosted && w.hasHost() {
		w.post(m)
		return
	}
	put, err := w.store.Put(context.Background(), m.queue, storage.Item{Text: text, TTL: 7 * 24 * time.Hour})
	if err != nil {
		w.broken("%s was not sent: %v", m.token, err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.items[put.ID] = &queueItem{token: m.token, queue: m.queue}
	w.note(m.token, fact{kind: sent, by: "sender", id: put.ID, queue: m.queue})
}

// note adds a fact.
func (w *World) note(token string, f fact) {
	f.at = w.now()
	l := w.ledger(token)
	l.facts = append(l.facts, f)
}

func (w *World) ledger(token string) *ledger {
	if w.ledgers[token] == nil {
		w.ledgers[token] = &ledger{}
	}
	return w.ledgers[token]
}

// tokenOf returns the token of a message.
func (w *World) tokenOf(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m := w.items[id]; m != nil {
		return m.token
	}
	return "?"
}

// strike returns what happens to a request of a process.
func (w *World) strike(p *process, a about) (f what) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if now >= w.Calm {
		return ""
	}
	isOutage := false
	for _, o := range w.outages {
		if o.strikes(now, a) {
			f, isOutage = o.what, true
		}
	}
	for _, next := range w.faults {
		isMeant := now >= next.from && next.verb == a.verb && next.by == p.class
		if f == "" && isMeant && !next.hasStruck {
			next.hasStruck = true
			f = next.what
		}
	}
	if f != "" && a.tables {
		w.tableFaultAt = now
	}
	w.struck(p, a, f)
	if f.isUnsure() && a.token != "" { // its process may be killed before it has an answer
		w.ledger(a.token).unsure++
	}
	if f != "" && !isOutage {
		w.lines = append(w.lines, line{now, p.name, fmt.Sprintf("%s %s: %s", a.verb, a.text, f)})
	}
	return f
}

// answered notes whether the sender of a request about a message knows what it has done.
func (w *World) answered(p *process, verb verb, token string, times int, f what, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	isLong := slices.ContainsFunc(w.outages, func(o outage) bool { // a delete is given up after half a minute
		return !o.tables && o.to-o.from > 25*time.Second && w.now() > o.from && w.now() < o.to+time.Minute
	})
	isCounted := f.isUnsure() && verb != receive // by strike
	isUnknown := times > 0 && err != nil && f != "" && !isCounted
	isGivenUp := p.class != operator && verb == remove && err != nil && isLong
	if isUnknown || isGivenUp {
		w.ledger(token).unsure++
	}
}

// Text returns what happened that has to do with the broken promises, in the words of the log.
func (w *World) Text(most int) string {
	var tokens []string
	for _, p := range w.problems {
		token := anyToken.FindString(p)
		if token != "" && !slices.Contains(tokens, token) {
			tokens = append(tokens, token)
		}
	}
	var b strings.Builder
	fmt.Fprintln(&b, w.Schedule)
	all := slices.Clone(w.lines)
	for _, o := range w.outages {
		all = append(all, line{o.from, "world", fmt.Sprintf("until %v each request to storage (tables: %v) %s %s",
			o.to, o.tables, o.verb, o.what)})
	}
	for _, t := range w.troubles {
		all = append(all, line{t.from, "world", fmt.Sprintf("until %v %s %s", t.to, t.host, t.mode)})
	}
	for token, l := range w.ledgers {
		for _, f := range l.facts {
			all = append(all, line{f.at, f.by, fmt.Sprintf("%s: %s %s %s attempt %d status %d", token, f.kind, f.id,
				f.queue, f.attempt, f.status)})
		}
	}
	slices.SortStableFunc(all, func(x, y line) int { return cmp.Compare(x.at, y.at) })
	shown := 0
	for _, l := range all {
		token := anyToken.FindString(l.text)
		isShown := token != "" && slices.Contains(tokens, token) || token == "" && !strings.HasPrefix(l.text, "{") ||
			l.who == "judge"
		isShown = isShown || slices.ContainsFunc(w.lines,
			func(p line) bool { // what came before a problem of no message
				const before = 15 * time.Second
				return p.who == "judge" && anyToken.FindString(p.text) == "" && l.at <= p.at && l.at > p.at-before
			})
		if !isShown {
			continue
		}
		shown++
		if shown > most {
			fmt.Fprintln(&b, "…")
			break
		}
		fmt.Fprintf(&b, "%8.2fs %-14s %s\n", l.at.Seconds(), l.who, inWords(l.text))
	}
	return b.String()
}

// inWords returns a line of the log without the fields that say where it is from.
func inWords(text string) string {
	var fields map[string]any
	err := json.Unmarshal([]byte(text), &fields)
	if err != nil {
		return text
	}
	var words strings.Builder
	fmt.Fprint(&words, fields["message"])
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch name {
		case "message", "function", "invocation_id", "trace_id", "span_id", "time", "account", "version":
		default:
			fmt.Fprintf(&words, " %s=%v", name, fields[name])
		}
	}
	return words.String()
}

// Folder returns a new folder for a world, in memory where the system has such files, and what removes it.
func Folder() (dir string, removeAll func(), err error) {
	dir, err = os.MkdirTemp("/dev/shm", "async-caller-world-")
	if err != nil {
		dir, err = os.MkdirTemp("", "async-caller-world-")
	}
	return dir, func() { _ = os.RemoveAll(dir) }, err
}
