package simulation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/gates/limit"
	"asynccaller/handler/internal/program/instance"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/rules/route"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
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
	// others are what other senders send.
	others []burst
	// cancelAt is when the calls that wait are cancelled, unless zero. Only calls count that begin then or later.
	cancelAt time.Duration
}

// burst is a number of messages of another sender, one each interval from a time on.
type burst struct {
	at, interval time.Duration
	count        int
	// members are further members of their envelopes. A size, unless zero, is that of the envelope or, if they are
	// contents on the queue of a route, of the content.
	members  string
	size     int
	isRouted bool
}

// limited is an app whose instances share a target with a limit: a queue, a table, and a model of the host. Delivery is
// the product's, in a bubble with a fake clock.
type limited struct {
	demand
	t      *testing.T
	random *rand.Rand
	begin  time.Time
	table  *slowTable

	mu        sync.Mutex
	queue     agenda[*limitedMessage]
	instances []*limitedInstance
	inFlight  int
	peak      int
	open      int
	busy      int
	twice     int
	byID      map[string]*limitedCall
}

// limitedMessage is a message on the queue.
type limitedMessage struct {
	content    []byte
	isRouted   bool
	id         string
	deliveries int64
	receipt    int
}

// limitedCall is a call of a sender.
type limitedCall struct {
	id string
	// isOther says that another sender has sent it, isCancelled that it was deleted.
	isOther, isCancelled bool
	created              time.Duration
	took                 time.Duration
	// began is when its call began; negative if it has not.
	began time.Duration
}

// slowTable is the table of the app, which needs 5 to 20 ms for an operation.
type slowTable struct {
	memory.Table
	w          *limited
	operations int
}

