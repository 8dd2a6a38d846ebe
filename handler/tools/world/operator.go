package world

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/operate/account"
	shown "asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/message/edit"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

// command is what an operator does.
type command string

const (
	retryLetters    command = "retry dead letters"
	deleteLetters   command = "delete dead letters"
	retryScheduled  command = "retry scheduled calls"
	editScheduled   command = "edit scheduled calls"
	deleteScheduled command = "delete scheduled calls"
	undoRun         command = "undo"
	eraseCalls      command = "erase"
	importLetters   command = "import what was exported"
	pauseTarget     command = "pause"
	resumeTarget    command = "resume"
	setLimit        command = "set a limit"
	clearLimit      command = "clear a limit"
	lookAtLetters   command = "look at dead letters"
)

// act is a command that an operator gives.
type act struct {
	by      int
	at      time.Duration
	command command
	// all selects all messages; otherwise those for a host, or one if that is empty too.
	all  bool
	host string
	// to is the queue of a retry, and edit what an edit, or a retry of dead letters, changes.
	to, edit string
	// noCopy and callback are those of deletions, and byText that of an erase.
	noCopy, callback, byText bool
	// dedupe sends one dead letter of each call.
	dedupe bool
	rate   float64
	canary int
	// until is when a setting ends at the latest, and value that of a limit.
	until time.Duration
	value string
	// killAfter and stopAfter are when its process is killed, or interrupted; zero for never.
	killAfter, stopAfter time.Duration
	// away is when an interrupted run is resumed.
	away time.Duration
}

// What an edit changes.
const (
	editHeader   = "header"
	editHost     = "host"
	editDeadline = "deadline"
)

// acts returns what operators do, and adds faults of their requests. Half of the schedules have no operators.
func (g *generator) acts(s *Schedule) (acts []act) {
	if g.chance(0.5) {
		return nil
	}
	s.operators, s.sharesJournals = 1+g.IntN(2), g.chance(0.3)
	for by := range s.operators {
		for range 3 + g.IntN(6) {
			acts = append(acts, g.act(by, s.Calm))
		}
		for range 1 + g.IntN(4) {
			f := &fault{from: g.between(0, s.Calm-time.Minute), by: operator}
			f.verb = pick(g, put, put, remove, remove, update, update, receive, look, write, read)
			f.what = pick(g, fails, busy, notSent, lost, late, repeated, slow, killBefore, killAfter, killAfter)
			if f.verb == receive || f.verb == look || f.verb == read {
				f.what = pick(g, fails, busy, lost, slow, killBefore, killAfter)
			}
			s.faults = append(s.faults, f)
		}
	}
	if g.chance(0.5) { // a run of which something is not known is undone
		at := g.between(s.Calm/2, s.Calm-time.Minute)
		acts = append(acts, act{command: retryLetters, at: at, all: true, away: time.Second},
			act{command: undoRun, at: at + time.Second, away: time.Second})
		for range 1 + g.IntN(3) {
			s.faults = append(s.faults, &fault{from: at, by: operator, verb: put, what: pick(g, lost, late, repeated)})
		}
	}
	for range 2 * s.operators { // a run that sends is hit more often
		s.faults = append(s.faults, &fault{
			from: g.between(0, s.Calm-time.Minute), by: operator, verb: put,
			what: pick(g, killBefore, killBefore, killAfter, lost, late),
		})
	}
	if g.chance(0.6) {
		acts = append(acts, g.setting(s.Calm, act{command: pauseTarget, host: pausing}, resumeTarget)...)
	}
	if g.chance(0.3) {
		limit := pick(g, act{host: narrow, value: "1"}, act{host: narrow, value: "3"},
			act{host: metered, value: "12/m"}, act{host: metered, value: "3/s"})
		limit.command = setLimit
		acts = append(acts, g.setting(s.Calm, limit, clearLimit)...)
	}
	slices.SortStableFunc(acts, func(x, y act) int { return cmp.Compare(x.at, y.at) })
	return acts
}

