package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/gates/admission"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/rules/targets"
)

// begin is the time at which each test begins.
var begin = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

const (
	poolSize = 224
	function = "AC-standard"
)

// bench has the gates, with a clock and without randomness.
type bench struct {
	testing.TB
	gates []delivery.Gate
	log   bytes.Buffer
	now   time.Time
	// profile is that of all targets, unless profiles has them.
	profile  targets.Profile
	profiles *targets.Profiles
	// named is how many targets calls has named.
	named int
}

func newBench(tb testing.TB, size int) *bench {
	tb.Helper()
	b := &bench{TB: tb, now: begin, profile: targets.Profiles{}.For(&url.URL{})}
	now := func() time.Time { return b.now }
	room, breakers := admission.NewRoom(size, 400<<10, now), admission.NewBreakers(now, zerolog.New(&b.log))
	b.gates = []delivery.Gate{room, breakers, admission.NewShares(room, breakers, now)}
	return b
}

// slot is a call that the gates have let pass.
type slot struct {
	*bench
	passed  []decision.Pass
	isEnded bool
}

// enter asks the gates for a call.
func (b *bench) enter(due *decision.Due) (*slot, *decision.Refusal) {
	s := &slot{bench: b}
	for _, gate := range b.gates {
		pass, verdict := gate.Enter(context.Background(), due)
		if verdict != nil {
			s.Release()
			return nil, verdict.Refusal
		}
		if pass != nil {
			s.passed = append(s.passed, pass)
		}
	}
	return s, nil
}

// transition is what the log says of a circuit breaker.
type transition struct {
	Message        string
	Failures, Down int
}

func (t transition) opened() bool { return strings.HasPrefix(t.Message, "circuit breaker opened") }

func (t transition) closed() bool { return strings.HasPrefix(t.Message, "circuit breaker closed") }

// Ended ends the call, and returns how that has changed the circuit breaker.
func (s *slot) Ended(o decision.Outcome) (change transition) {
	s.Helper()
	s.end(&o)
	if s.log.Len() > 0 {
		if err := json.Unmarshal(s.log.Bytes(), &change); err != nil {
			s.Error(err)
		}
		s.log.Reset()
	}
	return change
}

func (s *slot) end(o *decision.Outcome) {
	s.isEnded = true
	for _, pass := range slices.Backward(s.passed) {
		pass.Ended(o, s.now)
	}
}

// Release settles the message. If the call has not ended, it has panicked.
func (s *slot) Release() {
	if !s.isEnded {
		s.end(nil)
	}
	for _, pass := range slices.Backward(s.passed) {
		pass.Released(s.now)
	}
}

// ask asks for a call to a host.
func (b *bench) ask(host string) (*slot, *decision.Refusal) { return b.enter(b.due(host)) }

// due returns a call to a host that is due.
func (b *bench) due(host string) *decision.Due {
	e := &envelope.Envelope{Call: envelope.Call{Target: &url.URL{Scheme: "https", Host: host}}}
	due := &decision.Due{
		Message: decision.Message{Function: function}, Intake: &decision.Intake{Envelope: e, Profile: b.profile},
		Target: targets.Address(e.Call.Target), Jitter: 0.5,
	}
	if b.profiles != nil {
		due.Intake.Profile = b.profiles.For(e.Call.Target)
	}
	return due
}

// fill takes as many slots as the hosts get, in turn, and returns them.
func (b *bench) fill(hosts ...string) (slots []*slot) {
	for {
		before := len(slots)
		for _, host := range hosts {
			if slot, _ := b.ask(host); slot != nil {
				slots = append(slots, slot)
			}
		}
		if len(slots) == before {
			return slots
		}
	}
}

func (b *bench) mustSlot(host string) *slot {
	b.Helper()
	slot, refusal := b.ask(host)
	if slot == nil {
		b.Fatalf("%s at %v: refused: %+v", host, b.now.Sub(begin), *refusal)
	}
	return slot
}

func (b *bench) mustRefuse(host string, reason decision.Reason) *decision.Refusal {
	b.Helper()
	slot, refusal := b.ask(host)
	if slot != nil || refusal.Reason != reason {
		b.Fatalf("%s at %v: slot %v, refusal %+v, want %s", host, b.now.Sub(begin), slot, refusal, reason)
	}
	return refusal
}

// trust lets hosts answer a call.
func (b *bench) trust(hosts ...string) {
	b.Helper()
	for _, host := range hosts {
		b.call(host, decision.Outcome{Status: 200})
	}
}

