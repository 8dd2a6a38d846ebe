package account_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

const (
	mainQueue   = "async-caller"
	poisonQueue = "async-caller-poison"
	parking     = "parking"
)

// week is the time-to-live of messages that the host moves.
const week = 7 * 24 * time.Hour

func newAccount(store storage.Queues) *account.Account {
	return &account.Account{
		Store: store, Name: "test", AppQueues: []string{mainQueue}, Rules: message.Rules{Encoding: storage.Base64},
	}
}

// newQueues returns a store with a main queue and n dead letters on its poison queue.
func newQueues(t *testing.T, n int) *memory.Queues {
	t.Helper()
	store := memory.New()
	for _, name := range []string{mainQueue, poisonQueue} {
		if err := store.Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		put(t, store, poisonQueue, deadLetter(fmt.Sprintf("r%d", i), mainQueue), 0)
	}
	return store
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

// advance moves the clock of a synctest bubble.
func advance(d time.Duration) { <-time.After(d) }

// mixed returns a store with every kind of message on the poison queue, and messages on other queues.
func mixed(t *testing.T) *memory.Queues {
	t.Helper()
	store := newQueues(t, 3)
	put(t, store, poisonQueue, hostCopy("host"), week)
	put(t, store, poisonQueue, "not base64", week)
	put(t, store, poisonQueue, storage.Base64.Encode([]byte("not JSON")), 0)
	for _, name := range []string{"other", "other-poison", parking} {
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

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestList(t *testing.T) {
	for name, c := range map[string]struct {
		source account.Source
		want   []string
	}{
		"every_poison_queue": {
			account.Source{},
			[]string{"r0", "r1", "r2", "host", "undecodable", "malformed", "other"},
		},
		"one_queue":      {account.Source{Queues: []string{"other-poison"}}, []string{"other"}},
		"a_queue_beside": {account.Source{Queues: []string{parking}}, []string{"parked", "lost"}},
		"live_by_force":  {account.Source{Queues: []string{mainQueue}, Force: true}, []string{"live"}},
		"live_waits": {account.Source{
			Queues: []string{mainQueue}, Force: true, Filter: message.Filter{Reasons: []string{message.Waiting}},
		}, []string{"live"}},
		"ids": {account.Source{IDs: []string{"r2", "host", "nobody"}}, []string{"r2", "host"}},
		"ids_and_filter": {account.Source{
			IDs:    []string{"r2", "host"},
			Filter: message.Filter{Reasons: []string{"rejected"}},
		}, []string{"r2"}},
		"filter": {
			account.Source{Filter: message.Filter{Reasons: []string{message.HostGaveUp}}},
			[]string{"host"},
		},
		"limit":            {account.Source{Limit: 2}, []string{"r0", "r1"}},
		"limit_and_filter": {account.Source{Limit: 1, Filter: message.Filter{Text: "orders/r2"}}, []string{"r2"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := mixed(t)
				before := store.All(poisonQueue)
				var got []string
				listed, err := newAccount(store).
					List(t.Context(), c.source, func(f account.Found) { got = append(got, found(f.Message)) })
				if err != nil || listed.Matched != len(c.want) || listed.Hidden != 0 {
					t.Errorf("%+v, %v", listed, err)
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				if diff := cmp.Diff(before, store.All(poisonQueue)); diff != "" {
					t.Errorf("the queue has changed:\n%s", diff)
				}
			})
		})
	}
}

func TestListRefused(t *testing.T) {
	store := mixed(t)
	put(t, store, "other", hostCopy("x"), 0)
	a := newAccount(store)
	for name, words := range map[string][]string{
		mainQueue: {"a function app reads it", "async-caller-poison", "--force"},
		"other":   {"it has a poison queue", "other-poison"},
		"nowhere": {"does not exist", "async-caller-poison, other-poison"},
	} {
		_, err := a.List(t.Context(), account.Source{Queues: []string{name}},
			func(f account.Found) { t.Errorf("%s: shown %s", name, f.ID) })
		wantError(t, err, append(words, name)...)
	}
}

// flaky answers the first calls with errors, and then as the store does.
type flaky struct {
	storage.Queues
	errs []error
}

func (f *flaky) Names(ctx context.Context, prefix string) ([]string, error) {
	if len(f.errs) == 0 {
		return f.Queues.Names(ctx, prefix)
	}
	err := f.errs[0]
	f.errs = f.errs[1:]
	return nil, fmt.Errorf("list queues: %w", err)
}

// TestReach: a command whose storage is not there ends at once, but one that has begun to work waits for it, and so
// does the handler.
func TestReach(t *testing.T) {
	refused, slow := syscall.ECONNREFUSED, context.DeadlineExceeded
	onWindows := syscall.Errno(10061)
	for name, c := range map[string]struct {
		reached *atomic.Bool
		errs    []error
		// fails says that the first Reach fails, at once.
		fails bool
	}{
		"refused":           {new(atomic.Bool), []error{refused, refused}, true},
		"on_windows":        {new(atomic.Bool), []error{onWindows, onWindows}, true},
		"slow":              {new(atomic.Bool), []error{slow, slow}, false},
		"slow_then_refused": {new(atomic.Bool), []error{slow, refused}, true},
		"handler":           {nil, []error{refused, refused}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &flaky{newQueues(t, 0), c.errs}
				a := newAccount(store)
				a.Reached = c.reached
				began := time.Now()
				_, err := a.Reach(t.Context())
				if failed := err != nil; failed != c.fails || failed && time.Since(began) > time.Second {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
				store.errs = nil
				must(a.Reach(t.Context()))
				store.errs = []error{refused, refused, refused}
				if _, err := a.Reach(t.Context()); err != nil {
					t.Errorf("in the middle of a command: %v", err)
				}
			})
		})
	}
}