func (g *generator) act(by int, calm time.Duration) act {
	a := act{by: by, at: g.between(30*time.Second, calm-30*time.Second)}
	a.away = pick(g, time.Second, 20*time.Second, 6*time.Minute)
	a.command = pick(g, retryLetters, retryLetters, retryLetters, deleteLetters, retryScheduled, editScheduled,
		editScheduled, deleteScheduled, undoRun, undoRun, eraseCalls, importLetters)
	switch g.IntN(3) {
	case 0:
		a.all = true
	case 1:
		a.host = pick(g, "a.example", "a.example", probed, secured, narrow, metered, pausing)
	}
	isDelete := a.command == deleteLetters || a.command == deleteScheduled
	if isDelete && a.all { // messages are left for others
		a.all = g.chance(0.3)
	}
	a.noCopy, a.callback, a.byText = g.chance(0.3), g.chance(0.6), g.chance(0.3)
	if a.command == editScheduled {
		a.edit = pick(g, editHeader, editHeader, editHost, editDeadline)
	}
	if a.command == retryLetters && g.chance(0.3) {
		a.edit = pick(g, editHeader, editHost)
	}
	if g.chance(0.2) {
		a.to = pick(g, priorityQueue, mainQueue)
	}
	if g.chance(0.2) {
		a.rate = 1
	}
	if g.chance(0.15) {
		a.canary = 1
	}
	a.dedupe = g.chance(0.2)
	switch g.IntN(6) {
	case 0, 1:
		a.killAfter = g.between(10*time.Millisecond, 600*time.Millisecond)
	case 2:
		a.stopAfter = g.between(100*time.Millisecond, 3*time.Second)
	}
	return a
}

// setting returns the beginning and the end of a setting.
func (g *generator) setting(calm time.Duration, begin act, end command) []act {
	begin.at = g.between(10*time.Second, calm/2)
	begin.until = calm - 20*time.Second
	return []act{begin, {command: end, at: g.between(begin.at+time.Minute, begin.until), host: begin.host}}
}

// operating is an operator, with what he has done and a folder of journals.
type operating struct {
	world   *World
	n       int
	folder  journal.Folder
	config  config.App
	queues  []string
	jobs    []*job
	started int // processes
}

// job is a command.
type job struct {
	act
	of *operating
	// processes are the names of those that have carried it out. IsKilled says that one was killed.
	processes    []string
	isKilled     bool
	began, ended time.Duration
	// run is its id, and undoes the job that it undoes. IsLeft says that the run was left unfinished.
	run    string
	undoes *job
	isLeft bool
	// ids are the request ids of what is selected.
	ids []string
	// edits are what is edited: a header gets the value edited, and a deadline becomes another one.
	edits    edit.Edits
	edited   string
	deadline time.Time
	// before are the dead letters at the beginning. The plan has refused some of them or could not read them, and
	// changes a total of messages.
	before         []letter
	isPlanned      bool
	refused, total int
	// erasure is what is erased, and places where. Copies are the runs whose journals may have it, and had those that
	// there were before.
	erasure     operation.Erasure
	places      []operation.ErasedPlace
	copies, had []string
	err         error
}

// operate starts the operators.
func (w *World) operate() {
	all := make([]*operating, w.operators)
	for n := range all {
		folder := n
		if w.sharesJournals {
			folder = 0
		}
		app := config.ReadApp(filepath.Join(w.folder, "app"), w.environ(), config.Operator)
		queues, err := operation.AppQueues(app)
		if err != nil || app.SettingsErr != nil || app.ConnectionErr != nil {
			w.broken("settings of operators: %v %v %v", err, app.SettingsErr, app.ConnectionErr)
			return
		}
		path := filepath.Join(w.folder, fmt.Sprintf("runs-%d", folder))
		o := &operating{world: w, n: n, folder: journal.Folder(path), config: app, queues: queues}
		w.acting.Add(1)
		w.running.Go(func() {
			defer w.acting.Done()
			for _, a := range w.acts {
				if a.by == o.n && w.until(a.at) && w.now() < w.Calm {
					o.do(a)
				}
			}
		})
	}
}