// call makes a call with an outcome.
func (b *bench) call(host string, o decision.Outcome) transition {
	b.Helper()
	slot := b.mustSlot(host)
	b.now = b.now.Add(o.Took)
	defer slot.Release()
	return slot.Ended(o)
}

// TestShare: the more targets want slots, the fewer each gets, and some remain free for others.
func TestShare(t *testing.T) {
	for _, row := range []struct{ size, hosts, each int }{
		{poolSize, 1, 56},
		{poolSize, 5, 28},
		{96, 5, 12},
		{0, 1, 8},
		{8, 2, 8}, // few slots: the host is the limit
	} {
		t.Run(fmt.Sprintf("%d_slots_%d_targets", row.size, row.hosts), func(t *testing.T) {
			b := newBench(t, row.size)
			var hosts []string
			for i := range row.hosts {
				hosts = append(hosts, fmt.Sprintf("t%d.example", i))
			}
			b.trust(hosts...)
			slots := b.fill(hosts...)
			if each := float64(len(slots)) / float64(row.hosts); each > float64(row.each) ||
				each < float64(row.each)-0.5 {
				t.Errorf("%v slots for each, want %d", each, row.each)
			}
			b.mustSlot("healthy.example").Release()
			if again := b.fill(hosts...); len(again) > 0 {
				t.Errorf("%d more slots", len(again))
			}
			slots[0].Release()
			if again := b.fill(hosts...); len(again) != 1 {
				t.Errorf("%d slots after one was released", len(again))
			}
		})
	}
}

// TestShareOfEachFunction: a target's calls from one queue take no slot of another queue.
func TestShareOfEachFunction(t *testing.T) {
	b := newBench(t, poolSize)
	b.fill("t.example")
	b.mustRefuse("T.example.:443", decision.Busy) // another spelling
	other := b.due("t.example")
	other.Message.Function = "AC-priority01"
	if slot, _ := b.enter(other); slot == nil {
		t.Error("refused")
	}
}

// TestLine: busy messages come back a little faster than the target's slots become free.
func TestLine(t *testing.T) {
	b := newBench(t, poolSize)
	slots := b.fill("t.example")
	b.now = b.now.Add(2 * time.Second)
	for _, slot := range slots {
		slot.Release()
	}
	slots = b.fill("t.example") // 56 calls of 2 s: 28 a second
	for place := 2; place <= 2800; place++ {
		delay := b.mustRefuse("t.example", decision.Busy).Delay
		if want := max(seconds(float64(place)/28/(1+2.5/math.Sqrt(56))), time.Second); (delay - want).
			Abs() > time.Millisecond {
			t.Fatalf("place %d: %v, want %v", place, delay, want)
		}
	}
	for range 25 { // the line moves on
		b.now = b.now.Add(2 * time.Second)
		for _, slot := range slots {
			slot.Release()
		}
		slots = b.fill("t.example")
	}
	if delay := b.mustRefuse("t.example", decision.Busy).Delay; (delay - 26*time.Second).Abs() > time.Second {
		t.Errorf("%v later, want about 26 s", delay)
	}
}

// TestLineOfHangingTarget: calls that have not ended show that the target is slow.
func TestLineOfHangingTarget(t *testing.T) {
	b := newBench(t, poolSize)
	b.fill("t.example")
	b.now = b.now.Add(time.Minute)
	var shortest, longest time.Duration
	for place := range 2000 {
		delay := b.mustRefuse("t.example", decision.Busy).Delay
		if place == 0 {
			shortest = delay
		}
		longest = max(longest, delay)
	}
	if want := time.Minute / 56; (shortest - want).Abs() > time.Second/10 {
		t.Errorf("the first waits %v, want %v", shortest, want)
	}
	if longest > 15*time.Minute || longest < 10*time.Minute {
		t.Errorf("the last waits %v, want at most 15m", longest)
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func failure(f decision.Failure) decision.Outcome { return decision.Outcome{Failure: f} }

// TestBreakerOpens: five failures in a row that mean that the target is down open the breaker, and nothing else does.
func TestBreakerOpens(t *testing.T) {
	for name, row := range map[string]struct {
		outcome decision.Outcome
		opens   bool
	}{
		"connect":       {failure(decision.FailureConnect), true},
		"dns":           {failure(decision.FailureDNS), true},
		"tls":           {failure(decision.FailureTLS), true},
		"connection":    {failure(decision.FailureConnection), true},
		"timeout":       {decision.Outcome{Failure: decision.FailureTimeout, Took: 10 * time.Second}, true},
		"short_timeout": {decision.Outcome{Failure: decision.FailureTimeout, Took: 9 * time.Second}, false},
		"no_timeout":    {decision.Outcome{Failure: decision.FailureTimeout, Took: time.Millisecond}, false},
		"certificate":   {failure(decision.FailureCertificate), false},
		"interrupted":   {failure(decision.FailureInterrupted), false},
		"refused":       {failure(decision.FailureTargetRefused), false},
		"bad_url":       {failure(decision.FailureBadURL), false},
		"redirected":    {decision.Outcome{Failure: decision.FailureRedirected, Status: 302}, false},
		"broken_off":    {decision.Outcome{Failure: decision.FailureConnection, Status: 200}, true},
		"502":           {decision.Outcome{Status: 502}, true},
		"503":           {decision.Outcome{Status: 503}, true},
		"504":           {decision.Outcome{Status: 504}, true},
		"500":           {decision.Outcome{Status: 500}, false},
		"429":           {decision.Outcome{Status: 429}, false},
		"404":           {decision.Outcome{Status: 404}, false},
		"200":           {decision.Outcome{Status: 200}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, poolSize)
			for i := range 20 {
				if change := b.call("t.example", row.outcome); change.opened() {
					if i != 4 || !row.opens || change.Failures != 5 {
						t.Errorf("call %d: %+v", i+1, change)
					}
					b.mustRefuse("t.example", decision.TargetDown)
					b.mustSlot("other.example").Release()
					return
				}
			}
			if row.opens {
				t.Error("it never opened")
			}
		})
	}
}

