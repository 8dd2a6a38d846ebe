package account_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/observers/record"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
	"asynccaller/handler/internal/storage/rows"
)

// recordAll writes the rows of the messages of the poison queue, except for those with these request ids.
func recordAll(t *testing.T, a *account.Account, store *memory.Queues, table storage.Table, except ...string) {
	t.Helper()
	for _, m := range store.All(poisonQueue) {
		about := message.Read(a.Rules, poisonQueue, m)
		if slices.Contains(except, about.RequestID) {
			continue
		}
		if err := rows.Put(t.Context(), table, message.ToRow(about, a.Rules.Content(m.Text))); err != nil {
			t.Fatal(err)
		}
	}
}

func wasRead(t *testing.T, table storage.Table) {
	t.Helper()
	reading := record.Reading{Key: storage.Key{Partition: poisonQueue, ID: record.ReadingID}, ReadAt: time.Now()}
	if err := rows.Put(t.Context(), table, reading); err != nil {
		t.Fatal(err)
	}
}

// viewer may only look.
type viewer struct{ *memory.Queues }

func (viewer) Receive(context.Context, string, int, time.Duration) ([]storage.Message, error) {
	return nil, storage.ErrDenied
}

// TestLook: a list has all dead letters, or says what it lacks, and receives none of them unless the record cannot
// tell.
func TestLook(t *testing.T) {
	for name, test := range map[string]struct {
		messages int
		prepare  func(t *testing.T, a *account.Account, store *memory.Queues, table *memory.Table)
		// matched is the number of messages, unseen how many of them are not seen, and text says what the list lacks.
		matched, unseen int
		text            string
		received        bool
	}{
		"short": {messages: 32, matched: 32},
		"recorded": {
			messages: 40, matched: 40,
			prepare: func(t *testing.T, a *account.Account, store *memory.Queues, table *memory.Table) {
				recordAll(t, a, store, table)
				wasRead(t, table)
			},
		},
		"first_without_rows": {
			messages: 40, matched: 40,
			prepare: func(t *testing.T, a *account.Account, store *memory.Queues, table *memory.Table) {
				recordAll(t, a, store, table, "r0", "r31")
				wasRead(t, table)
			},
		},
		"later_without_rows": {
			messages: 40, matched: 38, text: "recorded 38, on the queue about 40",
			prepare: func(t *testing.T, a *account.Account, store *memory.Queues, table *memory.Table) {
				recordAll(t, a, store, table, "r33", "r39")
				wasRead(t, table)
			},
		},
		"late_rows": {
			messages: 40, matched: 40,
			prepare: func(t *testing.T, a *account.Account, store *memory.Queues, table *memory.Table) {
				wasRead(t, table)
				time.AfterFunc(2*time.Second, func() { recordAll(t, a, store, table) })
			},
		},
		"received_by_others": {
			messages: 40, matched: 40, unseen: 40, text: "not seen 40: perhaps received by another command",
			prepare: func(t *testing.T, a *account.Account, store *memory.Queues, table *memory.Table) {
				recordAll(t, a, store, table)
				wasRead(t, table)
				for range 2 {
					must(store.Receive(t.Context(), poisonQueue, 32, time.Minute))
				}
			},
		},
		"gone": {
			messages: 40, matched: 0,
			prepare: func(t *testing.T, a *account.Account, store *memory.Queues, table *memory.Table) {
				recordAll(t, a, store, table)
				wasRead(t, table)
				for range 2 {
					for _, m := range must(store.Receive(t.Context(), poisonQueue, 32, time.Minute)) {
						must(0, store.Delete(t.Context(), poisonQueue, m.ID, m.PopReceipt))
					}
				}
			},
		},
		"invented_rows": {
			messages: 40, matched: 42, text: "recorded 42, on the queue about 40",
			prepare: func(t *testing.T, a *account.Account, store *memory.Queues, table *memory.Table) {
				recordAll(t, a, store, table)
				wasRead(t, table)
				for _, id := range []string{"invented", strings.Repeat("\x1b[31m", 200)} {
					row := record.Row{Key: storage.Key{Partition: poisonQueue, ID: id}, Since: time.Now()}
					must(0, rows.Put(t.Context(), table, row, record.Mark(poisonQueue, "mark")))
				}
			},
		},
		"never_read": {
			messages: 40, matched: 40, received: true,
			text: "read by receiving its messages: the timer function AC-monitor has not compared it",
		},
		"no_table": {
			messages: 40, matched: 40, received: true, text: "read by receiving its messages: the record of",
			prepare: func(_ *testing.T, a *account.Account, _ *memory.Queues, _ *memory.Table) { a.Table = nil },
		},
		"viewer_without_table": {
			messages: 40, matched: 32, text: "only the first 32 of about 40 were looked at: no permission",
			prepare: func(_ *testing.T, a *account.Account, store *memory.Queues, table *memory.Table) {
				a.Store = viewer{store}
				table.Fail(fmt.Errorf("no permission: %w", storage.ErrDenied))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, table := newQueues(t, test.messages), &memory.Table{}
				a := newAccount(store)
				a.Table = table
				if test.prepare != nil {
					test.prepare(t, a, store, table)
				}
				before := dequeued(store)
				unseen, ids := 0, map[string]bool{}
				listed, err := a.Look(t.Context(), account.Source{}, func(m message.Recorded) error {
					ids[m.ID] = true
					if m.Unseen {
						unseen++
					}
					return nil
				})
				if err != nil || listed.Matched != test.matched || len(ids) != test.matched || unseen != test.unseen {
					t.Errorf("%+v, %d of them not seen, %v", listed, unseen, err)
				}
				text := listed.Views[0].Text()
				if !strings.HasPrefix(text, test.text) || test.text == "" && text != "" {
					t.Errorf("%q, want %q", text, test.text)
				}
				if isReceived := dequeued(store) > before; isReceived != test.received {
					t.Errorf("received %t, want %t", isReceived, test.received)
				}
			})
		})
	}
}

