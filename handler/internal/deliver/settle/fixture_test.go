package settle_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

const (
	// main is the queue that messages come from, poison where dead letters go.
	main   = "async-caller"
	poison = "async-caller-poison"
	// canary is a secret that must never turn up in an error.
	canary = "C4nary"
)

// bothEncodings is for what must hold whatever host.json says.
var bothEncodings = []storage.Encoding{storage.Base64, storage.None}

// try is one call of Put.
type try struct {
	at    time.Time
	queue string
	item  storage.Item
}

// faulty is a store that remembers every try to put, and lets a test make them fail.
type faulty struct {
	*memory.Queues
	mu      sync.Mutex
	tries   []try
	creates int
	updates int
	// onPut takes the place of the n-th Put, counted from 1, and onCreate of the n-th Create. Real does
	// what the store would have done.
	onPut    func(ctx context.Context, n int, real func() error) error
	onCreate func(ctx context.Context, n int, real func() error) error
	// onUpdate takes the place of the n-th Update. Real does it even when ctx has ended: a request that is
	// under way.
	onUpdate func(ctx context.Context, n int, real func() error) error
}

// newStore is an account with the main queue.
func newStore(t *testing.T) *faulty {
	t.Helper()
	s := &faulty{Queues: memory.New()}
	if err := s.Queues.Create(t.Context(), main); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *faulty) Put(ctx context.Context, name string, item storage.Item) (m storage.Message, err error) {
	s.mu.Lock()
	s.tries = append(s.tries, try{time.Now(), name, item})
	n := len(s.tries)
	s.mu.Unlock()
	put := func() error {
		m, err = s.Queues.Put(ctx, name, item)
		return err
	}
	if s.onPut == nil {
		return m, put()
	}
	return m, s.onPut(ctx, n, put)
}

func (s *faulty) Create(ctx context.Context, name string) error {
	s.mu.Lock()
	s.creates++
	n := s.creates
	s.mu.Unlock()
	create := func() error { return s.Queues.Create(ctx, name) }
	if s.onCreate == nil {
		return create()
	}
	return s.onCreate(ctx, n, create)
}

func (s *faulty) Update(
	ctx context.Context, name, id, receipt, text string, delay time.Duration,
) (newest string, err error) {
	s.mu.Lock()
	s.updates++
	n := s.updates
	s.mu.Unlock()
	update := func() error {
		newest, err = s.Queues.Update(context.WithoutCancel(ctx), name, id, receipt, text, delay)
		return err
	}
	if s.onUpdate == nil {
		return newest, update()
	}
	return newest, s.onUpdate(ctx, n, update)
}

var errOutage = errors.New("503 ServerBusy")

// failing lets the first tries fail, and all of them if it is negative.
func failing(tries int, err error) func(context.Context, int, func() error) error {
	return func(_ context.Context, n int, real func() error) error {
		if tries < 0 || n <= tries {
			return err
		}
		return real()
	}
}

// hanging lets the first tries wait until their time is up.
func hanging(tries int) func(context.Context, int, func() error) error {
	return func(ctx context.Context, n int, real func() error) error {
		if tries < 0 || n <= tries {
			<-ctx.Done()
			return ctx.Err()
		}
		return real()
	}
}

// content is an envelope with a secret wherever one can be.
const content = `{"asyncCaller":1,"requestId":"request-1","call":{"url":"https://user:` + canary +
	`@target.example/?code=` + canary +
	`","headers":{"Authorization":"` + canary + `"},"json":{ "b":1.50, "a":"` + canary +
	`" }},"x-own":[ 1 ],"context":{ "order": 7 },` +
	`"callback":{"url":"https://sender.example/done?code=` + canary + `","method":"PUT","headers":{"X-Key":"` +
	canary + `"}}}`

// open opens content from the main queue as the handler does.
func open(t *testing.T, content string, encoding storage.Encoding) decision.Intake {
	t.Helper()
	in := decision.Rules{Expiration: time.Hour}.Open([]byte(content), "message-1", encoding.MaxContentBytes(),
		time.Now().UTC())
	if in.Malformed != nil {
		t.Fatal(in.Malformed)
	}
	return in
}

// write composes what settling a decision about the content writes.
func write(t *testing.T, content string, encoding storage.Encoding, d decision.Decision) decision.Write {
	t.Helper()
	return decision.Rules{}.Compose(open(t, content, encoding), d, main, now)
}

// all is what stands on every queue, decoded.
func (s *faulty) all(t *testing.T, encoding storage.Encoding) map[string][]string {
	t.Helper()
	names, err := s.Names(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	contents := map[string][]string{}
	for _, name := range names {
		for _, m := range s.All(name) {
			content, err := encoding.Decode(m.Text)
			if err != nil {
				t.Fatalf("%s holds a message that the host cannot decode: %v", name, err)
			}
			contents[name] = append(contents[name], string(content))
		}
	}
	return contents
}

// only is the one message that stands on any queue, and its queue must be this one.
func (s *faulty) only(t *testing.T, name string, encoding storage.Encoding) (content string, m storage.Message) {
	t.Helper()
	contents := s.all(t, encoding)
	if len(contents) != 1 || len(contents[name]) != 1 {
		t.Fatalf("want one message, on %s; the queues hold %q", name, contents)
	}
	return contents[name][0], s.All(name)[0]
}

// generic is a JSON text as Go values, for comparisons.
func generic(t *testing.T, text string) (value any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if members, ok := value.(map[string]any); ok {
		delete(members, "trace") // delivery's tests check it
	}
	return value
}

func wantNoSecret(t *testing.T, err error) {
	t.Helper()
	if err != nil && strings.Contains(err.Error(), canary) {
		t.Errorf("a secret is told: %v", err)
	}
}
