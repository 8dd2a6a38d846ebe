package limit

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
)

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return now.Add(time.Duration(seconds * float64(time.Second))) }

// begin is where the line of a test begins.
const begin = 1_000_000

// with returns a question about messages, which may wait in the handler.
func with(p targets.Profile, waiting ...*waiter) question {
	for _, m := range waiting {
		m.hasPlace = true
		if m.deadline.IsZero() {
			m.deadline = now.Add(time.Hour)
		}
	}
	slices.SortStableFunc(waiting, inLine)
	return question{
		profile: p, now: now, random: func() float64 { return 0.5 }, instance: "i", waiting: waiting,
	}
}

var (
	perSecond = targets.Profile{Rate: 1, Burst: 1}
	perMinute = targets.Profile{Rate: 1.0 / 60, Burst: 1}
	twoAtOnce = targets.Profile{Concurrency: 2}
	both      = targets.Profile{Rate: 1, Burst: 1, Concurrency: 2}
)

// TestLine: who is called, and who waits, by the state of the row.
func TestLine(t *testing.T) {
	free := state{Issued: begin, Front: begin, Mean: 2}
	waits := free // ten messages wait
	waits.Front, waits.LeftAt = begin-10, now
	next := func(l state, seconds float64) state { l.Next = at(seconds); return l }
	held := func(l state, permits int, seconds float64) state {
		l.Holders = map[string]holding{"other": {permits, at(seconds)}}
		return l
	}
	for name, c := range map[string]struct {
		line    state
		profile targets.Profile
		message waiter
		// at is after how many seconds the message is called; -1 if it is not, and stays in the handler, -2 if it comes
		// back.
		at float64
	}{
		"turn is free":                  {free, perSecond, waiter{}, 0},
		"turn comes soon":               {next(free, 1.5), perSecond, waiter{}, 1.5},
		"turn comes later":              {next(free, 2.5), perSecond, waiter{}, -1},
		"turn comes much later":         {next(free, 7), perSecond, waiter{}, -2},
		"turn is after the deadline":    {next(free, 1.5), perSecond, waiter{deadline: at(1)}, -1},
		"damaged turn":                  {next(free, 1e9), perSecond, waiter{}, -2},
		"permits are free":              {held(free, 1, 30), twoAtOnce, waiter{}, 0},
		"no permit is free":             {held(free, 2, 30), twoAtOnce, waiter{}, -1},
		"a lease has ended":             {held(free, 2, 0), twoAtOnce, waiter{}, 0},
		"a lease is damaged":            {held(free, 2, 1e6), twoAtOnce, waiter{}, 0},
		"no permit, but a turn":         {held(free, 2, 30), both, waiter{}, -1},
		"a permit, but no turn":         {next(held(free, 1, 30), 3), both, waiter{}, -1},
		"behind the line":               {waits, perSecond, waiter{}, -2},
		"in the line":                   {waits, perSecond, waiter{ticket: begin - 3}, 0},
		"ticket of another line":        {waits, perSecond, waiter{ticket: begin + 1}, -2},
		"ticket of long ago":            {waits, perSecond, waiter{ticket: begin - 2000}, -2},
		"content in place":              {waits, perSecond, waiter{deliveries: 1}, -2},
		"content in place that is back": {waits, perSecond, waiter{deliveries: 2}, 0},
		"content in place at the front": {next(waits, 20), perSecond, waiter{deliveries: 2}, -1},
		"content in place too early":    {next(waits, 60), perMinute, waiter{deliveries: 2}, -2},
		"has waited long": {
			held(waits, 2, 30), twoAtOnce, waiter{ticket: begin - 5, waited: 5 * time.Second}, -2,
		},
		"newcomer while permits are free": {
			state{Issued: begin, Front: begin - 10, Mean: 2, LeftAt: now, FreeSince: at(-3)}, twoAtOnce, waiter{}, -1,
		},
		"front a billion behind": {
			state{Issued: 2e9, Front: 1e9 + 1, Mean: 2, LeftAt: now}, perSecond, waiter{}, 0,
		},
		"front before the tickets": {
			state{Issued: begin, Front: 2 * begin, Mean: 2}, perSecond, waiter{ticket: begin}, 0,
		},
		"lease after now, own permit": {
			state{Issued: begin, Front: begin, Holders: map[string]holding{"i": {9, at(1e6)}}}, twoAtOnce, waiter{}, 0,
		},
		"newcomer while nobody comes": {
			state{Issued: begin, Front: begin - 10, Mean: 2, LeftAt: at(-10)}, twoAtOnce, waiter{}, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := c.message
			state := c.line
			a := state.update(with(c.profile, &m)).answers[&m]
			switch {
			case c.at >= 0:
				if !a.granted || !a.at.Equal(at(c.at)) {
					t.Errorf("%+v, want a call after %v s", a, c.at)
				}
			case a.granted || a.stays != (c.at == -1):
				t.Errorf("%+v, stays %v expected", a, c.at == -1)
			case !a.stays && (a.delay < time.Second || a.delay > 20*time.Minute):
				t.Errorf("comes back after %v", a.delay)
			}
		})
	}
}

