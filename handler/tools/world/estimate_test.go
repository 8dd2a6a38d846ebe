package world

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"asynccaller/handler/internal/gates/setting"
	"asynccaller/handler/internal/operate/account"
	"asynccaller/handler/internal/operate/estimate"
	recorded "asynccaller/handler/internal/operate/message"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/program/work"
	"asynccaller/handler/internal/storage"
	"asynccaller/handler/internal/storage/memory"
)

var futures = flag.Int("futures", 0, "how often each case of the estimates is played; 0 plays the short ones once")

// incident is an outage of a target, of which the estimates are compared with what happens.
type incident struct {
	name      string
	instances int
	// outage is how long the target answers 503, and rate how many calls a minute are sent for it, until all that wait
	// five minutes after the outage are done.
	outage time.Duration
	rate   func(at time.Duration) float64
	// limit is that of targets.json, and live what an operator sets when the outage ends: rate or concurrency.
	limit, live string
	// fails is the share of calls that fail again after the outage, and took how long a call takes.
	fails float64
	took  time.Duration
	// other sends as many calls for a second target, which answers.
	other  bool
	isLong bool
	// want is the state that is said, and mayEnd says that times may be said as well.
	want   estimate.State
	mayEnd bool
	// off is by how many percent a time may differ; 0 means 25.
	off float64
}

func steady(perMinute float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return perMinute }
}

func incidents() []incident {
	const (
		hour      = time.Hour
		noBreaker = `"breaker":"off"`
	)
	ramp := func(at time.Duration) float64 { return 4 + 20*min(at.Hours(), 1) }
	return []incident{
		{name: "an outage of 1 h", instances: 2, outage: hour, rate: steady(12)},
		{name: "an outage of 12 h", instances: 2, outage: 12 * hour, rate: steady(6), isLong: true},
		{
			name: "12 h without a breaker", instances: 2, outage: 12 * hour, rate: steady(3), limit: noBreaker,
			isLong: true,
		},
		{name: "arrivals that grow", instances: 2, outage: hour, rate: ramp, isLong: true},
		{
			name: "a limit of 13/m", instances: 2, outage: hour, rate: steady(12), limit: `"rate":"13/m"`,
			want: estimate.Grows, mayEnd: true,
		},
		{
			name: "a limit of 11/m", instances: 2, outage: hour, rate: steady(12), limit: `"rate":"11/m"`,
			want: estimate.Grows,
		},
		{name: "a limit of 30/m", instances: 2, outage: hour, rate: steady(12), limit: `"rate":"30/m"`, isLong: true},
		{name: "a limit of 75/m", instances: 5, outage: hour, rate: steady(60), limit: `"rate":"75/m"`, isLong: true},
		{
			name: "a limit of 2 at a time", instances: 3, outage: hour, rate: steady(12), limit: `"concurrency":2`,
			took: 4 * time.Second, off: 35, isLong: true,
		},
		{
			name: "a limit that is lowered", instances: 2, outage: hour, rate: steady(12), live: "20/m", isLong: true,
		},
		{
			name: "a limit that is raised", instances: 2, outage: hour, rate: steady(12), limit: `"rate":"6/m"`,
			live: "60/m", isLong: true,
		},
		{name: "another target", instances: 2, outage: hour, rate: steady(12), other: true, isLong: true},
		{name: "1 instance", instances: 1, outage: hour, rate: steady(12), isLong: true},
		{name: "10 instances", instances: 10, outage: hour, rate: steady(12), isLong: true},
		{name: "5 % that fail again", instances: 2, outage: hour, rate: steady(12), fails: 0.05, isLong: true},
		{name: "20 % that fail again", instances: 2, outage: hour, rate: steady(12), fails: 0.2, isLong: true},
		{
			name: "5 % without a breaker", instances: 2, outage: hour, rate: steady(12), limit: noBreaker, fails: 0.05,
			isLong: true,
		},
	}
}