// do carries out a command, until its run has ended.
func (o *operating) do(a act) {
	w := o.world
	j := &job{act: a, of: o, began: w.now(), edited: fmt.Sprintf("e-%d-%d", o.n, len(o.jobs))}
	if !o.prepare(j) {
		return
	}
	o.jobs = append(o.jobs, j)
	for _, all := range w.letters() {
		j.before = append(j.before, all...)
	}
	w.tell(fmt.Sprintf("operator %d", o.n), "%s: all %v, host %s, ids %v, to %s, edits %s, %+v",
		a.command, a.all, a.host, j.ids, a.to, a.edit, j.erasure)
	o.attempt(j, func(ctx context.Context, op *operation.Operations) error { return o.begin(ctx, op, j) })
	if j.run == "" {
		j.run = o.runOf(j)
	}
	for tries := 0; o.isUnfinished(j); tries++ {
		isLate := w.now() > max(w.Calm, j.began)+15*time.Minute
		if j.canary > 0 && (tries == mostTries || isLate) { // its first messages are not delivered
			j.isLeft = true
			break
		}
		if isLate {
			w.broken("docs/calls.md: the run %s does not end: %v", j.run, j.err)
			break
		}
		<-time.After(a.away)
		o.attempt(j, func(ctx context.Context, op *operation.Operations) error {
			result, err := op.Resume(ctx, j.run)
			o.say(j, "resume", result)
			return err
		})
	}
	j.ended = w.now()
	w.judgeAtOnce(j)
}

// mostTries is how often a run is resumed that waits for the delivery of its first messages.
const mostTries = 4

// prepare chooses what a command is about. It reports false if there is nothing.
func (o *operating) prepare(j *job) bool {
	w := o.world
	isOne, one := !j.all && j.host == "", ""
	switch j.command {
	case retryLetters, deleteLetters:
		if isOne {
			one = w.someOf(poisonSuffix)
		}
	case retryScheduled, editScheduled, deleteScheduled:
		if isOne {
			one = w.someOf("")
		}
	case eraseCalls:
		token := cmp.Or(w.someOf(poisonSuffix), w.someOf(""))
		if token == "" {
			return false
		}
		m := w.byToken[token]
		j.all = false
		if j.byText || m.isMalformed || m.queue == routedQueue {
			j.erasure.Text = token
			return true
		}
		j.erasure.RequestID = m.id
		isOfAnother := w.random(4) == 0 // with the same id
		if m.isNexus != isOfAnother {
			j.erasure.Tenant = envelope.Tenant{Organization: "acme", Environment: "prod"}
		}
		return true
	case undoRun:
		for _, done := range o.jobs {
			if done.run != "" && done.undoes == nil {
				j.undoes = done
			}
		}
		return j.undoes != nil
	case pauseTarget, resumeTarget, setLimit, clearLimit:
		return w.settings.tables
	case importLetters, lookAtLetters:
		return true
	}
	if isOne {
		if one == "" {
			return false
		}
		j.ids = []string{w.byToken[one].id}
	}
	var err error
	var change edit.Edit
	switch j.edit {
	case editHeader:
		change, err = edit.ParseHeader("X-Edited: " + j.edited)
	case editHost:
		change, err = edit.ParseReplaceHost("a.example=b.example")
	case editDeadline:
		later := 2*time.Minute + time.Duration(w.random(600))*time.Second
		j.deadline = time.Now().Add(later).UTC().Truncate(time.Second)
		change, err = edit.ParseSet("deadline=" + j.deadline.Format(time.RFC3339))
	default:
		return true
	}
	if err != nil {
		w.broken("edit: %v", err)
	}
	j.edits = edit.Edits{change}
	return true
}

// someOf returns the token of a message on the queues of the app, or on those with a suffix.
func (w *World) someOf(suffix string) string {
	var tokens []string
	for _, queue := range []string{mainQueue, priorityQueue, routedQueue} {
		for _, m := range w.store.All(queue + suffix) {
			token := tokenIn(decoded(m.Text))
			if !strings.HasSuffix(token, replySuffix) && w.byToken[token] != nil && !slices.Contains(tokens, token) {
				tokens = append(tokens, token)
			}
		}
	}
	if len(tokens) == 0 {
		return ""
	}
	return tokens[w.random(len(tokens))]
}

