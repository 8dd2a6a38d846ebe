package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"asynccaller/handler/internal/storage"
)

// counting is a target that counts its calls. Each lasts 200 ms.
type counting struct {
	*httptest.Server

	mu       sync.Mutex
	inFlight int
	peak     int
	began    []time.Time
	ids      map[string]int
}

func newCounting(t *testing.T) *counting {
	t.Helper()
	c := &counting{ids: map[string]int{}}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *counting) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	c.count(r.Header.Get("Idempotency-Key"))
	select {
	case <-r.Context().Done():
	case <-time.After(200 * time.Millisecond):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight--
}

func (c *counting) count(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids[id]++
	c.inFlight++
	c.peak = max(c.peak, c.inFlight)
	c.began = append(c.began, time.Now())
}

// calls returns how often a message was called, or all were.
func (c *counting) calls(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == "" {
		return len(c.began)
	}
	return c.ids[id]
}

// all reports whether each of the messages was called.
func (c *counting) all(name string, messages int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range messages {
		if c.ids[fmt.Sprint(name, n)] == 0 {
			return false
		}
	}
	return true
}

// highest returns the largest number of calls at the same time.
func (c *counting) highest() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peak
}

// most returns the largest number of calls that began within a time.
func (c *counting) most(within time.Duration) (most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := 0
	for n, at := range c.began {
		for at.Sub(c.began[first]) >= within {
			first++
		}
		most = max(most, n-first+1)
	}
	return most
}

// tables is the table service as a process sees it that loses one of so many answers to its writes, and can get slow
// ones.
type tables struct {
	*httptest.Server

	mu           sync.Mutex
	slow         time.Duration
	writes, loss int
}

func newTables(t *testing.T, endpoint string, loss int) *tables {
	t.Helper()
	to, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	s := &tables{loss: loss}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { // the path is signed
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = to.Scheme, to.Host, to.Host
		},
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		if r.Method != http.MethodGet {
			s.writes++
		}
		slow, isLost := s.slow, r.Method != http.MethodGet && s.writes%s.loss == 0
		s.mu.Unlock()
		storage.Sleep(r.Context(), slow)
		if isLost {
			proxy.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *tables) answerAfter(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = d
}

// TestLimitsOfProcesses: three processes that start at the same moment hold the limits together, also if one write of
// the table in 50 gets no answer, when one of them is killed, and when another one gets each answer after 10 s.
func TestLimitsOfProcesses(t *testing.T) {
	t.Parallel()
	const messages, atLast = 40, 10
	f := newFixture(t, options{tables: true})
	one, few, both := newCounting(t), newCounting(t), newCounting(t)
	rateURL := strings.Replace(few.URL, "127.0.0.1", "localhost", 1)
	bothURL := both.URL // with its port
	limits := fmt.Sprintf(`{"127.0.0.1":{"concurrency":2,"breaker":"off"},"localhost":{"rate":"5/s","breaker":"off"},
		%q:{"concurrency":2,"rate":"5/s","breaker":"off"}}`, strings.TrimPrefix(bothURL, "http://"))
	f.must(os.WriteFile(filepath.Join(f.app, "targets.json"), []byte(limits), 0o600))
	_, after, _ := strings.Cut(f.connectionString, "TableEndpoint=")
	endpoint, _, _ := strings.Cut(after, ";")
	const loss = 50
	seen, lossy := newTables(t, endpoint, loss), newTables(t, endpoint, loss)
	origin, err := url.Parse(endpoint)
	f.must(err)
	put := func(name string, messages int) {
		for n := range messages {
			for _, target := range []string{one.URL, rateURL, bothURL} {
				id := fmt.Sprint(name, n)
				f.putContent(fmt.Appendf(nil, `{"asyncCaller":1,"requestId":%q,"call":{"url":%q}}`, id, target))
			}
		}
	}
	all := func(name string, messages int) func() bool {
		return func() bool {
			return one.all(name, messages) && few.all(name, messages) && both.all(name, messages)
		}
	}
	put("first", messages)
	direct := f.connectionString
	f.connectionString = strings.Replace(direct, endpoint, lossy.URL+origin.Path, 1)
	f.start(nil)
	killed := f.host
	f.start(nil)
	f.connectionString = strings.Replace(direct, endpoint, seen.URL+origin.Path, 1)
	f.start(nil)
	f.connectionString = direct
	f.await("calls", func() bool { return one.calls("") > 10 && few.calls("") > 10 && both.calls("") > 10 })
	f.must(errors.Join(killed.KillHandler(), killed.Kill()))
	put("second", messages)
	f.await("the calls to be made", all("second", messages))
	seen.answerAfter(10 * time.Second)
	made := one.calls("") + both.calls("")
	put("third", atLast)
	f.await("calls of the other process", func() bool { return one.calls("")+both.calls("") > made+atLast/2 })
	seen.answerAfter(0)
	f.await("the calls to be made", all("third", atLast))
	for _, target := range []*counting{one, both} {
		if peak := target.highest(); peak > 2 {
			t.Errorf("%d calls at the same time, want at most 2", peak)
		}
	}
	for _, target := range []*counting{few, both} {
		if most := target.most(10 * time.Second); most > 60 {
			t.Errorf("%d calls in 10 s, want at most 1.1 times 50 and the burst of 5", most)
		}
	}
	for _, id := range []string{"second0", "third0"} {
		if one.calls(id) != 1 || few.calls(id) != 1 || both.calls(id) != 1 {
			t.Errorf("%s was called %d, %d and %d times", id, one.calls(id), few.calls(id), both.calls(id))
		}
	}
}