// TestEstimates compares what is said five minutes after an outage with what happens then. With -futures it prints what
// the table of docs/performance.md sums up.
func TestEstimates(t *testing.T) {
	for _, i := range incidents() {
		if i.isLong && *futures == 0 {
			continue
		}
		t.Run(i.name, func(t *testing.T) {
			isBefore := 0
			for seed := range max(*futures, 1) {
				var got played
				synctest.Test(t, func(t *testing.T) { got = i.play(t, uint64(seed)+1) })
				t.Log(got)
				want := i.want
				if want == "" {
					want = estimate.Ends
				}
				if isExpected := i.mayEnd && got.said.State == estimate.Ends; got.said.State != want && !isExpected {
					t.Errorf("%q, want %s", got.said.Text(), want)
				}
				if got.said.State != estimate.Ends {
					continue
				}
				most := cmp.Or(i.off, 25)
				if off := got.nineOfTen.off(); math.Abs(off) > most {
					t.Errorf("nine of ten: %+.0f %%", off)
				}
				switch off := got.last.off(); {
				case got.said.FailedShare > 0 && off >= 0:
					isBefore++
				case got.said.FailedShare == 0 && math.Abs(off) > most:
					t.Errorf("the last: %+.0f %%", off)
				}
			}
			if i.fails > 0 && 10*isBefore < 9**futures {
				t.Errorf("the last one came before the time said in %d of %d futures", isBefore, *futures)
			}
		})
	}
}

// compared is a time that was said, and the one that came.
type compared struct{ said, came time.Duration }

func (c compared) off() float64 { return 100 * (c.said.Seconds()/c.came.Seconds() - 1) }

func (c compared) String() string {
	return fmt.Sprintf("said %v, came %v (%+.0f %%)", c.said.Round(time.Minute), c.came.Round(time.Minute), c.off())
}

// played is what was said, and what came.
type played struct {
	said            estimate.Estimate
	nineOfTen, last compared
}

func (p played) String() string {
	return fmt.Sprintf("%d calls, %.0f %% of %.0f/min fail: %q; nine of ten: %v; the last: %v", p.said.Calls,
		100*p.said.FailedShare, p.said.ComePerMinute, p.said.Text(), p.nineOfTen, p.last)
}

// stand is a network of one server, and what the targets know.
type stand struct {
	incident

	connections chan net.Conn
	closed      chan struct{}
	begin       time.Time

	mu        sync.Mutex
	random    *rand.Rand
	delivered map[string]time.Time
}

func (s *stand) Accept() (net.Conn, error) {
	select {
	case c := <-s.connections:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (*stand) Close() error   { return nil }
func (*stand) Addr() net.Addr { return ownAddress }

func (s *stand) connect(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case s.connections <- server:
		return client, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *stand) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	storage.Sleep(r.Context(), max(s.took, 20*time.Millisecond))
	s.mu.Lock()
	defer s.mu.Unlock()
	fails := time.Since(s.begin) < s.outage || s.random.Float64() < s.fails
	if r.Host == "a.example" && fails {
		rw.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	s.delivered[r.Header.Get("Idempotency-Key")] = time.Now()
}

// send sends the calls until done is closed, at random moments.
func (s *stand) send(store storage.Queues, host string, done <-chan struct{}) {
	random := rand.New(rand.NewPCG(s.random.Uint64(), 1))
	for n := 0; ; n++ {
		s.mu.Lock()
		pause := time.Duration(random.ExpFloat64() / s.rate(time.Since(s.begin)) * float64(time.Minute))
		s.mu.Unlock()
		select {
		case <-done:
			return
		case <-time.After(pause):
		}
		content, _ := json.Marshal(map[string]any{
			"asyncCaller": 1, "requestId": fmt.Sprintf("%s-%d", host, n),
			"call": map[string]any{"method": "POST", "url": "http://" + host + "/orders", "body": "{}"},
		})
		item := storage.Item{Text: storage.Base64.Encode(content), TTL: 7 * 24 * time.Hour}
		if _, err := store.Put(context.Background(), mainQueue, item); err != nil {
			panic(err)
		}
	}
}

// play plays the incident, and compares.
func (i incident) play(t *testing.T, seed uint64) played {
	t.Helper()
	<-time.After(time.Hour)
	s := &stand{
		incident: i, connections: make(chan net.Conn), closed: make(chan struct{}), begin: time.Now(),
		random: rand.New(rand.NewPCG(seed, 2)), delivered: map[string]time.Time{},
	}
	server := http.Server{Handler: s}
	store, tables := memory.New(), &memory.Tables{}
	ctx, stop := context.WithCancel(context.Background())
	var running, serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(s) })
	app := i.writeApp(t)
	must(t, store.Create(ctx, mainQueue))
	var op *operation.Operations
	for range i.instances {
		environ := []string{"AzureWebJobsStorage=UseDevelopmentStorage=true", "GOMEMLIMIT=off"}
		c, err := work.ReadConfig(app, environ, nil)
		must(t, err)
		op = operation.New(c.App, []string{mainQueue}, store, tables)
		c.Store, c.Tables, c.Connect = store, tables, s.connect
		running.Go(func() { _ = work.Run(ctx, c, io.Discard) })
	}
	done := make(chan struct{})
	running.Go(func() { s.send(store, "a.example", done) })
	if i.other {
		running.Go(func() { s.send(store, "b.example", done) })
	}
	<-time.After(i.outage)
	if i.live != "" {
		must(t, setting.Write(ctx, op.Account.AppTable, setting.Setting{
			Host: "a.example", Member: setting.Rate, Value: i.live, Since: time.Now(),
		}))
	}
	<-time.After(5 * time.Minute)
	got := s.compare(t, op.Account)
	close(done)
	stop()
	running.Wait()
	close(s.closed)
	must(t, server.Shutdown(context.Background()))
	serving.Wait()
	return got
}