// open makes the breaker of a host open.
func (b *bench) open(host string, o decision.Outcome) {
	b.Helper()
	for range b.profile.Breaker.Failures {
		b.call(host, o)
	}
	b.mustRefuse(host, decision.TargetDown)
}

// TestBreakerAfterASuccess: a target that answers some calls is not down, however many fail in between; it is when it
// has not answered for 5 s.
func TestBreakerAfterASuccess(t *testing.T) {
	b := newBench(t, poolSize)
	b.open("down.example", decision.Outcome{Status: 503}) // it never answered
	for range 3 {
		b.call("t.example", decision.Outcome{Status: 200})
		for range 40 {
			if change := b.call("t.example",
				decision.Outcome{Status: 503, Took: 100 * time.Millisecond}); change.opened() {
				t.Fatal("it opened")
			}
		}
	}
	b.now = b.now.Add(time.Second)
	if change := b.call("t.example", decision.Outcome{Status: 503}); !change.opened() {
		t.Error("it did not open 5 s after the last success")
	}
}

// TestBreakerWaits: the waits grow with the outage, from 5 s to 15 min.
func TestBreakerWaits(t *testing.T) {
	b := newBench(t, poolSize)
	b.open("t.example", decision.Outcome{Status: 503})
	slot := b.probe("t.example")
	for age, want := range map[time.Duration][2]time.Duration{
		6 * time.Second:  {5 * time.Second, 6 * time.Second},
		time.Minute:      {30 * time.Second, time.Minute},
		10 * time.Minute: {5 * time.Minute, 10 * time.Minute},
		time.Hour:        {15 * time.Minute, 15 * time.Minute},
	} {
		b.now = begin.Add(age)
		for jitter, want := range map[float64]time.Duration{0: want[0], 1: want[1]} {
			due := b.due("t.example")
			due.Jitter = jitter
			_, refusal := b.enter(due)
			if refusal == nil || refusal.Delay != want {
				t.Errorf("after %v with jitter %v: %+v, want %v", age, jitter, refusal, want)
			}
		}
	}
	late := b.due("t.example")
	late.Intake.Envelope.Attempts, late.Intake.Policy = 8, retry.Default()
	backoff := retry.Default().Delay(8, late.Jitter)
	b.now = begin.Add(time.Minute)
	if _, refusal := b.enter(late); refusal.Delay != backoff {
		t.Errorf("%v, want the message's own back-off", refusal.Delay)
	}
	slot.Release()
}

// probe waits until a probe may begin.
func (b *bench) probe(host string) *slot {
	b.Helper()
	b.now = b.now.Add(time.Minute)
	return b.mustSlot(host)
}

// TestProbesAreFew: the pauses between probes grow with the outage, because each costs a message one of its attempts.
func TestProbesAreFew(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{
		30 * time.Second: 5 * time.Second,
		10 * time.Minute: 30 * time.Second, time.Hour: time.Minute,
	} {
		b := newBench(t, poolSize)
		b.open("t.example", decision.Outcome{Status: 503})
		b.now = begin.Add(age)
		b.call("t.example", decision.Outcome{Status: 503})
		b.now = b.now.Add(want - time.Second)
		b.mustRefuse("t.example", decision.TargetDown)
		b.now = b.now.Add(time.Second)
		b.mustSlot("t.example")
	}
}

