package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// recorder is a target that records the bodies of its calls.
type recorder struct {
	mu    sync.Mutex
	calls []string
}

func (c *recorder) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, r.Method+" "+string(body))
}

func mustFloor(t *testing.T, url string) *floor {
	t.Helper()
	f := newFloor(url)
	t.Cleanup(f.client.CloseIdleConnections)
	return f
}

func invocation(t *testing.T, method, body string, call int) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "/AC-binary", strings.NewReader(body))
	r.Header.Set(callHeader, strconv.Itoa(call))
	return r
}

func TestFloor(t *testing.T) {
	unknownLength := invocation(t, http.MethodPost, "abc", 3)
	unknownLength.ContentLength = -1
	cutShort := invocation(t, http.MethodPost, "abc", 3)
	cutShort.ContentLength = 4
	for name, test := range map[string]struct {
		request *http.Request
		want    int
		called  string
	}{
		"part":           {invocation(t, http.MethodPost, "abcdef", 3), 200, "POST abc"},
		"whole":          {invocation(t, http.MethodPost, "abcdef", 6), 200, "POST abcdef"},
		"ready":          {invocation(t, http.MethodGet, "", 3), 200, ""},
		"call_too_large": {invocation(t, http.MethodPost, "abc", 4), 500, ""},
		"unknown_length": {unknownLength, 500, ""},
		"cut_short":      {cutShort, 500, ""},
	} {
		t.Run(name, func(t *testing.T) {
			calls := &recorder{}
			server := httptest.NewServer(calls)
			defer server.Close()
			answer := httptest.NewRecorder()
			mustFloor(t, server.URL).ServeHTTP(answer, test.request)
			if answer.Code != test.want || strings.Join(calls.calls, ",") != test.called {
				t.Errorf("answer %d, called %q; want %d, %q", answer.Code, calls.calls, test.want, test.called)
			}
			if test.want == http.StatusOK && answer.Body.String() != `{}` {
				t.Errorf("body %q, which the host does not accept", answer.Body)
			}
		})
	}
	t.Run("target_down", func(t *testing.T) {
		answer := httptest.NewRecorder()
		mustFloor(t, "http://127.0.0.1:1").ServeHTTP(answer, invocation(t, http.MethodPost, "abc", 3))
		if answer.Code != http.StatusInternalServerError {
			t.Errorf("answer %d, want 500", answer.Code)
		}
	})
}

// TestFloorReusesBuffers checks that the bytes of one invocation never get into the call of another.
func TestFloorReusesBuffers(t *testing.T) {
	const parallel, each = 8, 50
	calls := &recorder{}
	server := httptest.NewServer(calls)
	defer server.Close()
	f := mustFloor(t, server.URL)
	var posting sync.WaitGroup
	for n := range parallel {
		posting.Go(func() {
			for i := range each {
				body := strings.Repeat(fmt.Sprintf("%d-%d,", n, i), 1+(n*i)%700)
				f.ServeHTTP(httptest.NewRecorder(), invocation(t, http.MethodPost, body+"tail", len(body)))
			}
		})
	}
	posting.Wait()
	if len(calls.calls) != parallel*each {
		t.Fatalf("%d calls, want %d", len(calls.calls), parallel*each)
	}
	for _, call := range calls.calls {
		body := strings.TrimPrefix(call, "POST ")
		first, _, _ := strings.Cut(body, ",")
		if body != strings.Repeat(first+",", strings.Count(body, ",")) {
			t.Fatalf("a call of several invocations: %.100q", body)
		}
	}
}