// attempt lets a new process carry out a command, until it has ended or was killed.
func (o *operating) attempt(j *job, do func(context.Context, *operation.Operations) error) {
	w := o.world
	o.started++
	p := w.newProcess(operator, fmt.Sprintf("operator %d.%d", o.n, o.started), 0)
	w.mu.Lock()
	w.jobs[p.name] = j
	w.mu.Unlock()
	j.processes = append(j.processes, p.name)
	op := operation.New(o.config, o.queues, p.queues(), p.rows())
	op.Journals, op.Operator = o.folder, journal.Operator{User: p.name, Machine: "world"}
	op.Observer = observer{p}
	ctx, cancel := context.WithCancel(context.Background())
	g := &grave{cancel, make(chan struct{})}
	defer g.leave(w, p)
	result := make(chan error, 1)
	go func() {
		defer close(g.done)
		err := do(ctx, op)
		if !p.isGone() {
			result <- err
		}
	}()
	killed, stopped := timer(j.killAfter), timer(j.stopAfter)
	if len(j.processes) > 2 {
		killed, stopped = nil, nil
	}
	for {
		select {
		case j.err = <-result:
			cancel()
			w.tell(p.name, "%s: %v", j.command, cmp.Or(j.err, errors.New("ended")))
			w.judgeSaid(fmt.Sprint(j.err))
			return
		case <-p.dead:
			j.isKilled = true
			if j.run == "" {
				j.run = o.runOf(j)
			}
			o.free(j)
			<-time.After(time.Second) // its last requests end
			return
		case <-killed:
			p.kill("by the schedule")
		case <-stopped:
			cancel()
			stopped = nil
		}
	}
}

// free takes the journals away from a process that was killed, which would still write to them, and hold their locks.
func (o *operating) free(j *job) {
	for _, held := range []*job{j, j.undoes} {
		if held == nil || held.run == "" {
			continue
		}
		path := filepath.Join(string(o.folder), held.run+".jsonl")
		_ = os.Remove(path + ".lock")
		text, err := os.ReadFile(path) //nolint:gosec // a file of the world
		if err == nil {
			err = os.WriteFile(path+".copy", text, 0o600) //nolint:gosec // a file of the world
		}
		if err == nil {
			err = os.Rename(path+".copy", path)
		}
		if err != nil {
			o.world.broken("journal: %v", err)
		}
	}
}

func timer(after time.Duration) <-chan time.Time {
	if after == 0 {
		return nil
	}
	return time.After(after)
}

// observer takes what a command tells.
type observer struct{ *process }

var _ run.Observer = observer{}

// Advanced implements [run.Observer].
func (observer) Advanced(int, int) {}

// Note implements [run.Observer].
func (o observer) Note(text string) {
	o.world.tell(o.name, "note: %s", text)
	o.world.judgeSaid(text)
}

// say tells a result.
func (o *operating) say(j *job, what string, r operation.Result) {
	text := fmt.Sprintf("%s: %+v", what, r)
	o.world.tell(fmt.Sprintf("operator %d", o.n), "%s: %s", j.command, text)
	o.world.judgeSaid(text)
}

// begin gives a command.
func (o *operating) begin(ctx context.Context, op *operation.Operations, j *job) (err error) {
	w := o.world
	s := account.Source{IDs: j.ids}
	if j.host != "" {
		s.Filter.Hosts = []string{j.host}
	}
	pace := journal.Pace{Rate: j.rate, Canary: j.canary}
	var p *operation.Plan
	switch j.command {
	case retryLetters:
		p, err = op.PlanRetryPoison(ctx, s, operation.Retry{
			To: j.to, Pace: pace, Edit: edit.Options{Edits: j.edits}, Dedupe: j.dedupe,
		})
	case deleteLetters:
		p, err = op.PlanDeletePoison(ctx, s, operation.Delete{NoCopy: j.noCopy})
	case retryScheduled:
		p, err = op.PlanRetryScheduled(ctx, s, pace)
	case editScheduled:
		p, err = op.PlanEdit(ctx, s, operation.Edit{Options: edit.Options{Edits: j.edits}})
	case deleteScheduled:
		p, err = op.PlanDeleteScheduled(ctx, s, j.callback)
	case undoRun:
		p, err = op.PlanUndo(ctx, j.undoes.run)
	case eraseCalls:
		j.had, _ = o.folder.List()
		j.places, err = op.Erase(ctx, j.erasure, true)
		w.tell("operator", "erased %+v", j.places)
		if err == nil {
			j.copies, err = op.FindCopies(j.erasure)
		}
		return err
	case lookAtLetters:
		return w.look(ctx, op, j)
	case importLetters:
		p, err = importExported(ctx, op)
	case pauseTarget, setLimit:
		return w.set(ctx, op, j)
	case resumeTarget, clearLimit:
		err = w.unset(ctx, op, j)
		if err != nil || j.command == clearLimit || !storage.Sleep(ctx, setting.Notice) {
			return err
		}
		p, err = op.PlanResume(ctx, j.host, pace)
	}
	if err != nil {
		return err
	}
	o.say(j, "plan", p.Result)
	j.refused, j.total, j.isPlanned = p.Refused+p.Hidden+p.Unsearched, p.Total, true
	w.judgeRefusals(j, p.Refusals)
	if p.Total == 0 {
		p.Discard(ctx)
		return nil
	}
	result, err := p.Execute(ctx)
	o.say(j, "result", result)
	return err
}

