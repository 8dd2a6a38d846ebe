package delivery_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/app/ingress"
	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/gates/limit"
	"asynccaller/handler/internal/program/instance"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/rules/route"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// The clock of a synctest bubble begins here; every time in the tests counts from it.
var midnight = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

const (
	mainQueue    = "async-caller"
	poisonQueue  = mainQueue + storage.PoisonSuffix
	ownQueue     = "async-caller-3"
	routedQueue  = "orders-in"
	routedPoison = routedQueue + storage.PoisonSuffix
	messageID    = "7d0ad3c5-0d3b-4c39-8a6c-0bd4e2b9c1aa"
	invocationID = "0f4dbbbd-7b3c-4f0a-8c62-0a4ac11d4d0e"
	// maxDequeueCount is that of our host.json.
	maxDequeueCount = 5
	// hostLease is for how long the host takes a message, and visibilityTimeout how long it waits after a failure.
	hostLease, visibilityTimeout = 10 * time.Minute, 30 * time.Second
	// pollingInterval is host.json's maxPollingInterval: how late the host may notice a visible message.
	pollingInterval = 2 * time.Second
)

// plain is an envelope.
const plain = `{"asyncCaller":1,"requestId":"r1","createdAt":"2000-01-01T00:00:00Z",` +
	`"call":{"url":"https://target.example:8443/orders","body":"<a/>"}}`

// target is a fake [delivery.Caller]: answer says what comes of each call.
type target struct {
	answer func(ctx context.Context, e *envelope.Envelope) decision.Outcome

	mu    sync.Mutex
	calls []madeCall
}

// madeCall is a call as the target saw it.
type madeCall struct {
	at        time.Time
	attempt   int
	requestID string
	url, body string
}

func (t *target) Do(ctx context.Context, e *envelope.Envelope) decision.Outcome {
	t.mu.Lock()
	body := string(e.Call.Body.Bytes())
	t.calls = append(t.calls, madeCall{time.Now(), e.Attempts + 1, e.RequestID, e.Call.URL, body})
	t.mu.Unlock()
	return t.answer(ctx, e)
}

// answers makes every call end alike, after the outcome's time.
func answers(o decision.Outcome) *target {
	return &target{answer: func(context.Context, *envelope.Envelope) decision.Outcome {
		<-time.After(o.Took)
		return o
	}}
}

// recovering is a target that fails so many calls and then answers 200.
func recovering(failures int) *target {
	t := &target{}
	t.answer = func(context.Context, *envelope.Envelope) decision.Outcome {
		if len(t.calls) <= failures {
			return decision.Outcome{Status: 503}
		}
		return decision.Outcome{Status: 200}
	}
	return t
}

// bench is a handler with everything around it: its host, its queues and its target.
type bench struct {
	store  *store
	target *target
	log    *bytes.Buffer
	// logTo is where the log is written, usually to log.
	logTo io.Writer
	// mode, encoding and isText are settings of the app.
	mode     settle.RescheduleMode
	encoding storage.Encoding
	isText   bool
	// held is the message that the host has, with its newest receipt, and heldFrom its queue. Late is how long after a
	// message becomes visible the host receives it. ChangeLease changes what the host says about it.
	held        storage.Message
	heldFrom    string
	late        time.Duration
	changeLease func(*storage.Message)
	// hangsUp is after how long the host no longer waits for an answer; 0 for never.
	hangsUp time.Duration
	// stop tells the handler to stop, hostGone that its host has ended.
	stop, hostGone func()
	*delivery.Deliverer
	// Path is connected when the first message is delivered.
	instance.Path
	connect sync.Once
	handler http.Handler
}

