package delivery_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"asynccaller/handler/internal/deliver/delivery"
	"asynccaller/handler/internal/deliver/settle"
	"asynccaller/handler/internal/observers/history"
	"asynccaller/handler/internal/rules/decision"
	"asynccaller/handler/internal/rules/targets"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

// withHistory gives a bench a history in these tables.
func (b *bench) withHistory(t *testing.T, tables storage.Tables, keep targets.History) *bench {
	t.Helper()
	b.History = history.New(tables, retention, zerolog.New(b.log))
	b.KeepHistory = keep
	t.Cleanup(func() { b.History.Close(time.Minute) })
	return b
}

// deliverAs delivers content as a message with an id and a dequeue count.
func (b *bench) deliverAs(content, id string, dequeueCount int64) *delivery.Result {
	return b.Deliver(context.Background(), delivery.Message{
		Message: decision.Message{Queue: mainQueue, ID: id, DequeueCount: dequeueCount},
		Content: []byte(content),
		Lease:   settle.Lease{ID: id, PopReceipt: "p", DequeueCount: dequeueCount},
	})
}

// TestSameMoment: of two messages with one request id that two instances receive at the same moment, at least one is
// called and at most both are.
func TestSameMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tables memory.Tables
		called := answers(decision.Outcome{Status: 200})
		one := setup(t, called).withHistory(t, &tables, targets.HistoryCheck)
		other := setup(t, called).withHistory(t, &tables, targets.HistoryCheck)
		for i := range 100 {
			called.calls = nil
			content := fmt.Sprintf(`{"asyncCaller":1,"requestId":"r%d","call":{"url":"https://t.example/"}}`, i)
			var both sync.WaitGroup
			for k, b := range []*bench{one, other} {
				both.Go(func() { b.deliverAs(content, fmt.Sprintf("m%d.%d", i, k), 1) })
			}
			both.Wait()
			if n := len(called.calls); n < 1 || n > 2 {
				t.Fatalf("%d calls", n)
			}
		}
		one.History.Close(time.Minute)
		other.History.Close(time.Minute)
	})
}

// TestHistoryTransactions: check makes one read and one write for a delivered call, and outcomes one transaction for
// twenty calls.
func TestHistoryTransactions(t *testing.T) {
	for mode, most := range map[targets.History]float64{targets.HistoryOutcomes: 0.05, targets.HistoryCheck: 2} {
		synctest.Test(t, func(t *testing.T) {
			tables := &countedTables{}
			b := setup(t, answers(decision.Outcome{Status: 200})).withHistory(t, tables, mode)
			const calls = 400
			for i := range calls {
				content := fmt.Sprintf(`{"asyncCaller":1,"requestId":"r%d","call":{"url":"https://t.example/"}}`, i)
				b.deliverAs(content, fmt.Sprint("m", i), 1)
				<-time.After(10 * time.Millisecond)
			}
			b.History.Close(time.Minute)
			if got := float64(tables.operations) / calls; got > most {
				t.Errorf("%s: %.3f transactions a call, want at most %v", mode, got, most)
			}
		})
	}
}

type countedTables struct {
	memory.Tables
	mu         sync.Mutex
	operations int
}

type countedTable struct {
	storage.Table
	all *countedTables
}

func (t *countedTables) Table(name string) storage.Table {
	return countedTable{t.Tables.Table(name), t}
}

func (t countedTable) count() {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	t.all.operations++
}

func (t countedTable) Get(ctx context.Context, partition, id string) (storage.Entity, bool, error) {
	t.count()
	return t.Table.Get(ctx, partition, id)
}

func (t countedTable) Put(ctx context.Context, entities []storage.Entity) error {
	t.count()
	return t.Table.Put(ctx, entities)
}
