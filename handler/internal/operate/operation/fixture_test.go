package operation_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/operate/run/journal"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

const (
	mainQueue   = "async-caller"
	poisonQueue = "async-caller-poison"
	parking     = "parking"
)

// leasesEnd exceeds the leases of a run.
const leasesEnd = 6 * time.Minute

// week is the time-to-live of messages that the host moves.
const week = 7 * 24 * time.Hour

func newAccount(t *testing.T, store storage.Queues) *operation.Operations {
	t.Helper()
	return accountIn(store, newRuns(t))
}

// newRuns returns a folder for journals. Where the system has files in memory it is one of them: a disk would take most
// of the tests' time.
func newRuns(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "async-caller-operation-") //nolint:usetesting // t.TempDir is on the disk
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "runs")
}

// accountIn returns the account as another process on the same machine sees it.
func accountIn(store storage.Queues, runs string) *operation.Operations {
	return &operation.Operations{
		Account: &account.Account{
			Store: store, Name: "test", AppQueues: []string{mainQueue},
			Rules: message.Rules{
				Encoding: storage.Base64, Decision: decision.Rules{Expiration: week, GiveUp: envelope.GiveUpDeadLetter},
			},
		},
		Journals: journal.Folder(runs),
	}
}

// advance moves the clock of a synctest bubble.
func advance(d time.Duration) { <-time.After(d) }

// newQueues returns a store with a main queue and n dead letters on its poison queue.
func newQueues(t *testing.T, n int) *memory.Queues {
	t.Helper()
	store := memory.New()
	for _, name := range []string{mainQueue, poisonQueue, parking} {
		if err := store.Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		put(t, store, poisonQueue, deadLetter(fmt.Sprintf("r%d", i), mainQueue), 0)
	}
	return store
}

