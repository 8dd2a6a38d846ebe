package sight

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/observers/background"
	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/plain/text"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/mask"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/rows"
)

const (
	// interval is the shortest time between two writes of the row *now*, and about the longest between two readings of
	// those of the other instances while calls are made.
	interval = time.Minute
	// checkInterval is how often it is checked whether that is due.
	checkInterval = 15 * time.Second
	// promptly is how long what is new waits for more.
	promptly = time.Second
	// passTimeout limits a reading and the write after it.
	passTimeout = 10 * time.Second
	// longInFlight is how long a call lasts until its target counts as one that does not answer, unless it has answered
	// meanwhile.
	longInFlight = 10 * time.Second
	// abandonedAfter is how old a row becomes until another instance takes over what fails there: an instance is new at
	// each start.
	abandonedAfter = 15 * time.Minute
	// successMemory is how long a success is remembered that no other instance needs. A failure from before it, of
	// which another instance writes late, does not count. MaxSuccesses limits their number.
	successMemory = 5 * time.Minute
	maxSuccesses  = 1000
	// maxText and maxAnswer limit the texts of a target.
	maxText   = 128
	maxAnswer = 100
)

// Sight is what an instance knows of targets. Its methods never wait, but for Run and Close. It is safe for concurrent
// use. A nil Sight knows nothing.
type Sight struct {
	// IsOpen reports whether the circuit breaker of a target is open. It is set before the first message.
	IsOpen func(target *url.URL) bool

	writer        *background.Writer
	app, instance string
	wake          chan struct{}

	mu sync.Mutex
	// minute is that of counted, and never goes back: a row of the same key would replace the first one.
	minute  time.Time
	counted Interval
	// flights are the calls in flight, in no order.
	flights []*flight
	// failing are the targets that fail in the eyes of this instance, and succeeded when the latest call succeeded.
	failing   map[string]Target
	succeeded map[string]time.Time
	// known are those that fail in the eyes of the others, and named since when they do there, also if they have
	// succeeded since.
	known map[string]Target
	named map[string]time.Time
	// calledAt is when the latest call ended, and readAt when the rows of the app were last read.
	calledAt, readAt time.Time
	// written is what the own row says since wroteAt; nil if there is none.
	written []byte
	wroteAt time.Time
	// retryAt is when something is done again after an error.
	retryAt time.Time
	// closed says that the process ends: what is new is written at once.
	closed bool
}

// New returns what an instance of an app knows. The caller runs [Sight.Run], and closes it after the last message.
func New(table storage.Table, app, instance string, log zerolog.Logger) *Sight {
	return &Sight{
		writer: background.New(background.Config{
			Table: table, Rows: "failing targets and calls per minute", Bytes: background.HandlerBytes, Log: log,
		}),
		app: app, instance: instance, wake: make(chan struct{}, 1), calledAt: time.Now(),
		failing: map[string]Target{}, succeeded: map[string]time.Time{},
		known: map[string]Target{}, named: map[string]time.Time{},
	}
}

// flight is a call in flight, which keeps its target until it has ended. It counts from the arrival of its message, as
// failures do. Index is its place in the flights.
type flight struct {
	sight  *Sight
	target *url.URL
	began  time.Time
	index  int
}

// Enter notes that a call begins. It implements [delivery.Gate].
func (s *Sight) Enter(_ context.Context, due *decision.Due) (decision.Pass, *decision.Verdict) {
	f := &flight{sight: s, target: due.Intake.Call().Target, began: due.Arrived}
	s.mu.Lock()
	defer s.mu.Unlock()
	f.index = len(s.flights)
	s.flights = append(s.flights, f)
	return f, nil
}

// Ended implements [decision.Pass].
func (f *flight) Ended(*decision.Outcome, time.Time) {
	s := f.sight
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.flights) - 1
	s.flights[f.index] = s.flights[last]
	s.flights[f.index].index = f.index
	s.flights[last] = nil
	s.flights = s.flights[:last]
	f.target = nil
}

// Released implements [decision.Pass].
func (*flight) Released(time.Time) {}