// TestDeadLetterQueues checks on which queues the dead letters of the named ones are.
func TestDeadLetterQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mixed(t)
		put(t, store, "other-poison", deadLetter("later", "other"), 0)
		a := newAccount(store)
		a.AppQueues = append(a.AppQueues, "new")
		for names, want := range map[string]string{
			"":                              "",
			mainQueue:                       poisonQueue,
			poisonQueue:                     poisonQueue,
			mainQueue + " " + poisonQueue:   poisonQueue,
			"other":                         "other-poison",
			parking:                         parking,
			"new":                           "", // no message of it was given up
			"new " + parking + " " + "more": parking + " more",
		} {
			got, err := a.DeadLetterQueues(t.Context(), account.Source{Queues: strings.Fields(names)})
			if strings.Join(got, " ") != want || err != nil {
				t.Errorf("%s: %q, %v, want %q", names, got, err, want)
			}
		}
		got, err := a.DeadLetterQueues(t.Context(), account.Source{Queues: []string{mainQueue}, Force: true})
		if len(got) != 1 || got[0] != mainQueue || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// samePrefix is storage whose ids of messages all begin with zeros.
type samePrefix struct{ storage.Queues }

func (s samePrefix) Peek(ctx context.Context, queue string, limit int) ([]storage.Message, error) {
	messages, err := s.Queues.Peek(ctx, queue, limit)
	for i, m := range messages {
		messages[i].ID = "00000000" + m.ID[8:]
	}
	return messages, err
}

func TestFind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mixed(t)
		put(t, store, poisonQueue, deadLetter("r0", mainQueue), 0)
		a := newAccount(store)
		first := store.All(poisonQueue)[1]
		for _, id := range []string{"r1", first.ID, strings.ToUpper(first.ID)} {
			f, err := a.Find(t.Context(), account.Source{}, id)
			if err != nil || f.ID != first.ID || f.Text != first.Text || !strings.HasPrefix(string(f.Content), "{") {
				t.Errorf("%s: %+v, %v", id, f, err)
			}
		}
		_, err := a.Find(t.Context(), account.Source{}, "r0")
		if !errors.Is(err, account.ErrAmbiguous) {
			t.Errorf("two with one id: %v", err)
		}
		wantError(t, err, store.All(poisonQueue)[0].ID, poisonQueue)
		a.Store = samePrefix{store}
		_, err = a.Find(t.Context(), account.Source{}, "00000000")
		if !errors.Is(err, account.ErrAmbiguous) {
			t.Errorf("a common prefix: %v", err)
		}
		_, err = a.Find(t.Context(), account.Source{}, "nobody\x1b[31m")
		if !errors.Is(err, account.ErrNothing) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("nobody: %q", err)
		}
		must(store.Receive(t.Context(), poisonQueue, 3, time.Hour))
		_, err = a.Find(t.Context(), account.Source{}, "r1")
		wantError(t, err, "3 messages are invisible")
	})
}

