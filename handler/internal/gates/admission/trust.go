package admission

import (
	"slices"
	"time"
)

const (
	// A target is trusted for minTrusted after its latest answer. When all targets begin to hang at one moment, those
	// called in that time hold slots before it shows: 180 of 224 at 36 calls a second.
	minTrusted = 5 * time.Second
	// A call takes too long after patienceFactor times the longest answer, but not before minPatience.
	patienceFactor = 2
	minPatience    = time.Second
	// A trial is a call outside the part of the targets that are not trusted. One of them gets it if its latest call
	// was answered, and no other trial has begun for a quarter of the time since then, or all were answered. When many
	// targets begin to hang at one moment, their answers become older, and so their trials rarer: about 14 in 2 min. A
	// target that still answers has a recent answer, and gets its trial between two of them.
	trialShare = 4
	// forgetting is after how many shorter answers the longest is about forgotten. A mean would not do: where
	// durations vary, one of many calls in flight has always lasted several times the mean.
	forgetting = 32
)

// class says how likely the calls of a target hold their slots for long. The targets that are not trusted get half of
// the slots together, and of that those that hang get half.
type class int

const (
	trusted class = iota
	// untrusted is a target that has not answered lately, or that has a call that takes too long.
	untrusted
	// hanging is a target with a call that takes too long or did so, and without an answer for about that time.
	hanging
)

// String is the detail of a refusal because the targets of a class hold too many slots.
func (c class) String() string { return [...]string{"trusted", "untrusted", "hanging"}[c] }

// trust has what decides on the class of a target.
type trust struct {
	// began has when the calls in flight began, in the order in which they did.
	began []time.Time
	// answered is when the target answered last, longest how long its answers took at most, lately.
	answered time.Time
	longest  time.Duration
	// hung says that a call took too long and ended without an answer, and none was answered since.
	hung bool
}

func (t *trust) class(now time.Time) class {
	takesLong := t.takesLong(now)
	switch {
	case takesLong && now.Sub(t.answered) > 2*t.patience():
		return hanging
	case takesLong || !t.answeredLately(now):
		return untrusted
	}
	return trusted
}

func (t *trust) takesLong(now time.Time) bool {
	return t.hung || len(t.began) > 0 && now.Sub(t.began[0]) > t.patience()
}

// answers reports whether the target has answered, and no call takes too long or did so since.
func (t *trust) answers(now time.Time) bool { return !t.answered.IsZero() && !t.takesLong(now) }

// mayTry reports whether a target gets a trial, if the latest one in flight began at tried.
func (t *trust) mayTry(tried, now time.Time) bool {
	return t.answers(now) && now.Sub(tried) >= now.Sub(t.answered)/trialShare
}

// retryDelay returns when a message comes back whose target answers, but gets no trial: after once to twice the time
// since the answer. It comes back often only while the answer is recent.
func (t *trust) retryDelay(now time.Time, jitter float64) time.Duration {
	delay := time.Duration((1 + jitter) * float64(now.Sub(t.answered)))
	return max(min(delay, maxBusyDelay), minBusyDelay)
}

func (t *trust) answeredLately(now time.Time) bool {
	return now.Sub(t.answered) <= max(minTrusted, t.patience())
}

// patience is how long a call may take before the target is no longer trusted.
func (t *trust) patience() time.Duration { return max(minPatience, patienceFactor*t.longest) }

// leave removes a call.
func (t *trust) leave(began time.Time) {
	i := slices.Index(t.began, began)
	t.began = slices.Delete(t.began, i, i+1)
}

// ended records how a call ended.
func (t *trust) ended(took time.Duration, s state, now time.Time) {
	if s != up {
		t.hung = t.hung || took > t.patience()
		return
	}
	t.longest = max(took, t.longest-(t.longest-took)/forgetting)
	t.answered, t.hung = now, false
}

// held counts the slots of the targets of a class and of all worse classes.
type held struct {
	// calls are those of a function, bytes the memory of all calls. The longest has lasted so many seconds.
	calls, bytes int
	longest      float64
}

// held looks at all calls rather than keep sums, because a target changes its class by the mere passing of time. Only
// messages for targets that are not trusted pay for it. Tried is when the latest trial in flight began.
func (s *Shares) held(function string, now time.Time) (classes [hanging + 1]held, tried time.Time) {
	for _, c := range s.calls {
		if c.isTrial && c.began.After(tried) {
			tried = c.began
		}
		class := c.ofAll.value.trust.class(now)
		for of := untrusted; of <= class; of++ {
			h := &classes[of]
			if c.function == function {
				h.calls++
			}
			h.bytes += c.bytes
			h.longest = max(h.longest, now.Sub(c.began).Seconds())
		}
	}
	return classes, tried
}

// lineOf identifies the line of a class of targets in a function, or in all.
type lineOf struct {
	function string
	class    class
}

// line returns the line of messages that wait because the targets of a class hold too many slots.
func (s *Shares) line(function string, c class) *line {
	key := lineOf{function, c}
	l := s.lines[key]
	if l == nil {
		l = &line{}
		s.lines[key] = l
	}
	return l
}