// Observe counts messages and calls, and notes how calls ended, also if the message cannot be settled. It implements
// [delivery.Observer].
func (s *Sight) Observe(r *delivery.Report) func(context.Context, *delivery.Result) {
	if r.Identity == nil {
		return nil
	}
	host := r.Identity.CalledHost()
	failed := s.failure(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance(r.World.Now)
	s.counted.observe(host, r)
	switch {
	case failed.Host != "":
		s.noteFailure(failed, r.World.Now)
	case r.Verdict != nil && r.Verdict.Outcome != nil && r.Judged == decision.Delivered:
		s.noteSuccess(host, r.World.Now)
	}
	return nil
}

// observe counts a message and its call.
func (i *Interval) observe(host string, r *delivery.Report) {
	isFirst := isNew(r)
	if host == "" || !isFirst && r.Verdict == nil {
		return
	}
	numbers := i.counts(host)
	if isFirst {
		numbers.New++
	}
	if r.Verdict == nil {
		return
	}
	outcome := r.Verdict.Outcome
	switch {
	case outcome == nil:
		addReason(&numbers.Refused, string(r.Reason), 1)
		return
	case r.Judged == decision.Delivered:
		numbers.Delivered++
	default:
		addReason(&numbers.Failed, string(r.Judged), 1)
	}
	if isOfTarget(outcome.Failure) {
		numbers.Durations.add(outcome.Took)
	}
}

// isNew reports whether a message comes from its sender, and was not rescheduled or received before.
func isNew(r *delivery.Report) bool {
	e := cmp.Or(r.Intake.Received, r.Intake.Envelope)
	return r.Message.DequeueCount <= 1 && e.Attempts == 0 && e.NextAttemptAt.IsZero() && e.Ticket == 0
}

// failure returns how a target has failed; its zero value if it has not. A target for which there is no token fails
// too.
func (s *Sight) failure(r *delivery.Report) Target {
	if r.Verdict == nil {
		return Target{}
	}
	o := r.Verdict.Outcome
	if refusal := r.Verdict.Refusal; refusal != nil && refusal.Reason == decision.Auth {
		o = &decision.Outcome{Failure: decision.FailureAuth, Detail: refusal.Detail}
	}
	if o == nil || !isOfTarget(o.Failure) || r.Judged == decision.Delivered {
		return Target{}
	}
	arrived := r.World.Arrived.UTC().Truncate(time.Millisecond)
	failed := Target{
		App: s.app, Host: r.Identity.CalledHost(),
		Reason: string(cmp.Or(r.Judged, decision.Reason(o.Failure))), Cause: short(o.Cause(), maxText),
		Status: envelope.StatusCode(o.Status), Since: arrived, Latest: arrived,
		Answer: short(mask.AnswerLine(o.Answer().Excerpt()), maxAnswer),
	}
	if s.IsOpen(r.Intake.Call().Target) {
		failed.OpenAt = r.World.Now.UTC().Truncate(time.Millisecond)
	}
	return failed
}

// short returns the beginning of a text, which may be a small part of a large message, as a row has it.
func short(s string, most int) string { return text.Clip(rows.Text(s), most) }

// isOfTarget reports whether a failure, or an answer, is due to the target and the way to it.
func isOfTarget(f decision.Failure) bool {
	notOfTarget := []decision.Failure{
		decision.FailureInterrupted, decision.FailureBadURL, decision.FailureTargetRefused,
	}
	return !slices.Contains(notOfTarget, f)
}

// noteFailure notes a failed call that has ended now.
func (s *Sight) noteFailure(failed Target, now time.Time) {
	s.calledAt = now
	own, isKnown := s.failing[failed.Host]
	if !failed.Latest.After(s.succeeded[failed.Host]) || !isKnown && len(s.failing) >= maxFailing {
		return
	}
	s.failing[failed.Host] = failed.with(own)
	if !isKnown {
		s.notify()
	}
}

// noteSuccess notes that a call has succeeded and ended now.
func (s *Sight) noteSuccess(host string, now time.Time) {
	s.calledAt = now
	_, isKnown := s.failing[host]
	delete(s.failing, host)
	if _, has := s.succeeded[host]; !has && len(s.succeeded) >= maxSuccesses {
		for other := range s.succeeded {
			delete(s.succeeded, other)
			break
		}
	}
	s.succeeded[host] = now.UTC().Truncate(time.Millisecond)
	if _, isNamed := s.named[host]; isKnown || isNamed {
		s.notify()
	}
}

func (s *Sight) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Why returns why calls to a host fail, and the beginning of the latest answer, as far as that is known.
func (s *Sight) Why(host string) (cause, answer string) {
	if s == nil {
		return "", ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := join([]view{
		{Failing: []Target{s.failing[host], s.known[host]}, Succeeded: map[string]time.Time{host: s.succeeded[host]}},
	})[host]
	return t.Cause, t.Answer
}

// unanswered returns the targets with calls that have been in flight for long, and without an answer since the oldest
// of them began.
func (s *Sight) unanswered(now time.Time) map[string]Target {
	hanging, calls := map[string]Target{}, map[string]int{}
	for _, f := range s.flights {
		host := targets.Host(f.target)
		t, began := hanging[host], f.began.UTC().Truncate(time.Millisecond)
		calls[host]++
		if t.Host == "" || began.Before(t.Since) {
			hanging[host] = Target{App: s.app, Host: host, Reason: NoAnswerYet, Since: began, Latest: began}
		}
	}
	for host, t := range hanging {
		if now.Sub(t.Since) < longInFlight || !t.Since.After(s.succeeded[host]) {
			delete(hanging, host)
			continue
		}
		t.Cause = fmt.Sprintf("no answer yet: %d calls", calls[host])
		if calls[host] == 1 {
			t.Cause = "no answer yet: 1 call"
		}
		hanging[host] = t
	}
	return hanging
}

// compose returns what the row *now* should say; nil if there is nothing to say.
func (s *Sight) compose(now time.Time) []byte {
	failing := s.unanswered(now)
	for host, t := range s.failing {
		failing[host] = t.with(failing[host])
	}
	succeeded := map[string]time.Time{}
	for host, since := range s.named {
		if at := s.succeeded[host]; !at.Before(since) {
			succeeded[host] = at
		}
	}
	if len(failing)+len(succeeded) == 0 {
		return nil
	}
	return encodeView(failing, succeeded)
}

// Run reads and writes the rows until ctx ends.
func (s *Sight) Run(ctx context.Context) {
	if s == nil {
		return
	}
	for {
		now := time.Now()
		s.mu.Lock()
		s.advance(now)
		s.mu.Unlock()
		s.pass(ctx, now)
		endOfMinute := now.Truncate(time.Minute).Add(time.Minute)
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(checkInterval, endOfMinute.Sub(now))):
		case <-s.wake:
			storage.Sleep(ctx, promptly)
		}
	}
}