// unreadable has queues that cannot be counted or peeked at. If hangs is true, they do not answer before ctx ends.
type unreadable struct {
	storage.Queues
	err   error
	hangs bool
	is    func(name string) bool
}

func (u unreadable) fail(ctx context.Context, name string) error {
	if !u.is(name) {
		return nil
	}
	if u.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return fmt.Errorf("read %s: %w", name, u.err)
}

func (u unreadable) Count(ctx context.Context, name string) (int, error) {
	if err := u.fail(ctx, name); err != nil {
		return 0, err
	}
	return u.Queues.Count(ctx, name)
}

func (u unreadable) Peek(ctx context.Context, name string, limit int) ([]storage.Message, error) {
	if err := u.fail(ctx, name); err != nil {
		return nil, err
	}
	return u.Queues.Peek(ctx, name, limit)
}

// TestStatusUnknown: a queue that cannot be read has no numbers and one problem, within the time that a user waits, and
// leaves the others as they are.
func TestStatusUnknown(t *testing.T) {
	busy, foreign := errors.New("503 ServerBusy"), fmt.Errorf("200 OK: %w", storage.ErrForeign)
	main := func(name string) bool { return name == "async-caller" }
	poison := func(name string) bool { return name == "async-caller-poison" }
	all := func(string) bool { return true }
	for name, test := range map[string]struct {
		store            unreadable
		messages, poison bool // known
		others           bool
	}{
		"denied":      {unreadable{err: storage.ErrDenied, is: all}, false, false, false},
		"busy":        {unreadable{err: busy, is: main}, false, true, true},
		"busy_poison": {unreadable{err: busy, is: poison}, true, false, true},
		"denied_main": {unreadable{err: storage.ErrDenied, is: main}, false, true, true},
		"foreign":     {unreadable{err: foreign, is: main}, false, true, true},
		"hangs":       {unreadable{hangs: true, is: main}, false, true, true},
		"all_hang":    {unreadable{hangs: true, is: all}, false, false, false},
		"readable":    {unreadable{is: func(string) bool { return false }}, true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New()
				a := newAccount(store)
				a.AppQueues = nil
				for n := range 40 {
					name := "async-caller"
					if n > 0 {
						name += fmt.Sprint("-", n)
					}
					a.AppQueues = append(a.AppQueues, name)
					for _, name := range []string{name, name + "-poison"} {
						must(storage.PutCreating(t.Context(), store, name, storage.Item{Text: "eA=="}))
					}
				}
				test.store.Queues = store
				a.Store = test.store
				began := time.Now()
				status, err := a.Status(t.Context())
				if took := time.Since(began); err != nil || took > account.ReachTimeout {
					t.Errorf("error %v after %v", err, took)
				}
				first, last := status.Queues[0], status.Queues[len(status.Queues)-1]
				if first.Messages != nil != test.messages || first.Poison != nil != test.poison {
					t.Errorf("known: messages %t, poison %t", first.Messages != nil, first.Poison != nil)
				}
				isKnown := test.messages && test.poison
				isOneLine := !strings.Contains(first.Problem, "\n")
				if (first.Problem == "") != isKnown || !isOneLine || status.IsKnown() != isKnown {
					t.Errorf("problem %q, status known %t", first.Problem, status.IsKnown())
				}
				if last.Messages != nil != test.others || last.Poison != nil != test.others {
					t.Errorf("the last queue is known: %t, %t", last.Messages != nil, last.Poison != nil)
				}
			})
		})
	}
}
