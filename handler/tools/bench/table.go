//go:build unix

package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"asynccaller/handler/tools/storageproxy"
	"asynccaller/handler/tools/storageserver"
	"asynccaller/handler/tools/target"
	"asynccaller/handler/tools/testbed"
)

// tableProxy is between the handler and Azurite's table service.
type tableProxy struct {
	requests atomic.Int64
	order    storageproxy.Order
}

// Before implements [storageproxy.Watcher].
func (t *tableProxy) Before(storageproxy.Request) storageproxy.Order {
	t.requests.Add(1)
	return t.order
}

// After implements [storageproxy.Watcher].
func (*tableProxy) After(storageproxy.Request, storageproxy.Answer) storageproxy.Order {
	return storageproxy.Order{}
}

// measureTable counts the transactions of the record of scheduled messages, and measures what a table service that is
// stopped, slow or refuses the handler changes for deliveries.
func (b *bench) measureTable(ctx context.Context, r *report) error {
	if err := b.startAzurite(ctx); err != nil {
		return err
	}
	if err := b.countTableTransactions(ctx, r); err != nil {
		return fmt.Errorf("counting table transactions: %w", err)
	}
	return b.measureBadTables(ctx, r)
}

// withTable starts the handler with a proxy before the table service, for which a storage account has the queues.
func (b *bench) withTable(ctx context.Context, t *tableProxy, stopped bool, queues string, do func(*process) error, settings ...string) error {
	proxy, err := storageproxy.Open(ctx, b.azurite.TableEndpoint, t)
	if err != nil {
		return err
	}
	defer proxy.Close()
	if stopped {
		proxy.Close()
	}
	return b.withHandler(ctx, proxy.Through(queues), do, settings...)
}

// recordTime is longer than the recorder gathers changes for a write, and than the write takes.
const recordTime = 3 * time.Second

func (b *bench) countTableTransactions(ctx context.Context, r *report) error {
	b.say("table transactions")
	var t tableProxy
	return b.withTable(ctx, &t, false, b.azurite.ConnectionString, func(p *process) error {
		for _, outcome := range []struct {
			name   string
			answer behavior
			m      message
			limit  float64
		}{
			{"delivered", status(http.StatusOK), small, 0},
			{"rescheduled by 5 s", status(http.StatusServiceUnavailable), small, 0},
			{"rescheduled by 60 s", later, small, 1},
			{"delivered after 60 s", status(http.StatusOK), message{kib: 1, mode: binary, delayed: true}, 1},
		} {
			b.target.behave(outcome.answer)
			before := t.requests.Load()
			n, _, err := b.load(p, outcome.m, parallel).run(ctx, times(roundMessages))
			if err != nil {
				return err
			}
			testbed.Pause(ctx, recordTime)
			r.add("table transactions of a message: "+outcome.name, atMost, outcome.limit, float64(t.requests.Load()-before)/float64(n))
		}
		return ctx.Err()
	})
}

// later makes the handler reschedule a message by a delay that is recorded.
var later = behavior{Answer: target.Answer{Status: http.StatusServiceUnavailable}, header: http.Header{"Retry-After": {"60"}}}

// tableMessages is how many messages a handler reschedules while the table is in a state.
const tableMessages = 100 * parallel

// measureBadTables compares handlers whose table is in trouble with one that does not record, round by round. The queues are
// on an account in memory, because Azurite would share the processors with the handler.
func (b *bench) measureBadTables(ctx context.Context, r *report) error {
	const slow = 5 * time.Second
	storage, err := storageserver.Start(ctx, storageTakes)
	if err != nil {
		return err
	}
	defer storage.Close()
	queues := storage.ConnectionString + "TableEndpoint=" + b.azurite.TableEndpoint
	b.target.behave(later)
	type result struct{ p99, mib []float64 }
	results := map[string]*result{}
	states := []struct {
		name    string
		order   storageproxy.Order
		stopped bool
		setting string
	}{
		{name: "off", setting: "ASYNC_CALLER_SCHEDULED=off"},
		{name: "healthy"},
		{name: "stopped", stopped: true},
		{name: "slow", order: storageproxy.Order{Hold: slow}},
		{name: "refusing", order: storageproxy.Order{Status: http.StatusForbidden}},
	}
	for n := range b.rounds {
		b.say("tables in trouble: round %d of %d", n+1, b.rounds)
		for i := range states {
			s := states[(i+n)%len(states)]
			err := b.withTable(ctx, &tableProxy{order: s.order}, s.stopped, queues, func(p *process) error {
				p99, mib, err := b.rescheduleAll(ctx, p)
				if results[s.name] == nil {
					results[s.name] = new(result)
				}
				of := results[s.name]
				of.p99, of.mib = append(of.p99, p99), append(of.mib, mib)
				return err
			}, s.setting)
			if err != nil {
				return fmt.Errorf("table %s: %w", s.name, err)
			}
		}
	}
	off := results["off"]
	r.add("p99 of an invocation, ms: nothing recorded", noBound, 0, off.p99...)
	for _, s := range states[1:] {
		ratio, memory := atMost, atMost
		if s.name == "healthy" {
			ratio = noBound // Azurite shares the processors with the handler
		}
		if runtime.GOOS != "linux" {
			memory = noBound
		}
		r.add("p99 to that with nothing recorded: table "+s.name, ratio, 1.1, ratios(results[s.name].p99, off.p99)...)
		var added []float64
		for n, mib := range results[s.name].mib {
			added = append(added, mib-off.mib[n])
		}
		r.add("memory that recording adds, MiB: table "+s.name, memory, 16, added...)
	}
	return nil
}

// rescheduleAll returns the 99th percentile of the invocations' duration in ms, and the peak of the handler's memory in MiB.
func (b *bench) rescheduleAll(ctx context.Context, p *process) (p99, mib float64, err error) {
	var mu sync.Mutex
	var took []float64
	load := b.load(p, small, parallel)
	if _, _, err := load.run(ctx, times(10*parallel)); err != nil { // opens connections
		return 0, 0, err
	}
	load.seen = func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		took = append(took, float64(d)/float64(time.Millisecond))
	}
	_, _, err = load.run(ctx, times(tableMessages))
	if err == nil && runtime.GOOS == "linux" {
		mib, err = memory(p.pid(), "VmHWM")
	}
	return percentile99(took), mib / (1 << 20), err
}