// Close writes the last rows, after the last message.
func (s *Sight) Close(timeout time.Duration) {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	s.mu.Lock()
	s.write()
	s.closed, s.retryAt = true, time.Time{}
	s.mu.Unlock()
	s.pass(ctx, time.Now())
	s.writer.Close(timeout)
}

// pass reads the rows *now* of the app and writes the own one, as far as that is due.
func (s *Sight) pass(ctx context.Context, now time.Time) {
	s.mu.Lock()
	mayWrite := (s.closed || now.Sub(s.wroteAt) >= interval) && !bytes.Equal(s.compose(now), s.written)
	isDue := !now.Before(s.retryAt) && (mayWrite || s.mayLearn() && now.Sub(s.readAt) >= interval)
	s.mu.Unlock()
	if !isDue {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	err := s.writer.Use(func(table storage.Table) error {
		abandoned, err := s.read(ctx, table, now)
		if err == nil && (mayWrite || len(abandoned) > 0) {
			err = s.replace(ctx, table, now)
		}
		if err == nil && len(abandoned) > 0 { // only now has another row what they say
			err = table.Delete(ctx, abandoned)
		}
		return err
	})
	if err != nil {
		s.mu.Lock()
		s.retryAt = now.Add(interval)
		s.mu.Unlock()
	}
}

// mayLearn reports whether rows that were written after the latest reading can say something about the calls of this
// instance: another one may write minutes later that a call failed which began before a success of this one.
func (s *Sight) mayLearn() bool { return s.readAt.Before(s.calledAt.Add(successMemory)) }

// read reads the rows of the app, and takes over what fails in the rows of instances that have ended. It returns the
// keys of these rows.
func (s *Sight) read(ctx context.Context, table storage.Table, now time.Time) (abandoned []storage.Key, err error) {
	own := nowKey(s.app, s.instance).ID
	var others, ended []view
	hasOwn := false
	err = readNow(ctx, table, nowPrefix(s.app), func(row nowRow, v view) {
		switch {
		case row.ID == own:
			hasOwn = true
			return
		case now.Sub(row.WrittenAt) <= abandonedAfter:
			others = append(others, v)
		case len(abandoned) < maxAbandoned:
			ended = append(ended, v)
			abandoned = append(abandoned, row.Key)
		}
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readAt = now
	if s.written != nil && !hasOwn { // another instance has taken it over
		for host, t := range s.failing {
			left, fails := t.after(s.wroteAt)
			if !fails {
				delete(s.failing, host)
				continue
			}
			s.failing[host] = left
		}
		s.written = nil
	}
	s.learn(append(others, ended...), now)
	s.known = join(append(others, view{Succeeded: s.succeeded}))
	s.takeOver(ended)
	return abandoned, nil
}

// maxAbandoned limits the rows that are taken over at once: a table removes 100 rows of a partition at once.
const maxAbandoned = 100

// learn notes what others name as failing, and the successes that they know of it. It forgets successes that nobody
// needs.
func (s *Sight) learn(others []view, now time.Time) {
	clear(s.named)
	for _, v := range others {
		for _, t := range v.Failing {
			s.named[t.Host] = bounds.Earliest(s.named[t.Host], t.Since)
		}
	}
	for _, v := range others {
		for host, at := range v.Succeeded {
			_, isNamed := s.named[host]
			_, isOwn := s.failing[host]
			if (isNamed || isOwn) && at.After(s.succeeded[host]) {
				s.succeeded[host] = at
			}
		}
	}
	for host, own := range s.failing {
		left, fails := own.after(s.succeeded[host])
		if !fails || now.Sub(own.Latest) > maxAge {
			delete(s.failing, host)
			continue
		}
		s.failing[host] = left
	}
	for host, at := range s.succeeded {
		if _, isNamed := s.named[host]; !isNamed && now.Sub(at) > successMemory {
			delete(s.succeeded, host)
		}
	}
}

// takeOver adds what fails in the rows of instances that have ended. The calls that they had in flight have ended, too.
func (s *Sight) takeOver(ended []view) {
	for _, t := range s.failing {
		ended = append(ended, view{Failing: []Target{t}})
	}
	all := join(append(ended, view{Succeeded: s.succeeded}))
	for host, t := range all {
		if t.IsUnanswered() {
			delete(all, host)
		}
	}
	clear(s.failing)
	for _, t := range longest(all, maxFailing) {
		t.SeenAt = time.Time{}
		s.failing[t.Host] = t
	}
}

// replace writes the own row, or removes it if there is nothing to say.
func (s *Sight) replace(ctx context.Context, table storage.Table, now time.Time) error {
	s.mu.Lock()
	content, written := s.compose(now), s.written
	s.mu.Unlock()
	var err error
	switch key := nowKey(s.app, s.instance); {
	case content != nil:
		err = rows.Put(ctx, table, nowRow{Key: key, App: s.app, View: content})
	case written != nil:
		err = table.Delete(ctx, []storage.Key{key})
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written, s.wroteAt = content, now
	return nil
}

// advance writes the minute if it is over.
func (s *Sight) advance(now time.Time) {
	minute := now.UTC().Truncate(time.Minute)
	if !minute.After(s.minute) {
		return
	}
	s.write()
	s.minute = minute
}

// write hands what was counted to the writer, if anything happened.
func (s *Sight) write() {
	if s.counted.isEmpty() {
		return
	}
	s.writer.Put(minuteRow{Key: minuteKey(s.app, s.instance, s.minute), Numbers: encode(&s.counted)})
	s.counted = Interval{}
}
