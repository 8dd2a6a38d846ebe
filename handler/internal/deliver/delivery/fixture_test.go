package delivery_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/gates/limit"
	"asynccaller/handler/internal/program/instance"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/rules/guard"
	"asynccaller/handler/internal/rules/retry"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// The clock of a synctest bubble begins here; every time in the tests counts from it.
var midnight = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

const (
	mainQueue   = "async-caller"
	poisonQueue = "async-caller-poison"
	messageID   = "7d0ad3c5-0d3b-4c39-8a6c-0bd4e2b9c1aa"
)

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
	t.calls = append(t.calls, madeCall{time.Now(), e.Attempts + 1, e.RequestID, e.Call.URL, string(e.Call.Body)})
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

// failing is a settle.Store whose writes fail as long as fault returns an error.
type failing struct {
	*memory.Queues
	fault func(ctx context.Context) error
}

func (f failing) Put(ctx context.Context, name string, item storage.Item) (storage.Message, error) {
	if err := f.fault(ctx); err != nil {
		return storage.Message{}, err
	}
	return f.Queues.Put(ctx, name, item)
}

// bench is a deliverer with everything around it.
type bench struct {
	store  *memory.Queues
	target *target
	log    *bytes.Buffer
	// ctx is what the host's request has.
	ctx context.Context
	// late is how long after a message becomes visible the host receives it.
	late time.Duration
	// stop tells the handler to stop, hostGone that its host has ended.
	stop, hostGone func()
	*delivery.Deliverer
	// Path is connected when the first message is delivered.
	instance.Path
	connect sync.Once
}

// setup makes a bench with an empty main queue. Without jitter the default policy waits 5 s, 10 s, 20 s.
func setup(t *testing.T, called *target) *bench {
	t.Helper()
	b := &bench{store: memory.New(), target: called, log: &bytes.Buffer{}, late: pollingInterval}
	if err := b.store.Create(t.Context(), mainQueue); err != nil {
		t.Fatal(err)
	}
	allow, err := guard.ParseAllow("*, 127.0.0.1") // targets of tests
	if err != nil {
		t.Fatal(err)
	}
	stopping, end := context.WithCancelCause(t.Context())
	b.stop, b.hostGone = func() { end(nil) }, func() { end(delivery.ErrHostGone) }
	b.ctx = t.Context()
	b.Deliverer = &delivery.Deliverer{
		Rules: decision.Rules{
			Expiration: 7 * 24 * time.Hour, GiveUp: envelope.GiveUpDeadLetter,
			Retry: retry.Default(), MaxDelay: storage.MaxDelay,
		},
		Caller:   called,
		Settler:  settle.New(b.store, storage.Base64),
		Stopping: stopping,
		Now:      time.Now,
		Jitter:   func() float64 { return 0.5 },
	}
	limits := limit.New(limit.Config{
		App: "app", Instance: "a", Now: time.Now, Random: func() float64 { return 0.5 }, Log: zerolog.Nop(),
	})
	t.Cleanup(func() { limits.Close(time.Second) })
	b.Path = instance.Path{
		Guard: guard.Rules{Allow: allow}, NewBatchThreshold: 224, Limits: limits,
		Log: zerolog.New(b.log),
	}
	return b
}

// Deliver delivers a message.
func (b *bench) Deliver(ctx context.Context, m delivery.Message) *delivery.Result {
	b.connect.Do(func() { b.Connect(b.Deliverer) })
	return b.Deliverer.Deliver(ctx, m)
}

// on returns content as a message of a queue.
func on(queue, content string) delivery.Message {
	return delivery.Message{Message: decision.Message{Queue: queue, ID: messageID}, Content: []byte(content)}
}

// deliver hands over content as a message of the main queue.
func (b *bench) deliver(content string) *delivery.Result {
	return b.Deliver(b.ctx, on(mainQueue, content))
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
func (b *bench) items(t *testing.T, name string) []item {
	t.Helper()
	var items []item
	for _, m := range b.store.All(name) {
		content, err := storage.Base64.Decode(m.Text)
		if err != nil {
			t.Fatalf("%s holds %q: %v", name, m.Text, err)
		}
		items = append(items, item{string(content), time.Until(m.NextVisibleAt), m.ExpiresAt.Year() == 9999})
	}
	return items
}

// wantQueue checks that a queue holds exactly one message with this JSON, or none when it is empty.
func (b *bench) wantQueue(t *testing.T, name, content string, delay time.Duration) {
	t.Helper()
	items := b.items(t, name)
	if content == "" {
		if len(items) > 0 {
			t.Errorf("%s must be empty, holds %v", name, items)
		}
		return
	}
	if len(items) != 1 {
		t.Fatalf("%s holds %d messages, want 1: %v", name, len(items), items)
	}
	if diff := cmp.Diff(untraced(t, content), untraced(t, items[0].content)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
	if items[0].delay != delay {
		t.Errorf("%s: visible in %v, want %v", name, items[0].delay, delay)
	}
	if !items[0].forever {
		t.Errorf("%s: the message expires by itself", name)
	}
}

// logLine is one line of the log, decoded, without the fields that every line has.
type logLine map[string]any

// lines are the log's. Each must say which message it is about. Only a host's has an invocation.
func (b *bench) lines(t *testing.T) []logLine {
	t.Helper()
	var lines []logLine
	for text := range strings.Lines(b.log.String()) {
		var line logLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("log line %q: %v", text, err)
		}
		delete(line, "invocation_id")
		for _, name := range []string{"function", "queue", "message_id", "dequeue_count"} {
			if _, ok := line[name]; !ok {
				t.Errorf("log line %q has no field %s", text, name)
			}
			delete(line, name)
		}
		for _, name := range []string{"took", "delay", "down"} {
			if duration, ok := line[name].(float64); ok && duration != math.Trunc(duration) {
				t.Errorf("log line %q: %s is no whole number of milliseconds", text, name)
			}
		}
		if _, ok := line["target_host"]; ok { // it is not malformed
			for _, name := range []string{"trace_id", "span_id"} {
				if text, _ := line[name].(string); text == "" {
					t.Errorf("log line %q has no %s", text, name)
				}
				delete(line, name)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// linesWith returns the lines whose message begins with text.
func (b *bench) linesWith(t *testing.T, text string) []logLine {
	t.Helper()
	var found []logLine
	for _, line := range b.lines(t) {
		if message, _ := line["message"].(string); strings.HasPrefix(message, text) {
			found = append(found, line)
		}
	}
	return found
}

// untraced returns the content without its trace, which TestTrace checks.
func untraced(t *testing.T, content string) any {
	t.Helper()
	value := mustJSON(t, content)
	if members, ok := value.(map[string]any); ok {
		delete(members, "trace")
	}
	return value
}

func mustJSON(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%q is not JSON: %v", text, err)
	}
	return value
}

// clock writes the time of a bubble after so many seconds, as envelopes do.
func clock(afterMidnight time.Duration) string {
	return midnight.Add(afterMidnight).Format("2006-01-02T15:04:05.999Z07:00")
}