// look lists the dead letters for a host, or all, without receiving them.
func (w *World) look(ctx context.Context, op *operation.Operations, j *job) error {
	var s account.Source
	if j.host != "" {
		s.Filter.Hosts = []string{j.host}
	}
	var seen []shown.Recorded
	listed, err := op.Account.Look(ctx, s, func(m shown.Recorded) error {
		seen = append(seen, m)
		return nil
	})
	if err == nil {
		w.judgeLook(j, listed, seen)
	}
	return err
}

// importExported exports all dead letters, and imports them.
func importExported(ctx context.Context, op *operation.Operations) (*operation.Plan, error) {
	var file bytes.Buffer
	var failed error
	_, err := op.Account.List(ctx, account.Source{Limit: 3, ReadQueues: true}, func(f account.Found) {
		failed = cmp.Or(failed, operation.WriteRecord(&file, f))
	})
	err = cmp.Or(err, failed)
	if err != nil {
		return nil, err
	}
	return op.PlanImport(ctx, &file, operation.Import{})
}

// set sets a pause or a limit.
func (w *World) set(ctx context.Context, op *operation.Operations, j *job) error {
	s := setting.Setting{Host: j.host, Member: setting.Pause, Value: j.value, Since: time.Now().UTC(), By: "operator"}
	if j.command == setLimit {
		s.Member = setting.Rate
		if j.host == narrow {
			s.Member = setting.Concurrency
		}
		w.mu.Lock()
		w.isLimitChanged = w.isLimitChanged || !j.isLower()
		w.mu.Unlock()
	}
	s.Until = w.begin.Add(j.until).UTC()
	if j.command == pauseTarget {
		w.mu.Lock()
		w.pausedUntil[j.host] = j.until
		w.mu.Unlock()
	}
	err := op.Set(ctx, string(j.command), s)
	w.mu.Lock()
	defer w.mu.Unlock()
	inForce := pause{w.now(), j.until - w.drift()}
	switch {
	case err != nil: // it is perhaps set
	case j.command == pauseTarget:
		w.pauses = append(w.pauses, inForce)
	case j.isLower():
		w.lowered[j.host] = inForce
	}
	return err
}

// isLower reports whether a limit is lower than that of targets.json.
func (j *job) isLower() bool { return j.value == "1" || j.value == "12/m" }

// unset ends a pause or a limit.
func (w *World) unset(ctx context.Context, op *operation.Operations, j *job) error {
	members := []string{setting.Rate, setting.Concurrency}
	w.mu.Lock()
	if j.command == resumeTarget {
		members = []string{setting.Pause}
		for n := range w.pauses {
			w.pauses[n].to = min(w.pauses[n].to, w.now())
		}
	} else {
		delete(w.lowered, j.host)
	}
	w.mu.Unlock()
	_, err := op.Unset(ctx, string(j.command), j.host, members...)
	if err == nil && j.command == resumeTarget {
		w.mu.Lock()
		w.pausedUntil[j.host] = w.now()
		w.mu.Unlock()
	}
	return err
}

// runOf returns the run that a job has begun, or nothing.
func (o *operating) runOf(j *job) string {
	ids, err := o.folder.List()
	if err != nil {
		o.world.broken("journals: %v", err)
	}
	for _, id := range ids {
		read, err := o.folder.Read(id)
		if err != nil {
			continue // it was killed while it wrote the first line, or another operator has discarded it
		}
		_ = read.Close()
		if read.Run.User == j.processes[0] {
			return id
		}
	}
	return ""
}

// isUnfinished reports whether the run of a job must be resumed.
func (o *operating) isUnfinished(j *job) bool {
	if j.run == "" {
		return false
	}
	read, err := o.folder.Read(j.run)
	if errors.Is(err, journal.ErrNoRun) {
		j.run = ""
		return false
	}
	if err != nil {
		o.world.broken("docs/calls.md: the journal %s: %v", j.run, err)
		return false
	}
	_ = read.Close()
	return !read.Ended
}
