package operation_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// keep runs a keeper of the poison queue once, and checks the number of messages that it has kept.
func keep(t *testing.T, k *operation.Keeper, want int) {
	t.Helper()
	if kept, err := k.Run(t.Context(), nil); err != nil || kept != want {
		t.Errorf("%d were kept, want %d; %v", kept, want, err)
	}
}

// expiring counts the messages of queues that expire.
func expiring(store *memory.Queues, names ...string) (n int) {
	for _, name := range names {
		for _, m := range store.All(name) {
			if m.ExpiresAt.Year() < 9999 {
				n++
			}
		}
	}
	return n
}

// TestKeep checks that messages moved by the host never expire after a keep and have a reason, and that other
// messages are unchanged and visible. It needs no permission to list queues.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mixed(t)
		untouched := map[string]storage.Message{}
		for _, m := range store.All(poisonQueue) {
			if m.ExpiresAt.Year() == 9999 {
				untouched[m.ID] = m
			}
		}
		a := newAccount(t, &tap{Queues: store, before: func(operation string) error {
			if operation == "names" {
				return storage.ErrRefused
			}
			return nil
		}})
		keep(t, operation.NewKeeper(a.Account, []string{poisonQueue, "nowhere-poison"}), 2)
		if ids := hidden(store, poisonQueue); len(ids) > 0 {
			t.Errorf("%d are invisible", len(ids))
		}
		advance(2 * week)
		reasons := map[string]int{}
		for _, m := range store.All(poisonQueue) {
			if m.ExpiresAt.Year() != 9999 {
				t.Errorf("%s expires at %v", m.ID, m.ExpiresAt)
			}
			rules := message.Rules{Encoding: storage.Base64, Decision: a.Account.Rules.Decision}
			about := message.Read(rules, poisonQueue, m)
			reasons[about.Reason]++
			if before, ok := untouched[m.ID]; ok {
				if m.Text != before.Text || m.InsertedAt != before.InsertedAt {
					t.Errorf("%s was touched", m.ID)
				}
				delete(untouched, m.ID)
			}
			if about.Reason != message.HostGaveUp {
				continue
			}
			e, err := envelope.Parse(must(storage.Base64.Decode(m.Text)))
			if err != nil || e.DeadLetter == nil || e.DeadLetter.Reason != message.HostGaveUp ||
				e.DeadLetter.Queue != mainQueue {
				t.Errorf("the dead letter is %+v, %v", e.DeadLetter, err)
			}
		}
		if len(untouched) > 0 || reasons["undecodable"] != 1 || reasons["host_gave_up"] != 1 ||
			reasons["malformed"] != 1 || reasons["rejected"] != 3 {
			t.Errorf("%d are missing, there are %v", len(untouched), reasons)
		}
		if !slices.Contains(texts(store, poisonQueue), "not base64") {
			t.Error("the text that is not base64 has changed")
		}
	})
}

// TestKeepReadsOnce checks that messages that never expire are received only when messages may have arrived behind
// them, or one of the first expires, and again after a day.
func TestKeepReadsOnce(t *testing.T) {
	for _, n := range []int{0, 31, 32, 100} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueues(t, n)
				batches := (n + storage.MaxBatch - 1) / storage.MaxBatch
				received := 0
				k := operation.NewKeeper(newAccount(t, &tap{Queues: store, before: func(operation string) error {
					if operation == "receive" {
						received++
					}
					return nil
				}}).Account, []string{poisonQueue})
				if n < storage.MaxBatch {
					batches = 0 // a peek shows all of them
				}
				hourly := func(when string, kept, want int) {
					t.Helper()
					before := received
					keep(t, k, kept)
					if received-before != want {
						t.Errorf("%s: %d batches were received, want %d", when, received-before, want)
					}
					advance(time.Hour)
				}
				hourly("at first", 0, batches)
				hourly("without a change", 0, 0)
				advance(24 * time.Hour)
				hourly("a day later", 0, batches)
				put(t, store, poisonQueue, hostCopy("host"), week)
				hourly("with another message", 1, n/storage.MaxBatch+1)
				n++
				if n >= storage.MaxBatch {
					batches = (n + storage.MaxBatch - 1) / storage.MaxBatch
				}
				hourly("when that is kept", 0, batches)
				hourly("without a change again", 0, 0)
				gone := must(store.Receive(t.Context(), poisonQueue, 1, time.Minute))[0]
				if err := store.Delete(t.Context(), poisonQueue, gone.ID, gone.PopReceipt); err != nil {
					t.Fatal(err)
				}
				put(t, store, poisonQueue, hostCopy("host"), week)
				if n <= storage.MaxBatch {
					hourly("with one of the first messages replaced", 1, 1)
				} else {
					hourly("with a later message replaced", 0, 0)
				}
			})
		})
	}
}