// dequeued returns how often the messages of the poison queue were received.
func dequeued(store *memory.Queues) (n int64) {
	for _, m := range store.All(poisonQueue) {
		n += m.DequeueCount
	}
	return n
}

// TestLookWaits: a command that reads the queue waits for another one that has received all of it.
func TestLookWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newQueues(t, 40)
		a := newAccount(store)
		for range 2 {
			must(store.Receive(t.Context(), poisonQueue, 32, 20*time.Second))
		}
		visit := func(message.Recorded) error { return nil }
		listed, err := a.Look(t.Context(), account.Source{ReadQueues: true}, visit)
		if err != nil || listed.Matched != 40 || listed.Views[0].Text() != "" {
			t.Errorf("%+v, %v", listed, err)
		}
	})
}

// TestLookByAge: the oldest dead letter comes first, whatever its row, and the limit counts over all queues.
func TestLookByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, table := newQueues(t, 0), &memory.Table{}
		a := newAccount(store)
		a.Table = table
		for i := range 40 {
			content := strings.Replace(string(a.Rules.Content(deadLetter("r", mainQueue))), "2026-01-02T00:00:00Z",
				fmt.Sprintf("1999-12-%02dT00:00:00Z", 1+(i*7)%30), 1)
			put(t, store, poisonQueue, storage.Base64.Encode([]byte(content)), 0)
		}
		recordAll(t, a, store, table)
		wasRead(t, table)
		var ages []string
		line := func(m message.Recorded) (string, error) { return m.Since.Format(time.DateOnly), nil }
		print := func(_, text string) error { ages = append(ages, text); return nil }
		limited, err := a.Look(t.Context(), account.Source{Limit: 35}, func(message.Recorded) error { return nil })
		if err != nil || limited.Matched != 35 || limited.Lacks() > 0 {
			t.Errorf("%+v, %v", limited, err)
		}
		listed, err := a.LookByAge(t.Context(), account.Source{Limit: 35}, line, print)
		if err != nil || listed.Matched != 35 || len(ages) != 35 || !slices.IsSorted(ages) {
			t.Errorf("%+v: %v, %v", listed, ages, err)
		}
	})
}
