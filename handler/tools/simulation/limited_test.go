package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/decision"
	"asynccaller/handler/internal/delivery"
	"asynccaller/handler/internal/envelope"
	"asynccaller/handler/internal/limit"
	"asynccaller/handler/internal/retry"
	"asynccaller/handler/internal/serve"
	"asynccaller/handler/internal/settle"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/targets"
)

// demand is what a limited target is asked to do.
type demand struct {
	// limit is its profile, rate or concurrency the limit in it.
	limit       string
	rate        float64
	concurrency int
	burst       int
	// call is the mean duration of a call, load the part of what the limit allows that is sent.
	call     time.Duration
	load     float64
	backlog  int
	length   time.Duration
	deadline time.Duration
	// skew is how much the clocks of the instances differ from storage's at most.
	skew time.Duration
	// events happen at a time.
	events map[time.Duration]func(*limited)
}

// limited is an app whose instances share a target with a limit: a queue, a table, and a model of the host. Delivery is
// the product's, in a bubble with a fake clock.
type limited struct {
	demand
	t      *testing.T
	random *rand.Rand
	begin  time.Time
	// away says that the table does not answer; slow is how long it needs more.
	table *slowTable

	mu        sync.Mutex
	queue     agenda[[]byte]
	instances []*limitedInstance
	inFlight  int
	peak      int
	open      int
	busy      int
	byID      map[string]*limitedCall
}

// limitedCall is a message of the sender.
type limitedCall struct {
	id      string
	created time.Duration
	took    time.Duration
	// began is when its call began; negative if it has not.
	began time.Duration
}

// slowTable is the table of the app, which needs 5 to 20 ms for an operation.
type slowTable struct {
	memory.Table
	w          *limited
	operations int
	away       bool
	slow       time.Duration
}

func (s *slowTable) wait(ctx context.Context) error {
	s.w.mu.Lock()
	s.operations++
	took, away := s.slow+5*time.Millisecond+time.Duration(s.w.random.Int64N(int64(15*time.Millisecond))), s.away
	s.w.mu.Unlock()
	if away {
		took = time.Hour
	}
	storage.Sleep(ctx, took)
	return ctx.Err()
}

func (s *slowTable) Get(ctx context.Context, partition, id string) (storage.Entity, bool, error) {
	if err := s.wait(ctx); err != nil {
		return storage.Entity{}, false, err
	}
	return s.Table.Get(ctx, partition, id)
}

func (s *slowTable) Replace(ctx context.Context, entity storage.Entity) (string, error) {
	if err := s.wait(ctx); err != nil {
		return "", err
	}
	return s.Table.Replace(ctx, entity)
}

// instanceTable is the table as an instance sees it: nothing that it writes after its death arrives.
type instanceTable struct {
	*slowTable
	i *limitedInstance
}

func (t instanceTable) Replace(ctx context.Context, entity storage.Entity) (string, error) {
	if t.i.isDead() && !t.i.w.isOver() {
		return "", errors.New("dead")
	}
	return t.slowTable.Replace(ctx, entity)
}

// limitedInstance is an instance of the host with its handler.
type limitedInstance struct {
	w         *limited
	deliverer *delivery.Deliverer
	dead      context.Context
	kill      context.CancelFunc
	cpu       time.Time
	inFlight  int
}

func (i *limitedInstance) isDead() bool { return i.dead.Err() != nil }

const limitedQueue = "async-caller"

func (w *limited) put(content []byte, delay time.Duration) {
	visible := w.now()
	if delay > 0 {
		visible = (visible + delay).Truncate(time.Second) + time.Second
	}
	w.queue.add(visible, content)
}

func (w *limited) now() time.Duration { return time.Since(w.begin) }