// TestNewcomersMoveTheFront: if tickets were lost, each newcomer moves the front, and the line ends.
func TestNewcomersMoveTheFront(t *testing.T) {
	state := state{Issued: begin, Front: begin - 5000, Mean: 1, LeftAt: at(-10), Next: now}
	p := targets.Profile{Rate: 1000, Burst: 1000}
	for range 100 {
		m := &waiter{}
		if a := state.update(with(p, m)).answers[m]; !a.granted {
			t.Fatalf("%+v", a)
		}
	}
	if state.Issued-int64(state.Front) > 10 {
		t.Errorf("%v of %d", state.Front, state.Issued)
	}
}

// TestPulledBack: messages that are still here move the front back.
func TestPulledBack(t *testing.T) {
	state := state{Issued: begin, Front: begin, Mean: 2, LeftAt: now}
	state.Holders = map[string]holding{"other": {2, at(30)}}
	state.update(with(twoAtOnce, &waiter{ticket: begin - 500, waited: 5 * time.Second}))
	if state.Front > begin-50 || state.Front < begin-500 {
		t.Errorf("front %v", state.Front)
	}
}

// TestUnusedTurns: a turn is given back once, and never makes room for two calls at the same time.
func TestUnusedTurns(t *testing.T) {
	for name, c := range map[string]struct {
		next, unused, want float64
	}{
		"the latest, in time":   {next: 2, unused: 1, want: 1},
		"the latest, too late":  {next: 1, unused: 0, want: 0},
		"others, in time":       {next: 3, unused: 1, want: 2},
		"others, too late":      {next: 3, unused: -1, want: 3},
		"long ago, and no line": {next: -100, unused: -101, want: -101},
	} {
		state := state{Issued: begin, Front: begin, Mean: 1, Next: at(c.next)}
		q := with(perSecond)
		q.unused = []time.Time{at(c.unused)}
		state.update(q)
		if !state.Next.Equal(at(c.want)) {
			t.Errorf("%s: next %v, want %v", name, state.Next.Sub(now), c.want)
		}
	}
}

// TestLease: an instance renews its permits in time, and gives back what it does not use.
func TestLease(t *testing.T) {
	state := state{Issued: begin, Front: begin, Mean: 1, Holders: map[string]holding{"i": {2, at(40)}}}
	q := with(twoAtOnce)
	q.used = 2
	if r := state.update(q); r.permits != 2 || !r.until.Equal(now.Add(lease)) {
		t.Errorf("%+v", r)
	}
	q.used = 0
	if r := state.update(q); r.permits != 0 || len(state.Holders) != 0 {
		t.Errorf("%+v, %+v", r, state)
	}
	limited := targets.Profile{Concurrency: 1} // the operator has changed it
	q = with(limited, &waiter{})
	q.used = 2
	if r := state.update(q); r.permits != 2 || r.chosen != 0 {
		t.Errorf("%+v", r)
	}
}

// TestManyInstances: the row has room for a thousand instances with calls in flight, and one more gets no permit.
func TestManyInstances(t *testing.T) {
	p := targets.Profile{Concurrency: 10_000}
	state := state{Issued: begin, Front: begin, Mean: 1}
	ask := func(n, used int) reply {
		q := with(p, &waiter{}, &waiter{}, &waiter{}, &waiter{}, &waiter{}, &waiter{}, &waiter{}, &waiter{}, &waiter{})
		if used > 0 {
			q.used, q.waiting = used, nil
		}
		q.instance = uuid.NewString()[:9] + fmt.Sprintf("%04d", n)
		return state.update(q)
	}
	for n := range 1000 {
		if r := ask(n, 0); r.chosen != 9 {
			t.Fatalf("instance %d: %+v", n, r)
		}
	}
	written, err := json.Marshal(state)
	if err != nil || len(written) > storage.MaxPropertyBytes {
		t.Errorf("%d bytes, %v", len(written), err)
	}
	if r := ask(1000, 0); r.chosen != 0 || len(state.Holders) != 1000 {
		t.Errorf("one more: %d permits, %d instances in the row", r.permits, len(state.Holders))
	}
}

