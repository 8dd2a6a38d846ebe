package estimate

import (
	"fmt"
	"math"
	"time"

	"asynccaller/handler/internal/observers/sight"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/retry"
)

// Handful is the largest number of calls of which no estimate is made.
const Handful = 5

// Target is what is known of a target.
type Target struct {
	Now     time.Time
	Waiting *Waiting
	// Unknown says what must be known and is not; empty if nothing is missing.
	Unknown string
	// IsPaused says that an operator has paused it, and PausedUntil until when; zero if that has no end.
	IsPaused    bool
	PausedUntil time.Time
	// Failing says why its calls fail; empty if they do not. IsOpen says that a circuit breaker keeps them from being
	// made.
	Failing string
	IsOpen  bool
	// Pace is how many of its calls limits allow in a second; +Inf if there are none.
	Pace float64
	// Concurrency says that they limit the number of calls at a time, and not their rate.
	Concurrency bool
	// Retry is the policy by which calls that fail are made again: rows do not have theirs.
	Retry retry.Policy
	// Numbers are its calls of the last hour.
	Numbers sight.Series
}

// State says whether the calls that wait become fewer.
type State string

const (
	// Ends says that they do, and that the times are known.
	Ends State = "ends"
	// IsPaused says that the target is paused.
	IsPaused State = "paused"
	// IsDown says that no call is made or delivered.
	IsDown State = "down"
	// Grows says that about as many calls arrive as limits allow, or more.
	Grows State = "grows"
	// Unknown says that something is not known that the times depend on.
	Unknown State = "unknown"
)

// Estimate says when the calls that wait for a target will be done: delivered or given up.
type Estimate struct {
	At    time.Time `json:"at"`
	State State     `json:"state"`
	// Calls is how many wait and have rows.
	Calls int `json:"calls"`
	// Why says what is unknown, or why no call is delivered. IsCalled says that such calls are made.
	Why      string `json:"why,omitempty"`
	IsCalled bool   `json:"isCalled,omitempty"`
	// PausedUntil is zero if the pause has no end.
	PausedUntil time.Time `json:"pausedUntil,omitzero"`
	// NineOfTen is when nine of ten will be done, and Last when the last one will be: about or, with a FailedShare,
	// before this time in nine of ten cases.
	NineOfTen time.Time `json:"nineOfTenAt,omitzero"`
	Last      time.Time `json:"lastAt,omitzero"`
	// FailedShare is the share of the latest calls that failed and are made again, and ComePerMinute how many calls
	// arrive. MayLeavePerMinute is how many can be delivered; 0 if nothing limits that.
	FailedShare       float64 `json:"failedShare"`
	ComePerMinute     float64 `json:"comePerMinute"`
	MayLeavePerMinute float64 `json:"mayLeavePerMinute,omitempty"`
}

// Text says it to a person.
func (e Estimate) Text() string {
	switch e.State {
	case Ends:
		nineOfTen, last := about(e.NineOfTen.Sub(e.At)), e.Last.Sub(e.At)
		if e.FailedShare > 0 {
			return fmt.Sprintf("90 %% in %s, all likely before %s", nineOfTen, about(last+last/roundShare))
		}
		return fmt.Sprintf("90 %% in %s, all in about %s", nineOfTen, about(last))
	case IsPaused:
		if e.PausedUntil.IsZero() {
			return "stands still: paused until it is resumed"
		}
		return "stands still: paused until " + format.Moment(e.PausedUntil.Truncate(time.Second))
	case IsDown:
		if e.IsCalled {
			return "nothing is delivered: " + e.Why
		}
		return "nothing is called: " + e.Why
	case Grows:
		return fmt.Sprintf("does not shrink: %s/min come, %s/min may leave", perMinute(e.ComePerMinute),
			perMinute(e.MayLeavePerMinute))
	case Unknown:
	}
	return "unknown: " + e.Why
}

// roundShare is the part of a time by which it is rounded at most.
const roundShare = 16

// about formats a time without a precision that it does not have.
func about(d time.Duration) string {
	step := time.Second
	for _, larger := range []time.Duration{
		10 * time.Second, time.Minute, 5 * time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour,
	} {
		if larger <= d/roundShare*2 {
			step = larger
		}
	}
	return format.Age(d.Round(step))
}