// setup makes a bench with an empty main queue. Without jitter the default policy waits 5 s, 10 s, 20 s.
func setup(t *testing.T, called *target) *bench {
	t.Helper()
	b := &bench{
		target: called, log: &bytes.Buffer{}, late: pollingInterval, mode: settle.RescheduleEnqueue,
		encoding: storage.Base64, changeLease: func(*storage.Message) {},
	}
	b.logTo = b.log
	b.store = &store{Queues: memory.New(), b: b, faults: map[string][]string{}}
	if err := b.store.Create(t.Context(), mainQueue); err != nil {
		t.Fatal(err)
	}
	allow, err := guard.ParseAllow("*, 127.0.0.1") // targets of tests
	if err != nil {
		t.Fatal(err)
	}
	stopping, end := context.WithCancelCause(t.Context())
	b.stop, b.hostGone = func() { end(nil) }, func() { end(delivery.ErrHostGone) }
	b.Deliverer = &delivery.Deliverer{
		Rules: decision.Rules{
			Expiration: 7 * 24 * time.Hour, GiveUp: envelope.GiveUpDeadLetter,
			Retry: retry.Default(), MaxDelay: storage.MaxDelay,
		},
		Caller:   called,
		Stopping: stopping,
		Now:      time.Now,
		Jitter:   func() float64 { return 0.5 },
	}
	b.configure()
	limits := limit.New(limit.Config{
		App: "app", Instance: "a", Now: time.Now, Random: func() float64 { return 0.5 }, Log: zerolog.Nop(),
	})
	t.Cleanup(func() { limits.Close(time.Second) })
	b.Path = instance.Path{
		Guard: guard.Rules{Allow: allow}, NewBatchThreshold: 224, Limits: limits,
		Log: zerolog.New(logOf{b}),
	}
	functions := make([]functionapp.Function, 0, 4)
	for _, queue := range []string{mainQueue, ownQueue, poisonQueue, routedQueue} {
		functions = append(functions, functionapp.Function{
			Name: functionOf(queue), Binding: "message", Queue: queue, DataType: functionapp.DataBinary,
		})
	}
	b.handler = ingress.Handler(functions, nil, ingress.Posts{}, b, b.Log)
	return b
}

// logOf writes to the log of a bench.
type logOf struct{ b *bench }

func (l logOf) Write(line []byte) (int, error) { return l.b.logTo.Write(line) }

// configure makes the settler again, after the mode or the encoding has changed.
func (b *bench) configure() {
	b.Settler = settle.New(b.store, b.encoding).WithReschedule(b.mode, maxDequeueCount)
}

// withRoute gives a bench the route of a queue, as members of its JSON beside the URL.
func (b *bench) withRoute(t *testing.T, members string) *bench {
	t.Helper()
	routes, err := route.Parse(
		fmt.Appendf(nil, `{%q:{"url":"https://t.example/orders"%s}}`, routedQueue, members),
		func(*envelope.Envelope) error { return nil },
	)
	if err != nil {
		t.Fatal(err)
	}
	b.Routes = routes
	return b
}

// Deliver delivers a message.
func (b *bench) Deliver(ctx context.Context, m delivery.Message) *delivery.Result {
	b.connect.Do(func() { b.Connect(b.Deliverer) })
	return b.Deliverer.Deliver(ctx, m)
}

// deliver hands over content as a message of the main queue.
func (b *bench) deliver(content string) *delivery.Result {
	return b.Deliver(context.Background(), delivery.Message{
		Message: decision.Message{Queue: mainQueue, ID: messageID}, Content: []byte(content),
	})
}

// send puts content on a queue, which it creates.
func (b *bench) send(t *testing.T, queue, content string) storage.Message {
	t.Helper()
	item := storage.Item{Text: b.encoding.Encode([]byte(content))}
	m, err := storage.PutCreating(t.Context(), b.store.Queues, queue, item)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// next lets the host receive the next message of some queues, when it is visible. It returns false if there is none.
func (b *bench) next(t *testing.T, queues ...string) bool {
	t.Helper()
	name, due := "", time.Time{}
	for _, queue := range queues {
		waiting := b.store.All(queue)
		if len(waiting) > 0 && (name == "" || waiting[0].NextVisibleAt.Before(due)) {
			name, due = queue, waiting[0].NextVisibleAt
		}
	}
	if name == "" {
		return false
	}
	<-time.After(time.Until(due) + b.late)
	received, err := b.store.Receive(t.Context(), name, 1, hostLease)
	if err != nil || len(received) != 1 {
		t.Fatalf("received %d messages: %v", len(received), err)
	}
	b.held, b.heldFrom = received[0], name
	return true
}

// invoke posts the message that the host has to the handler, and returns its answer.
func (b *bench) invoke(t *testing.T) (status int, body string) {
	t.Helper()
	content, err := b.encoding.Decode(b.held.Text)
	if err != nil {
		t.Fatal(err)
	}
	data := base64.StdEncoding.EncodeToString(content)
	if b.isText {
		data = mustEncode(t, string(content))
	}
	said := b.held
	b.changeLease(&said)
	invocation := fmt.Sprintf(`{"Data":{"message":%s},"Metadata":{"DequeueCount":"%d","Id":%s,"PopReceipt":%s,`+
		`"ExpirationTime":"%s","InsertionTime":"%s"}}`, mustEncode(t, data), said.DequeueCount,
		mustEncode(t, mustEncode(t, said.ID)), mustEncode(t, mustEncode(t, said.PopReceipt)),
		said.ExpiresAt.Format(hostTime), said.InsertedAt.Format(hostTime))
	var address net.Addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7071}
	ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, address)
	if b.hangsUp > 0 {
		limited, cancel := context.WithTimeout(ctx, b.hangsUp)
		defer cancel()
		ctx = limited
	}
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:7071/"+functionOf(b.heldFrom),
		strings.NewReader(invocation))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Azure-Functions-InvocationId", invocationID)
	recorder := httptest.NewRecorder()
	b.handler.ServeHTTP(recorder, request)
	return recorder.Code, recorder.Body.String()
}