// TestKeepMany checks that runs end in time and keep many messages within three runs, also behind others that never
// expire: 400 at 1.9 s per operation need as long as 50,000 at 15 ms.
func TestKeepMany(t *testing.T) {
	for name, c := range map[string]struct {
		before, expiring int
		takes            time.Duration
	}{
		"many":        {800, 400, 1900 * time.Millisecond},
		"short_queue": {10, 10, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueues(t, c.before)
				for range c.expiring {
					put(t, store, poisonQueue, hostCopy("host"), week)
				}
				k := operation.NewKeeper(newAccount(t, &tap{Queues: store, takes: c.takes}).Account,
					[]string{poisonQueue})
				total, runs := 0, 0
				for err := error(nil); runs == 0 || err != nil && runs < 9; runs++ {
					const limit = 4 * time.Minute
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					began, kept := time.Now(), 0
					kept, err = k.Run(ctx, nil)
					cancel()
					total += kept
					if took := time.Since(began); took > limit+20*time.Second {
						t.Errorf("it took %v", took)
					}
					if left := expiring(store, poisonQueue); (err == nil) != (left == 0) || total+left != c.expiring {
						t.Fatalf("%d were kept, %d are left, %v", total, left, err)
					}
					advance(time.Hour)
				}
				if runs > 3 || len(store.All(poisonQueue)) != c.before+c.expiring {
					t.Errorf("%d runs; there are %d messages", runs, len(store.All(poisonQueue)))
				}
			})
		})
	}
}

// TestKeepBesideFailures checks that a failure is reported, loses no message, and does not keep other messages and
// other queues from being kept.
func TestKeepBesideFailures(t *testing.T) {
	down := errors.New("no connection")
	for name, c := range map[string]struct {
		operation string
		after     bool
		// from and to are the first and the last of the failing operations.
		from, to, kept, left int
		err                  error
		says                 string
	}{
		"count":   {operation: "count", from: 1, to: 99, kept: 40, left: 40, err: down},
		"receive": {operation: "receive", from: 1, to: 99, kept: 40, left: 40, err: down},
		"put":     {operation: "put", from: 1, to: 99, kept: 40, left: 40, err: down},
		"put_refused": {
			operation: "put", from: 6, to: 30, kept: 55, left: 25, err: storage.ErrRefused,
			says: "25 messages",
		},
		"delete":      {operation: "delete", from: 1, to: 99, kept: 40, left: 40, err: storage.ErrRefused},
		"lost_put":    {operation: "put", after: true, from: 3, to: 3, kept: 80},
		"lost_delete": {operation: "delete", after: true, from: 3, to: 3, kept: 80},
		"lost_received": {
			operation: "receive", after: true, from: 1, to: 1, kept: 48, left: 32,
			says: "32 messages are invisible",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newQueues(t, 0)
				const other = "other-poison"
				if err := store.Create(t.Context(), other); err != nil {
					t.Fatal(err)
				}
				for range 40 {
					put(t, store, poisonQueue, hostCopy("host"), week)
					put(t, store, other, hostCopy("other"), week)
				}
				n := 0
				fail := func(operation string) error {
					if operation != c.operation {
						return nil
					}
					n++
					if n < c.from || n > c.to {
						return nil
					}
					return cmp.Or(c.err, down)
				}
				broken := &tap{Queues: store, queue: poisonQueue, before: fail}
				if c.after {
					broken.before, broken.after = nil, fail
				}
				kept, err := operation.NewKeeper(newAccount(t, broken).Account, []string{poisonQueue, other}).
					Run(t.Context(), nil)
				left := expiring(store, poisonQueue, other)
				if kept != c.kept || left != c.left || c.err != nil && c.says == "" && !errors.Is(err, c.err) {
					t.Errorf("%d were kept, %d are left, %v", kept, left, err)
				}
				if c.left > 0 {
					wantError(t, err, poisonQueue, c.says)
				} else if err != nil {
					t.Error(err)
				}
				// A pass works on eight messages at a time, so that many can be there twice.
				if all := len(store.All(poisonQueue)) + len(store.All(other)); all < 80 || all > 88 {
					t.Errorf("there are %d messages", all)
				}
			})
		})
	}
}