func perMinute(n float64) string { return format.PerMinute(int(math.Round(n*100)), 100, false) }

// Keep returns the estimate, or an earlier one of the same target if that is less than a minute old and says the same
// but for the times, so that a person can read it.
func (e Estimate) Keep(earlier Estimate) Estimate {
	isSame := e.State == Ends && earlier.State == Ends && e.MayLeavePerMinute == earlier.MayLeavePerMinute
	if isSame && e.At.Sub(earlier.At) < time.Minute {
		return earlier
	}
	return e
}

// Of returns the estimate for a target.
func Of(t Target) Estimate {
	e := Estimate{At: t.Now, Calls: t.Waiting.total, State: Unknown, Why: t.Unknown}
	if t.IsPaused {
		e.State, e.Why, e.PausedUntil = IsPaused, "", t.PausedUntil
		return e
	}
	if t.Unknown != "" {
		return e
	}
	recent, made := t.Numbers.Last5Minutes, t.made()
	switch {
	case t.IsOpen, t.Failing != "" && made.delivered == 0:
		e.State, e.IsCalled, e.Why = IsDown, !t.IsOpen, t.Failing
		return e
	case recent.AtLeast:
		e.Why = "the target was not among the busiest of each minute"
		return e
	}
	e.FailedShare, e.ComePerMinute = made.share(), float64(recent.New)/float64(recent.Known)
	pace := 60 * t.Pace
	if float64(t.Waiting.overdue) > max(Handful, made.perMinute()) { // the app is behind, and calls as often as it can
		pace = min(pace, made.perMinute())
	}
	if !math.IsInf(pace, 1) {
		e.MayLeavePerMinute = pace * (1 - e.FailedShare)
		come, leave := float64(recent.New), e.MayLeavePerMinute*float64(recent.Known)
		if come >= leave-2*math.Sqrt(come) {
			e.State = Grows
			return e
		}
	}
	come := e.ComePerMinute
	if t.Concurrency { // of the messages that arrive, about so many pass those in the line (tools/world)
		const passing = 0.6
		pace, come = pace-passing*come, come-passing*come
	}
	nineOfTen, last := t.Waiting.replay(t.Retry, pace/60, come/60, e.FailedShare)
	if e.FailedShare > 0 {
		_, last = t.Waiting.replay(t.Retry, pace/60, come/60, made.mostShare())
	}
	e.State, e.Why = Ends, ""
	e.NineOfTen, e.Last = t.Now.Add(nineOfTen), t.Now.Add(last)
	return e
}

// calls are those that were made in some minutes: delivered, or failed so that they are made again.
type calls struct{ delivered, again, minutes int }

// share returns the share of the calls that are made again.
func (c calls) share() float64 { return float64(c.again) / float64(max(c.delivered+c.again, 1)) }

// mostShare returns what the share of all calls is below in nine of ten cases, as far as these are a sample of them.
func (c calls) mostShare() float64 {
	const nineOfTen, most = 1.28, 0.98
	share, n := c.share(), float64(c.delivered+c.again)
	return min(share+nineOfTen*math.Sqrt(share*(1-share)/n), most)
}

func (c calls) perMinute() float64 { return float64(c.delivered+c.again) / float64(max(c.minutes, 1)) }

// made returns the calls of the last minutes since the target answers. The minute in which it came back counts only
// until there is another one, and without its failures: they are of the time before.
func (t Target) made() (made calls) {
	const recent = sight.RecentMinutes*time.Minute + 90*time.Second // a minute is known some time after its end
	wasDown, cameBack := false, false
	for _, minute := range t.Numbers.Minutes {
		failed := minute.FailedCalls() - minute.Failed[string(decision.Rejected)]
		switch {
		case minute.Delivered == 0 && failed == 0: // no call was made
			continue
		case minute.Delivered == 0:
			made, wasDown = calls{}, true
			continue
		case wasDown:
			made, failed = calls{}, 0
		case cameBack:
			made = calls{}
		}
		wasDown, cameBack = false, wasDown
		if t.Now.Sub(minute.At) <= recent {
			made = calls{made.delivered + minute.Delivered, made.again + failed, made.minutes + 1}
		}
	}
	return made
}