// TestProbe: one call at a time tests whether the target is up again, and one success closes the breaker.
func TestProbe(t *testing.T) {
	b := newBench(t, poolSize)
	b.open("t.example", decision.Outcome{Status: 503})
	slot := b.probe("t.example")
	b.now = b.now.Add(2 * time.Minute)
	b.mustRefuse("t.example", decision.TargetDown)
	slot.Ended(decision.Outcome{Failure: decision.FailureTimeout, Took: 2 * time.Minute})
	b.mustRefuse("t.example", decision.TargetDown)
	next := b.probe("t.example")
	slot.Release() // its message was not settled before: that does not end the next probe
	b.mustRefuse("t.example", decision.TargetDown)
	next.Ended(decision.Outcome{Failure: decision.FailureTimeout, Took: time.Millisecond}) // it says nothing
	b.mustSlot("t.example").Release()                                                      // a call that panicked
	change := b.call("t.example", decision.Outcome{Status: 404})
	if !change.closed() || time.Duration(change.Down)*time.Millisecond != b.now.Sub(begin) {
		t.Errorf("%+v after %v", change, b.now.Sub(begin))
	}
	if n := len(b.fill("t.example")); n != 56 {
		t.Errorf("%d calls at once after the recovery, want the target's share", n)
	}
}

// TestLastAttempt: the breaker never blocks it, but the share does.
func TestLastAttempt(t *testing.T) {
	b := newBench(t, poolSize)
	b.open("t.example", decision.Outcome{Status: 503})
	last := b.due("t.example")
	last.LastAttempt = true
	slots := 0
	for range 100 {
		slot, refusal := b.enter(last)
		if slot != nil {
			slots++
		} else if refusal.Reason != decision.Busy {
			t.Fatalf("%+v", refusal)
		}
	}
	if slots != 56 {
		t.Errorf("%d last attempts at once, want 56", slots)
	}
}

// TestLateFailures: calls that began before a success say nothing about the time after it.
func TestLateFailures(t *testing.T) {
	b := newBench(t, poolSize)
	var hanging []*slot
	for range 10 {
		hanging = append(hanging, b.mustSlot("t.example"))
	}
	b.now = b.now.Add(time.Minute)
	b.call("t.example", decision.Outcome{Status: 200})
	b.now = b.now.Add(time.Minute)
	for _, slot := range hanging {
		change := slot.Ended(decision.Outcome{Failure: decision.FailureTimeout, Took: 2 * time.Minute})
		if change.opened() {
			t.Fatal("the breaker opened")
		}
	}
}

// TestRetryAfter: a target that is down and asks for time gets it, up to an hour for the messages of others.
func TestRetryAfter(t *testing.T) {
	for asked, want := range map[string]time.Duration{
		"120": 2 * time.Minute, "1800": 30 * time.Minute,
		"31536000": time.Hour, "1": 5 * time.Second,
	} {
		b := newBench(t, poolSize)
		b.open("t.example", decision.Outcome{Status: 503, Header: http.Header{"Retry-After": {asked}}})
		if delay := b.mustRefuse("t.example", decision.TargetDown).Delay; delay < want || delay > want*12/10 {
			t.Errorf("asked for %s s: %v, want %v", asked, delay, want)
		}
		b.now = b.now.Add(want - time.Second)
		b.mustRefuse("t.example", decision.TargetDown)
		b.now = b.now.Add(time.Second)
		b.mustSlot("t.example")
	}
}

// TestBreakerOff: a profile can turn it off.
func TestBreakerOff(t *testing.T) {
	b := newBench(t, poolSize)
	b.profile.Breaker.Off = true
	for range 20 {
		if change := b.call("t.example", decision.Outcome{Status: 503}); change.opened() {
			t.Fatal("it opened")
		}
	}
}

