package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// side is the target or the storage: it answers with a status and remembers what it got.
type side struct {
	status int
	mu     sync.Mutex
	got    []string
}

func (s *side) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	if contentType := r.Header.Get("Content-Type"); contentType != "text/plain" {
		s.got = append(s.got, "Content-Type "+contentType)
	}
	s.got = append(s.got, r.Method+" "+string(body))
	s.mu.Unlock()
	w.WriteHeader(s.status)
}

func newSide(t *testing.T, status int) (s *side, url string) {
	t.Helper()
	s = &side{status: status}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, server.URL
}

func startFloor(t *testing.T, target, storage string) *floor {
	t.Helper()
	f := newFloor(target, storage)
	t.Cleanup(f.client.CloseIdleConnections)
	return f
}

// invocation is one as the load makes it.
func invocation(t *testing.T, method, body string, call, put int) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "/AC-binary", strings.NewReader(body))
	r.Header.Set(callHeader, strconv.Itoa(call))
	r.Header.Set(putHeader, strconv.Itoa(put))
	return r
}

func TestFloor(t *testing.T) {
	tooLarge := strings.Repeat("x", maxInvocationBytes+1)
	for name, test := range map[string]struct {
		method, body    string
		call, put       int
		target, storage int
		want            int
		called, written []string
	}{
		"delivered":       {http.MethodPost, "abcdef", 3, 0, 200, 201, 200, []string{"POST abc"}, nil},
		"whole":           {http.MethodPost, "abcdef", 6, 0, 200, 201, 200, []string{"POST abcdef"}, nil},
		"empty_call":      {http.MethodPost, "abcdef", 0, 0, 200, 201, 200, []string{"POST "}, nil},
		"reschedule":      {http.MethodPost, "abcdef", 3, 5, 503, 201, 200, []string{"POST abc"}, []string{"POST abcde"}},
		"put_is_larger":   {http.MethodPost, "abc", 1, 5, 500, 201, 200, []string{"POST a"}, []string{"POST abc\x00\x00"}},
		"rejected":        {http.MethodPost, "abcdef", 3, 5, 400, 201, 200, []string{"POST abc"}, nil},
		"taken":           {http.MethodPost, "abcdef", 3, 5, 200, 201, 200, []string{"POST abc"}, nil},
		"ready":           {http.MethodGet, "", 3, 5, 200, 201, 200, nil, nil},
		"too_large":       {http.MethodPost, tooLarge, 3, 5, 200, 201, 500, nil, nil},
		"call_too_large":  {http.MethodPost, "abc", maxInvocationBytes + 1, 0, 200, 201, 500, nil, nil},
		"negative_length": {http.MethodPost, "abc", -1, -1, 503, 201, 200, []string{"POST "}, []string{"POST "}},
	} {
		t.Run(name, func(t *testing.T) {
			target, targetURL := newSide(t, test.target)
			storage, storageURL := newSide(t, test.storage)
			answer := httptest.NewRecorder()
			startFloor(t, targetURL, storageURL).ServeHTTP(answer, invocation(t, test.method, test.body, test.call, test.put))
			if answer.Code != test.want || !slices.Equal(target.got, test.called) || !slices.Equal(storage.got, test.written) {
				t.Errorf("answer %d, called %q, written %q; want %d, %q, %q", answer.Code, target.got, storage.got, test.want, test.called, test.written)
			}
			if test.want == http.StatusOK && answer.Body.String() != `{"Logs":[]}` {
				t.Errorf("body %q is not what the host wants", answer.Body)
			}
		})
	}
}

func TestFloorWithoutStorage(t *testing.T) {
	_, target := newSide(t, http.StatusServiceUnavailable)
	answer := httptest.NewRecorder()
	startFloor(t, target, "").ServeHTTP(answer, invocation(t, http.MethodPost, "abc", 3, 3))
	if answer.Code != http.StatusOK {
		t.Errorf("answer %d, want 200: there is nowhere to put it back", answer.Code)
	}
}

// TestFloorAnswersFailures: what went wrong must not be counted.
func TestFloorAnswersFailures(t *testing.T) {
	_, busy := newSide(t, http.StatusServiceUnavailable)
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	unknownLength := invocation(t, http.MethodPost, "abc", 3, 3)
	unknownLength.ContentLength = -1
	cutShort := invocation(t, http.MethodPost, "abc", 3, 3)
	cutShort.ContentLength = 4
	for name, test := range map[string]struct {
		target, storage string
		request         *http.Request
	}{
		"target_away":    {away.URL, "", invocation(t, http.MethodPost, "abc", 3, 3)},
		"storage_away":   {busy, away.URL, invocation(t, http.MethodPost, "abc", 3, 3)},
		"unknown_length": {busy, "", unknownLength},
		"cut_short":      {busy, "", cutShort},
	} {
		t.Run(name, func(t *testing.T) {
			answer := httptest.NewRecorder()
			startFloor(t, test.target, test.storage).ServeHTTP(answer, test.request)
			if answer.Code != http.StatusInternalServerError {
				t.Errorf("answer %d, want 500", answer.Code)
			}
		})
	}
}

// TestFloorReusesBuffers: the bytes of one invocation never get into the call of another.
func TestFloorReusesBuffers(t *testing.T) {
	const parallel, each = 8, 50
	target, url := newSide(t, http.StatusOK)
	f := startFloor(t, url, "")
	var posting sync.WaitGroup
	for n := range parallel {
		posting.Go(func() {
			for i := range each {
				body := strings.Repeat(fmt.Sprintf("%d-%d,", n, i), 1+(n*i)%700)
				answer := httptest.NewRecorder()
				f.ServeHTTP(answer, invocation(t, http.MethodPost, body+"tail", len(body), 0))
			}
		})
	}
	posting.Wait()
	if len(target.got) != parallel*each {
		t.Fatalf("%d calls, want %d", len(target.got), parallel*each)
	}
	for _, got := range target.got {
		body := strings.TrimPrefix(got, "POST ")
		first, _, _ := strings.Cut(body, ",")
		if body != strings.Repeat(first+",", strings.Count(body, ",")) {
			t.Fatalf("a call of several invocations: %.100q", body)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		env  map[string]string
		want string
	}{
		"no_settings": {nil, portName + " and " + targetName},
		"no_target":   {map[string]string{portName: "1"}, targetName},
		"bad_target":  {map[string]string{portName: "1", targetName: "http://[::1"}, targetName + " is not a URL"},
		"bad_storage": {map[string]string{portName: "1", targetName: "http://127.0.0.1:1", storageName: ":"}, storageName + " is not a URL"},
		"bad_port":    {map[string]string{portName: "x", targetName: "http://127.0.0.1:1"}, "listening for invocations"},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), func(name string) string { return test.env[name] })
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}