// functionOf returns the name of the function of a queue.
func functionOf(queue string) string {
	if queue == routedQueue {
		return functionapp.RouteFunction(queue)
	}
	return "AC-" + queue
}

// hostTime is how the host writes times.
const hostTime = "2006-01-02T15:04:05+00:00"

func mustEncode(t *testing.T, value string) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// complete is what the host does on the handler's answer. If its receipt is stale, it takes the message to be done.
func (b *bench) complete(t *testing.T, status int) {
	t.Helper()
	var err error
	switch {
	case status == http.StatusOK:
		err = b.store.Delete(t.Context(), b.heldFrom, b.held.ID, b.held.PopReceipt)
	case b.held.DequeueCount >= maxDequeueCount:
		b.send(t, b.heldFrom+storage.PoisonSuffix, string(mustDecode(t, b.encoding, b.held.Text)))
		err = b.store.Delete(t.Context(), b.heldFrom, b.held.ID, b.held.PopReceipt)
	default:
		_, err = b.store.Queues.Update(t.Context(), b.heldFrom, b.held.ID, b.held.PopReceipt, b.held.Text,
			visibilityTimeout)
	}
	if err != nil && !errors.Is(err, storage.ErrStale) {
		t.Fatal(err)
	}
}

// renew is what the host does when a message takes longer than half its lease, unless its receipt is stale.
func (b *bench) renew(ctx context.Context) error {
	newest, err := b.store.Queues.Update(ctx, b.heldFrom, b.held.ID, b.held.PopReceipt, b.held.Text, hostLease)
	if err == nil {
		b.held.PopReceipt = newest
	}
	return err
}

// runHost takes messages from the queues as the Functions host does, the main queue unless others are named, each as
// late as the bench says, until none is left there. It returns the highest dequeue count that it saw.
func (b *bench) runHost(t *testing.T, queues ...string) (highest int64) {
	t.Helper()
	if queues == nil {
		queues = []string{mainQueue}
	}
	for b.next(t, queues...) {
		highest = max(highest, b.held.DequeueCount)
		status, _ := b.invoke(t)
		b.complete(t, status)
	}
	return highest
}

func mustDecode(t *testing.T, encoding storage.Encoding, text string) []byte {
	t.Helper()
	content, err := encoding.Decode(text)
	if err != nil {
		t.Fatalf("a queue holds %q: %v", text, err)
	}
	return content
}

var errDown = errors.New("503 ServerBusy")

// store is the account whose operations fail as a test says: faults has what happens at each try of an operation, and
// the last one repeats if it ends in a star. After them, all is well.
type store struct {
	*memory.Queues
	b      *bench
	mu     sync.Mutex
	faults map[string][]string
	// pick, unless it is nil, says what happens in their place.
	pick func(operation string) string
	// late is a request that has not arrived yet.
	late func() error
}

func (s *store) Put(ctx context.Context, name string, item storage.Item) (m storage.Message, err error) {
	err = s.try(ctx, "put", func(ctx context.Context) (err error) {
		m, err = s.Queues.Put(ctx, name, item)
		return err
	})
	return m, err
}

func (s *store) Create(ctx context.Context, name string) error {
	return s.try(ctx, "create", func(ctx context.Context) error { return s.Queues.Create(ctx, name) })
}