// FuzzLine: whatever a row and messages contain, no limit is exceeded, every message gets an answer, and what is
// written can be read.
func FuzzLine(f *testing.F) {
	seed, _ := json.Marshal(state{Issued: begin, Front: begin - 5, Mean: 1, Next: now, LeftAt: now})
	f.Add(seed, int64(begin-1), int64(0), 2, 1.0, 1, 0)
	f.Add([]byte(`{"issued":9e99}`), int64(math.MinInt64), int64(envelope.MaxTicket), 0, 0.001, 10_000, 3)
	for _, damaged := range []string{
		"x", "null", "[]", `{"issued":-5,"front":-1,"mean":-1}`, strings.Repeat("[", 30_000),
		`{"issued":9223372036854775807,"next":"9999-01-01T00:00:00Z","mean":1e300}`,
		`{"issued":5,"front":5,"holders":{"y":{"permits":-9,"until":"2026-11-01T12:00:30Z"}}}`,
	} {
		f.Add([]byte(damaged), int64(1), int64(5), 2, 1.0, 1, 0)
	}
	f.Add([]byte(`{"issued":1,"front":1e8,"mean":3599,"next":"0001-01-01T00:00:00Z","holders":{"i":{"permits":-1}}}`),
		int64(1), int64(-1), 10_000, 0.0, 1, 1)
	f.Add([]byte(`{"issued":2000000000,"front":1000000001,"leftAt":"9999-01-01T00:00:00Z",`+
		`"movedAt":"9999-01-01T00:00:00Z","freeSince":"9999-01-01T00:00:00Z",`+
		`"holders":{"i":{"permits":9,"until":"9999-01-01T00:00:00Z"}}}`),
		int64(1), int64(2e9), 2, 0.5, 1, 1)
	f.Fuzz(func(t *testing.T, row []byte, a, b int64, concurrency int, perSecond float64, burst, visits int) {
		p := targets.Profile{
			Concurrency: min(max(concurrency, 0), 10_000), Rate: rate.Limit(min(max(perSecond, 0), 10_000)),
			Burst: min(max(burst, 1), 10_000),
		}
		if p.Rate < 1.0/3600 {
			p.Rate = 0
		}
		if p.Rate == 0 && p.Concurrency == 0 || math.IsNaN(float64(p.Rate)) {
			return
		}
		state := parse(row)
		others := 0
		for id, h := range state.Holders {
			if id != "i" && h.Until.After(now) && h.Until.Before(now.Add(lease)) && h.Permits > 0 {
				others += min(h.Permits, 1<<20)
			}
		}
		waiting := []*waiter{{ticket: max(a, 0)}, {ticket: max(b, 0)}, {}, {deliveries: min(max(visits, 0), 9)}}
		turn := state.turn(p, now)
		r := state.update(with(p, waiting...))
		if p.Concurrency > 0 && r.chosen > max(0, p.Concurrency-others) {
			t.Errorf("%d permits beside %d of %d", r.chosen, others, p.Concurrency)
		}
		granted := 0
		for _, m := range waiting {
			a, ok := r.answers[m]
			switch {
			case !ok:
				t.Errorf("no answer for %+v", m)
			case a.granted:
				granted++
				if a.at.Before(now) || a.at.After(now.Add(turnWait)) {
					t.Errorf("called after %v", a.at.Sub(now))
				}
				if p.Rate > 0 && turn.Before(now.Add(longestAhead)) && a.at.Before(turn) {
					t.Errorf("called at %v, before the turn at %v", a.at, turn)
				}
			case !a.stays && (a.delay < 0 || a.delay > time.Hour):
				t.Errorf("comes back after %v", a.delay)
			case a.ticket < 0 || a.ticket > envelope.MaxTicket:
				t.Errorf("ticket %d", a.ticket)
			}
		}
		if granted != r.chosen || r.look < 0 || r.look > lineWait {
			t.Errorf("%d granted, %+v", granted, r)
		}
		latest := bounds.Later(bounds.Later(state.FreeSince, state.LeftAt), state.MovedAt)
		if latest.After(now.Add(grace)) || r.until.After(now.Add(lease+grace)) {
			t.Errorf("a time after now is believed: %+v, lease until %v", state, r.until)
		}
		written, err := json.Marshal(state)
		if err != nil {
			t.Fatal(err)
		}
		if again := parse(written); again.Issued != state.Issued || again.Front != state.Front {
			t.Errorf("%+v, again %+v", state, again)
		}
	})
}