// compare reads what is said, waits until the calls that wait are delivered, and compares.
func (s *stand) compare(t *testing.T, a *account.Account) (got played) {
	t.Helper()
	ctx := context.Background()
	status, err := a.Status(ctx)
	must(t, err)
	said := status.Estimate("a.example")
	if said == nil {
		t.Errorf("nothing is said: %+v", status.Targets)
		return got
	}
	got.said = *said
	if said.State != estimate.Ends {
		return got
	}
	now := time.Now()
	var waiting []string
	_, err = a.ListScheduled(ctx, account.Source{}, false, func(m recorded.Recorded) error {
		if m.Host == "a.example" {
			waiting = append(waiting, m.RequestID)
		}
		return nil
	})
	must(t, err)
	var came []time.Duration
	for len(came) < len(waiting) {
		<-time.After(time.Minute)
		came = came[:0]
		s.mu.Lock()
		for _, id := range waiting {
			if at, isDone := s.delivered[id]; isDone {
				came = append(came, at.Sub(now))
			}
		}
		s.mu.Unlock()
	}
	slices.Sort(came)
	got.nineOfTen = compared{said.NineOfTen.Sub(said.At), came[len(came)*9/10]}
	got.last = compared{said.Last.Sub(said.At), came[len(came)-1]}
	return got
}

// writeApp writes an app folder with one queue.
func (i incident) writeApp(t *testing.T) (app string) {
	t.Helper()
	app = t.TempDir()
	binding := `{"bindings":[{"type":"%s","direction":"in","name":"m"%s}]}`
	for name, content := range map[string]string{
		"host.json": `{"version":"2.0","functionTimeout":"00:05:00",
			"customHandler":{"description":{"defaultExecutablePath":"async-caller","arguments":["serve"]}},
			"extensionBundle":{"id":"Microsoft.Azure.Functions.ExtensionBundle","version":"[4.*, 5.0.0)"},
			"extensions":{"queues":{"batchSize":16,"newBatchThreshold":8,"maxDequeueCount":5,
				"visibilityTimeout":"00:00:30","maxPollingInterval":"00:00:10","messageEncoding":"base64"}}}`,
		"AC-standard/function.json": fmt.Sprintf(binding, "queueTrigger", `,"queueName":"`+mainQueue+
			`","connection":"AzureWebJobsStorage","dataType":"binary"`),
		"AC-monitor/function.json":       fmt.Sprintf(binding, "timerTrigger", `,"schedule":"0 * * * * *"`),
		"AC-poison-keeper/function.json": fmt.Sprintf(binding, "timerTrigger", `,"schedule":"0 0 * * * *"`),
		"targets.json":                   strings.ReplaceAll(`{"a.example":{LIMIT}}`, "LIMIT", i.limit),
	} {
		path := filepath.Join(app, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return app
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