func (s *store) Update(
	ctx context.Context, name, id, receipt, text string, delay time.Duration,
) (newest string, err error) {
	err = s.try(ctx, "update", func(ctx context.Context) (err error) {
		newest, err = s.Queues.Update(ctx, name, id, receipt, text, delay)
		return err
	})
	return newest, err
}

// fault returns what happens at the next try of an operation.
func (s *store) fault(operation string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	faults := s.faults[operation]
	if s.pick != nil {
		return s.pick(operation)
	}
	if len(faults) == 0 {
		return ""
	}
	fault, repeats := strings.CutSuffix(faults[0], "*")
	if !repeats {
		s.faults[operation] = faults[1:]
	}
	return fault
}

// try makes an operation, or what happens in its place.
func (s *store) try(ctx context.Context, operation string, do func(context.Context) error) error {
	switch fault := s.fault(operation); fault {
	case "":
		err := do(ctx)
		s.arrive()
		return err
	case "fails":
		return errDown
	case "hangs":
		<-ctx.Done()
		return ctx.Err()
	case "lost":
		return errors.Join(errDown, do(ctx))
	case "unanswered": // done, but the answer does not come
		_ = do(ctx)
		<-ctx.Done()
		return ctx.Err()
	case "late":
		s.late = func() error { return do(context.WithoutCancel(ctx)) }
		return errDown
	case "refused":
		return fmt.Errorf("%s: %w", operation, storage.ErrRefused)
	case "noqueue":
		return fmt.Errorf("%s: %w", operation, storage.ErrNoQueue)
	case "lostqueue":
		return errors.Join(fmt.Errorf("%s: %w", operation, storage.ErrNoQueue), do(ctx))
	case "renewed": // the host renews its lease
		return errors.Join(errDown, s.b.renew(ctx))
	case "taken": // done, and then another host delivers the message
		err := do(ctx)
		taken, receiveErr := s.Receive(ctx, s.b.heldFrom, 1, hostLease)
		if err != nil || receiveErr != nil || len(taken) != 1 {
			panic(fmt.Sprint("not taken: ", err, receiveErr))
		}
		return errors.Join(errDown, s.Delete(ctx, s.b.heldFrom, taken[0].ID, taken[0].PopReceipt))
	default:
		panic("no fault " + fault)
	}
}

// arrive lets the late request arrive.
func (s *store) arrive() {
	if s.late != nil {
		_ = s.late()
		s.late = nil
	}
}

// item is a message as it stands on a queue.
type item struct {
	content string
	// delay is how long it stays invisible from now on.
	delay time.Duration
	// forever is false when the message expires by itself, which nothing that we write may do.
	forever bool
}

// items is what stands on a queue now, decoded.
func (b *bench) items(t *testing.T, name string) (items []item) {
	t.Helper()
	for _, m := range b.store.All(name) {
		content := mustDecode(t, b.encoding, m.Text)
		forever := m.ExpiresAt.Equal(storage.NeverExpires)
		items = append(items, item{string(content), time.Until(m.NextVisibleAt), forever})
	}
	return items
}

// wantEmpty checks that queues are empty.
func (b *bench) wantEmpty(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if items := b.items(t, name); len(items) > 0 {
			t.Errorf("%s must be empty, holds %v", name, items)
		}
	}
}

// mustDeadLetter returns the one message on the poison queue.
func (b *bench) mustDeadLetter(t *testing.T) *envelope.Envelope {
	t.Helper()
	items := b.items(t, poisonQueue)
	if len(items) != 1 {
		t.Fatalf("%d dead letters, want 1: %v", len(items), items)
	}
	e, err := envelope.Parse([]byte(items[0].content))
	if err != nil {
		t.Fatal(err)
	}
	if e.DeadLetter == nil {
		t.Fatalf("no dead letter: %s", items[0].content)
	}
	return e
}

// linesWith returns the lines of the log, decoded, whose message begins with text.
func (b *bench) linesWith(t *testing.T, text string) (found []map[string]any) {
	t.Helper()
	for line := range strings.Lines(b.log.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		for _, name := range []string{"took", "delay", "down"} {
			if duration, ok := fields[name].(float64); ok && duration != math.Trunc(duration) {
				t.Errorf("log line %q: %s is no whole number of milliseconds", line, name)
			}
		}
		if message, _ := fields["message"].(string); strings.HasPrefix(message, text) {
			found = append(found, fields)
		}
	}
	return found
}