func (w *limited) start() *limitedInstance {
	i := &limitedInstance{w: w}
	i.dead, i.kill = context.WithCancel(context.Background())
	profiles, err := targets.Parse([]byte(`{"*":`+w.limit+`}`), nil, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	skew := time.Duration((2*w.random.Float64() - 1) * float64(w.skew))
	random := rand.New(rand.NewPCG(uint64(len(w.instances)), 7))
	var mu sync.Mutex
	float := func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return random.Float64()
	}
	i.deliverer = &delivery.Deliverer{
		Rules: decision.Rules{
			Expiration: week, GiveUp: envelope.GiveUpDrop, Retry: retry.Default(), Profiles: profiles,
		},
		Caller: i, Settler: settle.New(limitedStore{i}, storage.Base64), Stopping: i.dead, Now: time.Now, Jitter: float,
	}
	serve.Path{
		NewBatchThreshold: shipped.newBatchThreshold, Log: zerolog.Nop(),
		Limits: limit.New(limit.Config{
			Table: instanceTable{w.table, i}, App: "app", Instance: fmt.Sprint(len(w.instances)), MaxInstances: 20,
			Now: func() time.Time { return time.Now().Add(skew) }, Random: float, Log: zerolog.Nop(),
		}),
	}.Connect(i.deliverer)
	w.instances = append(w.instances, i)
	go i.poll(time.Duration(w.random.Int64N(int64(2 * time.Second))))
	return i
}

// limitedStore is the queue as an instance sees it.
type limitedStore struct{ i *limitedInstance }

func (s limitedStore) Create(context.Context, string) error { return nil }

func (s limitedStore) Update(context.Context, string, string, string, string, time.Duration) (string, error) {
	return "", errors.ErrUnsupported
}

// Put puts the successor of a message.
func (s limitedStore) Put(_ context.Context, _ string, item storage.Item) (m storage.Message, err error) {
	content, err := storage.Base64.Decode(item.Text)
	if err != nil || s.i.isDead() {
		return m, cmp.Or(err, context.Canceled)
	}
	<-time.After(writeTime)
	s.i.w.mu.Lock()
	defer s.i.w.mu.Unlock()
	s.i.w.busy++
	s.i.w.put(content, item.Delay)
	return m, nil
}

// poll takes messages from the queue as the host does.
func (i *limitedInstance) poll(first time.Duration) {
	empty := 0
	for storage.Sleep(i.dead, first) && !i.w.isOver() {
		got := i.receive()
		first = receiveTime
		if len(got) == 0 {
			pauses := []float64{0.1, 0.2, 0.3, 0.5, 0.9, 1.7, 2}
			first = seconds(pauses[min(empty, len(pauses)-1)])
			empty++
			continue
		}
		empty = 0
		now := time.Now()
		for _, content := range got {
			i.cpu = maxTime(i.cpu, now.Add(8*time.Millisecond)).Add(hostTime)
			go i.deliver(content, i.cpu.Sub(now))
		}
	}
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (i *limitedInstance) receive() (got [][]byte) {
	i.w.mu.Lock()
	defer i.w.mu.Unlock()
	for len(got) < shipped.batchSize && i.inFlight <= shipped.newBatchThreshold {
		next, ok := i.w.queue.next(i.w.now())
		if !ok {
			break
		}
		i.inFlight++
		got = append(got, next.value)
	}
	return got
}

// deliver delivers a message. If the instance dies first, the message reappears.
func (i *limitedInstance) deliver(content []byte, wait time.Duration) {
	<-time.After(wait)
	r := i.deliverer.Deliver(context.Background(), delivery.Message{
		Message: decision.Message{Function: "AC-standard", Queue: limitedQueue, ID: "m"},
		Content: content,
	})
	<-time.After(writeTime)
	w := i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	i.inFlight--
	if i.isDead() || !r.MayDelete() {
		if c := w.byID[idOf(content)]; c.began < 0 {
			w.queue.add(w.now()+10*time.Minute, content)
		} else {
			w.open--
		}
		return
	}
	if r.Action != decision.Reschedule {
		w.open--
	}
}

func (w *limited) isOver() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open == 0
}

// Do implements [delivery.Caller].
func (i *limitedInstance) Do(ctx context.Context, e *envelope.Envelope) decision.Outcome {
	w := i.w
	w.mu.Lock()
	c := w.byID[e.RequestID]
	if c.began >= 0 {
		w.t.Errorf("%s was called twice", c.id)
	}
	c.began = w.now()
	w.inFlight++
	w.peak = max(w.peak, w.inFlight)
	w.mu.Unlock()
	storage.Sleep(ctx, c.took)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inFlight--
	if ctx.Err() != nil {
		return decision.Outcome{Failure: decision.FailureInterrupted}
	}
	return decision.Outcome{Status: 200, Took: c.took}
}