// mixed returns a store with every kind of message on the poison queue, and messages on other queues.
func mixed(t *testing.T) *memory.Queues {
	t.Helper()
	store := newQueues(t, 3)
	put(t, store, poisonQueue, hostCopy("host"), week)
	put(t, store, poisonQueue, "not base64", week)
	put(t, store, poisonQueue, storage.Base64.Encode([]byte("not JSON")), 0)
	for _, name := range []string{"other", "other-poison"} {
		if err := store.Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	put(t, store, "other-poison", deadLetter("other", "other"), 0)
	put(t, store, parking, deadLetter("parked", mainQueue), 0)
	put(t, store, parking, deadLetter("lost", "evil"), 0)
	put(t, store, mainQueue, hostCopy("live"), 0)
	return store
}

// found returns the request ID of a message or, if it has none, its reason.
func found(m message.Message) string {
	if m.RequestID == "" {
		return m.Reason
	}
	return m.RequestID
}

func deadLetter(requestID, from string) string {
	return storage.Base64.Encode(fmt.Appendf(nil,
		`{"asyncCaller":1,"requestId":%q,"call":{"url":"https://t.example/orders/%s"},"attempts":3,`+
			`"createdAt":"2026-01-01T00:00:00Z","deadLetter":{"at":"2026-01-02T00:00:00Z","reason":"rejected",`+
			`"detail":"answered 400","queue":%q,"attempts":3}}`,
		requestID, requestID, from))
}

// hostCopy returns an envelope as the host moves it, without a reason.
func hostCopy(requestID string) string {
	return storage.Base64.Encode(fmt.Appendf(nil,
		`{"asyncCaller":1,"requestId":%q,"call":{"url":"https://t.example/"}}`, requestID))
}

func put(t *testing.T, store storage.Queues, name, text string, ttl time.Duration) storage.Message {
	t.Helper()
	m, err := store.Put(t.Context(), name, storage.Item{Text: text, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// texts returns the texts of a queue, sorted.
func texts(store *memory.Queues, name string) []string {
	var all []string
	for _, m := range store.All(name) {
		all = append(all, m.Text)
	}
	slices.Sort(all)
	return all
}

// calls counts the messages of queues by request id.
func calls(store *memory.Queues, names ...string) map[string]int {
	counts := map[string]int{}
	for _, name := range names {
		for _, m := range store.All(name) {
			counts[requestID(m.Text)]++
		}
	}
	return counts
}

// requestID returns the request ID in a text that a test wrote.
func requestID(text string) string {
	content, err := storage.Base64.Decode(text)
	_, rest, found := strings.Cut(string(content), `"requestId":"`)
	if err != nil || !found {
		return "none"
	}
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

// hidden returns the IDs of a queue's invisible messages.
func hidden(store *memory.Queues, name string) (ids []string) {
	for _, m := range store.All(name) {
		if m.NextVisibleAt.After(time.Now()) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// mustPlan returns the plan, or fails the test.
func mustPlan(t *testing.T) func(*operation.Plan, error) *operation.Plan {
	t.Helper()
	return func(p *operation.Plan, err error) *operation.Plan {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}

// execute carries out a plan, which must finish.
func execute(t *testing.T, p *operation.Plan) operation.Result {
	t.Helper()
	r, err := p.Execute(context.Background())
	if err != nil || !r.Finished() {
		t.Fatalf("%s: %+v, %v", p.Command, r, err)
	}
	return r
}

// summaries returns the runs of the account.
func summaries(t *testing.T, a *operation.Operations) []operation.RunSummary {
	t.Helper()
	runs, err := a.Runs(t.Context())
	if runs.Missing != nil || err != nil {
		t.Fatal(runs.Missing, err)
	}
	return runs.All
}

// wantError fails the test unless the error contains each of the words.
func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", words)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not contain %q", err, word)
		}
	}
}

// notes is an observer that records its calls.
type notes struct {
	mu       sync.Mutex
	said     []string
	advanced int
}

func (n *notes) Advanced(done, _ int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advanced = done
}

func (n *notes) Note(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.said = append(n.said, text)
}

// tap intercepts the operations of a store. An error of before prevents an operation, an error of after replaces its
// answer; these are called one at a time, and only for one queue if that is set. Each operation takes the given time.
type tap struct {
	*memory.Queues
	queue         string
	takes         time.Duration
	mu            sync.Mutex
	before, after func(operation string) error
}

func tapped[T any](s *tap, name, operation string, do func() (T, error)) (T, error) {
	if s.takes > 0 {
		advance(s.takes)
	}
	if s.queue != "" && s.queue != name {
		return do()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var nothing T
	if s.before != nil {
		if err := s.before(operation); err != nil {
			return nothing, err
		}
	}
	v, err := do()
	if s.after != nil {
		if lost := s.after(operation); lost != nil {
			return nothing, lost
		}
	}
	return v, err
}

func (s *tap) Create(ctx context.Context, name string) error {
	_, err := tapped(s, name, "create", func() (any, error) { return nil, s.Queues.Create(ctx, name) })
	return err
}

func (s *tap) Put(ctx context.Context, name string, item storage.Item) (storage.Message, error) {
	return tapped(s, name, "put", func() (storage.Message, error) { return s.Queues.Put(ctx, name, item) })
}

func (s *tap) Update(ctx context.Context, name, id, popReceipt, text string, delay time.Duration) (string, error) {
	return tapped(s, name, "update",
		func() (string, error) { return s.Queues.Update(ctx, name, id, popReceipt, text, delay) })
}

func (s *tap) Delete(ctx context.Context, name, id, popReceipt string) error {
	_, err := tapped(s, name, "delete", func() (any, error) { return nil, s.Queues.Delete(ctx, name, id, popReceipt) })
	return err
}

func (s *tap) Receive(ctx context.Context, name string, limit int, lease time.Duration) ([]storage.Message, error) {
	return tapped(s, name, "receive",
		func() ([]storage.Message, error) { return s.Queues.Receive(ctx, name, limit, lease) })
}

func (s *tap) Peek(ctx context.Context, name string, limit int) ([]storage.Message, error) {
	return tapped(s, name, "peek", func() ([]storage.Message, error) { return s.Queues.Peek(ctx, name, limit) })
}

func (s *tap) Count(ctx context.Context, name string) (int, error) {
	return tapped(s, name, "count", func() (int, error) { return s.Queues.Count(ctx, name) })
}

func (s *tap) Names(ctx context.Context, prefix string) ([]string, error) {
	return tapped(s, "", "names", func() ([]string, error) { return s.Queues.Names(ctx, prefix) })
}

// errNoAnswer is that of an operation that storage may have carried out.
var errNoAnswer = errors.New("no answer")