// TestAllFunctions: the calls of all queues together are bounded, and a target that hangs in all of them leaves room.
func TestAllFunctions(t *testing.T) {
	b := newBench(t, poolSize)
	fill := func(host string) (n int) {
		b.trust(host)
		for i := range 11 * 64 {
			request := b.due(host)
			request.Message.Function = fmt.Sprint(function, i%11)
			if slot, _ := b.enter(request); slot != nil {
				n++
			}
		}
		return n
	}
	total := 0
	for i := range 5 {
		n := fill(fmt.Sprintf("t%d.example", i))
		total += n
		if i == 0 && n != 128 {
			t.Errorf("one target has %d calls in flight, want a quarter of 512", n)
		}
	}
	if n := fill("healthy.example"); n == 0 {
		t.Error("no slot for another target")
	}
	b.profile.Concurrency, b.profile.Scope = 10_000, "greedy.example"
	total += fill("greedy.example")
	if total > 512 {
		t.Errorf("%d calls in flight", total)
	}
	if refusal := b.mustRefuse("new.example", decision.Busy); refusal.Detail != "instance" ||
		refusal.Delay < time.Second {
		t.Errorf("%+v", refusal)
	}
}

// headers returns headers that take so many bytes of [envelope.Envelope.Memory].
func headers(bytes int) http.Header {
	header := http.Header{}
	for i := range bytes / 224 {
		header[fmt.Sprint(i)] = []string{""}
	}
	return header
}

// TestMemoryOfCalls: fewer calls are in flight if they take more memory, and its slots are free again when a call ends.
func TestMemoryOfCalls(t *testing.T) {
	for memory, want := range map[int]int{0: 512, 16 << 10: 512, 416 << 10: 256, 1216 << 10: 128} {
		b := newBench(t, 10_000)
		b.profile.Concurrency, b.profile.Scope = 10_000, "t.example"
		b.trust("t.example")
		request := b.due("t.example")
		request.Intake.Envelope.Call.Header = headers(memory)
		for range 2 {
			var slots []*slot
			for range 1000 {
				if slot, refusal := b.enter(request); slot != nil {
					slots = append(slots, slot)
				} else if refusal.Detail != "instance" {
					t.Fatalf("%+v", refusal)
				}
			}
			if len(slots) != want {
				t.Errorf("%d calls with %d bytes in flight, want %d", len(slots), memory, want)
			}
			for _, slot := range slots {
				slot.Release()
			}
		}
	}
}

// TestSettlingIsNotTheTarget: time that a message takes to settle, as in an outage of storage, makes no target look
// slow or busy.
func TestSettlingIsNotTheTarget(t *testing.T) {
	b := newBench(t, poolSize)
	b.trust("t.example")
	for range 3 {
		settling := b.fill("t.example")
		b.now = b.now.Add(100 * time.Millisecond)
		for _, slot := range settling {
			slot.Ended(decision.Outcome{Status: 500})
		}
		next := b.mustSlot("t.example") // the target has ended its calls
		next.Ended(decision.Outcome{Status: 200})
		b.now = b.now.Add(time.Minute)
		for _, slot := range append(settling, next) {
			slot.Release()
		}
	}
	b.trust("t.example")
	b.fill("t.example")
	for range 20 {
		if delay := b.mustRefuse("t.example", decision.Busy).Delay; delay > 2*time.Second {
			t.Fatalf("a message waits %v for calls of 0.1 s", delay)
		}
	}
}

// TestTargetsRateLimit: a target that says that its rate limit is reached gets no other call until it says so no more,
// but for at most an hour, except last attempts.
func TestTargetsRateLimit(t *testing.T) {
	for name, row := range map[string]struct {
		status int
		limit  string
		want   time.Duration
	}{
		"delivered": {200, `"default";r=0;t=30`, 30 * time.Second},
		"refused":   {429, `"default";r=0;t=30`, 30 * time.Second},
		"down":      {503, `"default";r=0;t=30`, 30 * time.Second},
		"some_left": {200, `"default";r=1;t=30`, 0},
		"of_a_part": {429, `"default";r=0;t=30;pk=:dXNlcjE=:`, 0},
		"a_day":     {429, `"default";r=0;t=86400`, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, poolSize)
			slow := b.mustSlot("t.example")
			b.call("t.example", decision.Outcome{Status: row.status, Header: http.Header{"Ratelimit": {row.limit}}})
			slow.Ended(decision.Outcome{Status: 200})
			slow.Release()
			if row.want > 0 {
				refusal := b.mustRefuse("t.example", decision.Busy)
				if refusal.Detail != "the target's rate limit" || refusal.Delay != row.want*11/10 {
					t.Errorf("%+v, want %v with half of the jitter", refusal, row.want)
				}
				last := b.due("t.example")
				last.LastAttempt = true
				if slot, _ := b.enter(last); slot == nil {
					t.Error("the last attempt was refused")
				}
				b.now = b.now.Add(row.want - 1)
				b.mustRefuse("t.example", decision.Busy)
				b.now = b.now.Add(1)
			}
			b.mustSlot("t.example")
		})
	}
}