func idOf(content []byte) string {
	_, rest, _ := strings.Cut(string(content), `"requestId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

// gamma returns a random duration with this mean, of the shape of a sum of four exponential ones.
func gamma(random *rand.Rand, mean time.Duration) time.Duration {
	sum := 0.0
	for range 4 {
		sum += random.ExpFloat64()
	}
	return time.Duration(sum / 4 * float64(mean))
}

// figures are what a run is judged by.
type figures struct {
	// peak is the largest number of calls in flight, window the largest number of calls in 10 s as a multiple of what
	// the limit allows.
	peak   int
	window float64
	// use is the part of the calls that an ideal server begins in the time, expired and excess the part of the messages
	// that expire and that do so in excess.
	use, expired, excess float64
	// inversion is how long messages are overtaken at most, but for one in a hundred.
	inversion time.Duration
	// reschedules and operations are counted for a message.
	reschedules, operations float64
}

func (f figures) String() string {
	const format = "peak %d, window %.2f, use %.3f, expired %.2f%%, excess %.2f, overtaken %.1f s, " +
		"reschedules %.2f, operations %.2f"
	return fmt.Sprintf(format, f.peak, f.window, f.use, 100*f.expired, 100*f.excess, f.inversion.Seconds(),
		f.reschedules, f.operations)
}

// run sends the messages of a load to a number of instances.
func (l demand) run(t *testing.T, instances int) (f figures) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &limited{
			demand: l, t: t, random: rand.New(rand.NewPCG(1, 2)), begin: time.Now(), byID: map[string]*limitedCall{},
		}
		w.table = &slowTable{w: w}
		sent := w.send()
		w.open = len(sent)
		for range instances {
			w.start()
		}
		for at, do := range l.events {
			go func() {
				storage.Sleep(context.Background(), at)
				w.mu.Lock()
				defer w.mu.Unlock()
				do(w)
			}()
		}
		for !w.isOver() && w.now() < l.length+l.deadline+time.Minute {
			<-time.After(time.Second)
		}
		f = w.judge(sent)
		w.mu.Lock()
		w.open = 0
		for _, i := range w.instances {
			i.kill()
		}
		w.mu.Unlock()
		<-time.After(time.Hour) // timers of leases end
	})
	return f
}

// send puts the messages, which become visible when they are created.
func (w *limited) send() (sent []*limitedCall) {
	capacity := w.rate
	if w.rate == 0 {
		capacity = float64(w.concurrency) / w.call.Seconds()
	}
	random := rand.New(rand.NewPCG(3, 4))
	add := func(created time.Duration) {
		c := &limitedCall{id: fmt.Sprintf("r%d", len(sent)), created: created, took: gamma(random, w.call), began: -1}
		sent = append(sent, c)
		w.byID[c.id] = c
		at := w.begin.Add(created)
		w.queue.add(created, fmt.Appendf(nil,
			`{"asyncCaller":1,"requestId":"%s","createdAt":"%s","deadline":"%s","call":{"url":"https://t.example/"}}`,
			c.id, at.UTC().Format(time.RFC3339Nano), at.Add(w.deadline).UTC().Format(time.RFC3339Nano)))
	}
	for range w.backlog {
		add(0)
	}
	for at := 0.0; w.load > 0; {
		at += random.ExpFloat64() / (w.load * capacity)
		if created := time.Duration(at * float64(time.Second)); created < w.length {
			add(created)
			continue
		}
		break
	}
	return sent
}

// ideal returns when an ideal server begins the calls: first come, first served, without loss. A message whose turn is
// after its deadline takes nothing.
func (w *limited) ideal(sent []*limitedCall) (began []time.Duration) {
	next, free := time.Duration(0), make([]time.Duration, max(w.concurrency, 1))
	for _, c := range sent {
		last := c.created + w.deadline
		if w.rate > 0 {
			interval := time.Duration(float64(time.Second) / w.rate)
			at := max(c.created, next-time.Duration(w.burst-1)*interval)
			if at <= last {
				next = max(next, c.created) + interval
				began = append(began, at)
			}
			continue
		}
		first := slices.Index(free, slices.Min(free))
		at := max(c.created, free[first])
		if at <= last {
			free[first] = at + c.took
			began = append(began, at)
		}
	}
	return began
}

func (w *limited) judge(sent []*limitedCall) (f figures) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var called []*limitedCall
	for _, c := range sent {
		if c.began >= 0 {
			called = append(called, c)
		}
	}
	slices.SortFunc(called, func(a, b *limitedCall) int { return cmp.Compare(a.began, b.began) })
	ideal := w.ideal(sent)
	n := float64(len(sent))
	f.peak = w.peak
	f.expired = 1 - float64(len(called))/n
	f.excess = f.expired - (1 - float64(len(ideal))/n)
	f.reschedules, f.operations = float64(w.busy)/n, float64(w.table.operations)/n
	var latest time.Duration
	var overtaken []time.Duration
	first, most, inTime := 0, 0, 0
	for k, c := range called {
		overtaken = append(overtaken, max(0, latest-c.created))
		latest = max(latest, c.created)
		for called[first].began <= c.began-10*time.Second {
			first++
		}
		most = max(most, k-first+1)
		if c.began <= w.length {
			inTime++
		}
	}
	slices.Sort(overtaken)
	if len(overtaken) > 0 {
		f.inversion = overtaken[len(overtaken)*99/100]
	}
	idealInTime := 0
	for _, at := range ideal {
		if at <= w.length {
			idealInTime++
		}
	}
	f.use = float64(inTime) / float64(max(idealInTime, 1))
	if w.rate > 0 {
		f.window = float64(most) / (10*w.rate + float64(w.burst))
	}
	return f
}

// TestLimitedRate: calls at the rate of the limit, however many instances make them.
func TestLimitedRate(t *testing.T) {
	for _, rate := range []int{1, 5, 50, 500} {
		for _, part := range parts {
			for _, instances := range instanceCounts {
				if rate == 500 && instances == 1 { // an instance makes 300 calls a second
					continue
				}
				t.Run(fmt.Sprintf("%d_a_second_%g_%d_instances", rate, part, instances), func(t *testing.T) {
					limitedRate(rate, part, time.Minute).run(t, instances).must(t, figures{
						window: 1.1, use: 0.97, excess: 0.0001, inversion: 5 * time.Second, reschedules: 1,
						operations: 2.5,
					})
				})
			}
		}
	}
}

// TestLimitedRateBurst: 5,000 messages at once.
func TestLimitedRateBurst(t *testing.T) {
	for _, rate := range []int{1, 50} {
		for _, instances := range instanceCounts {
			t.Run(fmt.Sprintf("%d_a_second_%d_instances", rate, instances), func(t *testing.T) {
				d := limitedRate(rate, 0.8, 24*time.Hour)
				d.backlog, d.length = 5000/divisor, max(d.length, 200*time.Second/divisor)
				d.run(t, instances).must(t, figures{
					window: 1.8, use: 0.97, inversion: 5 * time.Second, reschedules: 2, operations: 2.5,
				})
			})
		}
	}
}

// TestLimitedRateOverload: 50,000 messages at once, of which five instances receive 1,500 a second. Most of the first
// reserved times are missed; the others must not be.
func TestLimitedRateOverload(t *testing.T) {
	for _, instances := range []int{5, 20} {
		t.Run(fmt.Sprintf("%d_instances", instances), func(t *testing.T) {
			d := limitedRate(500, 0.8, 24*time.Hour)
			d.backlog, d.length = 50_000/divisor, 300*time.Second/divisor
			d.run(t, instances).must(t, figures{window: 1.8, use: 0.8, reschedules: 2.5, operations: 1})
		})
	}
}

// TestLimitedConcurrencyBurst: 5,000 messages at once, of which a message waits for up to 40 minutes.
func TestLimitedConcurrencyBurst(t *testing.T) {
	for _, instances := range instanceCounts {
		t.Run(fmt.Sprintf("%d_instances", instances), func(t *testing.T) {
			d := limitedConcurrency(20, 2*time.Second, 0.8)
			d.backlog, d.length, d.deadline = 5000/divisor, 900*time.Second/divisor, 24*time.Hour
			d.run(t, instances).must(t, figures{peak: 20, use: 0.95, reschedules: 6})
		})
	}
}

func limitedRate(rate int, part float64, deadline time.Duration) demand {
	return demand{
		limit: fmt.Sprintf(`{"rate":"%d/s"}`, rate), rate: float64(rate), burst: max(1, rate/10),
		call: 100 * time.Millisecond, load: part, deadline: deadline, skew: 500 * time.Millisecond,
		length: seconds(max(30, 2000/float64(rate)/divisor)),
	}
}

// TestLimitedConcurrency: never more calls in flight than the limit, and the permits are in use.
func TestLimitedConcurrency(t *testing.T) {
	for _, limit := range []int{1, 2, 5, 20, 100} {
		for _, call := range []time.Duration{200 * time.Millisecond, 2 * time.Second, 30 * time.Second} {
			for _, part := range parts {
				for _, instances := range instanceCounts {
					capacity := float64(limit) / call.Seconds()
					if capacity > 300 && instances == 1 { // an instance makes 300 calls a second
						continue
					}
					t.Run(fmt.Sprintf("%d_of_%v_%g_%d_instances", limit, call, part, instances), func(t *testing.T) {
						d := limitedConcurrency(limit, call, part)
						want := figures{peak: limit, use: 0.95, excess: 0.005, reschedules: 2}
						if capacity > 10 {
							want.use = 0.8
						}
						if call > d.deadline/4 {
							d.deadline, want.excess, want.reschedules = time.Hour, 0.0001, 10
						}
						d.run(t, instances).must(t, want)
					})
				}
			}
		}
	}
}

func limitedConcurrency(limit int, call time.Duration, part float64) demand {
	capacity := float64(limit) / call.Seconds()
	return demand{
		limit: fmt.Sprintf(`{"concurrency":%d}`, limit), concurrency: limit, call: call, load: part,
		length: seconds(max(30, 2000/capacity/divisor)), deadline: time.Minute, skew: 500 * time.Millisecond,
	}
}

// TestLimitedTrouble: instances that die, start and stop answering in time, and a table that is away. The limit is
// exceeded only while the table is away, and then by at most the part of the instances.
func TestLimitedTrouble(t *testing.T) {
	die := func(w *limited) {
		for _, i := range w.instances {
			if !i.isDead() {
				i.kill()
				return
			}
		}
	}
	start := func(w *limited) { w.start() }
	ten := func(w *limited) {
		for range 10 {
			w.start()
		}
	}
	away := func(is bool) func(*limited) { return func(w *limited) { w.table.away = is } }
	slow := func(d time.Duration) func(*limited) { return func(w *limited) { w.table.slow = d } }
	churn := map[time.Duration]func(*limited){}
	for at := time.Minute; at < 10*time.Minute; at += time.Minute {
		churn[at], churn[at+time.Second] = start, die
	}
	type events = map[time.Duration]func(*limited)
	for name, row := range map[string]struct {
		events events
		// share is the limit that may be exceeded while the table is away, as a part of the limit.
		share float64
		skew  time.Duration
	}{
		"two_die":      {events: events{2 * time.Minute: die, 121 * time.Second: die}},
		"ten_start":    {events: events{2 * time.Minute: ten}},
		"churn":        {events: churn},
		"away_60s":     {events: events{2 * time.Minute: away(true), 3 * time.Minute: away(false)}, share: 0.25},
		"away_3min":    {events: events{2 * time.Minute: away(true), 5 * time.Minute: away(false)}, share: 0.25},
		"slow_table":   {events: events{2 * time.Minute: slow(10 * time.Second), 4 * time.Minute: slow(0)}, share: 0.25},
		"clocks_of_5s": {skew: 5 * time.Second},
	} {
		for _, demand := range []demand{
			limitedRate(5, 0.5, time.Hour),
			limitedConcurrency(2, 2*time.Second, 0.5),
			limitedConcurrency(20, 2*time.Second, 0.5),
		} {
			t.Run(name+demand.limit, func(t *testing.T) {
				d := demand
				d.events, d.length, d.deadline = row.events, 10*time.Minute, time.Hour
				d.skew = max(d.skew, row.skew)
				worst := figures{
					peak: d.concurrency + int(math.Ceil(row.share*float64(d.concurrency))), use: 0.95, excess: 0.0001,
					reschedules: 5,
				}
				if d.rate > 0 {
					worst.window = 1.1 + row.share
				}
				if d.concurrency == 0 {
					worst.peak = 0
				}
				d.run(t, 5).must(t, worst)
			})
		}
	}
}

// must checks figures against the worst that is allowed.
func (f figures) must(t *testing.T, worst figures) {
	t.Helper()
	t.Log(f)
	if f.peak > worst.peak && worst.peak > 0 || f.window > worst.window && worst.window > 0 || f.use < worst.use ||
		f.excess > worst.excess || worst.inversion > 0 && f.inversion > worst.inversion ||
		f.reschedules > worst.reschedules || worst.operations > 0 && f.operations > worst.operations {
		t.Errorf("%v\nwant no worse than %v", f, worst)
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