func (s *slowTable) wait(ctx context.Context) error {
	s.w.mu.Lock()
	s.operations++
	took := 5*time.Millisecond + time.Duration(s.w.random.Int64N(int64(15*time.Millisecond)))
	s.w.mu.Unlock()
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

// instanceTable is the table as an instance sees it: nothing that it writes after its death arrives. From the answers
// it knows storage's time, as the product does: they have it in whole seconds.
type instanceTable struct {
	*slowTable
	i *limitedInstance
	// skew is how much the clock of the instance is ahead of storage's, ahead how much storage's seems to be.
	skew  time.Duration
	ahead *atomic.Int64
}

func (t instanceTable) Get(ctx context.Context, partition, id string) (storage.Entity, bool, error) {
	defer t.answered(time.Now())
	return t.slowTable.Get(ctx, partition, id)
}

func (t instanceTable) Replace(ctx context.Context, entity storage.Entity) (string, error) {
	if t.i.isDead() && !t.i.w.isOver() {
		return "", errors.New("dead")
	}
	defer t.answered(time.Now())
	return t.slowTable.Replace(ctx, entity)
}

// answered takes the time from an answer.
func (t instanceTable) answered(began time.Time) {
	half := time.Since(began) / 2
	ahead := began.Add(half).Truncate(time.Second).Add(time.Second / 2).Sub(began.Add(t.skew + half))
	if ahead.Abs() <= time.Second {
		ahead = 0
	}
	t.ahead.Store(int64(ahead))
}

// Now implements [storage.Table].
func (t instanceTable) Now() time.Time {
	return time.Now().Add(t.skew + time.Duration(t.ahead.Load()))
}

// limitedInstance is an instance of the host with its handler.
type limitedInstance struct {
	w         *limited
	deliverer *delivery.Deliverer
	limits    *limit.Limits
	// dead ends when the instance dies.
	dead     context.Context
	kill     context.CancelFunc
	cpu      time.Time
	inFlight int
}

func (i *limitedInstance) isDead() bool { return i.dead.Err() != nil }

const (
	limitedQueue = "async-caller"
	routedQueue  = "orders"
	// routedDeliveries is maxDequeueCount.
	routedDeliveries = 5
)

func (w *limited) put(m *limitedMessage, delay time.Duration) {
	visible := w.now()
	if delay > 0 {
		visible = (visible + delay).Truncate(time.Second) + time.Second
	}
	w.queue.add(visible, m)
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
	table := instanceTable{w.table, i, skew, &atomic.Int64{}}
	i.limits = limit.New(limit.Config{
		Table: table, App: "app", Instance: fmt.Sprint(len(w.instances)), Random: float,
		Now: func() time.Time { return time.Now().Add(skew) },
		Log: zerolog.Nop(),
	})
	i.deliverer = &delivery.Deliverer{
		Rules: decision.Rules{
			Expiration: week, GiveUp: envelope.GiveUpDrop, Retry: retry.Default(), Profiles: profiles,
		},
		Routes: w.routes(), Caller: i, Stopping: i.dead, Now: time.Now, Jitter: float,
		Settler: settle.New(limitedStore{i}, storage.Base64).
			WithReschedule(settle.RescheduleEnqueue, routedDeliveries),
	}
	path := instance.Path{NewBatchThreshold: shipped.newBatchThreshold, Log: zerolog.Nop(), Limits: i.limits}
	path.Connect(i.deliverer)
	w.instances = append(w.instances, i)
	go i.poll(time.Duration(w.random.Int64N(int64(2 * time.Second))))
	return i
}

// routes are those of the app.
func (w *limited) routes() route.Routes {
	routes, err := route.Parse([]byte(`{"orders":{"url":"https://t.example/"}}`),
		func(*envelope.Envelope) error { return nil })
	if err != nil {
		w.t.Fatal(err)
	}
	return routes
}

// limitedStore is the queue as an instance sees it.
type limitedStore struct{ i *limitedInstance }

func (s limitedStore) Create(context.Context, string) error { return nil }

// Update reschedules a content of a route in place.
func (s limitedStore) Update(
	_ context.Context, _, id, receipt, text string, delay time.Duration,
) (string, error) {
	content, err := storage.Base64.Decode(text)
	if err != nil || s.i.isDead() {
		return "", cmp.Or(err, context.Canceled)
	}
	<-time.After(writeTime)
	deliveries, receipts := int64(0), 0
	_, _ = fmt.Sscanf(receipt, "%d %d", &deliveries, &receipts)
	s.i.w.mu.Lock()
	defer s.i.w.mu.Unlock()
	s.i.w.busy++
	s.i.w.put(&limitedMessage{content, true, id, deliveries, receipts + 1}, delay)
	return fmt.Sprintf("%d %d", deliveries, receipts+1), nil
}

// Put puts the successor of a message, or a dead letter.
func (s limitedStore) Put(_ context.Context, name string, item storage.Item) (m storage.Message, err error) {
	content, err := storage.Base64.Decode(item.Text)
	if err != nil || s.i.isDead() {
		return m, cmp.Or(err, context.Canceled)
	}
	<-time.After(writeTime)
	s.i.w.mu.Lock()
	defer s.i.w.mu.Unlock()
	if name != limitedQueue {
		return m, nil
	}
	s.i.w.busy++
	s.i.w.put(&limitedMessage{content: content}, item.Delay)
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
		for _, m := range got {
			i.cpu = maxTime(i.cpu, now.Add(8*time.Millisecond)).Add(hostTime)
			go i.deliver(m, i.cpu.Sub(now))
		}
	}
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (i *limitedInstance) receive() (got []*limitedMessage) {
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
func (i *limitedInstance) deliver(got *limitedMessage, wait time.Duration) {
	<-time.After(wait)
	m := delivery.Message{Content: got.content}
	m.Message = decision.Message{Function: "AC-standard", Queue: limitedQueue, ID: "m"}
	if got.isRouted {
		got.deliveries++
		m.IsRouted, m.Queue, m.ID, m.DequeueCount = true, routedQueue, got.id, got.deliveries
		m.Lease = settle.Lease{
			ID: got.id, PopReceipt: fmt.Sprintf("%d %d", got.deliveries, got.receipt), DequeueCount: got.deliveries,
			InsertedAt: i.w.begin.Add(i.w.byID[got.id].created), ExpiresAt: i.w.begin.Add(week),
		}
	}
	r := i.deliverer.Deliver(context.Background(), m)
	<-time.After(writeTime)
	w := i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	i.inFlight--
	id := got.id
	if !got.isRouted {
		id = idOf(got.content)
	}
	c := w.byID[id]
	switch {
	case (i.isDead() || !r.MayDelete()) && c.began < 0:
		w.queue.add(w.now()+10*time.Minute, got)
	case i.isDead() || r.Action != decision.Reschedule:
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
		w.twice++
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

// cancel deletes the messages that wait on the queue, but for those that are created later.
func (w *limited) cancel() {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := w.queue.entries
	w.queue.entries = nil
	for _, e := range waiting {
		c := w.byID[idOf(e.value.content)]
		if c.created > w.now() {
			w.queue.add(e.at, e.value)
			continue
		}
		c.isCancelled = true
		w.open--
	}
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
	// missing is how many calls of other senders were not made, twice how many calls were made again.
	missing, twice int
	// waited is how long a call of another sender waited at most.
	waited time.Duration
}

func (f figures) String() string {
	const format = "peak %d, window %.2f, use %.3f, expired %.2f%%, excess %.2f, overtaken %.1f s, " +
		"reschedules %.2f, operations %.2f, missing %d, twice %d, waited %.0f s"
	return fmt.Sprintf(format, f.peak, f.window, f.use, 100*f.expired, 100*f.excess, f.inversion.Seconds(),
		f.reschedules, f.operations, f.missing, f.twice, f.waited.Seconds())
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
		sent = append(sent, w.sendOthers()...)
		slices.SortStableFunc(sent, func(a, b *limitedCall) int { return cmp.Compare(a.created, b.created) })
		for range instances {
			w.start()
		}
		if l.cancelAt > 0 {
			time.AfterFunc(l.cancelAt, w.cancel)
		}
		for !w.isOver() && w.now() < l.length+l.deadline+time.Minute {
			<-time.After(time.Second)
		}
		f = w.judge(sent)
		w.mu.Lock()
		w.open = 0
		w.mu.Unlock()
		for _, i := range w.instances {
			i.kill()
			i.limits.Close(0)
		}
		<-time.After(10 * time.Second) // late writes end
	})
	return f
}

// send puts the messages, which become visible when they are created.
func (w *limited) send() (sent []*limitedCall) {
	capacity := math.Inf(1)
	if w.rate > 0 {
		capacity = w.rate
	}
	if w.concurrency > 0 {
		capacity = min(capacity, float64(w.concurrency)/w.call.Seconds())
	}
	random := rand.New(rand.NewPCG(3, 4))
	add := func(created time.Duration) {
		c := &limitedCall{id: fmt.Sprintf("r%d", len(sent)), created: created, took: gamma(random, w.call), began: -1}
		sent = append(sent, c)
		w.byID[c.id] = c
		w.queue.add(created, &limitedMessage{content: w.envelope(c.id, created, w.deadline, "")})
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

func (w *limited) envelope(id string, created, lasts time.Duration, members string) []byte {
	at := w.begin.Add(created)
	return fmt.Appendf(nil,
		`{"asyncCaller":1,"requestId":"%s","createdAt":"%s","deadline":"%s","call":{"url":"https://t.example/"}%s}`,
		id, at.UTC().Format(time.RFC3339Nano), at.Add(lasts).UTC().Format(time.RFC3339Nano), members)
}

// sendOthers puts the messages of other senders.
func (w *limited) sendOthers() (sent []*limitedCall) {
	random := rand.New(rand.NewPCG(5, 6))
	for n, b := range w.others {
		for k := range b.count {
			c := &limitedCall{
				id: fmt.Sprintf("other%d-%d", n, k), created: b.at + time.Duration(k)*b.interval,
				took: gamma(random, w.call), began: -1, isOther: true,
			}
			m := &limitedMessage{content: w.envelope(c.id, c.created, w.deadline, b.members)}
			switch {
			case b.isRouted:
				m = &limitedMessage{content: bytes.Repeat([]byte{0xff}, b.size), isRouted: true, id: c.id}
			case b.size > 0:
				path := "t.example/" + strings.Repeat("x", b.size-len(m.content))
				m.content = bytes.Replace(m.content, []byte("t.example/"), []byte(path), 1)
			}
			w.queue.add(c.created, m)
			w.open++
			w.byID[c.id] = c
			sent = append(sent, c)
		}
	}
	return sent
}

// ideal returns when an ideal server begins the calls: first come, first served, without loss. A message whose turn is
// after its deadline takes nothing.
func (w *limited) ideal(sent []*limitedCall) (began map[*limitedCall]time.Duration) {
	began = map[*limitedCall]time.Duration{}
	next, free := time.Duration(0), make([]time.Duration, max(w.concurrency, 1))
	for _, c := range sent {
		at, first, interval := max(c.created, w.cancelAt), slices.Index(free, slices.Min(free)), time.Duration(0)
		if w.rate > 0 {
			interval = time.Duration(float64(time.Second) / w.rate)
			at = max(at, next-time.Duration(w.burst-1)*interval)
		}
		if w.concurrency > 0 {
			at = max(at, free[first])
		}
		if at > c.created+w.deadline {
			continue
		}
		next = max(next, at) + interval
		free[first] = at + c.took
		began[c] = at
	}
	return began
}

func (w *limited) judge(sent []*limitedCall) (f figures) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sent = slices.DeleteFunc(slices.Clone(sent), func(c *limitedCall) bool {
		return c.isCancelled || c.began >= 0 && c.began < w.cancelAt
	})
	var called []*limitedCall
	n, calledInTime := 0, 0
	for _, c := range sent {
		isCalled := c.began >= 0
		if isCalled {
			called = append(called, c)
		}
		switch {
		case c.isOther && !isCalled:
			f.missing++
		case c.isOther:
			f.waited = max(f.waited, c.began-c.created)
		case !isCalled:
			n++
			f.expired++
		default:
			n++
			if c.began <= w.length {
				calledInTime++
			}
		}
	}
	slices.SortFunc(called, func(a, b *limitedCall) int { return cmp.Compare(a.began, b.began) })
	idealInTime, excess := 0, 0.0
	for c, at := range w.ideal(sent) {
		if c.isOther {
			continue
		}
		if c.began < 0 {
			excess++
		}
		if at <= w.length {
			idealInTime++
		}
	}
	f.use = float64(calledInTime) / float64(max(idealInTime, 1))
	f.expired, f.excess = f.expired/float64(max(n, 1)), excess/float64(max(n, 1))
	f.peak, f.twice = w.peak, w.twice
	f.reschedules, f.operations = float64(w.busy)/float64(len(sent)), float64(w.table.operations)/float64(len(sent))
	var latest time.Duration
	var overtaken []time.Duration
	first, most := 0, 0
	for k, c := range called {
		overtaken = append(overtaken, max(0, latest-c.created))
		latest = max(latest, c.created)
		for called[first].began <= c.began-10*time.Second {
			first++
		}
		most = max(most, k-first+1)
	}
	slices.Sort(overtaken)
	if len(overtaken) > 0 {
		f.inversion = overtaken[len(overtaken)*99/100]
	}
	if w.rate > 0 {
		f.window = float64(most) / (10*w.rate + float64(w.burst))
	}
	return f
}
